//! What a scenario may name of the machine that it runs on.

use std::collections::BTreeMap;

use nicvisor_core::Time;
use nicvisor_core::fault::{Fault, FaultError, FaultPoints, FaultState};
use nicvisor_net::stats::PORT_COUNTERS;
use toml::Spanned;

use crate::check::unknown;
use crate::expression::{Expression, Relation};
use crate::model::{FaultStep, Measure, Scenario, Step};
use crate::source::LoadError;
use crate::tree::Wrong;

/// The names of rules, devices and counters.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    /// Ids of all rules.
    pub rules: Vec<String>,
    /// Devices of the scenario.
    pub devices: BTreeMap<String, KnownDevice>,
    /// Ports on links: the names under which they count.
    pub ports: Vec<String>,
}

/// What a scenario may name of a device.
#[derive(Clone, Debug, Default)]
pub struct KnownDevice {
    /// The names of its counters, without the device's.
    pub counters: Vec<String>,
    /// What faults and events can name.
    pub faults: FaultPoints,
}

impl Vocabulary {
    /// Whether all names in `scenario` are known.
    ///
    /// # Errors
    /// Points to the first that is not, and lists the known ones.
    pub fn check(&self, scenario: &Scenario) -> Result<(), LoadError> {
        self.check_all(scenario).map_err(|wrong| scenario.mistake(wrong.span, wrong.message, wrong.help))
    }

    fn check_all(&self, scenario: &Scenario) -> Result<(), Wrong> {
        let expect = &scenario.expect;
        let rules = [&expect.findings, &expect.allowed_findings, &expect.forbidden_findings];
        for rule in rules.into_iter().flatten() {
            if !self.rules.contains(rule.get_ref()) {
                let known = self.rules.iter().map(String::as_str);
                let mut wrong = unknown(rule.span(), "rule", rule.get_ref(), known);
                wrong.help = format!("{}; the rules are {}", wrong.help, self.rules.join(", "));
                return Err(wrong);
            }
        }
        for counter in &expect.counters {
            self.counter(&counter.get_ref().name, counter.span())?;
        }
        for frames in &expect.frames {
            self.port(&frames.get_ref().port, frames.span())?;
        }
        for relation in &expect.relations {
            // It has been parsed before; here only its names matter.
            let names = Relation::parse(relation.get_ref());
            for name in names.iter().flat_map(Relation::names).filter(|name| name.contains('.')) {
                self.counter(name, relation.span())?;
            }
        }
        for cell in scenario
            .tables
            .iter()
            .flat_map(|table| &table.get_ref().rows)
            .flat_map(|row| row.get_ref().iter().skip(1))
        {
            let names = Expression::parse(cell.get_ref());
            for name in names.iter().flat_map(Expression::names).filter(|name| name.contains('.')) {
                self.counter(name, cell.span())?;
            }
        }
        scenario.steps.iter().try_for_each(|step| self.step(scenario, step.get_ref()))
    }

