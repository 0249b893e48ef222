//! x87 arithmetic.
//!
//! Operations run under the guest's own control word, with its exceptions *unmasked* where the guest has them
//! so: results differ then (an untouched stack, rescaled overflows). Nothing traps on the host, because an x87
//! exception waits for the next instruction that looks, and `FNSTSW` and `FNCLEX`, which do not, come first.
//!
//! Add, subtract, multiply, divide, square root, remainder and all conversions are exactly specified. The
//! transcendental functions are accurate to about the last bit, which may differ between processor makes.

use std::arch::asm;

use crate::fp::Extended;

/// What an operation on the stack leaves behind.
#[derive(Clone, Copy, Debug)]
pub(in crate::fp) struct Outcome {
    /// The new top of the stack.
    pub(in crate::fp) st0: Extended,
    /// The register below it. Meaningless after an operation that pops.
    pub(in crate::fp) st1: Extended,
    /// The status word: exception flags and condition codes of this operation alone.
    pub(in crate::fp) status: u16,
}

/// An operation on the two top registers.
pub(in crate::fp) trait StackOperation {
    /// Executes it under `control`.
    fn run(control: u16, st0: Extended, st1: Extended) -> Outcome;
}

/// An operation on the top register and a number in memory.
pub(in crate::fp) trait MemoryOperation {
    /// Size of the number.
    const BYTES: usize;
    /// Executes it under `control`. Loads find an empty stack and ignore `st0`.
    fn run(control: u16, st0: Extended, memory: [u8; 10]) -> Outcome;
}

/// A conversion of the top register to a number in memory.
pub(in crate::fp) trait StoreOperation {
    /// Size of the number.
    const BYTES: usize;
    /// What is stored for an empty register.
    const INDEFINITE: [u8; 10];
    /// Executes it under `control`: the number and the status word.
    fn run(control: u16, st0: Extended) -> ([u8; 10], u16);
}

/// `asm!` with the x87 state initial before and after.
macro_rules! x87 {
    ($($line:expr),*; $($operand:tt)*) => {
        asm!(
            "fninit",
            $($line,)*
            "fninit",
            $($operand)*
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            options(nostack),
        )
    };
}

macro_rules! stack_operations {
    ($($name:ident $instruction:literal;)*) => {$(
        #[doc = concat!("`", $instruction, "`")]
        pub(in crate::fp) struct $name;

        impl StackOperation for $name {
            fn run(control: u16, mut st0: Extended, mut st1: Extended) -> Outcome {
                let status: u16;
                // SAFETY: the pointers are to local variables of the sizes accessed; exceptions stay pending
                // only until FNCLEX or FNINIT and so never trap.
                unsafe {
                    x87!(
                        "fld tbyte ptr [{st1}]",
                        "fld tbyte ptr [{st0}]",
                        "fldcw word ptr [{control}]",
                        $instruction,
                        "fnstsw ax",
                        "fnclex",
                        "fstp tbyte ptr [{st0}]",
                        "fstp tbyte ptr [{st1}]";
                        st0 = in(reg) &mut st0,
                        st1 = in(reg) &mut st1,
                        control = in(reg) &control,
                        out("ax") status,
                    );
                }
                Outcome { st0, st1, status }
            }
        }
    )*};
}

stack_operations! {
    Fadd "fadd st(0), st(1)";
    Fmul "fmul st(0), st(1)";
    Fsub "fsub st(0), st(1)";
    Fsubr "fsubr st(0), st(1)";
    Fdiv "fdiv st(0), st(1)";
    Fdivr "fdivr st(0), st(1)";
    Fcom "fcom st(1)";
    Fucom "fucom st(1)";
    Ftst "ftst";
    Fxam "fxam";
    Fsqrt "fsqrt";
    Frndint "frndint";
    Fscale "fscale";
    Fprem "fprem";
    Fprem1 "fprem1";
    Fxtract "fxtract";
    F2xm1 "f2xm1";
    Fyl2x "fyl2x";
    Fyl2xp1 "fyl2xp1";
    Fptan "fptan";
    Fpatan "fpatan";
    Fsin "fsin";
    Fcos "fcos";
    Fsincos "fsincos";
    Fld1 "fld1";
    Fldl2t "fldl2t";
    Fldl2e "fldl2e";
    Fldpi "fldpi";
    Fldlg2 "fldlg2";
    Fldln2 "fldln2";
    Fldz "fldz";
}

