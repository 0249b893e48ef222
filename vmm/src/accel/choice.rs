//! Which backend runs a guest, and why.

use super::kvm::{Host, Kvm, Probe, Quality, probe};
use super::soft::{Soft, SoftConfig};
use super::{Accelerator, BackendError, CpuModel};
use crate::machine::Machine;

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// What works best on this host.
    #[default]
    Auto,
    /// The host's CPUs, by way of KVM.
    Kvm,
    /// The software CPU.
    Soft,
}

/// What the user asks for, with the CPU that the guest is to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The backend.
    pub backend: Backend,
    /// The CPU.
    pub model: CpuModel,
}

/// A backend, ready to run its machine.
pub struct Chosen {
    /// The backend.
    pub accelerator: Box<dyn Accelerator>,
    /// Why this one, in a line.
    pub reason: String,
    /// What the user should know before a long run.
    pub warning: Option<String>,
    /// How many times slower than ordinary it runs kernels, which then need more patience with themselves.
    pub slowdown: u32,
    /// Features of the host's CPU that guests see but are not meant to use: see [`super::leaks`].
    pub leaks: Vec<u16>,
}

impl Choice {
    /// The software CPU.
    pub const SOFT: Choice = Choice { backend: Backend::Soft, model: CpuModel::Baseline };

    /// Makes the backend for `machine`, whose devices are all in place.
    ///
    /// # Errors
    /// When the host cannot run what was asked for.
    pub fn carry_out(self, machine: &mut Machine) -> Result<Chosen, BackendError> {
        match self.backend {
            Backend::Soft => self.soft(machine, "asked for".into()),
            Backend::Kvm => {
                let host = Host::open().map_err(|error| BackendError(error.to_string()))?;
                let probe = probe(&host, self.model);
                let warning = (probe.quality() != Quality::Good).then(|| self.warn(&probe));
                let chosen = self.kvm(machine, &host, &probe, "asked for".into())?;
                Ok(Chosen { warning, ..chosen })
            }
            Backend::Auto => self.best(machine),
        }
    }

    fn best(self, machine: &mut Machine) -> Result<Chosen, BackendError> {
        let host = match Host::open() {
            Ok(host) => host,
            Err(error) => return self.soft(machine, error.to_string()),
        };
        let probe = probe(&host, self.model);
        match probe.quality() {
            Quality::Good => self.kvm(machine, &host, &probe, probe.describe()),
            Quality::Poor | Quality::Unusable => self.soft(machine, probe.describe()),
        }
    }

    /// What to expect of a host whose KVM is not as good as hardware.
    fn warn(self, probe: &Probe) -> String {
        let mut text = probe.describe();
        if self.model == CpuModel::Host {
            text.push_str(
                "; --cpu host shows its kernels instructions that nobody executes for them there, and a kernel that \
                 uses one ends: leave it out",
            );
        }
        text
    }

    fn soft(self, machine: &Machine, reason: String) -> Result<Chosen, BackendError> {
        if self.model == CpuModel::Host {
            let text = "--cpu host needs the host's CPUs: run with --accel kvm, or without --cpu";
            return Err(BackendError(format!("{text} (the software CPU was chosen: {reason})")));
        }
        let accelerator = Box::new(Soft::new(machine, SoftConfig::default()));
        Ok(Chosen { accelerator, reason, warning: None, slowdown: 1, leaks: Vec::new() })
    }

    fn kvm(
        self,
        machine: &mut Machine,
        host: &Host,
        probe: &Probe,
        reason: String,
    ) -> Result<Chosen, BackendError> {
        let config = probe.config(self.model);
        let slowdown = config.slowdown;
        let accelerator = Kvm::new(host, machine, config).map_err(|error| BackendError(error.to_string()))?;
        let accelerator = Box::new(accelerator);
        Ok(Chosen { accelerator, reason, warning: None, slowdown, leaks: probe.leaks.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accel::kvm;

    #[test]
    fn the_hosts_cpu_is_warned_of_where_kernels_are_interpreted() {
        let probe = Probe { managed: kvm::STEPS.len(), speed: Some(2.0), ..Probe::default() };
        let warn = |model| Choice { backend: Backend::Kvm, model }.warn(&probe);
        assert!(!warn(CpuModel::Baseline).contains("--cpu host"), "{}", warn(CpuModel::Baseline));
        assert!(warn(CpuModel::Host).contains("interprets kernels"), "{}", warn(CpuModel::Host));
        assert!(warn(CpuModel::Host).contains("--cpu host"), "{}", warn(CpuModel::Host));
    }
}
