//! What `run` and `test` have in common: from names to a guest with its drivers loaded.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use agent_protocol::{Channel, Command};
use guest_images::edit::{Edit, EditedModule};
use guest_images::{ExtraFile, Initramfs, InitramfsOptions, Kernel, KernelName, Store, StoreOptions};
use nicvisor_net::network::SharedMedium;
use scenarios::outcome::{Driver, Origin};

use super::args::{GuestArguments, StoreArguments};
use super::edits;
use super::failure::Failure;
use super::faults::FaultArgument;
use crate::guest::{Guest, Plan, boot};
use crate::machine::MachineConfig;
use crate::nic::NicSpec;

pub(super) fn open_store(
    arguments: &StoreArguments,
    interrupted: &Arc<AtomicBool>,
) -> Result<Store, Failure> {
    Ok(Store::open(StoreOptions {
        cache_dir: arguments.cache.clone(),
        mirror: arguments.mirror.clone(),
        interrupted: Arc::clone(interrupted),
        ..StoreOptions::default()
    })?)
}

/// A guest that is asked for, by names.
pub(super) struct Order<'a> {
    pub(super) kernel: &'a KernelName,
    pub(super) module_files: &'a [PathBuf],
    pub(super) edits: &'a [Edit],
    /// Modules to be loaded besides the NICs' drivers.
    pub(super) modules: &'a [String],
    pub(super) root: Option<&'a PathBuf>,
    pub(super) nics: &'a [NicSpec],
    /// The NICs of other guests on the same medium that come before, in names and addresses.
    pub(super) nics_before: Vec<NicSpec>,
    pub(super) faults: &'a [FaultArgument],
    pub(super) guest: &'a GuestArguments,
    pub(super) medium: SharedMedium,
    pub(super) timeout: Option<Duration>,
    pub(super) interrupted: Arc<AtomicBool>,
}

/// A guest, and what it was made from.
pub(super) struct Prepared {
    pub(super) guest: Guest,
    pub(super) kernel: Kernel,
    pub(super) edited: Vec<EditedModule>,
    pub(super) initramfs: Initramfs,
    /// The drivers, and modules that take the place of the kernel's.
    pub(super) drivers: Vec<Driver>,
    /// How long it took to its agent's first word; nothing until then.
    pub(super) boot_host_time: Duration,
    modules: Vec<String>,
    nics: Vec<NicSpec>,
    begun: Instant,
}

/// Gives each NIC an address of its own.
pub(super) fn number_nics(nics: &[NicSpec]) -> Result<Vec<NicSpec>, Failure> {
    let mut nics = nics.to_vec();
    let mut place = 0;
    for nic in &mut nics {
        nic.number(place);
        place += nic.macs().len();
    }
    check_addresses(&nics)?;
    Ok(nics)
}

/// Fetches what is missing, and makes a guest that is about to execute its first instruction.
pub(super) fn prepare(order: Order<'_>, store: &Store) -> Result<Prepared, Failure> {
    let mut nics = number_nics(&[&order.nics_before[..], order.nics].concat())?;
    let nics = nics.split_off(order.nics_before.len());
    let accel = order.guest.choice()?;
    let kernel = store.kernel(order.kernel)?;
    let modules: Vec<String> =
        driver_modules(&nics).map(str::to_owned).chain(order.modules.iter().cloned()).collect();
    let files = order
        .root
        .map(|source| ExtraFile { source: source.clone(), target: "/".into() })
        .into_iter()
        .collect();
    let edited = edits::build(store, &kernel, order.edits, order.module_files)?;
    let drivers = drivers(&modules, &edited, order.module_files);
    let module_files =
        order.module_files.iter().cloned().chain(edited.iter().map(|module| module.path.clone())).collect();
    let options = InitramfsOptions { modules: modules.clone(), module_files, files };
    let initramfs = store.initramfs(&kernel, &options)?;
    let begun = Instant::now();
    let mut guest = boot(Plan {
        kernel: kernel.vmlinuz.clone(),
        system_map: kernel.system_map.clone(),
        initramfs: initramfs.layers.clone(),
        append: order.guest.append.clone(),
        machine: machine_config(order.guest),
        accel,
        nics: nics.clone(),
        nics_before: order.nics_before,
        medium: order.medium,
        verbose: order.guest.verbose,
        deadline: order.timeout.map(|timeout| begun + timeout),
        interrupted: order.interrupted,
    })?;
    for argument in order.faults {
        guest.inject(&argument.device, &argument.fault)?;
    }
    let boot_host_time = Duration::ZERO;
    Ok(Prepared { guest, kernel, edited, initramfs, drivers, boot_host_time, modules, nics, begun })
}

impl Prepared {
    /// What runs the guest's CPUs: see [`introduction`].
    pub(super) fn introduction(&self, verbose: bool) -> Vec<String> {
        let guest = &self.guest;
        introduction(guest.backend(), guest.backend_reason(), guest.backend_warning(), verbose)
    }

