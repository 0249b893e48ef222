//! Where received frames go.

use nicvisor_core::Context;
use nicvisor_net::rss::{Fields, Key};

use super::{Answer, Failure, Request};
use crate::device::Mana;
use crate::features::Feature;
use crate::rules::control as rules;
use crate::vport::{Coalescing, Steering};
use crate::wire::Status;
use crate::wire::mana_requests::{
    CONFIG_RX_STEERING_V1, ConfigRxSteering, ConfigRxSteeringResponse, INDIRECTION_MAX, hash_types,
};

impl Mana {
    /// `MANA_CONFIG_VPORT_RX`.
    pub(super) fn config_vport_rx(
        &mut self,
        context: &mut Context<'_>,
        request: &Request,
    ) -> Result<Answer, Failure> {
        let asked: ConfigRxSteering = request.read_at_least(CONFIG_RX_STEERING_V1)?;
        let index = self.vport_of(asked.vport.get())?;
        let mut steering = self.vport_mut(index)?.steering.clone();
        set_state(&mut steering.enabled, "rx_enable", asked.rx_enable.get())?;
        set_state(&mut steering.rss, "rss_enable", asked.rss_enable.get())?;
        if asked.update_default_rxobj != 0 {
            steering.default_queue = Some(self.receive_queue(index, asked.default_rxobj.get())?);
        }
        if asked.update_hashkey != 0 {
            steering.hash.key = Key::new(asked.hashkey);
        }
        if asked.update_indir_tab != 0 {
            steering.hash.table = self.indirection_table(index, request, &asked)?;
        }
        steering.hash.fields = self.hash_fields(request, &asked)?;
        steering.coalescing = self.coalescing(request, &asked)?;
        check_complete(&steering)?;
        let enabled = steering.enabled;
        self.vport_mut(index)?.steering = steering;
        if !enabled {
            self.stop_receiving(context, index);
        }
        if !self.offers(Feature::Coalescing) {
            return Ok(Answer::done());
        }
        let timeout = self.config.coalescing_timeout_ns;
        let answer =
            ConfigRxSteeringResponse { cqe_coalescing_timeout_ns: timeout.into(), reserved1: 0.into() };
        Ok(Answer::new(&answer).version(2))
    }

    fn indirection_table(
        &self,
        vport: u16,
        request: &Request,
        asked: &ConfigRxSteering,
    ) -> Result<Vec<u32>, Failure> {
        let (entries, offset) = (asked.num_indir_entries.get(), asked.indir_tab_offset.get());
        if !entries.is_power_of_two() || usize::from(entries) > INDIRECTION_MAX {
            return Err(breach(format!("an indirection table of {entries} entries")));
        }
        let handles = request.numbers(offset.into(), entries.into())?;
        handles.into_iter().map(|handle| self.receive_queue(vport, handle)).collect()
    }

    /// The number of the receive queue of `vport` behind `handle`.
    fn receive_queue(&self, vport: u16, handle: u64) -> Result<u32, Failure> {
        match self.state.objects.work_queues.get(&handle) {
            Some(object) if !object.send && object.vport == vport => Ok(object.work_queue),
            Some(object) if object.send => {
                Err(breach(format!("frames steered to send queue object {handle:#x}")))
            }
            Some(object) => {
                Err(breach(format!("frames of vPort {vport} steered to a queue of vPort {}", object.vport)))
            }
            None => {
                Err(Failure::unknown(format!("frames steered to object {handle:#x}, which does not exist")))
            }
        }
    }

    fn coalescing(&self, request: &Request, asked: &ConfigRxSteering) -> Result<Coalescing, Failure> {
        let asks = |version, feature| request.version() >= version && self.knows(feature);
        if asks(5, Feature::Coalescing8) && asked.cqe8_coalescing_enable != 0 {
            return match self.offers(Feature::Coalescing8) {
                true => Ok(Coalescing::Eight),
                false => Err(Failure::parameter("completions of eight packets, which are not offered")),
            };
        }
        match asks(2, Feature::Coalescing) && asked.cqe_coalescing_enable != 0 {
            true => Ok(Coalescing::Four),
            false => Ok(Coalescing::Off),
        }
    }

    /// What is hashed. Before version 5 of the message nobody could say, and everything was.
    fn hash_fields(&self, request: &Request, asked: &ConfigRxSteering) -> Result<Fields, Failure> {
        if request.version() < 5 || !self.offers(Feature::HashTypes) {
            return Ok(Fields::ALL);
        }
        let types = asked.rss_hash_types.get();
        if types & !hash_types::ALL != 0 {
            return Err(Failure::parameter(format!("hash types {types:#x}")));
        }
        let has = |kind| types & kind != 0;
        Ok(Fields {
            ipv4: has(hash_types::IPV4),
            tcp_ipv4: has(hash_types::TCP_IPV4),
            udp_ipv4: has(hash_types::UDP_IPV4),
            ipv6: has(hash_types::IPV6),
            tcp_ipv6: has(hash_types::TCP_IPV6),
            udp_ipv6: has(hash_types::UDP_IPV6),
        })
    }
}

/// Takes one of the driver's `enum TRI_STATE` over.
fn set_state(state: &mut bool, name: &str, value: u32) -> Result<(), Failure> {
    match value {
        0 => *state = false,
        1 => *state = true,
        UNKNOWN => (),
        _ => return Err(Failure::parameter(format!("{name} {value}"))),
    }
    Ok(())
}

/// Whether frames have somewhere to go.
fn check_complete(steering: &Steering) -> Result<(), Failure> {
    if steering.enabled && steering.default_queue.is_none() {
        return Err(breach("receiving without a default receive queue".to_owned()));
    }
    if steering.enabled && steering.rss && steering.hash.table.is_empty() {
        return Err(breach("hashing without an indirection table".to_owned()));
    }
    Ok(())
}

fn breach(message: String) -> Failure {
    Failure::breach(Status::InvalidParameter, &rules::STEERING, message)
}

/// `TRI_STATE_UNKNOWN`: as before.
const UNKNOWN: u32 = u32::MAX;
