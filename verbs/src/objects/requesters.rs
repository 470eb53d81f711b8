//! The MAC addresses of peers that requested a connection: a queue pair that is connected to such a peer waits for no ARP or NDP answer.
//!
//! `ibv_qp_attr` has no field for a MAC address, so the address is stored here between `rdma_init_qp_attr` and `ibv_modify_qp`.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use softnic_runtime::api::MacAddr;

/// Maximum number of stored peers; the oldest one is replaced.
const MAX: usize = 256;

/// A peer: its address and its queue pair number.
type Requester = (IpAddr, u32);

#[derive(Default)]
pub(crate) struct Requesters(Mutex<VecDeque<(Requester, MacAddr)>>);

impl Requesters {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Requester, MacAddr)>> {
        self.0.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Records the source MAC address of a request for a connection to the queue pair `qpn`.
    pub(crate) fn note(&self, address: IpAddr, qpn: u32, mac: MacAddr) {
        let mut known = self.lock();
        known.retain(|(requester, _)| *requester != (address, qpn));
        known.truncate(MAX - 1);
        known.push_front(((address, qpn), mac));
    }

    /// The source MAC address of the peer's request.
    pub(crate) fn mac_of(&self, address: IpAddr, qpn: u32) -> Option<MacAddr> {
        self.lock().iter().find(|(requester, _)| *requester == (address, qpn)).map(|&(_, mac)| mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_for_the_queue_pair_that_asked_and_the_oldest_is_forgotten() {
        let requesters = Requesters::default();
        let address = IpAddr::from([10, 1, 0, 1]);
        let mac = |n: u32| MacAddr([2, 0, 0, 0, (n >> 8) as u8, n as u8]);
        (0..=MAX as u32).for_each(|n| requesters.note(address, n, mac(n)));
        assert_eq!(requesters.mac_of(address, 0), None);
        assert_eq!(requesters.mac_of(address, 1), Some(mac(1)));
        assert_eq!(requesters.mac_of([10, 1, 0, 2].into(), 1), None);
        requesters.note(address, 1, mac(7));
        assert_eq!(requesters.mac_of(address, 1), Some(mac(7)));
    }
}
