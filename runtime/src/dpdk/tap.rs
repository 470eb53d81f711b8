//! A tap: an interface of the kernel whose frames this process carries, with the addresses of a port.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use softnic_wire::MacAddr;

use super::error::DpdkError;
use super::sys;
use crate::host_network::netlink::Netlink;
use crate::host_network::rtnetlink::address::new_address;
use crate::host_network::rtnetlink::attributes::Attributes;
use crate::host_network::rtnetlink::link::{IFF_UP, IFLA_ADDRESS, IFLA_MTU, of_link, with_flags};
use crate::host_network::rtnetlink::{NLM_F_CREATE, NLM_F_REPLACE, RTM_NEWADDR, RTM_SETLINK, Request};
use crate::host_network::{HostNetwork, Interface};

/// A tap. The kernel removes it with this value or the process, unless it was made persistent (`ip tuntap add`).
#[derive(Debug)]
pub(crate) struct Tap {
    fd: OwnedFd,
}

impl Tap {
    /// Opens the tap of this name, creating it if it does not exist, and sets its addresses and brings it up. Settings that are right already
    /// are not touched, so a process without privileges can use a fully prepared tap.
    pub(crate) fn open(name: &str, mac: MacAddr, mtu: u32, addresses: &[(IpAddr, u8)]) -> Result<Tap, DpdkError> {
        let fd = sys::attach_tap(name).map_err(|error| refusal(name, error))?;
        let failed = |what| move |error: Errno| told(name, what, error);
        let mut netlink = Netlink::open().map_err(failed("asking the kernel"))?;
        let mut change = |what, kind, body: Attributes, flags| {
            netlink.ask(&Request::new(kind, body), flags).map(drop).map_err(failed(what))
        };
        let is = |error| DpdkError::Tap { name: name.into(), what: "asking for it", error: io::Error::other(error) };
        let interface = Interface::find(name).map_err(is)?;
        let index = interface.index;
        if interface.mac != mac {
            change("setting its MAC address", RTM_SETLINK, of_link(index).with(IFLA_ADDRESS, &mac.0), 0)?;
        }
        if interface.mtu != mtu {
            change("setting its MTU", RTM_SETLINK, of_link(index).with_u32(IFLA_MTU, mtu), 0)?;
        }
        let there = HostNetwork::open(name).map_err(is)?.addresses().to_vec();
        for &(address, prefix) in addresses.iter().filter(|(address, _)| !there.contains(address)) {
            let body = new_address(index, address, prefix);
            change("giving it an address", RTM_NEWADDR, body, NLM_F_CREATE | NLM_F_REPLACE)?;
        }
        if !interface.admin_up {
            change("bringing it up", RTM_SETLINK, with_flags(index, IFF_UP, IFF_UP), 0)?;
        }
        Ok(Tap { fd })
    }

    /// Reads the next frame that the kernel sent. Returns its length.
    pub(super) fn read(&self, room: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.fd, room)
    }

    /// Hands the kernel a frame.
    pub(super) fn write(&self, frame: &[u8]) -> Result<(), Errno> {
        rustix::io::write(&self.fd, frame).map(drop)
    }

    /// Sets whether the interface has a carrier.
    pub(super) fn set_carrier(&self, up: bool) -> io::Result<()> {
        sys::set_tap_carrier(&self.fd, up)
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The error for a tap that could not be attached.
fn refusal(name: &str, error: io::Error) -> DpdkError {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => DpdkError::NoTaps(name.into()),
        Some(Errno::BUSY) => DpdkError::TapInUse(name.into()),
        Some(Errno::INVAL) => DpdkError::NotATap(name.into()),
        Some(Errno::PERM | Errno::ACCESS) => DpdkError::TapPermission { name: name.into(), what: "making it" },
        _ => DpdkError::Tap { name: name.into(), what: "making it", error },
    }
}

fn told(name: &str, what: &'static str, error: Errno) -> DpdkError {
    match error {
        Errno::PERM => DpdkError::TapPermission { name: name.into(), what },
        error => DpdkError::Tap { name: name.into(), what, error: error.into() },
    }
}
