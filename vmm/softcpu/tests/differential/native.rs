//! Executes an instruction on the host's own CPU.
//!
//! The kernel is made to do the hard part: a signal frame holds all user-visible registers, and returning from
//! the handler loads what it then holds. So an `INT3` of ours enters [`on_trap`], which saves our registers
//! and puts the instruction's into the frame; the instruction, or the `INT3` behind it, traps again, and the
//! handler does the reverse.

use std::ptr;
use std::sync::{Mutex, MutexGuard};

use crate::state::*;

/// Executes `code`, which must be harmless outside of the memory at [`DATA`], from `state` in a code segment of
/// `bits`.
pub(crate) fn run(code: &[u8], bits: u32, state: &State) -> Outcome {
    let _exclusive = acquire();
    // SAFETY: `acquire` has mapped these areas, and nobody else uses them while we hold its lock.
    unsafe {
        ptr::write_bytes(CODE as *mut u8, INT3, CODE_BYTES);
        ptr::copy_nonoverlapping(code.as_ptr(), CODE as *mut u8, code.len());
        ptr::copy_nonoverlapping(state.memory.as_ptr(), DATA as *mut u8, DATA_BYTES);
    }
    let mut exchange = Exchange {
        entered: false,
        selector: if bits == 64 { CODE64 } else { CODE32 },
        host: [0; GREGS],
        host_fp: [0; FX_BYTES],
        state: state.clone(),
        trap: Trap { vector: 0, error: 0, address: 0 },
    };
    // SAFETY: the handler finds the exchange through EXCHANGE while it runs, on this thread only. All
    // registers are as before when it has returned the second time, so to the compiler nothing but memory has
    // changed.
    unsafe {
        EXCHANGE = &raw mut exchange;
        core::arch::asm!("int3");
        EXCHANGE = ptr::null_mut();
    }
    let Exchange { mut state, trap, .. } = exchange;
    // SAFETY: as above.
    unsafe { ptr::copy_nonoverlapping(DATA as *const u8, state.memory.as_mut_ptr(), DATA_BYTES) };
    if trap.vector == BREAKPOINT {
        state.rip -= 1;
        return Outcome { state, trap: None };
    }
    Outcome { state, trap: Some(trap) }
}

/// What `run` and the signal handler share.
struct Exchange {
    /// The state has been swapped in.
    entered: bool,
    /// For CS.
    selector: i64,
    host: [i64; GREGS],
    host_fp: [u8; FX_BYTES],
    state: State,
    trap: Trap,
}

static mut EXCHANGE: *mut Exchange = ptr::null_mut();

/// Takes the one native CPU for this thread.
fn acquire() -> MutexGuard<'static, bool> {
    static READY: Mutex<bool> = Mutex::new(false);
    let mut ready = READY.lock().unwrap_or_else(|poison| poison.into_inner());
    if !*ready {
        map(CODE, CODE_BYTES, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        map(DATA, DATA_BYTES, libc::PROT_READ | libc::PROT_WRITE);
        map(READ_ONLY, READ_ONLY_BYTES, libc::PROT_READ);
        // Page faults tell a page that is not there yet from one that cannot be written.
        // SAFETY: it has just been mapped.
        unsafe { ptr::read_volatile(READ_ONLY as *const u8) };
        for signal in [libc::SIGTRAP, libc::SIGFPE, libc::SIGSEGV, libc::SIGILL, libc::SIGBUS] {
            // SAFETY: `on_trap` only touches the exchange and its arguments.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_trap as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
            }
        }
        *ready = true;
    }
    use_signal_stack();
    // SAFETY: 64-bit code does not use these segment registers; 32-bit code wants flat ones.
    unsafe { core::arch::asm!("mov ds, {0:e}", "mov es, {0:e}", in(reg) DATA32) };
    ready
}

/// Maps memory at exactly `address`.
fn map(address: u64, bytes: usize, protection: i32) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the kernel refuses if anything is mapped there.
    let mapped = unsafe { libc::mmap(address as *mut _, bytes, protection, flags, -1, 0) };
    assert_eq!(mapped as u64, address, "cannot map memory at {address:#x}");
}

