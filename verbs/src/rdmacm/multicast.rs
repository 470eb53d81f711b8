//! Multicast groups of an id: joined by address, attached to its queue pair.

use std::net::IpAddr;

use softnic_runtime::api::Qpn;
use softnic_runtime::api::cm::PortSpace;

use super::addresses;
use super::channel::What;
use super::devices::CmDevice;
use super::event::{CmEvent, no_ud};
use super::id::Id;
use super::qp;
use crate::abi::*;
use crate::c_result::minus_one;
use crate::errno::Errno;
use crate::gid::gid_of;
use crate::objects::address;

/// A full member, which sends and hears.
const FULL_MEMBER: u32 = 0;
/// One that only sends.
const SEND_ONLY: u32 = 1;

/// A group that was asked for; the program has not seen the answer.
pub(crate) struct Joined {
    group: IpAddr,
    listens: bool,
    context: usize,
}

/// A group that an id is in.
pub(crate) struct Group {
    address: IpAddr,
    attached: bool,
}

impl Group {
    /// The queue pair hears it no more.
    pub(crate) fn detach(&mut self, id: &Id) {
        if let Some(qp) = qp::of(id).filter(|_| std::mem::take(&mut self.attached)) {
            // It was attached.
            let _ = address::detach(qp, &gid_of(self.address), 0);
        }
    }
}

impl Joined {
    /// The program takes the answer: its queue pair, if there is one, is attached now.
    pub(crate) fn tell(self, id: &Id, event: impl Fn(c_int, c_int) -> Box<CmEvent>) -> Box<CmEvent> {
        let attached = match qp::of(id).filter(|_| self.listens) {
            None => Ok(false),
            Some(qp) => match address::attach(qp, &gid_of(self.group), 0) {
                0 => Ok(true),
                e => Err(Errno(e)),
            },
        };
        let context = std::ptr::with_exposed_provenance(self.context);
        match attached {
            Err(e) => {
                let param = rdma_ud_param { private_data: context, ..no_ud() };
                event(MULTICAST_ERROR, -e.0).with_context(param)
            }
            Ok(attached) => {
                let (device, local, tos) = {
                    let mut inner = id.inner();
                    inner.groups.push(Group { address: self.group, attached });
                    (inner.device, inner.source.map(|s| s.ip()), inner.tos)
                };
                let ah_attr = device.map_or_else(ibv_ah_attr::default, |d| way(d, local, self.group, tos));
                let qp_num = Qpn::MULTICAST.value();
                let param = rdma_ud_param { private_data: context, ah_attr, qp_num, qkey: RDMA_UDP_QKEY, ..no_ud() };
                event(MULTICAST_JOIN, 0).with_context(param)
            }
        }
    }
}

/// The way to a group; one hop, unless it is routed further.
fn way(device: &CmDevice, local: Option<IpAddr>, group: IpAddr, tos: u8) -> ibv_ah_attr {
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

fn join_group(id: &Id, address: *const libc::sockaddr, listens: bool, context: *mut c_void) -> Result<(), Errno> {
    // SAFETY: the program's address is as long as its family says.
    let group = unsafe { addresses::read(address) }?.ip().to_canonical();
    let _bound = id.device()?;
    if id.space != PortSpace::Udp || !group.is_multicast() {
        return Err(Errno::EINVAL);
    }
    if id.inner().groups.iter().any(|g| g.address == group) {
        return Err(Errno(libc::EADDRINUSE));
    }
    let joined = Joined { group, listens, context: context.expose_provenance() };
    id.shared.push(What::Multicast(Box::new(joined)));
    id.complete()
}

/// `rdma_join_multicast`.
pub(crate) extern "C" fn join(id: &Id, address: *const libc::sockaddr, context: *mut c_void) -> c_int {
    minus_one(|| join_group(id, address, true, context))
}

/// `rdma_join_multicast_ex`.
pub(crate) extern "C" fn join_ex(id: &Id, attr: &rdma_cm_join_mc_attr_ex, context: *mut c_void) -> c_int {
    const ADDRESS_AND_FLAGS: u32 = 3;
    minus_one(|| match (attr.comp_mask, attr.join_flags) {
        (ADDRESS_AND_FLAGS, FULL_MEMBER) => join_group(id, attr.addr, true, context),
        (ADDRESS_AND_FLAGS, SEND_ONLY) => join_group(id, attr.addr, false, context),
        _ => Err(Errno::EINVAL),
    })
}

/// `rdma_leave_multicast`.
pub(crate) extern "C" fn leave(id: &Id, address: *const libc::sockaddr) -> c_int {
    minus_one(|| {
        // SAFETY: the program's address is as long as its family says.
        let group = unsafe { addresses::read(address) }?.ip().to_canonical();
        let mut left = {
            let mut inner = id.inner();
            let place = inner.groups.iter().position(|g| g.address == group);
            inner.groups.remove(place.ok_or(Errno(libc::EADDRNOTAVAIL))?)
        };
        left.detach(id);
        Ok(())
    })
}
