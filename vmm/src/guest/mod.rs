//! A booted guest: the machine, what runs it, and the conversation with the agent inside.
//!
//! Everything happens on the caller's thread. The guest runs until it has something to say; what it says on
//! the agent's port goes to the session, what it says on the serial port to the [`Console`]. All requests to
//! the agent enter the guest between two such moments, so a run depends on nothing but its input.

mod boot;
mod command_line;
mod console;
mod ending;
mod lab;
pub mod lockstep;
mod names;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use agent_protocol::{
    Channel, Command, Event, Exit, JobId, KernelLine, ModuleRequest, Power, RequestId, Session,
};
use nicvisor_core::fault::Fault;
use nicvisor_core::{DeviceId, EventKinds, Finding, Time};
use nicvisor_net::network::Network;
use nicvisor_virtio::AGENT_PORT;

use lockstep::Turn;
use names::NameSource;

pub(crate) use boot::add_nics;
pub use boot::{BootError, Plan, boot};
pub use command_line::COMMAND_LINE;
pub use console::Console;
pub use ending::{Ending, Trouble};
pub use lab::GuestLab;
pub(crate) use lab::lab_error;

use crate::accel::{Accelerator, Patience, RunControl, RunEvent, Statistics};
use crate::machine::{CpuReport, HostOutput, Input, InputError, Machine, Observed};

/// A guest that has been started.
pub struct Guest {
    machine: Machine,
    accelerator: Box<dyn Accelerator>,
    backend_reason: String,
    backend_warning: Option<String>,
    agent: DeviceId,
    session: Session,
    console: Console,
    names: NameSource,
    kernel_release: String,
    trouble: Vec<KernelLine>,
    findings: Vec<Finding>,
    finished: BTreeMap<JobId, Exit>,
    answers: BTreeMap<RequestId, Result<(), String>>,
    saying_goodbye: bool,
    interrupted: Arc<AtomicBool>,
    deadline: Option<Instant>,
    /// See [`RunControl::since`].
    since: Time,
}

/// What happens with what a command writes.
pub type Sink<'a> = dyn FnMut(JobId, Channel, &[u8]) + 'a;

impl Guest {
    /// Waits until the agent is ready.
    ///
    /// # Errors
    /// When the guest ends before.
    pub fn wait_until_ready(&mut self) -> Result<(), Ending> {
        while !self.session.is_ready() {
            self.turn(&mut |_, _, _| {})?;
        }
        Ok(())
    }

    /// Loads kernel modules and waits until they are there.
    ///
    /// # Errors
    /// When the guest ends before; the inner error is the guest's reason why it cannot load them.
    pub fn load_modules(&mut self, names: &[&str]) -> Result<Result<(), String>, Ending> {
        let requests = names
            .iter()
            .map(|name| ModuleRequest { name: (*name).to_owned(), parameters: String::new() })
            .collect();
        let request = self.session.load_modules(requests);
        loop {
            if let Some(answer) = self.answers.remove(&request) {
                return Ok(answer);
            }
            self.turn(&mut |_, _, _| {})?;
        }
    }

    /// Starts a command.
    pub fn spawn(&mut self, command: Command) -> JobId {
        self.session.spawn(command)
    }

    /// The conversation with the agent, to feed a command's input.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// How a command ended, once it has. Asking again gives nothing.
    pub fn take_exit(&mut self, job: JobId) -> Option<Exit> {
        self.finished.remove(&job)
    }

    /// Runs the guest until all of `jobs` have ended, and returns how, in their order.
    ///
    /// # Errors
    /// When the guest ends before.
    pub fn wait(&mut self, jobs: &[JobId], sink: &mut Sink<'_>) -> Result<Vec<Exit>, Ending> {
        while !jobs.iter().all(|job| self.finished.contains_key(job)) {
            self.turn(sink)?;
        }
        Ok(jobs.iter().filter_map(|job| self.finished.remove(job)).collect())
    }

    /// Runs the guest until it has said something, and takes that in.
    ///
    /// # Errors
    /// When the guest has ended.
    pub fn turn(&mut self, sink: &mut Sink<'_>) -> Result<(), Ending> {
        match self.step(None, false)? {
            RunEvent::Output => self.take_output(sink),
            other => Err(self.ending(other)),
        }
    }

    /// Like [`Self::turn`], for a caller that lives by the guest's time or waits for input from outside: returns
    /// at `until`, and when all CPUs sleep.
    ///
    /// # Errors
    /// When the guest has ended.
    pub fn run_until(&mut self, until: Time, sink: &mut Sink<'_>) -> Result<Turn, Ending> {
        match self.step(Some(until), true)? {
            RunEvent::Output => self.take_output(sink).map(|()| Turn::News),
            RunEvent::Idle(_) => Ok(Turn::Asleep),
            RunEvent::Until => Ok(Turn::Reached),
            other => Err(self.ending(other)),
        }
    }

