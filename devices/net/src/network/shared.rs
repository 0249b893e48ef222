//! One medium for several machines.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicvisor_core::{Fate, Finding, Frame, FrameId, Time};

use super::{Change, Injected, Medium, Network, PortId, Station};

/// A medium that several machines, each with its own thread or turn, put frames on and take frames from.
#[derive(Clone)]
pub struct SharedMedium(Arc<Mutex<Box<dyn Medium>>>);

impl SharedMedium {
    /// Makes `medium` one that can be shared.
    pub fn new(medium: impl Medium + 'static) -> SharedMedium {
        SharedMedium(Arc::new(Mutex::new(Box::new(medium))))
    }

    /// See [`Medium::inject`].
    pub fn inject(&self, port: PortId, bytes: Vec<u8>, now: Time) -> Injected {
        self.lock().inject(port, bytes, now)
    }

    /// See [`Medium::poll`].
    pub fn poll(&self, station: Station, now: Time) -> Vec<(PortId, Frame)> {
        self.lock().poll(station, now)
    }

    /// See [`Medium::next_deadline`].
    pub fn next_deadline(&self, station: Station) -> Option<Time> {
        self.lock().next_deadline(station)
    }

    /// See [`Network::change`].
    pub fn change(&self, change: &Change) -> Vec<PortId> {
        self.lock().network_mut().change(change)
    }

    /// See [`Medium::settle`].
    pub fn settle(&self, frame: FrameId, fate: &Fate) {
        self.lock().settle(frame, fate);
    }

    /// See [`Medium::record_finding`].
    pub fn record_finding(&self, finding: &Finding) {
        self.lock().record_finding(finding);
    }

    /// See [`Medium::set_recording`].
    pub fn set_recording(&self, on: bool) {
        self.lock().set_recording(on);
    }

    /// See [`Medium::finish`].
    ///
    /// # Errors
    /// The first error that writing met.
    pub fn finish(&self) -> io::Result<()> {
        self.lock().finish()
    }

    /// The network at the bottom. Nobody else can use the medium while the guard lives.
    pub fn network(&self) -> NetworkGuard<'_> {
        NetworkGuard(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Medium>> {
        // A machine that panicked has left a medium that can still be reported on.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SharedMedium {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("SharedMedium").finish_non_exhaustive()
    }
}

/// The network of a [`SharedMedium`], locked.
pub struct NetworkGuard<'a>(MutexGuard<'a, Box<dyn Medium>>);

impl Deref for NetworkGuard<'_> {
    type Target = Network;

    fn deref(&self) -> &Network {
        self.0.network()
    }
}

impl DerefMut for NetworkGuard<'_> {
    fn deref_mut(&mut self) -> &mut Network {
        self.0.network_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::LinkConfig;

    #[test]
    fn each_station_takes_only_its_own_frames() {
        let medium = SharedMedium::new(Network::new());
        let (here, there) = {
            let mut network = medium.network();
            (network.add_station(), network.add_station())
        };
        let other = medium.clone();
        let link = medium.network().add_link(LinkConfig::named("lan"));
        let sender = medium.network().add_port(here, link, "a");
        let receiver = other.network().add_port(there, link, "b");
        let id = medium.inject(sender, vec![0xff; 60], Time::ZERO).id;
        assert_eq!(medium.next_deadline(here), None);
        let due = other.next_deadline(there).unwrap();
        assert!(medium.poll(here, due).is_empty());
        let arrived = other.poll(there, due);
        assert_eq!(
            arrived.iter().map(|(port, frame)| (*port, frame.id)).collect::<Vec<_>>(),
            [(receiver, id)]
        );
        other.settle(id, &Fate::Delivered);
        assert!(medium.network().ledger().balance().is_balanced());
    }
}
