//! A tap interface of the host.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use vmm_sys_util::ioctl::{_IOC_WRITE, ioctl_expr, ioctl_with_ref};

use super::{LONGEST_FRAME, Wire};

/// The host's end of the interface.
#[derive(Debug)]
pub(super) struct Tap {
    file: File,
}

impl Tap {
    /// Attaches to the interface `name`, which is made unless it is there.
    pub(super) fn open(name: &str) -> io::Result<Tap> {
        if name.len() >= libc::IFNAMSIZ {
            let message = format!("{name:?} is too long for an interface's name");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
        let mut request = Request { name: [0; libc::IFNAMSIZ], flags: FLAGS, padding: [0; 22] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: the structure has the layout and size of `struct ifreq`, which this request reads.
        match unsafe { ioctl_with_ref(&file, TUNSETIFF, &request) } {
            0 => Ok(Tap { file }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// `struct ifreq` (`linux/if.h`) with the flags of its union.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    padding: [u8; 22],
}

impl Wire for Tap {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.file.write(frame).is_ok()
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; LONGEST_FRAME];
        let length = self.file.read(&mut frame).ok()?;
        frame.truncate(length);
        Some(frame)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const DEVICE: &str = "/dev/net/tun";
/// Ethernet frames, and nothing in front of them.
const FLAGS: libc::c_short = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
const TUNSETIFF: libc::c_ulong = ioctl_expr(_IOC_WRITE, b'T' as u32, 202, size_of::<libc::c_int>() as u32);
const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        assert!(Tap::open("a-name-that-is-far-too-long").unwrap_err().to_string().contains("too long"));
    }
}
