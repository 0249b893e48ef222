//! All forms of instructions, and how to make an executable example of one.

use iced_x86::{
    Code, Encoder, EncodingKind, Instruction, Mnemonic, OpCodeOperandKind as Kind, OpKind, Register,
};

use crate::random::Random;
use crate::registers::*;
use crate::state::*;

/// One encoding of an instruction, with a register or memory where it leaves the choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) code: Code,
    pub(crate) memory: bool,
    /// Of the code segment: 64 or 32.
    pub(crate) bits: u32,
}

/// The forms of all instructions that exist in 64-bit and 32-bit code and that `select` wants. Those that cut
/// the instruction pointer to 16 bits are left out, for they lead to where the host has no memory.
pub(crate) fn all(select: impl Fn(Code) -> bool) -> Vec<Form> {
    let mut forms = Vec::new();
    for code in Code::values().filter(|&code| select(code)) {
        let info = code.op_code();
        let kinds: Vec<Kind> = (0..info.op_count()).map(|operand| info.op_kind(operand)).collect();
        let narrow = kinds.iter().any(|kind| matches!(kind, Kind::br16_1 | Kind::br16_2));
        let encodable = matches!(info.encoding(), EncodingKind::Legacy | EncodingKind::VEX);
        if !encodable || narrow || is_narrow_branch(code) {
            continue;
        }
        for bits in [64, 32] {
            let exists = if bits == 64 { info.mode64() && info.intel_decoder64() } else { info.mode32() };
            if exists && kinds.iter().any(|kind| is_register_or_memory(*kind)) {
                forms.push(Form { code, memory: false, bits });
                forms.push(Form { code, memory: true, bits });
            } else if exists {
                let memory = kinds.iter().any(|kind| matches!(kind, Kind::mem | Kind::mem_offs));
                forms.push(Form { code, memory, bits });
            }
        }
    }
    forms
}

fn is_narrow_branch(code: Code) -> bool {
    matches!(code, Code::Jmp_rm16 | Code::Call_rm16 | Code::Retnw | Code::Retnw_imm16)
}

impl Form {
    /// Encodes the form with random operands and makes `state` such that they are within reach: memory
    /// operands and the stack in the data area, branch targets in the code page.
    pub(crate) fn encode(&self, state: &mut State, random: &mut Random) -> (Vec<u8>, Instruction) {
        // Some choices of operands cannot be encoded together (AH with R8), others would not be harmless.
        for _ in 0..1000 {
            let mut attempt = state.clone();
            let mut instruction = self.choose_operands(&mut attempt, random);
            let mut encoder = Encoder::new(self.bits);
            if prepare(&mut instruction, &mut attempt, random) && encoder.encode(&instruction, CODE).is_ok() {
                *state = attempt;
                if self.bits == 32 {
                    state.registers.iter_mut().for_each(|register| *register &= 0xffff_ffff);
                }
                return (encoder.take_buffer(), instruction);
            }
        }
        panic!("{self:?} cannot be encoded");
    }

    fn choose_operands(&self, state: &mut State, random: &mut Random) -> Instruction {
        let info = self.code.op_code();
        let mut instruction = Instruction::default();
        instruction.set_code(self.code);
        let narrow = self.bits == 32 || random.chance(4);
        for operand in 0..info.op_count() {
            let kind = info.op_kind(operand);
            if kind == Kind::mem || kind == Kind::mem_offs || self.memory && is_register_or_memory(kind) {
                instruction.set_op_kind(operand, OpKind::Memory);
                self.choose_address(&mut instruction, kind, state, random);
            } else if let Some(register) = self.register(kind, random) {
                instruction.set_op_kind(operand, OpKind::Register);
                instruction.set_op_register(operand, register);
            } else if let Some(immediate) = immediate(self.code, kind) {
                instruction.set_op_kind(operand, immediate);
                let value = if kind == Kind::imm8_const_1 { 1 } else { random.number() as i64 };
                instruction.try_set_immediate_i64(operand, truncate(value, immediate)).unwrap();
            } else {
                self.choose_implicit(&mut instruction, (operand, kind), narrow, state, random);
            }
        }
        if info.can_use_lock_prefix() && self.memory && random.chance(4) {
            instruction.set_has_lock_prefix(true);
        }
        if info.can_use_rep_prefix() && self.code.is_string_instruction() {
            match random.below(3) {
                0 => instruction.set_has_rep_prefix(true),
                1 => instruction.set_has_repne_prefix(true),
                _ => {}
            }
        }
        instruction
    }

