//! The floating-point state as a memory image: `FXSAVE` and `FXRSTOR`; MXCSR.

use iced_x86::{Code, CodeSize, Instruction};

use super::state::{Extended, FpuState, MXCSR_MASK};
use crate::op::{Handler, Op};
use crate::{Access, Cpu, Env, Exception, Stop};

/// The handler for `instruction` if it is one of these.
pub(super) fn lookup(instruction: &Instruction) -> Option<Handler> {
    let long = instruction.code_size() == CodeSize::Code64;
    Some(match instruction.code() {
        Code::Fxsave64_m512byte => fxsave::<true, 16>,
        Code::Fxsave_m512byte if long => fxsave::<false, 16>,
        Code::Fxsave_m512byte => fxsave::<false, 8>,
        Code::Fxrstor64_m512byte => fxrstor::<true, 16>,
        Code::Fxrstor_m512byte if long => fxrstor::<false, 16>,
        Code::Fxrstor_m512byte => fxrstor::<false, 8>,
        Code::Ldmxcsr_m32 => ldmxcsr,
        Code::Stmxcsr_m32 => stmxcsr,
        Code::Clflush_m8 => clflush,
        _ => return None,
    })
}

impl FpuState {
    /// The state as `FXSAVE64` would store it: what KVM and the legacy part of XSAVE areas use.
    pub fn to_image(&self) -> [u8; 512] {
        let mut image = [0; 512];
        write_image(self, &mut image[..XMM_OFFSET + 16 * 16], true);
        image
    }

    /// The state that `FXRSTOR64` would load from `image`.
    pub fn from_image(image: &[u8; 512]) -> FpuState {
        let mut fpu =
            FpuState { mxcsr: u32::from_le_bytes(field(image, 24)) & MXCSR_MASK, ..FpuState::default() };
        read_image(&mut fpu, image, true);
        for (register, value) in fpu.xmm.iter_mut().enumerate() {
            *value = u128::from_le_bytes(field(image, XMM_OFFSET + 16 * register));
        }
        fpu
    }
}

