//! A hypervisor's interface for the bare-metal program: one register, one call.

use nicvisor_core::{
    Context, Device, Frame, GeneralRegisters, HypervisorInterface, MsrFault, Port, RestoreError, Time,
};
use serde_json::Value;

/// Register [`PAGE`] says where the page with the call is to be; the call adds its arguments up.
#[derive(Debug, Default)]
pub(crate) struct Adder {
    page: u64,
}

impl HypervisorInterface for Adder {
    fn cpuid(&self) -> Vec<(u32, [u32; 4])> {
        vec![(0x4000_0000, [0x4000_0000, u32::from_le_bytes(*b"Adde"), 0, 0])]
    }

    fn read_msr(
        &mut self,
        _context: &mut Context<'_>,
        _cpu: usize,
        index: u32,
    ) -> Option<Result<u64, MsrFault>> {
        (index == PAGE).then_some(Ok(self.page))
    }

    fn write_msr(
        &mut self,
        context: &mut Context<'_>,
        _cpu: usize,
        index: u32,
        value: u64,
    ) -> Option<Result<(), MsrFault>> {
        if index != PAGE {
            return None;
        }
        if value & 0xfff != 0 || context.dma.write(value, &CALL).is_err() {
            return Some(Err(MsrFault));
        }
        self.page = value;
        Some(Ok(()))
    }

    fn call_port(&self) -> u16 {
        PORT.into()
    }

    fn call(&mut self, _context: &mut Context<'_>, cpu: usize, registers: &mut GeneralRegisters) {
        registers[0] = registers[1] * 0x10 + registers[2] + cpu as u64 * 0x1000;
        registers[8] += 1;
    }
}

impl Device for Adder {
    fn receive(&mut self, _context: &mut Context<'_>, _port: u16, _frame: Frame) {}

    fn ports(&self) -> Vec<Port> {
        Vec::new()
    }

    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn deadline(&mut self, _context: &mut Context<'_>) {}

    fn reset(&mut self, _context: &mut Context<'_>) {
        self.page = 0;
    }

    fn save(&self) -> Value {
        self.page.into()
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        self.page = state.as_u64().ok_or_else(|| RestoreError("not a number".into()))?;
        Ok(())
    }
}

const PAGE: u32 = 0x4000_0001;
const PORT: u8 = 0xd8;
/// `OUT PORT, EAX; RET`
const CALL: [u8; 3] = [0xe7, PORT, 0xc3];
