//! The page that a CPU shares with KVM: why it came back, and what it is to be told.

use std::sync::atomic::{AtomicU8, Ordering};

use kvm_bindings::{
    KVM_EXIT_DEBUG, KVM_EXIT_FAIL_ENTRY, KVM_EXIT_INTERNAL_ERROR, KVM_EXIT_INTR, KVM_EXIT_IO, KVM_EXIT_IO_IN,
    KVM_EXIT_MMIO, KVM_EXIT_SHUTDOWN, KVM_EXIT_X86_RDMSR, KVM_EXIT_X86_WRMSR, KVM_INTERNAL_ERROR_EMULATION,
    kvm_run,
};
use kvm_ioctls::VcpuFd;

/// A CPU's shared page. KVM writes to it while the CPU runs, so nobody else may look at anything but the
/// immediate-exit flag then; whoever calls the other methods has the CPU's file descriptor locked or is its
/// thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPage(*mut kvm_run);

// SAFETY: the page is shared memory with rules of its own (above), not tied to a thread.
unsafe impl Send for RunPage {}
// SAFETY: as above.
unsafe impl Sync for RunPage {}

/// Why a CPU came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// `IN`, `INS`: `count` times `size` bytes from `port`.
    PortRead { port: u16, size: u8, count: u32 },
    /// `OUT`, `OUTS`.
    PortWrite { port: u16, size: u8, count: u32 },
    /// A read of memory that is not RAM.
    MemoryRead { address: u64, length: usize },
    /// A write to memory that is not RAM.
    MemoryWrite { address: u64, length: usize, data: [u8; 8] },
    /// `RDMSR` of a register that is not KVM's.
    MsrRead { index: u32 },
    /// `WRMSR` of a register that is not KVM's.
    MsrWrite { index: u32, value: u64 },
    /// Somebody wanted it back.
    Interrupted,
    /// Triple fault.
    Shutdown,
    /// KVM has met an instruction that its emulator lacks.
    Emulation,
    /// A breakpoint of `system_calls`.
    Breakpoint,
    /// KVM gave up for another reason of its own.
    Internal { suberror: u32 },
    /// The host's CPU refused the guest's state.
    FailedEntry { reason: u64 },
    /// What this machine cannot cause.
    Unexpected { reason: u32 },
}

impl RunPage {
    /// The page of `vcpu`, valid for as long as that lives.
    pub(super) fn of(vcpu: &mut VcpuFd) -> RunPage {
        RunPage(vcpu.get_kvm_run())
    }

    /// Makes the CPU come back at once, or lets it run. May be called at any time.
    pub(super) fn set_immediate_exit(self, exit: bool) {
        // SAFETY: the page outlives the CPU's thread and everybody who can reach this (`Vcpu` owns both); the
        // flag is one byte that KVM only reads, so an atomic store is all the order that is needed.
        let flag = unsafe { AtomicU8::from_ptr(&raw mut (*self.0).immediate_exit) };
        flag.store(exit.into(), Ordering::SeqCst);
    }

    /// Why the CPU came back.
    pub(super) fn exit(self) -> Exit {
        // SAFETY: the CPU does not run, so KVM does not write; the exit reason tells which union field is valid.
        unsafe {
            let page = &*self.0;
            let detail = &page.__bindgen_anon_1;
            match page.exit_reason {
                KVM_EXIT_IO => {
                    let (port, size, count) = (detail.io.port, detail.io.size, detail.io.count);
                    match u32::from(detail.io.direction) {
                        KVM_EXIT_IO_IN => Exit::PortRead { port, size, count },
                        _ => Exit::PortWrite { port, size, count },
                    }
                }
                KVM_EXIT_MMIO => {
                    let (address, length) = (detail.mmio.phys_addr, detail.mmio.len as usize);
                    match detail.mmio.is_write {
                        0 => Exit::MemoryRead { address, length },
                        _ => Exit::MemoryWrite { address, length, data: detail.mmio.data },
                    }
                }
                KVM_EXIT_X86_RDMSR => Exit::MsrRead { index: detail.msr.index },
                KVM_EXIT_X86_WRMSR => Exit::MsrWrite { index: detail.msr.index, value: detail.msr.data },
                KVM_EXIT_INTR => Exit::Interrupted,
                KVM_EXIT_SHUTDOWN => Exit::Shutdown,
                KVM_EXIT_DEBUG => Exit::Breakpoint,
                KVM_EXIT_INTERNAL_ERROR => match detail.internal.suberror {
                    KVM_INTERNAL_ERROR_EMULATION => Exit::Emulation,
                    suberror => Exit::Internal { suberror },
                },
                KVM_EXIT_FAIL_ENTRY => {
                    Exit::FailedEntry { reason: detail.fail_entry.hardware_entry_failure_reason }
                }
                reason => Exit::Unexpected { reason },
            }
        }
    }

    /// The bytes of the port access that the CPU came back with, to be read or filled: `count * size` of them.
    pub(super) fn port_data(&mut self) -> &mut [u8] {
        // SAFETY: only called after `Exit::PortRead` or `Exit::PortWrite`. KVM places the data inside the shared
        // mapping, behind the structure; the borrow ends before the CPU runs again.
        unsafe {
            let io = (*self.0).__bindgen_anon_1.io;
            let start = self.0.cast::<u8>().add(io.data_offset as usize);
            std::slice::from_raw_parts_mut(start, io.count as usize * usize::from(io.size))
        }
    }

    /// Answers [`Exit::MemoryRead`].
    pub(super) fn answer_memory(&mut self, data: &[u8]) {
        // SAFETY: the CPU does not run, and the field is the one of its exit.
        let place = unsafe { &mut (*self.0).__bindgen_anon_1.mmio.data };
        place[..data.len()].copy_from_slice(data);
    }

    /// Answers [`Exit::MsrRead`] or [`Exit::MsrWrite`]; `None` is a general-protection fault.
    pub(super) fn answer_msr(&mut self, value: Option<u64>) {
        // SAFETY: as for `answer_memory`.
        let msr = unsafe { &mut (*self.0).__bindgen_anon_1.msr };
        msr.error = u8::from(value.is_none());
        msr.data = value.unwrap_or(0);
    }
}
