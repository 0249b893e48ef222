//! Statistics, and what the physical port offers.

use zerocopy::FromZeros;
use zerocopy::little_endian::U64;

use super::{Answer, Failure, Request};
use crate::device::Mana;
use crate::features::Feature;
use crate::statistics::Statistics;
use crate::wire::Status;
use crate::wire::gdma_requests::Handle;
use crate::wire::mana_requests::{
    PhyStatistics, QueryLinkConfigResponse, SetBandwidthClamp, SetBandwidthClampResponse,
};

impl Mana {
    /// `MANA_QUERY_GF_STAT`: those of all vPorts together.
    pub(super) fn query_statistics(&self, request: &Request) -> Result<Answer, Failure> {
        let asked = request.read::<Handle>()?.handle.get();
        let all = self.all_statistics().list();
        let reported = all.iter().fold(0, |bits, (_, bit, _)| bits | 1_u64 << bit) & asked;
        let values = all.iter().map(|(_, bit, value)| if reported >> bit & 1 != 0 { *value } else { 0 });
        let words: Vec<U64> = [reported].into_iter().chain(values).map(U64::new).collect();
        Ok(Answer::new(&words[..]).version(2))
    }

    /// `MANA_QUERY_PHY_STAT`. All traffic is of class 0; nobody sends pause frames.
    pub(super) fn query_phy_statistics(&self) -> Result<Answer, Failure> {
        if !self.offers(Feature::PhyStatistics) {
            return Err(Failure::refusal(Status::Unsupported));
        }
        let all = self.all_statistics();
        let mut answer = PhyStatistics::new_zeroed();
        answer.reported_stats = u64::MAX.into();
        let dropped = self.state.data.iter().map(|path| {
            let (receive, send) = (&path.receiver.counters, &path.transmitter.counters);
            [receive.dropped_no_buffer + receive.dropped_too_long, send.link_down]
        });
        let [received, sent] = dropped.fold([0, 0], |all, own| [all[0] + own[0], all[1] + own[1]]);
        (answer.rx_pkt_drop_phy, answer.tx_pkt_drop_phy) = (received.into(), sent.into());
        let packets = |one: u64, some: u64, all: u64| U64::new(one + some + all);
        answer.packets[0] = [
            packets(all.hc_rx_ucast_pkts, all.hc_rx_mcast_pkts, all.hc_rx_bcast_pkts),
            packets(all.hc_tx_ucast_pkts, all.hc_tx_mcast_pkts, all.hc_tx_bcast_pkts),
        ];
        answer.bytes[0] = [all.hc_rx_bytes.into(), all.hc_tx_bytes.into()];
        Ok(Answer::new(&answer))
    }

    /// `MANA_QUERY_LINK_CONFIG`.
    pub(super) fn query_link_config(&mut self, request: &Request) -> Result<Answer, Failure> {
        let index = self.link_of(request.read::<Handle>()?.handle.get())?;
        if !self.offers(Feature::LinkConfig) {
            return Err(Failure::refusal(Status::Unsupported));
        }
        let most = self.config.link_speed;
        let now = self.vport_mut(index)?.bandwidth_clamp.unwrap_or(most);
        let answer = QueryLinkConfigResponse {
            qos_speed_mbps: most.into(),
            qos_unconfigured: 0,
            reserved1: [0; 3],
            link_speed_mbps: now.into(),
            reserved2: [0; 4],
        };
        Ok(Answer::new(&answer).version(2))
    }

    /// `MANA_SET_BW_CLAMP`.
    pub(super) fn set_bandwidth_clamp(&mut self, request: &Request) -> Result<Answer, Failure> {
        let asked: SetBandwidthClamp = request.read()?;
        let index = self.link_of(asked.vport.get())?;
        if !self.offers(Feature::LinkConfig) {
            return Err(Failure::refusal(Status::Unsupported));
        }
        let (enable, speed) = (asked.enable_clamping.get(), asked.link_speed_mbps.get());
        let clamp = match enable {
            0 => None,
            1 if (1..=self.config.link_speed).contains(&speed) => Some(speed),
            _ => return Err(Failure::parameter(format!("bandwidth clamp {enable} at {speed} Mb/s"))),
        };
        self.vport_mut(index)?.bandwidth_clamp = clamp;
        // What waits is measured by the new limit from now on.
        if let Some(path) = self.state.data.get_mut(usize::from(index)) {
            path.transmitter.clamp.lift();
        }
        Ok(Answer::new(&SetBandwidthClampResponse { qos_unconfigured: 0, reserved: [0; 7] }))
    }

    fn all_statistics(&self) -> Statistics {
        let mut all = Statistics::default();
        self.state.vports.iter().for_each(|vport| all.add(&vport.statistics));
        all
    }
}
