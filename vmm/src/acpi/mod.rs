//! The ACPI tables that describe the machine to the guest.
//!
//! They lie below 1 MiB from [`crate::boot::layout::ACPI_START`], root pointer first, so that a guest finds them by the
//! boot protocol or by searching. The hardware they describe is the fixed ACPI register model: power-management
//! timer, sleep control and reset register at I/O ports.

mod dsdt;

use acpi_tables::fadt::{FADTBuilder, Flags, PmProfile};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic};
use acpi_tables::mcfg::MCFG;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use acpi_tables::{Aml, AmlSink, aml_as_bytes};
use nicvisor_core::FirmwareDevice;
use nicvisor_core::pci::Slot;
use nicvisor_memory::GuestRam;
use nicvisor_platform::{PM_BASE, SCI};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};
use zerocopy::{Immutable, IntoBytes};

use crate::boot::layout::{
    ACPI_START, ECAM_SIZE, ECAM_START, HIGH_MEMORY_START, IO_APIC_START, LOCAL_APIC_START,
};

/// What the tables describe besides the fixed hardware.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// Number of CPUs; their APIC ids are 0, 1, ...
    pub cpus: usize,
    /// Slots that get a physical slot number (`_SUN`): those of NICs, whether present now or plugged later.
    pub numbered_slots: Vec<NumberedSlot>,
    /// Other hardware that a guest cannot find by itself.
    pub devices: Vec<FirmwareDevice>,
}

/// A slot that a guest is told the number of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedSlot {
    /// Where it is on the root bus.
    pub slot: Slot,
    /// Its physical slot number.
    pub number: u32,
    /// Whether there is a root port, and what has the number is the first device behind it.
    pub behind_port: bool,
}

/// Writes the tables to guest memory; returns the address of the root pointer.
///
/// # Errors
/// When guest memory has no first megabyte.
pub fn write(ram: &GuestRam, description: &Description) -> Result<u64, GuestMemoryError> {
    let image = build(description);
    debug_assert!(image.len() as u64 <= HIGH_MEMORY_START - ACPI_START);
    ram.write_slice(&image, GuestAddress(ACPI_START))?;
    Ok(ACPI_START)
}

/// All tables as they lie in memory from [`ACPI_START`].
fn build(description: &Description) -> Vec<u8> {
    let mut image = vec![0; TABLES_OFFSET];
    let mut place = |table: Vec<u8>| {
        let address = ACPI_START + image.len() as u64;
        image.extend(table);
        image.resize(image.len().next_multiple_of(64), 0);
        address
    };
    let facs = place(facs());
    let dsdt = place(dsdt::build(&description.numbered_slots, &description.devices));
    let tables = [fadt(dsdt, facs), madt(description.cpus), mcfg()].map(&mut place);
    let mut xsdt = XSDT::new(OEM, OEM_TABLE, REVISION);
    for table in tables {
        xsdt.add_entry(table);
    }
    let xsdt = place(bytes(&xsdt));
    let rsdp = bytes(&Rsdp::new(OEM, xsdt));
    image[..rsdp.len()].copy_from_slice(&rsdp);
    image
}

/// Firmware control structure: nothing but the lock that the interpreter wants to see.
fn facs() -> Vec<u8> {
    let mut table = vec![0; 64];
    table[..4].copy_from_slice(b"FACS");
    table[4] = 64;
    table[32] = 2;
    table
}

