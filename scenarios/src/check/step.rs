//! Steps.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;

use toml::Spanned;

use super::{DEFAULT_LINK, LONGEST_NAME, check_bound, check_guest, check_word, unknown};
use crate::json_path;
use crate::model::{CaptureSwitch, LinkChange, LinkSpec, Measure, Scenario, Step, Stream, Wait};
use crate::tree::Wrong;

pub(super) fn check(scenario: &Scenario) -> Result<(), Wrong> {
    if scenario.steps.is_empty() {
        return Err(Wrong::new(0..0, "the scenario does nothing", "add a [[step]]"));
    }
    let mut checker = Checker { scenario, jobs: BTreeSet::new(), captures: false };
    checker.steps(&scenario.steps, 0)
}

/// The names under which measurements are kept.
pub(super) fn measured(steps: &[Spanned<Step>]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for step in steps {
        let step = step.get_ref();
        names.extend(step.measure.keys().map(String::as_str));
        names.extend(measured(&step.parallel));
        names.extend(measured(&step.sequence));
    }
    names
}

struct Checker<'a> {
    scenario: &'a Scenario,
    /// Names of background commands that have been started.
    jobs: BTreeSet<&'a str>,
    /// Whether frames are captured.
    captures: bool,
}

impl<'a> Checker<'a> {
    fn steps(&mut self, steps: &'a [Spanned<Step>], depth: usize) -> Result<(), Wrong> {
        for step in steps {
            if depth > DEEPEST {
                return Err(Wrong::new(step.span(), "steps are nested too deeply", "flatten them"));
            }
            self.step(step.get_ref(), &step.span(), depth)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &'a Step, span: &Range<usize>, depth: usize) -> Result<(), Wrong> {
        let kinds = kinds(step);
        if kinds.len() > 1 {
            let message = format!("a step does one thing; this one has {}", kinds.join(" and "));
            let help = "split it, or put the parts into parallel = [...]";
            return Err(Wrong::new(span.clone(), message, help));
        }
        if kinds.is_empty() && step.measure.is_empty() {
            let help = "add run = \"COMMAND\", or one of stream, parallel, sequence, wait, stop, link, fault, unplug, \
                plug, capture, measure";
            return Err(Wrong::new(span.clone(), "the step does nothing", help));
        }
        check_modifiers(step, span)?;
        check_guest(self.scenario, step.guest.as_ref())?;
        self.namespace(step.namespace.as_ref().map(|name| (name.get_ref().as_str(), name.span())))?;
        if let Some(stream) = &step.stream {
            self.stream(stream.get_ref(), &stream.span())?;
        }
        if let Some(wait) = &step.wait {
            self.wait(wait.get_ref(), &wait.span())?;
        }
        if let Some(stop) = &step.stop {
            self.job(&stop.get_ref().job)?;
        }
        if let Some(link) = &step.link {
            self.link(link.get_ref(), &link.span())?;
        }
        if let Some(fault) = &step.fault
            && fault.get_ref().faults().len() != 1
        {
            let help = "give one of command, completion, override, event and lift";
            return Err(Wrong::new(fault.span(), "a fault step has exactly one fault", help));
        }
        if let Some(switch) = step.capture {
            self.capture(switch, span)?;
        }
        for (name, measure) in &step.measure {
            check_measure(step, name, measure)?;
        }
        check_json(step)?;
        if let Some(name) = &step.background {
            check_word(name.span(), "a background command", name.get_ref(), LONGEST_NAME)?;
            if !self.jobs.insert(name.get_ref()) {
                let message = format!("a background command {} was started before", name.get_ref());
                return Err(Wrong::new(name.span(), message, "choose another name"));
            }
        }
        self.steps(&step.parallel, depth + 1)?;
        self.steps(&step.sequence, depth + 1)
    }

    fn namespace(&self, name: Option<(&str, Range<usize>)>) -> Result<(), Wrong> {
        let Some((name, span)) = name else { return Ok(()) };
        if self.scenario.namespaces.contains_key(name) {
            return Ok(());
        }
        let known = self.scenario.namespaces.keys().map(String::as_str);
        let mut wrong = unknown(span, "namespace", name, known);
        if self.scenario.namespaces.is_empty() {
            wrong.help = format!("declare it as [namespace.{name}]");
        }
        Err(wrong)
    }

    fn stream(&self, stream: &Stream, span: &Range<usize>) -> Result<(), Wrong> {
        self.namespace(Some((&stream.from, span.clone())))?;
        self.namespace(Some((&stream.to, span.clone())))?;
        if stream.from == stream.to {
            let message = "the stream would not leave its namespace";
            return Err(Wrong::new(span.clone(), message, "name two namespaces in from and to"));
        }
        if stream.address.parse::<IpAddr>().is_err() {
            let message = format!("{:?} is not an IP address", stream.address);
            return Err(Wrong::new(
                span.clone(),
                message,
                "address is the receiver's, without prefix length",
            ));
        }
        for (name, size) in [("bytes", stream.bytes), ("write", stream.write)] {
            if size.0 == 0 {
                return Err(Wrong::new(
                    span.clone(),
                    format!("{name} is 0"),
                    "a stream has at least one byte",
                ));
            }
        }
        Ok(())
    }

    fn wait(&self, wait: &Wait, span: &Range<usize>) -> Result<(), Wrong> {
        let conditions = [
            ("job", wait.job.is_some() && wait.output.is_none()),
            ("output", wait.output.is_some()),
            ("log", wait.log.is_some()),
            ("event", wait.event.is_some()),
            ("frames", wait.frames.is_some()),
            ("counter", wait.counter.is_some()),
            ("time", wait.time.is_some()),
        ];
        let given: Vec<&str> = conditions.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        if given.len() != 1 {
            let message = match given.len() {
                0 => "nothing is waited for".into(),
                _ => format!("one thing is waited for at a time, not {}", given.join(" and ")),
            };
            let help = "give one of job, output, log, event, frames, counter and time";
            return Err(Wrong::new(span.clone(), message, help));
        }
        if wait.guest.is_some() && wait.log.is_none() {
            return Err(Wrong::new(span.clone(), "guest goes with log", "leave it out"));
        }
        check_guest(self.scenario, wait.guest.as_ref())?;
        if let Some(counter) = &wait.counter
            && counter.at_least.is_some() == counter.more.is_some()
        {
            let message = "a counter is waited for by at_least or by more";
            return Err(Wrong::new(counter.name.span(), message, "give one of the two"));
        }
        wait.job.as_ref().map_or(Ok(()), |job| self.job(job))
    }

    fn capture(&mut self, switch: CaptureSwitch, span: &Range<usize>) -> Result<(), Wrong> {
        let on = switch == CaptureSwitch::Start;
        if on == self.captures {
            let (message, help) = match on {
                true => ("frames are captured already", "add capture = \"stop\" before"),
                false => ("no frames are captured here", "add capture = \"start\" before"),
            };
            return Err(Wrong::new(span.clone(), message, help));
        }
        self.captures = on;
        Ok(())
    }

    fn job(&self, name: &Spanned<String>) -> Result<(), Wrong> {
        if self.jobs.contains(name.get_ref().as_str()) {
            return Ok(());
        }
        let mut wrong = unknown(name.span(), "background command", name.get_ref(), self.jobs.iter().copied());
        wrong.message.push_str(" that was started before");
        if self.jobs.is_empty() {
            wrong.help = format!("start it with run = ... and background = \"{}\"", name.get_ref());
        }
        Err(wrong)
    }

    fn link(&self, link: &LinkChange, span: &Range<usize>) -> Result<(), Wrong> {
        if link.name.is_some() == link.port.is_some() {
            return Err(Wrong::new(span.clone(), "a link or a port is changed", "give one of name and port"));
        }
        if link.port.is_some() && link.set != LinkSpec::default() {
            let message = "a port has no settings of its own";
            return Err(Wrong::new(span.clone(), message, "name its link to change its settings"));
        }
        if link.up.is_none() && link.set == LinkSpec::default() {
            return Err(Wrong::new(span.clone(), "nothing is changed", "add up = false, or set = { ... }"));
        }
        let Some(name) = &link.name else { return Ok(()) };
        let of_nics = self.scenario.nics.iter().filter_map(|nic| nic.get_ref().get("link")?.as_str());
        let mut names: BTreeSet<&str> =
            self.scenario.links.keys().map(String::as_str).chain(of_nics).collect();
        names.insert(DEFAULT_LINK);
        if names.contains(name.get_ref().as_str()) {
            return Ok(());
        }
        Err(unknown(name.span(), "link", name.get_ref(), names.iter().copied()))
    }
}

fn kinds(step: &Step) -> Vec<&'static str> {
    [
        ("run", step.run.is_some()),
        ("stream", step.stream.is_some()),
        ("parallel", !step.parallel.is_empty()),
        ("sequence", !step.sequence.is_empty()),
        ("wait", step.wait.is_some()),
        ("stop", step.stop.is_some()),
        ("link", step.link.is_some()),
        ("fault", step.fault.is_some()),
        ("unplug", step.unplug.is_some()),
        ("plug", step.plug.is_some()),
        ("capture", step.capture.is_some()),
    ]
    .into_iter()
    .filter(|(_, given)| *given)
    .map(|(name, _)| name)
    .collect()
}