fn ldmxcsr(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    let value = cpu.load_operand::<u32>(env, op)?;
    if value & !MXCSR_MASK != 0 {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    cpu.fpu.mxcsr = value;
    Ok(())
}

fn stmxcsr(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_sse()?;
    cpu.store_operand(env, op, cpu.fpu.mxcsr)
}

/// There is no cache to flush; the address is checked as for a read of one byte.
fn clflush(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.load_operand::<u8>(env, op).map(drop)
}

/// `FXSAVE`. `WIDE` (REX.W) stores 64-bit instruction and data pointers instead of selectors and offsets.
fn fxsave<const WIDE: bool, const XMM: usize>(cpu: &mut Cpu, env: &mut Env<'_>, op: &Op) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()?;
    let linear = fx_area(cpu, op, Access::Write)?;
    // The CPU leaves the rest of the area alone.
    let mut used = [0; XMM_OFFSET + 16 * 16];
    let used = &mut used[..XMM_OFFSET + 16 * XMM];
    write_image(&cpu.fpu, used, WIDE);
    cpu.store_bytes(env, linear, used)
}

/// `FXRSTOR`.
fn fxrstor<const WIDE: bool, const XMM: usize>(
    cpu: &mut Cpu,
    env: &mut Env<'_>,
    op: &Op,
) -> Result<(), Stop> {
    cpu.enter_x87_without_wait()?;
    let linear = fx_area(cpu, op, Access::Read)?;
    let mut image = [0; 512];
    cpu.load_bytes(env, linear, &mut image)?;
    let mxcsr = u32::from_le_bytes(field(&image, 24));
    if mxcsr & !MXCSR_MASK != 0 {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    cpu.fpu.mxcsr = mxcsr;
    read_image(&mut cpu.fpu, &image, WIDE);
    for (register, value) in cpu.fpu.xmm[..XMM].iter_mut().enumerate() {
        *value = u128::from_le_bytes(field(&image, XMM_OFFSET + 16 * register));
    }
    Ok(())
}

fn fx_area(cpu: &mut Cpu, op: &Op, access: Access) -> Result<u64, Stop> {
    let linear = cpu.linear(op, 512, access)?;
    if linear & 15 != 0 {
        return Err(cpu.fault(Exception::general_protection(0)));
    }
    Ok(linear)
}

fn write_image(fpu: &FpuState, image: &mut [u8], wide: bool) {
    image[0..2].copy_from_slice(&fpu.control.to_le_bytes());
    image[2..4].copy_from_slice(&fpu.status_word().to_le_bytes());
    image[4] = fpu.occupied;
    image[6..8].copy_from_slice(&fpu.last_opcode.to_le_bytes());
    if wide {
        image[8..16].copy_from_slice(&fpu.last_instruction.to_le_bytes());
        image[16..24].copy_from_slice(&fpu.last_data.to_le_bytes());
    } else {
        image[8..12].copy_from_slice(&(fpu.last_instruction as u32).to_le_bytes());
        image[12..14].copy_from_slice(&fpu.last_code_segment.to_le_bytes());
        image[16..20].copy_from_slice(&(fpu.last_data as u32).to_le_bytes());
        image[20..22].copy_from_slice(&fpu.last_data_segment.to_le_bytes());
    }
    image[24..28].copy_from_slice(&fpu.mxcsr.to_le_bytes());
    image[28..32].copy_from_slice(&MXCSR_MASK.to_le_bytes());
    for number in 0..8 {
        let start = ST_OFFSET + 16 * usize::from(number);
        image[start..start + 10].copy_from_slice(&fpu.st(number).to_bytes());
    }
    for (slot, value) in image[XMM_OFFSET..].chunks_exact_mut(16).zip(&fpu.xmm) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
}

/// The x87 part of the image.
fn read_image(fpu: &mut FpuState, image: &[u8; 512], wide: bool) {
    fpu.set_control_word(u16::from_le_bytes(field(image, 0)));
    fpu.set_status_word(u16::from_le_bytes(field(image, 2)));
    fpu.occupied = image[4];
    fpu.last_opcode = u16::from_le_bytes(field(image, 6)) & OPCODE_MASK;
    if wide {
        fpu.last_instruction = u64::from_le_bytes(field(image, 8));
        fpu.last_data = u64::from_le_bytes(field(image, 16));
        fpu.last_code_segment = 0;
        fpu.last_data_segment = 0;
    } else {
        fpu.last_instruction = u32::from_le_bytes(field(image, 8)).into();
        fpu.last_code_segment = u16::from_le_bytes(field(image, 12));
        fpu.last_data = u32::from_le_bytes(field(image, 16)).into();
        fpu.last_data_segment = u16::from_le_bytes(field(image, 20));
    }
    for number in 0..8 {
        *fpu.st_mut(number) = Extended::from_bytes(field(image, ST_OFFSET + 16 * usize::from(number)));
    }
}

/// `N` bytes of the image at `offset`.
fn field<const N: usize>(image: &[u8], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&image[offset..offset + N]);
    bytes
}

/// x87 opcodes are kept as 11 bits.
const OPCODE_MASK: u16 = 0x7ff;
/// Where ST(0) lies in the `FXSAVE` image; the others follow, 16 bytes apart.
const ST_OFFSET: usize = 32;
/// Where XMM0 lies in the `FXSAVE` image.
const XMM_OFFSET: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wide_image_holds_everything_at_its_place() {
        let image = image_of(&sample(), true);
        assert_eq!(image[0..5], [0x7e, 0x03, 0x01 | 0x80, 0xa9, 0b0011_1111]);
        assert_eq!(image[5..8], [0, 0xdc, 0x05]);
        assert_eq!(image[8..16], 0xffff_8000_1234_5678u64.to_le_bytes());
        assert_eq!(image[16..24], 0xffff_8000_9abc_def0u64.to_le_bytes());
        assert_eq!(image[24..32], [0xa1, 0x1f, 0, 0, 0xff, 0xff, 0, 0]);
        // ST(0) is physical register 5.
        assert_eq!(image[32..42], [105, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]);
        assert_eq!(image[42..48], [0; 6]);
        assert_eq!(image[160 + 16 * 15..], 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_010f_u128.to_le_bytes());
    }

    #[test]
    fn the_narrow_image_has_selectors_beside_short_pointers() {
        let image = image_of(&sample(), false);
        assert_eq!(image[8..16], [0x78, 0x56, 0x34, 0x12, 0x10, 0, 0, 0]);
        assert_eq!(image[16..24], [0xf0, 0xde, 0xbc, 0x9a, 0x18, 0, 0, 0]);
    }

    #[test]
    fn reading_an_image_restores_the_x87_state() {
        let mut whole = [0; 512];
        whole[..XMM_OFFSET + 256].copy_from_slice(&image_of(&sample(), true));
        let mut restored = FpuState { xmm: sample().xmm, mxcsr: sample().mxcsr, ..FpuState::default() };
        read_image(&mut restored, &whole, true);
        let expected = FpuState { last_code_segment: 0, last_data_segment: 0, ..sample() };
        assert_eq!(restored, expected);
    }

    #[test]
    fn a_whole_state_survives_its_image() {
        let expected = FpuState { last_code_segment: 0, last_data_segment: 0, ..sample() };
        assert_eq!(FpuState::from_image(&sample().to_image()), expected);
    }

    #[test]
    fn reserved_bits_of_an_image_are_dropped() {
        let mut fpu = FpuState::default();
        read_image(&mut fpu, &[0xff; 512], false);
        assert_eq!(fpu.control, 0x1f7f);
        assert_eq!(fpu.last_opcode, 0x7ff);
        assert_eq!(fpu.status_word(), 0x7f7f);
    }

    fn image_of(fpu: &FpuState, wide: bool) -> [u8; XMM_OFFSET + 256] {
        let mut image = [0; XMM_OFFSET + 256];
        write_image(fpu, &mut image, wide);
        image
    }

    /// A state in which no two fields are alike. Invalid operations are unmasked, and one is pending.
    fn sample() -> FpuState {
        let mut fpu = FpuState {
            mxcsr: 0x1fa1,
            top: 5,
            occupied: 0b0011_1111,
            control: 0x037e,
            status: 0x0101,
            last_opcode: 0x05dc,
            last_instruction: 0xffff_8000_1234_5678,
            last_code_segment: 0x10,
            last_data: 0xffff_8000_9abc_def0,
            last_data_segment: 0x18,
            ..FpuState::default()
        };
        for number in 0..8 {
            fpu.registers[number] =
                Extended { mantissa: 1 << 63 | (100 + number as u64), sign_exponent: 0x3fff };
        }
        for number in 0..16 {
            fpu.xmm[number] = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100 + number as u128;
        }
        fpu
    }
}
