use proptest::prelude::*;

use super::*;

fn enabled() -> LocalApic {
    let mut apic = LocalApic::new(0);
    apic.write(SPURIOUS, 0x1ff, Time::ZERO);
    apic
}

fn at(nanoseconds: u64) -> Time {
    Time::from_nanos(nanoseconds)
}

#[test]
fn higher_classes_come_first_and_block_lower_ones() {
    let mut apic = enabled();
    for vector in [0x31, 0x52, 0x5f] {
        apic.accept(Mode::Fixed, vector, false);
    }
    assert_eq!(apic.acknowledge(), Some(0x5f));
    assert!(!apic.pending(), "0x52 has the class of the one in service");
    assert_eq!(apic.read(PROCESSOR_PRIORITY, Time::ZERO), Some(0x50));
    assert_eq!(apic.write(END_OF_INTERRUPT, 0, Time::ZERO), Some(Request::Nothing));
    assert_eq!(apic.acknowledge(), Some(0x52));
    apic.write(END_OF_INTERRUPT, 0, Time::ZERO);
    apic.set_task_priority_class(3);
    assert!(!apic.pending());
    apic.set_task_priority_class(2);
    assert_eq!(apic.acknowledge(), Some(0x31));
}

#[test]
fn level_triggered_vectors_report_their_end() {
    let mut apic = enabled();
    apic.accept(Mode::Fixed, 0x40, true);
    apic.acknowledge();
    assert_eq!(apic.write(END_OF_INTERRUPT, 0, Time::ZERO), Some(Request::EndOfInterrupt(0x40)));
}

#[test]
fn a_disabled_apic_takes_nothing_but_nmi_and_init() {
    let mut apic = LocalApic::new(1);
    apic.accept(Mode::Fixed, 0x40, false);
    assert!(!apic.pending());
    apic.accept(Mode::Nmi, 0, false);
    assert!(apic.take_nmi());
    apic.accept(Mode::Init, 0, false);
    assert_eq!(apic.take_startup(), Some(Startup::Init));
}

#[test]
fn only_a_waiting_cpu_starts_up_and_only_once() {
    let mut apic = LocalApic::new(1);
    apic.accept(Mode::Init, 0, false);
    for vector in [0x9a, 0x9b] {
        apic.accept(Mode::Startup, vector, false);
    }
    assert_eq!(apic.take_startup(), Some(Startup::Init));
    assert_eq!(apic.take_startup(), Some(Startup::Begin(0x9a)));
    assert_eq!(apic.take_startup(), None);
}

#[test]
fn illegal_vectors_are_reported() {
    let mut apic = enabled();
    apic.write(LVT_LAST, 0xfe, Time::ZERO);
    apic.accept(Mode::Fixed, 3, false);
    assert_eq!(apic.pending_vector(), Some(0xfe));
    apic.write(ERROR_STATUS, 0, Time::ZERO);
    assert_eq!(apic.read(ERROR_STATUS, Time::ZERO), Some(u64::from(ERROR_RECEIVED_ILLEGAL_VECTOR)));
    assert_eq!(apic.write(COMMAND, 0x0004_4007, Time::ZERO), Some(Request::Nothing));
    apic.write(ERROR_STATUS, 0, Time::ZERO);
    assert_eq!(apic.read(ERROR_STATUS, Time::ZERO), Some(u64::from(ERROR_SEND_ILLEGAL_VECTOR)));
}

#[test]
fn the_timer_counts_down_once_or_again_and_again() {
    let mut apic = enabled();
    apic.write(DIVIDE, 0b1011, at(0));
    apic.write(LVT_FIRST, 0x30, at(0));
    apic.write(INITIAL_COUNT, 5_000, at(100));
    assert_eq!(apic.read(CURRENT_COUNT, at(1_100)), Some(4_000));
    assert_eq!(apic.timer_expiry(), Some(at(5_100)));
    apic.expire_timer(at(5_099));
    assert!(!apic.pending());
    apic.expire_timer(at(5_100));
    assert_eq!((apic.acknowledge(), apic.timer_expiry()), (Some(0x30), None));
    apic.write(END_OF_INTERRUPT, 0, at(5_200));

    apic.write(LVT_FIRST, 0x30 | 1 << 17, at(6_000));
    apic.write(INITIAL_COUNT, 5_000, at(6_000));
    apic.expire_timer(at(11_000));
    assert_eq!(apic.timer_expiry(), Some(at(16_000)));
    apic.expire_timer(at(28_000));
    assert_eq!(apic.timer_expiry(), Some(at(31_000)), "missed periods are not made up for");
}

#[test]
fn the_divider_stretches_the_count() {
    let mut apic = enabled();
    for (divide, factor) in [(0b1011, 1), (0, 2), (1, 4), (2, 8), (3, 16), (8, 32), (9, 64), (10, 128)] {
        apic.write(DIVIDE, divide, at(0));
        apic.write(INITIAL_COUNT, 1_000, at(0));
        assert_eq!(apic.timer_expiry(), Some(at(1_000 * factor)));
    }
}

