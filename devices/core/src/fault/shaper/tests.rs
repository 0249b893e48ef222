use proptest::prelude::*;

use super::*;
use crate::Duration;
use crate::fault::testing::{COMPLETION, points};
use crate::fault::{Fault, FaultState, Injected, NoFields, WireView};

/// A queue whose completions are numbered tags.
struct Bench {
    state: FaultState,
    shaper: Shaper<u16>,
    now: Time,
}

impl Bench {
    fn new() -> Bench {
        Bench { state: FaultState::default(), shaper: Shaper::new("tx", 1), now: Time::ZERO }
    }

    fn with(fault: &str) -> Bench {
        let mut bench = Bench::new();
        bench.inject(&format!("completion = {fault}"));
        bench
    }

    fn inject(&mut self, fault: &str) {
        let fault: Fault = toml::from_str(fault).unwrap();
        if self.state.inject(self.now, &points(), &fault).unwrap() == Injected::Lifted {
            self.shaper.lifted(&self.state.completions);
        }
    }

    fn offer(&mut self, tag: u16) -> Option<u16> {
        let fields = [("tag", tag.into()), ("type", 2)];
        self.shaper.offer(self.now, &mut self.state.completions, tag, &fields).map(|lost| lost.entry)
    }

    fn ready(&mut self) -> Vec<Ready<u16>> {
        std::iter::from_fn(|| self.shaper.take(self.now)).collect()
    }

    /// The tags that are written now, each as often as it is.
    fn tags(&mut self) -> Vec<u16> {
        let ready = self.ready().into_iter();
        ready.flat_map(|ready| std::iter::repeat_n(tag(&ready), ready.copies as usize)).collect()
    }

    fn offer_all(&mut self, tags: impl IntoIterator<Item = u16>) -> Vec<u16> {
        let mut written = Vec::new();
        for tag in tags {
            self.offer(tag);
            written.extend(self.tags());
        }
        written
    }

    fn at(&mut self, milliseconds: u64) -> Vec<u16> {
        self.now = Time::ZERO + Duration::from_millis(milliseconds);
        self.tags()
    }
}

