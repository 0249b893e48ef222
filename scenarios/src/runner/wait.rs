//! Waiting.

use std::collections::BTreeMap;

use nicvisor_core::{Duration, Time};

use super::branch::Needs;
use super::kernel_log::KernelLog;
use super::measure::Before;
use super::title::waited_for;
use super::world::World;
use crate::judge::{counter_value, judge_run};
use crate::lab::Job;
use crate::model::{Statuses, Wait};
use crate::outcome::Check;

/// Something that is waited for.
pub(super) struct Waiting<'a> {
    wait: &'a Wait,
    began: Time,
    /// Counters when the wait began.
    before: Vec<(String, u64)>,
    /// What reads the kernel's log, where that is waited for, and since when.
    log: Option<(Job, Time)>,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(wait: &'a Wait, world: &mut World<'a>) -> Waiting<'a> {
        let (began, before) = (world.lab.now(), world.lab.counters());
        let mut waiting = Waiting { wait, began, before, log: None };
        waiting.follow_log(world);
        waiting
    }

    fn follow_log(&mut self, world: &mut World<'a>) {
        if let Some(text) = &self.wait.log {
            self.log = Some((world.follow_log(self.guest(world), text), world.lab.now()));
        }
    }

    /// The checks that go with it once it has happened.
    pub(super) fn poll(&mut self, world: &mut World<'a>) -> Option<Vec<Check>> {
        if let Some((job, since)) = self.log {
            return self.poll_log(job, since, world).then(Vec::new);
        }
        let wait = self.wait;
        let name = wait.job.as_ref().map(|name| name.get_ref().as_str());
        match name {
            Some(name) if wait.output.is_none() => judge_job(name, world),
            _ => self.has_happened(name.and_then(|name| world.named_job(name)), world).then(Vec::new),
        }
    }

    fn has_happened(&self, job: Option<Job>, world: &World<'a>) -> bool {
        let wait = self.wait;
        if let Some(output) = &wait.output {
            return world.has_output(output, job);
        }
        if let Some(event) = &wait.event {
            return world.watches().seen(event) >= event.count;
        }
        if let Some(frames) = &wait.frames {
            let from = frames.from.as_ref().map_or("", |port| port.get_ref());
            return self.sent(from, world) >= frames.count;
        }
        if let Some(counter) = &wait.counter {
            let name = counter.name.get_ref();
            let now = counter_value(name, &world.lab.counters()).unwrap_or(0);
            let before = counter_value(name, &self.before).unwrap_or(0);
            return match (counter.at_least, counter.more) {
                (Some(bound), _) => now >= bound,
                (None, more) => now >= before + more.unwrap_or(0),
            };
        }
        wait.time.is_none_or(|time| world.lab.now() >= self.began + time.0)
    }

    /// Whether the kernel's log has the text. The console may have it where no program can run any more.
    fn poll_log(&mut self, job: Job, since: Time, world: &mut World<'a>) -> bool {
        let text = self.wait.log.as_deref().unwrap_or_default();
        let found = world.followed_log(job).is_some_and(KernelLog::has_it)
            || world.lab.log(self.guest(world)).contains(text);
        let ended = world.followed_log(job).is_some_and(KernelLog::has_ended);
        let again = ended && world.lab.now() >= since + LOG_INTERVAL;
        if found || again {
            world.unfollow_log(job);
        }
        if again && !found {
            self.follow_log(world);
        }
        found
    }

    /// Frames that `port` (all of them if empty) has sent since the wait began.
    fn sent(&self, port: &str, world: &World<'_>) -> u64 {
        let mut sent = 0;
        for traffic in world.lab.traffic() {
            if port.is_empty() || crate::vocabulary::matches(port, &traffic.port) {
                let name = format!("link.{}.sent_frames", traffic.port);
                sent += traffic.sent_frames
                    - counter_value(&name, &self.before).unwrap_or(0).min(traffic.sent_frames);
            }
        }
        sent
    }

    /// Says what was waited for, and what happened instead.
    pub(super) fn what_happened(&self, world: &World<'_>) -> String {
        let mut text = format!("{} did not come about", waited_for(self.wait));
        if let Some(counter) = &self.wait.counter {
            let value = counter_value(counter.name.get_ref(), &world.lab.counters());
            text.push_str(
                &value.map_or("; there is no such counter".into(), |value| format!("; it is {value}")),
            );
        }
        if let Some(frames) = &self.wait.frames {
            let from = frames.from.as_ref().map_or("", |port| port.get_ref());
            text.push_str(&format!("; {} came", self.sent(from, world)));
        }
        text.push_str("\nmeanwhile: ");
        text.push_str(&self.changes(world));
        if let Some(event) = &self.wait.event {
            let seen = world.watches().seen(event);
            let others = world.watches().others_seen(event);
            text.push_str(&format!(
                "\nit came {seen} times; of its kind came {}",
                some_of(&others, "nothing")
            ));
        }
        if let Some(log) = self.log.and_then(|(job, _)| world.followed_log(job)) {
            text.push_str(&format!("\nthe log ends with\n{}", log.last_lines()));
        }
        if let Some(line) = world.last_output() {
            text.push_str(&format!("\nthe last output is {line:?}"));
        }
        text
    }

    /// The counters that have grown, some of each device and port.
    fn changes(&self, world: &World<'_>) -> String {
        let mut of_each: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in world.lab.counters() {
            let before = counter_value(&name, &self.before).unwrap_or(0);
            let (device, _) = name.rsplit_once('.').unwrap_or((&name, ""));
            // The harness speaks with the guest all the time.
            if value > before && device != AGENT {
                of_each.entry(device.to_owned()).or_default().push(format!("{name} +{}", value - before));
            }
        }
        match of_each.is_empty() {
            true => "no counter changed".into(),
            false => of_each.values().map(|all| some_of(all, "")).collect::<Vec<_>>().join("; "),
        }
    }

    /// The guest whose log is waited for.
    fn guest(&self, world: &World<'_>) -> usize {
        let name = self.wait.guest.as_ref().map(|name| name.get_ref().as_str());
        world.scenario.guest_index(name).unwrap_or(0)
    }

    pub(super) fn needs(&self) -> Needs {
        let wait = self.wait;
        let polling = match wait.log {
            Some(_) => Some(LOG_INTERVAL),
            None => (wait.frames.is_some() || wait.counter.is_some()).then_some(COUNTER_INTERVAL),
        };
        Needs { deadline: wait.time.map(|time| self.began + time.0), polling }
    }
}

/// The checks of a background command that has ended; `None` while it runs.
fn judge_job(name: &str, world: &mut World<'_>) -> Option<Vec<Check>> {
    let (job, step, stopped) = world.named(name)?;
    let result = world.job(job).filter(|state| state.ended)?.result.clone();
    let mut step = step.clone();
    // A command that was told to end ends with the signal's status.
    if stopped && step.status.is_none() {
        step.status = Some(Statuses(vec![result.status]));
    }
    let mut checks = judge_run(&step, name, &result);
    checks.extend(Before::default().measure(&step, name, Some(&result.stdout), world));
    Some(checks)
}

fn some_of(all: &[String], none: &str) -> String {
    match all.len() {
        0 => none.to_owned(),
        count if count <= MOST_NAMED => all.join(", "),
        count => format!("{}, and {} more", all[..MOST_NAMED].join(", "), count - MOST_NAMED),
    }
}

/// The device that carries what the harness and the guest's agent say.
const AGENT: &str = "agent";
const MOST_NAMED: usize = 8;
/// How often counters are looked at, in virtual time.
const COUNTER_INTERVAL: Duration = Duration::from_micros(100);
/// The same for a kernel's console, which is longer.
const LOG_INTERVAL: Duration = Duration::from_millis(10);
