//! Where interrupts go when a backend brings interrupt controllers of its own.

use nicvisor_core::{Effects, InterruptLine, MsiMessage};

use super::Machine;

/// Interrupt controllers outside the machine, such as those in the host's kernel.
pub trait InterruptSink: std::fmt::Debug + Send {
    /// A device sends a message-signalled interrupt.
    fn message(&mut self, message: MsiMessage);

    /// A wired interrupt changes its level.
    fn set_line(&mut self, line: InterruptLine);
}

impl Machine {
    /// Sends all interrupts to `sink` from now on, instead of to the modelled controllers.
    pub fn set_interrupt_sink(&mut self, sink: Box<dyn InterruptSink>) {
        self.platform.leave_interrupts_to_machine();
        self.interrupt_sink = Some(sink);
    }

    /// Delivers the interrupts that a call left.
    pub(super) fn route_interrupts(&mut self, effects: &mut Effects) {
        let Some(sink) = &mut self.interrupt_sink else {
            self.platform.route_interrupts(effects);
            return;
        };
        for line in effects.lines.drain(..) {
            sink.set_line(line);
        }
        for message in effects.messages.drain(..) {
            sink.message(message);
        }
    }
}
