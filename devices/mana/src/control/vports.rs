//! What vPorts there are, and who may send by them.

use super::{Answer, Failure, Request};
use crate::device::Mana;
use crate::features::Feature;
use crate::rules::control as rules;
use crate::vport::{Transmit, VPort};
use crate::wire::Status;
use crate::wire::gdma_requests::Index;
use crate::wire::mana_requests::{
    ConfigVport, ConfigVportResponse, PF_CQE_8_COALESCING, QueryDeviceConfig, QueryDeviceConfigResponse,
    QueryVportConfigResponse,
};

impl Mana {
    /// `MANA_QUERY_DEV_CONFIG`.
    pub(super) fn query_device_config(&self, request: &Request) -> Result<Answer, Failure> {
        let asked: QueryDeviceConfig = request.read()?;
        let version = [asked.proto_major_ver.get(), asked.proto_minor_ver.get(), asked.proto_micro_ver.get()];
        if version != PROTOCOL_VERSION {
            return Err(Failure::parameter(format!("protocol version {version:?}")));
        }
        let flags = if self.offers(Feature::Coalescing8) { PF_CQE_8_COALESCING } else { 0 };
        let (version, adapter_mtu) = match (self.knows(Feature::HostMode), self.offers(Feature::AdapterMtu)) {
            (true, _) => (3, self.config.reported_adapter_mtu()),
            (false, true) => (2, self.config.reported_adapter_mtu()),
            (false, false) => (1, 0),
        };
        let answer = QueryDeviceConfigResponse {
            pf_cap_flags: [flags.into(), 0.into(), 0.into(), 0.into()],
            max_num_vports: self.config.ports.into(),
            bm_hostmode: self.offers(Feature::HostMode).into(),
            reserved: 0,
            max_num_eqs: self.config.limits.event_queues.into(),
            adapter_mtu: adapter_mtu.into(),
            reserved2: 0.into(),
            reserved3: 0.into(),
        };
        Ok(Answer::new(&answer).version(version))
    }

    /// `MANA_QUERY_VPORT_CONFIG`.
    pub(super) fn query_vport_config(&self, request: &Request) -> Result<Answer, Failure> {
        let index = request.read::<Index>()?.index.get();
        let Some(vport) = self.state.vports.get(index as usize) else {
            return Err(Failure::parameter(format!("vPort {index} of {}", self.state.vports.len())));
        };
        let queues = u32::from(self.config.queues);
        let entries = match self.offers(Feature::VariableTable) {
            true => self.config.indirection_entries,
            false => ONLY_TABLE,
        };
        Ok(Answer::new(&QueryVportConfigResponse {
            max_num_sq: queues.into(),
            max_num_rq: queues.into(),
            num_indirection_ent: u32::from(entries).into(),
            reserved1: 0.into(),
            mac_addr: vport.mac,
            reserved2: [0; 2],
            vport: vport.handle().into(),
        }))
    }

    /// `MANA_CONFIG_VPORT_TX`.
    pub(super) fn config_vport_tx(&mut self, request: &Request) -> Result<Answer, Failure> {
        let asked: ConfigVport = request.read()?;
        let index = self.vport_of(asked.vport.get())?;
        let (protection_domain, doorbell_page) = (asked.pdid.get(), asked.doorbell_pageid.get());
        self.queue_owner(protection_domain, doorbell_page)?;
        let queues = self.state.objects.of_vport(index).count();
        if queues != 0 {
            let message = format!("vPort {index} configured anew with {queues} work queue objects");
            return Err(Failure::breach(Status::InvalidState, &rules::REQUEST_ORDER, message));
        }
        let short_form = self.config.capabilities.short_form;
        let vport = self.vport_mut(index)?;
        vport.transmit = Some(Transmit { protection_domain, doorbell_page });
        Ok(Answer::new(&ConfigVportResponse {
            tx_vport_offset: vport.offset.into(),
            short_form_allowed: short_form.into(),
            reserved: 0,
        }))
    }

    /// The number of the vPort that a request names by `handle`.
    pub(super) fn vport_of(&self, handle: u64) -> Result<u16, Failure> {
        if self.needs_hardware_ports() {
            let index = self.state.objects.hardware_ports.get(&handle).copied();
            return index.ok_or_else(|| {
                Failure::unknown(format!("hardware vPort {handle:#x}, which is not registered"))
            });
        }
        let vport = self.state.vports.iter().find(|vport| vport.handle() == handle);
        vport.map(|vport| vport.index).ok_or_else(|| Failure::unknown(format!("vPort {handle:#x}")))
    }

    /// The same, where a vPort is also known by the handle that the driver found it under: the link is there before
    /// the driver of a physical function has registered anything.
    pub(super) fn link_of(&self, handle: u64) -> Result<u16, Failure> {
        let found = self.state.vports.iter().find(|vport| vport.handle() == handle);
        found.map_or_else(|| self.vport_of(handle), |vport| Ok(vport.index))
    }

    /// The vPort of this number.
    pub(super) fn vport_mut(&mut self, index: u16) -> Result<&mut VPort, Failure> {
        let vport = self.state.vports.get_mut(usize::from(index));
        vport.ok_or_else(|| Failure::unknown(format!("vPort {index}")))
    }
}

/// Entries of the table that drivers have which know no other (`MANA_INDIRECT_TABLE_DEF_SIZE`).
const ONLY_TABLE: u16 = 64;
/// `MANA_MAJOR_VERSION`, `MANA_MINOR_VERSION`, `MANA_MICRO_VERSION`.
const PROTOCOL_VERSION: [u32; 3] = [0, 1, 1];
