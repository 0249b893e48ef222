//! BAR0: the register file, the shared memory, and behind both the doorbell pages.

use nicvisor_core::Context;
use nicvisor_core::fault::WireField;

use crate::config::{Config, FunctionKind};
use crate::device::Mana;
use crate::rules::control as rules;
use crate::wire::registers::{
    DB_PAGE_OFFSET, DB_PAGE_SIZE, DOORBELL_PAGE, PF_DB_PAGE_OFFSET, PF_DB_PAGE_SIZE, PF_SHM_OFFSET,
    SHM_OFFSET, SRIOV_CONFIG_BASE,
};
use crate::wire::shared_memory::APERTURE;

/// Size of BAR0: the doorbell pages take its upper half.
pub(crate) fn bar_size(config: &Config) -> u64 {
    2 * doorbell_offset(config)
}

/// Where the doorbell pages start.
pub(crate) fn doorbell_offset(config: &Config) -> u64 {
    (u64::from(config.limits.doorbell_pages) * DOORBELL_PAGE).max(2 * SHARED_MEMORY)
}

impl Mana {
    /// The driver reads registers or shared memory at `offset`; doorbells cannot be read.
    pub(crate) fn read_bar0(&mut self, context: &Context<'_>, offset: u64, data: &mut [u8]) {
        let mut file = [0; FILE_SIZE];
        file[SHARED_MEMORY as usize..].copy_from_slice(self.state.shared_memory.bytes());
        for (value, field) in self.register_fields() {
            let place = field.place();
            let accessed = place.start < offset as usize + data.len() && (offset as usize) < place.end;
            let value = match accessed {
                true => self.state.queues.faults.overrides.apply(context.now, field.name(), value),
                false => value,
            };
            field.write(&mut file, value);
        }
        data.fill(0);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(bytes) = file.get(start..) {
            let length = bytes.len().min(data.len());
            data[..length].copy_from_slice(&bytes[..length]);
        }
    }

    /// The driver writes at `offset`.
    pub(crate) fn write_bar0(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        let doorbells = doorbell_offset(&self.config);
        if offset >= doorbells {
            return self.write_doorbell(context, offset - doorbells, data);
        }
        let shared = SHARED_MEMORY..SHARED_MEMORY + APERTURE as u64;
        if shared.contains(&offset) {
            return self.write_shared_memory(context, (offset - SHARED_MEMORY) as usize, data);
        }
        let message = format!("{data:02x?} written at {offset:#x}, where no register can be written");
        context.report(&rules::REGISTER_ACCESS, message, |_| ());
    }

    fn write_doorbell(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        let Ok(value) = <[u8; 8]>::try_from(data) else {
            let message = format!("a doorbell is written with {} bytes", data.len());
            return context.report(&rules::REGISTER_ACCESS, message, |_| ());
        };
        let page = (offset / DOORBELL_PAGE) as u32;
        self.ring(context, page, offset % DOORBELL_PAGE, u64::from_le_bytes(value));
    }

    /// The registers that there are: their values, and where and how large they are.
    pub(crate) fn register_fields(&self) -> Vec<(u64, WireField)> {
        let doorbells = doorbell_offset(&self.config);
        let field = |name, offset: u64, bytes| WireField::little(name, offset as usize, bytes);
        match self.config.function {
            FunctionKind::Pf => vec![
                (doorbells, field("register.db_page_offset", PF_DB_PAGE_OFFSET, 8)),
                (DOORBELL_PAGE, field("register.db_page_size", PF_DB_PAGE_SIZE, 4)),
                (SRIOV_CONFIG, field("register.sriov_config_base", SRIOV_CONFIG_BASE, 8)),
                (SHARED_MEMORY - SRIOV_CONFIG, field("register.shm_offset", SRIOV_CONFIG + PF_SHM_OFFSET, 8)),
            ],
            FunctionKind::Vf | FunctionKind::Pf2 => vec![
                (doorbells, field("register.db_page_offset", DB_PAGE_OFFSET, 8)),
                (DOORBELL_PAGE, field("register.db_page_size", DB_PAGE_SIZE, 4)),
                (SHARED_MEMORY, field("register.shm_offset", SHM_OFFSET, 8)),
            ],
        }
    }
}

/// Where the shared memory is in BAR0.
const SHARED_MEMORY: u64 = 0x1000;
/// Where the SR-IOV configuration of a physical function is in BAR0.
const SRIOV_CONFIG: u64 = 0x800;
/// Bytes of registers and shared memory.
const FILE_SIZE: usize = SHARED_MEMORY as usize + APERTURE;
