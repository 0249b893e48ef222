//! What has to be in place before the first command runs.

use std::{fs, io, os::fd::AsRawFd, os::unix::fs::symlink, path::Path};

use agent_protocol::Power;
use rustix::mount::{MountFlags, mount};
use rustix::system::RebootCommand;

/// Mounts the kernel's file systems, sets the environment that commands inherit and brings loopback up.
/// Goes on after a failure, since a guest that lacks one of them can still say so; returns the first.
pub(crate) fn prepare() -> io::Result<()> {
    let mut result = Ok(());
    for &(kind, target, options) in MOUNTS {
        let outcome = mount_one(kind, target, options)
            .map_err(|error| io::Error::new(error.kind(), format!("mounting {kind} on {target}: {error}")));
        result = result.and(outcome);
    }
    for &(target, link) in DEVICE_LINKS {
        let _ = symlink(target, link);
    }
    for &(name, value) in ENVIRONMENT {
        // SAFETY: this process has one thread, so nothing can be reading the environment.
        unsafe { std::env::set_var(name, value) };
    }
    let name = rustix::system::sethostname(b"nicvisor").map_err(io::Error::from);
    result.and(name).and(loopback_up())
}

/// Powers off or restarts; does not return while the kernel obeys.
pub(crate) fn power(how: Power) {
    rustix::fs::sync();
    let command = match how {
        Power::Off => RebootCommand::PowerOff,
        Power::Reboot => RebootCommand::Restart,
    };
    if let Err(error) = rustix::system::reboot(command) {
        eprintln!("agent: cannot {how:?}: {error}");
    }
}

fn mount_one(kind: &str, target: &str, options: &str) -> io::Result<()> {
    fs::create_dir_all(target)?;
    let options = std::ffi::CString::new(options)?;
    match mount(kind, target, kind, MountFlags::NOSUID, options.as_c_str()) {
        // The kernel has mounted /dev itself if it was built so; debugging file systems may be left out.
        Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(rustix::io::Errno::NODEV) if target.starts_with("/sys/") => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn loopback_up() -> io::Result<()> {
    if !Path::new("/sys/class/net/lo").exists() {
        return Ok(());
    }
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: an all-zero `ifreq` is a valid value of a plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_LOOPBACK | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives until the call returns.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// File system, where, options.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", "mode=0755"),
    ("devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("tmpfs", "/run", "mode=0755"),
    ("debugfs", "/sys/kernel/debug", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
];

const DEVICE_LINKS: &[(&str, &str)] = &[
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("USER", "root"),
    ("LANG", "C.UTF-8"),
    ("TERM", "linux"),
];
