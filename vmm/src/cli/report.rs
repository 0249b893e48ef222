//! The report of a run, for other programs.

use std::collections::BTreeMap;
use std::path::Path;

use guest_images::Kernel;
use guest_images::edit::EditedModule;
use nicvisor_core::Finding;
use serde::Serialize;

use super::failure::Failure;
use super::prepare::Prepared;

/// Everything that is to be known about a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Version of this program.
    pub(super) nicvisor: &'static str,
    pub(super) backend: &'static str,
    pub(super) backend_reason: String,
    /// How often CPUs left the guest, by kind; empty where the backend does not count it.
    pub(super) exits: BTreeMap<String, u64>,
    /// Instructions that the software CPU executed because KVM could not, and how often.
    pub(super) assists: BTreeMap<String, u64>,
    /// Those among them that are not in the baseline, but advertised by a host that cannot hide it.
    pub(super) assists_beyond_baseline: BTreeMap<String, u64>,
    /// Whether the same command gives the same run.
    pub(super) reproducible: bool,
    pub(super) kernel: Kernel,
    pub(super) initramfs_sha256: String,
    /// SHA-256 of each module in the guest.
    pub(super) modules: BTreeMap<String, String>,
    /// Modules that were built from edited source.
    pub(super) edited: Vec<EditedModule>,
    pub(super) seed: u64,
    pub(super) cpus: usize,
    pub(super) memory: u64,
    /// Names of the devices, in slot order.
    pub(super) devices: Vec<String>,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) findings: Vec<Finding>,
    pub(super) ledger: LedgerReport,
    pub(super) kernel_trouble: Vec<String>,
    pub(super) boot_host_seconds: f64,
    pub(super) host_seconds: f64,
    pub(super) guest_seconds: f64,
    pub(super) instructions: Option<u64>,
    /// How the run ended, in words.
    pub(super) ending: String,
    pub(super) exit_status: u8,
}

/// What became of all frames.
#[derive(Debug, Serialize)]
pub(super) struct LedgerReport {
    pub(super) balanced: bool,
    pub(super) entered: u64,
    pub(super) copied: u64,
    pub(super) delivered: u64,
    pub(super) dropped: BTreeMap<String, u64>,
    pub(super) missing: usize,
}

impl Report {
    /// Gathers it. The guest has been closed.
    pub(super) fn new(
        prepared: &mut Prepared,
        counters: Vec<(String, u64)>,
        host_seconds: f64,
        ending: String,
        exit_status: u8,
    ) -> Report {
        let findings = prepared.guest.findings().to_vec();
        let guest = &prepared.guest;
        let statistics = guest.statistics();
        let network = guest.machine().network();
        let ledger = network.ledger();
        let balance = ledger.balance();
        let totals = ledger.totals();
        let config = guest.machine().config();
        Report {
            nicvisor: env!("CARGO_PKG_VERSION"),
            backend: guest.backend(),
            backend_reason: guest.backend_reason().to_owned(),
            exits: statistics.exits,
            assists: statistics.assists,
            assists_beyond_baseline: statistics.assists_beyond_baseline,
            reproducible: guest.is_reproducible(),
            kernel: prepared.kernel.clone(),
            initramfs_sha256: prepared.initramfs.sha256.clone(),
            modules: prepared.initramfs.modules.clone(),
            edited: prepared.edited.clone(),
            seed: config.seed,
            cpus: config.cpus,
            memory: config.memory,
            devices: guest.machine().devices().map(|id| guest.machine().device_name(id).to_owned()).collect(),
            counters: counters.into_iter().collect(),
            findings,
            ledger: LedgerReport {
                balanced: balance.is_balanced(),
                entered: totals.entered,
                copied: totals.copied,
                delivered: totals.delivered,
                dropped: totals.dropped.iter().map(|(reason, count)| (reason.to_string(), *count)).collect(),
                missing: balance.missing.len(),
            },
            kernel_trouble: guest.trouble().iter().map(|line| line.text.clone()).collect(),
            boot_host_seconds: prepared.boot_host_time.as_secs_f64(),
            host_seconds,
            guest_seconds: guest.now().as_nanos() as f64 / 1e9,
            instructions: guest.instructions(),
            ending,
            exit_status,
        }
    }

    /// Writes it as JSON.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).expect("reports are plain data") + "\n";
        write_whole(path, text.as_bytes())
    }
}

/// Whether a file can be made beside `path`, which may or may not exist.
pub(super) fn check_writable(path: &Path) -> Result<(), Failure> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::NamedTempFile::new_in(directory)
        .map(drop)
        .map_err(|source| Failure::Write { path: path.to_owned(), source })
}

/// Writes to standard output. Whoever reads it may have gone away (`| head`); a full disk is an error.
pub(super) fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match std::io::Write::write_all(&mut out, text.as_bytes()).and_then(|()| std::io::Write::flush(&mut out))
    {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(source) => Err(Failure::Write { path: "standard output".into(), source }),
        Ok(()) => Ok(()),
    }
}

/// Writes a file that is either complete or not there.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failure = |source| Failure::Write { path: path.to_owned(), source };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(directory).map_err(failure)?;
    std::io::Write::write_all(&mut file, bytes).map_err(failure)?;
    file.persist(path).map_err(|error| failure(error.error))?;
    Ok(())
}
