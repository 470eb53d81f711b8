//! Addresses: the path to a peer in verbs form, address handles, multicast groups.

use softnic_runtime::api::{AddressAttr, AddressHandle, Grh, MacAddr, MulticastError, Path, PeerPath};

use crate::abi::*;
use crate::c_result::{minus_one, pointer, status};
use crate::errno::Errno;
use crate::gid::{address_of, gid_of};
use crate::objects::context::{Context, ContextPtr};
use crate::objects::domain::Pd;
use crate::objects::handle::{self, Object, ObjectKind, Pointer};
use crate::objects::nic::Nic;
use crate::objects::queue_pair::Qp;

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    base: ibv_ah,
    pub(crate) handle: AddressHandle,
    pd: &'static Pd,
}

/// The path to a peer; waits until its MAC address is known. `entropy` distinguishes flows.
fn path(context: &Context, attr: &ibv_ah_attr, entropy: u32) -> Result<(PeerPath, Path), Errno> {
    path_by(context.nic(), attr, None, entropy)
}

/// The path of a queue pair to that of a peer. If the peer requested the connection, its MAC address is that of the request, without a
/// wait.
pub(crate) fn connected_path(
    context: &Context,
    attr: &ibv_ah_attr,
    dest_qpn: Option<u32>,
    entropy: u32,
) -> Result<(PeerPath, Path), Errno> {
    let nic = context.nic();
    let mac = dest_qpn.and_then(|qpn| nic.requesters.mac_of(address_of(&attr.grh.dgid), qpn));
    path_by(nic, attr, mac, entropy)
}

fn path_by(nic: &Nic, attr: &ibv_ah_attr, mac: Option<MacAddr>, entropy: u32) -> Result<(PeerPath, Path), Errno> {
    // RoCE has no LIDs: without a GRH there is no destination.
    if attr.is_global == 0 || attr.port_num > 1 {
        return Err(Errno::EINVAL);
    }
    let grh = &attr.grh;
    let runtime = &nic.runtime;
    let (index, peer) = (grh.sgid_index.into(), address_of(&grh.dgid));
    let found = match mac {
        Some(mac) => runtime.path_answering(index, peer, mac, entropy)?,
        None => runtime.path_from(index, peer, entropy)?,
    };
    let attr = AddressAttr {
        traffic_class: grh.traffic_class,
        hop_limit: grh.hop_limit,
        flow_label: grh.flow_label,
        ..found.attr
    };
    Ok((PeerPath { attr, ..found }, attr.path(&runtime.port())?))
}

impl Object for Ah {
    const KIND: ObjectKind = ObjectKind::Address;

    unsafe fn identity(this: *const Ah) -> (u32, *mut ibv_context) {
        // SAFETY: guaranteed by the contract.
        unsafe { ((*this).base.handle, (*this).base.context) }
    }
}

fn make(pd: &'static Pd, attr: &ibv_ah_attr) -> Result<Box<Ah>, Errno> {
    let (path, _) = path(&pd.context(), attr, 0)?;
    let handle = pd.ours.domain.create_ah(&path)?;
    pd.ours.users.add();
    let base = ibv_ah { context: pd.base.context, pd: pd.as_c(), handle: handle::next(Ah::KIND) };
    let ah = Box::new(Ah { base, handle, pd });
    handle::add(&*ah);
    Ok(ah)
}

/// `ibv_create_ah`.
pub(crate) extern "C" fn create(pd: Pointer<Pd>, attr: &ibv_ah_attr) -> *mut ibv_ah {
    pointer(|| make(pd.get()?, attr))
}

/// `ibv_destroy_ah`.
pub(crate) extern "C" fn destroy(ah: Pointer<Ah>) -> c_int {
    status(|| {
        ah.remove(|_| Ok(()))?;
        // SAFETY: `make` allocated this box, and the program does not use it any more.
        let ah = unsafe { Box::from_raw(ah.as_ptr()) };
        ah.pd.ours.users.remove();
        Ok(())
    })
}

