//! The bpf system call (Linux `include/uapi/linux/bpf.h`: `union bpf_attr`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Creates an array of `entries` numbers of 64 bits.
pub(crate) fn create_array(entries: u32) -> io::Result<OwnedFd> {
    descriptor(MAP_CREATE, &[&words(&[MAP_TYPE_ARRAY, 4, 8, entries, 0])])
}

/// The number at `index` of an array.
pub(crate) fn array_value(map: &OwnedFd, index: u32) -> io::Result<u64> {
    let mut value = 0_u64;
    let pointers = [address(&raw const index), address(&raw mut value), 0];
    call(MAP_LOOKUP, &[&words(&[number(map), 0]), &longs(&pointers)])?;
    Ok(value)
}

/// Has the kernel check an XDP program.
///
/// # Errors
/// Tells what the kernel's verifier has against it.
pub(crate) fn load_xdp(code: &[u8]) -> Result<OwnedFd, String> {
    let license = c"Dual MIT/GPL";
    let mut log = vec![0_u8; LOG_SIZE];
    let attributes = [
        words(&[PROGRAM_TYPE_XDP, (code.len() / 8) as u32]),
        longs(&[address(code.as_ptr()), address(license.as_ptr())]),
        words(&[1, LOG_SIZE as u32]),
        longs(&[address(log.as_mut_ptr())]),
        words(&[0, 0]),
    ];
    let parts: Vec<&[u8]> = attributes.iter().map(Vec::as_slice).collect();
    descriptor(PROGRAM_LOAD, &parts).map_err(|error| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        format!("the program is not taken: {error}\n{}", String::from_utf8_lossy(&log[..end]))
    })
}

/// Attaches an XDP program to an interface, in the driver itself, for as long as the result lives.
pub(crate) fn attach_xdp(program: &OwnedFd, interface: u32) -> io::Result<OwnedFd> {
    descriptor(LINK_CREATE, &[&words(&[number(program), interface, ATTACH_XDP, IN_THE_DRIVER])])
}

fn descriptor(command: libc::c_int, parts: &[&[u8]]) -> io::Result<OwnedFd> {
    let descriptor = call(command, parts)?;
    // SAFETY: the call has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes the call; the attributes are what `parts` are together.
fn call(command: libc::c_int, parts: &[&[u8]]) -> io::Result<libc::c_int> {
    let attributes = parts.concat();
    // SAFETY: pointer and size are of one slice; what pointers in it lead to lives in our callers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), attributes.len()) };
    libc::c_int::try_from(result).ok().filter(|result| *result >= 0).ok_or_else(io::Error::last_os_error)
}

/// An address for the kernel, which reads or writes there during the call.
fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn number(descriptor: &OwnedFd) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

// Commands.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
/// `BPF_MAP_TYPE_ARRAY`.
const MAP_TYPE_ARRAY: u32 = 2;
/// `BPF_PROG_TYPE_XDP`.
const PROGRAM_TYPE_XDP: u32 = 6;
/// `BPF_XDP`.
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_DRV_MODE` (Linux `include/uapi/linux/if_link.h`).
const IN_THE_DRIVER: u32 = 1 << 2;
const LOG_SIZE: usize = 64 << 10;
