//! What can be stacked: a network, and layers around it that see its frames.

use std::io;

use nicvisor_core::{DropReason, Fate, Finding, Frame, FrameId, Time};

use super::{Network, PortId, Station};

/// Carries frames between ports. [`Network`] does; a layer such as [`crate::capture::Capture`] wraps another
/// medium, looks at what goes through, and may change it.
pub trait Medium: Send {
    /// A device puts a frame on its link.
    fn inject(&mut self, port: PortId, bytes: Vec<u8>, now: Time) -> Injected;

    /// The frames that have arrived at the ports of `station` by `now`, in order of arrival. Each must be handed
    /// to the device behind its port, which settles it.
    fn poll(&mut self, station: Station, now: Time) -> Vec<(PortId, Frame)>;

    /// When the next frame arrives at a port of `station`.
    fn next_deadline(&self, station: Station) -> Option<Time>;

    /// A device says what became of a frame.
    fn settle(&mut self, frame: FrameId, fate: &Fate);

    /// A device reports a broken rule: for layers that keep evidence.
    fn record_finding(&mut self, _finding: &Finding) {}

    /// Begins or ends a stretch in which layers write down what they see. They begin with it.
    fn set_recording(&mut self, _on: bool) {}

    /// The run is over: layers that write something down finish it.
    ///
    /// # Errors
    /// The first error that writing met.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The network at the bottom.
    fn network(&self) -> &Network;

    /// The network at the bottom, to be configured.
    fn network_mut(&mut self) -> &mut Network;
}

/// What happened to a frame as it entered a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// The frame's id: its place in captures and in the ledger.
    pub id: FrameId,
    /// The wire rules that it breaks.
    pub findings: Vec<Finding>,
    /// Why the link dropped it at once, if it did.
    pub dropped: Option<DropReason>,
}
