//! Generic netlink: one request and its answer (Linux `include/uapi/linux/netlink.h`, `genetlink.h`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Attributes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    bytes: Vec<u8>,
}

impl Attributes {
    pub(crate) fn value(mut self, kind: u16, value: &[u8]) -> Attributes {
        self.bytes.extend(((HEADER + value.len()) as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn word(self, kind: u16, value: u32) -> Attributes {
        self.value(kind, &value.to_ne_bytes())
    }

    pub(crate) fn text(self, kind: u16, text: &str) -> Attributes {
        self.value(kind, &[text.as_bytes(), &[0]].concat())
    }

    pub(crate) fn nested(self, kind: u16, inner: &Attributes) -> Attributes {
        self.value(kind | NESTED, &inner.bytes)
    }
}

/// Has `family` do `command`.
///
/// # Errors
/// The kernel's own, and that there is no such family.
pub(crate) fn request(family: &str, command: u8, attributes: &Attributes) -> io::Result<()> {
    let socket = socket()?;
    let name = Attributes::default().text(FAMILY_NAME, family);
    let answer = exchange(&socket, CONTROLLER, GET_FAMILY, &name)?;
    let unknown = || io::Error::other(format!("no word of netlink family {family}"));
    let number = find(answer.get(GENERIC_HEADER..).unwrap_or_default(), FAMILY_ID).ok_or_else(unknown)?;
    exchange(&socket, number, command, attributes).map(drop)
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed; the descriptor is ours.
    unsafe {
        match libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_GENERIC) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// Sends a request. The first message of the answer that is not the kernel's confirmation, without its header.
fn exchange(socket: &OwnedFd, kind: u16, command: u8, attributes: &Attributes) -> io::Result<Vec<u8>> {
    let message = encode(kind, command, attributes);
    // SAFETY: pointer and length are of one slice.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = Vec::new();
    loop {
        let mut buffer = vec![0_u8; 32 << 10];
        // SAFETY: pointer and length are of one slice.
        let got = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        buffer.truncate(usize::try_from(got).map_err(|_| io::Error::last_os_error())?);
        let mut rest = &buffer[..];
        while let Some((kind, body, behind)) = next_message(rest) {
            rest = behind;
            match body.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
                Some(0) if kind == ERROR => return Ok(answer),
                Some(code) if kind == ERROR => return Err(io::Error::from_raw_os_error(-code)),
                _ => answer = body.to_vec(),
            }
        }
    }
}

fn encode(kind: u16, command: u8, attributes: &Attributes) -> Vec<u8> {
    let length = MESSAGE_HEADER + GENERIC_HEADER + attributes.bytes.len();
    let mut message = Vec::new();
    message.extend((length as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST | ACKNOWLEDGE).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(&attributes.bytes);
    message
}

/// The first message: its kind, what is behind its header, and what is behind the message.
fn next_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(MESSAGE_HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The number in the attribute of this kind.
fn find(mut attributes: &[u8], wanted: u16) -> Option<u16> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(HEADER..length)?;
        if kind == wanted {
            return Some(u16::from_ne_bytes(*value.first_chunk()?));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// Bytes of an attribute's header.
const HEADER: usize = 4;
const MESSAGE_HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLM_F_ACK`.
const ACKNOWLEDGE: u16 = 4;
/// `NLMSG_ERROR`, which is also the kernel's confirmation.
const ERROR: u16 = 2;
/// `GENL_ID_CTRL`, which knows the numbers of the other families.
const CONTROLLER: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`.
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`.
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`.
const FAMILY_NAME: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_laid_out_as_netlink_has_them() {
        let inner = Attributes::default().word(1, 7);
        let message = encode(0x1b, 2, &Attributes::default().text(2, "ab").nested(3, &inner));
        let length = message.len() as u32;
        assert_eq!(message[..4], length.to_ne_bytes());
        assert_eq!(message[4..8], [0x1b, 0, 5, 0]);
        assert_eq!(message[16..20], [2, 1, 0, 0]);
        assert_eq!(message[20..28], [7, 0, 2, 0, b'a', b'b', 0, 0]);
        assert_eq!(message[28..], [12, 0, 3, 0x80, 8, 0, 1, 0, 7, 0, 0, 0]);
        let (kind, body, rest) = next_message(&message).unwrap();
        assert_eq!((kind, body.len(), rest.len()), (0x1b, message.len() - 16, 0));
    }

    #[test]
    fn a_number_is_found_and_damage_is_no_panic() {
        let attributes = Attributes::default().text(2, "nlctrl").value(1, &16_u16.to_ne_bytes()).bytes;
        assert_eq!(find(&attributes, 1), Some(16));
        for length in 0..attributes.len() {
            find(&attributes[..length], 9);
            next_message(&attributes[..length]);
        }
        assert_eq!(find(&[0; 8], 1), None);
    }
}
