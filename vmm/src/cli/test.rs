//! `nicvisor test`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use guest_images::{KernelName, Store};
use indicatif::{ProgressBar, ProgressStyle};
use scenarios::{Outcome, Scenario, Verdict, report};
use toml::Spanned;

use super::args::{DEFAULT_KERNEL, Format, TestArguments};
use super::failure::{FAILED, Failure};
use super::prepare::{Order, Prepared, open_store, prepare};
use super::report::{Report, say, write_whole};
use super::run::catch_signals;
use super::values::{Size, duration};
use super::{capture, rules};
use crate::nic::{NicError, NicSpec};

pub(super) fn test(arguments: &TestArguments) -> Result<u8, Failure> {
    let scenarios = load(arguments)?;
    // All that can be wrong with what was asked is said before the first guest boots.
    let mut jobs = Vec::new();
    for scenario in &scenarios {
        for kernel in kernels(arguments, scenario)? {
            jobs.push(Job::new(arguments, scenario, kernel)?);
        }
    }
    if arguments.list {
        for scenario in &scenarios {
            say(&format!("{}  {}\n", scenario.name, scenario.description.trim()))?;
        }
        return Ok(0);
    }
    if let Some(directory) = &arguments.report {
        std::fs::create_dir_all(directory)
            .map_err(|source| Failure::Write { path: directory.clone(), source })?;
    }
    let store = open_store(&arguments.guest.store)?;
    let interrupted = catch_signals();
    let mut outcomes = Vec::new();
    for job in jobs {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let outcome = job.carry_out(&store, &interrupted)?;
        if arguments.format == Format::Human {
            say(&report::human(&outcome))?;
        }
        outcomes.push(outcome);
    }
    conclude(arguments, &outcomes, interrupted.load(Ordering::Relaxed))
}

fn conclude(arguments: &TestArguments, outcomes: &[Outcome], interrupted: bool) -> Result<u8, Failure> {
    let passed = outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Pass).count();
    let failed = outcomes.len() - passed;
    say(&match arguments.format {
        Format::Human => format!("{passed} passed, {failed} failed\n"),
        Format::Ktap => report::ktap(outcomes),
        Format::Json => report::json(outcomes),
        Format::Junit => report::junit(outcomes),
    })?;
    if let Some(directory) = &arguments.report {
        write_whole(&directory.join("results.json"), report::json(outcomes).as_bytes())?;
        write_whole(&directory.join("results.xml"), report::junit(outcomes).as_bytes())?;
    }
    Ok(match (interrupted, failed) {
        (true, _) => 130,
        (false, 0) => 0,
        (false, _) => FAILED,
    })
}

fn load(arguments: &TestArguments) -> Result<Vec<Scenario>, Failure> {
    let paths = if arguments.paths.is_empty() { vec![default_scenarios()?] } else { arguments.paths.clone() };
    let mut loaded = Vec::new();
    for path in scenarios::discover(&paths)? {
        loaded.push(scenarios::load(&path)?);
    }
    Ok(loaded)
}

/// The project's own scenarios: in the directory where the program runs, or where it was built.
fn default_scenarios() -> Result<PathBuf, Failure> {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    [PathBuf::from("scenarios"), built_in].into_iter().find(|path| path.is_dir()).ok_or_else(|| {
        Failure::Usage(
            "there is no directory scenarios here".into(),
            "name scenario files or directories".into(),
        )
    })
}

fn kernels(arguments: &TestArguments, scenario: &Scenario) -> Result<Vec<KernelName>, Failure> {
    if !arguments.kernels.is_empty() {
        return Ok(arguments.kernels.clone());
    }
    if scenario.guest.kernels.is_empty() {
        return Ok(vec![DEFAULT_KERNEL.parse()?]);
    }
    let name = |name: &Spanned<String>| {
        let mistake = |error: guest_images::ImageError| {
            scenario.mistake(name.span(), error.to_string(), "name a kernel as --kernel takes it")
        };
        Ok(name.get_ref().parse().map_err(mistake)?)
    };
    scenario.guest.kernels.iter().map(name).collect()
}

/// One scenario on one kernel, checked and ready.
struct Job<'a> {
    arguments: &'a TestArguments,
    scenario: &'a Scenario,
    kernel: KernelName,
    nics: Vec<NicSpec>,
    guest: super::args::GuestArguments,
    timeout: Duration,
}

