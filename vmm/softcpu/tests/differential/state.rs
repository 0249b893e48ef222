//! What an instruction starts from and what it leaves behind.

use std::fmt;

/// The user-visible state of a CPU, and the memory an instruction may use.
#[derive(Clone, PartialEq)]
pub(crate) struct State {
    /// General-purpose registers by their encoding.
    pub(crate) registers: [u64; 16],
    pub(crate) rip: u64,
    /// The arithmetic flags and DF.
    pub(crate) flags: u64,
    pub(crate) fx: FxImage,
    /// The bytes at [`DATA`].
    pub(crate) memory: Vec<u8>,
}

/// x87 and SSE state as `FXSAVE` stores it (64-bit form, without the reserved end).
#[derive(Clone, PartialEq)]
pub(crate) struct FxImage(pub(crate) [u8; FX_BYTES]);

/// How an instruction ended.
#[derive(Clone, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) state: State,
    pub(crate) trap: Option<Trap>,
}

/// An exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trap {
    pub(crate) vector: u8,
    /// 0 for exceptions that have none.
    pub(crate) error: u64,
    /// CR2 of a page fault.
    pub(crate) address: u64,
}

impl State {
    pub(crate) fn new() -> State {
        State { registers: [0; 16], rip: CODE, flags: 0, fx: FxImage::default(), memory: vec![0; DATA_BYTES] }
    }
}

impl FxImage {
    pub(crate) fn control(&self) -> u16 {
        u16::from_le_bytes([self.0[0], self.0[1]])
    }

    pub(crate) fn set_control(&mut self, control: u16) {
        self.0[0..2].copy_from_slice(&control.to_le_bytes());
    }

    pub(crate) fn status(&self) -> u16 {
        u16::from_le_bytes([self.0[2], self.0[3]])
    }

    pub(crate) fn set_status(&mut self, status: u16) {
        self.0[2..4].copy_from_slice(&status.to_le_bytes());
    }

    /// One bit per physical x87 register: not empty.
    pub(crate) fn occupied(&self) -> u8 {
        self.0[4]
    }

    pub(crate) fn set_occupied(&mut self, occupied: u8) {
        self.0[4] = occupied;
    }

    pub(crate) fn mxcsr(&self) -> u32 {
        u32::from_le_bytes(self.0[24..28].try_into().unwrap())
    }

    pub(crate) fn set_mxcsr(&mut self, mxcsr: u32) {
        self.0[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    }

    /// `ST(number)`, ten bytes.
    pub(crate) fn st(&self, number: usize) -> [u8; 10] {
        self.0[32 + 16 * number..][..10].try_into().unwrap()
    }

    pub(crate) fn set_st(&mut self, number: usize, value: [u8; 10]) {
        self.0[32 + 16 * number..][..10].copy_from_slice(&value);
    }

    pub(crate) fn xmm(&self, number: usize) -> u128 {
        u128::from_le_bytes(self.0[160 + 16 * number..][..16].try_into().unwrap())
    }

    pub(crate) fn set_xmm(&mut self, number: usize, value: u128) {
        self.0[160 + 16 * number..][..16].copy_from_slice(&value.to_le_bytes());
    }

    /// Forgets the address and opcode of the last x87 instruction, which CPUs record in their own ways, and
    /// what lies between the fields.
    pub(crate) fn without_pointers(mut self) -> FxImage {
        self.0[5..24].fill(0);
        self.0[28..32].fill(0);
        for number in 0..8 {
            self.0[32 + 16 * number + 10..][..6].fill(0);
        }
        self
    }
}

impl Default for FxImage {
    /// The state after `FNINIT` and with MXCSR reset.
    fn default() -> Self {
        let mut image = FxImage([0; FX_BYTES]);
        image.set_control(0x37f);
        image.set_mxcsr(0x1f80);
        image
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, value) in self.registers.iter().enumerate() {
            let end = if number % 4 == 3 { "\n" } else { "  " };
            write!(formatter, "{:>3} {value:016x}{end}", REGISTER_NAMES[number])?;
        }
        writeln!(formatter, "rip {:x}  flags {:03x}", self.rip, self.flags)
    }
}

pub(crate) const REGISTER_NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// Where the instruction lies; its page is filled with `INT3` otherwise.
pub(crate) const CODE: u64 = 0x10_0000;
pub(crate) const CODE_BYTES: usize = 4096;
/// Where memory operands and the stack lie: low enough for any kind of address.
pub(crate) const DATA: u64 = 0x11_0000;
pub(crate) const DATA_BYTES: usize = 0x4000;
/// Around where memory operands lie.
pub(crate) const CENTER: u64 = DATA + DATA_BYTES as u64 / 2;
/// A page of zeros behind the data, which cannot be written. There is nothing behind it, nor in front of the
/// data.
pub(crate) const READ_ONLY: u64 = DATA + DATA_BYTES as u64;
pub(crate) const READ_ONLY_BYTES: usize = 4096;
/// The part of an `FXSAVE` image that has contents.
pub(crate) const FX_BYTES: usize = 416;
/// Vector of page faults.
pub(crate) const PAGE_FAULT: u8 = 14;
