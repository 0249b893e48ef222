//! What can be said on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use guest_images::KernelName;

use super::failure::Failure;
use super::faults::FaultArgument;
use super::values::{Size, duration};
use crate::accel::{Backend, Choice, CpuModel};
use crate::nic::NicSpec;

/// Boots Linux kernels on emulated cloud NICs and tests the drivers in them.
#[derive(Debug, Parser)]
#[command(name = "nicvisor", version, max_term_width = 100)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Boot a guest and run a command in it, or a shell.
    Run(RunArguments),
    /// Run scenarios and say whether they pass.
    Test(TestArguments),
    /// List what can be done to a NIC: the names that faults use.
    Faults(FaultsArguments),
    /// List the rules that drivers are held to.
    Rules(RulesArguments),
    /// Kernels and guest images: list, build, tell their path.
    Image(ImageArguments),
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// Kernel: debian:VERSION (fetched on first use), or a vmlinux, bzImage or kernel build directory.
    #[arg(long, default_value = DEFAULT_KERNEL)]
    pub(super) kernel: KernelName,
    /// The directory of a kernel that has been built: its image and its modules.
    #[arg(long, value_name = "DIR", conflicts_with = "kernel", value_parser = kernel_tree)]
    kernel_tree: Option<KernelName>,
    /// A module file that takes the place of the kernel's own.
    #[arg(long = "module", value_name = "FILE.ko")]
    pub(super) modules: Vec<PathBuf>,
    /// An edit of a driver's source, built and used in place of the kernel's own module: a file, or the name of
    /// one in scenarios/edits. May be given several times.
    #[arg(long = "edit", value_name = "FILE.toml")]
    pub(super) edits: Vec<String>,
    /// A NIC: gve, mana or virtio, with [,mtu=N][,mac=M][,queues=N][,link=NAME] and more (mana: [,ports=N]). Ports become eth0, eth1, ... in this order.
    #[arg(long = "nic", value_name = "KIND[,KEY=VALUE]...")]
    pub(super) nics: Vec<NicSpec>,
    /// A fault that a NIC has from power-on, such as 'gve0=completion = { queue = "tx 0", hold = "16s" }'; may be given several times. `nicvisor faults` lists the names.
    #[arg(long = "fault", value_name = "NIC=FAULT")]
    pub(super) faults: Vec<FaultArgument>,
    #[command(flatten)]
    pub(super) guest: GuestArguments,
    /// Connect the command to this terminal, or to standard input (a shell always is).
    #[arg(long, short)]
    pub(super) interactive: bool,
    /// Copy what is in this directory into the guest's root.
    #[arg(long, value_name = "DIR")]
    pub(super) root: Option<PathBuf>,
    /// Write all frames on the wire to this file.
    #[arg(long, value_name = "FILE.pcapng")]
    pub(super) capture: Option<PathBuf>,
    /// Write a report of the run to this file.
    #[arg(long, value_name = "FILE.json")]
    pub(super) report: Option<PathBuf>,
    /// End the run with status 124 after this time on the host's clock, such as 90s, 10m or 1h.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(super) timeout: Option<Duration>,
    /// The command to run in the guest; without one, a shell on this terminal.
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

impl RunArguments {
    /// The kernel that is meant.
    pub(super) fn kernel(&self) -> &KernelName {
        self.kernel_tree.as_ref().unwrap_or(&self.kernel)
    }
}

fn kernel_tree(text: &str) -> Result<KernelName, String> {
    let path = PathBuf::from(text);
    if path.is_dir() { Ok(KernelName::Path(path)) } else { Err("there is no such directory".into()) }
}

/// What the guest's machine is like.
#[derive(Clone, Debug, Args)]
pub(super) struct GuestArguments {
    /// Number of CPUs, 1 to 64; 2 if nothing else is said.
    #[arg(long, value_name = "N")]
    pub(super) cpus: Option<usize>,
    /// Memory, such as 512M or 4G; 1G if nothing else is said.
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<Size>,
    /// What runs the CPUs.
    #[arg(long, value_enum, default_value_t = BackendArgument::Auto)]
    accel: BackendArgument,
    /// The CPU that the guest sees: the same everywhere, or with --accel kvm the host's.
    #[arg(long, value_enum, default_value_t = CpuArgument::Baseline)]
    cpu: CpuArgument,
    /// Where all randomness comes from: the same seed gives the same run.
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// Appended to the kernel's command line.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub(super) append: String,
    /// Show the kernel's log as it comes.
    #[arg(long, short)]
    pub(super) verbose: bool,
    #[command(flatten)]
    pub(super) store: StoreArguments,
}

