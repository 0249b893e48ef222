//! SYSCALL and INT where KVM does not execute them for user code.
//!
//! There are KVMs without hardware virtualisation that let user code run on the host's CPU. At a SYSCALL such a KVM goes
//! to the address in LSTAR but leaves the CPU in user mode, and at an INT it raises an invalid-opcode exception. So it
//! is given another address for LSTAR, [`ENTRY`], which no kernel maps; what the guest has written there is kept here.
//! Then SYSCALL ends in a page fault, which KVM delivers as it should. Breakpoints at the first instructions of the
//! handlers of both exceptions bring the CPU out before the guest sees anything of them; it is taken back to the
//! instruction, and the emulation assist executes that.
//!
//! User code that itself jumps to [`ENTRY`] makes a system call there instead of a fault; and while KVM keeps these
//! breakpoints, those that the guest sets are not noticed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use kvm_bindings::{
    KVM_GUESTDBG_ENABLE, KVM_GUESTDBG_USE_HW_BP, kvm_guest_debug, kvm_guest_debug_arch, kvm_regs, kvm_sregs,
};
use kvm_ioctls::VcpuFd;
use nicvisor_memory::GuestRam;

use super::{msr, state};

/// What is kept for one CPU.
#[derive(Debug)]
pub(super) struct SystemCalls {
    ram: GuestRam,
    /// LSTAR as the guest knows it; zero before it has written it.
    entry: AtomicU64,
    /// Where the breakpoints are.
    handlers: Mutex<Handlers>,
}

/// The addresses of handlers; zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Handlers {
    invalid_opcode: u64,
    page_fault: u64,
}

/// A CPU at a SYSCALL or INT instruction in user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SystemCall {
    /// The instruction's address.
    pub(super) rip: u64,
    /// User code's segment.
    pub(super) cs: u16,
    pub(super) rflags: u64,
    pub(super) rsp: u64,
    /// User code's stack segment.
    pub(super) ss: u16,
}

impl SystemCalls {
    /// Gives `vcpu` the other entry.
    pub(super) fn new(vcpu: &VcpuFd, ram: &GuestRam) -> Result<SystemCalls, kvm_ioctls::Error> {
        msr::write(vcpu, &[(msr::LSTAR, ENTRY)])?;
        Ok(SystemCalls { ram: ram.clone(), entry: AtomicU64::new(0), handlers: Mutex::default() })
    }

    /// LSTAR, for the guest.
    pub(super) fn entry(&self) -> u64 {
        self.entry.load(Ordering::Relaxed)
    }

    /// LSTAR as the guest has written it. Returns whether it may.
    pub(super) fn set_entry(&self, address: u64) -> bool {
        let canonical = (address as i64) << 16 >> 16 == address as i64;
        if canonical {
            self.entry.store(address, Ordering::Relaxed);
        }
        canonical
    }

    /// Sees to it that the breakpoints are where the exceptions are handled now. A guest that moves its handlers is
    /// noticed when its CPU next comes out.
    pub(super) fn place_breakpoints(&self, vcpu: &VcpuFd) -> Result<(), kvm_ioctls::Error> {
        if self.entry() == 0 {
            return Ok(());
        }
        let wanted = self.find_handlers(&vcpu.get_sregs()?);
        let mut placed = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        if *placed == wanted {
            return Ok(());
        }
        let mut debugreg = [0; 8];
        for (index, address) in [wanted.invalid_opcode, wanted.page_fault].into_iter().enumerate() {
            debugreg[index] = address;
            debugreg[7] |= if address == 0 { 0 } else { EXECUTION_AT_0 << (2 * index) };
        }
        vcpu.set_guest_debug(&kvm_guest_debug {
            control: KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP,
            arch: kvm_guest_debug_arch { debugreg },
            ..kvm_guest_debug::default()
        })?;
        *placed = wanted;
        Ok(())
    }

    fn find_handlers(&self, system: &kvm_sregs) -> Handlers {
        let find = |vector| self.find_handler(system, vector).unwrap_or(0);
        Handlers { invalid_opcode: find(INVALID_OPCODE), page_fault: find(PAGE_FAULT) }
    }

    /// Where the gate of `vector` leads, if there is one.
    fn find_handler(&self, system: &kvm_sregs, vector: u64) -> Option<u64> {
        let gate = system.idt.base + 16 * vector;
        if u64::from(system.idt.limit) < 16 * vector + 15 {
            return None;
        }
        let view = state::memory_view(system);
        let (low, high) = (view.read_u64(&self.ram, gate)?, view.read_u64(&self.ram, gate + 8)?);
        (low & PRESENT != 0).then_some(low & 0xffff | low >> 32 & 0xffff_0000 | high << 32)
    }

    /// The instruction to which a CPU in front of one of the handlers has to go back; nothing when the exception is
    /// any other.
    pub(super) fn behind_exception(&self, general: &kvm_regs, system: &kvm_sregs) -> Option<SystemCall> {
        let handlers = *self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        if general.rip == handlers.page_fault {
            self.behind_page_fault(general, system)
        } else {
            self.behind_invalid_opcode(general, system)
        }
    }

    fn behind_page_fault(&self, general: &kvm_regs, system: &kvm_sregs) -> Option<SystemCall> {
        let error = state::memory_view(system).read_u64(&self.ram, general.rsp)?;
        let interrupted = self.interrupted(system, general.rsp + 8)?;
        let fetched_by_user = error & FETCH != 0 && error & USER != 0;
        // SYSCALL has left its successor's address in RCX and the flags in R11.
        let before = SystemCall { rip: general.rcx.wrapping_sub(LENGTH), rflags: general.r11, ..interrupted };
        (fetched_by_user && interrupted.rip == ENTRY && system.cr2 == ENTRY).then_some(before)
    }

