//! What the steps of a scenario share.

use std::collections::BTreeMap;

use nicvisor_core::{DeviceEvent, Duration, Time};

use super::kernel_log::KernelLog;
use super::traffic::Sampler;
use super::watches::Watches;
use super::{CommandResult, Progress, Stop};
use crate::lab::{GuestCommand, Job, Lab, LabEvent};
use crate::model::{Scenario, Step};
use crate::outcome::{Check, Measurement, Moment, MomentKind, Outcome};

/// The lab, and everything seen of it so far.
pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) lab: &'a mut dyn Lab,
    progress: &'a mut dyn FnMut(&Progress<'_>),
    jobs: BTreeMap<Job, JobState>,
    /// Background commands by name.
    named: BTreeMap<String, Named<'a>>,
    /// What is read of kernels' logs, by the command that reads.
    logs: BTreeMap<Job, KernelLog>,
    checks: Vec<Check>,
    timeline: Vec<Moment>,
    measurements: Vec<Measurement>,
    watches: Watches<'a>,
    trouble: Vec<String>,
    sampler: Sampler,
}

/// A command that was started.
#[derive(Debug, Default)]
pub(super) struct JobState {
    pub(super) result: CommandResult,
    pub(super) ended: bool,
    /// Output that did not fit any more.
    forgotten: usize,
}

/// A background command.
struct Named<'a> {
    job: Job,
    step: &'a Step,
    /// Whether it was told to end.
    stopped: bool,
}

impl<'a> World<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        lab: &'a mut dyn Lab,
        progress: &'a mut dyn FnMut(&Progress<'_>),
    ) -> World<'a> {
        let sampler = Sampler::new(lab);
        World {
            scenario,
            lab,
            progress,
            jobs: BTreeMap::new(),
            named: BTreeMap::new(),
            logs: BTreeMap::new(),
            checks: Vec::new(),
            timeline: Vec::new(),
            measurements: Vec::new(),
            watches: Watches::default(),
            trouble: Vec::new(),
            sampler,
        }
    }

    /// Lets time pass until something happens, or until `until`.
    pub(super) fn advance(&mut self, until: Time) -> Result<(), Stop> {
        let until = until.min(self.sampler.next());
        let result = self.lab.advance(until);
        self.sampler.sample(self.lab);
        result?.into_iter().for_each(|event| self.take(event));
        Ok(())
    }

    fn take(&mut self, event: LabEvent) {
        match event {
            LabEvent::Output { job, error, data } => {
                if let Some(state) = self.jobs.get_mut(&job) {
                    state.take(error, &data);
                } else if let Some(log) = self.logs.get_mut(&job).filter(|_| !error) {
                    log.take(&data);
                }
            }
            LabEvent::Exited { job, status } => {
                if let Some(state) = self.jobs.get_mut(&job) {
                    state.ended = true;
                    state.result.status = status;
                } else if let Some(log) = self.logs.get_mut(&job) {
                    log.end();
                }
            }
            LabEvent::Trouble { guest, text } => {
                let subject = self.scenario.guest_name(guest);
                self.note(MomentKind::Trouble, &subject, &text);
                self.trouble.push(text);
            }
            LabEvent::Device { device, time, event } => {
                self.watches.count(&device, &event);
                if self.timeline.len() < MOST_MOMENTS {
                    let text = describe(&event);
                    self.timeline.push(moment(time, MomentKind::Device, &device, &text));
                }
            }
        }
    }

    pub(super) fn spawn(&mut self, guest: usize, command: &GuestCommand) -> Job {
        let job = self.lab.spawn(guest, command);
        self.jobs.insert(job, JobState::default());
        job
    }

    pub(super) fn job(&self, job: Job) -> Option<&JobState> {
        self.jobs.get(&job)
    }

    /// Lets go of a command whose result has been looked at.
    pub(super) fn forget(&mut self, job: Job) {
        self.jobs.remove(&job);
    }

    /// Begins to read the log of a guest's kernel.
    pub(super) fn follow_log(&mut self, guest: usize, wanted: &str) -> Job {
        let job = self.lab.spawn(guest, &KernelLog::command());
        self.logs.insert(job, KernelLog::new(wanted));
        job
    }

    /// What was read of a log.
    pub(super) fn followed_log(&self, job: Job) -> Option<&KernelLog> {
        self.logs.get(&job)
    }

    /// Ends the reading of a log.
    pub(super) fn unfollow_log(&mut self, job: Job) {
        if self.logs.remove(&job).is_some_and(|log| !log.has_ended()) {
            self.lab.signal(job, KILL);
        }
    }

    pub(super) fn name_job(&mut self, name: &str, job: Job, step: &'a Step) {
        self.named.insert(name.to_owned(), Named { job, step, stopped: false });
    }

    pub(super) fn named_job(&self, name: &str) -> Option<Job> {
        self.named.get(name).map(|named| named.job)
    }

    /// A background command, the step that started it, and whether it was told to end.
    pub(super) fn named(&self, name: &str) -> Option<(Job, &'a Step, bool)> {
        self.named.get(name).map(|named| (named.job, named.step, named.stopped))
    }

    /// Sends a signal to a background command; returns whether there is one of that name.
    pub(super) fn stop_job(&mut self, name: &str, signal: i32) -> bool {
        let Some(named) = self.named.get_mut(name) else { return false };
        named.stopped = true;
        self.lab.signal(named.job, signal);
        true
    }

    /// Whether `text` is in the output of `job`, or of any command that still runs or was just looked at.
    pub(super) fn has_output(&self, text: &str, job: Option<Job>) -> bool {
        let has =
            |state: &JobState| contains(&state.result.stdout, text) || contains(&state.result.stderr, text);
        match job {
            Some(job) => self.jobs.get(&job).is_some_and(has),
            None => self.jobs.values().any(has),
        }
    }

    /// Begins to count the events that steps wait for.
    pub(super) fn watch(&mut self) -> Result<(), Stop> {
        self.watches = Watches::of(self.scenario, self.lab).map_err(|(event, reason)| {
            Stop::Failed(Check::fail(format!("{} is an event", event.device.get_ref()), reason))
        })?;
        self.lab.watch(self.watches.kinds());
        Ok(())
    }

    pub(super) fn watches(&self) -> &Watches<'a> {
        &self.watches
    }

    /// The end of what commands that still run have written, for messages.
    pub(super) fn last_output(&self) -> Option<String> {
        let state = self.jobs.values().rev().find(|state| !state.result.stdout.is_empty())?;
        let text = String::from_utf8_lossy(&state.result.stdout);
        text.trim_end().lines().last().map(str::to_owned)
    }

    pub(super) fn begin(&mut self, title: &str) {
        (self.progress)(&Progress::Begins { step: title });
        self.note(MomentKind::Begin, title, "");
    }

    /// A step has ended with these checks.
    pub(super) fn end(&mut self, title: &str, began: Time, checks: Vec<Check>) {
        let now = self.lab.now();
        let checks: Vec<Check> = checks.into_iter().map(|check| Check { time: now, ..check }).collect();
        let failures: Vec<Check> = checks.iter().filter(|check| check.failure.is_some()).cloned().collect();
        (self.progress)(&Progress::Ended { step: title, failures: &failures, took: now.since(began) });
        let text = match failures.len() {
            0 => String::new(),
            1 => "1 check failed".into(),
            count => format!("{count} checks failed"),
        };
        self.note(MomentKind::End, title, &text);
        self.checks.extend(checks);
    }

    pub(super) fn note(&mut self, kind: MomentKind, subject: &str, text: &str) {
        if self.timeline.len() < MOST_MOMENTS {
            self.timeline.push(moment(self.lab.now(), kind, subject, text));
        }
    }

    pub(super) fn measure(&mut self, name: &str, value: f64) {
        match self.measurements.iter_mut().find(|measured| measured.name == name) {
            Some(measured) => measured.values.push(value),
            None => self.measurements.push(Measurement { name: name.to_owned(), values: vec![value] }),
        }
    }

    /// Ends what still runs in the background: the scenario is over.
    pub(super) fn end_jobs(&mut self) {
        let logs = self.logs.iter().filter(|(_, log)| !log.has_ended()).map(|(job, _)| *job);
        let running = self.jobs.iter().filter(|(_, state)| !state.ended).map(|(job, _)| *job);
        let all: Vec<Job> = running.chain(logs).collect();
        all.into_iter().for_each(|job| self.lab.signal(job, KILL));
    }

    /// The outcome before its end is judged, and the trouble that kernels reported.
    pub(super) fn into_outcome(self) -> (Outcome, Vec<String>) {
        let outcome = Outcome {
            checks: self.checks,
            timeline: self.timeline,
            measurements: self.measurements,
            traffic: self.sampler.into_series(),
            ..Outcome::new(self.scenario)
        };
        (outcome, self.trouble)
    }
}

