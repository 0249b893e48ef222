//! What can go wrong before there is a result, and the exit status for it.

use std::path::PathBuf;

use guest_images::ImageError;
use miette::Diagnostic;
use thiserror::Error;

use crate::guest::{BootError, Ending};
use crate::machine::InputError;
use crate::machine::MachineError;
use crate::nic::NicError;

/// Why a command could not be carried out.
#[derive(Debug, Error, Diagnostic)]
pub enum Failure {
    /// A kernel or image could not be had.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The guest could not be started.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The guest ended too early.
    #[error(transparent)]
    Guest(#[from] Ending),
    /// A NIC that cannot be.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// Something that the machine cannot take, such as a fault that its device does not know.
    #[error(transparent)]
    #[diagnostic(help("`nicvisor faults KIND` lists what can be named"))]
    Input(#[from] InputError),
    /// A scenario file is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Scenario(#[from] scenarios::LoadError),
    /// What was asked for does not go together.
    #[error("{0}")]
    #[diagnostic(help("{1}"))]
    Usage(String, String),
    /// The guest cannot load a driver.
    #[error("the guest cannot load {module}: {reason}")]
    Module {
        /// The module.
        module: String,
        /// The guest's reason.
        reason: String,
    },
    /// The guest's interfaces cannot be given their names.
    #[error("the guest's interfaces cannot be named: {0}")]
    Naming(String),
    /// A driver did not bind.
    #[error("{interface} did not appear in the guest: its driver did not bind to the device")]
    #[diagnostic(help("run again with -v and look for the driver's messages"))]
    NoInterface {
        /// The interface.
        interface: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Failure {
    /// The program's exit status for it.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Image(ImageError::Interrupted { .. }) => INTERRUPTED,
            Failure::Image(error) if error.is_environment() => ENVIRONMENT,
            Failure::Boot(BootError::Machine(MachineError::Allocate { .. })) => ENVIRONMENT,
            Failure::Boot(BootError::Initramfs { .. } | BootError::Backend(_) | BootError::Outside(_)) => {
                ENVIRONMENT
            }
            Failure::Write { .. } => ENVIRONMENT,
            // A guest that powers off before it was told to do anything has not done it.
            Failure::Guest(Ending::PowerOff) => FAILED,
            Failure::Guest(ending) => ending.status(),
            Failure::Module { .. } | Failure::Naming(_) | Failure::NoInterface { .. } => FAILED,
            Failure::Image(_)
            | Failure::Boot(_)
            | Failure::Nic(_)
            | Failure::Input(_)
            | Failure::Scenario(_)
            | Failure::Usage(..) => USAGE,
        }
    }
}

/// A test or scenario failed, or a rule was broken.
pub(super) const FAILED: u8 = 1;
/// Wrong usage, or a bad input file.
pub(super) const USAGE: u8 = 2;
/// The environment is missing something.
pub(super) const ENVIRONMENT: u8 = 3;
/// Ctrl-C, as shells have it.
pub(super) const INTERRUPTED: u8 = 130;
