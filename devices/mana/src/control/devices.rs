//! What there is and who the driver is: version, limits, devices, test events.

use nicvisor_core::{Context, KernelVersion};
use serde::{Deserialize, Serialize};
use zerocopy::FromZeros;

use super::{Answer, Failure, Request};
use crate::device::Mana;
use crate::features::Feature;
use crate::objects::Domains;
use crate::rules::control as rules;
use crate::wire::Status;
use crate::wire::gdma_requests::{
    DEVICE_HWC, DEVICE_MANA, DEVICE_MANA_IB, DeviceId, GenerateTestEvent, HwcTimeout, ListDevicesResponse,
    MaxResourcesResponse, PF_DYN_INTERRUPT_MODERATION, PF_HWC_TIMEOUT_RECONFIG, PROTOCOL_V1,
    RegisterDeviceResponse, VerifyVersionRequest, VerifyVersionResponse,
};
use crate::wire::hwc::EVENT_TEST;

/// What the driver said about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriverVersion {
    /// `GDMA_DRV_CAP_FLAG_1_*`.
    pub(crate) flags: u64,
    /// `os_type`, such as [`LINUX`].
    pub(crate) os_type: u32,
    /// Major, minor, build.
    pub(crate) os_version: [u32; 3],
}

impl DriverVersion {
    /// Whether the driver announces one of the
    /// [`driver_flags`](crate::wire::gdma_requests::driver_flags).
    pub(crate) fn announces(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// The release that it says it is from. Other systems count in other ways.
    pub(crate) fn kernel(&self) -> Option<KernelVersion> {
        let [major, minor, _] = self.os_version;
        (self.os_type == LINUX).then(|| KernelVersion::new(major, minor))
    }
}

impl Mana {
    /// `GDMA_VERIFY_VF_DRIVER_VERSION`.
    pub(super) fn verify_version(&mut self, request: &Request) -> Result<Answer, Failure> {
        let asked: VerifyVersionRequest = request.read()?;
        let (lowest, highest) = (asked.protocol_ver_min.get(), asked.protocol_ver_max.get());
        if !(lowest..=highest).contains(&PROTOCOL_V1) {
            return Err(Failure::parameter(format!("protocol versions {lowest} to {highest}")));
        }
        self.state.driver = Some(DriverVersion {
            flags: asked.gd_drv_cap_flags[0].get(),
            os_type: asked.os_type.get(),
            os_version: [asked.os_ver_major.get(), asked.os_ver_minor.get(), asked.os_ver_build.get()],
        });
        let mut flags = 0;
        if self.offers(Feature::ChannelTimeout) {
            flags |= PF_HWC_TIMEOUT_RECONFIG;
        }
        if self.offers(Feature::Moderation) {
            flags |= PF_DYN_INTERRUPT_MODERATION;
        }
        Ok(Answer::new(&VerifyVersionResponse {
            gdma_protocol_ver: PROTOCOL_V1.into(),
            pf_cap_flags: [flags.into(), 0.into(), 0.into(), 0.into()],
        }))
    }

    /// `GDMA_QUERY_MAX_RESOURCES`.
    pub(super) fn query_max_resources(&self) -> Result<Answer, Failure> {
        let limits = &self.config.limits;
        Ok(Answer::new(&MaxResourcesResponse {
            status: 0.into(),
            max_sq: limits.send_queues.into(),
            max_rq: limits.receive_queues.into(),
            max_cq: limits.completion_queues.into(),
            max_eq: limits.event_queues.into(),
            max_db: limits.doorbell_pages.into(),
            max_mst: limits.memory_regions.into(),
            max_cq_mod_ctx: 0.into(),
            max_mod_cq: limits.completion_queues.into(),
            max_msix: u32::from(self.config.vectors).into(),
        }))
    }

    /// `GDMA_LIST_DEVICES`.
    pub(super) fn list_devices(&self) -> Result<Answer, Failure> {
        let hole = usize::from(self.offers(Feature::ListHoles));
        let kinds = [DEVICE_HWC, DEVICE_MANA, DEVICE_MANA_IB];
        let kinds = &kinds[..if self.offers(Feature::Rdma) { 3 } else { 2 }];
        let mut list = ListDevicesResponse::new_zeroed();
        list.num_of_devs = (kinds.len() as u32).into();
        for (entry, &kind) in list.devs.iter_mut().skip(hole).step_by(1 + hole).zip(kinds) {
            *entry = DeviceId { kind: kind.into(), instance: 0.into() };
        }
        Ok(Answer::new(&list))
    }

