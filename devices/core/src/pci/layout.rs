//! What a configuration space consists of: header, BARs and the chain of capabilities (PCI Express base
//! specification, chapter 7.5 to 7.7).

use super::function::IdentityError;
use super::msix::Msix;
use super::registers::Registers;
use super::{BarKind, Identity};

/// Where the capabilities are that the function itself acts on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) power_management: usize,
    pub(super) express: usize,
    pub(super) msix: Option<usize>,
}

/// The configuration space of a function that says `identity`.
pub(super) fn build(identity: &Identity) -> Result<(Registers, Layout), IdentityError> {
    let mut registers = header(identity);
    let mut chain = Chain::new(&mut registers);
    let power_management = chain.append(POWER_MANAGEMENT, &[0; 6])?;
    let express = chain.append(EXPRESS, &[0; 0x3a])?;
    let msix = match identity.msix_vectors {
        0 => None,
        _ => Some(chain.append(MSIX, &[0; 10])?),
    };
    for capability in &identity.vendor_capabilities {
        let length = u8::try_from(capability.len() + 3);
        let length = length.map_err(|_| IdentityError("a vendor capability is too long".into()))?;
        chain.append(VENDOR, &[&[length], &capability[..]].concat())?;
    }
    fill_power_management(&mut registers, power_management);
    fill_express(&mut registers, express);
    if let Some(capability) = msix {
        fill_msix(&mut registers, capability, identity);
    }
    Ok((registers, Layout { power_management, express, msix }))
}

/// A configuration space with a header and nothing else, for a host bridge.
pub(super) fn header(identity: &Identity) -> Registers {
    let mut registers = any_header(identity.vendor, identity.device, identity.class, identity.revision);
    registers.define(0x2c, identity.subsystem_vendor.to_le_bytes());
    registers.define(0x2e, identity.subsystem.to_le_bytes());
    for bar in &identity.bars {
        let register = bar_register(bar.index);
        let flags = u32::from(bar.wide) << 2 | u32::from(bar.prefetchable) << 3;
        let mask = !(bar.size - 1);
        registers.define(register, flags.to_le_bytes());
        if bar.wide {
            registers.allow(register, mask.to_le_bytes());
        } else {
            registers.allow(register, (mask as u32).to_le_bytes());
        }
    }
    registers
}

/// What the headers of functions and of bridges have in common.
pub(super) fn any_header(vendor: u16, device: u16, class: u32, revision: u8) -> Registers {
    let mut registers = Registers::new();
    registers.define(0x00, vendor.to_le_bytes());
    registers.define(0x02, device.to_le_bytes());
    registers.define(0x08, (class << 8 | u32::from(revision)).to_le_bytes());
    registers.allow(COMMAND, COMMAND_WRITABLE.to_le_bytes());
    registers.allow(CACHE_LINE_SIZE, [0xff]);
    registers.allow(INTERRUPT_LINE, [0xff]);
    registers
}

/// Offset of BAR number `index`.
pub(super) fn bar_register(index: u8) -> usize {
    BARS + 4 * usize::from(index)
}

/// Whether the function is in power state D0.
pub(super) fn awake(registers: &Registers, layout: &Layout) -> bool {
    registers.u16(layout.power_management + PM_CONTROL) & PM_STATE == 0
}

/// Whether the function may write to and read from memory.
pub(super) fn masters_bus(registers: &Registers, layout: &Layout) -> bool {
    awake(registers, layout) && registers.u16(COMMAND) & COMMAND_BUS_MASTER != 0
}

/// Appends capabilities to the linked list in the first 256 bytes.
struct Chain<'a> {
    registers: &'a mut Registers,
    link: usize,
    next: usize,
}