impl<'a> Job<'a> {
    fn new(
        arguments: &'a TestArguments,
        scenario: &'a Scenario,
        kernel: KernelName,
    ) -> Result<Job<'a>, Failure> {
        let wrong = |span, message: String, help: &str| scenario.mistake(span, message, help);
        let mut guest = arguments.guest.clone();
        if guest.cpus.is_none() {
            guest.cpus = scenario.guest.cpus.map(|cpus| cpus as usize);
        }
        if let (None, Some(memory)) = (guest.memory, &scenario.guest.memory) {
            let size = memory.get_ref().parse::<Size>();
            guest.memory = Some(size.map_err(|error| wrong(memory.span(), error, "memory = \"1G\""))?);
        }
        guest.append = format!("{} {}", scenario.guest.append, guest.append).trim().to_owned();
        let timeout = match &scenario.guest.timeout {
            None => DEFAULT_TIMEOUT,
            Some(text) => {
                duration(text.get_ref()).map_err(|error| wrong(text.span(), error, "timeout = \"10m\""))?
            }
        };
        for rule in &scenario.expect.findings {
            if !rules::all().any(|known| known.id == rule.get_ref()) {
                let message = format!("there is no rule {}", rule.get_ref());
                return Err(wrong(rule.span(), message, "nicvisor rules lists them").into());
            }
        }
        let mut nics = Vec::new();
        for nic in &scenario.nics {
            let help = "a NIC's options are the same as those of --nic";
            nics.push(spec(nic.get_ref()).map_err(|error| wrong(nic.span(), error.to_string(), help))?);
        }
        Ok(Job { arguments, scenario, kernel, nics, guest, timeout })
    }

    fn carry_out(&self, store: &Store, interrupted: &Arc<AtomicBool>) -> Result<Outcome, Failure> {
        let started = Instant::now();
        let files = self
            .arguments
            .report
            .as_ref()
            .map(|directory| Files::new(directory, &self.scenario.name, &self.kernel));
        let progress = progress(&self.scenario.name);
        progress.set_message("booting");
        let (medium, capture) = capture::network(files.as_ref().map(|files| files.capture.as_path()))?;
        let order = Order {
            kernel: &self.kernel,
            module_files: &self.arguments.modules,
            edits: &[],
            modules: &self.scenario.guest.modules,
            root: None,
            nics: &self.nics,
            faults: &[],
            guest: &self.guest,
            medium,
            timeout: Some(self.timeout),
            interrupted: Arc::clone(interrupted),
        };
        let mut prepared = match prepare(order, store) {
            Ok(prepared) => prepared,
            Err(failure @ (Failure::Guest(_) | Failure::Module { .. } | Failure::NoInterface { .. })) => {
                return Ok(self.broken(&failure, started));
            }
            Err(failure) => return Err(failure),
        };
        let (verdict, checks) = scenarios::run(self.scenario, &mut prepared.guest, &mut |step| {
            progress.set_message(step.to_owned())
        });
        progress.finish_and_clear();
        let counters = prepared.guest.counters();
        prepared.guest.close();
        let outcome = Outcome {
            scenario: self.scenario.name.clone(),
            kernel: format!("{} ({})", self.kernel, prepared.kernel.version),
            verdict,
            checks,
            findings: prepared.guest.findings().to_vec(),
            counters,
            host_seconds: started.elapsed().as_secs_f64(),
            guest_seconds: prepared.guest.now().as_nanos() as f64 / 1e9,
        };
        capture.finish(prepared.guest.machine().medium())?;
        if let Some(files) = files {
            files.write(&mut prepared, &outcome)?;
        }
        Ok(outcome)
    }

    /// The outcome of a scenario whose guest did not even get to its first step.
    fn broken(&self, failure: &Failure, started: Instant) -> Outcome {
        Outcome {
            scenario: self.scenario.name.clone(),
            kernel: self.kernel.to_string(),
            verdict: Verdict::Broken,
            checks: vec![scenarios::Check::fail(
                "the guest boots and loads its drivers",
                failure.to_string(),
            )],
            findings: Vec::new(),
            counters: Vec::new(),
            host_seconds: started.elapsed().as_secs_f64(),
            guest_seconds: 0.0,
        }
    }
}

/// A scenario's NIC table, as the command line would have it.
fn spec(table: &BTreeMap<String, toml::Value>) -> Result<NicSpec, NicError> {
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Boolean(true) => "on".into(),
        toml::Value::Boolean(false) => "off".into(),
        other => other.to_string(),
    };
    let kind = table.get("kind").map(text).unwrap_or_default();
    let options: Vec<(&str, String)> = table
        .iter()
        .filter(|(key, _)| *key != "kind")
        .map(|(key, value)| (key.as_str(), text(value)))
        .collect();
    NicSpec::new(&kind, options.iter().map(|(key, value)| (*key, value.as_str())))
}

/// Where the evidence of one scenario goes.
struct Files {
    capture: PathBuf,
    log: PathBuf,
    report: PathBuf,
}

impl Files {
    fn new(directory: &Path, scenario: &str, kernel: &KernelName) -> Files {
        let safe = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "-");
        let stem = format!("{}.{}", safe(scenario), safe(&kernel.to_string()));
        let path = |ending: &str| directory.join(format!("{stem}.{ending}"));
        Files { capture: path("pcapng"), log: path("log"), report: path("json") }
    }

    fn write(&self, prepared: &mut Prepared, outcome: &Outcome) -> Result<(), Failure> {
        write_whole(&self.log, prepared.guest.console().text().as_bytes())?;
        let status = if outcome.verdict == Verdict::Pass { 0 } else { FAILED };
        let ending = format!("{:?}", outcome.verdict).to_lowercase();
        Report::new(prepared, outcome.counters.clone(), outcome.host_seconds, ending, status)
            .write(&self.report)
    }
}

/// A line on a terminal, nothing elsewhere.
fn progress(name: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{spinner} {prefix}: {msg} ({elapsed})").expect("a constant template"),
    );
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
