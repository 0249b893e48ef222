//! XDP programs, put together by hand (RFC 9669 has the instructions).

/// What becomes of the packets that a program is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Drop,
    Pass,
    /// Back to where they came from, with addresses and ports exchanged, which leaves all checksums right.
    Echo,
    /// Out of another port, with these MAC addresses.
    Redirect {
        port: u32,
        source: [u8; 6],
        destination: [u8; 6],
    },
}

/// The program that counts IPv4 packets of `protocol` in element 0 of the array `map` and does `action` with them.
pub(crate) fn build(map: i32, action: &Action, protocol: u8) -> Vec<u8> {
    let action = finish(action);
    let mut code = vec![
        // What is not such a packet skips the rest.
        load(Size::Word, 2, 1, DATA),
        load(Size::Word, 3, 1, DATA_END),
        move_register(4, 2),
        add(4, HEADERS),
        Jump { opcode: JUMP_GREATER, register: 4, other: 3, value: 0 }.over(14 + action.len()),
        load(Size::Half, 5, 2, ETHERTYPE),
        Jump { opcode: JUMP_NOT_EQUAL, register: 5, other: 0, value: IPV4 }.over(12 + action.len()),
        load(Size::Byte, 5, 2, PROTOCOL),
        Jump { opcode: JUMP_NOT_EQUAL, register: 5, other: 0, value: protocol.into() }
            .over(10 + action.len()),
        // The packet, as calls change the first six registers.
        move_register(7, 2),
        instruction(STORE_VALUE_WORD, 10, 0, -4, 0),
        move_register(2, 10),
        add(2, -4),
        instruction(LOAD_LONG, 1, MAP_DESCRIPTOR, 0, map),
        instruction(0, 0, 0, 0, 0),
        call(MAP_LOOKUP),
        Jump { opcode: JUMP_EQUAL, register: 0, other: 0, value: 0 }.over(2 + action.len()),
        move_value(1, 1),
        instruction(ATOMIC_ADD_LONG, 0, 1, 0, 0),
    ];
    code.extend(action);
    code.extend([move_value(0, XDP_PASS), instruction(EXIT, 0, 0, 0, 0)]);
    code.concat()
}

/// Does what is to be done and ends the program; goes on behind it to let a packet pass.
fn finish(action: &Action) -> Vec<Instruction> {
    let exit = instruction(EXIT, 0, 0, 0, 0);
    match action {
        Action::Drop => vec![move_value(0, XDP_DROP), exit],
        Action::Pass => vec![move_value(0, XDP_PASS), exit],
        Action::Echo => {
            let pairs = [(Size::Word, 0, 6), (Size::Half, 4, 10), (Size::Word, 26, 30), (Size::Half, 34, 36)];
            let mut code: Vec<Instruction> =
                pairs.into_iter().flat_map(|(size, one, other)| exchange(size, one, other)).collect();
            code.extend([move_value(0, XDP_TX), exit]);
            code
        }
        Action::Redirect { port, source, destination } => {
            let mut code: Vec<Instruction> = [destination, source]
                .into_iter()
                .flatten()
                .enumerate()
                .map(|(at, byte)| instruction(STORE_VALUE_BYTE, 7, 0, at as i16, (*byte).into()))
                .collect();
            code.extend([move_value(1, *port as i32), move_value(2, 0), call(REDIRECT), exit]);
            code
        }
    }
}

fn exchange(size: Size, one: i16, other: i16) -> [Instruction; 4] {
    [load(size, 1, 7, one), load(size, 2, 7, other), store(size, 7, 2, one), store(size, 7, 1, other)]
}

/// An instruction as the kernel takes it, in little-endian order.
type Instruction = [u8; 8];

fn instruction(opcode: u8, destination: u8, source: u8, offset: i16, value: i32) -> Instruction {
    let ([a, b], [c, d, e, f]) = (offset.to_le_bytes(), value.to_le_bytes());
    [opcode, source << 4 | destination, a, b, c, d, e, f]
}

