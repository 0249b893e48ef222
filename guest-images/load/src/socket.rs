//! What the standard library does not offer of sockets.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// An option that is set on every socket that carries data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketOption {
    level: i32,
    name: i32,
    shown: &'static str,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(i32),
    Text(String),
}

impl SocketOption {
    /// Reads `NAME=VALUE`.
    pub(crate) fn parse(text: &str) -> Result<SocketOption, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("{text} is not OPTION=VALUE"))?;
        let known = || OPTIONS.iter().map(|option| option.0).collect::<Vec<_>>().join(", ");
        let &(shown, level, number) = OPTIONS
            .iter()
            .find(|option| option.0 == name)
            .ok_or_else(|| format!("{name} is not an option that can be set; these are: {}", known()))?;
        let value = match number {
            libc::TCP_CONGESTION if level == libc::IPPROTO_TCP => Value::Text(value.to_owned()),
            _ => Value::Number(value.parse().map_err(|_| format!("{name}: {value} is not a number"))?),
        };
        Ok(SocketOption { level, name: number, shown, value })
    }

    /// Whether only UDP has it.
    pub(crate) fn is_of_datagrams(&self) -> bool {
        self.level == libc::IPPROTO_UDP
    }

    /// Whether only TCP has it.
    pub(crate) fn is_of_streams(&self) -> bool {
        self.level == libc::IPPROTO_TCP
    }

    /// Sets it.
    pub(crate) fn set(&self, socket: &impl AsRawFd) -> io::Result<()> {
        let bytes = match &self.value {
            Value::Number(number) => number.to_ne_bytes().to_vec(),
            Value::Text(text) => text.clone().into_bytes(),
        };
        set(socket.as_raw_fd(), self.level, self.name, &bytes)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.shown)))
    }
}

/// Lets a socket send without copying.
pub(crate) fn allow_zerocopy(socket: &impl AsRawFd) -> io::Result<()> {
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, &1i32.to_ne_bytes())
        .map_err(|error| io::Error::new(error.kind(), format!("SO_ZEROCOPY: {error}")))
}

/// Sends without copying: the bytes must stay as they are until [`completions`] has told of this send.
pub(crate) fn send_zerocopy(socket: &impl AsRawFd, bytes: &'static [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are of one slice, which lives as long as the program.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Sends of a socket that have completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completions {
    /// Sends whose bytes are no longer used.
    pub(crate) sends: u64,
    /// Those of them that the kernel copied after all.
    pub(crate) copied: u64,
}

/// What has completed since the last call.
pub(crate) fn completions(socket: &impl AsRawFd) -> io::Result<Completions> {
    let mut total = Completions::default();
    while let Some(completions) = next_completions(socket.as_raw_fd())? {
        total.sends += completions.sends;
        total.copied += completions.copied;
    }
    Ok(total)
}

fn next_completions(socket: RawFd) -> io::Result<Option<Completions>> {
    // Room for one message of the error queue with its sender's address, aligned as its header must be.
    let mut control = [0u64; 32];
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    // SAFETY: the header describes `control`, which outlives the call, and nothing else.
    let length = unsafe { libc::recvmsg(socket, &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    let mut found = Completions::default();
    // SAFETY: recvmsg has filled in the header; the macros walk the messages within `msg_controllen`.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    while !message.is_null() {
        // SAFETY: the message is inside of `control`; one of these kinds holds a sock_extended_err.
        let (kind, error) = unsafe {
            let kind = ((*message).cmsg_level, (*message).cmsg_type);
            (kind, std::ptr::read_unaligned(libc::CMSG_DATA(message).cast::<libc::sock_extended_err>()))
        };
        if is_error_message(kind) && error.ee_errno == 0 && error.ee_origin == ORIGIN_ZEROCOPY {
            // A range of sends, first and last, counted by the kernel from 0 and wrapping.
            let sends = u64::from(error.ee_data.wrapping_sub(error.ee_info)) + 1;
            found.sends += sends;
            found.copied += if u32::from(error.ee_code) & COPIED != 0 { sends } else { 0 };
        }
        // SAFETY: as above.
        message = unsafe { libc::CMSG_NXTHDR(&header, message) };
    }
    Ok(Some(found))
}

fn is_error_message(kind: (i32, i32)) -> bool {
    kind == (libc::SOL_IP, libc::IP_RECVERR) || kind == (libc::SOL_IPV6, libc::IPV6_RECVERR)
}

/// Processor time of this process: in its own code, and in the kernel for it.
pub(crate) fn processor_seconds() -> (f64, f64) {
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a structure of the right kind. The call cannot fail for the process itself.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

fn set(socket: RawFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length are of one slice.
    let result = unsafe {
        libc::setsockopt(socket, level, name, value.as_ptr().cast(), value.len() as libc::socklen_t)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `SO_EE_ORIGIN_ZEROCOPY` of Linux include/uapi/linux/errqueue.h.
const ORIGIN_ZEROCOPY: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED` of Linux include/uapi/linux/errqueue.h.
const COPIED: u32 = 1;

const OPTIONS: &[(&str, i32, i32)] = &[
    ("SO_SNDBUF", libc::SOL_SOCKET, libc::SO_SNDBUF),
    ("SO_RCVBUF", libc::SOL_SOCKET, libc::SO_RCVBUF),
    ("SO_SNDBUFFORCE", libc::SOL_SOCKET, libc::SO_SNDBUFFORCE),
    ("SO_RCVBUFFORCE", libc::SOL_SOCKET, libc::SO_RCVBUFFORCE),
    ("SO_RCVLOWAT", libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    ("SO_PRIORITY", libc::SOL_SOCKET, libc::SO_PRIORITY),
    ("SO_MARK", libc::SOL_SOCKET, libc::SO_MARK),
    ("SO_BUSY_POLL", libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    ("SO_MAX_PACING_RATE", libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    ("SO_INCOMING_CPU", libc::SOL_SOCKET, libc::SO_INCOMING_CPU),
    ("TCP_NODELAY", libc::IPPROTO_TCP, libc::TCP_NODELAY),
    ("TCP_CORK", libc::IPPROTO_TCP, libc::TCP_CORK),
    ("TCP_QUICKACK", libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    ("TCP_MAXSEG", libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    ("TCP_NOTSENT_LOWAT", libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    ("TCP_CONGESTION", libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    ("IP_TOS", libc::IPPROTO_IP, libc::IP_TOS),
    ("IPV6_TCLASS", libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    ("UDP_GRO", libc::IPPROTO_UDP, libc::UDP_GRO),
];

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn options_are_set_or_refused_by_name() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        SocketOption::parse("SO_SNDBUF=65536").unwrap().set(&socket).unwrap();
        let error = SocketOption::parse("TCP_CONGESTION=reno").unwrap().set(&socket).unwrap_err();
        assert!(error.to_string().starts_with("TCP_CONGESTION: "), "{error}");
        for wrong in ["SO_SNDBUF", "SO_SNDBUF=much", "SNDBUF=3"] {
            assert!(SocketOption::parse(wrong).is_err(), "{wrong}");
        }
    }
}
