//! The register file at the start of BAR0 (Linux `include/net/mana/gdma.h`, `GDMA_REG_*` and `GDMA_PF_REG_*`).
//! Everything that lies elsewhere in the BAR is found through it.

/// 64 bits: where the doorbell pages start, in bytes from the start of the BAR.
pub const DB_PAGE_OFFSET: u64 = 0x08;
/// 32 bits, of which the driver takes 16: size of a doorbell page in bytes.
pub const DB_PAGE_SIZE: u64 = 0x10;
/// 64 bits: where the shared memory is, in bytes from the start of the BAR.
pub const SHM_OFFSET: u64 = 0x18;

/// The same on a physical function: where the doorbell pages start.
pub const PF_DB_PAGE_OFFSET: u64 = 0xc8;
/// Size of a doorbell page on a physical function.
pub const PF_DB_PAGE_SIZE: u64 = 0xd0;
/// 64 bits, physical function only: where its SR-IOV configuration is, in bytes from the start of the BAR.
pub const SRIOV_CONFIG_BASE: u64 = 0x108;
/// 64 bits, in the SR-IOV configuration: where the shared memory is, in bytes from the start of that.
pub const PF_SHM_OFFSET: u64 = 0x70;

/// Offsets within a doorbell page (`gdma_main.c`: `DOORBELL_OFFSET_*`) reach up to this.
pub const DOORBELL_PAGE: u64 = 4096;
