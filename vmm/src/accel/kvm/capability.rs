//! What of the host's KVM the backend needs, and what it uses where it is there.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use kvm_ioctls::{Cap, Kvm as Device};

use super::error::{API_VERSION, KvmError};

/// A host whose KVM can do all that the backend needs.
#[derive(Debug)]
pub struct Host {
    pub(super) device: Device,
}

/// One capability.
#[derive(Clone, Copy, Debug)]
pub struct Capability {
    /// Its number in `linux/kvm.h`.
    number: u32,
    /// Its name there.
    pub name: &'static str,
    /// What it is for here.
    pub purpose: &'static str,
}

impl Host {
    /// Opens `/dev/kvm` and checks what it can do.
    ///
    /// # Errors
    /// When it is not there, may not be opened, or lacks something; the message names what.
    pub fn open() -> Result<Host, KvmError> {
        Host::open_at(Path::new(DEVICE))
    }

    fn open_at(path: &Path) -> Result<Host, KvmError> {
        let text = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let device = Device::new_with_path(text).map_err(|source| why_closed(path, source))?;
        let version = device.get_api_version();
        if version != API_VERSION {
            return Err(KvmError::Version { path: path.to_owned(), version });
        }
        let host = Host { device };
        match lacking(|capability| host.has(capability)) {
            Some(lacking) => Err(KvmError::Lacking { lacking }),
            None => Ok(host),
        }
    }

    /// Whether the host has `capability`.
    pub fn has(&self, capability: &Capability) -> bool {
        self.device.check_extension_raw(capability.number.into()) > 0
    }

    /// Checks that a machine with `cpus` CPUs is possible.
    ///
    /// # Errors
    /// When it is not.
    pub fn check_cpus(&self, cpus: usize) -> Result<(), KvmError> {
        let most = self.device.get_max_vcpus();
        if cpus > most { Err(KvmError::TooManyCpus { cpus, most }) } else { Ok(()) }
    }
}

fn why_closed(path: &Path, source: kvm_ioctls::Error) -> KvmError {
    let path = path.to_owned();
    match source.errno() {
        libc::ENOENT => KvmError::Missing { path },
        libc::EACCES | libc::EPERM => KvmError::Unreadable { path },
        _ => KvmError::Open { path, source },
    }
}

/// Names what of [`REQUIRED`] is not there; `None` when nothing is missing.
fn lacking(has: impl Fn(&Capability) -> bool) -> Option<String> {
    let missing: Vec<String> = REQUIRED
        .iter()
        .filter(|capability| !has(capability))
        .map(|capability| format!("{} ({})", capability.name, capability.purpose))
        .collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

const fn capability(cap: Cap, name: &'static str, purpose: &'static str) -> Capability {
    Capability { number: cap as u32, name, purpose }
}

/// Without these there is no machine. The table in `docs/accel.md` says the same.
pub const REQUIRED: [Capability; 14] = [
    capability(Cap::UserMemory, "KVM_CAP_USER_MEMORY", "guest memory"),
    capability(Cap::SetTssAddr, "KVM_CAP_SET_TSS_ADDR", "real mode on Intel"),
    capability(Cap::ExtCpuid, "KVM_CAP_EXT_CPUID", "the CPU that guests see"),
    capability(Cap::Irqchip, "KVM_CAP_IRQCHIP", "interrupt controllers"),
    capability(Cap::IrqRouting, "KVM_CAP_IRQ_ROUTING", "wired interrupts"),
    capability(Cap::SignalMsi, "KVM_CAP_SIGNAL_MSI", "message-signalled interrupts"),
    capability(Cap::TscDeadlineTimer, "KVM_CAP_TSC_DEADLINE_TIMER", "the local APIC's timer"),
    capability(Cap::GetTscKhz, "KVM_CAP_GET_TSC_KHZ", "telling guests the time-stamp counter's rate"),
    capability(Cap::MpState, "KVM_CAP_MP_STATE", "several CPUs"),
    capability(Cap::VcpuEvents, "KVM_CAP_VCPU_EVENTS", "looking at stopped CPUs"),
    capability(Cap::Ioeventfd, "KVM_CAP_IOEVENTFD", "doorbells"),
    capability(Cap::ImmediateExit, "KVM_CAP_IMMEDIATE_EXIT", "stopping CPUs"),
    capability(Cap::X86UserSpaceMsr, "KVM_CAP_X86_USER_SPACE_MSR", "model-specific registers of the machine"),
    capability(Cap::X86MsrFilter, "KVM_CAP_X86_MSR_FILTER", "model-specific registers of the machine"),
];

/// Used where it is there: the time-stamp counter then runs at 1 GHz, as on the software CPU.
pub const TSC_CONTROL: Capability =
    capability(Cap::TscControl, "KVM_CAP_TSC_CONTROL", "a time-stamp counter of 1 GHz");
/// Used where it is there, by the emulation assist.
pub const XSAVE: Capability =
    capability(Cap::Xsave, "KVM_CAP_XSAVE", "floating-point state in the emulation assist");
/// Used where it is there and KVM leaves system calls to the emulation assist.
pub const GUEST_DEBUG: Capability =
    capability(Cap::SetGuestDebug, "KVM_CAP_SET_GUEST_DEBUG", "system calls in the emulation assist");
/// Used where it is there: KVM says when it cannot emulate an instruction, and which.
pub const EMULATION_FAILURE: Capability = Capability {
    number: kvm_bindings::KVM_CAP_EXIT_ON_EMULATION_FAILURE,
    name: "KVM_CAP_EXIT_ON_EMULATION_FAILURE",
    purpose: "the emulation assist",
};

const DEVICE: &str = "/dev/kvm";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_closed_device_is_named_with_what_to_do() {
        let path = Path::new("/nonexistent/kvm");
        let missing = Host::open_at(path).unwrap_err().to_string();
        assert!(missing.contains("there is no /nonexistent/kvm"), "{missing}");
        assert!(missing.contains("--accel soft"), "{missing}");
        let closed = why_closed(path, kvm_ioctls::Error::new(libc::EACCES)).to_string();
        assert!(closed.contains("/nonexistent/kvm cannot be opened by this user"), "{closed}");
        assert!(closed.contains("group"), "{closed}");
        let nothing_behind = why_closed(path, kvm_ioctls::Error::new(libc::ENODEV)).to_string();
        assert!(nothing_behind.contains("kvm_intel"), "{nothing_behind}");
    }

    #[test]
    fn something_else_in_the_place_of_kvm_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Host::open_at(file.path()).unwrap_err().to_string();
        assert!(error.contains("it is not KVM"), "{error}");
    }

    #[test]
    fn what_is_lacking_is_named_with_its_purpose() {
        assert_eq!(lacking(|_| true), None);
        let text = lacking(|capability| !capability.name.contains("MSI")).unwrap();
        assert_eq!(text, "KVM_CAP_SIGNAL_MSI (message-signalled interrupts)");
        let error = KvmError::Lacking { lacking: text }.to_string();
        assert!(error.contains("this host's KVM lacks KVM_CAP_SIGNAL_MSI"), "{error}");
    }
}
