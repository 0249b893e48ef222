//! BAR0: the register file, the shared memory, and behind both the doorbell pages.

use nicvisor_core::Context;

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
    pub(crate) fn read_bar0(&self, offset: u64, data: &mut [u8]) {
        for (at, byte) in (offset..).zip(data) {
            *byte = self.register_byte(at);
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

    fn register_byte(&self, offset: u64) -> u8 {
        if let Some(byte) = offset
            .checked_sub(SHARED_MEMORY)
            .and_then(|at| self.state.shared_memory.bytes().get(usize::try_from(at).ok()?))
        {
            return *byte;
        }
        let register = self.registers().into_iter().find(|(start, _)| (*start..start + 8).contains(&offset));
        register.map_or(0, |(start, value)| value.to_le_bytes()[(offset - start) as usize])
    }

    /// The registers that there are, by offset.
    fn registers(&self) -> Vec<(u64, u64)> {
        let doorbells = doorbell_offset(&self.config);
        match self.config.function {
            FunctionKind::Pf => vec![
                (PF_DB_PAGE_OFFSET, doorbells),
                (PF_DB_PAGE_SIZE, DOORBELL_PAGE),
                (SRIOV_CONFIG_BASE, SRIOV_CONFIG),
                (SRIOV_CONFIG + PF_SHM_OFFSET, SHARED_MEMORY - SRIOV_CONFIG),
            ],
            FunctionKind::Vf | FunctionKind::Pf2 => {
                vec![(DB_PAGE_OFFSET, doorbells), (DB_PAGE_SIZE, DOORBELL_PAGE), (SHM_OFFSET, SHARED_MEMORY)]
            }
        }
    }
}

/// Where the shared memory is in BAR0.
const SHARED_MEMORY: u64 = 0x1000;
/// Where the SR-IOV configuration of a physical function is in BAR0.
const SRIOV_CONFIG: u64 = 0x800;
