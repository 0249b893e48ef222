//! The 32 bytes of shared memory by which a driver asks for the hardware channel
//! (Linux `drivers/net/ethernet/microsoft/mana/shm_channel.c`).

/// Size of the shared memory in bytes (`SMC_APERTURE_SIZE`).
pub const APERTURE: usize = 32;
/// Where its last word is, which holds the [`Header`].
pub const HEADER_OFFSET: usize = 28;

/// The last 32-bit word: what is asked for or answered, and who owns the shared memory (`union smc_proto_hdr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// `msg_type`: [`ESTABLISH`] or [`DESTROY`]. 3 bits.
    pub message: u8,
    /// `msg_version`. 3 bits.
    pub version: u8,
    /// `direction`: whether it is a response.
    pub response: bool,
    /// `status`: 0 if what was asked for is done.
    pub status: u8,
    /// `reset_vf`: reset the function before establishing or after destroying.
    pub reset: bool,
    /// `owner_is_pf`: the device owns the shared memory; the driver must wait.
    pub device_owns: bool,
}

/// `SMC_MSG_TYPE_ESTABLISH_HWC`.
pub const ESTABLISH: u8 = 1;
/// `SMC_MSG_TYPE_DESTROY_HWC`.
pub const DESTROY: u8 = 2;

impl Header {
    /// Reads the word.
    pub fn decode(word: u32) -> Header {
        let bit = |at: u32| word >> at & 1 != 0;
        Header {
            message: (word & 7) as u8,
            version: (word >> 3 & 7) as u8,
            response: bit(7),
            status: (word >> 8) as u8,
            reset: bit(24),
            device_owns: bit(31),
        }
    }

    /// Makes the word.
    pub fn encode(self) -> u32 {
        u32::from(self.message & 7)
            | u32::from(self.version & 7) << 3
            | u32::from(self.response) << 7
            | u32::from(self.status) << 8
            | u32::from(self.reset) << 24
            | u32::from(self.device_owns) << 31
    }
}

/// What [`ESTABLISH`] says: where the four queues of the hardware channel are, a page each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Establish {
    /// Address of the event queue.
    pub event_queue: u64,
    /// Address of the completion queue.
    pub completion_queue: u64,
    /// Address of the receive queue.
    pub receive_queue: u64,
    /// Address of the send queue.
    pub send_queue: u64,
    /// MSI-X vector of the event queue.
    pub vector: u16,
}

impl Establish {
    /// Reads the message. Of each page frame number of 52 bits, the low 48 follow each other, the high 4 of all
    /// follow those.
    pub fn decode(memory: &[u8; APERTURE]) -> Establish {
        let high = u16::from_le_bytes([memory[24], memory[25]]);
        let address = |index: usize| {
            let mut frame = [0; 8];
            frame[..6].copy_from_slice(&memory[index * 6..index * 6 + 6]);
            (u64::from_le_bytes(frame) | u64::from(high >> (4 * index) & 0xf) << 48) << 12
        };
        Establish {
            event_queue: address(0),
            completion_queue: address(1),
            receive_queue: address(2),
            send_queue: address(3),
            vector: u16::from_le_bytes([memory[26], memory[27]]),
        }
    }

    /// Makes the message, with a request header.
    pub fn encode(&self, reset: bool) -> [u8; APERTURE] {
        let mut memory = [0; APERTURE];
        let mut high = 0;
        let addresses = [self.event_queue, self.completion_queue, self.receive_queue, self.send_queue];
        for (index, address) in addresses.into_iter().enumerate() {
            let frame = address >> 12;
            memory[index * 6..index * 6 + 6].copy_from_slice(&frame.to_le_bytes()[..6]);
            high |= ((frame >> 48) as u16) << (4 * index);
        }
        memory[24..26].copy_from_slice(&high.to_le_bytes());
        memory[26..28].copy_from_slice(&self.vector.to_le_bytes());
        memory[HEADER_OFFSET..].copy_from_slice(&request(ESTABLISH, reset).to_le_bytes());
        memory
    }
}

/// The header word of a request.
pub fn request(message: u8, reset: bool) -> u32 {
    Header { message, version: 0, response: false, status: 0, reset, device_owns: false }.encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_survive_the_packing(
            frames in any::<[u64; 4]>(),
            vector in any::<u16>(),
            reset in any::<bool>(),
        ) {
            let [event_queue, completion_queue, receive_queue, send_queue] = frames.map(|frame| frame & !0xfff);
            let message = Establish { event_queue, completion_queue, receive_queue, send_queue, vector };
            let memory = message.encode(reset);
            prop_assert_eq!(Establish::decode(&memory), message);
            let header = Header::decode(u32::from_le_bytes(memory[28..].try_into().unwrap()));
            prop_assert_eq!((header.message, header.reset, header.device_owns), (ESTABLISH, reset, false));
        }

        #[test]
        fn headers_keep_every_defined_bit(word in any::<u32>()) {
            prop_assert_eq!(Header::decode(word).encode(), word & 0x8100_ffbf);
        }
    }

    #[test]
    fn a_response_looks_as_the_driver_expects() {
        let header = Header {
            message: ESTABLISH,
            version: 0,
            response: true,
            status: 0,
            reset: false,
            device_owns: false,
        };
        assert_eq!(header.encode(), 0x81);
    }
}
