//! Requests that the driver makes through the hardware channel.

mod devices;
mod domains;
mod message;
mod physical;
mod queues;
mod regions;
mod statistics;
mod steering;
mod vports;
mod work_queues;

use nicvisor_core::Context;

pub(crate) use devices::DriverVersion;
pub(crate) use message::{Answer, Failure, Request};

use crate::device::Mana;
use crate::rules::control as rules;
use crate::wire::gdma_requests::{DEVICE_MANA, DeviceId};
use crate::wire::{RequestType, Status};

impl Mana {
    /// Carries a request out.
    pub(crate) fn execute(
        &mut self,
        context: &mut Context<'_>,
        request: &Request,
    ) -> Result<Answer, Failure> {
        let Some(kind) = request.kind() else {
            let message = format!("request type {:#x}", request.header.req.msg_type);
            return Err(Failure::breach(Status::Unsupported, &rules::REQUEST_UNKNOWN, message));
        };
        self.check_order(kind, request.header.dev_id)?;
        match kind {
            RequestType::VerifyVfDriverVersion => self.verify_version(request),
            RequestType::QueryMaxResources => self.query_max_resources(),
            RequestType::ListDevices => self.list_devices(),
            RequestType::RegisterDevice => self.register_device(request),
            RequestType::DeregisterDevice => self.deregister_device(context, request),
            RequestType::GenerateTestEqe => self.generate_test_event(context, request),
            RequestType::CreateQueue => self.create_queue(context, request),
            RequestType::DisableQueue => self.disable_queue(request),
            RequestType::AllocateResourceRange => self.allocate_resource_range(request),
            RequestType::DestroyResourceRange => self.destroy_resource_range(request),
            RequestType::CreateDmaRegion => self.create_dma_region(request),
            RequestType::DmaRegionAddPages => self.add_pages(request),
            RequestType::DestroyDmaRegion => self.destroy_dma_region(request),
            RequestType::CreatePd => self.create_domain(request),
            RequestType::DestroyPd => self.destroy_domain(request),
            RequestType::CreateMr => self.create_memory_region(request),
            RequestType::DestroyMr => self.destroy_memory_region(request),
            RequestType::QueryHwcTimeout => self.query_channel_timeout(request),
            RequestType::AllocDm => self.allocate_device_memory(request),
            RequestType::DestroyDm => self.free_device_memory(request),
            _ => self.execute_ethernet(context, kind, request),
        }
    }

    /// The requests of the Ethernet device.
    fn execute_ethernet(
        &mut self,
        context: &mut Context<'_>,
        kind: RequestType,
        request: &Request,
    ) -> Result<Answer, Failure> {
        match kind {
            RequestType::QueryDevConfig => self.query_device_config(request),
            RequestType::QueryVportConfig => self.query_vport_config(request),
            RequestType::ConfigVportTx => self.config_vport_tx(request),
            RequestType::ConfigVportRx => self.config_vport_rx(context, request),
            RequestType::CreateWqObj => self.create_work_queue_object(context, request),
            RequestType::DestroyWqObj => self.destroy_work_queue_object(context, request),
            RequestType::FenceRq => self.fence(context, request),
            RequestType::QueryGfStat => self.query_statistics(request),
            RequestType::QueryPhyStat => self.query_phy_statistics(),
            RequestType::QueryLinkConfig => self.query_link_config(request),
            RequestType::SetBwClamp => self.set_bandwidth_clamp(request),
            RequestType::RegisterFilter => self.register_filter(request),
            RequestType::DeregisterFilter => self.deregister_filter(request),
            RequestType::RegisterHwPort => self.register_hardware_port(request),
            RequestType::DeregisterHwPort => self.deregister_hardware_port(request),
            _ => Err(Failure::refusal(Status::Unsupported)),
        }
    }

    /// Whether a request may come now.
    fn check_order(&self, kind: RequestType, device: DeviceId) -> Result<(), Failure> {
        let order =
            |message: String| Err(Failure::breach(Status::InvalidState, &rules::REQUEST_ORDER, message));
        // The driver tries its event queue before it says who it is.
        let may_be_first = matches!(kind, RequestType::VerifyVfDriverVersion | RequestType::GenerateTestEqe);
        if self.state.driver.is_none() && !may_be_first {
            return order(format!("{} before the version was agreed on", kind.name()));
        }
        if !kind.is_ethernet() {
            return Ok(());
        }
        if device.kind.get() != DEVICE_MANA || device.instance.get() != 0 {
            let message = format!("{} for device {}.{}", kind.name(), device.kind, device.instance);
            return Err(Failure::breach(Status::InvalidParameter, &rules::REQUEST_PARAMETER, message));
        }
        // Since Linux 7.1 the driver asks for the configuration before it registers the device.
        let needs_device = kind != RequestType::QueryDevConfig;
        if needs_device && !self.state.objects.domains.is_registered(DEVICE_MANA) {
            return order(format!("{} before the device was registered", kind.name()));
        }
        Ok(())
    }
}
