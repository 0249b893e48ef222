//! Faults: what this device can be made to do that its driver does not expect.
//!
//! The vocabulary is that of `nicvisor_core::fault`; `points` says which names this device gives to it. Commands
//! pass `admin`, completions the shapers of `tx` and `rx`, values that the driver reads `registers` and
//! `admin::describe`. Faults stay when the driver resets the device: they belong to the test, not to it.

pub(crate) mod indices;
mod points;

use std::collections::BTreeMap;

use nicvisor_core::fault::{Fault, FaultError, Injected, WireView};
use nicvisor_core::{Context, DeviceEvent, EventKind};

use crate::device::Gve;
use crate::registers::DeviceStatus;
use crate::wire::tx;

pub(crate) use points::{DESCRIPTOR_SECTIONS, REGISTERS};

impl Gve {
    pub(crate) fn inject_fault(
        &mut self,
        context: &mut Context<'_>,
        fault: &Fault,
    ) -> Result<(), FaultError> {
        let points = self.points();
        match self.state.faults.inject(context.now, &points, fault)? {
            Injected::Armed => Ok(()),
            Injected::Lifted => {
                self.release_held(context);
                Ok(())
            }
            Injected::Event { name, arguments } => self.carry_out_event(context, &name, &arguments),
        }
    }

    /// Faults were lifted: what waited for their sake goes on.
    fn release_held(&mut self, context: &mut Context<'_>) {
        let completions = &self.state.faults.completions;
        self.state.tx.iter_mut().flatten().for_each(|queue| queue.shaper.lifted(completions));
        self.state.rx.iter_mut().flatten().for_each(|queue| queue.shaper.lifted(completions));
        self.write_due_completions(context);
        self.resume_admin(context);
    }

    /// Completions that were held back and are due.
    pub(crate) fn write_due_completions(&mut self, context: &mut Context<'_>) {
        let is_due = |deadline: Option<nicvisor_core::Time>| deadline.is_some_and(|due| due <= context.now);
        let due_tx: Vec<_> = (0..self.state.tx.len())
            .filter(|id| self.state.tx[*id].as_ref().is_some_and(|queue| is_due(queue.next_deadline())))
            .collect();
        let due_rx: Vec<_> = (0..self.state.rx.len())
            .filter(|id| self.state.rx[*id].as_ref().is_some_and(|queue| is_due(queue.next_deadline())))
            .collect();
        for id in due_tx {
            if let Some(mut queue) = self.state.tx[id].take() {
                self.run_tx_deadline(context, &mut queue);
                self.state.tx[id] = Some(queue);
            }
        }
        for id in due_rx {
            if let Some(mut queue) = self.state.rx[id].take() {
                self.run_rx_deadline(context, &mut queue);
                self.state.rx[id] = Some(queue);
            }
        }
    }

    fn carry_out_event(
        &mut self,
        context: &mut Context<'_>,
        name: &str,
        arguments: &BTreeMap<String, u64>,
    ) -> Result<(), FaultError> {
        let argument = |name: &str| arguments.get(name).copied().unwrap_or(0);
        match name {
            "link" => self.change_link(context, argument("up") != 0),
            "reset-request" => self.change_status(context, DeviceStatus::RESET, true),
            "report-stats" => self.change_status(context, DeviceStatus::REPORT_STATS, argument("on") != 0),
            "device-reset" => self.stop(context),
            "interrupt" => context.raise(argument("vector") as u16),
            "tx-completion" => self.invent_tx_completion(context, arguments)?,
            _ => (),
        }
        Ok(())
    }

    /// Sets or clears a bit of the device status and tells the driver by the management interrupt.
    pub(crate) fn change_status(&mut self, context: &mut Context<'_>, bit: DeviceStatus, on: bool) {
        self.state.registers.device_status.set(bit, on);
        if let Some(resources) = &self.state.resources {
            self.state.counters.management_interrupts += 1;
            context.raise(resources.management_vector());
        }
    }

    pub(crate) fn change_link(&mut self, context: &mut Context<'_>, up: bool) {
        if up == self.state.link_is_up() {
            return;
        }
        self.change_status(context, DeviceStatus::LINK, up);
        context.observe(EventKind::Link, || {
            DeviceEvent::new(EventKind::Link, "").with("port", 0_u8).with("up", u8::from(up))
        });
    }

    /// A completion for no packet.
    fn invent_tx_completion(
        &mut self,
        context: &mut Context<'_>,
        arguments: &BTreeMap<String, u64>,
    ) -> Result<(), FaultError> {
        if self.config.format.is_gqi() {
            return Err(FaultError::NotNow("queues of this format have no TX completions".to_owned()));
        }
        let argument = |name: &str| arguments.get(name).copied().unwrap_or(0);
        let id = argument("queue") as usize;
        let Some(mut queue) = self.state.tx.get_mut(id).and_then(Option::take) else {
            return Err(FaultError::NotNow(format!("the driver has not created TX queue {id}")));
        };
        let mut raw = tx::RawCompletion::default();
        let mut fields = WireView::new(tx::COMPLETION_LAYOUT, &mut raw);
        for (name, value) in
            [("id", id as u64), ("type", argument("type")), ("completion_tag", argument("tag"))]
        {
            nicvisor_core::fault::FieldsMut::set_field(&mut fields, name, value);
        }
        self.offer_tx_completion(context, &mut queue, raw);
        self.write_tx_completions(context, &mut queue);
        self.state.tx[id] = Some(queue);
        Ok(())
    }
}
