//! A lab made of paper: programs are lists of what happens when.

use std::collections::BTreeMap;

use nicvisor_core::fault::{Fault, FaultPoints};
use nicvisor_core::pci::Slot;
use nicvisor_core::{DeviceEvent, Duration, EventKind, EventKinds, Finding, Time};

use crate::lab::{
    EndingKind, GuestCommand, Job, Lab, LabError, LabEvent, LedgerSnapshot, PortSizes, PortTraffic,
};
use crate::model::LinkSpec;

/// What a program of the paper guest does.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Says(&'static str),
    Exits(i32),
    Counts(&'static str, u64),
    Sends(u64),
    Device(&'static str),
    Logs(&'static str),
    Trouble(&'static str),
    Panics(&'static str),
    Interrupted,
}

/// Microseconds after its start, and what happens.
pub(super) type Program = &'static [(u64, Act)];

#[derive(Default)]
pub(super) struct Paper {
    pub(super) now: Time,
    pub(super) next_job: u64,
    /// What is to come, by time and in order.
    pub(super) future: BTreeMap<(Time, u64), (Job, Act)>,
    /// Programs by a part of their command line.
    pub(super) programs: Vec<(&'static str, Program)>,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) sizes: Vec<PortSizes>,
    pub(super) findings: Vec<Finding>,
    pub(super) ledger: LedgerSnapshot,
    pub(super) log: String,
    /// What is in the kernel's log and not on its console.
    pub(super) notes: &'static str,
    pub(super) sent: u64,
    pub(super) watched: EventKinds,
    /// Everything that was asked of the lab.
    pub(super) asked: Vec<String>,
}

impl Lab for Paper {
    fn now(&self) -> Time {
        self.now
    }

    fn spawn(&mut self, guest: usize, command: &GuestCommand) -> Job {
        self.next_job += 1;
        let job = Job(self.next_job);
        let line = command.argv.join(" ");
        let namespace = command.namespace.as_deref().unwrap_or("-");
        self.asked.push(format!("{guest} {namespace} {line}"));
        let program = self.programs.iter().find(|(part, _)| line.contains(part));
        let acts = program.map_or(&[(1, Act::Exits(0))][..], |(_, program)| program);
        for (number, (after, act)) in acts.iter().enumerate() {
            let time = self.now + Duration::from_micros(*after);
            self.future.insert((time, job.0 << 16 | number as u64), (job, act.clone()));
        }
        job
    }

    fn signal(&mut self, job: Job, signal: i32) {
        self.asked.push(format!("signal {} {signal}", job.0));
        self.future.retain(|_, (other, _)| *other != job);
        self.future.insert((self.now, job.0 << 16), (job, Act::Exits(128 + signal)));
    }

    fn advance(&mut self, until: Time) -> Result<Vec<LabEvent>, LabError> {
        let next = self.future.first_key_value().map(|(key, _)| *key);
        let Some(key) = next.filter(|(time, _)| *time <= until) else {
            self.now = self.now.max(until);
            return Ok(Vec::new());
        };
        let (job, act) = self.future.remove(&key).unwrap();
        self.now = self.now.max(key.0);
        Ok(vec![match act {
            Act::Says(text) => LabEvent::Output { job, error: false, data: text.into() },
            Act::Exits(status) => LabEvent::Exited { job, status },
            Act::Trouble(text) => LabEvent::Trouble { guest: 0, text: text.into() },
            Act::Device(name) => LabEvent::Device {
                device: "gve0".into(),
                time: self.now,
                event: DeviceEvent::new(EventKind::State, name),
            },
            Act::Panics(message) => {
                let evidence = "CPU 0: somewhere".into();
                return Err(LabError {
                    kind: EndingKind::Panic,
                    guest: 0,
                    message: message.into(),
                    evidence,
                });
            }
            Act::Interrupted => {
                let (message, evidence) = ("interrupted".into(), String::new());
                return Err(LabError { kind: EndingKind::Interrupted, guest: 0, message, evidence });
            }
            Act::Counts(name, count) => {
                *self.counters.entry(name.into()).or_default() += count;
                return Ok(Vec::new());
            }
            Act::Sends(count) => {
                self.sent += count;
                return Ok(Vec::new());
            }
            Act::Logs(text) => {
                self.log.push_str(text);
                return Ok(Vec::new());
            }
        }])
    }

    fn fault_points(&self, device: &str) -> Result<FaultPoints, String> {
        if device == "gve0" { Ok(FaultPoints::default()) } else { Err(format!("there is no {device}")) }
    }

    fn watch(&mut self, kinds: EventKinds) {
        self.watched = kinds;
    }

    fn inject(&mut self, device: &str, fault: &Fault) -> Result<(), String> {
        self.asked.push(format!("inject {device} {}", serde_json::to_value(fault).unwrap()));
        Ok(())
    }

    fn counters(&self) -> Vec<(String, u64)> {
        self.counters.iter().map(|(name, value)| (name.clone(), *value)).collect()
    }

    fn traffic(&self) -> Vec<PortTraffic> {
        vec![PortTraffic { port: "gve0".into(), sent_frames: self.sent, ..PortTraffic::default() }]
    }

    fn sizes(&self) -> Vec<PortSizes> {
        self.sizes.clone()
    }

    fn findings(&mut self) -> Vec<Finding> {
        self.findings.clone()
    }

    fn log(&self, _guest: usize) -> String {
        self.log.clone()
    }

    fn whole_log(&mut self, guest: usize) -> String {
        self.notes.to_owned() + &self.log(guest)
    }

    fn ledger(&self) -> LedgerSnapshot {
        self.ledger.clone()
    }

    fn unplug(&mut self, device: &str) -> Result<(), String> {
        self.asked.push(format!("unplug {device}"));
        Ok(())
    }

    fn plug(&mut self, device: &str, slot: Option<Slot>) -> Result<(), String> {
        self.asked.push(format!("plug {device} {slot:?}"));
        match slot {
            Some(Slot::HOST_BRIDGE) => Err("that slot is taken".into()),
            _ => Ok(()),
        }
    }

    fn set_port(&mut self, port: &str, up: bool) -> Result<(), String> {
        self.asked.push(format!("port {port} {up}"));
        Ok(())
    }

    fn set_link(&mut self, link: &str, up: bool) -> Result<(), String> {
        self.asked.push(format!("link {link} {up}"));
        Ok(())
    }

    fn configure_link(&mut self, link: &str, settings: &LinkSpec) -> Result<(), String> {
        self.asked.push(format!("link {link} loss {:?}", settings.loss));
        Ok(())
    }

    fn set_capture(&mut self, on: bool) {
        self.asked.push(format!("capture {on}"));
    }
}