#[test]
fn a_deadline_fires_once_and_clears_itself() {
    let mut apic = enabled();
    apic.set_tsc_deadline(at(0), 500, Some(at(500)));
    assert_eq!(apic.timer_expiry(), None, "not in that mode");
    apic.write(LVT_FIRST, 0x30 | 2 << 17, at(0));
    apic.set_tsc_deadline(at(0), 500, Some(at(500)));
    assert_eq!(apic.tsc_deadline(), 500);
    apic.expire_timer(at(500));
    assert_eq!((apic.acknowledge(), apic.tsc_deadline(), apic.timer_expiry()), (Some(0x30), 0, None));
    apic.write(END_OF_INTERRUPT, 0, at(600));
    apic.set_tsc_deadline(at(600), 550, Some(at(550)));
    assert_eq!(apic.acknowledge(), Some(0x30), "already past");
}

#[test]
fn modes_change_only_as_allowed() {
    let mut apic = LocalApic::new(0);
    let base = 0xfee0_0000_u64;
    assert!(!apic.set_base(base | BASE_X2APIC));
    assert!(apic.set_base(base | BASE_ENABLE | BASE_X2APIC));
    assert!(apic.x2apic());
    assert!(!apic.set_base(base | BASE_ENABLE), "not back to xAPIC mode");
    assert!(!apic.set_base(1 << 60), "reserved bits");
    assert!(apic.set_base(base));
    assert!(!apic.set_base(base | BASE_ENABLE | BASE_X2APIC), "not from disabled");
    assert!(apic.set_base(base | BASE_ENABLE));
    assert_eq!(apic.base(), base | BASE_ENABLE | BASE_BOOTSTRAP);
}

#[test]
fn logical_destinations() {
    let mut apic = enabled();
    apic.write(LOGICAL_DESTINATION, 0x0200_0000, at(0));
    assert!(apic.matches(Destination::Logical(0x03), 0));
    assert!(!apic.matches(Destination::Logical(0x04), 0));
    apic.write(DESTINATION_FORMAT, 0x0fff_ffff, at(0));
    apic.write(LOGICAL_DESTINATION, 0x3200_0000, at(0));
    assert!(apic.matches(Destination::Logical(0x36), 0));
    assert!(!apic.matches(Destination::Logical(0x26), 0));
    assert!(!apic.matches(Destination::Logical(0x34), 0));
    let mut other = LocalApic::new(0x25);
    other.set_base(0xfee0_0000 | BASE_ENABLE | BASE_X2APIC);
    assert_eq!(other.read(LOGICAL_DESTINATION, at(0)), Some(0x0002_0020));
    assert!(other.matches(Destination::Logical(0x0002_0021), 0));
    assert!(!other.matches(Destination::Logical(0x0001_0020), 0));
}

/// What a test does to an APIC.
#[derive(Clone, Debug)]
enum Step {
    Arrive(u8),
    Acknowledge,
    End,
    Priority(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (16_u8..=255).prop_map(Step::Arrive),
        Just(Step::Acknowledge),
        Just(Step::End),
        (0_u8..16).prop_map(Step::Priority),
    ]
}

/// The rules of priority with sets of vectors and no cleverness.
#[derive(Default)]
struct Naive {
    requested: std::collections::BTreeSet<u8>,
    in_service: Vec<u8>,
    class: u8,
}

impl Naive {
    fn deliverable(&self) -> Option<u8> {
        let busy = self.in_service.iter().map(|vector| vector / 16).max().unwrap_or(0).max(self.class);
        self.requested.iter().copied().filter(|vector| vector / 16 > busy).max()
    }
}

proptest! {
    #[test]
    fn priorities_are_those_of_the_naive_model(steps in prop::collection::vec(step(), 0..200)) {
        let mut apic = enabled();
        let mut naive = Naive::default();
        for step in steps {
            match step {
                Step::Arrive(vector) => {
                    apic.accept(Mode::Fixed, vector, false);
                    naive.requested.insert(vector);
                }
                Step::Acknowledge => {
                    let expected = naive.deliverable();
                    if let Some(vector) = expected {
                        naive.requested.remove(&vector);
                        naive.in_service.push(vector);
                    }
                    prop_assert_eq!(apic.acknowledge(), expected);
                }
                Step::End => {
                    apic.write(END_OF_INTERRUPT, 0, Time::ZERO);
                    naive.in_service.sort_unstable();
                    naive.in_service.pop();
                }
                Step::Priority(class) => {
                    apic.set_task_priority_class(class);
                    naive.class = class;
                }
            }
            prop_assert_eq!(apic.pending_vector(), naive.deliverable());
        }
    }
}
