//! Debug registers (Intel SDM vol. 3, 18.2). Nothing here costs anything while DR7 arms no breakpoint.

use crate::{Access, Cpu};

/// One armed breakpoint.
#[derive(Clone, Copy, Debug)]
struct Breakpoint {
    index: usize,
    address: u64,
    bytes: u64,
    kind: u64,
}

impl Cpu {
    fn breakpoints(&self) -> impl Iterator<Item = Breakpoint> {
        let control = self.debug[7];
        let addresses = self.debug;
        (0..4).filter(move |index| control >> (index * 2) & 3 != 0).map(move |index| {
            let field = control >> (16 + index * 4);
            let bytes = match field >> 2 & 3 {
                0 => 1,
                1 => 2,
                2 => 8,
                _ => 4,
            };
            Breakpoint { index, address: addresses[index] & !(bytes - 1), bytes, kind: field & 3 }
        })
    }

    /// Whether a data breakpoint touches the `bytes` bytes at `linear`.
    pub(crate) fn is_watched(&self, linear: u64, bytes: u64) -> bool {
        self.derived.debugging
            && self.breakpoints().any(|point| point.kind != KIND_EXECUTE && point.overlaps(linear, bytes))
    }

    /// Notes a data access that happened, for the trap that follows the instruction.
    pub(crate) fn watch_access(&mut self, linear: u64, bytes: usize, access: Access) {
        if !self.derived.debugging {
            return;
        }
        let hits = self.breakpoints().filter(|point| {
            let kind = match access {
                Access::Write => matches!(point.kind, KIND_WRITE | KIND_ACCESS),
                _ => point.kind == KIND_ACCESS,
            };
            kind && point.overlaps(linear, bytes as u64)
        });
        let mask = hits.fold(0, |mask, point| mask | 1 << point.index);
        self.debug_trap |= mask;
    }

    /// DR6 bits of the instruction breakpoints at `linear`.
    pub(crate) fn instruction_breakpoints(&self, linear: u64) -> u64 {
        self.breakpoints()
            .filter(|point| point.kind == KIND_EXECUTE && point.address == linear)
            .fold(0, |mask, point| mask | 1 << point.index)
    }
}

impl Breakpoint {
    fn overlaps(&self, linear: u64, bytes: u64) -> bool {
        self.address < linear.saturating_add(bytes) && linear < self.address.saturating_add(self.bytes)
    }
}

const KIND_EXECUTE: u64 = 0;
const KIND_WRITE: u64 = 1;
const KIND_ACCESS: u64 = 3;
