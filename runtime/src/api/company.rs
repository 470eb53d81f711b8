//! The other processes behind the same port: who we are among them, and what they must know of us.

use std::net::IpAddr;
use std::sync::Arc;

use softnic_nic::sharing::Process;
use softnic_wire::mad::ip_cm::ServiceId;

use crate::share::{GroupSeat, Limits, Seat, ShareError};
use crate::shm::{Directory, GroupMember, ShmError};

/// The processes behind one port.
#[derive(Debug, Clone)]
pub(crate) enum Company {
    /// Those on a network in memory.
    Memory(Arc<Directory>),
    /// Those that share an interface.
    Interface(Arc<Seat>),
}

/// What keeps frames to a group coming to us.
#[derive(Debug)]
#[expect(dead_code, reason = "held until it goes")]
pub(crate) enum Member {
    Memory(GroupMember),
    Interface(GroupSeat),
}

/// Why the others do not hear of us.
#[derive(Debug, thiserror::Error)]
pub enum CompanyError {
    /// The network in memory refuses.
    #[error(transparent)]
    Shm(#[from] ShmError),
    /// The daemon of the interface refuses.
    #[error(transparent)]
    Share(#[from] ShareError),
}

impl Company {
    /// Our number.
    pub(crate) fn me(&self) -> Process {
        match self {
            Company::Memory(directory) => directory.me(),
            Company::Interface(seat) => seat.me(),
        }
    }

    /// What we may have.
    pub(crate) fn limits(&self) -> Limits {
        match self {
            Company::Memory(_) => Limits::default(),
            Company::Interface(seat) => seat.limits(),
        }
    }

    /// Requests for a service come to us; `false` when another has it.
    pub(crate) fn claim(&self, service: ServiceId) -> Result<bool, CompanyError> {
        match self {
            Company::Memory(directory) => Ok(directory.claim(service)?),
            Company::Interface(seat) => Ok(seat.claim(service)?),
        }
    }

    /// They do not any more.
    pub(crate) fn release(&self, service: ServiceId) {
        match self {
            Company::Memory(directory) => directory.release(service),
            Company::Interface(seat) => seat.release(service),
        }
    }

    /// Frames to a group come to us.
    pub(crate) fn join(&self, group: IpAddr) -> Result<Member, CompanyError> {
        match self {
            Company::Memory(directory) => Ok(Member::Memory(GroupMember::join(directory, group)?)),
            Company::Interface(seat) => Ok(Member::Interface(GroupSeat::join(seat)?)),
        }
    }

    /// Nobody finds us any more.
    pub(crate) fn leave(&self) {
        match self {
            Company::Memory(directory) => directory.leave(),
            Company::Interface(seat) => seat.leave(),
        }
    }
}
