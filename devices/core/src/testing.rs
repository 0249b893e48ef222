//! Support for testing device models without a guest: a piece of memory, a clock and the effects of the last
//! call; a device in such a machine; and the rings that a driver shares with it. Used by every device crate's tests, benches and fuzz targets.

mod rings;

pub use rings::{Piece, PostedRing, RingMemory, WrittenRing};

use std::ops::Range;

use nicvisor_memory::{GuestRam, allocate};
use zerocopy::{FromBytes, IntoBytes};

use crate::{Context, Dma, Duration, Effects, Frame, FrameId, PciDevice, Time};

/// A machine that has nothing but memory and time.
#[derive(Debug)]
pub struct Bench {
    /// Guest memory, 16 MiB unless made otherwise.
    pub memory: GuestRam,
    /// The time that the next call will see.
    pub now: Time,
    /// Effects of all calls since they were last taken.
    pub effects: Effects,
}

impl Bench {
    /// A bench with `size` bytes of memory.
    ///
    /// # Panics
    /// When the host has not that much address space.
    pub fn with_memory(size: u64) -> Bench {
        let memory = allocate(size).expect("test memory");
        Bench { memory, now: Time::ZERO, effects: Effects::default() }
    }

    /// Calls into a device with a context on this bench, bus mastering on.
    pub fn call<R>(&mut self, call: impl FnOnce(&mut Context<'_>) -> R) -> R {
        call(&mut Context::new(self.now, &self.memory, true, &mut self.effects))
    }

    /// Memory as a driver would see it.
    pub fn dma(&self) -> Dma<'_> {
        Dma::new(&self.memory, true)
    }

    /// Lets time pass.
    pub fn advance(&mut self, duration: Duration) {
        self.now += duration;
    }

    /// Takes the effects collected so far.
    pub fn take_effects(&mut self) -> Effects {
        let wanted = self.effects.wanted;
        std::mem::replace(&mut self.effects, Effects { wanted, ..Effects::default() })
    }
}

impl Default for Bench {
    fn default() -> Self {
        Bench::with_memory(16 << 20)
    }
}

/// A device in a machine that has nothing but memory and time: what drivers for tests are built on.
#[derive(Debug)]
pub struct Harness<D> {
    /// The device.
    pub device: D,
    /// Its memory and time, and the effects of calls so far.
    pub bench: Bench,
    heap: Range<u64>,
}

impl<D: PciDevice> Harness<D> {
    /// `device` with `size` bytes of memory, of which [`Self::allocate`] hands out those in `heap`.
    ///
    /// # Panics
    /// When the host has not that much address space.
    pub fn new(device: D, size: u64, heap: Range<u64>) -> Harness<D> {
        Harness { device, bench: Bench::with_memory(size), heap }
    }

    /// Memory that nothing else uses, page-aligned.
    ///
    /// # Panics
    /// When there is no more.
    pub fn allocate(&mut self, length: u64) -> u64 {
        let address = self.heap.start;
        self.heap.start += length.next_multiple_of(PAGE);
        assert!(self.heap.start <= self.heap.end, "test memory used up");
        address
    }

    /// Calls into the device.
    pub fn call<R>(&mut self, call: impl FnOnce(&mut D, &mut Context<'_>) -> R) -> R {
        let device = &mut self.device;
        self.bench.call(|context| call(device, context))
    }

    /// Reads `N` bytes of a BAR.
    pub fn read_bar<const N: usize>(&mut self, bar: u8, offset: u64) -> [u8; N] {
        let mut data = [0xff; N];
        self.call(|device, context| device.read_bar(context, bar, offset, &mut data));
        data
    }

    /// Writes to a BAR.
    pub fn write_bar(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.call(|device, context| device.write_bar(context, bar, offset, data));
    }

    /// Reads a structure from memory.
    ///
    /// # Panics
    /// When it is not in memory.
    pub fn read<T: FromBytes + IntoBytes>(&self, address: u64) -> T {
        self.bench.dma().read_object(address).expect("in memory")
    }

    /// Writes to memory.
    ///
    /// # Panics
    /// When it is not in memory.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.bench.dma().write(address, bytes).expect("in memory");
    }

    /// Has a frame arrive at port number `port`.
    pub fn arrive(&mut self, port: u16, id: u64, bytes: Vec<u8>) {
        let frame = Frame { id: FrameId(id), bytes };
        self.call(|device, context| device.receive(context, port, frame));
    }

    /// Lets time pass, and the device do what is then due.
    pub fn advance(&mut self, duration: Duration) {
        self.bench.advance(duration);
        self.call(|device, context| device.deadline(context));
    }

    /// Lets the device do everything that is due within `duration`, each at its time, and lets that pass.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.bench.now + duration;
        while let Some(deadline) = self.device.next_deadline().filter(|deadline| *deadline <= end) {
            self.bench.now = self.bench.now.max(deadline);
            self.call(|device, context| device.deadline(context));
        }
        self.bench.now = end;
    }

    /// Takes the effects of all calls since the last time.
    pub fn effects(&mut self) -> Effects {
        self.bench.take_effects()
    }
}

const PAGE: u64 = 4096;
