//! Steps.

use nicvisor_core::Duration;
use nicvisor_core::fault::Fault;
use nicvisor_core::pci::Slot;
use serde_json::Value;

use super::{unplaced, unplaced_all};
use crate::model::{
    CaptureSwitch, FaultStep, JsonExpectation, LinkChange, Measure, MeasureSource, PciSlot, Plug, Signal,
    SizeMeasure, Stage, Statuses, Step, Stop, Stream, Unplug, Wait,
};
use crate::units::{Size, Span};

impl Step {
    /// Runs a shell command in the guest.
    #[must_use]
    pub fn run(script: impl Into<String>) -> Step {
        Step { run: Some(unplaced(script)), ..Step::default() }
    }

    /// Sends a verified TCP stream.
    #[must_use]
    pub fn stream(stream: Stream) -> Step {
        Step { stream: Some(unplaced(stream)), ..Step::default() }
    }

    /// Does steps side by side.
    #[must_use]
    pub fn parallel(steps: impl IntoIterator<Item = Step>) -> Step {
        Step { parallel: unplaced_all(steps), ..Step::default() }
    }

    /// Does steps in order, to be one of several that are done side by side.
    #[must_use]
    pub fn sequence(steps: impl IntoIterator<Item = Step>) -> Step {
        Step { sequence: unplaced_all(steps), ..Step::default() }
    }

    /// Waits until something has happened.
    #[must_use]
    pub fn wait(wait: Wait) -> Step {
        Step { wait: Some(unplaced(wait)), ..Step::default() }
    }

    /// Ends a background command.
    #[must_use]
    pub fn stop(job: impl Into<String>, signal: Signal) -> Step {
        Step { stop: Some(unplaced(Stop { job: unplaced(job), signal })), ..Step::default() }
    }

    /// Takes a device away from its guest.
    #[must_use]
    pub fn unplug(device: impl Into<String>) -> Step {
        Step { unplug: Some(unplaced(Unplug { device: unplaced(device) })), ..Step::default() }
    }

    /// Gives a device back to its guest, where it was.
    #[must_use]
    pub fn plug(device: impl Into<String>) -> Step {
        Step { plug: Some(unplaced(Plug { device: unplaced(device), slot: None })), ..Step::default() }
    }

    /// Gives a device back to its guest in another slot on PCI.
    #[must_use]
    pub fn plug_into(device: impl Into<String>, slot: Slot) -> Step {
        let plug = Plug { device: unplaced(device), slot: Some(PciSlot(slot)) };
        Step { plug: Some(unplaced(plug)), ..Step::default() }
    }

    /// Changes a link, or pulls a port's cable.
    #[must_use]
    pub fn link(change: LinkChange) -> Step {
        Step { link: Some(unplaced(change)), ..Step::default() }
    }

    /// Lets a device do what its driver does not expect.
    #[must_use]
    pub fn fault(device: impl Into<String>, fault: Fault) -> Step {
        Step { fault: Some(unplaced(FaultStep::new(device, fault))), ..Step::default() }
    }

    /// Begins or ends a stretch of time whose frames are captured.
    #[must_use]
    pub fn capture(switch: CaptureSwitch) -> Step {
        Step { capture: Some(switch), ..Step::default() }
    }

    /// Measures something from outside of the guest.
    #[must_use]
    pub fn measurement(name: impl Into<String>, measure: Measure) -> Step {
        Step::default().measure(name, measure)
    }

    /// Keeps a number of this step under a name.
    #[must_use]
    pub fn measure(mut self, name: impl Into<String>, measure: Measure) -> Step {
        self.measure.insert(name.into(), unplaced(measure));
        self
    }

    /// Gives the step a name in results.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Step {
        Step { name: Some(name.into()), ..self }
    }

    /// Runs the command in that namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: impl Into<String>) -> Step {
        Step { namespace: Some(unplaced(namespace)), ..self }
    }

    /// Runs the command in that guest, where there are two.
    #[must_use]
    pub fn in_guest(self, guest: impl Into<String>) -> Step {
        Step { guest: Some(unplaced(guest)), ..self }
    }

    /// Goes on without waiting for the command, which later steps call by this name.
    #[must_use]
    pub fn in_background(self, job: impl Into<String>) -> Step {
        Step { background: Some(unplaced(job)), ..self }
    }

    /// Does it so many times, one after the other.
    #[must_use]
    pub fn repeat(self, times: u32) -> Step {
        Step { repeat: Some(unplaced(times)), ..self }
    }

    /// Limits the guest time that it may take.
    #[must_use]
    pub fn timeout(self, time: Duration) -> Step {
        Step { timeout: Some(Span(time)), ..self }
    }

    /// The exit statuses that the command may end with.
    #[must_use]
    pub fn status(self, allowed: impl IntoIterator<Item = u8>) -> Step {
        Step { status: Some(Statuses(allowed.into_iter().map(i32::from).collect())), ..self }
    }

    /// A text that the command's output must contain.
    #[must_use]
    pub fn output_contains(mut self, text: impl Into<String>) -> Step {
        self.output_contains.push(text.into());
        self
    }

    /// A text that the command's output must not contain.
    #[must_use]
    pub fn output_lacks(mut self, text: impl Into<String>) -> Step {
        self.output_lacks.push(text.into());
        self
    }

    /// What the command's output, taken as JSON, must have.
    #[must_use]
    pub fn json(mut self, expectation: JsonExpectation) -> Step {
        self.json.push(unplaced(expectation));
        self
    }
}

