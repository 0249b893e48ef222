//! A driver for tests, benches and fuzz targets: sets the device up through its hardware channel as Linux does,
//! sends, receives, and checks what every driver relies on (owner bits, the order of completions).

mod channel;
mod driver;
mod hostile;
mod ports;
mod rings;
mod send;
mod setup;

pub use channel::{Channel, Response};
#[cfg(test)]
pub(crate) use channel::{header_of, write_establish};
pub use driver::Driver;
#[cfg(test)]
pub(crate) use driver::SEND_AREA;
pub use hostile::{
    exercise_channel, exercise_doorbells, exercise_mixture, exercise_receive_ring, exercise_send_ring,
};
pub use ports::{Port, ReceiveQueue, Received, SendQueue};
pub use rings::{EntryRing, WorkRing};
pub use send::{Offload, Send, Sent};
pub use setup::Setup;
#[cfg(test)]
pub(crate) use setup::work_queue_object;

use crate::wire::doorbell::Doorbell;

/// The doorbells that a driver could ring now on the first pair of queues of the first vPort.
fn rings_of(driver: &Driver) -> Vec<Doorbell> {
    let port = &driver.ports[0];
    vec![
        port.send[0].work.doorbell(),
        port.receive[0].work.doorbell(),
        port.send[0].completions.doorbell(true),
        port.receive[0].completions.doorbell(true),
        port.events[0].doorbell(true),
    ]
}
