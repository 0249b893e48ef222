//! Faults: what this device can be made to do that its driver does not expect.
//!
//! The vocabulary is that of `nicvisor_core::fault`; `points` says which names this device gives to it. Requests
//! pass `hwc::exchange`, registers `registers`, completions `queue`. Faults stay when the driver resets the device:
//! they belong to the test, not to it.

mod points;

use std::collections::BTreeMap;

use nicvisor_core::fault::{Fault, FaultError, Injected};
use nicvisor_core::{Context, Device, DeviceEvent, Duration, EventKind};

use crate::device::Mana;
use crate::wire::eqe::DETAILS_SIZE;
use crate::wire::hwc::{EVENT_FPGA_RECONFIG, EVENT_RESET_REQUEST, EVENT_SOC_SERVICE, Reconfiguration};

pub(crate) use points::{CHANNEL, SMC_STATUS, SMC_TYPE, SMC_VERSION, answer_fields};

impl Mana {
    pub(crate) fn inject_fault(
        &mut self,
        context: &mut Context<'_>,
        fault: &Fault,
    ) -> Result<(), FaultError> {
        let points = self.points();
        match self.state.queues.faults.inject(context.now, &points, fault)? {
            Injected::Armed => Ok(()),
            Injected::Lifted => {
                self.state.queues.lifted(context);
                self.resume_all_requests(context);
                Ok(())
            }
            Injected::Event { name, arguments } => {
                self.carry_out_event(context, &name, &arguments);
                Ok(())
            }
        }
    }

    fn carry_out_event(&mut self, context: &mut Context<'_>, name: &str, arguments: &BTreeMap<String, u64>) {
        let argument = |name: &str| arguments.get(name).copied().unwrap_or(0);
        match name {
            "link" => self.set_link(context, argument("port") as u16, argument("up") != 0),
            "reset-request" => {
                self.post_channel_event(context, EVENT_RESET_REQUEST, 0);
                self.fall_silent(context, argument("silence_ms"));
            }
            "fpga-reconfig" => {
                self.post_channel_event(context, EVENT_FPGA_RECONFIG, 0);
                self.fall_silent(context, argument("silence_ms"));
            }
            "service" => {
                self.post_channel_event(context, EVENT_SOC_SERVICE, (argument("type") as u32) << 28);
            }
            "hwc-timeout" => {
                let timeout = argument("timeout_ms") as u32;
                self.post_reconfiguration(context, Reconfiguration::HwcTimeout, timeout);
            }
            "hwc-event" => {
                self.post_channel_event(context, argument("type") as u8, argument("details") as u32);
            }
            "eqe" => {
                let mut details = [0; DETAILS_SIZE];
                details[..4].copy_from_slice(&(argument("details") as u32).to_le_bytes());
                let (queue, kind) = (argument("queue") as u32, argument("type") as u8);
                self.state.queues.post_event(context, queue, kind, details);
            }
            "function" => {
                let enabled = argument("enabled") != 0;
                self.state.vports.iter_mut().for_each(|vport| vport.function_enabled = enabled);
            }
            "device-reset" => self.forget(context),
            "interrupt" => context.raise(argument("vector") as u16),
            _ => (),
        }
    }

    /// The device loses everything and, for some time, does not react to anything.
    fn fall_silent(&mut self, context: &mut Context<'_>, milliseconds: u64) {
        if milliseconds != 0 {
            self.forget(context);
            self.state.silent_until = Some(context.now + Duration::from_millis(milliseconds));
        }
    }

    /// The device resets itself: what the driver still does with what it had is not the driver's fault.
    fn forget(&mut self, context: &mut Context<'_>) {
        self.stop(context);
        self.state.forgotten = true;
        context.observe(EventKind::State, || DeviceEvent::new(EventKind::State, "reset"));
    }

    /// Whether the device does not react to anything now.
    pub(crate) fn is_silent(&self, context: &Context<'_>) -> bool {
        self.state.silent_until.is_some_and(|until| context.now < until)
    }

    /// The silence is over.
    pub(crate) fn end_silence(&mut self, context: &mut Context<'_>) {
        if self.state.silent_until.is_some() && !self.is_silent(context) {
            self.state.silent_until = None;
            self.take_pending_message(context);
        }
    }
}
