//! Queries of a device, its port and its tables.

use std::net::IpAddr;

use softnic_runtime::api::{DEFAULT_PKEY, MAX_INLINE, MAX_SGE, PathMtu};

use crate::abi::*;
use crate::c_result::{minus_one, status};
use crate::codes::mtu_code;
use crate::errno::Errno;
use crate::gid::gid_of;
use crate::limits::{MAX_CQE, MAX_QP_WR, MAX_RD_ATOMIC};
use crate::objects::context::{Context, ContextPtr};
use crate::objects::link_speed::LinkSpeed;

const MAX_OBJECTS: c_int = 1 << 16;
/// Maximum number of regions, and of windows: together a quarter of the available keys.
const MAX_KEYS: c_int = 1 << 19;
/// Maximum number of address handles.
const MAX_ADDRESSES: c_int = 1 << 18;
/// An OUI for the vendor, because programs expect one: a locally administered one, which belongs to no vendor.
const VENDOR_ID: u32 = 0x02_53_4e;
/// Minimum length of the GID table: like devices whose addresses change, this one has empty entries.
const GID_TABLE: usize = 16;
/// The capabilities of a port.
pub(crate) const PORT_CAPABILITIES: u32 = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
const _: () = assert!(MAX_INLINE >= 64 && MAX_SGE >= 4);

/// The lower of a limit of the device and a limit of the shared port.
fn at_most(shared: u32, limit: c_int) -> c_int {
    if shared == 0 { limit } else { limit.min(c_int::try_from(shared).unwrap_or(limit)) }
}

fn device_attr(context: &Context) -> ibv_device_attr {
    let limits = context.nic().runtime.limits();
    let guid = context.ours.device.guid.to_be();
    let mut fw_ver = [0; 64];
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    fw_ver[..version.len()].copy_from_slice(version);
    ibv_device_attr {
        fw_ver,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: i64::MAX as u64,
        // Any page size from 4 KiB on.
        page_size_cap: !0xfff,
        vendor_id: VENDOR_ID,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: at_most(limits.queue_pairs, MAX_OBJECTS),
        max_qp_wr: MAX_QP_WR as c_int,
        device_cap_flags: IBV_DEVICE_CURR_QP_STATE_MOD
            | IBV_DEVICE_PORT_ACTIVE_EVENT
            | IBV_DEVICE_SYS_IMAGE_GUID
            | IBV_DEVICE_RC_RNR_NAK_GEN
            | IBV_DEVICE_MEM_WINDOW
            | IBV_DEVICE_MEM_MGT_EXTENSIONS
            | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
        max_sge: MAX_SGE as c_int,
        max_sge_rd: MAX_SGE as c_int,
        max_cq: MAX_OBJECTS,
        max_cqe: MAX_CQE as c_int,
        max_mr: at_most(limits.regions, MAX_KEYS),
        max_pd: MAX_OBJECTS,
        max_qp_rd_atom: c_int::from(MAX_RD_ATOMIC),
        max_ee_rd_atom: 0,
        max_res_rd_atom: c_int::from(MAX_RD_ATOMIC) * MAX_OBJECTS,
        max_qp_init_rd_atom: c_int::from(MAX_RD_ATOMIC),
        max_ee_init_rd_atom: 0,
        // They are also atomic with respect to the processor; but UCX uses no atomics of a device that reports so.
        atomic_cap: IBV_ATOMIC_HCA,
        max_ee: 0,
        max_rdd: 0,
        max_mw: MAX_KEYS,
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 1 << 12,
        max_mcast_qp_attach: MAX_OBJECTS,
        max_total_mcast_qp_attach: MAX_OBJECTS,
        max_ah: MAX_ADDRESSES,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: MAX_OBJECTS,
        max_srq_wr: MAX_QP_WR as c_int,
        max_srq_sge: MAX_SGE as c_int,
        max_pkeys: 1,
        // 4.096 µs · 2^n: the maximum time until an answer.
        local_ca_ack_delay: 8,
        phys_port_cnt: 1,
    }
}

/// `ibv_query_device`.
pub(crate) extern "C" fn device(context: ContextPtr<'_>, attr: &mut ibv_device_attr) -> c_int {
    *attr = device_attr(&context);
    0
}

/// `ibv_query_device_ex`, for structs of any length.
pub(crate) extern "C" fn device_ex(context: ContextPtr<'_>, input: *const u32, out: *mut c_void, size: usize) -> c_int {
    // SAFETY: NULL, or a struct of which the mask is the first and only field.
    let asks = unsafe { input.as_ref() }.is_some_and(|&mask| mask != 0);
    if asks || size < size_of::<ibv_device_attr>() {
        return libc::EINVAL;
    }
    let orig_attr = device_attr(&context);
    let flags = u64::from(orig_attr.device_cap_flags);
    let attr = ibv_device_attr_ex {
        orig_attr,
        comp_mask: 0,
        odp_caps: [0; 3],
        completion_timestamp_mask: 0,
        hca_core_clock: 0,
        device_cap_flags_ex: flags,
        rest: [0; 27],
        phys_port_cnt_ex: 1,
    };
    // SAFETY: the program has a struct of `size` bytes.
    unsafe { put(&attr, out, size) };
    0
}

/// Copies the part of a struct that the program knows, and fills the rest with zeros.
///
/// # Safety
/// `out` has room for `size` bytes.
unsafe fn put<T: Copy>(value: &T, out: *mut c_void, size: usize) {
    let len = size.min(size_of::<T>());
    // SAFETY: guaranteed by the contract; a struct of plain numbers may be copied in part.
    unsafe {
        out.cast::<u8>().write_bytes(0, size);
        std::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), out.cast(), len);
    }
}

