//! The booted guests and their devices, as scenarios reach them from outside.

use std::collections::BTreeMap;
use std::fmt;

use nicvisor_core::fault::{Fault, FaultPoints};
use nicvisor_core::pci::Slot;
use nicvisor_core::{DeviceEvent, EventKinds, Finding, Sizes, Time};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::LinkSpec;

/// One or two booted guests on one network with one clock. Guests are counted from 0 in the scenario's order.
///
/// A lab does not wait for anything by itself: commands are started, time is let pass, and what happens in it
/// is reported. So the runner can do several things at once, and a test can hand it a lab made of paper.
pub trait Lab {
    /// The virtual time now.
    fn now(&self) -> Time;

    /// Starts a command in a guest.
    fn spawn(&mut self, guest: usize, command: &GuestCommand) -> Job;

    /// Sends a signal to a command and all that it started.
    fn signal(&mut self, job: Job, signal: i32);

    /// Lets time pass until something happens that a scenario may wait for, at most until `until`.
    ///
    /// # Errors
    /// When a guest has gone down, or the time allowed on the host's clock is over.
    fn advance(&mut self, until: Time) -> Result<Vec<LabEvent>, LabError>;

    /// While all guests sleep: when one of them wakes by itself.
    fn asleep_until(&self) -> Option<Time> {
        None
    }

    /// What faults and events of a device can name.
    ///
    /// # Errors
    /// When there is no such device.
    fn fault_points(&self, device: &str) -> Result<FaultPoints, String>;

    /// Wants to be told of these kinds of events of all devices.
    fn watch(&mut self, kinds: EventKinds);

    /// Puts a fault into a device, or has it do something.
    ///
    /// # Errors
    /// When there is no such device, or it does not take the fault.
    fn inject(&mut self, device: &str, fault: &Fault) -> Result<(), String>;

    /// Device and link counters, in a stable order: `DEVICE.COUNTER` and `link.PORT.COUNTER`.
    fn counters(&self) -> Vec<(String, u64)>;

    /// What has crossed the links, by port.
    fn traffic(&self) -> Vec<PortTraffic>;

    /// The sizes of all frames, by port.
    fn sizes(&self) -> Vec<PortSizes>;

    /// Rules found broken so far.
    fn findings(&mut self) -> Vec<Finding>;

    /// What a guest's kernel has written to its console so far: what its `loglevel` lets through.
    fn log(&self, guest: usize) -> String;

    /// All that a guest's kernel has logged, whatever its console shows. A guest that still runs is asked, for which
    /// time passes.
    fn whole_log(&mut self, guest: usize) -> String {
        self.log(guest)
    }

    /// The account of all frames as it is now. Nothing is disturbed by asking.
    fn ledger(&self) -> LedgerSnapshot;

    /// Takes a device away from its guest, without asking it.
    ///
    /// # Errors
    /// When there is no such device, or it is not plugged in.
    fn unplug(&mut self, device: &str) -> Result<(), String>;

    /// Gives a device back to its guest, on PCI in `slot`, or where it was.
    ///
    /// # Errors
    /// When there is no such device, it is plugged in, or the slot is taken.
    fn plug(&mut self, device: &str, slot: Option<Slot>) -> Result<(), String>;

    /// Connects a port to its link, or pulls its cable.
    ///
    /// # Errors
    /// When there is no such port.
    fn set_port(&mut self, port: &str, up: bool) -> Result<(), String>;

    /// Takes a link up or down.
    ///
    /// # Errors
    /// When there is no such link.
    fn set_link(&mut self, link: &str, up: bool) -> Result<(), String>;

    /// Changes a link's settings.
    ///
    /// # Errors
    /// When there is no such link.
    fn configure_link(&mut self, link: &str, settings: &LinkSpec) -> Result<(), String>;

    /// Begins or ends the capturing of frames, where they are captured at all.
    fn set_capture(&mut self, on: bool);
}

/// Names a command of a lab; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job(pub u64);

