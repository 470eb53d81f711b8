//! Programs, and the link that holds one on a device.

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::assembler::Code;
use super::{NAME, bpf_fd, fd_by_id, function_types, map, read_info};

const LOAD: c_long = 5;
#[cfg(test)]
const TEST_RUN: c_long = 10;
const FD_BY_ID: c_long = 13;
const LINK_CREATE: c_long = 28;

const SCHED_CLS: u32 = 3;
const XDP: u32 = 6;
/// The kind of attachment, `BPF_XDP`.
const ATTACH_XDP: u32 = 37;
/// The program can take packets that lie in several pieces.
const F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// The functions it calls ask for no particular licence.
const LICENCE: &std::ffi::CStr = c"MIT";
/// Bytes that the verifier may say about a program it refuses: the end counts, and what leads to it can be long.
const LOG: usize = 64 << 10;
/// Maps of a program that are looked at: ours have fewer.
const MAX_MAPS: usize = 16;

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// On packets as a device's driver has them.
    Xdp {
        /// Also on packets in several pieces.
        fragments: bool,
    },
    /// On socket buffers, as a classifier of traffic control that says itself what happens to them.
    Classifier,
}

/// How an XDP program is attached: in the driver, or behind it, where every packet costs a socket buffer more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Behind the driver, which works with every device.
    Generic = 1 << 1,
    /// In the driver.
    Native = 1 << 2,
}

#[repr(C)]
#[derive(Default)]
struct Load {
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
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    padding: u32,
}

/// A function of a program, `struct bpf_func_info`.
#[repr(C)]
struct Function {
    begins: u32,
    type_id: u32,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct Info {
    prog_type: u32,
    id: u32,
    tag: [u8; 8],
    jited_len: u32,
    xlated_len: u32,
    jited: u64,
    xlated: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
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

/// A program that the kernel has accepted.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads a program. What the verifier says about one that it refuses is in the error.
    pub(crate) fn load(kind: Kind, code: &Code) -> io::Result<Program> {
        let (prog_type, expected_attach_type, prog_flags) = match kind {
            Kind::Xdp { fragments } => (XDP, ATTACH_XDP, if fragments { F_XDP_HAS_FRAGS } else { 0 }),
            Kind::Classifier => (SCHED_CLS, 0, 0),
        };
        let types = if code.functions.is_empty() { None } else { Some(function_types::load()?) };
        let functions: Vec<Function> = [0]
            .iter()
            .chain(&code.functions)
            .map(|&begins| Function { begins, type_id: function_types::FUNCTION_TYPE })
            .collect();
        let mut log = Vec::new();
        loop {
            let mut attributes = Load {
                prog_type,
                insn_cnt: code.instructions.len() as u32,
                insns: code.instructions.as_ptr() as u64,
                license: LICENCE.as_ptr() as u64,
                prog_flags,
                name: NAME,
                expected_attach_type,
                ..Load::default()
            };
            if let Some(types) = &types {
                (attributes.prog_btf_fd, attributes.func_info_cnt) = (types.as_raw_fd() as u32, functions.len() as u32);
                attributes.func_info_rec_size = size_of::<Function>() as u32;
                attributes.func_info = functions.as_ptr() as u64;
            }
            if !log.is_empty() {
                (attributes.log_level, attributes.log_size) = (1, log.len() as u32);
                attributes.log_buf = log.as_mut_ptr() as u64;
            }
            // SAFETY: the fields are those of BPF_PROG_LOAD; there are `insn_cnt` instructions as the kernel lays them out, and
            // `func_info_cnt` functions of `func_info_rec_size` bytes, or none; the licence
            // ends with a zero, and the log, where there is one, has `log_size` bytes that nobody else uses.
            match unsafe { bpf_fd(LOAD, &mut attributes) } {
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

    /// The program of this id, which another process may have loaded.
    pub(crate) fn by_id(id: u32) -> io::Result<Program> {
        // SAFETY: the command is that of programs.
        unsafe { fd_by_id(FD_BY_ID, id) }.map(Program)
    }

    #[cfg(test)]
    /// Its id.
    #[cfg(test)]
    pub(crate) fn id(&self) -> io::Result<u32> {
        let mut info = Info::default();
        // SAFETY: `Info` begins as `struct bpf_prog_info` does; it asks for no map ids, so it has no addresses.
        unsafe { read_info(&self.0, &mut info) }.map(|()| info.id)
    }

    /// The maps that it uses.
    pub(crate) fn maps(&self) -> io::Result<Vec<OwnedFd>> {
        let mut ids = [0u32; MAX_MAPS];
        let mut info = Info { nr_map_ids: MAX_MAPS as u32, map_ids: ids.as_mut_ptr() as u64, ..Info::default() };
        // SAFETY: `Info` begins as `struct bpf_prog_info` does; `map_ids` has room for `nr_map_ids`, and its other addresses are null.
        unsafe { read_info(&self.0, &mut info)? };
        ids.iter().take(info.nr_map_ids as usize).map(|&id| map::by_id(id)).collect()
    }

    /// Attaches a classifier to what comes in by a device; it is detached when the link is dropped.
    #[cfg(test)]
    pub(crate) fn attach_classifier(&self, ifindex: u32) -> io::Result<OwnedFd> {
        /// The kind of attachment, `BPF_TCX_INGRESS`.
        const ATTACH_TCX_INGRESS: u32 = 46;
        let prog_fd = self.0.as_raw_fd() as u32;
        let mut attributes = LinkCreate { prog_fd, target_ifindex: ifindex, attach_type: ATTACH_TCX_INGRESS, flags: 0 };
        // SAFETY: the fields are those of BPF_LINK_CREATE and none is an address.
        unsafe { bpf_fd(LINK_CREATE, &mut attributes) }
    }

    /// Attaches an XDP program to a device; it is detached when the link is dropped, or the process ends in whatever way.
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
        self.test_runs(frame, 1).map(|(verdict, _)| verdict)
    }

    /// Runs it so many times over a frame; says its last verdict and how many nanoseconds a run took.
    #[cfg(test)]
    pub(crate) fn test_runs(&self, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
        let mut attributes = TestRun {
            prog_fd: self.0.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat,
            ..TestRun::default()
        };
        // SAFETY: the fields are those of BPF_PROG_TEST_RUN; `data_in` has `data_size_in` bytes and nothing is written out.
        unsafe { super::bpf(TEST_RUN, &mut attributes) }.map(|_| (attributes.retval, attributes.duration))
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