impl<'a> Chain<'a> {
    fn new(registers: &'a mut Registers) -> Chain<'a> {
        Chain { registers, link: CAPABILITIES_POINTER, next: 0x40 }
    }

    /// Adds the capability `id` with `body` behind its two header bytes; returns its offset.
    fn append(&mut self, id: u8, body: &[u8]) -> Result<usize, IdentityError> {
        let offset = self.next;
        let end = offset + 2 + body.len();
        if end > 0x100 {
            return Err(IdentityError("the capabilities do not fit into 256 bytes".into()));
        }
        self.registers.define(STATUS, STATUS_CAPABILITIES.to_le_bytes());
        self.registers.define(self.link, [offset as u8]);
        self.registers.define(offset, [id, 0]);
        self.registers.define_slice(offset + 2, body);
        self.link = offset + 1;
        self.next = end.next_multiple_of(4);
        Ok(offset)
    }
}

pub(super) fn fill_power_management(registers: &mut Registers, capability: usize) {
    registers.define(capability + 2, PM_VERSION.to_le_bytes());
    registers.define(capability + PM_CONTROL, PM_NO_SOFT_RESET.to_le_bytes());
    registers.allow(capability + PM_CONTROL, PM_STATE.to_le_bytes());
}

fn fill_express(registers: &mut Registers, capability: usize) {
    registers.define(capability + 0x02, EXPRESS_VERSION_ENDPOINT.to_le_bytes());
    registers.define(capability + 0x04, DEVICE_CAPABILITIES.to_le_bytes());
    registers.define(capability + EXPRESS_DEVICE_CONTROL, DEVICE_CONTROL.to_le_bytes());
    registers.allow(capability + EXPRESS_DEVICE_CONTROL, DEVICE_CONTROL_WRITABLE.to_le_bytes());
    fill_link(registers, capability);
    registers.define(capability + 0x24, TIMEOUT_DISABLE_SUPPORTED.to_le_bytes());
    registers.allow(capability + 0x28, TIMEOUT_DISABLE_SUPPORTED.to_le_bytes());
}

/// The link that a function and the port above it have in common.
pub(super) fn fill_link(registers: &mut Registers, capability: usize) {
    registers.define(capability + 0x0c, LINK_16GT_X16.to_le_bytes());
    registers.allow(capability + 0x10, LINK_CONTROL_WRITABLE.to_le_bytes());
    registers.define(capability + 0x12, LINK_16GT_X16.to_le_bytes());
    registers.define(capability + 0x2c, LINK_SPEEDS_TO_16GT.to_le_bytes());
    registers.define(capability + 0x30, LINK_TARGET_16GT.to_le_bytes());
}

fn fill_msix(registers: &mut Registers, capability: usize, identity: &Identity) {
    let bar =
        identity.bars.iter().find(|bar| bar.kind == BarKind::Msix).map_or(0, |bar| u32::from(bar.index));
    let pending = Msix::pending_offset(identity.msix_vectors) as u32;
    registers.define(capability + MSIX_CONTROL, (identity.msix_vectors - 1).to_le_bytes());
    registers.allow(capability + MSIX_CONTROL, (MSIX_ENABLE | MSIX_FUNCTION_MASK).to_le_bytes());
    registers.define(capability + 4, bar.to_le_bytes());
    registers.define(capability + 8, (pending | bar).to_le_bytes());
}

pub(super) const COMMAND: usize = 0x04;
pub(super) const COMMAND_MEMORY: u16 = 1 << 1;
pub(super) const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Memory, bus master, parity response, SERR#, interrupt disable. There is no I/O space to enable.
const COMMAND_WRITABLE: u16 = 0x0546;
pub(super) const STATUS: usize = 0x06;
pub(super) const STATUS_CAPABILITIES: u16 = 1 << 4;
const CACHE_LINE_SIZE: usize = 0x0c;
pub(super) const HEADER_TYPE: usize = 0x0e;
pub(super) const HEADER_MULTI_FUNCTION: u8 = 1 << 7;
pub(super) const BARS: usize = 0x10;
pub(super) const CAPABILITIES_POINTER: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;

pub(super) const POWER_MANAGEMENT: u8 = 0x01;
const VENDOR: u8 = 0x09;
pub(super) const EXPRESS: u8 = 0x10;
const MSIX: u8 = 0x11;

/// Version 3 of the power management interface; D1, D2 and PME# are not supported.
const PM_VERSION: u16 = 3;
pub(super) const PM_CONTROL: usize = 4;
pub(super) const PM_STATE: u16 = 3;
/// Registers keep their values when the function leaves D3hot.
const PM_NO_SOFT_RESET: u16 = 1 << 3;

/// Capability version 2, device type 0 (endpoint).
const EXPRESS_VERSION_ENDPOINT: u16 = 2;
pub(super) const EXPRESS_DEVICE_CONTROL: usize = 0x08;
/// 256-byte payloads, extended tags, role-based error reporting, function-level reset.
const DEVICE_CAPABILITIES: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 28;
/// Relaxed ordering and no-snoop allowed, read requests of up to 512 bytes.
const DEVICE_CONTROL: u16 = 1 << 4 | 1 << 11 | 2 << 12;
const DEVICE_CONTROL_WRITABLE: u16 = 0x7fff;
/// In the high byte of device control; always reads as zero.
pub(super) const START_FUNCTION_LEVEL_RESET: u8 = 1 << 7;
/// Speed 4 (16 GT/s), 16 lanes: link capabilities and link status share the encoding.
const LINK_16GT_X16: u16 = 4 | 16 << 4;
/// Active-state power management, read completion boundary, common clock, extended synch.
const LINK_CONTROL_WRITABLE: u16 = 0x00cb;
const TIMEOUT_DISABLE_SUPPORTED: u16 = 1 << 4;
const LINK_SPEEDS_TO_16GT: u32 = 0b1_1110;
const LINK_TARGET_16GT: u16 = 4;

pub(super) const MSIX_CONTROL: usize = 2;
pub(super) const MSIX_ENABLE: u16 = 1 << 15;
pub(super) const MSIX_FUNCTION_MASK: u16 = 1 << 14;