/// Where kernels come from and are kept.
#[derive(Clone, Debug, Args)]
pub(super) struct StoreArguments {
    /// Keep fetched kernels here instead of in the user's cache directory.
    #[arg(long, value_name = "DIR", env = "NICVISOR_CACHE")]
    pub(super) cache: Option<PathBuf>,
    /// Debian archive to fetch from instead of the one that the system's apt uses.
    #[arg(long, value_name = "URL", env = "NICVISOR_MIRROR")]
    pub(super) mirror: Option<String>,
}

impl GuestArguments {
    /// What runs the CPUs, and which CPU the guest sees.
    ///
    /// # Errors
    /// When the two do not fit together.
    pub(super) fn choice(&self) -> Result<Choice, Failure> {
        if (self.accel, self.cpu) == (BackendArgument::Soft, CpuArgument::Host) {
            let help = "run with --accel kvm, or without --cpu";
            return Err(Failure::Usage("the software CPU cannot be like the host's".into(), help.into()));
        }
        Ok(Choice {
            backend: match self.accel {
                BackendArgument::Auto => Backend::Auto,
                BackendArgument::Kvm => Backend::Kvm,
                BackendArgument::Soft => Backend::Soft,
            },
            model: match self.cpu {
                CpuArgument::Baseline => CpuModel::Baseline,
                CpuArgument::Host => CpuModel::Host,
            },
        })
    }
}

/// What runs the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackendArgument {
    /// What works best on this host.
    Auto,
    /// The host's CPUs: fast where KVM runs kernels on them, never twice the same.
    Kvm,
    /// The software CPU: everywhere, reproducible.
    Soft,
}

/// The CPU that a guest sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CpuArgument {
    /// The same on every backend and host.
    Baseline,
    /// All that the host's CPU can do.
    Host,
}

#[derive(Debug, Args)]
pub(super) struct TestArguments {
    /// Scenario files, or directories of them; the project's own if none is given.
    pub(super) paths: Vec<PathBuf>,
    /// Kernel to run on instead of those that the scenarios name; may be given several times.
    #[arg(long = "kernel", visible_alias = "kernel-tree", value_name = "KERNEL")]
    pub(super) kernels: Vec<KernelName>,
    /// A module file that takes the place of the kernel's own.
    #[arg(long = "module", value_name = "FILE.ko")]
    pub(super) modules: Vec<PathBuf>,
    /// An edit of a driver's source, besides those of the scenarios: a file, or the name of one in scenarios/edits.
    #[arg(long = "edit", value_name = "FILE.toml")]
    pub(super) edits: Vec<String>,
    /// The longest that each scenario may take in host time, instead of what it says itself.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
    /// Form of the result on standard output.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,
    /// Write captures, guest logs and reports into this directory.
    #[arg(long, value_name = "DIR")]
    pub(super) report: Option<PathBuf>,
    /// Only list the scenarios: each case of each file.
    #[arg(long)]
    pub(super) list: bool,
    /// Only those with this text in their name, as --list shows it.
    #[arg(long, value_name = "TEXT")]
    pub(super) filter: Option<String>,
    /// How many guests run at the same time; as many as the host has CPUs if nothing is said.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub(super) jobs: Option<usize>,
    /// Print the JSON Schema of scenario files, for editors.
    #[arg(long)]
    pub(super) schema: bool,
    #[command(flatten)]
    pub(super) guest: GuestArguments,
}

impl TestArguments {
    /// What counts where nothing is said.
    ///
    /// # Errors
    /// When an environment variable that stands for an option cannot be understood.
    pub(super) fn usual() -> Result<TestArguments, Failure> {
        let command = TestArguments::augment_args(clap::Command::new("test"));
        command
            .try_get_matches_from(["test"])
            .and_then(|matches| TestArguments::from_arg_matches(&matches))
            .map_err(|error| Failure::Usage(error.to_string(), "look at the environment".into()))
    }
}

