//! One PCI function: a device model and the configuration space around it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::layout::{self, Layout};
use super::msix::Msix;
use super::registers::{Registers, SavedRegisters};
use super::{Bar, BarKind, Identity, PciDevice};
use crate::{Context, Dma, RestoreError, Time};

/// A device model with its configuration space, BAR decoders and MSI-X table.
///
/// Every call takes the *machine's* context, with all of memory in reach. The device gets one that reaches
/// memory only while the driver has bus mastering enabled, and the vectors that it raises leave the call as
/// [`crate::Effects::messages`].
#[derive(Debug)]
pub struct Function {
    device: Box<dyn PciDevice>,
    bars: Vec<Bar>,
    layout: Layout,
    registers: Registers,
    msix: Option<Msix>,
    /// Whether what is above passes requests on.
    pub(super) upstream: bool,
}

/// An address range that a function decodes at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarRange {
    /// First guest-physical address.
    pub address: u64,
    /// Length in bytes.
    pub size: u64,
    /// Register number of the BAR.
    pub bar: u8,
}

/// Why an [`Identity`] cannot be a PCI function.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("impossible PCI function: {0}")]
pub struct IdentityError(pub String);

#[derive(Serialize, Deserialize)]
struct SavedFunction {
    registers: SavedRegisters,
    msix: Option<Msix>,
    device: Value,
}

impl Function {
    /// Builds the configuration space that `device` asks for.
    ///
    /// # Errors
    /// When the device's identity breaks a rule of PCI: a BAR that is not a power of two or does not exist,
    /// an MSI-X table without a BAR large enough for it, capabilities that do not fit.
    pub fn new(device: Box<dyn PciDevice>) -> Result<Function, IdentityError> {
        let identity = device.identity();
        check(&identity)?;
        let (registers, layout) = layout::build(&identity)?;
        let msix = (identity.msix_vectors > 0).then(|| Msix::new(identity.msix_vectors));
        Ok(Function { device, bars: identity.bars, layout, registers, msix, upstream: true })
    }

    /// The device model.
    pub fn device(&self) -> &dyn PciDevice {
        &*self.device
    }

    /// The BARs that the device has, decoded or not.
    pub fn bars(&self) -> &[Bar] {
        &self.bars
    }

    /// Software reads `data.len()` bytes at `offset` of the configuration space.
    pub fn config_read(&self, offset: u16, data: &mut [u8]) {
        self.registers.read(usize::from(offset), data);
    }

    /// Software writes `data` at `offset` of the configuration space. Returns whether the ranges that the
    /// function decodes may have changed.
    pub fn config_write(&mut self, context: &mut Context<'_>, offset: u16, data: &[u8]) -> bool {
        let offset = usize::from(offset);
        self.registers.write(offset, data);
        if self.starts_function_level_reset(offset, data) {
            self.reset(context);
            return true;
        }
        self.update_msix(context);
        let touches =
            |register: usize, length: usize| offset < register + length && register < offset + data.len();
        touches(layout::COMMAND, 2)
            || touches(layout::BARS, 24)
            || touches(self.layout.power_management + layout::PM_CONTROL, 2)
    }

    /// Says whether the bridge above passes the function's requests on.
    pub(super) fn set_upstream(&mut self, context: &mut Context<'_>, open: bool) {
        self.upstream = open;
        self.update_msix(context);
    }

    /// The address ranges that the function decodes now: none while memory decoding is off or the function
    /// sleeps.
    pub fn bar_ranges(&self) -> Vec<BarRange> {
        if !self.awake() || self.command() & layout::COMMAND_MEMORY == 0 {
            return Vec::new();
        }
        let ranges = self.bars.iter().map(|bar| BarRange {
            address: self.bar_address(bar),
            size: bar.size,
            bar: bar.index,
        });
        ranges.filter(|range| range.address != 0 && range.address.checked_add(range.size).is_some()).collect()
    }

    /// Where the device's doorbells are now; nowhere while their BARs are not decoded.
    pub fn doorbells(&self) -> Vec<u64> {
        let ranges = self.bar_ranges();
        let place = |bell: super::Doorbell| {
            let range = ranges.iter().find(|range| range.bar == bell.bar)?;
            (bell.offset < range.size).then_some(range.address + bell.offset)
        };
        self.device.doorbells().into_iter().filter_map(place).collect()
    }

    /// The address in `bar`'s registers, whether decoded or not.
    pub fn bar_address(&self, bar: &Bar) -> u64 {
        let register = layout::bar_register(bar.index);
        let low = u64::from(self.registers.u32(register) & !0xf);
        let high = if bar.wide { u64::from(self.registers.u32(register + 4)) << 32 } else { 0 };
        low | high
    }

    /// Puts `address` into `bar`'s registers, as firmware does before the operating system starts.
    pub fn set_bar_address(&mut self, bar: &Bar, address: u64) {
        let register = layout::bar_register(bar.index);
        let bytes = address.to_le_bytes();
        self.registers.write(register, if bar.wide { &bytes } else { &bytes[..4] });
    }

    /// The guest reads `data.len()` bytes at `offset` of BAR number `bar`; `data` comes filled with ones.
    pub fn bar_read(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, data: &mut [u8]) {
        match (self.kind_of(bar, offset, data.len()), &self.msix) {
            (Some(BarKind::Msix), Some(msix)) => msix.read(offset, data),
            (Some(BarKind::Device), _) => {
                self.call(context, |device, context| device.read_bar(context, bar, offset, data));
            }
            _ => {}
        }
    }

    /// The guest writes `data` at `offset` of BAR number `bar`.
    pub fn bar_write(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, data: &[u8]) {
        match (self.kind_of(bar, offset, data.len()), &mut self.msix) {
            (Some(BarKind::Msix), Some(msix)) => msix.write(offset, data, &mut context.effects.messages),
            (Some(BarKind::Device), _) => {
                self.call(context, |device, context| device.write_bar(context, bar, offset, data));
            }
            _ => {}
        }
    }