/// A command for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The network namespace to run it in; the first one if `None`.
    pub namespace: Option<String>,
}

impl GuestCommand {
    /// A script for the guest's shell.
    pub fn shell(script: &str, namespace: Option<&str>) -> GuestCommand {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        GuestCommand { argv, namespace: namespace.map(str::to_owned) }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabEvent {
    /// A command wrote to its standard output, or to standard error.
    Output {
        /// The command.
        job: Job,
        /// Whether it is standard error.
        error: bool,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A command has ended.
    Exited {
        /// The command.
        job: Job,
        /// Exit status; 128 + n for signal n.
        status: i32,
    },
    /// A guest's kernel reports trouble with itself: a warning, an oops, a stall.
    Trouble {
        /// The guest.
        guest: usize,
        /// The report's first line.
        text: String,
    },
    /// A driver did something to a device, or something happened to the device: of a kind that is watched.
    Device {
        /// The device.
        device: String,
        /// When.
        time: Time,
        /// What.
        event: DeviceEvent,
    },
}

/// What one port sent and received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortTraffic {
    /// The port.
    pub port: String,
    /// Frames that its device put on the link.
    pub sent_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that the link handed to its device.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

/// The sizes of a port's frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSizes {
    /// The port.
    pub port: String,
    /// Packets as the driver handed them to the device; `None` where the device does not tell.
    pub handed: Option<Sizes>,
    /// Frames that the device put on the link.
    pub wire: Sizes,
}

/// Where all frames are at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerSnapshot {
    /// Frames that devices put on links.
    pub entered: u64,
    /// Copies that links made of them.
    pub copied: u64,
    /// Frames that devices gave to their guest.
    pub delivered: u64,
    /// Frames dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Frames on their way on links.
    pub on_links: u64,
    /// Frames that devices hold, and say so.
    pub held: u64,
    /// Frames that a device was given and knows nothing of any more, with the device's name: lost.
    pub lost: Vec<(u64, String)>,
    /// Frames with more than one fate.
    pub unexpected: u64,
}

impl LedgerSnapshot {
    /// Whether every frame is where it should be.
    ///
    /// # Errors
    /// Says what does not add up.
    pub fn check(&self) -> Result<(), String> {
        let came = self.entered + self.copied;
        let went = self.delivered + self.dropped.values().sum::<u64>();
        let here = self.on_links + self.held + self.lost.len() as u64;
        if self.lost.is_empty() && self.unexpected == 0 && came == went + here {
            return Ok(());
        }
        let mut parts = Vec::new();
        if let Some((frame, device)) = self.lost.first() {
            parts.push(format!("{} lost (first: frame {frame} in {device})", self.lost.len()));
        }
        if self.unexpected > 0 {
            parts.push(format!("{} with more than one fate", self.unexpected));
        }
        Err(format!("of {came} frames, {went} have ended and {here} are under way; {}", parts.join(", ")))
    }
}

/// A guest does not run any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct LabError {
    /// How that came.
    pub kind: EndingKind,
    /// The guest, counted from 0.
    pub guest: usize,
    /// What happened, in a line.
    pub message: String,
    /// The end of the log, where the CPUs were.
    pub evidence: String,
}

/// Ways in which a run ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndingKind {
    /// The guest's kernel panicked.
    Panic,
    /// The guest made no progress any more.
    Stuck,
    /// The guest powered off.
    PowerOff,
    /// The guest restarted.
    Reset,
    /// The time allowed on the host's clock is over.
    TimedOut,
    /// The user ended it.
    Interrupted,
    /// The guest could not be talked to.
    Failed,
}

impl fmt::Display for EndingKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            EndingKind::Panic => "panic",
            EndingKind::Stuck => "stuck",
            EndingKind::PowerOff => "power-off",
            EndingKind::Reset => "reset",
            EndingKind::TimedOut => "timed out",
            EndingKind::Interrupted => "interrupted",
            EndingKind::Failed => "failed",
        })
    }
}
