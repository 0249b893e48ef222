//! Why a guest does not run any more.

use std::fmt;

use agent_protocol::SessionError;
use thiserror::Error;

use crate::machine::CpuReport;

/// How a run ended.
#[derive(Debug, Error)]
pub enum Ending {
    /// The guest powered off.
    #[error("the guest powered off")]
    PowerOff,
    /// The guest restarted itself.
    #[error("the guest restarted itself")]
    Reset,
    /// The guest wrote to the debug-exit port.
    #[error("the guest ended with status {0}")]
    DebugExit(u32),
    /// Panic, triple fault, no progress.
    #[error("{0}")]
    Trouble(Box<Trouble>),
    /// The time that the user allows is over.
    #[error("the time allowed is over; the guest was at:\n{}", reports(.0))]
    TimedOut(Vec<CpuReport>),
    /// The user pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The agent cannot be talked to.
    #[error("{0}")]
    Session(SessionError),
}

impl Ending {
    /// The program's exit status for it.
    pub fn status(&self) -> u8 {
        match self {
            Ending::PowerOff => 0,
            Ending::DebugExit(status) => *status as u8,
            Ending::Reset | Ending::Session(_) => 1,
            Ending::TimedOut(_) => 124,
            Ending::Interrupted => 130,
            Ending::Trouble(_) => 255,
        }
    }
}

/// A guest that went down, with what is known about it.
#[derive(Debug)]
pub struct Trouble {
    /// What happened.
    pub what: String,
    /// Where each CPU was.
    pub cpus: Vec<CpuReport>,
    /// The end of the kernel's log.
    pub log: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.what)?;
        if !self.log.is_empty() {
            writeln!(out, "--- the end of the guest's log ---\n{}", self.log)?;
        }
        write!(out, "--- CPUs ---\n{}", reports(&self.cpus))
    }
}

fn reports(cpus: &[CpuReport]) -> String {
    cpus.iter().map(ToString::to_string).collect()
}
