//! Numbers of the local APIC's registers: offset / 16 in xAPIC mode, MSR - 0x800 in x2APIC mode (Intel SDM
//! vol. 3, tables 11-1 and 11-6), and which bits software may write.

pub(super) const ID: u32 = 0x02;
pub(super) const VERSION: u32 = 0x03;
pub(super) const TASK_PRIORITY: u32 = 0x08;
pub(super) const ARBITRATION_PRIORITY: u32 = 0x09;
pub(super) const PROCESSOR_PRIORITY: u32 = 0x0a;
pub(super) const END_OF_INTERRUPT: u32 = 0x0b;
pub(super) const REMOTE_READ: u32 = 0x0c;
pub(super) const LOGICAL_DESTINATION: u32 = 0x0d;
pub(super) const DESTINATION_FORMAT: u32 = 0x0e;
pub(super) const SPURIOUS: u32 = 0x0f;
pub(super) const IN_SERVICE: u32 = 0x10;
pub(super) const IN_SERVICE_LAST: u32 = 0x17;
pub(super) const TRIGGER_MODE: u32 = 0x18;
pub(super) const TRIGGER_MODE_LAST: u32 = 0x1f;
pub(super) const REQUESTED: u32 = 0x20;
pub(super) const REQUESTED_LAST: u32 = 0x27;
pub(super) const ERROR_STATUS: u32 = 0x28;
pub(super) const COMMAND: u32 = 0x30;
pub(super) const COMMAND_HIGH: u32 = 0x31;
pub(super) const LVT_FIRST: u32 = 0x32;
pub(super) const LVT_LAST: u32 = 0x37;
pub(super) const INITIAL_COUNT: u32 = 0x38;
pub(super) const CURRENT_COUNT: u32 = 0x39;
pub(super) const DIVIDE: u32 = 0x3e;
pub(super) const SELF_INTERRUPT: u32 = 0x3f;

/// Integrated APIC, six local vector table entries.
pub(super) const VERSION_VALUE: u32 = 0x0005_0014;
pub(super) const SPURIOUS_ENABLE: u32 = 1 << 8;
pub(super) const FLAT_MODEL: u32 = 0xffff_ffff;

/// Indices into the local vector table.
pub(super) const LVT_TIMER: usize = 0;
pub(super) const LVT_LINT0: usize = 3;
pub(super) const LVT_LINT1: usize = 4;
pub(super) const LVT_ERROR: usize = 5;
pub(super) const LVT_MASKED: u32 = 1 << 16;
pub(super) const LVT_MODE_EXTERNAL: u32 = 7;
/// What software may write to each entry: timer, thermal, performance, LINT0, LINT1, error.
pub(super) const LVT_WRITABLE: [u32; 6] =
    [0x0007_00ff, 0x0001_07ff, 0x0001_07ff, 0x0001_a7ff, 0x0001_a7ff, 0x0001_00ff];

pub(super) const ERROR_SEND_ILLEGAL_VECTOR: u32 = 1 << 5;
pub(super) const ERROR_RECEIVED_ILLEGAL_VECTOR: u32 = 1 << 6;
pub(super) const ERROR_ILLEGAL_REGISTER: u32 = 1 << 7;

/// The bits that software may set in an x2APIC register without a fault; `None` if it may not write at all.
pub(super) fn x2apic_writable(register: u32) -> Option<u64> {
    Some(match register {
        TASK_PRIORITY | SELF_INTERRUPT => 0xff,
        END_OF_INTERRUPT | ERROR_STATUS => 0,
        SPURIOUS => 0x3ff,
        COMMAND => 0xffff_ffff_000c_dfff,
        LVT_FIRST..=LVT_LAST => u64::from(LVT_WRITABLE[(register - LVT_FIRST) as usize] | 1 << 12 | 1 << 14),
        INITIAL_COUNT => 0xffff_ffff,
        DIVIDE => 0b1011,
        _ => return None,
    })
}