    /// A memory operand somewhere around [`CENTER`], by a random kind of address.
    fn choose_address(
        &self,
        instruction: &mut Instruction,
        kind: Kind,
        state: &mut State,
        random: &mut Random,
    ) {
        // Operands of 16 bytes mostly want to be aligned.
        let aligned = instruction.memory_size().size() >= 16 && !random.chance(8);
        let target = if aligned { random.place() & !15 } else { random.place() };
        let full = self.bits as u64 / 8;
        if kind == Kind::mem_offs {
            let size = if random.chance(2) { full as u32 } else { 4 };
            instruction.set_memory_displ_size(size);
            instruction.set_memory_displacement64(target);
            return;
        }
        if self.bits == 32 && instruction.mnemonic() == Mnemonic::Lea && random.chance(2) {
            return choose_address16(instruction, random);
        }
        let mode = random.below(8);
        if mode < 2 {
            if mode == 0 && self.bits == 64 {
                instruction.set_memory_base(Register::RIP);
            }
            instruction.set_memory_displ_size(full as u32);
            instruction.set_memory_displacement64(target);
            return;
        }
        let narrow = mode == 2 || self.bits == 32;
        let base = random.below(self.registers()) as usize;
        let index = random.below(self.registers()) as usize;
        let displacement = random.number() as i8 as i64;
        let mut address = displacement as u64;
        if mode >= 5 && index != 4 && index != base {
            instruction.set_memory_index(address_register(index, narrow));
            let scale = 1 << random.below(4);
            instruction.set_memory_index_scale(scale);
            state.registers[index] = random.number() as i8 as u64;
            address = address.wrapping_add(state.registers[index].wrapping_mul(u64::from(scale)));
        }
        instruction.set_memory_base(address_register(base, narrow));
        state.registers[base] = target.wrapping_sub(address);
        if !narrow && random.chance(64) {
            // Not canonical.
            state.registers[base] ^= 0x4321 << 48;
        }
        if narrow && self.bits == 64 {
            state.registers[base] = state.registers[base] & 0xffff_ffff | random.number() << 32;
        }
        let size = if random.chance(2) {
            1
        } else if narrow {
            4
        } else {
            8
        };
        instruction.set_memory_displ_size(size);
        let displacement = displacement as u64 & if narrow { 0xffff_ffff } else { u64::MAX };
        instruction.set_memory_displacement64(displacement);
    }

    /// Operands that the opcode implies or that are not chosen freely. `narrow` is for 32-bit addresses.
    fn choose_implicit(
        &self,
        instruction: &mut Instruction,
        (operand, kind): (u32, Kind),
        narrow: bool,
        state: &mut State,
        random: &mut Random,
    ) {
        // Strings are often equal: memory repeats every 32 bytes.
        let address = match random.below(4) {
            0 => random.place(),
            1 => CENTER + random.below(64),
            _ => CENTER + 32 * random.below(16),
        };
        let above = if narrow && self.bits == 64 { random.number() << 32 } else { 0 };
        let op_kind = match kind {
            Kind::seg_rSI => {
                state.registers[6] = address | above;
                if narrow { OpKind::MemorySegESI } else { OpKind::MemorySegRSI }
            }
            Kind::es_rDI => {
                state.registers[7] = address | above;
                if narrow { OpKind::MemoryESEDI } else { OpKind::MemoryESRDI }
            }
            Kind::seg_rDI => {
                state.registers[7] = address | above;
                if narrow { OpKind::MemorySegEDI } else { OpKind::MemorySegRDI }
            }
            Kind::seg_rBX_al => {
                instruction.set_memory_base(if narrow { Register::EBX } else { Register::RBX });
                instruction.set_memory_index(Register::AL);
                state.registers[3] = CENTER | above;
                OpKind::Memory
            }
            Kind::br64_1 | Kind::br64_4 | Kind::br32_1 | Kind::br32_4 => {
                let short = matches!(kind, Kind::br64_1 | Kind::br32_1);
                let target = CODE + 0x10 + random.below(if short { 0x60 } else { 0xf00 });
                if self.bits == 64 {
                    instruction.set_near_branch64(target);
                    OpKind::NearBranch64
                } else {
                    instruction.set_near_branch32(target as u32);
                    OpKind::NearBranch32
                }
            }
            _ => panic!("{:?}: operand kind {kind:?}", instruction.code()),
        };
        instruction.set_op_kind(operand, op_kind);
    }

