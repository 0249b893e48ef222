//! One scenario on one kernel: checked, booted, carried out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use guest_images::edit::Edit;
use guest_images::{ImageError, KernelName, Store};
use nicvisor_net::network::{LinkConfig, SharedMedium};
use scenarios::model::{Guest as GuestSpec, NicTable};
use scenarios::outcome::GuestOutcome;
use scenarios::{Check, KnownDevice, Outcome, Scenario, Vocabulary};

use super::super::args::{GuestArguments, TestArguments};
use super::super::edits::load as load_edits;
use super::super::failure::Failure;
use super::super::prepare::{Order, Prepared, machine_config, number_nics, prepare};
use super::super::values::Size;
use super::super::{capture, rules};
use super::files::Files;
use super::live::{Line, Live};
use super::pool::Weighty;
use crate::guest::{GuestLab, lab_error};
use crate::nic::{MOST_NICS, NicError, NicSpec};

/// A scenario that has been checked against what this program knows.
pub(super) struct Job<'a> {
    number: usize,
    arguments: &'a TestArguments,
    scenario: &'a Scenario,
    guests: Vec<GuestJob>,
    timeout: Duration,
}

/// A scenario that is over.
pub(super) struct Ended {
    /// Its place in the order of all.
    pub(super) number: usize,
    /// What came of it.
    pub(super) outcome: Outcome,
    /// The program's exit status for what kept it from beginning, if something did.
    pub(super) error: Option<u8>,
}

/// What one guest of it is booted from.
struct GuestJob {
    kernel: KernelName,
    nics: Vec<NicSpec>,
    modules: Vec<String>,
    edits: Vec<Edit>,
    arguments: GuestArguments,
}

impl<'a> Job<'a> {
    /// Checks what only this program can know: kernels, NICs, rules, devices, counters.
    pub(super) fn new(
        arguments: &'a TestArguments,
        (number, scenario): (usize, &'a Scenario),
    ) -> Result<Job<'a>, Failure> {
        let mut guests = Vec::new();
        for index in 0..scenario.guest_count() {
            guests.push(GuestJob::new(arguments, scenario, index)?);
        }
        for nic in &scenario.nics {
            let table = nic.get_ref();
            let guest = scenario.guest_index(table.get("guest").and_then(|name| name.as_str())).unwrap_or(0);
            let help = "a NIC's options are the same as those of --nic";
            let spec = spec(table).map_err(|error| scenario.mistake(nic.span(), error.to_string(), help))?;
            guests[guest].nics.push(spec);
            if guests[guest].nics.len() > MOST_NICS {
                let message = format!("a guest has at most {MOST_NICS} NICs");
                return Err(scenario
                    .mistake(nic.span(), message, "take one with more ports or queues")
                    .into());
            }
        }
        let timeout = scenario.guest.iter().filter_map(|guest| guest.get_ref().timeout.as_ref());
        let timeout = timeout.map(|timeout| timeout.get_ref().0).max().unwrap_or(DEFAULT_TIMEOUT);
        let timeout = arguments.timeout.unwrap_or(timeout);
        let job = Job { number, arguments, scenario, guests, timeout };
        job.vocabulary()?.check(scenario)?;
        Ok(job)
    }

    /// All names that the scenario may use.
    fn vocabulary(&self) -> Result<Vocabulary, Failure> {
        let mut vocabulary = Vocabulary {
            rules: rules::all().map(|rule| rule.id.to_owned()).collect(),
            ..Vocabulary::default()
        };
        let all: Vec<NicSpec> = self.guests.iter().flat_map(|guest| guest.nics.clone()).collect();
        number_nics(&all).map_err(|failure| match (failure, self.scenario.nics.last()) {
            (Failure::Usage(message, help), Some(nic)) => {
                Failure::from(self.scenario.mistake(nic.span(), message, help))
            }
            (failure, _) => failure,
        })?;
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for nic in &all {
            let device = nic.build()?;
            let count = counts.entry(nic.kind()).or_default();
            let name = format!("{}{count}", nic.kind());
            *count += 1;
            let ports = device.ports().len();
            let port = |index| if ports == 1 { name.clone() } else { format!("{name}.{index}") };
            vocabulary.ports.extend((0..ports).map(port));
            let counters = device.counters().into_iter().map(|(counter, _)| counter).collect();
            let known = KnownDevice { counters, faults: device.fault_points() };
            vocabulary.devices.insert(name, known);
        }
        Ok(vocabulary)
    }

    /// Boots the guests and carries the scenario out. What goes wrong in a guest, or keeps this scenario from beginning,
    /// is part of the outcome.
    ///
    /// # Errors
    /// When others cannot be carried out either: no room for images, files that cannot be written.
    pub(super) fn carry_out(
        &self,
        store: &Store,
        interrupted: &Arc<AtomicBool>,
        live: &Live,
    ) -> Result<Ended, Failure> {
        let started = Instant::now();
        let (mut outcome, error) = match self.attempt(store, interrupted, live) {
            Ok(outcome) => (outcome, None),
            Err(failure) if concerns_all(&failure) => return Err(failure),
            // Ctrl-C goes to the programs that fetch and build as well.
            Err(_) if interrupted.load(Ordering::Relaxed) => {
                (Outcome::skip(self.scenario, INTERRUPTED), None)
            }
            Err(failure) => (Outcome::error(self.scenario, failure.to_string()), Some(failure.status())),
        };
        outcome.host_seconds = started.elapsed().as_secs_f64();
        Ok(Ended { number: self.number, outcome, error })
    }

