//! The machine's interrupts on their way into KVM.

use std::sync::Arc;

use nicvisor_core::{InterruptLine, MsiMessage};

use super::vm::Vm;
use crate::machine::InterruptSink;

/// KVM's interrupt controllers, as the machine sees them.
#[derive(Debug)]
pub(super) struct KvmInterrupts {
    vm: Arc<Vm>,
}

impl KvmInterrupts {
    pub(super) fn new(vm: Arc<Vm>) -> KvmInterrupts {
        KvmInterrupts { vm }
    }
}

impl InterruptSink for KvmInterrupts {
    fn message(&mut self, message: MsiMessage) {
        self.vm.signal(message);
    }

    fn set_line(&mut self, line: InterruptLine) {
        self.vm.set_line(line.line, line.level);
    }
}
