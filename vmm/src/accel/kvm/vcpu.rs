//! A CPU's thread: into the guest, out again, ask the machine, on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvm_ioctls::VcpuFd;

use super::assist::{Assist, Outcome};
use super::counts::Counts;
use super::requests::{Access, Client, Ended, Gone};
use super::run_page::{Exit, RunPage};
use super::system_calls::{SystemCall, SystemCalls};
use super::world::World;
use super::{msr, state};

/// What all CPU threads and the machine's thread have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) world: World,
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) counts: Counts,
    /// Absent on hosts that lack what it needs.
    pub(super) assist: Option<Assist>,
    /// The port of the hypervisor's own interface, if the machine has one.
    pub(super) call_port: Option<u16>,
}

/// One CPU. Its thread has the file descriptor locked while it is in the guest.
#[derive(Debug)]
pub(super) struct Vcpu {
    fd: Mutex<VcpuFd>,
    page: RunPage,
    /// Where KVM leaves system calls to us.
    system_calls: Option<SystemCalls>,
}

impl Vcpu {
    pub(super) fn new(mut fd: VcpuFd, system_calls: Option<SystemCalls>) -> Vcpu {
        let page = RunPage::of(&mut fd);
        Vcpu { fd: Mutex::new(fd), page, system_calls }
    }

    pub(super) fn system_calls(&self) -> Option<&SystemCalls> {
        self.system_calls.as_ref()
    }

    pub(super) fn page(&self) -> RunPage {
        self.page
    }

    pub(super) fn fd(&self) -> MutexGuard<'_, VcpuFd> {
        self.fd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs CPU `client.cpu` until it ends or the gate is shut.
pub(super) fn run(shared: &Shared, client: &Client) {
    shared.world.sign_on(client.cpu);
    // However this ends, nobody may wait for the thread to come back.
    let _sign_off = SignOff { shared, cpu: client.cpu };
    if let Ok(Some(ended)) = turns(shared, client) {
        client.end(ended);
    }
}

struct SignOff<'a> {
    shared: &'a Shared,
    cpu: usize,
}

impl Drop for SignOff<'_> {
    fn drop(&mut self) {
        self.shared.world.sign_off(self.cpu);
    }
}

fn turns(shared: &Shared, client: &Client) -> Result<Option<Ended>, Gone> {
    let vcpu = &shared.vcpus[client.cpu];
    while shared.world.enter(client.cpu) {
        let result = vcpu.fd().run().map(drop);
        shared.world.leave(client.cpu);
        let exit = match result {
            Ok(()) => vcpu.page.exit(),
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => Exit::Interrupted,
            Err(error) => return Ok(Some(failed(vcpu, client.cpu, &format!("KVM_RUN failed ({error})")))),
        };
        shared.counts.exit(&exit);
        if let Some(ended) = handle(shared, client, exit)? {
            return Ok(Some(ended));
        }
        if let Some(calls) = vcpu.system_calls()
            && let Err(error) = calls.place_breakpoints(&vcpu.fd())
        {
            let what = format!("KVM does not take a breakpoint ({error})");
            return Ok(Some(failed(vcpu, client.cpu, &what)));
        }
    }
    Ok(None)
}

