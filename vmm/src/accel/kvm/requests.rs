//! What CPU threads ask of the thread that owns the machine, and how they get their answer.
//!
//! Only the thread that calls [`crate::accel::Accelerator::run`] touches the machine, so the machine needs no
//! lock: a CPU that leaves the guest for a device sends a [`Request`], wakes that thread, and waits.

use std::sync::mpsc::{Receiver, Sender};

use nicvisor_core::GeneralRegisters;
use vmm_sys_util::eventfd::EventFd;

/// One message from a CPU's thread.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) cpu: usize,
    pub(super) message: Message,
}

/// What it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// An access to the machine: wants an answer.
    Access(Access),
    /// A write to the port of the hypervisor's interface: wants the registers as the call leaves them.
    Call { port: u16, registers: GeneralRegisters },
    /// The CPU does not run any more.
    Ended(Ended),
}

/// An access that is the machine's to answer. Values are little-endian in the low bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadMemory { address: u64, length: usize },
    WriteMemory { address: u64, length: usize, value: u64 },
    ReadPort { port: u16, length: usize },
    WritePort { port: u16, length: usize, value: u64 },
    ReadMsr { index: u32 },
    WriteMsr { index: u32, value: u64 },
}

/// Why a CPU does not run any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A fault that could not be delivered.
    TripleFault,
    /// KVM, or the assist, gave up; the text says where and what to do.
    Failed(String),
}

/// The machine's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The value read; anything for a write.
    Value(u64),
    /// A general-protection fault; or that a call is none.
    Fault,
    /// What a call has left in the registers.
    Call(GeneralRegisters),
}

impl Answer {
    /// The value, if that is what it is.
    pub(super) fn value(self) -> Option<u64> {
        match self {
            Answer::Value(value) => Some(value),
            Answer::Fault | Answer::Call(_) => None,
        }
    }
}

/// A CPU thread's end of the line.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) cpu: usize,
    pub(super) requests: Sender<Request>,
    pub(super) wake: EventFd,
    pub(super) answers: Receiver<Answer>,
}

/// Nobody answers any more: the machine is being taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

impl Client {
    /// Asks, and waits for the answer.
    pub(super) fn ask(&self, access: Access) -> Result<Option<u64>, Gone> {
        self.send(Message::Access(access))?;
        self.answers.recv().map(Answer::value).map_err(|_| Gone)
    }

    /// Makes a call of the hypervisor's interface; returns the registers afterwards, if it was one.
    pub(super) fn call(
        &self,
        port: u16,
        registers: GeneralRegisters,
    ) -> Result<Option<GeneralRegisters>, Gone> {
        self.send(Message::Call { port, registers })?;
        match self.answers.recv().map_err(|_| Gone)? {
            Answer::Call(registers) => Ok(Some(registers)),
            Answer::Value(_) | Answer::Fault => Ok(None),
        }
    }

    /// Says that the CPU has ended.
    pub(super) fn end(&self, ended: Ended) {
        let _ = self.send(Message::Ended(ended));
    }

    fn send(&self, message: Message) -> Result<(), Gone> {
        self.requests.send(Request { cpu: self.cpu, message }).map_err(|_| Gone)?;
        // A full counter is as good a wake-up as one more.
        let _ = self.wake.write(1);
        Ok(())
    }
}
