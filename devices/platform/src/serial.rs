//! The serial port COM1: a 16550 from vm-superio, with what it sends collected for the host.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nicvisor_core::io::IoDevice;
use nicvisor_core::{Context, HostMessage, InterruptLine};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use vm_superio::serial::NoEvents;
use vm_superio::{Serial as Uart, SerialState, Trigger};

use crate::access::{read_bytes, write_bytes};

/// COM1. Bytes that the guest sends leave as [`HostMessage`]s on channel 0, one for each call.
#[derive(Debug)]
pub struct Serial {
    uart: Uart<Line, NoEvents, Vec<u8>>,
    /// Input that does not yet fit into the receive FIFO.
    input: VecDeque<u8>,
}

/// The interrupt output: set when the UART wants an edge.
#[derive(Clone, Debug, Default)]
struct Line(Arc<AtomicBool>);

impl Trigger for Line {
    type E = Infallible;

    fn trigger(&self) -> Result<(), Infallible> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Serial {
    /// Power-on state.
    pub fn new() -> Serial {
        Serial { uart: Uart::new(Line::default(), Vec::new()), input: VecDeque::new() }
    }

    /// Bytes from the host side. They wait without bound until the guest reads them; see [`Self::queued`].
    pub fn host_input(&mut self, context: &mut Context<'_>, bytes: &[u8]) {
        self.input.extend(bytes);
        self.fill();
        self.flush(context);
    }

    /// Bytes from the host side that the guest has not read yet and that do not fit into the FIFO.
    pub fn queued(&self) -> usize {
        self.input.len()
    }

    fn fill(&mut self) {
        let count = self.uart.fifo_capacity().min(self.input.len());
        if count > 0 {
            let bytes: Vec<u8> = self.input.iter().take(count).copied().collect();
            if let Ok(accepted) = self.uart.enqueue_raw_bytes(&bytes) {
                self.input.drain(..accepted);
            }
        }
    }

    /// Hands over what the last access produced: output, and an edge on the interrupt line.
    fn flush(&mut self, context: &mut Context<'_>) {
        let output = self.uart.writer_mut();
        if !output.is_empty() {
            context.effects.host.push(HostMessage { channel: 0, bytes: std::mem::take(output) });
        }
        if self.uart.interrupt_evt().0.swap(false, Ordering::Relaxed) {
            for level in [true, false] {
                context.effects.lines.push(InterruptLine { line: LINE, level });
            }
        }
    }
}

impl Default for Serial {
    fn default() -> Self {
        Serial::new()
    }
}

impl IoDevice for Serial {
    fn read(&mut self, context: &mut Context<'_>, offset: u64, data: &mut [u8]) {
        read_bytes(offset, data, |register| self.uart.read(register as u8));
        self.fill();
        self.flush(context);
    }

    fn write(&mut self, context: &mut Context<'_>, offset: u64, data: &[u8]) {
        write_bytes(offset, data, |register, value| {
            // Writing to a Vec and setting a flag cannot fail.
            let _ = self.uart.write(register as u8, value);
        });
        self.fill();
        self.flush(context);
    }

    fn reset(&mut self, _context: &mut Context<'_>) {
        *self = Serial::new();
    }
}

/// The state as serde sees it.
#[derive(Serialize, Deserialize)]
struct Saved {
    divisor: [u8; 2],
    interrupt_enable: u8,
    interrupt_identification: u8,
    line_control: u8,
    line_status: u8,
    modem_control: u8,
    modem_status: u8,
    scratch: u8,
    fifo: Vec<u8>,
    input: VecDeque<u8>,
}

impl Serialize for Serial {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let state = self.uart.state();
        let saved = Saved {
            divisor: [state.baud_divisor_low, state.baud_divisor_high],
            interrupt_enable: state.interrupt_enable,
            interrupt_identification: state.interrupt_identification,
            line_control: state.line_control,
            line_status: state.line_status,
            modem_control: state.modem_control,
            modem_status: state.modem_status,
            scratch: state.scratch,
            fifo: state.in_buffer,
            input: self.input.clone(),
        };
        saved.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Serial {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let saved = Saved::deserialize(deserializer)?;
        let state = SerialState {
            baud_divisor_low: saved.divisor[0],
            baud_divisor_high: saved.divisor[1],
            interrupt_enable: saved.interrupt_enable,
            interrupt_identification: saved.interrupt_identification,
            line_control: saved.line_control,
            line_status: saved.line_status,
            modem_control: saved.modem_control,
            modem_status: saved.modem_status,
            scratch: saved.scratch,
            in_buffer: saved.fifo,
        };
        let uart = Uart::from_state(&state, Line::default(), NoEvents, Vec::new());
        let uart = uart.map_err(|error| serde::de::Error::custom(format!("{error:?}")))?;
        // Restoring is no interrupt: the edge was delivered before the state was saved.
        uart.interrupt_evt().0.store(false, Ordering::Relaxed);
        Ok(Serial { uart, input: saved.input })
    }
}

/// GSI of COM1.
const LINE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use nicvisor_core::testing::Bench;

    fn read(bench: &mut Bench, serial: &mut Serial, offset: u64) -> u8 {
        let mut data = [0xff];
        bench.call(|context| serial.read(context, offset, &mut data));
        data[0]
    }

    #[test]
    fn output_reaches_the_host() {
        let mut bench = Bench::default();
        let mut serial = Serial::new();
        for byte in b"ok" {
            bench.call(|context| serial.write(context, 0, &[*byte]));
        }
        let sent: Vec<u8> = bench.take_effects().host.into_iter().flat_map(|message| message.bytes).collect();
        assert_eq!(sent, b"ok");
    }

    #[test]
    fn input_longer_than_the_fifo_is_not_lost() {
        let mut bench = Bench::default();
        let mut serial = Serial::new();
        bench.call(|context| serial.write(context, 1, &[1]));
        let input: Vec<u8> = (0..=255).collect();
        bench.call(|context| serial.host_input(context, &input));
        let edge = [InterruptLine { line: LINE, level: true }, InterruptLine { line: LINE, level: false }];
        assert_eq!(bench.take_effects().lines, edge);
        assert_eq!(serial.queued(), 256 - 64);
        let mut received = Vec::new();
        while read(&mut bench, &mut serial, 5) & 1 != 0 {
            received.push(read(&mut bench, &mut serial, 0));
        }
        assert_eq!(received, input);
    }

    #[test]
    fn a_saved_state_comes_back() {
        let mut bench = Bench::default();
        let mut serial = Serial::new();
        bench.call(|context| serial.write(context, 7, &[0x5a]));
        bench.call(|context| serial.host_input(context, b"abc"));
        let state = serde_json::to_value(&serial).unwrap();
        let mut other: Serial = serde_json::from_value(state.clone()).unwrap();
        assert_eq!(serde_json::to_value(&other).unwrap(), state);
        assert_eq!(read(&mut bench, &mut other, 7), 0x5a);
        assert_eq!(read(&mut bench, &mut other, 0), b'a');
    }
}
