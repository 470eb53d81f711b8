//! bpf(2): the call itself. Maps and programs are in the modules below.
#![allow(unsafe_code)]

pub(crate) mod assembler;
mod function_types;
pub(crate) mod look;
mod map;
mod program;

use std::ffi::c_long;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub(crate) use map::{ArrayMap, HashMap, MapError, Plain, XskMap};
pub(crate) use program::{Kind, Mode, Program};

/// An XDP program's verdict on a packet: dropped.
pub(crate) const XDP_DROP: i32 = 1;
/// An XDP program's verdict on a packet: on to the kernel.
pub(crate) const XDP_PASS: i32 = 2;

/// What a map or program without a name of its own is called.
const NAME: [u8; 16] = *b"softnic\0\0\0\0\0\0\0\0\0";

const GET_INFO: c_long = 15;

/// `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct GetInfo {
    fd: u32,
    len: u32,
    info: u64,
}

/// `BPF_PROG_GET_FD_BY_ID` and `BPF_MAP_GET_FD_BY_ID`.
#[repr(C)]
struct GetFd {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// Calls bpf(2).
///
/// # Safety
/// `T` is the beginning of `union bpf_attr` as `command` has it, and every address in it is valid for what the command does.
unsafe fn bpf<T>(command: c_long, attributes: &mut T) -> io::Result<c_long> {
    // SAFETY: `attributes` is valid for its own size, and the caller answers for what it points to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls bpf(2) for a command that makes a file descriptor.
///
/// # Safety
/// As for [`bpf`]; and `command` makes one.
unsafe fn bpf_fd<T>(command: c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller answers for the attributes, and the kernel just made the file descriptor for us.
    unsafe { bpf(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

/// The file descriptor of an object with this id.
///
/// # Safety
/// `command` is `BPF_PROG_GET_FD_BY_ID` or `BPF_MAP_GET_FD_BY_ID`.
unsafe fn fd_by_id(command: c_long, id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the fields are those of the command, which makes a file descriptor; none is an address.
    unsafe { bpf_fd(command, &mut GetFd { id, next_id: 0, open_flags: 0 }) }
}

/// Reads what the kernel knows of an object.
///
/// # Safety
/// `T` is the beginning of `struct bpf_prog_info` or `struct bpf_map_info`, whichever `fd` is of; every address in it is valid for the
/// number of elements beside it.
unsafe fn read_info<T>(fd: &OwnedFd, info: &mut T) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (fd, len) = (fd.as_raw_fd() as u32, size_of::<T>() as u32);
    // SAFETY: `info` has `len` bytes, and the caller answers for what it points to.
    unsafe { bpf(GET_INFO, &mut GetInfo { fd, len, info: std::ptr::from_mut(info) as u64 }) }.map(|_| ())
}
