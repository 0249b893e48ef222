//! What the CPUs reach besides RAM: memory-mapped registers, I/O ports, model-specific registers, calls.

use nicvisor_core::{Context, GeneralRegisters, MsrFault, Time};

use super::effects::Source;
use super::{Machine, msr};
use crate::boot::layout::{ECAM_SIZE, ECAM_START};

impl Machine {
    /// CPU `cpu` reads memory that is not RAM; `data` comes filled with ones.
    pub fn read_memory(&mut self, now: Time, cpu: usize, address: u64, data: &mut [u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if self.platform.memory_read(&mut context, cpu, address, data) {
            self.carry_out(Source::Platform, now);
        } else if let Some(offset) = ecam_offset(address, data.len()) {
            self.root.ecam_read(offset, data);
            self.activity += 1;
        } else if let Some(slot) = self.root.memory_read(&mut context, address, data) {
            self.activity += 1;
            self.carry_out(self.in_slot(slot), now);
        } else if self.call_bus(now, |bus, context| bus.read_memory(context, address, data)) == Some(true) {
            self.activity += 1;
        }
    }

    /// CPU `cpu` writes memory that is not RAM.
    pub fn write_memory(&mut self, now: Time, cpu: usize, address: u64, data: &[u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if self.platform.memory_write(&mut context, cpu, address, data) {
            self.carry_out(Source::Platform, now);
        } else if let Some(offset) = ecam_offset(address, data.len()) {
            self.activity += 1;
            if let Some(slot) = self.root.ecam_write(&mut context, offset, data) {
                self.carry_out(self.in_slot(slot), now);
            }
        } else if let Some(slot) = self.root.memory_write(&mut context, address, data) {
            self.activity += 1;
            self.carry_out(self.in_slot(slot), now);
        } else if self.call_bus(now, |bus, context| bus.write_memory(context, address, data)) == Some(true) {
            self.activity += 1;
        }
    }

    /// CPU `cpu` reads an I/O port; `data` comes filled with ones.
    pub fn read_port(&mut self, now: Time, _cpu: usize, port: u16, data: &mut [u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        if self.platform.port_read(&mut context, port, data) {
            self.carry_out(Source::Platform, now);
        } else if PCI_PORTS.contains(&port) {
            self.root.port_read(port, data);
        }
    }

    /// CPU `cpu` writes an I/O port. A backend that keeps the registers at hand asks [`Self::hypercall`] first.
    pub fn write_port(&mut self, now: Time, _cpu: usize, port: u16, data: &[u8]) {
        let mut context = Context::new(now, &self.ram, true, &mut self.effects);
        // The reset control register lies among the PCI ports, and is one byte wide.
        if self.platform.port_write(&mut context, port, data) {
            self.carry_out(Source::Platform, now);
        } else if PCI_PORTS.contains(&port)
            && let Some(slot) = self.root.port_write(&mut context, port, data)
        {
            self.carry_out(self.in_slot(slot), now);
        }
    }

    /// CPU `cpu` writes `port`, which may be a call of the hypervisor's interface: then that changes `registers`
    /// and this returns `true`. Otherwise the write is one for [`Self::write_port`].
    pub fn hypercall(&mut self, now: Time, cpu: usize, port: u16, registers: &mut GeneralRegisters) -> bool {
        if self.hypervisor().is_none_or(|hypervisor| hypervisor.call_port() != port) {
            return false;
        }
        self.activity += 1;
        self.call_hypervisor(now, |hypervisor, context| hypervisor.call(context, cpu, registers));
        true
    }

    /// CPU `cpu` reads a model-specific register that it does not keep itself.
    ///
    /// # Errors
    /// When there is no such register: the CPU raises #GP(0).
    pub fn read_msr(&mut self, now: Time, cpu: usize, index: u32) -> Result<u64, MsrFault> {
        let own = self.call_hypervisor(now, |hypervisor, context| hypervisor.read_msr(context, cpu, index));
        if let Some(Some(value)) = own {
            return value;
        }
        if nicvisor_platform::InterruptFabric::has_msr(index) {
            return self.platform.interrupts.msr_read(cpu, now, index);
        }
        msr::read(index).ok_or(MsrFault)
    }

    /// CPU `cpu` writes a model-specific register that it does not keep itself.
    ///
    /// # Errors
    /// When there is no such register or it does not take this value: the CPU raises #GP(0).
    pub fn write_msr(&mut self, now: Time, cpu: usize, index: u32, value: u64) -> Result<(), MsrFault> {
        let own =
            self.call_hypervisor(now, |hypervisor, context| hypervisor.write_msr(context, cpu, index, value));
        if let Some(Some(written)) = own {
            self.activity += 1;
            return written;
        }
        if nicvisor_platform::InterruptFabric::has_msr(index) {
            return self.platform.interrupts.msr_write(cpu, now, index, value);
        }
        msr::write(index, value).ok_or(MsrFault)
    }
}

/// The offset in the ECAM of an access that lies inside.
fn ecam_offset(address: u64, length: usize) -> Option<u64> {
    let offset = address.checked_sub(ECAM_START)?;
    (offset + length as u64 <= ECAM_SIZE).then_some(offset)
}

const PCI_PORTS: std::ops::RangeInclusive<u16> = 0xcf8..=0xcff;
