//! Bits of the control and feature registers (Intel SDM vol. 3, 2.5; AMD APM vol. 2, 3.1).

/// Protected mode.
pub const CR0_PE: u64 = 1 << 0;
/// WAIT traps when a task switch happened.
pub const CR0_MP: u64 = 1 << 1;
/// No x87: its instructions raise #NM.
pub const CR0_EM: u64 = 1 << 2;
/// A task switch happened: x87 and SSE raise #NM.
pub const CR0_TS: u64 = 1 << 3;
/// Always set.
pub const CR0_ET: u64 = 1 << 4;
/// x87 errors as #MF.
pub const CR0_NE: u64 = 1 << 5;
/// Supervisor writes respect read-only pages.
pub const CR0_WP: u64 = 1 << 16;
/// Alignment checks possible.
pub const CR0_AM: u64 = 1 << 18;
/// Not write-through.
pub const CR0_NW: u64 = 1 << 29;
/// Cache disabled.
pub const CR0_CD: u64 = 1 << 30;
/// Paging.
pub const CR0_PG: u64 = 1 << 31;
/// All bits of CR0 that can be set.
pub const CR0_KNOWN: u64 =
    CR0_PE | CR0_MP | CR0_EM | CR0_TS | CR0_ET | CR0_NE | CR0_WP | CR0_AM | CR0_NW | CR0_CD | CR0_PG;

/// Virtual-8086 extensions.
pub const CR4_VME: u64 = 1 << 0;
/// Protected-mode virtual interrupts.
pub const CR4_PVI: u64 = 1 << 1;
/// RDTSC is privileged.
pub const CR4_TSD: u64 = 1 << 2;
/// DR4 and DR5 raise #UD.
pub const CR4_DE: u64 = 1 << 3;
/// 4 MiB pages in 32-bit paging.
pub const CR4_PSE: u64 = 1 << 4;
/// Physical address extension.
pub const CR4_PAE: u64 = 1 << 5;
/// Machine checks.
pub const CR4_MCE: u64 = 1 << 6;
/// Global pages.
pub const CR4_PGE: u64 = 1 << 7;
/// RDPMC for everybody.
pub const CR4_PCE: u64 = 1 << 8;
/// The system uses FXSAVE; SSE possible.
pub const CR4_OSFXSR: u64 = 1 << 9;
/// SSE exceptions as #XM.
pub const CR4_OSXMMEXCPT: u64 = 1 << 10;
/// SGDT and friends are privileged.
pub const CR4_UMIP: u64 = 1 << 11;
/// RDFSBASE and friends.
pub const CR4_FSGSBASE: u64 = 1 << 16;
/// No execution of user pages by the supervisor.
pub const CR4_SMEP: u64 = 1 << 20;
/// No access to user pages by the supervisor.
pub const CR4_SMAP: u64 = 1 << 21;

/// SYSCALL and SYSRET.
pub const EFER_SCE: u64 = 1 << 0;
/// Long mode as soon as paging is on.
pub const EFER_LME: u64 = 1 << 8;
/// Long mode.
pub const EFER_LMA: u64 = 1 << 10;
/// No-execute pages.
pub const EFER_NXE: u64 = 1 << 11;

/// DR6: the instruction completed with TF set.
pub const DR6_BS: u64 = 1 << 14;
/// DR6: a debug register was accessed while DR7.GD was set.
pub const DR6_BD: u64 = 1 << 13;
/// DR6: bits that always read as one.
pub const DR6_ONES: u64 = 0xffff_0ff0;
/// DR7: the bit that always reads as one.
pub const DR7_ONES: u64 = 1 << 10;
/// DR7: accesses to debug registers trap.
pub const DR7_GD: u64 = 1 << 13;