impl JobState {
    fn take(&mut self, error: bool, data: &[u8]) {
        let kept = if error { &mut self.result.stderr } else { &mut self.result.stdout };
        let room = MOST_OUTPUT.saturating_sub(kept.len()).min(data.len());
        kept.extend_from_slice(&data[..room]);
        self.forgotten += data.len() - room;
    }

    /// A check that fails when there was too much output to keep.
    pub(super) fn whole(&self, title: &str) -> Option<Check> {
        let lost = format!("{} bytes beyond the first {MOST_OUTPUT} were not kept", self.forgotten);
        (self.forgotten > 0).then(|| Check::fail(format!("{title}: output is kept"), lost))
    }
}

/// A moment of the time line.
pub(super) fn moment(time: Time, kind: MomentKind, subject: &str, text: &str) -> Moment {
    Moment { time, kind, subject: subject.to_owned(), text: text.to_owned() }
}

/// Puts the findings into the time line, and all of it into order.
pub(super) fn add_findings(outcome: &mut Outcome) {
    for finding in outcome.findings.iter().take(MOST_MOMENTS) {
        let text = format!("[{}] {}", finding.rule, finding.message);
        outcome.timeline.push(moment(finding.time, MomentKind::Finding, &finding.device, &text));
    }
    outcome.timeline.sort_by_key(|moment| moment.time);
}

/// `command CREATE_TX_QUEUE (queue_id 1, status 1)`.
fn describe(event: &DeviceEvent) -> String {
    let kind = format!("{:?}", event.kind).to_lowercase();
    let fields: Vec<String> = event.fields.iter().map(|(name, value)| format!("{name} {value:#x}")).collect();
    let text = format!("{kind} {}", event.name);
    if fields.is_empty() { text } else { format!("{text} ({})", fields.join(", ")) }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    text.is_empty() || bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// SIGKILL.
const KILL: i32 = 9;
/// A guest that says something for ever must not fill the host's memory.
const MOST_OUTPUT: usize = 16 << 20;
const MOST_MOMENTS: usize = 10_000;
/// What a step may take if it does not say so itself.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(600);
/// The same for a step that waits.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
