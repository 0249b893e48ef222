//! One step under way.

use nicvisor_core::{Duration, Time};

use super::branch::{Branch, Needs};
use super::measure::Before;
use super::title::title;
use super::wait::Waiting;
use super::world::{STEP_TIMEOUT, WAIT_TIMEOUT, World};
use super::{CommandResult, Stop};
use crate::judge::{judge_run, judge_stream};
use crate::lab::{GuestCommand, Job};
use crate::model::{CaptureSwitch, LinkChange, LinkSpec, Step, Stream};
use crate::outcome::{Check, MomentKind};

/// A step that has begun.
pub(super) struct Activity<'a> {
    step: &'a Step,
    title: String,
    began: Time,
    deadline: Option<Time>,
    /// Counters and sizes when it (or its present repetition) began, if it measures what it adds to them.
    before: Before,
    checks: Vec<Check>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// Commands that are waited for, and how often they are to be done again.
    Commands {
        jobs: Vec<Job>,
        again: u32,
    },
    Wait(Waiting<'a>),
    Branches(Vec<Branch<'a>>),
    /// Everything was done at once.
    Nothing,
}

impl<'a> Activity<'a> {
    pub(super) fn start(step: &'a Step, world: &mut World<'a>) -> Result<Activity<'a>, Stop> {
        let title = title(step);
        world.begin(&title);
        let began = world.lab.now();
        let before = Before::of(step, world);
        let mut activity = Activity {
            step,
            title,
            began,
            deadline: timeout(step).map(|timeout| began + timeout),
            before,
            checks: Vec::new(),
            kind: Kind::Nothing,
        };
        activity.kind = activity.begin(world);
        Ok(activity)
    }

    fn begin(&mut self, world: &mut World<'a>) -> Kind<'a> {
        let step = self.step;
        if let Some(name) = &step.background {
            let job = start_commands(step, world).into_iter().next();
            job.into_iter().for_each(|job| world.name_job(name.get_ref(), job, step));
        } else if step.run.is_some() || step.stream.is_some() {
            let again = step.repeat.as_ref().map_or(1, |repeat| *repeat.get_ref()).saturating_sub(1);
            return Kind::Commands { jobs: start_commands(step, world), again };
        } else if let Some(wait) = &step.wait {
            return Kind::Wait(Waiting::new(wait.get_ref(), world));
        } else if let Some(stop) = &step.stop {
            let stop = stop.get_ref();
            match world.stop_job(stop.job.get_ref(), stop.signal.number()) {
                true => {}
                false => self.checks.push(Check::fail(&self.title, "it was not started")),
            }
        } else if let Some(link) = &step.link {
            let result = change_link(link.get_ref(), world);
            world.note(MomentKind::Link, &self.title, "");
            self.checks.push(Check::of(&self.title, result));
        } else if let Some(fault) = &step.fault {
            let fault = fault.get_ref();
            let device = fault.device.get_ref();
            let result = fault.faults().iter().try_for_each(|fault| world.lab.inject(device, fault));
            world.note(MomentKind::Fault, device, &self.title);
            self.checks.push(Check::of(&self.title, result));
        } else if let Some(unplug) = &step.unplug {
            let device = unplug.get_ref().device.get_ref();
            let result = world.lab.unplug(device);
            world.note(MomentKind::Device, device, "unplugged");
            self.checks.push(Check::of(&self.title, result));
        } else if let Some(plug) = &step.plug {
            let plug = plug.get_ref();
            let device = plug.device.get_ref();
            let result = world.lab.plug(device, plug.slot.map(|slot| slot.0));
            world.note(MomentKind::Device, device, "plugged in");
            self.checks.push(Check::of(&self.title, result));
        } else if let Some(capture) = step.capture {
            world.lab.set_capture(capture == CaptureSwitch::Start);
        } else if !step.parallel.is_empty() {
            let one = |step| Branch::new(std::slice::from_ref(step));
            return Kind::Branches(step.parallel.iter().map(one).collect());
        } else if !step.sequence.is_empty() {
            return Kind::Branches(vec![Branch::new(&step.sequence)]);
        }
        Kind::Nothing
    }

    /// Goes on as far as it can; returns whether that is to the end.
    pub(super) fn poll(&mut self, world: &mut World<'a>) -> Result<bool, Stop> {
        let done = match &mut self.kind {
            Kind::Nothing => {
                self.measure(&[], world);
                true
            }
            Kind::Wait(waiting) => match waiting.poll(world) {
                Some(checks) => {
                    self.checks.extend(checks);
                    self.measure(&[], world);
                    true
                }
                None => false,
            },
            Kind::Branches(branches) => {
                let mut all = true;
                for branch in branches {
                    all &= branch.poll(world)?;
                }
                if all {
                    self.measure(&[], world);
                }
                all
            }
            Kind::Commands { .. } => self.poll_commands(world),
        };
        if done {
            world.end(&self.title, self.began, std::mem::take(&mut self.checks));
            return Ok(true);
        }
        if self.deadline.is_some_and(|deadline| world.lab.now() >= deadline) {
            return Err(Stop::Failed(self.timed_out(world)));
        }
        Ok(false)
    }

    fn poll_commands(&mut self, world: &mut World<'a>) -> bool {
        let Kind::Commands { jobs, again } = &self.kind else { return true };
        let (jobs, again) = (jobs.clone(), *again);
        if !jobs.iter().all(|job| world.job(*job).is_some_and(|state| state.ended)) {
            return false;
        }
        let results: Vec<CommandResult> =
            jobs.iter().filter_map(|job| world.job(*job).map(|state| state.result.clone())).collect();
        self.checks.extend(jobs.iter().filter_map(|job| world.job(*job)?.whole(&self.title)));
        jobs.iter().for_each(|job| world.forget(*job));
        self.judge(&results);
        self.measure(&results, world);
        if again == 0 {
            return true;
        }
        self.before = Before::of(self.step, world);
        self.kind = Kind::Commands { jobs: start_commands(self.step, world), again: again - 1 };
        false
    }

    fn judge(&mut self, results: &[CommandResult]) {
        let checks = match (&self.step.stream, results) {
            (Some(stream), _) => {
                judge_stream(stream.get_ref(), &self.title, &results.iter().collect::<Vec<_>>())
            }
            (None, [result]) => judge_run(self.step, &self.title, result),
            (None, _) => Vec::new(),
        };
        self.checks.extend(checks);
    }

    /// Keeps what the step measures. The output is that of the command, or of a stream's receiver.
    fn measure(&mut self, results: &[CommandResult], world: &mut World<'a>) {
        // What runs in the background is measured when it has ended.
        if self.step.background.is_some() {
            return;
        }
        let output = results.first().map(|result| result.stdout.as_slice());
        self.checks.extend(self.before.measure(self.step, &self.title, output, world));
    }

    fn timed_out(&self, world: &World<'a>) -> Check {
        let took = world.lab.now().since(self.began);
        let name = format!("{} within {:?} of guest time", self.title, took);
        let Kind::Wait(waiting) = &self.kind else {
            let mut text = "it has not ended".to_owned();
            if let Some(line) = world.last_output() {
                text.push_str(&format!("; the last output is {line:?}"));
            }
            return Check::fail(name, text);
        };
        Check::fail(name, waiting.what_happened(world))
    }

    pub(super) fn needs(&self) -> Needs {
        let own = match &self.kind {
            Kind::Branches(branches) => branches.iter().map(Branch::needs).fold(Needs::default(), Needs::and),
            Kind::Wait(waiting) => waiting.needs(),
            Kind::Commands { .. } | Kind::Nothing => Needs::default(),
        };
        own.and(Needs { deadline: self.deadline, polling: None })
    }
}

/// How long a step may take. What consists of steps leaves that to them.
fn timeout(step: &Step) -> Option<Duration> {
    let given = step.timeout.map(|timeout| timeout.0);
    if !step.parallel.is_empty() || !step.sequence.is_empty() {
        return given;
    }
    let usual = match step.wait.as_ref().map(|wait| wait.get_ref().time) {
        Some(Some(time)) => time.0 + WAIT_TIMEOUT,
        Some(None) => WAIT_TIMEOUT,
        None => STEP_TIMEOUT,
    };
    Some(given.unwrap_or(usual))
}

fn start_commands(step: &Step, world: &mut World<'_>) -> Vec<Job> {
    let scenario = world.scenario;
    if let Some(script) = &step.run {
        let namespace = step.namespace.as_ref().map(|name| name.get_ref().as_str());
        let guest = match namespace {
            Some(namespace) => scenario.namespace_guest(namespace),
            None => {
                scenario.guest_index(step.guest.as_ref().map(|name| name.get_ref().as_str())).unwrap_or(0)
            }
        };
        return vec![world.spawn(guest, &GuestCommand::shell(script.get_ref(), namespace))];
    }
    let Some(stream) = step.stream.as_ref().map(|stream| stream.get_ref()) else { return Vec::new() };
    stream_commands(stream)
        .iter()
        .map(|command| {
            let guest = scenario.namespace_guest(command.namespace.as_deref().unwrap_or_default());
            world.spawn(guest, command)
        })
        .collect()
}

/// Receiver first, so that the results stand in this order.
fn stream_commands(stream: &Stream) -> [GuestCommand; 2] {
    let common = [
        ("--port", stream.port.to_string()),
        ("--bytes", stream.bytes.0.to_string()),
        ("--seed", stream.seed.to_string()),
    ];
    let command = |words: &[&str], namespace: &String| GuestCommand {
        argv: words
            .iter()
            .map(|word| (*word).to_owned())
            .chain(common.iter().flat_map(|(option, value)| [(*option).to_owned(), value.clone()]))
            .collect(),
        namespace: Some(namespace.clone()),
    };
    let write = stream.write.0.to_string();
    [
        command(&["nicvisor-stream", "receive"], &stream.to),
        command(&["nicvisor-stream", "send", &stream.address, "--write", &write], &stream.from),
    ]
}

fn change_link(link: &LinkChange, world: &mut World<'_>) -> Result<(), String> {
    if let (Some(port), Some(up)) = (&link.port, link.up) {
        world.lab.set_port(port.get_ref(), up)?;
    }
    let Some(name) = link.name.as_ref().map(|name| name.get_ref()) else { return Ok(()) };
    if link.set != LinkSpec::default() {
        world.lab.configure_link(name, &link.set)?;
    }
    link.up.map_or(Ok(()), |up| world.lab.set_link(name, up))
}
