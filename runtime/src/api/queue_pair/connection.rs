//! How a queue pair is connected.

use softnic_nic as nic;
use softnic_nic::transports::memory::Access;
use softnic_wire::{Path, PathMtu, Psn, Qpn};

use crate::api::path::PeerPath;

/// How a connected queue pair reaches its peer: the usual values, to be changed where others are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Connection {
    /// The path to the peer.
    pub path: PeerPath,
    /// Bytes of payload a packet carries at most; both sides must say the same.
    pub mtu: PathMtu,
    /// The peer's queue pair.
    pub dest_qp: Qpn,
    /// The first PSN that the peer sends.
    pub rq_psn: Psn,
    /// The first PSN that we send.
    pub sq_psn: Psn,
    /// Access rights of the peer.
    pub access: Access,
    /// Local ACK timeout, 4.096 µs · 2^n.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs.
    pub retry_cnt: u8,
    /// Retries when the peer has no receive; 7 is for ever.
    pub rnr_retry: u8,
    /// How long the peer waits when we have no receive: a 5-bit code.
    pub min_rnr_timer: u8,
    /// READs and atomics of ours that may be outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer that may be.
    pub max_dest_rd_atomic: u8,
}

impl Connection {
    /// To the queue pair `dest_qp`. The PSNs must be told to the peer, as queue pair numbers and keys are.
    pub fn new(path: PeerPath, dest_qp: Qpn, rq_psn: Psn, sq_psn: Psn) -> Connection {
        Connection {
            path,
            mtu: path.mtu,
            dest_qp,
            rq_psn,
            sq_psn,
            access: Access::LOCAL_WRITE | Access::REMOTE,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
        }
    }

    /// The settings as the NIC takes them, with the path resolved.
    pub(in crate::api) fn settings(&self, path: Path) -> nic::Connection {
        nic::Connection {
            port: 1,
            path: Some(path),
            dest_qp: self.dest_qp,
            mtu: self.mtu,
            sq_psn: self.sq_psn,
            rq_psn: self.rq_psn,
            access: self.access,
            qkey: None,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            min_rnr_timer: self.min_rnr_timer,
            max_rd_atomic: self.max_rd_atomic,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
        }
    }
}
