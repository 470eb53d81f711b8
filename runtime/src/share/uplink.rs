//! The shared interface itself: the programs on it, their maps, and the kernel's events about it.

use std::os::fd::AsFd;

use rustix::io::Errno;
use softnic_nic::sharing::Process;

use super::error::ShareError;
use super::links::Links;
use super::maps::Maps;
use super::rules;
use crate::afxdp::AfXdpError;
use crate::bpf::{Kind, MapError, Program};
use crate::host_network::{Event, HostNetwork};

/// The shared interface.
#[derive(Debug)]
pub(super) struct Uplink {
    pub(super) links: Links,
    pub(super) maps: Maps,
    pub(super) host: HostNetwork,
    pub(super) index: u32,
    /// Whether its driver runs the XDP program.
    pub(super) in_driver: bool,
    /// Whether the programs were on the interface before.
    taken_over: bool,
    /// The process that refuses requests for services without a listener.
    pub(super) warden: Option<Process>,
}

impl Uplink {
    /// Attaches the programs to an interface, or takes over those that are attached.
    pub(super) fn open(interface: &str) -> Result<Uplink, ShareError> {
        let host = HostNetwork::open(interface)?;
        if host.interface().vlan.is_some() {
            return Err(ShareError::Vlan(interface.into()));
        }
        host.port()?;
        let index = host.interface().index;
        let mut links = Links::open().map_err(ShareError::when("ask the kernel for devices"))?;
        let ask = ShareError::when("ask for the interface's programs");
        let before = links.filter_of(index).map_err(&ask)?;
        let in_driver = links.xdp_of(index).map_err(&ask)?.is_some();
        let maps = match before {
            Some(id) => take_over(interface, id)?,
            None if in_driver => return Err(other_program(interface)),
            None => Maps::new().map_err(ShareError::when("make the maps of the programs"))?,
        };
        let taken_over = before.is_some();
        let mut uplink = Uplink { links, maps, host, index, in_driver, taken_over, warden: None };
        let attached = uplink.attach(interface).and_then(|()| uplink.tell_programs());
        attached.inspect_err(|_| uplink.undo())?;
        Ok(uplink)
    }

    /// Attaches the missing programs. If the driver cannot run an XDP program, the classifier handles all packets instead of only those to
    /// groups.
    fn attach(&mut self, interface: &str) -> Result<(), ShareError> {
        if !self.in_driver {
            let program = Program::load(Kind::Xdp { fragments: true }, &rules::ingress(&self.maps));
            let program = program.map_err(ShareError::when("load the XDP program"))?;
            match self.links.attach_xdp(self.index, program.as_fd()) {
                Ok(()) => self.in_driver = true,
                Err(Errno::BUSY | Errno::EXIST) => return Err(other_program(interface)),
                Err(error @ Errno::PERM) => return Err(ShareError::when("attach the XDP program")(error)),
                Err(_) => {}
            }
        }
        let spread = Program::load(Kind::Classifier, &rules::spread(&self.maps));
        let spread = spread.map_err(ShareError::when("load the interface's classifier"))?;
        self.links.filter(self.index, spread.as_fd()).map_err(ShareError::when("attach the interface's classifier"))
    }

    /// Removes the programs again, unless clients of the previous daemon depend on them.
    pub(super) fn undo(&mut self) {
        if !self.taken_over {
            self.close();
        }
    }

    /// Writes the interface's addresses to the maps of the programs.
    fn tell_programs(&mut self) -> Result<(), ShareError> {
        let failed = ShareError::when("write to the maps of the programs");
        self.maps.set_port(self.index, self.host.interface().mac, self.warden).map_err(&failed)?;
        self.maps.set_addresses(self.host.addresses()).map_err(&failed)
    }

    /// Sets the process that refuses requests for services without a listener.
    pub(super) fn set_warden(&mut self, warden: Option<Process>) -> Result<(), ShareError> {
        self.warden = warden;
        self.tell_programs()
    }

    /// Handles the kernel's events about the interface; returns the MTU if it has changed, and whether the interface is gone.
    pub(super) fn follow(&mut self) -> Result<Change, ShareError> {
        let mut change = Change::default();
        let mut stale = false;
        while let Ok(Some(event)) = self.host.poll_event() {
            match event {
                Event::Gone => change.gone = true,
                Event::MtuChanged(mtu) => change.mtu = Some(mtu),
                Event::MacChanged(_) | Event::AddressesChanged => stale = true,
                _ => {}
            }
        }
        if stale && !change.gone {
            self.tell_programs()?;
        }
        Ok(change)
    }

    /// Removes the programs from the interface.
    pub(super) fn close(&mut self) {
        // An interface that is gone has removed its programs already.
        let _ = self.links.unfilter(self.index);
        if self.in_driver {
            let _ = self.links.detach_xdp(self.index);
        }
    }
}

/// A change of the interface.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) mtu: Option<u32>,
    pub(super) gone: bool,
}

/// Opens the maps of the program of a daemon that was killed.
fn take_over(interface: &str, id: u32) -> Result<Maps, ShareError> {
    let program = Program::by_id(id).map_err(ShareError::when("look at the interface's program"))?;
    match Maps::of_program(&program) {
        Ok(maps) => Ok(maps),
        Err(MapError::Bpf(error)) => Err(ShareError::when("look at the maps of the interface's program")(error)),
        // The program is not one of softnic, or is of another version.
        Err(_) => Err(other_program(interface)),
    }
}

fn other_program(interface: &str) -> ShareError {
    AfXdpError::ProgramAttached { interface: interface.into(), holder: None }.into()
}
