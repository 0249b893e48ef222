//! The admin queue: commands that the driver puts into a ring of 64-byte entries and the device executes in
//! order, writing a status into each.

mod describe;
mod flow;
mod queues;
mod report;
mod resources;
mod rss;

use nicvisor_core::{Context, DmaError, Rule};
use serde::{Deserialize, Serialize};

use crate::device::Gve;
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
    /// Commands executed since then; the driver reads it to see what is done.
    pub(crate) counter: u32,
    /// Commands executed since power-on, and how many of them failed.
    pub(crate) executed: u64,
    pub(crate) failed: u64,
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
        let waiting = producer.wrapping_sub(self.state.admin.counter);
        if waiting > ring.entries.into() {
            let message =
                format!("admin doorbell {producer}: {waiting} commands in a queue of {}", ring.entries);
            rules::report(&self.config, context, &rules::ADMIN_DOORBELL, message, |_| ());
            return;
        }
        for _ in 0..waiting {
            let index = self.state.admin.counter & u32::from(ring.entries - 1);
            let address = ring.address + u64::from(index) * size_of::<Command>() as u64;
            if let Err(error) = self.execute_at(context, address) {
                rules::report(&self.config, context, &rules::ADMIN_MEMORY, error.to_string(), |_| ());
                return;
            }
            self.state.admin.counter = self.state.admin.counter.wrapping_add(1);
        }
    }

    fn execute_at(&mut self, context: &mut Context<'_>, address: u64) -> Result<(), DmaError> {
        let command: Command = context.dma.read_object(address)?;
        self.state.admin.executed += 1;
        let status = match self.execute(context, &command) {
            Ok(()) => Status::Passed,
            Err(failure) => {
                self.state.admin.failed += 1;
                if let Some((rule, message)) = failure.breach {
                    let bytes = zerocopy::IntoBytes::as_bytes(&command).to_vec();
                    rules::report(&self.config, context, rule, message, |finding| {
                        finding.queue = "admin".to_owned();
                        finding.descriptor = bytes;
                    });
                }
                failure.status
            }
        };
        context.dma.write(address + STATUS_OFFSET, &(status as u32).to_be_bytes())
    }

    fn execute(&mut self, context: &mut Context<'_>, command: &Command) -> Result<(), Failure> {
        let number = command.opcode.get();
        let Some(opcode) = Opcode::from_number(number) else {
            let message = format!("admin opcode {number:#x}");
            return Err(Failure::breach(Status::Unimplemented, &rules::ADMIN_OPCODE, message));
        };
        match opcode {
            Opcode::DescribeDevice => self.describe_device(context, command.parameters()),
            Opcode::VerifyDriverCompatibility => self.verify_driver(context, command.parameters()),
            Opcode::ConfigureDeviceResources => self.configure_resources(context, command.parameters()),
            Opcode::DeconfigureDeviceResources => self.deconfigure_resources(context),
            Opcode::RegisterPageList => self.register_page_list(context, command.parameters()),
            Opcode::UnregisterPageList => self.unregister_page_list(command.parameters()),
            Opcode::CreateTxQueue => self.create_tx_queue(context, command.parameters()),
            Opcode::CreateRxQueue => self.create_rx_queue(context, command.parameters()),
            Opcode::DestroyTxQueue => self.destroy_tx_queue(command.parameters()),
            Opcode::DestroyRxQueue => self.destroy_rx_queue(context, command.parameters()),
            Opcode::SetDriverParameter => self.set_driver_parameter(command.parameters()),
            Opcode::ReportStats => self.report_stats(context, command.parameters()),
            Opcode::ReportLinkSpeed => self.report_link_speed(context, command.parameters()),
            Opcode::GetPtypeMap => self.get_ptype_map(context, command.parameters()),
            Opcode::ConfigureRss => self.configure_rss(context, command.parameters()),
            Opcode::QueryRss => self.query_rss(context, command.parameters()),
            Opcode::QueryFlowRules => self.query_flow_rules(context, command.parameters()),
            Opcode::Extended => self.extended_command(context, command.parameters()),
            // Belongs to a device option that is not offered.
            Opcode::ReportNicTimestamp => Err(Failure::refusal(Status::Unimplemented)),
        }
    }
}

/// Where an entry keeps its status.
const STATUS_OFFSET: u64 = 4;
