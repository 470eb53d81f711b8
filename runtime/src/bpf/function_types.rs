//! The types of a program's functions (BTF): the kernel takes a program that has more than one only with them.
//!
//! Nothing here depends on the program: each function takes nothing, as far as this says, and returns an int. The verifier knows better what
//! a function gets that the kernel calls.

use std::ffi::c_long;
use std::io;
use std::os::fd::OwnedFd;

use super::bpf_fd;

const BTF_LOAD: c_long = 18;

/// `struct btf_header`: magic number, version and flags; lengths of itself and of its sections, of which the types are the first.
const MAGIC_VERSION: u32 = 0x0001_eb9f;
const HEADER_LEN: u32 = 24;
/// Kinds of types.
const INT: u32 = 1 << 24;
const FUNCTION: u32 = 12 << 24;
const PROTOTYPE: u32 = 13 << 24;
/// How an int is stored: with a sign, in so many bits.
const SIGNED_32: u32 = 1 << 24 | 32;

/// Names, each with the offset that it has here.
const NAMES: &[u8; 16] = b"\0int\0function\0\0\0";
const NAME_INT: u32 = 1;
const NAME_FUNCTION: u32 = 5;

/// The number of the type of a function.
pub(super) const FUNCTION_TYPE: u32 = 3;

/// Each type: its name, its kind, its size or the type that it is about. They are numbered from one.
#[rustfmt::skip]
const TYPES: [u32; 10] = [
    NAME_INT, INT, 4, SIGNED_32,
    0, PROTOTYPE, 1,
    NAME_FUNCTION, FUNCTION, 2,
];

#[repr(C)]
struct BtfLoad {
    btf: u64,
    log_buf: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
}

/// Loads the types; a program that uses them keeps them.
pub(super) fn load() -> io::Result<OwnedFd> {
    let types_len = size_of_val(&TYPES) as u32;
    let header = [MAGIC_VERSION, HEADER_LEN, 0, types_len, types_len, NAMES.len() as u32];
    let mut bytes: Vec<u8> = header.iter().chain(&TYPES).flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(NAMES);
    let mut attributes =
        BtfLoad { btf: bytes.as_ptr() as u64, log_buf: 0, size: bytes.len() as u32, log_size: 0, log_level: 0 };
    // SAFETY: the fields are those of BPF_BTF_LOAD; `btf` has `size` bytes, and there is no log.
    unsafe { bpf_fd(BTF_LOAD, &mut attributes) }
}