/// What only goes with some kinds of steps.
fn check_modifiers(step: &Step, span: &Range<usize>) -> Result<(), Wrong> {
    let with_run = [
        ("namespace", step.namespace.is_some()),
        ("guest", step.guest.is_some()),
        ("background", step.background.is_some()),
        ("status", step.status.is_some()),
        ("output_contains", !step.output_contains.is_empty()),
        ("output_lacks", !step.output_lacks.is_empty()),
        ("json", !step.json.is_empty()),
    ];
    if let (None, Some((name, _))) = (&step.run, with_run.iter().find(|(_, given)| *given)) {
        let help = "move it to a step with run";
        return Err(Wrong::new(span.clone(), format!("{name} goes with run"), help));
    }
    if let (Some(namespace), Some(_)) = (&step.namespace, &step.guest) {
        let message = "the guest is that of the namespace";
        return Err(Wrong::new(namespace.span(), message, "leave out guest"));
    }
    let Some(repeat) = &step.repeat else { return Ok(()) };
    if !(1..=MOST_REPEATS).contains(repeat.get_ref()) {
        let message = format!("a step cannot be repeated {} times", repeat.get_ref());
        return Err(Wrong::new(repeat.span(), message, format!("use 1 to {MOST_REPEATS}")));
    }
    if (step.run.is_none() && step.stream.is_none()) || step.background.is_some() {
        let message = "only run (without background) and stream can be repeated";
        return Err(Wrong::new(repeat.span(), message, "leave out repeat"));
    }
    Ok(())
}

