//! Work queues: the driver posts entries, the device takes them in order.

use nicvisor_core::{Context, Rule};
use serde::{Deserialize, Serialize};
use zerocopy::FromBytes;

use super::{Owner, QueueMemory};
use crate::rules::data as rules;
use crate::wire::wqe::{
    BASIC_UNIT, HEADER_SIZE, MAX_RQE_SIZE, MAX_SQE_SIZE, MAX_TX_SGL_ENTRIES, RawSge, WqeHeader,
};

/// A send or receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkQueue {
    id: u32,
    pub(crate) owner: Owner,
    kind: WorkQueueKind,
    memory: QueueMemory,
    completion_queue: u32,
    /// Number of the vPort that it belongs to; none for the hardware channel's.
    vport: Option<u16>,
    /// Bytes that the driver ever posted, modulo 2^32.
    head: u32,
    /// Bytes that the device ever took, modulo 2^32.
    tail: u32,
    /// The driver broke a rule after which hardware would not go on.
    halted: bool,
    /// How far behind the tail a fault has entries taken from, in bytes modulo 2^32.
    displaced: u32,
    /// A fault had one of its indices be another.
    pub(super) disturbed: bool,
}

/// What a work queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkQueueKind {
    /// Sending ("SQ").
    Send,
    /// Receiving ("RQ").
    Receive,
}

/// An entry of a work queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wqe {
    /// How it starts.
    pub header: WqeHeader,
    /// Inline out-of-band data.
    pub oob: Vec<u8>,
    /// The scatter-gather list.
    pub sges: Vec<Sge>,
    /// Where it is in the queue, in bytes.
    pub offset: u32,
    /// All of it, as evidence.
    pub raw: Vec<u8>,
}

impl Wqe {
    /// Its parts field by field, as evidence; `oob` says what the out-of-band data are.
    pub fn decoded(&self, oob: Option<String>) -> Vec<String> {
        let sge = |sge: &Sge| {
            format!("gdma_sge: address {:#x}, mem_key {:#x}, size {}", sge.address, sge.mem_key, sge.size)
        };
        [self.header.to_string()].into_iter().chain(oob).chain(self.sges.iter().map(sge)).collect()
    }
}

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Guest address.
    pub address: u64,
    /// Memory key.
    pub mem_key: u32,
    /// Bytes.
    pub size: u32,
}

impl WorkQueue {
    /// A work queue that has just been created: empty.
    pub fn new(
        id: u32,
        owner: Owner,
        kind: WorkQueueKind,
        memory: QueueMemory,
        completion_queue: u32,
    ) -> WorkQueue {
        WorkQueue {
            id,
            owner,
            kind,
            memory,
            completion_queue,
            vport: None,
            head: 0,
            tail: 0,
            halted: false,
            displaced: 0,
            disturbed: false,
        }
    }

    /// The same queue as one of vPort number `vport`.
    pub fn of_vport(self, vport: u16) -> WorkQueue {
        WorkQueue { vport: Some(vport), ..self }
    }

    /// What it is for.
    pub fn kind(&self) -> WorkQueueKind {
        self.kind
    }

    /// Number of the vPort that it belongs to, if it does.
    pub fn vport(&self) -> Option<u16> {
        self.vport
    }

    /// Where its completions go.
    pub fn completion_queue(&self) -> u32 {
        self.completion_queue
    }

    /// Whether there are entries that the device has not taken.
    pub fn has_work(&self) -> bool {
        !self.halted && self.head != self.tail
    }

    /// The queue as findings name it.
    pub fn name(&self) -> String {
        match self.kind {
            WorkQueueKind::Send => format!("sq {}", self.id),
            WorkQueueKind::Receive => format!("rq {}", self.id),
        }
    }

    /// Faults change what a doorbell says, and from where entries are taken until the next: both are told what they
    /// would be, and say what they are to be. What the doorbell says then.
    pub(super) fn overridden(&mut self, rung: u32, change: impl FnOnce([u32; 2]) -> [u32; 2]) -> u32 {
        let [used, taken] = change([rung, self.tail]);
        self.displaced = taken.wrapping_sub(self.tail);
        self.disturbed |= used != rung || self.displaced != 0;
        used
    }

    /// The driver has posted entries up to byte `tail` of all that it ever posted.
    pub fn doorbell(&mut self, context: &mut Context<'_>, tail: u32, wqe_count: u8) {
        if wqe_count != 0 {
            let message = format!("doorbell with a count of {wqe_count}");
            self.report(context, &rules::WQ_DOORBELL_COUNT, message, &[]);
        }
        let posted = tail.wrapping_sub(self.tail);
        if posted > self.memory.length() || !tail.is_multiple_of(BASIC_UNIT as u32) {
            let message = format!(
                "doorbell {tail:#x}, {posted} bytes from the next entry, in a queue of {} bytes",
                self.memory.length()
            );
            return self.report(context, &rules::WQ_DOORBELL, message, &[]);
        }
        let waiting = self.head.wrapping_sub(self.tail);
        if posted < waiting {
            let message = format!("doorbell {tail:#x} takes back {} bytes", waiting - posted);
            return self.report(context, &rules::WQ_DOORBELL, message, &[]);
        }
        self.head = tail;
    }

