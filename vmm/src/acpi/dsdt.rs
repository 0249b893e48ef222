//! The differentiated system description: what cannot be probed, as AML objects.

use std::ops::Range;

use acpi_tables::Aml;
use acpi_tables::aml::{
    AddressSpace, AddressSpaceCacheable, Device, EISAName, IO, Interrupt, Memory32Fixed, Name, Package, Path,
    ResourceTemplate, Scope, Zero,
};
use nicvisor_core::FirmwareDevice;
use nicvisor_platform::SLEEP_TYPE_OFF;

use super::{NumberedSlot, bytes, definition_block};
use crate::boot::layout::{
    ECAM_SIZE, ECAM_START, PCI_HIGH_WINDOW_SIZE, PCI_HIGH_WINDOW_START, PCI_WINDOW_SIZE, PCI_WINDOW_START,
};

/// The table, with a physical slot number for each of `numbered_slots`, and `devices` besides.
pub(super) fn build(numbered_slots: &[NumberedSlot], devices: &[FirmwareDevice]) -> Vec<u8> {
    let mut code = Vec::new();
    code.extend(sleep_state());
    code.extend(motherboard());
    code.extend(pci_root(numbered_slots));
    code.extend(serial_port());
    code.extend(devices.iter().flat_map(firmware_device));
    definition_block(&code)
}

/// `_S5_`: what to write to the sleep control register to power off.
fn sleep_state() -> Vec<u8> {
    let package = Package::new(vec![&SLEEP_TYPE_OFF, &SLEEP_TYPE_OFF, &Zero {}, &Zero {}]);
    bytes(&Name::new(Path::new("_S5_"), &package))
}

/// Reserves the ECAM: a guest trusts MCFG only when the namespace agrees.
fn motherboard() -> Vec<u8> {
    let id = EISAName::new("PNP0C02");
    let ecam = Memory32Fixed::new(true, ECAM_START as u32, ECAM_SIZE as u32);
    device(
        "_SB_",
        Path::new("MBRD"),
        &[
            &Name::new(Path::new("_HID"), &id),
            &Name::new(Path::new("_UID"), &Zero {}),
            &Name::new(Path::new("_CRS"), &ResourceTemplate::new(vec![&ecam])),
        ],
    )
}

fn pci_root(numbered_slots: &[NumberedSlot]) -> Vec<u8> {
    let buses = AddressSpace::new_bus_number(0x00_u16, 0xff_u16);
    let config_ports = IO::new(0xcf8, 0xcf8, 1, 8);
    let low_ports = AddressSpace::new_io(0x0000_u16, 0x0cf7_u16, None);
    let high_ports = AddressSpace::new_io(0x0d00_u16, 0xffff_u16, None);
    let memory = AddressSpace::new_memory(
        AddressSpaceCacheable::NotCacheable,
        true,
        PCI_WINDOW_START as u32,
        (PCI_WINDOW_START + PCI_WINDOW_SIZE - 1) as u32,
        None,
    );
    let high_memory = AddressSpace::new_memory(
        AddressSpaceCacheable::NotCacheable,
        true,
        PCI_HIGH_WINDOW_START,
        PCI_HIGH_WINDOW_START + PCI_HIGH_WINDOW_SIZE - 1,
        None,
    );
    let resources =
        ResourceTemplate::new(vec![&buses, &config_ports, &low_ports, &high_ports, &memory, &high_memory]);
    let slots: Vec<Vec<u8>> = numbered_slots.iter().map(numbered_slot).collect();
    let slots: Vec<Code> = slots.into_iter().map(Code).collect();

    // PCI Express, compatible with plain PCI. All functions use MSI-X: there is no interrupt routing.
    let (express, plain) = (EISAName::new("PNP0A08"), EISAName::new("PNP0A03"));
    let names: [Name; 7] = [
        Name::new(Path::new("_HID"), &express),
        Name::new(Path::new("_CID"), &plain),
        Name::new(Path::new("_UID"), &Zero {}),
        Name::new(Path::new("_ADR"), &Zero {}),
        Name::new(Path::new("_SEG"), &Zero {}),
        Name::new(Path::new("_BBN"), &Zero {}),
        Name::new(Path::new("_CRS"), &resources),
    ];
    let children: Vec<&dyn Aml> = names
        .iter()
        .map(|name| -> &dyn Aml { name })
        .chain(slots.iter().map(|slot| -> &dyn Aml { slot }))
        .collect();
    device("_SB_", Path::new("PCI0"), &children)
}

/// A slot's device object: address and physical slot number, which names the slot in the guest's sysfs. Behind a root
/// port it is the port's child.
fn numbered_slot(numbered: &NumberedSlot) -> Vec<u8> {
    let NumberedSlot { slot, number, behind_port } = *numbered;
    let address = Name::new(Path::new("_ADR"), &(u32::from(slot.device) << 16 | u32::from(slot.function)));
    let number = Name::new(Path::new("_SUN"), &number);
    let first = Name::new(Path::new("_ADR"), &Zero {});
    let behind = Device::new(Path::new("S000"), vec![&first, &number]);
    let name = format!("S{:02X}{:X}", slot.device, slot.function);
    let described: &dyn Aml = if behind_port { &behind } else { &number };
    bytes(&Device::new(Path::new(&name), vec![&address, described]))
}

fn serial_port() -> Vec<u8> {
    let id = EISAName::new("PNP0501");
    let ports = IO::new(0x3f8, 0x3f8, 1, 8);
    let interrupt = Interrupt::new(true, true, false, false, 4);
    device(
        "_SB_",
        Path::new("COM1"),
        &[
            &Name::new(Path::new("_HID"), &id),
            &Name::new(Path::new("_UID"), &Zero {}),
            &Name::new(Path::new("_CRS"), &ResourceTemplate::new(vec![&ports, &interrupt])),
        ],
    )
}

/// A device that only these tables tell of.
fn firmware_device(described: &FirmwareDevice) -> Vec<u8> {
    let ranges: Vec<AddressSpace<u64>> = described.memory.iter().map(memory_window).collect();
    let interrupt = described.interrupt.map(|number| Interrupt::new(true, true, false, false, number));
    let resources: Vec<&dyn Aml> = ranges
        .iter()
        .map(|range| -> &dyn Aml { range })
        .chain(interrupt.iter().map(|interrupt| -> &dyn Aml { interrupt }))
        .collect();
    device(
        "_SB_",
        Path::new(described.name),
        &[
            &Name::new(Path::new("_HID"), &described.hardware_id),
            &Name::new(Path::new("_UID"), &Zero {}),
            &Name::new(Path::new("_CRS"), &ResourceTemplate::new(resources)),
        ],
    )
}

fn memory_window(range: &Range<u64>) -> AddressSpace<u64> {
    AddressSpace::new_memory(
        AddressSpaceCacheable::NotCacheable,
        true,
        range.start,
        range.end.saturating_sub(1),
        None,
    )
}

fn device(scope: &str, path: Path, children: &[&dyn Aml]) -> Vec<u8> {
    bytes(&Scope::new(Path::new(scope), vec![&Device::new(path, children.to_vec())]))
}

/// AML that was made before.
struct Code(Vec<u8>);

impl Aml for Code {
    fn to_aml_bytes(&self, sink: &mut dyn acpi_tables::AmlSink) {
        sink.vec(&self.0);
    }
}