    fn step(&self, scenario: &Scenario, step: &Step) -> Result<(), Wrong> {
        if let Some(port) = step.link.as_ref().and_then(|link| link.get_ref().port.as_ref()) {
            self.port(port.get_ref(), port.span())?;
        }
        if let Some(wait) = step.wait.as_ref().map(|wait| wait.get_ref()) {
            if let Some(counter) = &wait.counter {
                self.counter(&counter.name.get_ref().clone(), counter.name.span())?;
            }
            if let Some(port) = wait.frames.as_ref().and_then(|frames| frames.from.as_ref()) {
                self.port(port.get_ref(), port.span())?;
            }
            if let Some(event) = &wait.event {
                let points = self.device(event.device.get_ref(), event.device.span())?;
                let span = step.wait.as_ref().map_or(0..0, |wait| wait.span());
                event.pattern().resolve(&points.faults).map_err(|error| refused(span, &error))?;
            }
        }
        let unplugged = step.unplug.as_ref().map(|unplug| &unplug.get_ref().device);
        let plugged = step.plug.as_ref().map(|plug| &plug.get_ref().device);
        for device in unplugged.into_iter().chain(plugged) {
            self.device(device.get_ref(), device.span())?;
        }
        if let Some(fault) = &step.fault {
            let device = &fault.get_ref().device;
            let known = self.device(device.get_ref(), device.span())?;
            for one in fault.get_ref().faults() {
                // A state of its own takes what the device would take.
                let mut state = match one {
                    Fault::Lift(_) => all_faults(scenario, device.get_ref(), &known.faults),
                    _ => FaultState::default(),
                };
                let taken = state.inject(Time::ZERO, &known.faults, &one);
                taken.map_err(|error| refused(fault.span(), &error))?;
            }
        }
        for measure in step.measure.values() {
            let Measure::Source(source) = measure.get_ref() else { continue };
            source.counter.iter().try_for_each(|counter| self.counter(counter, measure.span()))?;
            source.port.iter().try_for_each(|port| self.port(port, measure.span()))?;
        }
        step.parallel.iter().chain(&step.sequence).try_for_each(|step| self.step(scenario, step.get_ref()))
    }

    fn device(&self, name: &str, span: std::ops::Range<usize>) -> Result<&KnownDevice, Wrong> {
        match self.devices.get(name) {
            Some(device) => Ok(device),
            None => Err(unknown(span, "device", name, self.devices.keys().map(String::as_str))),
        }
    }

    fn port(&self, pattern: &str, span: std::ops::Range<usize>) -> Result<(), Wrong> {
        match self.ports.iter().any(|port| matches(pattern, port)) {
            true => Ok(()),
            false => Err(unknown(span, "port", pattern, self.ports.iter().map(String::as_str))),
        }
    }

    fn counter(&self, pattern: &str, span: std::ops::Range<usize>) -> Result<(), Wrong> {
        let of_devices = self.devices.iter().flat_map(|(device, known)| {
            known.counters.iter().map(move |counter| format!("{device}.{counter}"))
        });
        let of_links =
            self.ports.iter().flat_map(|port| PORT_COUNTERS.map(|counter| format!("link.{port}.{counter}")));
        let known: Vec<String> = of_devices.chain(of_links).collect();
        match known.iter().any(|counter| matches(pattern, counter)) {
            true => Ok(()),
            false => Err(unknown(span, "counter", pattern, known.iter().map(String::as_str))),
        }
    }
}

/// A device's faults as if each step of the scenario had put in its own: what a step can lift.
fn all_faults(scenario: &Scenario, device: &str, points: &FaultPoints) -> FaultState {
    fn add(state: &mut FaultState, steps: &[Spanned<Step>], device: &str, points: &FaultPoints) {
        for step in steps.iter().map(Spanned::get_ref) {
            let fault = step.fault.as_ref().map(Spanned::get_ref);
            let own = fault.filter(|fault| fault.device.get_ref() == device).map(FaultStep::faults);
            for fault in own.into_iter().flatten().filter(|fault| !matches!(fault, Fault::Lift(_))) {
                // What is wrong with it is told at its own step.
                let _ = state.inject(Time::ZERO, points, &fault);
            }
            add(state, &step.parallel, device, points);
            add(state, &step.sequence, device, points);
        }
    }
    let mut state = FaultState::default();
    add(&mut state, &scenario.steps, device, points);
    state
}

fn refused(span: std::ops::Range<usize>, error: &FaultError) -> Wrong {
    Wrong::new(span, error.to_string(), "nicvisor faults KIND lists what can be named")
}

/// Whether `name` is what `pattern` asks for; `*` in it stands for digits.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    name.strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(after))
        .is_some_and(|middle| !middle.is_empty() && middle.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_digits() {
        assert!(matches("gve*.tx", "gve12.tx"));
        assert!(!matches("gve*.tx", "gve.tx"));
        assert!(!matches("gve*.tx", "gve0.tx_bytes"));
    }
}
