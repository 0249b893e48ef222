//! A device for the tests of this module: a scratch register that raises interrupts and tries DMA.

use serde_json::Value;

use super::{Bar, BarKind, Function, Identity, PciDevice};
use crate::{Context, Device, Frame, Port, RestoreError, Time};

/// Writing `v` to offset 0 of BAR 0 raises vector `v`; writing `a` to offset 8 stores to memory at `a`.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) identity: Identity,
    pub(super) scratch: u64,
    pub(super) wake: Option<Time>,
}

impl Probe {
    pub(super) fn function() -> Function {
        Function::new(Box::new(Probe { identity: identity(), scratch: 0, wake: None })).unwrap()
    }
}

/// A NIC with a 64-bit register BAR, a 32-bit one and an MSI-X table.
pub(super) fn identity() -> Identity {
    let bar = |index, size, wide, kind| Bar { index, size, wide, prefetchable: wide, kind };
    Identity {
        vendor: 0x1ae0,
        device: 0x0042,
        subsystem_vendor: 0x1ae0,
        subsystem: 0x0058,
        class: 0x02_00_00,
        revision: 1,
        bars: vec![
            bar(0, 0x4000, true, BarKind::Device),
            bar(2, 0x1000, false, BarKind::Msix),
            bar(3, 0x20, false, BarKind::Device),
        ],
        msix_vectors: 9,
        vendor_capabilities: vec![vec![1, 2, 3], vec![4, 5, 6, 7, 8]],
    }
}

impl PciDevice for Probe {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn read_bar(&mut self, _context: &mut Context<'_>, bar: u8, _offset: u64, data: &mut [u8]) {
        data.fill(bar);
    }

    fn write_bar(&mut self, context: &mut Context<'_>, _bar: u8, offset: u64, data: &[u8]) {
        let mut bytes = [0; 8];
        bytes[..data.len()].copy_from_slice(data);
        self.scratch = u64::from_le_bytes(bytes);
        match offset {
            0 => context.raise(self.scratch as u16),
            8 => self.scratch = u64::from(context.dma.write(self.scratch, &[0x5a]).is_ok()),
            _ => self.wake = Some(Time::from_nanos(self.scratch)),
        }
    }
}

impl Device for Probe {
    fn receive(&mut self, _context: &mut Context<'_>, _port: u16, _frame: Frame) {}

    fn next_deadline(&self) -> Option<Time> {
        self.wake
    }

    fn deadline(&mut self, context: &mut Context<'_>) {
        self.wake = None;
        context.raise(1);
    }

    fn reset(&mut self, _context: &mut Context<'_>) {
        self.scratch = 0;
        self.wake = None;
    }

    fn ports(&self) -> Vec<Port> {
        Vec::new()
    }

    fn counters(&self) -> Vec<(String, u64)> {
        vec![("scratch".into(), self.scratch)]
    }

    fn save(&self) -> Value {
        self.scratch.into()
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        self.scratch = state.as_u64().ok_or_else(|| RestoreError("not a number".into()))?;
        Ok(())
    }
}