/// Gives this thread a signal stack that is large enough, for RSP is the instruction's when it traps.
fn use_signal_stack() {
    thread_local! {
        static STACK: *mut libc::c_void = {
            let stack = Box::leak(vec![0u8; SIGNAL_STACK].into_boxed_slice()).as_mut_ptr().cast();
            let description = libc::stack_t { ss_sp: stack, ss_flags: 0, ss_size: SIGNAL_STACK };
            // SAFETY: the memory is never freed.
            assert_eq!(unsafe { libc::sigaltstack(&description, ptr::null_mut()) }, 0);
            stack
        };
    }
    STACK.with(|_| ());
}

extern "C" fn on_trap(signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid frame; EXCHANGE is null or what `run` has set.
    unsafe {
        let context = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        let Some(exchange) = EXCHANGE.as_mut() else {
            // Not ours: crash the usual way when the instruction is executed again.
            libc::signal(signal, libc::SIG_DFL);
            return;
        };
        let gregs = &mut context.gregs;
        let fp = context.fpregs.cast::<u8>();
        if !exchange.entered {
            exchange.entered = true;
            exchange.host.copy_from_slice(gregs);
            ptr::copy_nonoverlapping(fp, exchange.host_fp.as_mut_ptr(), FX_BYTES);
            for (value, register) in exchange.state.registers.iter().zip(REGISTERS) {
                gregs[register as usize] = *value as i64;
            }
            gregs[libc::REG_RIP as usize] = exchange.state.rip as i64;
            let segments = &mut gregs[libc::REG_CSGSFS as usize];
            *segments = *segments & !0xffff | exchange.selector;
            let flags = &mut gregs[libc::REG_EFL as usize];
            *flags = *flags & !FLAGS | exchange.state.flags as i64 & FLAGS;
            load_fp(fp, &exchange.state.fx.0);
        } else {
            for (value, register) in exchange.state.registers.iter_mut().zip(REGISTERS) {
                *value = gregs[register as usize] as u64;
            }
            exchange.state.rip = gregs[libc::REG_RIP as usize] as u64;
            exchange.state.flags = (gregs[libc::REG_EFL as usize] & FLAGS) as u64;
            ptr::copy_nonoverlapping(fp, exchange.state.fx.0.as_mut_ptr(), FX_BYTES);
            let vector = gregs[libc::REG_TRAPNO as usize] as u8;
            exchange.trap = Trap {
                vector,
                error: gregs[libc::REG_ERR as usize] as u64,
                address: if vector == PAGE_FAULT { gregs[libc::REG_CR2 as usize] as u64 } else { 0 },
            };
            gregs.copy_from_slice(&exchange.host);
            load_fp(fp, &exchange.host_fp);
        }
    }
}

/// Puts an image into a signal frame.
///
/// # Safety
/// `frame` is the floating-point part of a signal frame.
unsafe fn load_fp(frame: *mut u8, image: &[u8; FX_BYTES]) {
    // SAFETY: the caller's promise; an extended frame continues behind the 512 bytes, as its magic says.
    unsafe {
        ptr::copy_nonoverlapping(image.as_ptr(), frame, FX_BYTES);
        if frame.add(464).cast::<u32>().read_unaligned() == EXTENDED_FRAME {
            let components = frame.add(512).cast::<u64>();
            components.write_unaligned(components.read_unaligned() | X87_AND_SSE);
        }
    }
}

const INT3: u8 = 0xcc;
/// Linux's selectors of user segments.
const CODE64: i64 = 0x33;
const CODE32: i64 = 0x23;
const DATA32: u32 = 0x2b;
/// Vector of `INT3`.
const BREAKPOINT: u8 = 3;
const SIGNAL_STACK: usize = 64 << 10;
const GREGS: usize = 23;
/// The flags that are swapped in and out: the arithmetic ones and DF.
const FLAGS: i64 = 0xcd5;
/// FP_XSTATE_MAGIC1 of the kernel's signal frames.
const EXTENDED_FRAME: u32 = 0x4650_5853;
/// Bits of XSTATE_BV.
const X87_AND_SSE: u64 = 3;
/// Where general-purpose registers lie in a signal frame, by encoding.
const REGISTERS: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];