fn fadt(dsdt: u64, facs: u64) -> Vec<u8> {
    let mut table = FADTBuilder::new(OEM, OEM_TABLE, REVISION)
        .dsdt_64(dsdt)
        .preferred_pm_profile(PmProfile::EnterpriseServer)
        .flag(Flags::Wbinvd)
        .flag(Flags::ProcC1)
        .flag(Flags::SlpButton)
        .flag(Flags::FixRtc)
        .flag(Flags::TmrValExt)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Headless);
    // Both widths: some guests look only at the 32-bit fields of the register blocks.
    table.firmware_ctrl = (facs as u32).into();
    table.dsdt = (dsdt as u32).into();
    table.x_firmware_ctrl = facs.into();
    table.sci_int = (SCI as u16).into();
    // No SMI command port: ACPI mode is always on.
    table.pm1a_evt_blk = u32::from(PM_BASE).into();
    table.pm1a_cnt_blk = u32::from(PM_BASE + PM_CONTROL_OFFSET).into();
    table.pm_tmr_blk = u32::from(PM_BASE + PM_TIMER_OFFSET).into();
    table.pm1_evt_len = 4;
    table.pm1_cnt_len = 2;
    table.pm_tmr_len = 4;
    table.x_pm1a_evt_blk = io_register(PM_BASE, 32, AccessSize::WordAccess);
    table.x_pm1a_cnt_blk = io_register(PM_BASE + PM_CONTROL_OFFSET, 16, AccessSize::WordAccess);
    table.x_pm_tmr_blk = io_register(PM_BASE + PM_TIMER_OFFSET, 32, AccessSize::DwordAccess);
    table.reset_reg = io_register(RESET_PORT, 8, AccessSize::ByteAccess);
    table.reset_value = RESET_VALUE;
    // No sleep states C2 and C3.
    table.p_lvl2_lat = 0xffff.into();
    table.p_lvl3_lat = 0xffff.into();
    table.iapc_boot_arch = (BOOT_LEGACY_DEVICES | BOOT_NO_VGA).into();
    bytes(&table.finalize())
}

fn io_register(port: u16, width: u8, access: AccessSize) -> GAS {
    GAS::new(AddressSpace::SystemIo, width, 0, access, port.into())
}

fn madt(cpus: usize) -> Vec<u8> {
    let local_apic = LocalInterruptController::Address(LOCAL_APIC_START as u32);
    let mut table = MADT::new(OEM, OEM_TABLE, REVISION, local_apic);
    for cpu in 0..cpus.min(MOST_CPUS) as u8 {
        table.add_structure(ProcessorLocalApic::new(cpu, cpu, EnabledStatus::Enabled));
    }
    table.add_structure(IoApic::new(0, IO_APIC_START as u32, 0));
    // The PIT's interrupt 0 arrives at input 2; the SCI is active high and level triggered.
    table.add_structure(InterruptOverride::new(0, 2, CONFORMS));
    table.add_structure(InterruptOverride::new(SCI as u8, SCI, HIGH_LEVEL));
    table.add_structure(LocalNmi { kind: 4, length: 6, processor: 0xff, flags: [0; 2], input: 1 });
    let mut table = bytes(&table);
    // The library has no setter: this is a PC-AT compatible machine with two 8259s.
    table[40] |= 1;
    table[9] = table[9].wrapping_sub(1);
    table
}

fn mcfg() -> Vec<u8> {
    let mut table = MCFG::new(OEM, OEM_TABLE, REVISION);
    table.add_ecam(ECAM_START, 0, 0, (ECAM_SIZE / (1 << 20) - 1) as u8);
    bytes(&table)
}

/// A definition block around AML code.
fn definition_block(code: &[u8]) -> Vec<u8> {
    let mut table = Sdt::new(*b"DSDT", 36, 2, OEM, OEM_TABLE, REVISION);
    table.append_slice(code);
    table.as_slice().to_vec()
}

fn bytes(table: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.to_aml_bytes(&mut bytes);
    bytes
}

/// ACPI 6.5, 5.2.12.5: an ISA interrupt at another input of the I/O APIC.
#[repr(C)]
#[derive(Clone, Copy, IntoBytes, Immutable)]
struct InterruptOverride {
    kind: u8,
    length: u8,
    bus: u8,
    source: u8,
    global: [u8; 4],
    flags: [u8; 2],
}

impl InterruptOverride {
    fn new(source: u8, global: u32, flags: u16) -> InterruptOverride {
        InterruptOverride {
            kind: 2,
            length: 10,
            bus: 0,
            source,
            global: global.to_le_bytes(),
            flags: flags.to_le_bytes(),
        }
    }
}