    /// Boots the guest, loads the drivers and gives the interfaces their names.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        self.guest.wait_until_ready()?;
        self.boot_host_time = self.begun.elapsed();
        if self.guest.console().text().contains(UNPACKING_FAILED) {
            let message = "the guest has too little memory for its file system";
            return Err(Failure::Usage(message.into(), "give it more with --memory".into()));
        }
        load_drivers(&mut self.guest, &self.modules)?;
        name_interfaces(&mut self.guest, &self.nics)
    }
}

/// Two ports with one address could not be told apart, neither by us nor by the switch.
fn check_addresses(nics: &[NicSpec]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for mac in nics.iter().flat_map(NicSpec::macs) {
        if !seen.insert(mac) {
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            return Err(Failure::Usage(
                format!("two NICs have the MAC address {mac}"),
                "give each its own, or none: they are numbered then".into(),
            ));
        }
    }
    Ok(())
}

pub(super) fn machine_config(arguments: &GuestArguments) -> MachineConfig {
    let mut config = MachineConfig { cpus: DEFAULT_CPUS, seed: arguments.seed, ..MachineConfig::default() };
    if let Some(cpus) = arguments.cpus {
        config.cpus = cpus;
    }
    if let Some(memory) = arguments.memory {
        config.memory = memory.0;
    }
    config
}

/// The drivers of `nics`, each once, in the order of the NICs.
fn driver_modules(nics: &[NicSpec]) -> impl Iterator<Item = &'static str> {
    let mut modules: Vec<&'static str> = Vec::new();
    for nic in nics {
        if !modules.contains(&nic.module()) {
            modules.push(nic.module());
        }
    }
    modules.into_iter()
}

/// Where each of the modules is from, and those that replace one that is loaded on demand.
fn drivers(modules: &[String], edited: &[EditedModule], files: &[PathBuf]) -> Vec<Driver> {
    let mut drivers: Vec<Driver> = Vec::new();
    let of_edit = |module: &EditedModule| (module.driver.clone(), Origin::Edits(module.edits.clone()));
    let of_file = |file: &PathBuf| (edits::module_name(file), Origin::File(file.display().to_string()));
    let of_kernel = |name: &String| (name.replace('-', "_"), Origin::Kernel);
    let all =
        edited.iter().map(of_edit).chain(files.iter().map(of_file)).chain(modules.iter().map(of_kernel));
    for (module, origin) in all {
        if !drivers.iter().any(|driver| driver.module == module) {
            drivers.push(Driver { module, origin });
        }
    }
    drivers
}

fn load_drivers(guest: &mut Guest, modules: &[String]) -> Result<(), Failure> {
    for module in modules {
        guest
            .load_modules(&[module])?
            .map_err(|reason| Failure::Module { module: module.clone(), reason })?;
    }
    Ok(())
}

/// Interfaces are named in the order in which drivers find them; here the order of the NICs counts.
fn name_interfaces(guest: &mut Guest, nics: &[NicSpec]) -> Result<(), Failure> {
    if nics.is_empty() {
        return Ok(());
    }
    let macs: Vec<String> = guest
        .machine()
        .devices()
        .filter_map(|id| guest.machine().device(id))
        .flat_map(|device| device.ports())
        .map(|port| port.mac.map(|byte| format!("{byte:02x}")).join(":"))
        .collect();
    let mut script = String::from(NAMING_SCRIPT);
    for (index, mac) in macs.iter().enumerate() {
        script.push_str(&format!("name {mac} eth{index}\n"));
    }
    script.push_str("finish\n");
    let job = guest
        .spawn(Command { argv: ["sh", "-c", &script].map(str::to_owned).to_vec(), ..Command::default() });
    let (mut missing, mut errors) = (Vec::new(), Vec::new());
    let exits = guest.wait(&[job], &mut |_, channel, data| match channel {
        Channel::Stdout => missing.extend_from_slice(data),
        Channel::Stderr => errors.extend_from_slice(data),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match exits[0].status() {
        0 => Ok(()),
        _ if missing.is_empty() => Err(Failure::Naming(text(&errors))),
        _ => Err(Failure::NoInterface { interface: text(&missing) }),
    }
}

/// What runs the CPUs, for whoever looks on, and what is to be expected of it: lines, if any.
pub(super) fn introduction(backend: &str, reason: &str, warning: Option<&str>, verbose: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if verbose || io::stderr().is_terminal() {
        lines.push(format!("nicvisor: running on {backend}: {reason}"));
    }
    lines.extend(warning.map(|warning| format!("nicvisor: {warning}; --accel soft may be faster")));
    lines
}

const DEFAULT_CPUS: usize = 2;
/// The kernel says so (init/initramfs.c) and goes on with what it has.
const UNPACKING_FAILED: &str = "Initramfs unpacking failed";
/// Gives each interface its name by its address, by way of names that cannot be taken. Says which is missing.
const NAMING_SCRIPT: &str = "\
renames=
name() {
    for directory in /sys/class/net/*; do
        read -r address < $directory/address
        if [ $address = $1 ]; then
            [ ${directory##*/} = $2 ] && return
            ip link set ${directory##*/} name nic-$2 && renames=\"$renames $2\"
            return
        fi
    done
    echo $2; exit 1
}
finish() {
    for interface in $renames; do ip link set nic-$interface name $interface || exit 1; done
}
";