macro_rules! memory_operations {
    ($($name:ident $bytes:literal $instruction:literal;)*) => {$(
        #[doc = concat!("`", $instruction, "`")]
        pub(in crate::fp) struct $name;

        impl MemoryOperation for $name {
            const BYTES: usize = $bytes;

            fn run(control: u16, mut st0: Extended, memory: [u8; 10]) -> Outcome {
                let status: u16;
                // SAFETY: as for `stack_operations`.
                unsafe {
                    x87!(
                        "fld tbyte ptr [{st0}]",
                        "fldcw word ptr [{control}]",
                        concat!($instruction, " ptr [{memory}]"),
                        "fnstsw ax",
                        "fnclex",
                        "fstp tbyte ptr [{st0}]";
                        st0 = in(reg) &mut st0,
                        memory = in(reg) &memory,
                        control = in(reg) &control,
                        out("ax") status,
                    );
                }
                Outcome { st0, st1: Extended::default(), status }
            }
        }
    )*};
}

memory_operations! {
    FaddSingle 4 "fadd dword";
    FmulSingle 4 "fmul dword";
    FsubSingle 4 "fsub dword";
    FsubrSingle 4 "fsubr dword";
    FdivSingle 4 "fdiv dword";
    FdivrSingle 4 "fdivr dword";
    FcomSingle 4 "fcom dword";
    FaddDouble 8 "fadd qword";
    FmulDouble 8 "fmul qword";
    FsubDouble 8 "fsub qword";
    FsubrDouble 8 "fsubr qword";
    FdivDouble 8 "fdiv qword";
    FdivrDouble 8 "fdivr qword";
    FcomDouble 8 "fcom qword";
    FiaddWord 2 "fiadd word";
    FimulWord 2 "fimul word";
    FisubWord 2 "fisub word";
    FisubrWord 2 "fisubr word";
    FidivWord 2 "fidiv word";
    FidivrWord 2 "fidivr word";
    FicomWord 2 "ficom word";
    FiaddDword 4 "fiadd dword";
    FimulDword 4 "fimul dword";
    FisubDword 4 "fisub dword";
    FisubrDword 4 "fisubr dword";
    FidivDword 4 "fidiv dword";
    FidivrDword 4 "fidivr dword";
    FicomDword 4 "ficom dword";
    FldSingle 4 "fld dword";
    FldDouble 8 "fld qword";
    FldExtended 10 "fld tbyte";
    FildWord 2 "fild word";
    FildDword 4 "fild dword";
    FildQword 8 "fild qword";
    Fbld 10 "fbld tbyte";
}

macro_rules! store_operations {
    ($($name:ident $bytes:literal $indefinite:ident $instruction:literal;)*) => {$(
        #[doc = concat!("`", $instruction, "`")]
        pub(in crate::fp) struct $name;

        impl StoreOperation for $name {
            const BYTES: usize = $bytes;
            const INDEFINITE: [u8; 10] = $indefinite;

            fn run(control: u16, st0: Extended) -> ([u8; 10], u16) {
                let mut memory = [0; 10];
                let status: u16;
                // SAFETY: as for `stack_operations`.
                unsafe {
                    x87!(
                        "fld tbyte ptr [{st0}]",
                        "fldcw word ptr [{control}]",
                        concat!($instruction, " ptr [{memory}]"),
                        "fnstsw ax";
                        st0 = in(reg) &st0,
                        memory = in(reg) &mut memory,
                        control = in(reg) &control,
                        out("ax") status,
                    );
                }
                (memory, status)
            }
        }
    )*};
}

store_operations! {
    FstpSingle 4 SINGLE_INDEFINITE "fstp dword";
    FstpDouble 8 DOUBLE_INDEFINITE "fstp qword";
    FstpExtended 10 EXTENDED_INDEFINITE "fstp tbyte";
    FistpWord 2 WORD_INDEFINITE "fistp word";
    FistpDword 4 DWORD_INDEFINITE "fistp dword";
    FistpQword 8 QWORD_INDEFINITE "fistp qword";
    FisttpWord 2 WORD_INDEFINITE "fisttp word";
    FisttpDword 4 DWORD_INDEFINITE "fisttp dword";
    FisttpQword 8 QWORD_INDEFINITE "fisttp qword";
    Fbstp 10 DECIMAL_INDEFINITE "fbstp tbyte";
}

const SINGLE_INDEFINITE: [u8; 10] = [0, 0, 0xc0, 0xff, 0, 0, 0, 0, 0, 0];
const DOUBLE_INDEFINITE: [u8; 10] = [0, 0, 0, 0, 0, 0, 0xf8, 0xff, 0, 0];
const EXTENDED_INDEFINITE: [u8; 10] = [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xff];
const WORD_INDEFINITE: [u8; 10] = [0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0];
const DWORD_INDEFINITE: [u8; 10] = [0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0];
const QWORD_INDEFINITE: [u8; 10] = [0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0];
const DECIMAL_INDEFINITE: [u8; 10] = [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xff];
