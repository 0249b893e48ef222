//! The account of frames: every one that enters must come out somewhere.

use std::collections::BTreeMap;

use nicvisor_core::{DropReason, Fate, FrameId, Time};
use serde::{Deserialize, Serialize};

use super::PortId;

/// Where every frame is, and how many went where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    last_id: u64,
    totals: Totals,
    in_flight: BTreeMap<FrameId, Place>,
    unexpected: Vec<(FrameId, Fate)>,
}

/// How many frames went where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Frames that devices put on links.
    pub entered: u64,
    /// Copies that links made of them: for further receivers, and duplicates.
    pub copied: u64,
    /// Frames that devices gave to their guest.
    pub delivered: u64,
    /// Frames dropped, by reason.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Frames whose fate was told twice, or that no one had entered.
    pub unexpected: u64,
}

impl Totals {
    /// Frames dropped for any reason.
    pub fn all_dropped(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// On the link that it entered at a port.
    Link {
        /// Where it entered.
        from: PortId,
        /// When.
        since: Time,
    },
    /// Inside the device behind a port.
    Device {
        /// The device's port.
        port: PortId,
        /// Since when.
        since: Time,
    },
}

/// What does not add up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// Frames without a fate, and where they were last.
    pub missing: Vec<(FrameId, Place)>,
    /// Fates told for frames that had one already, or that never entered (the first of them).
    pub unexpected: Vec<(FrameId, Fate)>,
    /// Entered and copied frames minus those delivered, dropped or in flight: 0 unless the account itself is
    /// wrong.
    pub difference: i128,
}

impl Balance {
    /// Whether every frame has exactly one fate.
    pub fn is_balanced(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.difference == 0
    }
}

impl Ledger {
    /// What does not add up. While the machine runs, frames in flight count as missing; at the end, after
    /// [`super::Network::close`], each that is listed was lost without anyone saying so.
    pub fn balance(&self) -> Balance {
        let came = i128::from(self.totals.entered) + i128::from(self.totals.copied);
        let went = i128::from(self.totals.delivered) + i128::from(self.totals.all_dropped());
        Balance {
            missing: self.in_flight.iter().map(|(id, place)| (*id, *place)).collect(),
            unexpected: self.unexpected.clone(),
            difference: came - went - self.in_flight.len() as i128,
        }
    }

    /// How many frames went where.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Where a frame is, unless its way has ended.
    pub fn place(&self, frame: FrameId) -> Option<Place> {
        self.in_flight.get(&frame).copied()
    }

    /// A frame enters at `from`.
    pub(super) fn enter(&mut self, from: PortId, now: Time) -> FrameId {
        self.totals.entered += 1;
        self.assign(from, now)
    }

    /// A link makes a copy of a frame that entered at `from`.
    pub(super) fn copy(&mut self, from: PortId, now: Time) -> FrameId {
        self.totals.copied += 1;
        self.assign(from, now)
    }

    /// A frame arrives at a device.
    pub(super) fn hand_over(&mut self, frame: FrameId, port: PortId, now: Time) {
        if let Some(place) = self.in_flight.get_mut(&frame) {
            *place = Place::Device { port, since: now };
        }
    }

    /// A frame's way ends.
    pub(super) fn settle(&mut self, frame: FrameId, fate: &Fate) {
        if self.in_flight.remove(&frame).is_none() {
            self.totals.unexpected += 1;
            if self.unexpected.len() < MAX_UNEXPECTED {
                self.unexpected.push((frame, fate.clone()));
            }
            return;
        }
        match fate {
            Fate::Delivered => self.totals.delivered += 1,
            Fate::Dropped(reason) => *self.totals.dropped.entry(reason.clone()).or_default() += 1,
        }
    }

    fn assign(&mut self, from: PortId, now: Time) -> FrameId {
        self.last_id += 1;
        let id = FrameId(self.last_id);
        self.in_flight.insert(id, Place::Link { from, since: now });
        id
    }
}

/// How many unexpected fates are kept; all are counted.
const MAX_UNEXPECTED: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_without_a_fate_is_missing_and_one_with_two_is_unexpected() {
        let mut ledger = Ledger::default();
        let now = Time::from_nanos(5);
        let lost = ledger.enter(PortId(1), now);
        let twice = ledger.enter(PortId(1), now);
        let copy = ledger.copy(PortId(1), now);
        ledger.hand_over(lost, PortId(2), now);
        ledger.settle(twice, &Fate::Delivered);
        ledger.settle(twice, &Fate::Dropped(DropReason::RESET));
        ledger.settle(copy, &Fate::Dropped(DropReason::NO_BUFFER));
        let balance = ledger.balance();
        assert!(!balance.is_balanced());
        assert_eq!(balance.missing, [(lost, Place::Device { port: PortId(2), since: now })]);
        assert_eq!(balance.unexpected, [(twice, Fate::Dropped(DropReason::RESET))]);
        assert_eq!(balance.difference, 0);
    }

    #[test]
    fn the_account_survives_json() {
        let mut ledger = Ledger::default();
        let settled = ledger.enter(PortId(0), Time::ZERO);
        ledger.enter(PortId(0), Time::ZERO);
        ledger.settle(settled, &Fate::Dropped(DropReason::TOO_LONG));
        let text = serde_json::to_string(&ledger).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
    }
}
