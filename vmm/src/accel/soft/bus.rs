//! The machine as the software CPU reaches it, during one turn of one CPU.

use nicvisor_core::Time;
use nicvisor_platform::LOCAL_APIC_BASE;
use softcpu::{Bus, Event, GeneralProtection, Position};

use super::clock::Clock;
use crate::machine::Machine;

/// The machine and the clock of this turn.
pub(super) struct SoftBus<'a> {
    machine: &'a mut Machine,
    clock: Clock,
    /// When the turn's budget ends.
    end: Time,
    /// The turn is to end: something is due before its end, or another CPU should see what this one did.
    yielding: bool,
    /// An interrupt was delivered.
    delivered: bool,
}

impl<'a> SoftBus<'a> {
    pub(super) fn new(machine: &'a mut Machine, clock: Clock, budget: u64) -> SoftBus<'a> {
        SoftBus { machine, clock, end: clock.after(budget), yielding: false, delivered: false }
    }

    /// Whether the CPU took an interrupt in this turn.
    pub(super) fn delivered(&self) -> bool {
        self.delivered
    }

    /// After an access that may have set a timer or ended the machine.
    fn settle(&mut self) {
        self.yielding |= self.machine.has_power_event()
            || self.machine.next_deadline().is_some_and(|deadline| deadline < self.end);
    }
}

impl Bus for SoftBus<'_> {
    fn read_memory(&mut self, at: Position, address: u64, data: &mut [u8]) {
        data.fill(0xff);
        self.machine.read_memory(self.clock.after(at.executed), at.cpu, address, data);
        self.settle();
    }

    fn write_memory(&mut self, at: Position, address: u64, data: &[u8]) {
        self.machine.write_memory(self.clock.after(at.executed), at.cpu, address, data);
        self.yielding |= address == LOCAL_APIC_BASE + INTERRUPT_COMMAND;
        self.settle();
    }

    fn read_port(&mut self, at: Position, port: u16, data: &mut [u8]) {
        data.fill(0xff);
        self.machine.read_port(self.clock.after(at.executed), at.cpu, port, data);
        self.settle();
    }

    fn call(&mut self, at: Position, port: u16, registers: &mut [u64; 16]) -> bool {
        let now = self.clock.after(at.executed);
        let called = self.machine.hypercall(now, at.cpu, port, registers);
        if called {
            self.settle();
        }
        called
    }

    fn write_port(&mut self, at: Position, port: u16, data: &[u8]) {
        self.machine.write_port(self.clock.after(at.executed), at.cpu, port, data);
        self.settle();
    }

    fn read_msr(&mut self, at: Position, index: u32) -> Result<u64, GeneralProtection> {
        let value = self.machine.read_msr(self.clock.after(at.executed), at.cpu, index);
        self.settle();
        value.map_err(|_| GeneralProtection)
    }

    fn write_msr(&mut self, at: Position, index: u32, value: u64) -> Result<(), GeneralProtection> {
        let written = self.machine.write_msr(self.clock.after(at.executed), at.cpu, index, value);
        self.yielding |= index == X2APIC_INTERRUPT_COMMAND;
        self.settle();
        written.map_err(|_| GeneralProtection)
    }

    #[inline]
    fn time_stamp(&mut self, at: Position) -> u64 {
        self.machine.platform().tsc(self.clock.after(at.executed))
    }

    fn task_priority(&mut self, at: Position) -> u8 {
        self.machine.platform().interrupts.task_priority(at.cpu)
    }

    fn set_task_priority(&mut self, at: Position, priority: u8) {
        self.machine.platform_mut().interrupts.set_task_priority(at.cpu, priority);
    }

    #[inline]
    fn attention(&self, cpu: usize) -> bool {
        self.yielding || self.machine.platform().interrupts.pending(cpu)
    }

    fn take_event(&mut self, cpu: usize, interruptible: bool) -> Option<Event> {
        if self.yielding {
            return Some(Event::Yield);
        }
        let interrupts = &mut self.machine.platform_mut().interrupts;
        if interrupts.take_nmi(cpu) {
            self.delivered = true;
            return Some(Event::Nmi);
        }
        if interruptible && let Some(vector) = interrupts.acknowledge(cpu) {
            self.delivered = true;
            return Some(Event::Interrupt(vector));
        }
        // What is pending still, though no maskable interrupt is, is an INIT or start-up: for the turn's end.
        (interrupts.pending(cpu) && !interrupts.interrupt_pending(cpu)).then_some(Event::Yield)
    }
}

/// The interrupt command register's place among the local APIC's: writing it sends an IPI.
const INTERRUPT_COMMAND: u64 = 0x300;
const X2APIC_INTERRUPT_COMMAND: u32 = 0x830;
