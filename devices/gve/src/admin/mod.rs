//! The admin queue: commands that the driver puts into a ring of 64-byte entries and the device executes in
//! order, writing a status into each.

mod describe;
mod flow;
mod queues;
mod report;
mod resources;
mod rss;

use nicvisor_core::fault::{CommandAction, WireField, WireView};
use nicvisor_core::{Context, DeviceEvent, DmaError, EventKind, Rule, Time};
use serde::{Deserialize, Serialize};
use zerocopy::{Immutable, IntoBytes};

use crate::device::Gve;
use crate::faults::indices::ADMIN_PROD_CNT;
use crate::rules;
use crate::wire::admin::{Command, Opcode, Status};

pub(crate) use describe::Capabilities;
pub(crate) use flow::{Flow, FlowRules, Packet};
pub(crate) use report::StatsReport;
pub(crate) use resources::Resources;
pub(crate) use rss::RssState;

/// Where the admin queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdminRing {
    pub(crate) address: u64,
    pub(crate) entries: u16,
}

/// The admin queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdminQueue {
    /// Set while the driver owns the device.
    pub(crate) ring: Option<AdminRing>,
    /// Commands that the driver has put into the ring since then, and how many of them are done with.
    producer: u32,
    consumer: u32,
    /// Commands answered since then; the driver reads it to see what is done.
    pub(crate) counter: u32,
    /// The command at the consumer's place is to be done later.
    delayed: Option<Delayed>,
    /// Commands executed since power-on, and how many of them failed.
    pub(crate) executed: u64,
    pub(crate) failed: u64,
    /// A fault had a doorbell say something else.
    pub(crate) disturbed: bool,
}

/// A command that a fault delays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Delayed {
    /// `None` for when faults are lifted.
    due: Option<Time>,
    action: CommandAction,
}

impl AdminQueue {
    /// The driver has set up a new ring.
    pub(crate) fn restart(&mut self) {
        (self.producer, self.consumer, self.counter) = (0, 0, 0);
        self.delayed = None;
        self.disturbed = false;
    }

    /// When a delayed command is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.delayed.as_ref()?.due
    }
}

/// Why a command failed: what the driver is told, and what is recorded.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    /// The rule that the driver broke, and how; nothing where failing is the normal answer.
    breach: Option<(&'static Rule, String)>,
}

impl Failure {
    /// A failure that is the driver's fault.
    pub(crate) fn breach(status: Status, rule: &'static Rule, message: impl Into<String>) -> Failure {
        Failure { status, breach: Some((rule, message.into())) }
    }

    /// A parameter that is not within what the device described.
    pub(crate) fn parameter(message: impl Into<String>) -> Failure {
        Failure::breach(Status::InvalidArgument, &rules::ADMIN_PARAMETER, message)
    }

    /// A refusal that a driver has to expect.
    pub(crate) fn refusal(status: Status) -> Failure {
        Failure { status, breach: None }
    }
}

impl From<DmaError> for Failure {
    fn from(error: DmaError) -> Failure {
        Failure::breach(Status::InternalError, &rules::ADMIN_MEMORY, error.to_string())
    }
}

impl Gve {
    /// The driver rang the admin doorbell: all commands before the `producer`th are there.
    pub(crate) fn run_admin(&mut self, context: &mut Context<'_>, producer: u32) {
        let Some(ring) = self.state.admin.ring else {
            let message = format!("admin doorbell {producer} without an admin queue");
            rules::report(&self.config, context, &rules::ADMIN_DOORBELL, message, |_| ());
            return;
        };
        let rung = self.state.faults.overrides.apply(context.now, ADMIN_PROD_CNT, producer.into()) as u32;
        self.state.admin.disturbed |= rung != producer;
        let producer = rung;
        let waiting = producer.wrapping_sub(self.state.admin.consumer);
        if waiting > ring.entries.into() {
            let message =
                format!("admin doorbell {producer}: {waiting} commands in a queue of {}", ring.entries);
            rules::report(&self.config, context, &rules::ADMIN_DOORBELL, message, |finding| {
                finding.queue = CHANNEL.to_owned();
            });
            return;
        }
        self.state.admin.producer = producer;
        if self.state.admin.delayed.is_none() {
            self.execute_waiting(context);
        }
    }

    /// A command that was delayed is due, or faults were lifted.
    pub(crate) fn resume_admin(&mut self, context: &mut Context<'_>) {
        if let Some(delayed) = &mut self.state.admin.delayed {
            delayed.due = Some(context.now);
            self.execute_waiting(context);
        }
    }

    fn execute_waiting(&mut self, context: &mut Context<'_>) {
        let Some(ring) = self.state.admin.ring else { return };
        while self.state.admin.consumer != self.state.admin.producer {
            let index = self.state.admin.consumer & u32::from(ring.entries - 1);
            let address = ring.address + u64::from(index) * size_of::<Command>() as u64;
            match self.execute_at(context, address) {
                Ok(true) => self.state.admin.consumer = self.state.admin.consumer.wrapping_add(1),
                Ok(false) => return,
                Err(error) => {
                    // The driver has to ring again.
                    self.state.admin.producer = self.state.admin.consumer;
                    rules::report(&self.config, context, &rules::ADMIN_MEMORY, error.to_string(), |_| ());
                    return;
                }
            }
        }
    }

