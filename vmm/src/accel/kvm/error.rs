//! What can be wrong with a host's KVM, said so that the user knows what to do.

use std::path::PathBuf;

use thiserror::Error;

/// Why there is no virtual machine.
#[derive(Debug, Error)]
pub enum KvmError {
    /// No device node.
    #[error("there is no {}: {ADVICE_MODULE}", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The device node is somebody else's.
    #[error(
        "{} cannot be opened by this user: join the group that owns it (often `kvm`), or run with --accel soft",
        path.display()
    )]
    Unreadable {
        /// The device node.
        path: PathBuf,
    },
    /// The device node is there, but nothing behind it.
    #[error("{} cannot be opened ({source}): {ADVICE_MODULE}", path.display())]
    Open {
        /// The device node.
        path: PathBuf,
        /// What the host said.
        source: kvm_ioctls::Error,
    },
    /// Not KVM, or not the KVM of the last fifteen years.
    #[error("{} answers with interface version {version} instead of {API_VERSION}: it is not KVM", path.display())]
    Version {
        /// The device node.
        path: PathBuf,
        /// Its answer.
        version: i32,
    },
    /// Capabilities that the backend cannot do without.
    #[error("this host's KVM lacks {lacking}: a newer kernel may have it, or run with --accel soft")]
    Lacking {
        /// Their names as the kernel has them, and what each is for.
        lacking: String,
    },
    /// More CPUs than KVM makes.
    #[error("this host's KVM makes machines with at most {most} CPUs, and {cpus} were asked for: use --cpus")]
    TooManyCpus {
        /// What was asked for.
        cpus: usize,
        /// What is possible.
        most: usize,
    },
    /// A step of the set-up failed.
    #[error("KVM refuses to {step} ({source})")]
    Refused {
        /// The step, as a verb with its object.
        step: &'static str,
        /// What the host said.
        source: kvm_ioctls::Error,
    },
    /// The host has no more file descriptors, threads or the like.
    #[error("the host cannot {step} ({source})")]
    Host {
        /// What for, as a verb with its object.
        step: &'static str,
        /// What it said.
        source: std::io::Error,
    },
}

impl KvmError {
    /// For `map_err`: KVM refused to do `step`.
    pub(super) fn refused(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> KvmError {
        move |source| KvmError::Refused { step, source }
    }

    /// For `map_err`: the host could not do `step`.
    pub(super) fn host(step: &'static str) -> impl Fn(std::io::Error) -> KvmError {
        move |source| KvmError::Host { step, source }
    }
}

/// The only version of the interface there has been since Linux 2.6.22.
pub(super) const API_VERSION: i32 = 12;
const ADVICE_MODULE: &str =
    "load kvm_intel or kvm_amd (virtualisation may be off in the firmware), or run with --accel soft";