    /// The outcome for when the run ended before this scenario's turn.
    pub(super) fn not_reached(&self, interrupted: bool) -> Ended {
        let reason = if interrupted { INTERRUPTED } else { "the run was stopped before" };
        let outcome = Outcome::skip(self.scenario, reason);
        Ended { number: self.number, outcome, error: None }
    }

    fn attempt(&self, store: &Store, interrupted: &Arc<AtomicBool>, live: &Live) -> Result<Outcome, Failure> {
        let line = live.line(format!("{} on {}", self.scenario.name, self.scenario.kernel));
        line.show("booting");
        let files = self.arguments.report.as_ref().map(|directory| Files::new(directory, self.scenario));
        let (medium, capture) = capture::network(files.as_ref().map(Files::capture).as_deref())?;
        self.add_links(&medium);
        let mut guests = Vec::new();
        for index in 0..self.guests.len() {
            let mut prepared = match prepare(self.order(index, &medium, interrupted), store) {
                Ok(prepared) => prepared,
                Err(failure) => return self.not_booted(index, failure),
            };
            live.introduce(&prepared.introduction(self.arguments.guest.verbose));
            let ready = prepared.start();
            guests.push(prepared);
            if let Err(failure) = ready {
                let mut outcome = self.not_booted(index, failure)?;
                outcome
                    .guests
                    .iter_mut()
                    .zip(&guests)
                    .for_each(|(guest, prepared)| describe(guest, prepared));
                outcome.guests[index].log = guests[index].guest.console().text();
                capture.finish(&medium)?;
                if let Some(files) = files {
                    files.write(&mut guests, &outcome)?;
                }
                return Ok(outcome);
            }
        }
        self.settle_links(&medium);
        if has_capture_steps(self.scenario) {
            medium.set_recording(false);
        }
        let started = Instant::now();
        let mut outcome = self.run(&mut guests, &medium, &line);
        outcome.host_seconds = started.elapsed().as_secs_f64();
        capture.finish(&medium)?;
        if let Some(files) = files {
            files.write(&mut guests, &outcome)?;
        }
        Ok(outcome)
    }

    fn run(&self, guests: &mut [Prepared], medium: &SharedMedium, line: &Line) -> Outcome {
        let mut lab = GuestLab::new(guests.iter_mut().map(|prepared| &mut prepared.guest), medium.clone());
        let mut outcome = scenarios::run(self.scenario, &mut lab, &mut |progress| line.step(progress));
        let mut exact = Vec::new();
        for (guest, prepared) in outcome.guests.iter_mut().zip(guests.iter_mut()) {
            describe(guest, prepared);
            let name = format!("{} ({})", guest.kernel, guest.version);
            if !exact.contains(&name) {
                exact.push(name);
            }
            prepared.guest.close();
        }
        outcome.kernel = exact.join(" + ");
        outcome
    }

    /// What guest number `index` is booted from, on `medium`.
    fn order<'b>(&'b self, index: usize, medium: &SharedMedium, interrupted: &Arc<AtomicBool>) -> Order<'b> {
        let guest = &self.guests[index];
        Order {
            kernel: &guest.kernel,
            module_files: &self.arguments.modules,
            edits: &guest.edits,
            modules: &guest.modules,
            root: None,
            nics: &guest.nics,
            nics_before: self.guests[..index].iter().flat_map(|guest| guest.nics.clone()).collect(),
            faults: &[],
            guest: &guest.arguments,
            medium: medium.clone(),
            timeout: Some(self.timeout),
            interrupted: Arc::clone(interrupted),
        }
    }

    /// The scenario's links. Their MTU grows to what their NICs ask for.
    fn add_links(&self, medium: &SharedMedium) {
        for (name, link) in &self.scenario.links {
            let mut config = LinkConfig { mtu: 0, ..LinkConfig::named(name.clone()) };
            link.get_ref().apply(&mut config);
            medium.network().add_link(config);
        }
    }

    /// What the scenario says of its links counts, whatever their NICs ask for.
    fn settle_links(&self, medium: &SharedMedium) {
        let mut network = medium.network();
        for (name, link) in &self.scenario.links {
            let id = network.find_link(name);
            if let Some(config) = id.and_then(|id| network.link_mut(id)) {
                link.get_ref().apply(config);
            }
        }
    }

    /// Whether the guest's kernel is a point release that the scenario itself names: those leave the mirror after a
    /// while, which is nobody's fault.
    fn may_be_gone(&self, guest: usize) -> bool {
        let kernel = &self.guests[guest].kernel;
        kernel.is_exact() && !self.arguments.kernels.contains(kernel)
    }

    /// The outcome of a scenario with a guest that did not even get to its first step.
    fn not_booted(&self, guest: usize, failure: Failure) -> Result<Outcome, Failure> {
        Ok(match &failure {
            Failure::Guest(ending) => scenarios::runner::not_begun(self.scenario, &lab_error(guest, ending)),
            Failure::Module { .. } | Failure::NoInterface { .. } | Failure::Naming(_) => {
                let mut outcome = Outcome::new(self.scenario);
                let name = "the guest boots and loads its drivers";
                outcome.checks.push(Check::fail(name, failure.to_string()));
                outcome
            }
            Failure::Image(ImageError::NotOnMirror { .. }) if self.may_be_gone(guest) => {
                Outcome::skip(self.scenario, failure.to_string())
            }
            _ => return Err(failure),
        })
    }
}

