//! The membership of an id in a multicast group.

use std::net::IpAddr;

use super::devices::CmDevice;
use crate::abi::*;
use crate::errno::Errno;
use crate::gid::gid_of;
use crate::objects::address;
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;

/// A group that an id is a member of.
pub(crate) struct Group {
    pub(crate) address: IpAddr,
    attached: bool,
}

impl Group {
    /// Joins a group; attaches the queue pair, if it is to receive packets of the group.
    pub(crate) fn join(group: IpAddr, qp: Option<&Qp>) -> Result<Group, Errno> {
        let attached = match qp {
            None => false,
            Some(qp) => match address::attach(Pointer::of(qp), &gid_of(group), 0) {
                0 => true,
                e => return Err(Errno(e)),
            },
        };
        Ok(Group { address: group, attached })
    }

    /// Detaches the queue pair from the group.
    pub(crate) fn detach(&mut self, qp: Option<&Qp>) {
        if let Some(qp) = qp.filter(|_| std::mem::take(&mut self.attached)) {
            // The queue pair was attached, so this succeeds.
            let _ = address::detach(Pointer::of(qp), &gid_of(self.address), 0);
        }
    }
}

/// The path to a group; one hop, unless the group is routed further.
pub(crate) fn way(device: &CmDevice, local: Option<IpAddr>, group: IpAddr, tos: u8) -> ibv_ah_attr {
    let index = local.and_then(|local| device.gid_index(local)).unwrap_or(0);
    let grh = ibv_global_route {
        dgid: gid_of(group),
        flow_label: 0,
        sgid_index: index as u8,
        hop_limit: 1,
        traffic_class: tos,
    };
    ibv_ah_attr { grh, is_global: 1, port_num: 1, ..ibv_ah_attr::default() }
}