fn check_port(port: u32) -> Result<(), Errno> {
    if port == 1 { Ok(()) } else { Err(Errno::EINVAL) }
}

fn port_attr(context: &Context) -> ibv_port_attr {
    let runtime = &context.nic().runtime;
    let (port, up) = (runtime.port(), runtime.is_up());
    let LinkSpeed { width: active_width, speed: active_speed, .. } = context.ours.device.link_speed();
    ibv_port_attr {
        state: if up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN },
        max_mtu: mtu_code(PathMtu::B4096),
        active_mtu: mtu_code(port.mtu),
        gid_tbl_len: gid_table_len(&port.addresses) as c_int,
        port_cap_flags: PORT_CAPABILITIES,
        max_msg_sz: 1 << 31,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width,
        active_speed,
        // Link up, or disabled.
        phys_state: if up { 5 } else { 3 },
        link_layer: IBV_LINK_LAYER_ETHERNET,
        flags: IBV_QPF_GRH_REQUIRED,
        active_speed_ex: u32::from(active_speed),
        ..ibv_port_attr::default()
    }
}

/// `query_port` of the context, for structs of any length.
pub(crate) extern "C" fn port(context: ContextPtr<'_>, port: u8, out: *mut c_void, size: usize) -> c_int {
    status(|| {
        context.check_process()?;
        check_port(port.into())?;
        // SAFETY: the program has a struct of `size` bytes.
        unsafe { put(&port_attr(&context), out, size) };
        Ok(())
    })
}

/// `ibv_query_port`, for programs with the oldest struct.
pub(crate) extern "C" fn port_compat(context: ContextPtr<'_>, number: u8, out: *mut c_void) -> c_int {
    port(context, number, out, COMPAT_PORT_ATTR_SIZE)
}

/// The length of the GID table of a port with these addresses.
pub(crate) fn gid_table_len(addresses: &[IpAddr]) -> usize {
    addresses.len().max(GID_TABLE)
}

/// The address at an index of the GID table; `None` if the entry is empty.
fn address_at(context: &Context, port: u32, index: usize) -> Result<Option<IpAddr>, Errno> {
    context.ours.made_in.check()?;
    check_port(port)?;
    let addresses = context.nic().runtime.addresses();
    match index < gid_table_len(&addresses) {
        true => Ok(addresses.get(index).copied()),
        false => Err(Errno::EINVAL),
    }
}

/// `ibv_query_gid`: zeros if the entry is empty.
pub(crate) extern "C" fn gid(context: ContextPtr<'_>, port: u8, index: c_int, gid: &mut ibv_gid) -> c_int {
    minus_one(|| {
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        *gid = address_at(&context, port.into(), index)?.map_or(ibv_gid { raw: [0; 16] }, gid_of);
        Ok(())
    })
}

fn entry(context: &Context, index: usize, address: IpAddr) -> ibv_gid_entry {
    let interface = context.ours.device.interface();
    let index_of =
        |name: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?.trim().parse().ok();
    ibv_gid_entry {
        gid: gid_of(address),
        gid_index: index as u32,
        port_num: 1,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: interface.and_then(index_of).unwrap_or(0),
    }
}

/// `ibv_query_gid_ex`: ENODATA if the entry is empty.
pub(crate) extern "C" fn gid_ex(
    context: ContextPtr<'_>,
    port: u32,
    index: u32,
    out: *mut c_void,
    flags: u32,
    size: usize,
) -> c_int {
    status(|| {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let address = address_at(&context, port, index as usize)?.ok_or(Errno(libc::ENODATA))?;
        // SAFETY: the program has a struct of `size` bytes.
        unsafe { put(&entry(&context, index as usize, address), out, size) };
        Ok(())
    })
}

/// `ibv_query_gid_table`: the number of entries, or a negative errno.
pub(crate) extern "C" fn gid_table(
    context: ContextPtr<'_>,
    entries: *mut c_void,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 || size == 0 || context.check_process().is_err() {
        return -(libc::EINVAL as isize);
    }
    let addresses = context.nic().runtime.addresses();
    if addresses.len() > max {
        return -(libc::EINVAL as isize);
    }
    for (i, &address) in addresses.iter().enumerate() {
        // SAFETY: the program has `max` structs of `size` bytes, and `i` is less than `max`.
        unsafe { put(&entry(&context, i, address), entries.byte_add(i * size), size) };
    }
    addresses.len() as isize
}

/// `ibv_query_gid_type`, for drivers and UCX: all entries are RoCEv2. An empty entry has the other type, as in rdma-core.
pub(crate) extern "C" fn gid_type(context: ContextPtr<'_>, port: u8, index: c_uint, out: &mut u32) -> c_int {
    minus_one(|| {
        let address = address_at(&context, port.into(), index as usize)?;
        *out = address.map_or(IBV_GID_TYPE_SYSFS_IB_ROCE_V1, |_| IBV_GID_TYPE_SYSFS_ROCE_V2);
        Ok(())
    })
}

/// `ibv_query_pkey`: there is only the default key.
pub(crate) extern "C" fn pkey(_context: ContextPtr<'_>, port: u8, index: c_int, pkey: &mut u16) -> c_int {
    minus_one(|| {
        check_port(port.into())?;
        if index != 0 {
            return Err(Errno::EINVAL);
        }
        *pkey = DEFAULT_PKEY.to_be();
        Ok(())
    })
}

/// `ibv_get_pkey_index`, for a key in network byte order.
pub(crate) extern "C" fn pkey_index(_context: ContextPtr<'_>, port: u8, pkey: u16) -> c_int {
    match check_port(port.into()) {
        Ok(()) if u16::from_be(pkey) == DEFAULT_PKEY => 0,
        _ => {
            Errno::EINVAL.set();
            -1
        }
    }
}
