//! The connection to the host: a virtio-console port with a name.

use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use agent_protocol::{Decoder, FromGuest, PORT_NAME, ToGuest, frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, netlink};

use crate::modules::Modules;

/// The open port with what waits to be sent and what has been received of the next message.
pub(crate) struct Port {
    device: OwnedFd,
    decoder: Decoder,
    outgoing: Vec<u8>,
    sent: usize,
    buffer: Box<[u8]>,
}

impl Port {
    /// Waits for the port to appear and opens it.
    pub(crate) fn open() -> io::Result<Port> {
        // Listening starts before looking, so that no port can appear unseen between the two.
        let events = uevents()?;
        let path = loop {
            if let Some(path) = find()? {
                break path;
            }
            load_drivers();
            if let Some(path) = find()? {
                break path;
            }
            wait_for_event(&events)?;
        };
        let device =
            rustix::fs::open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Port {
            device,
            decoder: Decoder::default(),
            outgoing: Vec::new(),
            sent: 0,
            buffer: vec![0; 64 * 1024].into_boxed_slice(),
        })
    }

    /// For `poll`.
    pub(crate) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Whether something waits to be sent.
    pub(crate) fn is_waiting(&self) -> bool {
        self.sent < self.outgoing.len()
    }

    /// Whether more output should be produced: the host keeps up.
    pub(crate) fn has_room(&self) -> bool {
        self.outgoing.len() - self.sent < HIGH_WATER
    }

    /// Queues a message.
    pub(crate) fn send(&mut self, message: &FromGuest) {
        if let Err(error) = frame::encode(message, &mut self.outgoing) {
            // Only a path or error text of absurd length can be too long; the host waits for an answer.
            eprintln!("agent: cannot send a message: {error}");
        }
    }

    /// Writes what waits, as far as the port takes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.is_waiting() {
            match rustix::io::write(&self.device, &self.outgoing[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !self.is_waiting() {
            self.outgoing.clear();
            self.sent = 0;
        } else if self.sent > HIGH_WATER {
            self.outgoing.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Reads what has arrived. False when nothing had.
    pub(crate) fn receive(&mut self) -> io::Result<bool> {
        match rustix::io::read(&self.device, &mut *self.buffer) {
            Ok(0) | Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Ok(length) => {
                self.decoder.feed(&self.buffer[..length]);
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The next message that has arrived.
    pub(crate) fn next(&mut self) -> io::Result<Option<ToGuest>> {
        self.decoder.next_message().map_err(io::Error::other)
    }
}

/// The device node of the port with our name.
fn find() -> io::Result<Option<PathBuf>> {
    let ports = match fs::read_dir("/sys/class/virtio-ports") {
        Ok(ports) => ports,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for port in ports {
        let port = port?;
        // A port has no name until the host has sent it.
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == PORT_NAME {
            return Ok(Some(PathBuf::from("/dev").join(port.file_name())));
        }
    }
    Ok(None)
}

/// Loads the drivers that some kernels have as modules.
fn load_drivers() {
    const DRIVERS: [&str; 2] = ["virtio_pci", "virtio_console"];
    if fs::exists("/sys/bus/virtio/drivers/virtio_console").unwrap_or(false)
        && fs::exists("/sys/bus/pci/drivers/virtio-pci").unwrap_or(false)
    {
        return;
    }
    match Modules::open() {
        Ok(modules) => {
            for driver in DRIVERS {
                if let Err(failure) = modules.load(driver, "") {
                    eprintln!("agent: {}", failure.message);
                }
            }
        }
        Err(failure) => eprintln!("agent: {}", failure.message),
    }
}

/// A socket on which the kernel announces devices.
fn uevents() -> io::Result<OwnedFd> {
    let socket = net::socket_with(
        net::AddressFamily::NETLINK,
        net::SocketType::DGRAM,
        net::SocketFlags::CLOEXEC | net::SocketFlags::NONBLOCK,
        Some(netlink::KOBJECT_UEVENT),
    )?;
    net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 1))?;
    Ok(socket)
}

/// Sleeps until the kernel announces something, and takes all announcements.
fn wait_for_event(events: &OwnedFd) -> io::Result<()> {
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    let mut fds = [PollFd::new(events, PollFlags::IN)];
    match poll(&mut fds, Some(&patience)) {
        Ok(0) => eprintln!("agent: waiting for the virtio-console port {PORT_NAME}"),
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut announcement = [0; 4096];
    // An overflow of the socket's buffer is an error here, and as good a reason to look again.
    while net::recv(events, &mut announcement, net::RecvFlags::empty()).is_ok() {}
    Ok(())
}

/// How much may wait for the port before commands have to wait too.
const HIGH_WATER: usize = 128 * 1024;
