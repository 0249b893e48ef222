//! Interrupt controllers: local APICs, I/O APIC and the 8259 pair, and the wiring between them.

mod bits;
mod fabric;
mod io_apic;
mod local_apic;
mod message;
mod pic;
mod registers;
mod timer;

pub use fabric::{InterruptFabric, LOCAL_APIC_BASE};
pub use io_apic::{IO_APIC_BASE, IoApic};
pub use local_apic::{LocalApic, Startup};
pub use pic::PicPair;
