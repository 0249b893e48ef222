//! What the driver asks to be told: link speed, packet types, statistics.

use nicvisor_core::fault::CommandAction;
use nicvisor_core::{Context, Duration, Time};
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use super::{Failure, write_answer};
use crate::device::Gve;
use crate::rules;
use crate::rx::ptype;
use crate::wire::admin::{GetPtypeMap, LINK_SPEED, PTYPES, PtypeEntry, ReportLinkSpeed, ReportStats, Stat};

/// Memory that the device and the driver each write their statistics to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatsReport {
    address: u64,
    length: u64,
    interval_ms: u64,
    /// When the device writes next.
    pub(crate) next: Time,
}

impl Gve {
    /// `GVE_ADMINQ_REPORT_LINK_SPEED`.
    pub(super) fn report_link_speed(
        &mut self,
        context: &mut Context<'_>,
        command: ReportLinkSpeed,
        action: &CommandAction,
    ) -> Result<(), Failure> {
        let speed = self.config.link_speed.to_be_bytes();
        Ok(write_answer(context, command.link_speed_address.get(), LINK_SPEED, action, &speed)?)
    }

    /// `GVE_ADMINQ_GET_PTYPE_MAP`.
    pub(super) fn get_ptype_map(
        &mut self,
        context: &mut Context<'_>,
        command: GetPtypeMap,
    ) -> Result<(), Failure> {
        let length = command.ptype_map_len.get();
        if length != (PTYPES * size_of::<PtypeEntry>()) as u64 {
            return Err(Failure::parameter(format!("packet type map of {length} bytes")));
        }
        Ok(context.dma.write(command.ptype_map_addr.get(), ptype::map().as_bytes())?)
    }

    /// `GVE_ADMINQ_REPORT_STATS`.
    pub(super) fn report_stats(
        &mut self,
        context: &mut Context<'_>,
        command: ReportStats,
    ) -> Result<(), Failure> {
        let (address, length) = (command.stats_report_addr.get(), command.stats_report_len.get());
        if length == 0 {
            self.state.stats = None;
            return Ok(());
        }
        let values = length.checked_sub(WRITTEN_COUNT_SIZE).map(|rest| rest % size_of::<Stat>() as u64);
        if values != Some(0) || length > MAX_REPORT {
            return Err(Failure::parameter(format!("statistics report of {length} bytes")));
        }
        let interval_ms = command.interval.get();
        if !(1..=MAX_INTERVAL_MS).contains(&interval_ms) {
            return Err(Failure::parameter(format!("statistics report every {interval_ms} ms")));
        }
        if !context.dma.is_memory(address, length as usize) {
            let message = format!("statistics report of {length} bytes at {address:#x}");
            let status = crate::wire::admin::Status::InternalError;
            return Err(Failure::breach(status, &rules::ADMIN_MEMORY, message));
        }
        let next = context.now + Duration::from_millis(interval_ms);
        self.state.stats = Some(StatsReport { address, length, interval_ms, next });
        Ok(())
    }

    /// Writes the device's statistics if it is time to. They stand at the end of the report, four values for
    /// each RX queue; what is before is the driver's.
    pub(crate) fn write_stats(&mut self, context: &mut Context<'_>) {
        let Some(report) = &mut self.state.stats else { return };
        if context.now < report.next {
            return;
        }
        report.next = context.now + Duration::from_millis(report.interval_ms);
        let values: Vec<Stat> =
            self.state.rx.iter().flatten().flat_map(|queue| queue.stats.values(queue.id)).collect();
        let bytes = values.as_bytes();
        let Some(offset) = report.length.checked_sub(bytes.len() as u64) else { return };
        if offset < WRITTEN_COUNT_SIZE {
            return;
        }
        if let Err(error) = context.dma.write(report.address + offset, bytes) {
            self.state.stats = None;
            rules::report(&self.config, context, &rules::ADMIN_MEMORY, error.to_string(), |_| ());
        }
    }
}

/// `gve_stats_report.written_count`.
const WRITTEN_COUNT_SIZE: u64 = 8;
/// Eight driver values and four of the device for each of at most 256 pairs of queues, with room to spare.
const MAX_REPORT: u64 = 1 << 20;
const MAX_INTERVAL_MS: u64 = 24 * 3600 * 1000;