fn load(size: Size, register: u8, address: u8, offset: i16) -> Instruction {
    instruction(LOAD | size as u8, register, address, offset, 0)
}

fn store(size: Size, address: u8, register: u8, offset: i16) -> Instruction {
    instruction(STORE | size as u8, address, register, offset, 0)
}

fn move_register(to: u8, from: u8) -> Instruction {
    instruction(MOVE_REGISTER, to, from, 0, 0)
}

fn move_value(register: u8, value: i32) -> Instruction {
    instruction(MOVE_VALUE, register, 0, 0, value)
}

fn add(register: u8, value: i32) -> Instruction {
    instruction(ADD_VALUE, register, 0, 0, value)
}

fn call(helper: i32) -> Instruction {
    instruction(CALL, 0, 0, 0, helper)
}

/// A jump without its distance.
struct Jump {
    opcode: u8,
    register: u8,
    other: u8,
    value: i32,
}

impl Jump {
    fn over(self, instructions: usize) -> Instruction {
        instruction(self.opcode, self.register, self.other, instructions as i16, self.value)
    }
}

/// Sizes of loads and stores, as part of their opcode.
#[derive(Clone, Copy)]
enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
}

const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_VALUE_WORD: u8 = 0x62;
const STORE_VALUE_BYTE: u8 = 0x72;
const LOAD_LONG: u8 = 0x18;
const ATOMIC_ADD_LONG: u8 = 0xdb;
const MOVE_REGISTER: u8 = 0xbf;
const MOVE_VALUE: u8 = 0xb7;
const ADD_VALUE: u8 = 0x07;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_NOT_EQUAL: u8 = 0x55;
const JUMP_GREATER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Says of a long load that its value is the descriptor of a map.
const MAP_DESCRIPTOR: u8 = 1;
// Helpers and results by their numbers (Linux `include/uapi/linux/bpf.h`).
const MAP_LOOKUP: i32 = 1;
const REDIRECT: i32 = 23;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const XDP_TX: i32 = 3;
// Fields of `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
// Places in a packet.
const ETHERTYPE: i16 = 12;
const PROTOCOL: i16 = 23;
/// Headers of Ethernet and IPv4, and the eight bytes behind.
const HEADERS: i32 = 42;
/// In the order of the wire, read by a little-endian CPU.
const IPV4: i32 = 0x0008;

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a jump leads.
    fn target(code: &[u8], at: usize) -> usize {
        let offset = i16::from_le_bytes([code[at * 8 + 2], code[at * 8 + 3]]);
        at + 1 + usize::try_from(offset).unwrap()
    }

    #[test]
    fn all_jumps_lead_to_the_end_which_lets_the_packet_pass() {
        let redirect = Action::Redirect { port: 3, source: [1; 6], destination: [2; 6] };
        for action in [Action::Drop, Action::Pass, Action::Echo, redirect] {
            let code = build(5, &action, 17);
            let count = code.len() / 8;
            for at in
                (0..count).filter(|at| [JUMP_EQUAL, JUMP_NOT_EQUAL, JUMP_GREATER].contains(&code[at * 8]))
            {
                assert_eq!(target(&code, at), count - 2, "{action:?}: the jump at {at}");
            }
            assert_eq!(
                code[(count - 2) * 8..],
                [move_value(0, XDP_PASS), instruction(EXIT, 0, 0, 0, 0)].concat()
            );
        }
    }

    #[test]
    fn instructions_are_those_of_the_manual() {
        assert_eq!(load(Size::Half, 5, 2, 12), [0x69, 0x25, 12, 0, 0, 0, 0, 0]);
        assert_eq!(load(Size::Byte, 5, 2, 23)[0], 0x71);
        assert_eq!(store(Size::Word, 7, 1, -4), [0x63, 0x17, 0xfc, 0xff, 0, 0, 0, 0]);
        assert_eq!(add(2, -4), [0x07, 2, 0, 0, 0xfc, 0xff, 0xff, 0xff]);
    }
}
