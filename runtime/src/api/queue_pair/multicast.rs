//! Multicast groups of datagram queue pairs.

use std::net::IpAddr;

use softnic_nic::ObjectError;

use super::QueuePair;
use crate::api::company::{CompanyError, Member};
use crate::api::groups;
use crate::api::path::Network;
use crate::host_network::{self, HostNetworkError};
use crate::locked::lock;
use crate::stack::TooManyGroups;

/// Why a queue pair cannot hear what is sent to a multicast group.
#[derive(Debug, thiserror::Error)]
pub enum MulticastError {
    /// It is not for groups, or the address is none of a group.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The kernel does not join the group.
    #[error(transparent)]
    Kernel(#[from] HostNetworkError),
    /// The port's stack cannot report the group.
    #[error(transparent)]
    TooMany(#[from] TooManyGroups),
    /// The other processes cannot be told.
    #[error(transparent)]
    Company(#[from] CompanyError),
}

/// What keeps frames to a group coming to this NIC.
#[derive(Debug)]
#[expect(dead_code, reason = "held until it goes")]
pub(super) struct Membership {
    /// The kernel is a member, too, where the NIC is on one of its interfaces.
    kernel: Option<host_network::Membership>,
    /// The port's own stack is, where it has one.
    own: Option<groups::Membership>,
    /// The other processes behind the port know of it.
    company: Option<Member>,
}

impl QueuePair {
    /// Hears from now on what is sent to a multicast group; the kernel joins it too where the NIC is on one of its interfaces, so this is
    /// to be called in the interface's network namespace.
    ///
    /// # Errors
    /// When the queue pair is no datagram queue pair, the address no group's, or the kernel refuses to join.
    pub fn attach_multicast(&self, group: IpAddr) -> Result<(), MulticastError> {
        self.0.engine.control().nic().attach_multicast(self.0.qpn, group)?;
        let inner = self.0.pd.inner();
        let membership = match &inner.network {
            Network::Kernel { host, .. } => {
                lock(host).join(group).map(|kernel| (Some(kernel), None)).map_err(MulticastError::from)
            }
            Network::Own { groups: Some(groups), .. } => {
                groups::Membership::begin(groups).map(|own| (None, Some(own))).map_err(MulticastError::from)
            }
            Network::Here | Network::Own { groups: None, .. } => Ok((None, None)),
        };
        let membership = membership.and_then(|(kernel, own)| {
            let company = inner.company.as_ref().map(|company| company.join(group)).transpose()?;
            Ok(Membership { kernel, own, company })
        });
        let membership = membership.inspect_err(|_| {
            // It was attached just now.
            let _ = self.0.engine.control().nic().detach_multicast(self.0.qpn, group);
        })?;
        self.0.groups.lock().unwrap_or_else(|p| p.into_inner()).push((group, membership));
        Ok(())
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// When it is not a member.
    pub fn detach_multicast(&self, group: IpAddr) -> Result<(), ObjectError> {
        self.0.engine.control().nic().detach_multicast(self.0.qpn, group)?;
        self.0.groups.lock().unwrap_or_else(|p| p.into_inner()).retain(|(g, _)| *g != group);
        Ok(())
    }
}
