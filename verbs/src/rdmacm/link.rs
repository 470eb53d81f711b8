//! The link of a connected queue pair: the attributes for communication with its peer, from the messages of both ends.

use softnic_runtime::api::Psn;
use softnic_runtime::api::cm::{Rep, Req, Route};
use softnic_runtime::{Generator, OsRandom};

use super::devices::CmDevice;
use crate::abi::*;
use crate::errno::Errno;
use crate::gid::gid_of;
use crate::limits::MAX_RD_ATOMIC;

/// The attributes for communication with the peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) route: Route,
    pub(crate) mtu: u8,
    pub(crate) dest_qpn: u32,
    pub(crate) rq_psn: Psn,
    pub(crate) sq_psn: Psn,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
}

fn random_psn() -> Result<Psn, Errno> {
    Ok(Psn::new(OsRandom::new()?.next_u32() & 0xff_ffff))
}

impl Link {
    /// The link of the active side; the remaining attributes are in the reply.
    pub(crate) fn asking(route: &Route, mtu: u8) -> Result<Link, Errno> {
        let (rq_psn, sq_psn) = (random_psn()?, Psn::new(0));
        Ok(Link {
            route: *route,
            mtu,
            dest_qpn: 0,
            rq_psn,
            sq_psn,
            timeout: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
        })
    }

    /// The link of the passive side.
    pub(crate) fn asked(route: &Route, request: &Req) -> Link {
        Link {
            route: *route,
            mtu: request.path_mtu.code(),
            dest_qpn: request.local_qpn,
            // If the system has no random numbers any more, any number is accepted: it only protects less from a peer's old packets.
            rq_psn: random_psn().unwrap_or(request.starting_psn),
            sq_psn: request.starting_psn,
            timeout: request.primary.local_ack_timeout.code(),
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            max_rd_atomic: request.responder_resources.min(MAX_RD_ATOMIC),
            max_dest_rd_atomic: request.initiator_depth.min(MAX_RD_ATOMIC),
        }
    }

    /// The peer accepts: adds the attributes in the reply.
    pub(crate) fn replied(&mut self, reply: &Rep) {
        (self.dest_qpn, self.sq_psn) = (reply.local_qpn, reply.starting_psn);
        self.rnr_retry_count = reply.rnr_retry_count;
        self.max_rd_atomic = reply.responder_resources.min(MAX_RD_ATOMIC);
        self.max_dest_rd_atomic = reply.initiator_depth.min(MAX_RD_ATOMIC);
    }
}

/// The path to a peer in verbs form.
pub(crate) fn way(device: &CmDevice, route: &Route) -> ibv_ah_attr {
    let grh = ibv_global_route {
        dgid: gid_of(route.remote),
        flow_label: 0,
        sgid_index: device.gid_index(route.local).unwrap_or(0) as u8,
        hop_limit: 64,
        traffic_class: route.traffic_class,
    };
    ibv_ah_attr { grh, is_global: 1, port_num: 1, ..ibv_ah_attr::default() }
}
