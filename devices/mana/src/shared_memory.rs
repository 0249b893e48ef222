//! The shared memory by which the driver asks for the hardware channel. Who may write to it is told by a bit in
//! its last word: writing that word hands it to the device, the device's answer hands it back.

use nicvisor_core::Context;
use serde::{Deserialize, Serialize};

use crate::device::Mana;
use crate::faults::{SMC_STATUS, SMC_TYPE, SMC_VERSION};
use crate::rules::control as rules;
use crate::wire::shared_memory::{APERTURE, DESTROY, ESTABLISH, Establish, HEADER_OFFSET, Header};

/// The shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedMemory {
    bytes: [u8; APERTURE],
}

impl SharedMemory {
    /// Its bytes as the driver reads them.
    pub(crate) fn bytes(&self) -> &[u8; APERTURE] {
        &self.bytes
    }

    fn header(&self) -> Header {
        Header::decode(u32::from_le_bytes(self.word(HEADER_OFFSET)))
    }

    fn set_header(&mut self, header: Header) {
        self.bytes[HEADER_OFFSET..].copy_from_slice(&header.encode().to_le_bytes());
    }

    fn word(&self, offset: usize) -> [u8; 4] {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[offset..offset + 4]);
        word
    }
}

impl Mana {
    /// The driver writes `data` at `offset` of the shared memory.
    pub(crate) fn write_shared_memory(&mut self, context: &mut Context<'_>, offset: usize, data: &[u8]) {
        if data.len() != 4 || !offset.is_multiple_of(4) || offset > HEADER_OFFSET {
            let message = format!("{} bytes written at {offset} of the shared memory", data.len());
            return context.report(&rules::REGISTER_ACCESS, message, |_| ());
        }
        let memory = &mut self.state.shared_memory;
        if memory.header().device_owns {
            let message = format!("{data:02x?} written at {offset} while the device owns the shared memory");
            return context.report(&rules::SHM_OWNERSHIP, message, |_| ());
        }
        memory.bytes[offset..offset + 4].copy_from_slice(data);
        if offset == HEADER_OFFSET {
            self.state.message_pending = true;
            let header = memory.header();
            memory.set_header(Header { device_owns: true, ..header });
            self.take_pending_message(context);
        }
    }

    /// Takes the message that the driver left, unless the device is silent.
    pub(crate) fn take_pending_message(&mut self, context: &mut Context<'_>) {
        if !self.is_silent(context) && std::mem::take(&mut self.state.message_pending) {
            self.take_message(context);
        }
    }

    /// The driver has the function reset before it sets it up.
    fn reset_by_driver(&mut self, context: &mut Context<'_>) {
        let leftovers = self.leftovers();
        if !leftovers.is_empty() {
            let message = format!("the function is reset with {leftovers} in place");
            context.report(&rules::RESET_LEFTOVER, message, |_| ());
        }
        self.stop(context);
    }

    /// The driver handed the shared memory over.
    fn take_message(&mut self, context: &mut Context<'_>) {
        let memory = self.state.shared_memory;
        let header = memory.header();
        let done = if header.response || header.version != 0 {
            false
        } else {
            match header.message {
                ESTABLISH => {
                    if header.reset {
                        self.reset_by_driver(context);
                    }
                    self.establish_channel(context, &Establish::decode(&memory.bytes))
                }
                DESTROY => self.destroy_channel(context),
                _ => false,
            }
        };
        if !done && !matches!(header.message, ESTABLISH | DESTROY) || header.version != 0 || header.response {
            let message = format!("{header:?}");
            context
                .report(&rules::SHM_MESSAGE, message, |finding| finding.descriptor = memory.bytes.to_vec());
        }
        let overrides = &mut self.state.queues.faults.overrides;
        let mut told = |name, value: u8| overrides.apply(context.now, name, value.into()) as u8;
        let answer = Header {
            message: told(SMC_TYPE, header.message),
            version: told(SMC_VERSION, 0),
            response: true,
            status: told(SMC_STATUS, (!done).into()),
            device_owns: false,
            ..header
        };
        self.state.shared_memory = memory;
        self.state.shared_memory.set_header(answer);
    }
}
