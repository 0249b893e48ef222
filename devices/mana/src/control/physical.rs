//! What only the driver of a physical function asks for: vPorts of its own, and filters that lead frames to them.

use super::{Answer, Failure, Request};
use crate::device::Mana;
use crate::features::Feature;
use crate::objects::Filter;
use crate::wire::Status;
use crate::wire::gdma_requests::Handle;
use crate::wire::mana_requests::{RegisterFilter, RegisterHwPort};

impl Mana {
    /// `MANA_REGISTER_HW_PORT`. The request does not say which vPort it is for: they are given out in order.
    pub(super) fn register_hardware_port(&mut self, request: &Request) -> Result<Answer, Failure> {
        self.check_privilege()?;
        let asked: RegisterHwPort = request.read()?;
        let ports = &self.state.objects.hardware_ports;
        let free = (0..self.config.ports).find(|index| !ports.values().any(|used| used == index));
        let index = free.ok_or_else(|| Failure::refusal(Status::NoResources))?;
        let handle = self.state.objects.new_handle();
        self.state.objects.hardware_ports.insert(handle, index);
        self.vport_mut(index)?.known_types_only = asked.allow_all_ether_types == 0;
        Ok(Answer::new(&Handle { handle: handle.into() }))
    }

    /// `MANA_DEREGISTER_HW_PORT`.
    pub(super) fn deregister_hardware_port(&mut self, request: &Request) -> Result<Answer, Failure> {
        self.check_privilege()?;
        let handle = request.read::<Handle>()?.handle.get();
        let objects = &mut self.state.objects;
        let Some(&index) = objects.hardware_ports.get(&handle) else {
            let message = format!("hardware vPort {handle:#x} deregistered, which is not registered");
            return Err(Failure::unknown(message));
        };
        let queues = objects.of_vport(index).count();
        let filters = objects.filters.values().filter(|filter| filter.vport == index).count();
        if queues + filters != 0 {
            let message =
                format!("vPort {index} deregistered with {queues} work queues and {filters} filters");
            return Err(Failure::in_use(message));
        }
        objects.hardware_ports.remove(&handle);
        self.vport_mut(index)?.reset();
        Ok(Answer::done())
    }

    /// `MANA_REGISTER_FILTER`.
    pub(super) fn register_filter(&mut self, request: &Request) -> Result<Answer, Failure> {
        self.check_privilege()?;
        let asked: RegisterFilter = request.read()?;
        let vport = self.vport_of(asked.vport.get())?;
        if self.state.objects.filters.len() >= MAX_FILTERS {
            return Err(Failure::refusal(Status::NoResources));
        }
        let handle = self.state.objects.new_handle();
        self.state.objects.filters.insert(handle, Filter { vport, mac: asked.mac_addr });
        Ok(Answer::new(&Handle { handle: handle.into() }))
    }

    /// `MANA_DEREGISTER_FILTER`.
    pub(super) fn deregister_filter(&mut self, request: &Request) -> Result<Answer, Failure> {
        self.check_privilege()?;
        let handle = request.read::<Handle>()?.handle.get();
        match self.state.objects.filters.remove(&handle) {
            Some(_) => Ok(Answer::done()),
            None => Err(Failure::unknown(format!("filter {handle:#x} deregistered, which does not exist"))),
        }
    }

    /// Whether the driver must register hardware vPorts before it uses them.
    pub(crate) fn needs_hardware_ports(&self) -> bool {
        self.config.function.is_physical() && !self.offers(Feature::HostMode)
    }

    fn check_privilege(&self) -> Result<(), Failure> {
        match self.config.function.is_physical() {
            true => Ok(()),
            false => Err(Failure::parameter("a privileged request on a virtual function")),
        }
    }
}

const MAX_FILTERS: usize = 256;