    /// Takes the next entry.
    pub fn next(&mut self, context: &mut Context<'_>) -> Option<Wqe> {
        if !self.has_work() {
            return None;
        }
        let wqe = self.fetch(context);
        match &wqe {
            Some(wqe) => {
                self.tail = self.tail.wrapping_add(wqe.raw.len() as u32);
                self.check(context, wqe);
            }
            None => self.halted = true,
        }
        wqe
    }

    /// Reads the entry at the tail; `None` if hardware would stop at it.
    fn fetch(&self, context: &mut Context<'_>) -> Option<Wqe> {
        let mut start = [0; HEADER_SIZE];
        let place = self.tail.wrapping_add(self.displaced);
        if let Err(error) = self.memory.read(&context.dma, place, &mut start) {
            self.report(context, &rules::QUEUE_MEMORY, error.to_string(), &[]);
            return None;
        }
        let header = WqeHeader::decode(&start);
        let (size, most) = (header.size(), self.max_entry());
        let posted = self.head.wrapping_sub(self.tail) as usize;
        if size > most || size > posted {
            let message = format!("entry of {size} bytes; {most} are allowed, {posted} posted");
            self.report(context, &rules::WQE_SIZE, message, &start);
            return None;
        }
        let mut raw = vec![0; size];
        if let Err(error) = self.memory.read(&context.dma, place, &mut raw) {
            self.report(context, &rules::QUEUE_MEMORY, error.to_string(), &start);
            return None;
        }
        // The driver may have changed the header since it was first read; the sizes go by the first reading.
        let oob = raw.get(HEADER_SIZE..header.sgl_offset())?.to_vec();
        let list = raw.get(header.sgl_offset()..)?;
        let sges = (0..header.num_sge.into()).map_while(|index| Sge::read(list, index)).collect();
        Some(Wqe { header, oob, sges, offset: place % self.memory.length(), raw })
    }

    /// What holds for entries of any queue.
    fn check(&self, context: &mut Context<'_>, wqe: &Wqe) {
        if wqe.header.reserved {
            self.report(context, &rules::WQE_RESERVED, "reserved bits of the header are set", &wqe.raw);
        }
        if wqe.sges.is_empty() || wqe.sges.iter().any(|sge| sge.size == 0) {
            let sizes: Vec<u32> = wqe.sges.iter().map(|sge| sge.size).collect();
            self.report(context, &rules::WQE_SGL, format!("list of sizes {sizes:?}"), &wqe.raw);
        }
        if self.kind == WorkQueueKind::Send && wqe.sges.len() > MAX_TX_SGL_ENTRIES {
            let message = format!("list of {} elements, {MAX_TX_SGL_ENTRIES} are allowed", wqe.sges.len());
            self.report(context, &rules::WQE_SGL, message, &wqe.raw);
        }
        let memory_key = self.owner.memory_key;
        if let Some(sge) = wqe.sges.iter().find(|sge| sge.mem_key != memory_key) {
            let message = format!("memory key {:#x}, not {memory_key:#x}", sge.mem_key);
            self.report(context, &rules::WQE_MEMORY_KEY, message, &wqe.raw);
        }
    }

    fn max_entry(&self) -> usize {
        match self.kind {
            WorkQueueKind::Send => MAX_SQE_SIZE,
            WorkQueueKind::Receive => MAX_RQE_SIZE,
        }
    }

