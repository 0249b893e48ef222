//! Support for testing device models without a guest: a piece of memory, a clock and the effects of the last
//! call. Used by every device crate's tests, benches and fuzz targets.

use nicvisor_memory::{GuestRam, allocate};

use crate::{Context, Dma, Duration, Effects, Time};

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