/// The path back to the sender of a datagram.
fn back(context: &Context, port: u8, wc: &ibv_wc, grh: &ibv_grh) -> Result<ibv_ah_attr, Errno> {
    if port != 1 || wc.wc_flags & IBV_WC_GRH == 0 {
        return Err(Errno::EINVAL);
    }
    let parsed = Grh::parse(&grh.bytes).map_err(|_| Errno::EINVAL)?;
    let (source, destination) = parsed.addresses();
    let addresses = context.nic().runtime.addresses();
    // A datagram to a group is answered from the first address of the same IP version.
    let index = addresses.iter().position(|&a| a == destination);
    let index =
        index.or_else(|| addresses.iter().position(|a| a.is_ipv4() == source.is_ipv4())).ok_or(Errno::EINVAL)?;
    let route = ibv_global_route {
        dgid: gid_of(source),
        flow_label: 0,
        sgid_index: index as u8,
        hop_limit: 0xff,
        traffic_class: parsed.traffic_class(),
    };
    Ok(ibv_ah_attr { grh: route, is_global: 1, port_num: port, ..ibv_ah_attr::default() })
}

/// `ibv_init_ah_from_wc`.
pub(crate) extern "C" fn init_from_wc(
    context: ContextPtr<'_>,
    port: u8,
    wc: &ibv_wc,
    grh: &ibv_grh,
    attr: &mut ibv_ah_attr,
) -> c_int {
    minus_one(|| {
        context.check_process()?;
        *attr = back(&context, port, wc, grh)?;
        Ok(())
    })
}

/// `ibv_create_ah_from_wc`.
pub(crate) extern "C" fn create_from_wc(pd: Pointer<Pd>, wc: &ibv_wc, grh: &ibv_grh, port: u8) -> *mut ibv_ah {
    pointer(|| {
        let pd = pd.get()?;
        make(pd, &back(&pd.context(), port, wc, grh)?)
    })
}

/// `ibv_resolve_eth_l2_from_gid`: the next hop's MAC address, and its VLAN or 0xffff.
pub(crate) extern "C" fn resolve_l2(
    context: ContextPtr<'_>,
    attr: &ibv_ah_attr,
    mac: &mut [u8; 6],
    vid: Option<&mut u16>,
) -> c_int {
    status(|| {
        context.check_process()?;
        let (_, path) = path(&context, attr, 0)?;
        *mac = path.dst_mac.0;
        if let Some(vid) = vid {
            *vid = path.tags[0].map_or(0xffff, |tag| tag.id());
        }
        Ok(())
    })
}

/// `ibv_attach_mcast`.
pub(crate) extern "C" fn attach(qp: Pointer<Qp>, gid: &ibv_gid, _lid: u16) -> c_int {
    status(|| {
        let qp = qp.get()?;
        let group = address_of(gid);
        qp.ours.qp.attach_multicast(group).map_err(|e| match e {
            MulticastError::Object(e) => e.into(),
            MulticastError::Kernel(_) | MulticastError::Company(_) => Errno(libc::ENODEV),
            MulticastError::TooMany(_) => Errno(libc::ENOMEM),
        })?;
        qp.groups().insert(group);
        Ok(())
    })
}

/// `ibv_detach_mcast`.
pub(crate) extern "C" fn detach(qp: Pointer<Qp>, gid: &ibv_gid, _lid: u16) -> c_int {
    status(|| {
        let qp = qp.get()?;
        let group = address_of(gid);
        qp.ours.qp.detach_multicast(group)?;
        qp.groups().remove(&group);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use softnic_runtime::api::{DeviceSpec, OpenOptions};

    use super::*;
    use crate::objects::nic::Nics;

    #[test]
    fn a_queue_pair_is_moved_to_a_stranger_without_asking_for_its_mac_address() {
        let folder = std::env::temp_dir().join(format!("softnic-requester-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [nic, far] = ["nic", "far"].map(|end| folder.join(end));
        // No address is ever resolved on this link.
        let _silent = std::os::unix::net::UnixDatagram::bind(&far).unwrap();
        let spec: DeviceSpec = format!("dgram:{},{},ip=10.0.0.1", nic.display(), far.display()).parse().unwrap();
        let nics = Nics::open(&spec, &OpenOptions::default(), 0).unwrap();
        let nic = nics.get(0);
        let (stranger, mac) = (std::net::IpAddr::from([10, 1, 0, 1]), MacAddr([2, 0, 0, 0, 0, 99]));
        nic.requesters.note(stranger, 0x123, mac);
        let grh = ibv_global_route { dgid: gid_of(stranger), hop_limit: 64, ..ibv_ah_attr::default().grh };
        let attr = ibv_ah_attr { grh, is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
        let (_, path) = path_by(nic, &attr, nic.requesters.mac_of(stranger, 0x123), 1).expect("nobody is waited for");
        assert_eq!(path.dst_mac, mac);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