/// Form of test results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Human,
    /// KTAP, as the kernel's own tests have it.
    Ktap,
    /// One JSON array.
    Json,
    /// JUnit XML.
    Junit,
}

#[derive(Debug, Args)]
pub(super) struct FaultsArguments {
    /// The NIC, as for `nicvisor run --nic`.
    #[arg(value_name = "KIND[,KEY=VALUE]...")]
    pub(super) nic: NicSpec,
    /// As JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct RulesArguments {
    /// As JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ImageArguments {
    #[command(subcommand)]
    pub(super) verb: ImageVerb,
    #[command(flatten)]
    pub(super) store: StoreArguments,
}

#[derive(Debug, Subcommand)]
pub(super) enum ImageVerb {
    /// List what is in the cache, and which kernels can be fetched.
    List(ListArguments),
    /// Fetch a kernel and build its initramfs; or build a driver's module, and print where it is.
    Build(BuildArguments),
    /// Make the cache smaller, beginning with what was not used for longest. What a running guest uses stays.
    Prune {
        /// What the cache may take up, such as 2G; 0 empties it.
        #[arg(long, value_name = "SIZE")]
        keep: Size,
    },
    /// Print where a kernel and its initramfs are, fetching them if necessary.
    Path {
        /// The kernel.
        #[arg(default_value = DEFAULT_KERNEL)]
        kernel: KernelName,
    },
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Ask the mirror which kernels it has now.
    #[arg(long)]
    pub(super) update: bool,
    /// As JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct BuildArguments {
    /// The kernel.
    #[arg(value_name = "KERNEL", conflicts_with = "named")]
    kernel: Option<KernelName>,
    /// The same, for those who prefer to name it.
    #[arg(long = "kernel", id = "named", value_name = "KERNEL")]
    named: Option<KernelName>,
    /// Look for a newer kernel of that name.
    #[arg(long)]
    pub(super) refresh: bool,
    /// The driver whose module is built.
    #[arg(long)]
    pub(super) driver: Option<String>,
    /// An edit of the driver's source: a file, or the name of one in scenarios/edits. May be given several times.
    #[arg(long = "edit", value_name = "FILE.toml")]
    pub(super) edits: Vec<String>,
}

impl BuildArguments {
    /// The kernel that is meant.
    pub(super) fn kernel(&self) -> KernelName {
        let given = self.kernel.clone().or_else(|| self.named.clone());
        given.unwrap_or_else(|| DEFAULT_KERNEL.parse().expect("the default is a kernel's name"))
    }
}

/// A number of workers.
fn jobs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("{text:?} is not a number above 0"))
}

/// The kernel of those who do not name one.
pub(super) const DEFAULT_KERNEL: &str = "debian:6.12";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_command_with_options_of_its_own_is_kept_whole() {
        let line = ["nicvisor", "run", "--nic", "gve", "--nic", "gve,mtu=1500", "--", "ip", "-d", "link"];
        let Verb::Run(run) = Arguments::try_parse_from(line).unwrap().verb else { panic!() };
        assert_eq!(run.command, ["ip", "-d", "link"]);
        assert_eq!(run.nics.len(), 2);
    }

    #[test]
    fn the_backend_and_the_cpu_are_the_users_choice() {
        let choice = |more: &[&str]| {
            let line = [&["nicvisor", "run"], more].concat();
            let Verb::Run(run) = Arguments::try_parse_from(line).unwrap().verb else { panic!() };
            run.guest.choice().unwrap()
        };
        assert_eq!(choice(&[]), Choice::default());
        let host = Choice { backend: Backend::Kvm, model: CpuModel::Host };
        assert_eq!(choice(&["--accel", "kvm", "--cpu", "host"]), host);
        assert_eq!(choice(&["--accel", "soft"]), Choice::SOFT);
    }

    #[test]
    fn mistakes_are_refused() {
        for line in [
            &["nicvisor"][..],
            &["nicvisor", "run", "ip", "link"],
            &["nicvisor", "run", "--nic", "e1000"],
            &["nicvisor", "run", "--memory", "lots"],
            &["nicvisor", "run", "--kernel", "debian:new"],
            &["nicvisor", "run", "--timeout", "1y"],
            &["nicvisor", "test", "--format", "xml"],
        ] {
            assert!(Arguments::try_parse_from(line).is_err(), "{line:?}");
        }
    }
}