    fn behind_invalid_opcode(&self, general: &kvm_regs, system: &kvm_sregs) -> Option<SystemCall> {
        let interrupted = self.interrupted(system, general.rsp)?;
        let mut opcode = [0];
        state::memory_view(system).read(&self.ram, interrupted.rip, &mut opcode)?;
        (interrupted.cs & 3 == 3 && opcode == [INT]).then_some(interrupted)
    }

    /// What an exception has pushed.
    fn interrupted(&self, system: &kvm_sregs, stack: u64) -> Option<SystemCall> {
        let view = state::memory_view(system);
        let pushed = |word: u64| view.read_u64(&self.ram, stack + 8 * word);
        Some(SystemCall {
            rip: pushed(0)?,
            cs: pushed(1)? as u16,
            rflags: pushed(2)?,
            rsp: pushed(3)?,
            ss: pushed(4)? as u16,
        })
    }
}

/// The last page of the lower half of the canonical addresses. Kernels leave it unmapped, because a SYSCALL at its end
/// would have a return address that is not canonical.
const ENTRY: u64 = 0x7fff_ffff_f000;
/// Of the SYSCALL instruction, in bytes.
const LENGTH: u64 = 2;
/// The first byte of INT.
const INT: u8 = 0xcd;
/// Vectors.
const INVALID_OPCODE: u64 = 6;
const PAGE_FAULT: u64 = 14;
/// A gate's present bit.
const PRESENT: u64 = 1 << 47;
/// Bits of a page fault's error code (SDM vol. 3, 4.7).
const USER: u64 = 1 << 2;
const FETCH: u64 = 1 << 4;
/// DR7: breakpoint 0 on, for execution.
const EXECUTION_AT_0: u64 = 0x402;

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, GuestAddress};

    use super::*;

    const IDT: u64 = 0x1000;
    const STACK: u64 = 0x2000;
    const HANDLERS: Handlers = Handlers { invalid_opcode: 0x3000, page_fault: 0x3100 };

    fn without_vcpu() -> SystemCalls {
        let ram = nicvisor_memory::allocate(1 << 20).unwrap();
        SystemCalls { ram, entry: AtomicU64::new(0), handlers: Mutex::new(HANDLERS) }
    }

    /// Paging is off: addresses are physical.
    fn system() -> kvm_sregs {
        let mut system = kvm_sregs { cr2: ENTRY, ..kvm_sregs::default() };
        (system.idt.base, system.idt.limit) = (IDT, 0xfff);
        system
    }

    /// What is behind the exception with this handler and these words on the stack.
    fn behind(calls: &SystemCalls, handler: u64, words: &[u64]) -> Option<SystemCall> {
        for (place, word) in (STACK..).step_by(8).zip(words) {
            calls.ram.write_obj(*word, GuestAddress(place)).unwrap();
        }
        let general =
            kvm_regs { rip: handler, rsp: STACK, rcx: 0x40_0002, r11: 0x246, ..kvm_regs::default() };
        calls.behind_exception(&general, &system())
    }

    #[test]
    fn a_fetch_from_the_entry_by_user_code_is_a_system_call_and_nothing_else_is() {
        let calls = without_vcpu();
        let fault =
            |error, rip| behind(&calls, HANDLERS.page_fault, &[error, rip, 0x33, 0x1_0002, 0x7000, 0x2b]);
        let call = SystemCall { rip: 0x40_0000, cs: 0x33, rflags: 0x246, rsp: 0x7000, ss: 0x2b };
        assert_eq!(fault(0x14, ENTRY), Some(call));
        assert_eq!(fault(0x04, ENTRY), None);
        assert_eq!(fault(0x10, ENTRY), None);
        assert_eq!(fault(0x14, 0x40_0000), None);
    }

    #[test]
    fn an_invalid_opcode_is_a_system_call_where_user_code_has_an_int() {
        let calls = without_vcpu();
        calls.ram.write_slice(&[0xcd, 0x80, 0x0f, 0x0b], GuestAddress(0x4000)).unwrap();
        let invalid = |rip, cs| behind(&calls, HANDLERS.invalid_opcode, &[rip, cs, 0x246, 0x7000, 0x2b]);
        let call = SystemCall { rip: 0x4000, cs: 0x33, rflags: 0x246, rsp: 0x7000, ss: 0x2b };
        assert_eq!(invalid(0x4000, 0x33), Some(call));
        assert_eq!(invalid(0x4000, 0x10), None);
        assert_eq!(invalid(0x4002, 0x33), None);
    }

    #[test]
    fn handlers_are_found_by_their_gates() {
        let calls = without_vcpu();
        assert_eq!(calls.find_handlers(&system()), Handlers::default());
        let gate = GuestAddress(IDT + 16 * PAGE_FAULT);
        calls.ram.write_obj([0x8123_8e00_0010_4567_u64, 0xffff_ffff], gate).unwrap();
        let found = Handlers { invalid_opcode: 0, page_fault: 0xffff_ffff_8123_4567 };
        assert_eq!(calls.find_handlers(&system()), found);
        let mut short = system();
        short.idt.limit = 16 * 14;
        assert_eq!(calls.find_handlers(&short), Handlers::default());
    }

    #[test]
    fn only_canonical_entries_are_taken() {
        let calls = without_vcpu();
        assert!(calls.set_entry(0xffff_ffff_8100_0000));
        assert!(!calls.set_entry(1 << 47));
        assert_eq!(calls.entry(), 0xffff_ffff_8100_0000);
    }
}