fn check_measure(step: &Step, name: &str, measure: &Spanned<Measure>) -> Result<(), Wrong> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit()) {
        let message = format!("{name:?} cannot be the name of a measurement");
        return Err(Wrong::new(measure.span(), message, "use letters, digits and _"));
    }
    let has_output = step.run.is_some() || step.stream.is_some();
    match measure.get_ref() {
        Measure::Json(_) if !has_output => {
            let help = "measure a counter = \"...\" here";
            Err(Wrong::new(measure.span(), "the step has no output to be measured", help))
        }
        Measure::Json(path) => check_path(path, measure.span()),
        Measure::Source(source) if !source.is_complete() => {
            let message = "it is not said what is measured";
            Err(Wrong::new(measure.span(), message, "give counter, or port and sizes"))
        }
        Measure::Source(source) if source.during && kinds(step).is_empty() => {
            let message = "nothing happens during the step";
            Err(Wrong::new(measure.span(), message, "measure in the step that does something"))
        }
        Measure::Source(_) => Ok(()),
    }
}

fn check_json(step: &Step) -> Result<(), Wrong> {
    for expectation in &step.json {
        let (json, span) = (expectation.get_ref(), expectation.span());
        check_path(&json.at, span.clone())?;
        if json.equals.is_none() && json.exists.is_none() && json.bound().is_empty() {
            let message = format!("nothing is expected at {}", json.at);
            return Err(Wrong::new(span, message, "add equals, at_least, at_most or exists"));
        }
        check_bound(span, &json.bound())?;
    }
    Ok(())
}

fn check_path(path: &str, span: Range<usize>) -> Result<(), Wrong> {
    json_path::pointer(path).map(drop).map_err(|message| {
        Wrong::new(span, message, "write it like /0/tso_max_size (RFC 6901) or 0.tso_max_size")
    })
}

const DEEPEST: usize = 8;
const MOST_REPEATS: u32 = 1000;