    /// Executes the command at `address` and answers it. False if that has to wait.
    fn execute_at(&mut self, context: &mut Context<'_>, address: u64) -> Result<bool, DmaError> {
        let command: Command = context.dma.read_object(address)?;
        let action = match self.state.admin.delayed.take() {
            Some(delayed) => delayed.action,
            None => {
                let action = self.command_action(context, &command);
                let due = action.due(context.now);
                if due != Some(context.now) {
                    self.state.admin.delayed = Some(Delayed { due, action });
                    return Ok(false);
                }
                action
            }
        };
        self.state.admin.executed += 1;
        let own =
            if action.execute { self.execute_and_report(context, &command, &action) } else { Status::Passed };
        let status = action.status.map_or(own as u32, |status| status as u32);
        self.state.admin.failed += u64::from(status != Status::Passed as u32);
        if action.answers > 0 {
            context.dma.store_release(address + STATUS_OFFSET, u32::from_ne_bytes(status.to_be_bytes()))?;
            self.state.admin.counter = self.state.admin.counter.wrapping_add(action.answers);
        }
        observe(context, &command, &action, status);
        Ok(true)
    }

    /// What faults make of a command.
    fn command_action(&mut self, context: &Context<'_>, command: &Command) -> CommandAction {
        match Opcode::from_number(command.opcode.get()) {
            Some(opcode) => {
                let request = WireView::new(opcode.request(), &command.parameters);
                self.state.faults.commands.command(context.now, CHANNEL, opcode.name(), &request)
            }
            None => CommandAction::default(),
        }
    }

    /// Executes a command and reports what the driver did wrong with it.
    fn execute_and_report(
        &mut self,
        context: &mut Context<'_>,
        command: &Command,
        action: &CommandAction,
    ) -> Status {
        let Err(failure) = self.execute(context, command, action) else { return Status::Passed };
        if let Some((rule, message)) = failure.breach {
            let bytes = command.as_bytes().to_vec();
            rules::report(&self.config, context, rule, message, |finding| {
                finding.queue = CHANNEL.to_owned();
                finding.descriptor = bytes;
            });
        }
        failure.status
    }

    fn execute(
        &mut self,
        context: &mut Context<'_>,
        command: &Command,
        action: &CommandAction,
    ) -> Result<(), Failure> {
        let number = command.opcode.get();
        let Some(opcode) = Opcode::from_number(number) else {
            let message = format!("admin opcode {number:#x}");
            return Err(Failure::breach(Status::Unimplemented, &rules::ADMIN_OPCODE, message));
        };
        match opcode {
            Opcode::DescribeDevice => self.describe_device(context, command.parameters(), action),
            Opcode::VerifyDriverCompatibility => self.verify_driver(context, command.parameters()),
            Opcode::ConfigureDeviceResources => {
                self.configure_resources(context, command.parameters(), action)
            }
            Opcode::DeconfigureDeviceResources => self.deconfigure_resources(context),
            Opcode::RegisterPageList => self.register_page_list(context, command.parameters()),
            Opcode::UnregisterPageList => self.unregister_page_list(command.parameters()),
            Opcode::CreateTxQueue => self.create_tx_queue(context, command.parameters(), action),
            Opcode::CreateRxQueue => self.create_rx_queue(context, command.parameters(), action),
            Opcode::DestroyTxQueue => self.destroy_tx_queue(context, command.parameters()),
            Opcode::DestroyRxQueue => self.destroy_rx_queue(context, command.parameters()),
            Opcode::SetDriverParameter => self.set_driver_parameter(command.parameters()),
            Opcode::ReportStats => self.report_stats(context, command.parameters()),
            Opcode::ReportLinkSpeed => self.report_link_speed(context, command.parameters(), action),
            Opcode::GetPtypeMap => self.get_ptype_map(context, command.parameters()),
            Opcode::ConfigureRss => self.configure_rss(context, command.parameters()),
            Opcode::QueryRss => self.query_rss(context, command.parameters(), action),
            Opcode::QueryFlowRules => self.query_flow_rules(context, command.parameters(), action),
            Opcode::Extended => self.extended_command(context, command.parameters()),
            // Belongs to a device option that is not offered.
            Opcode::ReportNicTimestamp => Err(Failure::refusal(Status::Unimplemented)),
        }
    }
}

/// Tells what became of a command.
fn observe(context: &mut Context<'_>, command: &Command, action: &CommandAction, status: u32) {
    context.observe(EventKind::Command, || {
        let opcode = Opcode::from_number(command.opcode.get());
        let event = DeviceEvent::new(EventKind::Command, opcode.map_or("unknown", Opcode::name));
        let fields = opcode.map_or(&[][..], Opcode::request).iter();
        let values = fields.filter_map(|field| Some((field.name(), field.read(&command.parameters)?)));
        values.fold(event.with("status", status), |event, (name, value)| event.with(name, value))
    });
    context.observe_faults(&action.faults);
}

/// Writes an answer, with the fields of its fixed part as faults want them.
fn write_answer<T: IntoBytes + Immutable + ?Sized>(
    context: &Context<'_>,
    address: u64,
    layout: &[WireField],
    action: &CommandAction,
    answer: &T,
) -> Result<(), DmaError> {
    let mut bytes = answer.as_bytes().to_vec();
    action.rewrite(&mut WireView::new(layout, &mut bytes));
    context.dma.write(address, &bytes)
}

/// The admin queue's name in faults and findings.
pub(crate) const CHANNEL: &str = "admin";
/// Where an entry keeps its status.
const STATUS_OFFSET: u64 = 4;
