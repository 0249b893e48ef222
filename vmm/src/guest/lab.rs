//! Guests as scenarios see them.

use std::collections::BTreeMap;

use agent_protocol::{Channel, Command, JobId};
use nicvisor_core::fault::{Fault, FaultPoints};
use nicvisor_core::pci::Slot;
use nicvisor_core::{DeviceId, Duration, EventKinds, Finding, Time};
use nicvisor_net::network::{Change, Place, PortId, SharedMedium};
use scenarios::lab::{
    EndingKind, GuestCommand, Job, Lab, LabError, LabEvent, LedgerSnapshot, PortSizes, PortTraffic,
};
use scenarios::model::LinkSpec;

use super::lockstep::{self, Clocked, Turn};
use super::{Ending, Guest};
use crate::machine::Input;

/// One or two guests on one network and one clock.
pub struct GuestLab<'a> {
    guests: Vec<Member<'a>>,
    medium: SharedMedium,
}

/// A guest of the lab, and what it has to tell.
struct Member<'a> {
    index: usize,
    guest: &'a mut Guest,
    events: Vec<LabEvent>,
    /// Commands that have not ended.
    running: Vec<JobId>,
    /// How much of the guest's trouble has been told.
    trouble_told: usize,
    asleep: bool,
}

impl<'a> GuestLab<'a> {
    /// A lab of guests whose ports are on `medium`. Guests are counted in this order.
    pub fn new(guests: impl IntoIterator<Item = &'a mut Guest>, medium: SharedMedium) -> GuestLab<'a> {
        let member = |(index, guest)| Member {
            index,
            guest,
            events: Vec::new(),
            running: Vec::new(),
            trouble_told: 0,
            asleep: false,
        };
        GuestLab { guests: guests.into_iter().enumerate().map(member).collect(), medium }
    }

    /// The guests.
    pub fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.guests.iter().map(|member| &*member.guest)
    }