    /// A random register of the kind, or the one that the opcode implies.
    fn register(&self, kind: Kind, random: &mut Random) -> Option<Register> {
        let number = random.below(self.registers()) as usize;
        let eight = if self.bits == 64 { 20 } else { 8 };
        Some(match kind {
            Kind::r8_or_mem | Kind::r8_reg | Kind::r8_opcode => GPR8[random.below(eight) as usize],
            Kind::r16_or_mem | Kind::r16_reg | Kind::r16_rm | Kind::r16_opcode | Kind::r16_reg_mem => {
                GPR16[number]
            }
            Kind::r32_or_mem
            | Kind::r32_reg
            | Kind::r32_rm
            | Kind::r32_opcode
            | Kind::r32_reg_mem
            | Kind::r32_vvvv => GPR32[number],
            Kind::r64_or_mem
            | Kind::r64_reg
            | Kind::r64_rm
            | Kind::r64_opcode
            | Kind::r64_reg_mem
            | Kind::r64_vvvv => GPR64[number],
            Kind::xmm_or_mem | Kind::xmm_reg | Kind::xmm_rm => Register::XMM0 + number as u32,
            Kind::mm_or_mem | Kind::mm_reg | Kind::mm_rm => Register::MM0 + (number as u32 & 7),
            Kind::sti_opcode => Register::ST0 + (number as u32 & 7),
            Kind::st0 => Register::ST0,
            Kind::al => Register::AL,
            Kind::cl => Register::CL,
            Kind::ax => Register::AX,
            Kind::dx => Register::DX,
            Kind::eax => Register::EAX,
            Kind::rax => Register::RAX,
            _ => return None,
        })
    }

    /// How many registers of each kind there are.
    fn registers(&self) -> u64 {
        if self.bits == 64 { 16 } else { 8 }
    }
}

/// A 16-bit address, for `LEA`, which does not access it.
fn choose_address16(instruction: &mut Instruction, random: &mut Random) {
    use Register::{BP, BX, DI, None, SI};
    let pairs = [(BX, SI), (BX, DI), (BP, SI), (BP, DI), (SI, None), (DI, None), (BP, None), (BX, None)];
    let (base, index) = pairs[random.below(8) as usize];
    instruction.set_memory_base(base);
    instruction.set_memory_index(index);
    instruction.set_memory_displ_size(2);
    instruction.set_memory_displacement64(random.number() & 0xffff);
}

fn address_register(number: usize, narrow: bool) -> Register {
    if narrow { GPR32[number] } else { GPR64[number] }
}

/// Adapts `state` to what the instruction does besides its operands; false when it cannot be executed safely
/// with these operands.
fn prepare(instruction: &mut Instruction, state: &mut State, random: &mut Random) -> bool {
    let uses = |register: Register| {
        [instruction.memory_base(), instruction.memory_index()]
            .iter()
            .any(|used| *used != Register::None && used.full_register() == register.full_register())
    };
    let source = instruction.op1_register();
    let target = memory_address(instruction, state);
    match instruction.mnemonic() {
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
            if instruction.op0_kind() == OpKind::Memory && instruction.op1_kind() == OpKind::Register =>
        {
            if uses(source) || source.full_register() == Register::RSP {
                return false;
            }
            state.registers[source.number()] = (random.number() as i16 >> 1) as i64 as u64;
        }
        Mnemonic::Cmpxchg | Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b if random.chance(2) => {
            let size = instruction.memory_size().size();
            if uses(Register::RAX) || uses(Register::RDX) {
                return false;
            }
            if instruction.op0_kind() == OpKind::Memory {
                let mut value = [0; 16];
                if let Some(bytes) = memory(state, target, size) {
                    value[..size].copy_from_slice(bytes);
                }
                let value = u128::from_le_bytes(value);
                match instruction.mnemonic() {
                    Mnemonic::Cmpxchg8b => {
                        state.registers[0] = value as u32 as u64;
                        state.registers[2] = (value >> 32) as u64;
                    }
                    Mnemonic::Cmpxchg16b => {
                        state.registers[0] = value as u64;
                        state.registers[2] = (value >> 64) as u64;
                    }
                    _ => state.registers[0] = value as u64,
                }
            } else {
                state.registers[0] = state.registers[instruction.op0_register().full_register().number()];
            }
        }
        Mnemonic::Enter => {
            instruction.set_immediate16(random.below(0x800) as u16);
            instruction.set_immediate8_2nd(random.number() as u8);
            state.registers[5] = CENTER + random.below(64);
        }
        Mnemonic::Leave => state.registers[5] = CENTER + random.below(64),
        Mnemonic::Jmp | Mnemonic::Call => {
            let place = CODE + 0x20 + random.below(0xf00);
            match instruction.op0_kind() {
                OpKind::Register if instruction.op0_register() == Register::RSP => return false,
                OpKind::Register => state.registers[instruction.op0_register().number()] = place,
                OpKind::Memory if !write_target(state, target, place) => return false,
                _ => {}
            }
        }
        Mnemonic::Ret => {
            let place = CODE + 0x20 + random.below(0xf00);
            if !write_target(state, state.registers[4], place) {
                state.registers[4] = CENTER;
                write_target(state, CENTER, place);
            }
        }
        _ if instruction.code().is_string_instruction() => {
            // Sometimes more than a page.
            let most = if random.chance(8) { 0x1800 } else { 80 };
            state.registers[1] = random.below(most);
            if [instruction.op0_kind(), instruction.op1_kind()].iter().any(|kind| is_narrow_string(*kind)) {
                state.registers[1] |= random.number() << 32;
            }
        }
        _ => {}
    }
    // The stack may only be where there is nothing else in reach of it.
    let stack_user = instruction.stack_pointer_increment() != 0 || instruction.mnemonic() == Mnemonic::Enter;
    !stack_user || (DATA - 0x800..READ_ONLY + 0x1800).contains(&state.registers[4])
}