impl Stream {
    /// A stream of so many bytes from one namespace to the address of another.
    #[must_use]
    pub fn new(
        from: impl Into<String>,
        to: impl Into<String>,
        address: impl Into<String>,
        bytes: u64,
    ) -> Stream {
        Stream {
            from: from.into(),
            to: to.into(),
            address: address.into(),
            port: Stream::PORT,
            bytes: Size(bytes),
            write: Size(Stream::WRITE),
            seed: 0,
        }
    }

    /// Sets the TCP port.
    #[must_use]
    pub fn port(self, port: u16) -> Stream {
        Stream { port, ..self }
    }

    /// Sets how many bytes are handed to each `write`.
    #[must_use]
    pub fn write(self, bytes: u64) -> Stream {
        Stream { write: Size(bytes), ..self }
    }

    /// Sets the seed of the payload.
    #[must_use]
    pub fn seed(self, seed: u64) -> Stream {
        Stream { seed, ..self }
    }
}

impl FaultStep {
    /// A fault for that device.
    #[must_use]
    pub fn new(device: impl Into<String>, fault: Fault) -> FaultStep {
        let mut step = FaultStep {
            device: unplaced(device),
            command: None,
            completion: None,
            overridden: None,
            event: None,
            lift: None,
        };
        match fault {
            Fault::Command(command) => step.command = Some(command),
            Fault::Completion(completion) => step.completion = Some(completion),
            Fault::Override(overridden) => step.overridden = Some(overridden),
            Fault::Event(event) => step.event = Some(event),
            Fault::Lift(lift) => step.lift = Some(lift),
        }
        step
    }
}

impl JsonExpectation {
    /// Begins an expectation of what stands at `path`, a pointer (`/0/mtu`) or a path (`0.mtu`).
    #[must_use]
    pub fn at(path: impl Into<String>) -> JsonExpectation {
        JsonExpectation { at: path.into(), equals: None, at_least: None, at_most: None, exists: None }
    }

    /// It is exactly this.
    #[must_use]
    pub fn equals(self, value: impl Into<Value>) -> JsonExpectation {
        JsonExpectation { equals: Some(value.into()), ..self }
    }

    /// It is a number of at least this.
    #[must_use]
    pub fn at_least(self, bound: f64) -> JsonExpectation {
        JsonExpectation { at_least: Some(bound), ..self }
    }

    /// It is a number of at most this.
    #[must_use]
    pub fn at_most(self, bound: f64) -> JsonExpectation {
        JsonExpectation { at_most: Some(bound), ..self }
    }

    /// It is there at all, or is not.
    #[must_use]
    pub fn exists(self, exists: bool) -> JsonExpectation {
        JsonExpectation { exists: Some(exists), ..self }
    }
}

impl Measure {
    /// A number in the step's output, by pointer or path.
    #[must_use]
    pub fn json(path: impl Into<String>) -> Measure {
        Measure::Json(path.into())
    }

    /// A counter, such as `gve0.tx_packets`.
    #[must_use]
    pub fn counter(name: impl Into<String>) -> Measure {
        Measure::Source(MeasureSource {
            counter: Some(name.into()),
            port: None,
            stage: Stage::default(),
            sizes: None,
            during: false,
        })
    }

    /// The sizes of a port's frames.
    #[must_use]
    pub fn sizes(port: impl Into<String>, stage: Stage, what: SizeMeasure) -> Measure {
        Measure::Source(MeasureSource {
            counter: None,
            port: Some(port.into()),
            stage,
            sizes: Some(what),
            during: false,
        })
    }

    /// Only what the step itself adds counts. A number in its output is always its own.
    #[must_use]
    pub fn during(self) -> Measure {
        match self {
            Measure::Json(path) => Measure::Json(path),
            Measure::Source(source) => Measure::Source(MeasureSource { during: true, ..source }),
        }
    }
}
