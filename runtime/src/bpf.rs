//! bpf(2): maps, programs, and the link that holds one on a device.
#![allow(unsafe_code)]

pub(crate) mod assembler;

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use assembler::Instruction;

const MAP_CREATE: c_long = 0;
const MAP_UPDATE_ELEM: c_long = 2;
const PROG_LOAD: c_long = 5;
#[cfg(test)]
const PROG_TEST_RUN: c_long = 10;
const LINK_CREATE: c_long = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
/// The kind of attachment, `BPF_XDP`.
const ATTACH_XDP: u32 = 37;
/// The program can take packets that lie in several pieces.
const F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// The functions it calls ask for no particular licence.
const LICENCE: &std::ffi::CStr = c"MIT";
const NAME: [u8; 16] = *b"softnic\0\0\0\0\0\0\0\0\0";
/// Bytes that the verifier may say about a program it refuses.
const LOG: usize = 64 << 10;

/// How a program is attached: in the driver, or behind it, where every packet costs a socket buffer more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Behind the driver, which works with every device.
    Generic = 1 << 1,
    /// In the driver.
    Native = 1 << 2,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[cfg(test)]
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
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

/// The map from a device's queues to sockets.
#[derive(Debug)]
pub(crate) struct XskMap(OwnedFd);

impl XskMap {
    /// A map for so many queues, without sockets.
    pub(crate) fn new(queues: u32) -> io::Result<XskMap> {
        let mut attributes = MapCreate {
            map_type: MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: queues,
            name: NAME,
            ..MapCreate::default()
        };
        // SAFETY: the fields are those of BPF_MAP_CREATE and none is an address.
        unsafe { bpf_fd(MAP_CREATE, &mut attributes) }.map(XskMap)
    }

    /// Packets of `queue` go to `socket` from now on, until it is closed.
    pub(crate) fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let mut attributes = MapUpdate {
            map_fd: self.0.as_raw_fd() as u32,
            padding: 0,
            key: std::ptr::from_ref(&queue) as u64,
            value: std::ptr::from_ref(&value) as u64,
            flags: 0,
        };
        // SAFETY: the fields are those of BPF_MAP_UPDATE_ELEM; key and value have the four bytes each that the map was made for.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(|_| ())
    }
}

impl AsFd for XskMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A program that the kernel has accepted.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads a program; `fragments` says that it takes packets in several pieces. What the verifier says about one that it
    /// refuses is in the error.
    pub(crate) fn load(code: &[Instruction], fragments: bool) -> io::Result<Program> {
        let mut log = Vec::new();
        loop {
            let mut attributes = ProgLoad {
                prog_type: PROG_TYPE_XDP,
                insn_cnt: code.len() as u32,
                insns: code.as_ptr() as u64,
                license: LICENCE.as_ptr() as u64,
                prog_flags: if fragments { F_XDP_HAS_FRAGS } else { 0 },
                name: NAME,
                expected_attach_type: ATTACH_XDP,
                ..ProgLoad::default()
            };
            if !log.is_empty() {
                (attributes.log_level, attributes.log_size) = (1, log.len() as u32);
                attributes.log_buf = log.as_mut_ptr() as u64;
            }
            // SAFETY: the fields are those of BPF_PROG_LOAD; `code` has `insn_cnt` instructions as the kernel lays them out, the licence
            // ends with a zero, and the log, where there is one, has `log_size` bytes that nobody else uses.
            match unsafe { bpf_fd(PROG_LOAD, &mut attributes) } {
                Ok(fd) => return Ok(Program(fd)),
                Err(e) if e.raw_os_error() == Some(libc::EACCES) && log.is_empty() => log = vec![0u8; LOG],
                Err(e) if log.is_empty() => return Err(e),
                Err(e) => {
                    let end = log.iter().position(|&b| b == 0).unwrap_or(LOG);
                    return Err(io::Error::other(format!("{e}: {}", String::from_utf8_lossy(&log[..end]))));
                }
            }
        }
    }

    /// Attaches it to a device; it is detached when the link is dropped, or the process ends in whatever way.
    pub(crate) fn attach(&self, ifindex: u32, mode: Mode) -> io::Result<OwnedFd> {
        let mut attributes = LinkCreate {
            prog_fd: self.0.as_raw_fd() as u32,
            target_ifindex: ifindex,
            attach_type: ATTACH_XDP,
            flags: mode as u32,
        };
        // SAFETY: the fields are those of BPF_LINK_CREATE and none is an address.
        unsafe { bpf_fd(LINK_CREATE, &mut attributes) }
    }

    /// Runs it over a frame; says its verdict.
    #[cfg(test)]
    pub(crate) fn test_run(&self, frame: &[u8]) -> io::Result<u32> {
        let mut attributes = TestRun {
            prog_fd: self.0.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat: 1,
            ..TestRun::default()
        };
        // SAFETY: the fields are those of BPF_PROG_TEST_RUN; `data_in` has `data_size_in` bytes and nothing is written out.
        unsafe { bpf(PROG_TEST_RUN, &mut attributes) }.map(|_| attributes.retval)
    }
}
