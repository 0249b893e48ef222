//! A PCI device for the bare-metal PCI program: raises interrupts and writes memory when told to.

use nicvisor_core::pci::{Bar, BarKind, Identity};
use nicvisor_core::{Context, Device, Frame, PciDevice, Port, RestoreError, Time};
use serde_json::Value;

/// Register 0: raise this vector. Register 8: store [`PATTERN`] at this address.
#[derive(Debug)]
pub(crate) struct Doorbell;

impl PciDevice for Doorbell {
    fn identity(&self) -> Identity {
        let bar = |index, kind| Bar { index, size: 0x1000, wide: false, prefetchable: false, kind };
        Identity {
            vendor: 0x1234,
            device: 0x0d00,
            subsystem_vendor: 0x1234,
            subsystem: 0,
            class: 0xff_00_00,
            revision: 0,
            bars: vec![bar(0, BarKind::Device), bar(1, BarKind::Msix)],
            msix_vectors: 2,
            vendor_capabilities: Vec::new(),
        }
    }

    fn read_bar(&mut self, _context: &mut Context<'_>, _bar: u8, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write_bar(&mut self, context: &mut Context<'_>, _bar: u8, offset: u64, data: &[u8]) {
        match (offset, data) {
            (0, [vector, ..]) => context.raise(u16::from(*vector)),
            (8, data) if data.len() == 8 => {
                let address = u64::from_le_bytes(data.try_into().unwrap());
                // Refused while bus mastering is off, which the program looks at.
                let _ = context.dma.write(address, &PATTERN.to_le_bytes());
            }
            _ => {}
        }
    }
}

impl Device for Doorbell {
    fn receive(&mut self, _context: &mut Context<'_>, _port: u16, _frame: Frame) {}

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn deadline(&mut self, _context: &mut Context<'_>) {}

    fn reset(&mut self, _context: &mut Context<'_>) {}

    fn ports(&self) -> Vec<Port> {
        Vec::new()
    }

    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn restore(&mut self, _state: &Value) -> Result<(), RestoreError> {
        Ok(())
    }
}

const PATTERN: u64 = 0x1122_3344_5566_7788;