    /// `GDMA_REGISTER_DEVICE`.
    pub(super) fn register_device(&mut self, request: &Request) -> Result<Answer, Failure> {
        let kind = self.listed_device(request)?;
        if self.state.objects.domains.is_registered(kind) {
            let message = format!("device {kind} registered, which is registered already");
            return Err(Failure::breach(Status::InvalidState, &rules::REQUEST_ORDER, message));
        }
        let Some(registration) = Domains::registration(kind) else {
            return Err(Failure::parameter(format!("device {kind} registered")));
        };
        self.state.objects.domains.set_registered(kind, true);
        Ok(Answer::new(&RegisterDeviceResponse {
            pdid: registration.protection_domain.into(),
            gpa_mkey: registration.memory_key.into(),
            db_id: registration.doorbell_page.into(),
        }))
    }

    /// `GDMA_DEREGISTER_DEVICE`. Queues that the driver left behind are destroyed.
    pub(super) fn deregister_device(
        &mut self,
        context: &mut Context<'_>,
        request: &Request,
    ) -> Result<Answer, Failure> {
        let kind = self.listed_device(request)?;
        if !self.state.objects.domains.is_registered(kind) {
            return Err(Failure::unknown(format!("device {kind} deregistered, which is not registered")));
        }
        let leftovers = self.queues_left(kind);
        if !leftovers.is_empty() {
            let message = format!("device {kind} deregistered with {leftovers} in place");
            context.report(&rules::DEVICE_LEFTOVER, message, |finding| finding.descriptor = request.bytes());
            match kind {
                DEVICE_MANA => self.destroy_ethernet_objects(context),
                _ => self.destroy_queues_of(kind),
            }
        }
        self.state.objects.domains.set_registered(kind, false);
        if kind == DEVICE_MANA {
            self.state.vports.iter_mut().for_each(crate::vport::VPort::reset);
        }
        Ok(Answer::done())
    }

    /// `GDMA_GENERATE_TEST_EQE`.
    pub(super) fn generate_test_event(
        &mut self,
        context: &mut Context<'_>,
        request: &Request,
    ) -> Result<Answer, Failure> {
        let queue = request.read::<GenerateTestEvent>()?.queue_index.get();
        if !self.state.queues.events.contains_key(&queue) {
            return Err(Failure::unknown(format!(
                "a test event for event queue {queue}, which does not exist"
            )));
        }
        self.state.queues.post_event(context, queue, EVENT_TEST, [0; 12]);
        Ok(Answer::done())
    }

    /// `GDMA_QUERY_HWC_TIMEOUT`.
    pub(super) fn query_channel_timeout(&self, request: &Request) -> Result<Answer, Failure> {
        if !self.offers(Feature::ChannelTimeout) {
            return Err(Failure::refusal(Status::Unsupported));
        }
        request.read::<HwcTimeout>()?;
        let timeout = self.config.channel.timeout_ms;
        Ok(Answer::new(&HwcTimeout { timeout_ms: timeout.into(), reserved: 0.into() }))
    }

    /// Whether the driver announced one of the
    /// [`driver_flags`](crate::wire::gdma_requests::driver_flags).
    pub(crate) fn announced(&self, flag: u64) -> bool {
        self.state.driver.is_some_and(|driver| driver.announces(flag))
    }

    /// The kind of device that a request is for, if such a device is listed.
    fn listed_device(&self, request: &Request) -> Result<u16, Failure> {
        let device = request.header.dev_id;
        let kind = device.kind.get();
        let listed = kind == DEVICE_MANA || kind == DEVICE_MANA_IB && self.offers(Feature::Rdma);
        match listed && device.instance.get() == 0 {
            true => Ok(kind),
            false => Err(Failure::parameter(format!("device {kind}.{}", device.instance))),
        }
    }
}

/// `os_type` of Linux.
const LINUX: u32 = 0x10;