/// The tag as it stands in the ring.
fn tag(ready: &Ready<u16>) -> u16 {
    let mut bytes = [0, 0, 2];
    bytes[..2].copy_from_slice(&ready.entry.to_le_bytes());
    ready.rewrite(&mut WireView::new(&COMPLETION, &mut bytes));
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn milliseconds(number: u64) -> Option<Time> {
    Some(Time::ZERO + Duration::from_millis(number))
}

#[test]
fn without_faults_completions_pass_in_order() {
    let mut bench = Bench::new();
    assert_eq!(bench.offer_all(0..5), [0, 1, 2, 3, 4]);
    assert_eq!(bench.shaper.next_deadline(), None);
    assert!(bench.shaper.is_empty());
}

#[test]
fn a_held_completion_stops_those_behind_it() {
    let mut bench = Bench::with(r#"{ queue = "tx 1", uses = { nth = 3 }, hold = "16ms" }"#);
    assert_eq!(bench.offer_all(0..5), [0, 1]);
    assert_eq!(bench.shaper.next_deadline(), milliseconds(16));
    assert!(bench.at(15).is_empty());
    assert_eq!(bench.at(16), [2, 3, 4]);
    assert_eq!(bench.offer_all([5]), [5]);
}

#[test]
fn what_is_held_for_ever_is_freed_by_lifting_the_fault() {
    for how in ["hold", "delay"] {
        let mut bench =
            Bench::with(&format!(r#"{{ queue = "tx", uses = {{ nth = 1 }}, {how} = "forever" }}"#));
        bench.offer_all(0..3);
        assert_eq!(bench.shaper.next_deadline(), None, "{how}");
        assert!(!bench.shaper.is_empty());
        bench.inject("lift = {}");
        assert!(bench.shaper.next_deadline().is_some());
        assert!(bench.tags().contains(&0), "{how}");
        assert!(bench.shaper.is_empty());
    }
}

#[test]
fn what_is_held_for_ever_is_freed_when_the_fault_ends_by_itself() {
    let mut bench = Bench::with(r#"{ queue = "tx", hold = "forever", lasts = "5ms" }"#);
    assert!(bench.offer_all(0..2).is_empty());
    assert_eq!(bench.at(5), [0, 1]);
    assert_eq!(bench.offer_all([2]), [2]);
}

#[test]
fn a_delayed_completion_is_overtaken() {
    let mut bench = Bench::with(r#"{ queue = "tx", where = { tag = 1 }, delay = "2ms" }"#);
    assert_eq!(bench.offer_all(0..4), [0, 2, 3]);
    assert_eq!(bench.shaper.next_deadline(), milliseconds(2));
    assert_eq!(bench.at(2), [1]);
}

#[test]
fn lost_and_repeated_and_invented_completions() {
    let mut bench = Bench::with(r#"{ queue = "tx", uses = { nth = 2 }, drop = true }"#);
    assert_eq!((bench.offer(0), bench.offer(1)), (None, Some(1)));
    assert_eq!(bench.tags(), [0]);

    let mut bench = Bench::with(r#"{ queue = "tx", uses = { nth = 1 }, duplicate = 2 }"#);
    assert_eq!(bench.offer_all(0..2), [0, 0, 0, 1]);

    let mut bench = Bench::with(r#"{ queue = "tx", uses = { nth = 1 }, insert = { tag = 77 } }"#);
    assert_eq!(bench.offer_all(0..2), [0, 77, 1]);

    let mut bench = Bench::with(r#"{ queue = "tx", drop = true, insert = { tag = { add = 1 } } }"#);
    assert_eq!(bench.offer(8), Some(8));
    assert_eq!(bench.tags(), [9]);
}

#[test]
fn batches_are_reordered_and_flushed() {
    for (order, expected) in
        [("kept", [0, 1, 2, 3, 4]), ("reversed", [4, 3, 2, 1, 0]), ("interleaved", [1, 3, 0, 2, 4])]
    {
        let mut bench =
            Bench::with(&format!(r#"{{ queue = "tx", batch = {{ entries = 5, order = "{order}" }} }}"#));
        assert!(bench.offer_all(0..4).is_empty());
        assert_eq!(bench.shaper.next_deadline(), milliseconds(10));
        assert_eq!(bench.offer_all([4]), expected);
    }
    let mut bench = Bench::with(r#"{ queue = "tx", batch = { entries = 5, flush-after = "1ms" } }"#);
    bench.offer_all(0..2);
    assert_eq!(bench.at(1), [0, 1]);
}

#[test]
fn other_queues_and_other_fields_are_left_alone() {
    let mut bench = Bench::with(r#"{ queue = "tx 2", drop = true }"#);
    bench.inject(r#"completion = { queue = "tx 1", where = { type = "miss" }, drop = true }"#);
    assert_eq!(bench.offer_all(0..2), [0, 1]);
    let entry = bench.shaper.offer(bench.now, &mut bench.state.completions, 3, &NoFields);
    assert_eq!(entry, None);
}

#[test]
fn interrupts_follow_the_fault() {
    let mut bench = Bench::with(r#"{ queue = "tx", where = { tag = 0 }, interrupt = "suppress" }"#);
    bench.inject(
        r#"completion = { queue = "tx", where = { tag = 1 }, interrupt = { vector = 5 }, label = "moved" }"#,
    );
    (0..3).for_each(|tag| assert_eq!(bench.offer(tag), None));
    let ready = bench.ready();
    let interrupts: Vec<_> = ready.iter().map(|ready| ready.interrupt).collect();
    assert_eq!(interrupts, [Interrupt::Suppressed, Interrupt::Vector(5), Interrupt::Normal]);
    assert_eq!(ready[1].faults, ["moved"]);
}

#[test]
fn a_guest_that_never_stops_does_not_fill_memory() {
    for how in ["hold", "delay"] {
        let mut bench = Bench::with(&format!(r#"{{ queue = "tx", {how} = "forever" }}"#));
        let total = MOST_HELD + 10;
        let mut written = 0;
        for tag in 0..total {
            bench.offer(tag as u16);
            written += bench.tags().len();
        }
        assert!(bench.shaper.len() <= MOST_HELD, "{how}");
        assert_eq!(bench.shaper.len() + written, total);
    }
}

proptest! {
    /// Whatever waits for whatever: nothing is lost, nothing comes twice, nothing comes early.
    #[test]
    fn completions_are_conserved(
        faults in prop::collection::vec((0..3_u8, 1..4_u64, 1..20_u64), 0..4),
        gaps in prop::collection::vec(0..5_u64, 1..60),
    ) {
        let mut bench = Bench::new();
        for (kind, every, time) in faults {
            let what = match kind {
                0 => format!(r#"hold = "{time}ms""#),
                1 => format!(r#"delay = "{time}ms""#),
                _ => format!(r#"batch = {{ entries = {}, order = "reversed" }}"#, time + 1),
            };
            bench.inject(&format!(r#"completion = {{ queue = "tx", uses = {{ every = {every} }}, {what} }}"#));
        }
        let mut written = Vec::new();
        for (tag, gap) in gaps.iter().enumerate() {
            bench.now += Duration::from_millis(*gap);
            prop_assert_eq!(bench.offer(tag as u16), None);
            written.extend(bench.tags());
            if let Some(deadline) = bench.shaper.next_deadline() {
                prop_assert!(deadline > bench.now, "everything due has been taken");
            }
        }
        while let Some(deadline) = bench.shaper.next_deadline() {
            bench.now = deadline;
            written.extend(bench.tags());
            prop_assert!(bench.shaper.next_deadline().is_none_or(|next| next > deadline));
        }
        written.sort_unstable();
        prop_assert_eq!(written, (0..gaps.len() as u16).collect::<Vec<_>>());
    }
}