    fn report(&self, context: &mut Context<'_>, rule: &Rule, message: impl Into<String>, descriptor: &[u8]) {
        context.report(rule, message, |finding| {
            finding.queue = self.name();
            finding.descriptor = descriptor.to_vec();
        });
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(crate) fn is_sound(&self) -> bool {
        self.memory.is_sound() && self.head.wrapping_sub(self.tail) <= self.memory.length()
    }
}

impl Sge {
    fn read(list: &[u8], index: usize) -> Option<Sge> {
        let (raw, _) = RawSge::read_from_prefix(list.get(index * size_of::<RawSge>()..)?).ok()?;
        Some(Sge { address: raw.address.get(), mem_key: raw.mem_key.get(), size: raw.size.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::testing::Bench;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    const PAGES: [u64; 2] = [0x3000, 0x1000];

    fn queue(kind: WorkQueueKind) -> (Bench, WorkQueue) {
        let memory = QueueMemory::new(PAGES.to_vec(), 4096, 0, 8192).unwrap();
        let owner = Owner { memory_key: 5, ..Owner::default() };
        (Bench::with_memory(1 << 20), WorkQueue::new(7, owner, kind, memory, 1))
    }

    fn entry(sges: &[u32], oob: &[u8]) -> Vec<u8> {
        let header =
            WqeHeader { num_sge: sges.len() as u8, inline_oob_size: oob.len() as u8, ..Default::default() };
        let mut raw = header.encode().to_vec();
        raw.extend_from_slice(oob);
        for (index, size) in sges.iter().enumerate() {
            let address = 0x1_0000 * (index as u64 + 1);
            let sge = RawSge { address: address.into(), mem_key: 5.into(), size: (*size).into() };
            raw.extend_from_slice(sge.as_bytes());
        }
        raw.resize(header.size(), 0xaa);
        raw
    }

    /// Posts and rings as the driver does.
    fn post(bench: &mut Bench, queue: &mut WorkQueue, raw: &[u8]) {
        let head = queue.head;
        queue.memory.write(&bench.dma(), head, raw).unwrap();
        bench.call(|context| queue.doorbell(context, head.wrapping_add(raw.len() as u32), 0));
    }

    fn rules(bench: &mut Bench) -> Vec<String> {
        bench.take_effects().findings.iter().map(|finding| finding.rule.to_string()).collect()
    }

    #[test]
    fn what_the_driver_must_not_do_is_found() {
        let (mut bench, mut queue) = queue(WorkQueueKind::Receive);
        bench.call(|context| queue.doorbell(context, 32, 1));
        bench.call(|context| queue.doorbell(context, 0, 0));
        bench.call(|context| queue.doorbell(context, 8224, 0));
        bench.call(|context| queue.doorbell(context, 40, 0));
        let expected = ["mana-wq-doorbell-count", "mana-wq-doorbell", "mana-wq-doorbell", "mana-wq-doorbell"];
        assert_eq!(rules(&mut bench), expected);
        for (raw, rule, taken) in [
            (entry(&[1; 16], &[0; 8]), "mana-wqe-size", false),
            (entry(&[], &[0; 8]), "mana-wqe-sgl", true),
            (entry(&[1, 0], &[0; 8]), "mana-wqe-sgl", true),
            ([&[1], &entry(&[1], &[0; 8])[1..]].concat(), "mana-wqe-reserved", true),
        ] {
            let (mut bench, mut queue) = super::tests::queue(WorkQueueKind::Receive);
            post(&mut bench, &mut queue, &raw);
            assert_eq!(bench.call(|context| queue.next(context)).is_some(), taken);
            assert_eq!(rules(&mut bench), [rule]);
            assert_eq!(bench.call(|context| queue.next(context)), None);
            post(&mut bench, &mut queue, &entry(&[1], &[0; 8]));
            assert_eq!(bench.call(|context| queue.next(context)).is_some(), taken, "halted if not taken");
        }
    }

    #[test]
    fn lists_use_the_memory_key_of_the_queue() {
        let (mut bench, mut queue) = queue(WorkQueueKind::Send);
        queue.owner.memory_key = 6;
        post(&mut bench, &mut queue, &entry(&[1], &[0; 8]));
        assert!(bench.call(|context| queue.next(context)).is_some());
        assert_eq!(rules(&mut bench), ["mana-wqe-memory-key"]);
    }

    #[test]
    fn lists_have_at_most_30_elements() {
        let (mut bench, mut queue) = queue(WorkQueueKind::Send);
        for (count, expected) in [(30, &[][..]), (31, &["mana-wqe-sgl"])] {
            post(&mut bench, &mut queue, &entry(&vec![1; count], &[0; 8]));
            assert!(bench.call(|context| queue.next(context)).is_some());
            assert_eq!(rules(&mut bench), expected);
        }
    }

    #[test]
    fn half_an_entry_is_none() {
        let (mut bench, mut queue) = queue(WorkQueueKind::Send);
        post(&mut bench, &mut queue, &entry(&[1, 2, 3], &[0; 8])[..32]);
        assert_eq!(bench.call(|context| queue.next(context)), None);
        assert_eq!(rules(&mut bench), ["mana-wqe-size"]);
    }

    proptest! {
        #[test]
        fn entries_come_out_as_they_were_posted(
            start in 0..1_u32 << 27,
            shapes in proptest::collection::vec((any::<bool>(), 1..30_usize), 1..60),
        ) {
            let (mut bench, mut queue) = queue(WorkQueueKind::Send);
            queue.head = start * 32;
            queue.tail = queue.head;
            for (long, count) in shapes {
                let sizes: Vec<u32> = (1..=count as u32).collect();
                let raw = entry(&sizes, if long { &[3; 24] } else { &[2; 8] });
                let offset = queue.head % 8192;
                post(&mut bench, &mut queue, &raw);
                let wqe = bench.call(|context| queue.next(context)).unwrap();
                prop_assert_eq!(wqe.offset, offset);
                prop_assert_eq!(wqe.oob, vec![if long { 3 } else { 2 }; if long { 24 } else { 8 }]);
                let found: Vec<u32> = wqe.sges.iter().map(|sge| sge.size).collect();
                prop_assert_eq!(found, sizes);
                prop_assert_eq!(wqe.sges[count - 1].address, 0x1_0000 * count as u64);
                prop_assert_eq!(wqe.raw, raw);
            }
            prop_assert!(!queue.has_work());
            prop_assert_eq!(rules(&mut bench), Vec::<String>::new());
        }
    }
}
