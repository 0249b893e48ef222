//! The hypervisor's own interface of a machine, and the bus that comes with it.

use nicvisor_core::{ChannelBus, Context, DeviceId, HypervisorInterface, Time, VmbusDevice};

use super::Machine;
use super::effects::Source;
use super::plug::Place;

/// The interface, a device of the machine like others.
#[derive(Debug)]
pub(super) struct Hypervisor {
    pub(super) id: DeviceId,
    pub(super) model: Box<dyn HypervisorInterface>,
}

impl Machine {
    /// Offers the guest a hypervisor's own interface, which reports call `name`. To be done once, before the
    /// backend is made: it asks for CPUID leaves and the port of calls.
    pub fn set_hypervisor(
        &mut self,
        name: impl Into<String>,
        model: Box<dyn HypervisorInterface>,
    ) -> DeviceId {
        let id = self.attach(name.into(), Vec::new(), Place::Hypervisor);
        self.hypervisor = Some(Hypervisor { id, model });
        id
    }

    /// The hypervisor's own interface that the guest is offered, if it is one.
    pub fn hypervisor(&self) -> Option<&dyn HypervisorInterface> {
        Some(&*self.hypervisor.as_ref()?.model)
    }

    /// Calls the interface and carries out what it, and the devices on its bus, ask for. `None` without one.
    pub(super) fn call_hypervisor<R>(
        &mut self,
        now: Time,
        call: impl FnOnce(&mut dyn HypervisorInterface, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let Hypervisor { id, model } = self.hypervisor.as_mut()?;
        let source = Source::Device(*id);
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        let result = call(&mut **model, &mut context);
        self.carry_out(source, now);
        Some(result)
    }

    /// The same with the bus of the interface; `None` without one.
    pub(super) fn call_bus<R>(
        &mut self,
        now: Time,
        call: impl FnOnce(&mut dyn ChannelBus, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.call_hypervisor(now, |model, context| Some(call(model.bus_mut()?, context)))?
    }

    /// The bus, to be looked at.
    pub(super) fn bus(&self) -> Option<&dyn ChannelBus> {
        self.hypervisor.as_ref()?.model.bus()
    }

    pub(super) fn insert_channel_device(&mut self, now: Time, id: DeviceId, device: Box<dyn VmbusDevice>) {
        self.call_bus(now, |bus, context| bus.insert(context, id, device));
    }
}