aml_as_bytes!(InterruptOverride);

/// ACPI 6.5, 5.2.12.7: which local APIC input is the NMI.
#[repr(C)]
#[derive(Clone, Copy, IntoBytes, Immutable)]
struct LocalNmi {
    kind: u8,
    length: u8,
    processor: u8,
    flags: [u8; 2],
    input: u8,
}

aml_as_bytes!(LocalNmi);

/// Power-management control register block, behind the event block.
const PM_CONTROL_OFFSET: u16 = 4;
/// Power-management timer.
const PM_TIMER_OFFSET: u16 = 8;
/// Reset control register, and what resets the machine when written there.
const RESET_PORT: u16 = 0xcf9;
const RESET_VALUE: u8 = 6;
/// One-byte APIC ids, less the broadcast address.
const MOST_CPUS: usize = 255;
const OEM: [u8; 6] = *b"NICVSR";
const OEM_TABLE: [u8; 8] = *b"NICVISOR";
const REVISION: u32 = 1;
/// The root pointer has the first 64 bytes for itself.
const TABLES_OFFSET: usize = 64;
const BOOT_LEGACY_DEVICES: u16 = 1 << 0;
const BOOT_NO_VGA: u16 = 1 << 2;
const CONFORMS: u16 = 0;
const HIGH_LEVEL: u16 = 0xd;

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(table: &[u8]) -> u8 {
        table.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    fn table_at(image: &[u8], address: u64) -> &[u8] {
        let table = &image[(address - ACPI_START) as usize..];
        &table[..u32::from_le_bytes(*table[4..].first_chunk().unwrap()) as usize]
    }

    fn u64_at(table: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(*table[at..].first_chunk().unwrap())
    }

    #[test]
    fn every_table_is_reachable_and_sums_to_zero() {
        let slots = [1, 2].map(|device| NumberedSlot {
            slot: Slot { device, function: 0 },
            number: device.into(),
            behind_port: device == 2,
        });
        let bus = FirmwareDevice {
            name: "VMB8",
            hardware_id: "VMBus",
            memory: vec![0xf000_0000..0xf800_0000, 0x80_0000_0000..0xc0_0000_0000],
            interrupt: Some(5),
        };
        let image = build(&Description { cpus: 64, numbered_slots: slots.to_vec(), devices: vec![bus] });
        assert!(image.len() as u64 <= HIGH_MEMORY_START - ACPI_START);
        assert_eq!((&image[..8], sum(&image[..20]), sum(&image[..36])), (&b"RSD PTR "[..], 0, 0));
        let xsdt = table_at(&image, u64_at(&image, 24));
        assert_eq!(sum(xsdt), 0);
        let mut signatures = Vec::new();
        for entry in xsdt[36..].chunks(8) {
            let table = table_at(&image, u64_at(entry, 0));
            assert_eq!(sum(table), 0, "{:?}", &table[..4]);
            signatures.push(String::from_utf8_lossy(&table[..4]).into_owned());
            if table.starts_with(b"FACP") {
                let dsdt = table_at(&image, u64_at(table, 140));
                assert_eq!((&dsdt[..4], sum(dsdt)), (&b"DSDT"[..], 0));
                let has = |bytes: &[u8]| dsdt.windows(bytes.len()).any(|window| window == bytes);
                // A window as the guest will read it: QWord address space descriptor, minimum and maximum.
                let window = [0x80_0000_0000_u64.to_le_bytes(), 0xbf_ffff_ffff_u64.to_le_bytes()].concat();
                assert!(has(b"VMB8") && has(b"VMBus\0") && has(&window));
                assert_eq!(&table_at(&image, u64_at(table, 132))[..4], b"FACS");
            }
            if table.starts_with(b"APIC") {
                assert_eq!(table.len(), 44 + 64 * 8 + 12 + 2 * 10 + 6);
            }
        }
        assert_eq!(signatures, ["FACP", "APIC", "MCFG"]);
    }
}