    /// When something happens to the guest next while it sleeps.
    pub fn next_event(&self) -> Option<Time> {
        self.machine.next_deadline()
    }

    /// Lets the guest's time pass while it sleeps.
    pub fn skip_to(&mut self, time: Time) {
        self.since = time;
    }

    /// Tells the guest to power off and waits until it has.
    ///
    /// # Errors
    /// When it ends in another way.
    pub fn power_off(&mut self) -> Result<(), Ending> {
        self.session.power(Power::Off);
        self.saying_goodbye = true;
        loop {
            match self.turn(&mut |_, _, _| {}) {
                Ok(()) => {}
                Err(Ending::PowerOff) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
    }

    /// Ends the run: devices let go of the frames inside them, and all findings are in.
    pub fn close(&mut self) {
        let now = self.now();
        self.machine.close(now);
        self.findings.extend(self.machine.take_findings());
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// From now on devices tell about events of these kinds, and of no others.
    pub fn listen(&mut self, kinds: EventKinds) {
        self.machine.listen(kinds);
    }

    /// What happened to the devices since the last call, of the kinds that are listened to.
    pub fn take_events(&mut self) -> Vec<Observed> {
        self.machine.take_events()
    }

    /// Lets something happen to the machine from outside.
    ///
    /// # Errors
    /// When it is not possible; says why.
    pub fn input(&mut self, input: Input) -> Result<(), InputError> {
        let now = self.now();
        self.machine.input(now, input)
    }

    /// Injects a fault into the device that reports call `name`.
    ///
    /// # Errors
    /// When there is no such device, or the device does not take the fault.
    pub fn inject(&mut self, name: &str, fault: &Fault) -> Result<(), InputError> {
        let device = self.machine.find_device(name)?;
        self.input(Input::Fault { device, fault: Box::new(fault.clone()) })
    }

    /// The machine's time.
    pub fn now(&self) -> Time {
        self.accelerator.now().max(self.since)
    }

    /// Instructions executed, where the backend counts them.
    pub fn instructions(&self) -> Option<u64> {
        self.accelerator.instructions()
    }

    /// The backend's name.
    pub fn backend(&self) -> &'static str {
        self.accelerator.name()
    }

    /// Why it is this one.
    pub fn backend_reason(&self) -> &str {
        &self.backend_reason
    }

    /// What the user should know about the backend before a long run.
    pub fn backend_warning(&self) -> Option<&str> {
        self.backend_warning.as_deref()
    }

    /// Whether the same plan gives the same run: time is virtual, and nothing comes from outside.
    pub fn is_reproducible(&self) -> bool {
        self.accelerator.is_reproducible() && !self.machine.has_outside()
    }

    /// What the backend counted.
    pub fn statistics(&self) -> Statistics {
        self.accelerator.statistics()
    }

    /// The guest's `uname -r`, as its agent said.
    pub fn kernel_release(&self) -> &str {
        &self.kernel_release
    }

    /// What the guest's kernel wrote.
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// Trouble that the guest's kernel reported about itself.
    pub fn trouble(&self) -> &[KernelLine] {
        &self.trouble
    }

    /// Rules found broken until now.
    pub fn findings(&mut self) -> &[Finding] {
        self.findings.extend(self.machine.take_findings());
        &self.findings
    }

    /// Device and link counters, in a stable order: `DEVICE.COUNTER` and `link.DEVICE.COUNTER`.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut counters = self.device_counters();
        counters.extend(link_counters(&self.machine.network()));
        counters
    }

    /// The counters of the guest's own devices: `DEVICE.COUNTER`.
    pub fn device_counters(&self) -> Vec<(String, u64)> {
        let mut counters = Vec::new();
        for id in self.machine.devices() {
            let Some(device) = self.machine.device(id) else { continue };
            let (name, own) = (self.machine.device_name(id), device.counters());
            counters.extend(own.into_iter().map(|(counter, value)| (format!("{name}.{counter}"), value)));
        }
        counters
    }

    fn step(&mut self, until: Option<Time>, report_idle: bool) -> Result<RunEvent, Ending> {
        self.feed_agent();
        let interrupted = Arc::clone(&self.interrupted);
        let control = RunControl {
            interrupted: &interrupted,
            host_deadline: self.deadline,
            until,
            stop_at: None,
            since: self.since,
            report_idle,
            patience: Patience::default(),
        };
        Ok(self.accelerator.run(&mut self.machine, &control))
    }

    /// Gives the agent what the session has for it, without piling up more than it takes.
    fn feed_agent(&mut self) {
        let agent = self.machine.device(self.agent);
        let queued = agent.map_or(0, |device| device.host_input_queued(AGENT_PORT));
        if queued >= INPUT_AHEAD {
            return;
        }
        let bytes = self.session.outgoing();
        let length = bytes.len().min(INPUT_AHEAD);
        if length > 0 {
            let bytes = bytes[..length].to_vec();
            self.session.sent(length);
            // Bytes are always possible.
            let _ = self.input(Input::Channel { device: self.agent, channel: AGENT_PORT, bytes });
        }
    }

    fn take_output(&mut self, sink: &mut Sink<'_>) -> Result<(), Ending> {
        for output in self.machine.take_output() {
            match output {
                HostOutput::Serial(bytes) => self.console.write(&bytes),
                HostOutput::Device { device, channel, bytes }
                    if device == self.agent && channel == AGENT_PORT =>
                {
                    self.session.receive(&bytes).map_err(Ending::Session)?;
                }
                HostOutput::Device { .. } => {}
            }
        }
        while let Some(event) = self.session.next_event() {
            match event {
                Event::Ready { kernel } => self.kernel_release = kernel,
                Event::Done { request, result } => {
                    self.answers.insert(request, result.map_err(|failure| failure.message));
                }
                Event::SpawnFailed { job, failure } => {
                    let message = format!("{}\n", failure.message);
                    sink(job, Channel::Stderr, message.as_bytes());
                    // As shells have it: 127 for what is not there, 126 for what cannot be run.
                    let status = if failure.errno == Some(libc::ENOENT) { 127 } else { 126 };
                    self.finished.insert(job, Exit::Code(status));
                }
                Event::Output { job, channel, data } => sink(job, channel, &data),
                Event::Exited { job, exit } => {
                    self.finished.insert(job, exit);
                }
                Event::Kernel(line) => self.trouble.push(line),
                Event::File { .. } | Event::StdinRoom { .. } | Event::Bye => {}
            }
        }
        Ok(())
    }

    /// Why the guest does not run any more, with the evidence.
    fn ending(&mut self, event: RunEvent) -> Ending {
        // What it said last may say why.
        let _ = self.take_output(&mut |_, _, _| {});
        let trouble = |guest: &Guest, what: String| {
            Ending::Trouble(Box::new(Trouble {
                what,
                cpus: guest.cpu_reports(),
                log: guest.console.last_lines(LAST_LINES),
            }))
        };
        match event {
            RunEvent::PowerOff if self.saying_goodbye => Ending::PowerOff,
            RunEvent::DebugExit(status) => Ending::DebugExit(status),
            RunEvent::TimedOut => Ending::TimedOut(self.cpu_reports()),
            RunEvent::Interrupted => Ending::Interrupted,
            RunEvent::TripleFault { cpu } => trouble(self, format!("triple fault on CPU {cpu}")),
            RunEvent::Stuck(stuck) => trouble(self, format!("the guest is stuck: {stuck}")),
            RunEvent::Failed(what) => trouble(self, what),
            RunEvent::PowerOff | RunEvent::Reset => match self.console.panic() {
                Some(panic) => trouble(self, panic),
                None if matches!(event, RunEvent::PowerOff) => Ending::PowerOff,
                None => Ending::Reset,
            },
            RunEvent::Output | RunEvent::Idle(_) | RunEvent::Until => {
                trouble(self, "the run ended without a reason".into())
            }
        }
    }

    /// Every CPU's registers and backtrace.
    pub fn cpu_reports(&self) -> Vec<CpuReport> {
        let symbols = self.names.read();
        (0..self.machine.config().cpus)
            .map(|cpu| CpuReport::new(cpu, self.accelerator.cpu_state(cpu), self.machine.ram(), &symbols))
            .collect()
    }
}

/// What every port sent and received, by name: `link.PORT.COUNTER`.
fn link_counters(network: &Network) -> Vec<(String, u64)> {
    let mut counters = Vec::new();
    for port in network.ports() {
        let Some(traffic) = network.counters(port) else { continue };
        let name = network.port_name(port);
        let named = traffic.list().map(|(counter, value)| (format!("link.{name}.{counter}"), value));
        counters.extend(named);
    }
    counters
}

/// Bytes that may wait for the agent inside the console device.
const INPUT_AHEAD: usize = 64 << 10;
/// Lines of the kernel's log that are shown with a bad ending.
const LAST_LINES: usize = 40;