/// The address of the memory operand.
pub(crate) fn memory_address(instruction: &Instruction, state: &State) -> u64 {
    let value = |register: Register| match register {
        Register::None | Register::RIP | Register::AL => 0,
        register => state.registers[register.full_register().number()],
    };
    let address = value(instruction.memory_base())
        .wrapping_add(
            value(instruction.memory_index()).wrapping_mul(u64::from(instruction.memory_index_scale())),
        )
        .wrapping_add(instruction.memory_displacement64());
    if instruction.memory_base().is_gpr32() { address & 0xffff_ffff } else { address }
}

/// Whether an operand of a string instruction has a 32-bit address.
fn is_narrow_string(kind: OpKind) -> bool {
    matches!(kind, OpKind::MemorySegESI | OpKind::MemorySegEDI | OpKind::MemoryESEDI)
}

/// The `size` bytes of the data area at `address`, if they are all there.
fn memory(state: &mut State, address: u64, size: usize) -> Option<&mut [u8]> {
    let offset = usize::try_from(address.checked_sub(DATA)?).ok()?;
    state.memory.get_mut(offset..offset.checked_add(size)?)
}

/// Makes the branch target at `address` lead to `place`, if `address` is in the data area. False when it is
/// partly there: then the target would be anywhere.
fn write_target(state: &mut State, address: u64, place: u64) -> bool {
    match memory(state, address, 8) {
        Some(bytes) => bytes.copy_from_slice(&place.to_le_bytes()),
        None => return !(DATA - 7..READ_ONLY).contains(&address),
    }
    true
}

fn is_register_or_memory(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::r8_or_mem
            | Kind::r16_or_mem
            | Kind::r32_or_mem
            | Kind::r64_or_mem
            | Kind::mm_or_mem
            | Kind::xmm_or_mem
    )
}

/// How an immediate of the kind is represented.
fn immediate(code: Code, kind: Kind) -> Option<OpKind> {
    Some(match kind {
        Kind::imm8 if code.mnemonic() == Mnemonic::Enter => OpKind::Immediate8_2nd,
        Kind::imm8 | Kind::imm8_const_1 => OpKind::Immediate8,
        Kind::imm8sex16 => OpKind::Immediate8to16,
        Kind::imm8sex32 => OpKind::Immediate8to32,
        Kind::imm8sex64 => OpKind::Immediate8to64,
        Kind::imm16 => OpKind::Immediate16,
        Kind::imm32 => OpKind::Immediate32,
        Kind::imm32sex64 => OpKind::Immediate32to64,
        Kind::imm64 => OpKind::Immediate64,
        _ => return None,
    })
}

/// What of `value` an immediate can hold.
fn truncate(value: i64, kind: OpKind) -> i64 {
    match kind {
        OpKind::Immediate8 | OpKind::Immediate8_2nd => i64::from(value as u8),
        OpKind::Immediate16 => i64::from(value as u16),
        OpKind::Immediate32 => i64::from(value as u32),
        OpKind::Immediate8to16 | OpKind::Immediate8to32 | OpKind::Immediate8to64 => i64::from(value as i8),
        OpKind::Immediate32to64 => i64::from(value as i32),
        _ => value,
    }
}