impl Weighty for Job<'_> {
    fn memory(&self) -> u64 {
        self.guests.iter().map(|guest| machine_config(&guest.arguments).memory).sum()
    }
}

impl GuestJob {
    fn new(arguments: &TestArguments, scenario: &Scenario, index: usize) -> Result<GuestJob, Failure> {
        let nothing = GuestSpec::default();
        let spec = scenario.guest.get(index).map_or(&nothing, |guest| guest.get_ref());
        let mut guest = arguments.guest.clone();
        if let (None, Some(cpus)) = (guest.cpus, &spec.cpus) {
            guest.cpus = Some(*cpus.get_ref() as usize);
        }
        if let (None, Some(memory)) = (guest.memory, &spec.memory) {
            guest.memory = Some(Size(memory.get_ref().0));
        }
        if let Err(error) = machine_config(&guest).check() {
            let at = spec.cpus.as_ref().map(|cpus| cpus.span());
            let at = at.or(spec.memory.as_ref().map(|memory| memory.span())).unwrap_or(0..0);
            return Err(scenario.mistake(at, error.to_string(), "change cpus or memory").into());
        }
        guest.append = format!("{} {}", spec.append, guest.append).trim().to_owned();
        let at = spec.kernel.as_ref().map_or(0..0, |kernel| kernel.span());
        let kernel = scenario.guest_kernel(index).parse().map_err(|error: guest_images::ImageError| {
            scenario.mistake(at, error.to_string(), "name a kernel as --kernel takes it")
        })?;
        let directory = scenario.path.parent().unwrap_or(Path::new(""));
        let edit = |name: &toml::Spanned<String>| {
            let help = "name a file of the directory edits beside the scenario, or a path";
            Edit::named(name.get_ref(), directory)
                .map_err(|error| scenario.mistake(name.span(), error.to_string(), help))
        };
        let mut edits: Vec<Edit> = spec.edits.iter().map(edit).collect::<Result<_, _>>()?;
        edits.extend(load_edits(&arguments.edits)?);
        let modules = scenario.modules(index);
        Ok(GuestJob { kernel, nics: Vec::new(), modules, edits, arguments: guest })
    }
}

/// Whether the same would happen to every scenario, or nobody wants the rest.
fn concerns_all(failure: &Failure) -> bool {
    match failure {
        Failure::Write { .. } => true,
        Failure::Image(error) => matches!(
            error,
            ImageError::MissingTool { .. }
                | ImageError::NoMirror
                | ImageError::Interrupted { .. }
                | ImageError::DiskFull { .. }
                | ImageError::Cache { .. }
        ),
        _ => false,
    }
}

/// What a guest was made from.
fn describe(guest: &mut GuestOutcome, prepared: &Prepared) {
    let config = prepared.guest.machine().config();
    guest.version.clone_from(&prepared.kernel.version);
    prepared.guest.backend().clone_into(&mut guest.backend);
    prepared.guest.backend_reason().clone_into(&mut guest.backend_reason);
    guest.cpus = config.cpus;
    guest.memory = config.memory;
    guest.drivers.clone_from(&prepared.drivers);
}

/// A scenario's NIC table, as the command line would have it.
fn spec(table: &NicTable) -> Result<NicSpec, NicError> {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Bool(true) => "on".into(),
        serde_json::Value::Bool(false) => "off".into(),
        other => other.to_string(),
    };
    let kind = table.get("kind").map(text).unwrap_or_default();
    let options: Vec<(&str, String)> = table
        .iter()
        .filter(|(key, _)| !["kind", "guest"].contains(&key.as_str()))
        .map(|(key, value)| (key.as_str(), text(value)))
        .collect();
    NicSpec::new(&kind, options.iter().map(|(key, value)| (*key, value.as_str())))
}

fn has_capture_steps(scenario: &Scenario) -> bool {
    fn any(steps: &[toml::Spanned<scenarios::model::Step>]) -> bool {
        steps
            .iter()
            .map(toml::Spanned::get_ref)
            .any(|step| step.capture.is_some() || any(&step.parallel) || any(&step.sequence))
    }
    any(&scenario.steps)
}

/// Why scenarios of a run that the user stops are skipped.
const INTERRUPTED: &str = "interrupted";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
