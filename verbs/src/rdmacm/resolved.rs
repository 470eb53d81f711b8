//! Stores the resolved addresses and the route in the id, when the program takes the event.

use softnic_runtime::api::cm::Route;

use super::id::{Id, Stage};
use super::pending::Resolved;
use crate::abi::*;

/// The program takes the event that its address is resolved.
pub(crate) fn address_is_known(id: &Id, found: Resolved) {
    let Resolved { device, source, destination, port } = found;
    {
        let mut inner = id.inner();
        (inner.stage, inner.device) = (Stage::AddressResolved, Some(device));
        (inner.source, inner.destination) = (Some(source), Some(destination));
        let route = Route { traffic_class: inner.tos, ..Route::new(source.ip(), destination.ip()) };
        inner.route = Some(route);
        if port.is_some() {
            inner.port = port;
        }
    }
    id.show_device(device);
    id.show_addresses(Some(source), Some(destination));
}

/// Selector for "exactly this value", for MTU, rate and packet life time.
const EXACTLY: u8 = 2;
/// 0.27 s, as in Linux.
const PACKET_LIFE_TIME: u8 = 16;
/// IBV_RATE_10_GBPS.
const RATE: u8 = 3;

/// The program takes the event that its route is resolved.
pub(crate) fn route_is_known(id: &Id, mtu: u8) {
    let tos = {
        let mut inner = id.inner();
        inner.stage = Stage::RouteResolved;
        inner.mtu = mtu;
        inner.tos
    };
    let base = id.as_c();
    // SAFETY: the id is alive; the field is NULL, or a value created here earlier.
    unsafe {
        let addresses = &(*base).route.addr.addr;
        let path = ibv_sa_path_rec {
            dgid: addresses.dgid,
            sgid: addresses.sgid,
            traffic_class: tos,
            hop_limit: 64,
            reversible: 1,
            numb_path: 1,
            pkey: 0xffff,
            mtu_selector: EXACTLY,
            mtu,
            rate_selector: EXACTLY,
            rate: RATE,
            packet_life_time_selector: EXACTLY,
            packet_life_time: PACKET_LIFE_TIME,
            ..ibv_sa_path_rec::default()
        };
        let old = std::mem::replace(&mut (*base).route.path_rec, Box::into_raw(Box::new(path)));
        (*base).route.num_paths = 1;
        if !old.is_null() {
            drop(Box::from_raw(old));
        }
    }
}
