//! Model-specific registers that neither the CPU nor the interrupt controllers keep, but that kernels touch
//! without asking CPUID. All others fault, as on hardware that lacks them.

/// The value of register `index`; `None` when there is no such register.
pub(super) fn read(index: u32) -> Option<u64> {
    match index {
        PLATFORM_ID | POWER_ON_CONFIGURATION | DEBUG_CONTROL => Some(0),
        FEATURE_CONTROL => Some(FEATURE_CONTROL_LOCKED),
        MICROCODE_REVISION => Some(MICROCODE << 32),
        _ => None,
    }
}

/// Writes register `index`; `None` when there is no such register or it does not take this value.
pub(super) fn write(index: u32, value: u64) -> Option<()> {
    match index {
        // Kernels write zero before they read the revision back.
        MICROCODE_REVISION | POWER_ON_CONFIGURATION => Some(()),
        DEBUG_CONTROL if value == 0 => Some(()),
        _ => None,
    }
}

const PLATFORM_ID: u32 = 0x17;
const POWER_ON_CONFIGURATION: u32 = 0x2a;
const FEATURE_CONTROL: u32 = 0x3a;
const FEATURE_CONTROL_LOCKED: u64 = 1;
const MICROCODE_REVISION: u32 = 0x8b;
const DEBUG_CONTROL: u32 = 0x1d9;
/// High enough for kernels that want a recent one.
const MICROCODE: u64 = 0x0fff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_registers_do_not_exist() {
        assert_eq!(read(0x8b), Some(0x0fff_ffff_0000_0000));
        assert_eq!((read(0x4000_0000), read(0xc001_1029), read(0x10a)), (None, None, None));
        assert_eq!((write(0x1d9, 0), write(0x1d9, 2), write(0x8b, 0)), (Some(()), None, Some(())));
    }
}
