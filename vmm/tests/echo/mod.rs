//! The other end of a link: returns every frame, with its addresses exchanged.

use nicvisor_core::pci::Identity;
use nicvisor_core::{Context, Device, Fate, Frame, PciDevice, Port, RestoreError, Time};
use serde_json::Value;

/// A PCI function without registers and one port.
#[derive(Debug)]
pub(crate) struct Echo;

impl PciDevice for Echo {
    fn identity(&self) -> Identity {
        Identity {
            vendor: 0x1234,
            device: 0x0e00,
            subsystem_vendor: 0x1234,
            subsystem: 0,
            class: 0xff_00_00,
            revision: 0,
            bars: Vec::new(),
            msix_vectors: 0,
            vendor_capabilities: Vec::new(),
        }
    }

    fn read_bar(&mut self, _context: &mut Context<'_>, _bar: u8, _offset: u64, _data: &mut [u8]) {}

    fn write_bar(&mut self, _context: &mut Context<'_>, _bar: u8, _offset: u64, _data: &[u8]) {}
}

impl Device for Echo {
    fn receive(&mut self, context: &mut Context<'_>, port: u16, frame: Frame) {
        let mut bytes = frame.bytes;
        let (destination, source) = bytes[..12].split_at_mut(6);
        destination.swap_with_slice(source);
        context.settle(frame.id, Fate::Delivered);
        context.transmit(port, bytes);
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn deadline(&mut self, _context: &mut Context<'_>) {}

    fn reset(&mut self, _context: &mut Context<'_>) {}

    fn ports(&self) -> Vec<Port> {
        vec![Port { mac: [2, 0, 0, 0, 0, 0x99], mtu: 1500 }]
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