fn handle(shared: &Shared, client: &Client, exit: Exit) -> Result<Option<Ended>, Gone> {
    let vcpu = &shared.vcpus[client.cpu];
    let mut page = vcpu.page;
    match exit {
        Exit::PortRead { port, size, .. } => {
            let length = usize::from(size);
            for element in page.port_data().chunks_exact_mut(length.max(1)) {
                let value = client.ask(Access::ReadPort { port, length })?.unwrap_or(u64::MAX);
                element.copy_from_slice(&value.to_le_bytes()[..length]);
            }
        }
        Exit::PortWrite { port, .. } if shared.call_port == Some(port) => {
            if let Err(error) = call(vcpu, client, port)? {
                let what = format!("KVM does not hand over the registers of a call ({error})");
                return Ok(Some(failed(vcpu, client.cpu, &what)));
            }
        }
        Exit::PortWrite { port, size, .. } => {
            let length = usize::from(size);
            for element in page.port_data().chunks_exact(length.max(1)) {
                client.ask(Access::WritePort { port, length, value: value(element) })?;
            }
        }
        Exit::MemoryRead { address, length } => {
            let value = client.ask(Access::ReadMemory { address, length })?.unwrap_or(u64::MAX);
            page.answer_memory(&value.to_le_bytes()[..length]);
        }
        Exit::MemoryWrite { address, length, data } => {
            client.ask(Access::WriteMemory { address, length, value: value(&data[..length]) })?;
        }
        Exit::MsrRead { index } | Exit::MsrWrite { index, .. } if msr::reads_as_zero(index) => {
            page.answer_msr(Some(0));
        }
        Exit::MsrRead { index } => {
            let answer = match vcpu.system_calls() {
                Some(calls) if index == msr::LSTAR => Some(calls.entry()),
                _ => client.ask(Access::ReadMsr { index })?,
            };
            page.answer_msr(answer);
        }
        Exit::MsrWrite { index, value } => {
            let answer = match vcpu.system_calls() {
                Some(calls) if index == msr::LSTAR => calls.set_entry(value).then_some(0),
                _ => client.ask(Access::WriteMsr { index, value })?,
            };
            page.answer_msr(answer);
        }
        Exit::Interrupted => {}
        Exit::Shutdown => return Ok(Some(Ended::TripleFault)),
        Exit::Emulation => return Ok(emulate(shared, client, None)),
        Exit::Breakpoint => return Ok(at_handler(shared, client)),
        Exit::Internal { suberror } => {
            return Ok(Some(failed(vcpu, client.cpu, &format!("KVM met an internal error ({suberror})"))));
        }
        Exit::FailedEntry { reason } => {
            let what = format!("the host's CPU refused the guest's state (reason {reason:#x})");
            return Ok(Some(failed(vcpu, client.cpu, &what)));
        }
        Exit::Unexpected { reason } => {
            let what = format!("KVM came back with exit reason {reason}, which this machine cannot cause");
            return Ok(Some(failed(vcpu, client.cpu, &what)));
        }
    }
    Ok(None)
}

/// Makes a call of the hypervisor's interface.
fn call(vcpu: &Vcpu, client: &Client, port: u16) -> Result<Result<(), kvm_ioctls::Error>, Gone> {
    let mut general = match vcpu.fd().get_regs() {
        Ok(general) => general,
        Err(error) => return Ok(Err(error)),
    };
    let Some(registers) = client.call(port, state::registers_of(&general))? else { return Ok(Ok(())) };
    state::set_registers(&mut general, &registers);
    Ok(vcpu.fd().set_regs(&general))
}

/// A CPU is in front of an exception's handler: goes back to the system call behind it, if it is one. Otherwise the
/// handler's first instruction is executed like one that KVM cannot emulate, for KVM would come back with it at once.
fn at_handler(shared: &Shared, client: &Client) -> Option<Ended> {
    let vcpu = &shared.vcpus[client.cpu];
    let state = {
        let fd = vcpu.fd();
        fd.get_regs().and_then(|general| Ok((general, fd.get_sregs()?)))
    };
    let (general, system) = match state {
        Ok(state) => state,
        Err(error) => {
            let what = format!("KVM does not show the registers at a breakpoint ({error})");
            return Some(failed(vcpu, client.cpu, &what));
        }
    };
    let call = vcpu.system_calls().and_then(|calls| calls.behind_exception(&general, &system));
    emulate(shared, client, call)
}

/// Lets the software CPU execute what KVM cannot: the next instruction, or `call`.
fn emulate(shared: &Shared, client: &Client, call: Option<SystemCall>) -> Option<Ended> {
    let vcpu = &shared.vcpus[client.cpu];
    let Some(assist) = &shared.assist else {
        let what = "KVM cannot emulate an instruction, and without KVM_CAP_XSAVE nobody can help it";
        return Some(failed(vcpu, client.cpu, what));
    };
    match shared.world.alone(client.cpu, || assist.step(vcpu, client, call))? {
        Ok(Outcome::Done) => None,
        Ok(Outcome::TripleFault) => Some(Ended::TripleFault),
        Err(error) => Some(failed(
            vcpu,
            client.cpu,
            &format!("the emulation assist could not move the state ({error})"),
        )),
    }
}

/// Says what went wrong and where.
fn failed(vcpu: &Vcpu, cpu: usize, what: &str) -> Ended {
    let place = match state::report(&vcpu.fd()) {
        Ok(state) => format!(
            "at {:#x} (CR0 {:#x}, CR3 {:#x}, CR4 {:#x}, EFER {:#x})",
            state.cs_base.wrapping_add(state.rip),
            state.cr0,
            state.cr3,
            state.cr4,
            state.efer
        ),
        Err(_) => "at an unknown place".into(),
    };
    Ended::Failed(format!(
        "{what} on CPU {cpu} {place}: run with --accel soft, and report this with the host's kernel version"
    ))
}

fn value(data: &[u8]) -> u64 {
    data.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
