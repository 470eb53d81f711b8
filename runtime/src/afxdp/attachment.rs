//! The XDP program on a device, and the map of its sockets: the state shared by all queues of the device.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::Takes;
use super::device::Device;
use super::error::AfXdpError;
use super::holder::Holder;
use super::patience::patiently;
use super::program::{redirect_everything, redirect_roce};
use crate::bpf::{Kind, Mode, Program, XDP_DROP, XDP_PASS, XskMap};

/// A program that stays attached while this value lives.
#[derive(Debug)]
pub(super) struct Attachment {
    map: XskMap,
    /// The link: closing it detaches the program.
    link: OwnedFd,
    mode: Mode,
    fragments: bool,
}

impl Attachment {
    /// Loads the program and attaches it: in the driver (native mode) if the driver supports that, else behind it. `fragments` requests
    /// packets in several pieces.
    pub(super) fn new(device: &Device, takes: Takes, fragments: bool) -> Result<Attachment, AfXdpError> {
        let map = XskMap::new(device.rx_queues).map_err(AfXdpError::when("make a map of sockets"))?;
        let map_fd = map.as_fd().as_raw_fd();
        let code = match takes {
            Takes::Roce => redirect_roce(map_fd, XDP_PASS),
            Takes::Everything => redirect_everything(map_fd, XDP_DROP),
        };
        let (program, fragments) = match Program::load(Kind::Xdp { fragments }, &code) {
            // Kernels before 5.18 do not know the flag.
            Err(e) if fragments && e.raw_os_error() == Some(libc::EINVAL) => {
                (Program::load(Kind::Xdp { fragments: false }, &code), false)
            }
            loaded => (loaded, fragments),
        };
        let program = program.map_err(AfXdpError::when("load the XDP program"))?;
        let is_ours_to_give_up = |e: &io::Error| !matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EPERM));
        let (link, mode) = match patiently(|| program.attach(device.ifindex, Mode::Native)) {
            Err(e) if is_ours_to_give_up(&e) => {
                (patiently(|| program.attach(device.ifindex, Mode::Generic)), Mode::Generic)
            }
            attached => (attached, Mode::Native),
        };
        let link = link.map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => {
                AfXdpError::ProgramAttached { interface: device.name.clone(), holder: Holder::of(device.ifindex) }
            }
            _ => AfXdpError::new("attach the XDP program", e),
        })?;
        Ok(Attachment { map, link, mode, fragments })
    }

    /// Whether the program can be loaded.
    pub(super) fn check() -> Result<(), AfXdpError> {
        let map = XskMap::new(1).map_err(AfXdpError::when("make a map of sockets"))?;
        let code = redirect_roce(map.as_fd().as_raw_fd(), XDP_PASS);
        Program::load(Kind::Xdp { fragments: false }, &code)
            .map(|_| ())
            .map_err(AfXdpError::when("load the XDP program"))
    }

    /// Redirects packets of `queue` to `socket` from now on.
    pub(super) fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), AfXdpError> {
        self.map.insert(queue, socket).map_err(AfXdpError::when("put a socket into the map"))
    }

    /// The descriptors of the map and the link.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        vec![self.map.as_fd().as_raw_fd(), self.link.as_raw_fd()]
    }

    /// Whether the program runs in the driver.
    pub(super) fn native(&self) -> bool {
        self.mode == Mode::Native
    }

    /// Whether the program accepts packets in several pieces.
    pub(super) fn fragments(&self) -> bool {
        self.fragments
    }
}

/// Creates a map for the sockets of `queues` queues, and the program that redirects every frame to them.
pub(crate) fn redirect_to_sockets(queues: u32) -> Result<(XskMap, Program), AfXdpError> {
    let map = XskMap::new(queues).map_err(AfXdpError::when("make a map of sockets"))?;
    let code = redirect_everything(map.as_fd().as_raw_fd(), XDP_DROP);
    let program =
        Program::load(Kind::Xdp { fragments: true }, &code).map_err(AfXdpError::when("load the XDP program"))?;
    Ok((map, program))
}
