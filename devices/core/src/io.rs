//! Devices that live at fixed I/O ports or memory addresses rather than on PCI (serial port, timers, ...).

use crate::{Context, Time};

/// A device that decodes a range of port or memory addresses.
pub trait IoDevice {
    /// The guest reads `data.len()` bytes (1, 2, 4 or 8) at `offset` from the start of the device's range.
    /// `data` comes filled with ones, which is what a read that no register answers returns.
    fn read(&mut self, context: &mut Context<'_>, offset: u64, data: &mut [u8]);

    /// The guest writes `data` at `offset` from the start of the device's range.
    fn write(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]);

    /// When the device next wants [`Self::deadline`] to be called, if nothing else happens before.
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// It is now at or after [`Self::next_deadline`].
    fn deadline(&mut self, _context: &mut Context<'_>) {}

    /// Power-on state.
    fn reset(&mut self, context: &mut Context<'_>);
}