    /// The guest with the device, and the device there.
    fn device(&self, name: &str) -> Result<(usize, DeviceId), String> {
        let of = |member: &Member<'_>| {
            let machine = member.guest.machine();
            machine.devices().find(|id| machine.device_name(*id) == name).map(|id| (member.index, id))
        };
        self.guests.iter().find_map(of).ok_or_else(|| format!("there is no device {name}"))
    }

    fn port(&self, name: &str) -> Result<PortId, String> {
        let network = self.medium.network();
        network.ports().find(|port| network.port_name(*port) == name).ok_or_else(|| {
            let known: Vec<&str> = network.ports().map(|port| network.port_name(port)).collect();
            format!("there is no port {name}; there are {}", known.join(", "))
        })
    }

    fn link(&self, name: &str) -> Result<nicvisor_net::network::LinkId, String> {
        self.medium.network().find_link(name).ok_or_else(|| format!("there is no link {name}"))
    }

    /// What `dmesg` says in a guest; `None` if it does not come to that.
    fn ask_for_log(&mut self, guest: usize) -> Option<String> {
        let job = self.spawn(guest, &GuestCommand { argv: vec!["dmesg".into()], namespace: None });
        let deadline = self.now() + LOG_PATIENCE;
        let mut text = Vec::new();
        while self.now() < deadline {
            for event in self.advance(deadline).ok()? {
                match event {
                    LabEvent::Output { job: from, error: false, data } if from == job => {
                        text.extend_from_slice(&data);
                    }
                    LabEvent::Exited { job: ended, status } if ended == job => {
                        return (status == 0).then(|| String::from_utf8_lossy(&text).into_owned());
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// Lets something happen to a guest's machine.
    fn input(&mut self, guest: usize, input: Input) -> Result<(), String> {
        self.guests[guest].asleep = false;
        self.guests[guest].guest.input(input).map_err(|error| error.to_string())
    }

    /// Changes the network, and tells the devices whose ports it took `up` or down.
    fn change(&mut self, change: &Change, up: bool) {
        for port in self.medium.change(change) {
            for member in &mut self.guests {
                // A change that has happened is always possible.
                let _ = member.guest.input(Input::Link { port, up });
            }
        }
    }

    /// Each port of each device: its name, its device, and its number there.
    fn ports(&self) -> impl Iterator<Item = (&Guest, DeviceId, u16, PortId)> {
        self.guests().flat_map(|guest| {
            guest.machine().devices().flat_map(move |device| {
                let ports = guest.machine().device_ports(device);
                ports.iter().zip(0..).map(move |(port, number)| (guest, device, number, *port))
            })
        })
    }
}

impl Lab for GuestLab<'_> {
    fn now(&self) -> Time {
        self.guests().map(Guest::now).min().unwrap_or(Time::ZERO)
    }

    fn spawn(&mut self, guest: usize, command: &GuestCommand) -> Job {
        let Some(member) = self.guests.get_mut(guest) else { return Job(u64::MAX) };
        let id = member.guest.spawn(Command {
            argv: command.argv.clone(),
            netns: command.namespace.clone(),
            ..Command::default()
        });
        member.running.push(id);
        member.asleep = false;
        member.job(id)
    }

    fn signal(&mut self, job: Job, signal: i32) {
        if let Some(member) = self.guests.get_mut((job.0 >> 32) as usize) {
            member.guest.session().signal(JobId(job.0 as u32), signal);
            member.asleep = false;
        }
    }

    fn advance(&mut self, until: Time) -> Result<Vec<LabEvent>, LabError> {
        self.guests.iter_mut().for_each(|member| member.asleep = false);
        if let Err((guest, ending)) = lockstep::advance(&mut self.guests, until) {
            return Err(lab_error(guest, &ending));
        }
        Ok(self.guests.iter_mut().flat_map(|member| std::mem::take(&mut member.events)).collect())
    }

    fn asleep_until(&self) -> Option<Time> {
        if !self.guests.iter().all(|member| member.asleep) {
            return None;
        }
        self.guests().filter_map(Guest::next_event).min()
    }

    fn fault_points(&self, device: &str) -> Result<FaultPoints, String> {
        let (guest, id) = self.device(device)?;
        let device = self.guests[guest].guest.machine().device(id);
        Ok(device.map_or(FaultPoints::default(), |device| device.fault_points()))
    }

    fn watch(&mut self, kinds: EventKinds) {
        self.guests.iter_mut().for_each(|member| member.guest.listen(kinds));
    }

    fn inject(&mut self, device: &str, fault: &Fault) -> Result<(), String> {
        let (guest, _) = self.device(device)?;
        self.guests[guest].asleep = false;
        self.guests[guest].guest.inject(device, fault).map_err(|error| error.to_string())
    }

    fn counters(&self) -> Vec<(String, u64)> {
        // Each guest tells of all links: they share the network.
        let own = |guest: &Guest| guest.device_counters();
        let mut counters: Vec<_> = self.guests().flat_map(own).collect();
        counters.extend(super::link_counters(&self.medium.network()));
        counters
    }

    fn traffic(&self) -> Vec<PortTraffic> {
        let network = self.medium.network();
        let of = |port| {
            let counters = network.counters(port)?;
            Some(PortTraffic {
                port: network.port_name(port).to_owned(),
                sent_frames: counters.sent_frames,
                sent_bytes: counters.sent_bytes,
                received_frames: counters.received_frames,
                received_bytes: counters.received_bytes,
            })
        };
        network.ports().filter_map(of).collect()
    }

    fn sizes(&self) -> Vec<PortSizes> {
        let of = |(guest, device, number, port): (&Guest, DeviceId, u16, PortId)| {
            let network = self.medium.network();
            let device = guest.machine().device(device)?;
            Some(PortSizes {
                port: network.port_name(port).to_owned(),
                handed: device.handed_sizes(number).cloned(),
                wire: network.counters(port)?.sent_sizes.clone(),
            })
        };
        self.ports().filter_map(of).collect()
    }

    fn findings(&mut self) -> Vec<Finding> {
        let mut all: Vec<Finding> =
            self.guests.iter_mut().flat_map(|member| member.guest.findings().to_vec()).collect();
        all.sort_by_key(|finding| finding.time);
        all
    }

    fn log(&self, guest: usize) -> String {
        self.guests.get(guest).map_or(String::new(), |member| member.guest.console().text())
    }

    fn whole_log(&mut self, guest: usize) -> String {
        // What went through the console is more where the kernel's own memory of it is too short.
        let (asked, console) = (self.ask_for_log(guest).unwrap_or_default(), self.log(guest));
        if asked.len() > console.len() { asked } else { console }
    }

    fn ledger(&self) -> LedgerSnapshot {
        let held: BTreeMap<PortId, (String, Vec<_>)> = self
            .ports()
            .map(|(guest, id, _, port)| {
                let machine = guest.machine();
                let frames = machine.device(id).map_or(Vec::new(), |device| device.frames_held());
                (port, (machine.device_name(id).to_owned(), frames))
            })
            .collect();
        let network = self.medium.network();
        let ledger = network.ledger();
        let totals = ledger.totals();
        let mut snapshot = LedgerSnapshot {
            entered: totals.entered,
            copied: totals.copied,
            delivered: totals.delivered,
            dropped: totals.dropped.iter().map(|(reason, count)| (reason.to_string(), *count)).collect(),
            unexpected: totals.unexpected,
            ..LedgerSnapshot::default()
        };
        // While the machine runs, frames under way count as missing.
        for (frame, place) in ledger.balance().missing {
            match place {
                Place::Link { .. } => snapshot.on_links += 1,
                Place::Device { port, .. } => match held.get(&port) {
                    Some((_, frames)) if frames.contains(&frame) => snapshot.held += 1,
                    Some((device, _)) => snapshot.lost.push((frame.0, device.clone())),
                    None => snapshot.lost.push((frame.0, network.port_name(port).to_owned())),
                },
            }
        }
        snapshot
    }

    fn unplug(&mut self, device: &str) -> Result<(), String> {
        let (guest, device) = self.device(device)?;
        self.input(guest, Input::Unplug { device })
    }

    fn plug(&mut self, device: &str, slot: Option<Slot>) -> Result<(), String> {
        let (guest, device) = self.device(device)?;
        self.input(guest, Input::Plug { device, slot })
    }

    fn set_port(&mut self, port: &str, up: bool) -> Result<(), String> {
        let port = self.port(port)?;
        self.change(&Change::Port { port, up }, up);
        Ok(())
    }

    fn set_link(&mut self, link: &str, up: bool) -> Result<(), String> {
        let link = self.link(link)?;
        self.change(&Change::Link { link, up }, up);
        Ok(())
    }

    fn configure_link(&mut self, link: &str, settings: &LinkSpec) -> Result<(), String> {
        let link = self.link(link)?;
        let mut config = self.medium.network().link(link).cloned().unwrap_or_default();
        settings.apply(&mut config);
        self.change(&Change::Configure { link, config }, true);
        Ok(())
    }

    fn set_capture(&mut self, on: bool) {
        self.medium.set_recording(on);
    }
}

impl Member<'_> {
    fn job(&self, id: JobId) -> Job {
        Job((self.index as u64) << 32 | u64::from(id.0))
    }

    /// Takes in what has happened in the guest besides output.
    fn gather(&mut self) {
        let guest = &mut *self.guest;
        let base = (self.index as u64) << 32;
        self.running.retain(|id| match guest.take_exit(*id) {
            None => true,
            Some(exit) => {
                let job = Job(base | u64::from(id.0));
                self.events.push(LabEvent::Exited { job, status: exit.status() });
                false
            }
        });
        for line in &guest.trouble()[self.trouble_told..] {
            if line.starts.is_some() {
                self.events.push(LabEvent::Trouble { guest: self.index, text: line.text.clone() });
            }
        }
        self.trouble_told = guest.trouble().len();
        for observed in guest.take_events() {
            let device = guest.machine().device_name(observed.device).to_owned();
            self.events.push(LabEvent::Device { device, time: observed.time, event: observed.event });
        }
    }
}

impl Clocked for Member<'_> {
    type Ending = Ending;

    fn now(&self) -> Time {
        self.guest.now()
    }

    fn run_until(&mut self, until: Time) -> Result<Turn, Ending> {
        loop {
            let base = (self.index as u64) << 32;
            let events = &mut self.events;
            let turn = self.guest.run_until(until, &mut |id, channel, data| {
                let error = channel == Channel::Stderr;
                let job = Job(base | u64::from(id.0));
                events.push(LabEvent::Output { job, error, data: data.to_vec() });
            });
            self.gather();
            let turn = turn?;
            self.asleep = turn == Turn::Asleep;
            if !self.events.is_empty() {
                return Ok(Turn::News);
            }
            // The kernel's log alone is no news.
            if turn != Turn::News {
                return Ok(turn);
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.guest.next_event()
    }

    fn skip_to(&mut self, time: Time) {
        self.guest.skip_to(time);
    }
}

/// How long a guest may take to tell its log, in its own time.
const LOG_PATIENCE: Duration = Duration::from_secs(10);

/// An ending as scenarios know them: what happened in a line, and the evidence.
pub(crate) fn lab_error(guest: usize, ending: &Ending) -> LabError {
    let (kind, message, evidence) = match ending {
        Ending::PowerOff => (EndingKind::PowerOff, ending.to_string(), String::new()),
        Ending::Reset => (EndingKind::Reset, ending.to_string(), String::new()),
        Ending::Interrupted => (EndingKind::Interrupted, ending.to_string(), String::new()),
        Ending::TimedOut(_) => {
            let text = ending.to_string();
            let (message, evidence) = text.split_once('\n').unwrap_or((&text, ""));
            (EndingKind::TimedOut, message.to_owned(), evidence.to_owned())
        }
        Ending::Trouble(trouble) => {
            let text = trouble.to_string();
            let evidence = text.split_once('\n').map_or("", |(_, evidence)| evidence);
            let stuck = trouble.what.starts_with("the guest is stuck");
            let kind = if stuck { EndingKind::Stuck } else { EndingKind::Panic };
            (kind, trouble.what.clone(), evidence.to_owned())
        }
        Ending::DebugExit(_) | Ending::Session(_) => (EndingKind::Failed, ending.to_string(), String::new()),
    };
    LabError { kind, guest, message, evidence }
}