    /// Calls the device from the host's side, with a context of its own, and sends the interrupts that it raises.
    pub fn call<R>(
        &mut self,
        context: &mut Context<'_>,
        call: impl FnOnce(&mut dyn PciDevice, &mut Context<'_>) -> R,
    ) -> R {
        let dma: Dma<'_> = context.dma.gated(self.masters_bus());
        // What something around the function has raised in the same call is its own.
        let earlier = context.effects.vectors.len();
        let mut own = Context { now: context.now, dma, effects: context.effects };
        let result = call(&mut *self.device, &mut own);
        let effects = own.effects;
        for vector in effects.vectors.drain(earlier..) {
            if let Some(msix) = &mut self.msix {
                msix.raise(vector, &mut effects.messages);
            }
        }
        result
    }

    /// See [`crate::Device::next_deadline`].
    pub fn next_deadline(&self) -> Option<Time> {
        self.device.next_deadline()
    }

    /// See [`crate::Device::deadline`].
    pub fn deadline(&mut self, context: &mut Context<'_>) {
        self.call(context, |device, context| device.deadline(context));
    }

    /// Function-level or bus reset: the device, the configuration space (BARs included) and the MSI-X table
    /// go back to their power-on state.
    pub fn reset(&mut self, context: &mut Context<'_>) {
        self.call(context, |device, context| device.reset(context));
        self.registers.reset();
        if let Some(msix) = &mut self.msix {
            *msix = Msix::new(msix.vectors() as u16);
        }
    }

    /// The whole state as JSON, to be shown or handed to [`Self::restore`].
    pub fn save(&self) -> Value {
        let saved = SavedFunction {
            registers: self.registers.save(),
            msix: self.msix.clone(),
            device: self.device.save(),
        };
        serde_json::to_value(saved).unwrap_or(Value::Null)
    }

    /// Takes over a state that [`Self::save`] of a function with the same device configuration returned.
    ///
    /// # Errors
    /// When `state` is not such a state; the function is then unchanged.
    pub fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        let saved = SavedFunction::deserialize(state).map_err(|error| RestoreError(error.to_string()))?;
        let fits = match (&self.msix, &saved.msix) {
            (Some(mine), Some(theirs)) => mine.fits(theirs),
            (None, None) => true,
            _ => false,
        };
        if !fits {
            return Err(RestoreError("the MSI-X tables have different sizes".into()));
        }
        let mut registers = self.registers.clone();
        registers.restore(&saved.registers)?;
        self.device.restore(&saved.device)?;
        self.registers = registers;
        self.msix = saved.msix;
        Ok(())
    }

    fn starts_function_level_reset(&self, offset: usize, data: &[u8]) -> bool {
        let register = self.layout.express + layout::EXPRESS_DEVICE_CONTROL + 1;
        let byte = register.checked_sub(offset).and_then(|position| data.get(position));
        byte.is_some_and(|byte| byte & layout::START_FUNCTION_LEVEL_RESET != 0)
    }

    fn update_msix(&mut self, context: &mut Context<'_>) {
        let (Some(msix), Some(capability)) = (&mut self.msix, self.layout.msix) else { return };
        let control = self.registers.u16(capability + layout::MSIX_CONTROL);
        let enabled = control & layout::MSIX_ENABLE != 0;
        let masked = control & layout::MSIX_FUNCTION_MASK != 0;
        // A message is a memory write: it needs the right to master the bus.
        let may_write = self.upstream && layout::masters_bus(&self.registers, &self.layout);
        msix.gate(enabled, may_write && !masked, &mut context.effects.messages);
    }

    fn kind_of(&self, bar: u8, offset: u64, length: usize) -> Option<BarKind> {
        let bar = self.bars.iter().find(|candidate| candidate.index == bar)?;
        (offset.checked_add(length as u64)? <= bar.size).then_some(bar.kind)
    }

    fn command(&self) -> u16 {
        self.registers.u16(layout::COMMAND)
    }

    fn awake(&self) -> bool {
        layout::awake(&self.registers, &self.layout)
    }

    fn masters_bus(&self) -> bool {
        self.upstream && layout::masters_bus(&self.registers, &self.layout)
    }
}

/// Refuses what a configuration space cannot express.
fn check(identity: &Identity) -> Result<(), IdentityError> {
    let fail = |message: String| Err(IdentityError(message));
    let mut taken = [false; 6];
    for bar in &identity.bars {
        let index = usize::from(bar.index);
        let registers = index..index + if bar.wide { 2 } else { 1 };
        let Some(slots) = taken.get_mut(registers) else {
            return fail(format!("there is no BAR {}", bar.index));
        };
        if slots.contains(&true) {
            return fail(format!("BAR {} overlaps another", bar.index));
        }
        slots.fill(true);
        let largest = if bar.wide { 1 << 62 } else { 1 << 31 };
        if !bar.size.is_power_of_two() || !(16..=largest).contains(&bar.size) {
            return fail(format!("BAR {} cannot have {:#x} bytes", bar.index, bar.size));
        }
    }
    let tables: Vec<_> = identity.bars.iter().filter(|bar| bar.kind == BarKind::Msix).collect();
    match (identity.msix_vectors, &tables[..]) {
        (0, []) => Ok(()),
        (vectors @ 1..=2048, [bar]) if Msix::length(vectors) <= bar.size => Ok(()),
        (vectors, _) => fail(format!("{vectors} MSI-X vectors need one BAR of their own that holds them")),
    }
}

#[cfg(test)]
#[path = "function_tests.rs"]
mod tests;
