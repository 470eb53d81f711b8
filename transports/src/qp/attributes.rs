//! Attributes of queue pairs: those that a program sets, and those that a transport gets with each state change.

use softnic_wire::aeth::RnrTimer;
use softnic_wire::{Path, PathMtu, Psn, Qpn, Template};

use super::QpState;
use crate::memory::Access;

/// The attributes of a state change. Each transition requires some and permits some (IBA 11.2.5.2, table 91).
#[derive(Debug, Clone, Copy, Default)]
pub struct QpAttr {
    /// The new state.
    pub state: Option<QpState>,
    /// Index of the partition key.
    pub pkey_index: Option<u16>,
    /// Port, from 1.
    pub port: Option<u8>,
    /// Access rights granted to the peer.
    pub access: Option<Access>,
    /// The path to the peer.
    pub path: Option<Path>,
    /// Maximum payload of a packet.
    pub mtu: Option<PathMtu>,
    /// The peer's queue pair number.
    pub dest_qp: Option<Qpn>,
    /// The first PSN that the peer sends.
    pub rq_psn: Option<Psn>,
    /// Maximum number of outstanding READs and atomics from the peer.
    pub max_dest_rd_atomic: Option<u8>,
    /// The time that a peer waits after it found no receive here: a 5-bit code.
    pub min_rnr_timer: Option<u8>,
    /// The first PSN to send.
    pub sq_psn: Option<Psn>,
    /// Local ACK timeout: a 5-bit code, 0 for none.
    pub timeout: Option<u8>,
    /// Retries after timeouts and sequence NAKs, 3 bits.
    pub retry_cnt: Option<u8>,
    /// Retries after RNR NAKs, 3 bits; 7 is unlimited.
    pub rnr_retry: Option<u8>,
    /// Maximum number of outstanding READs and atomics to the peer.
    pub max_rd_atomic: Option<u8>,
    /// The key that datagrams to this queue pair must carry.
    pub qkey: Option<u32>,
    /// To SQD: an event is requested when the send queue is drained.
    pub sqd_notify: Option<bool>,
}

impl QpAttr {
    /// Takes over all attributes set in `a`, and keeps the others.
    pub fn merge(&mut self, a: &QpAttr) {
        macro_rules! take {
            ($($field:ident)*) => { $(self.$field = a.$field.or(self.$field);)* };
        }
        take!(state pkey_index port access path mtu dest_qp rq_psn max_dest_rd_atomic min_rnr_timer sq_psn timeout);
        take!(retry_cnt rnr_retry max_rd_atomic qkey);
    }

    /// The attributes that a connected queue pair needs to receive.
    pub(crate) fn receive_attr(&self, pkey: u16) -> Result<ReceiveAttr, ModifyError> {
        let (Some(path), Some(mtu), Some(dest_qp), Some(rq_psn)) = (self.path, self.mtu, self.dest_qp, self.rq_psn)
        else {
            return Err(ModifyError::Missing("path"));
        };
        Ok(ReceiveAttr {
            path,
            dest_qp,
            mtu,
            rq_psn,
            access: self.access.unwrap_or_default(),
            min_rnr_timer: RnrTimer(self.min_rnr_timer.unwrap_or(0)),
            max_dest_rd_atomic: self.max_dest_rd_atomic.unwrap_or(0),
            pkey,
        })
    }

    /// The attributes that a queue pair needs to send. The rules ensure that a reliable connection has all of them.
    pub(crate) fn send_attr(&self) -> Result<SendAttr, ModifyError> {
        Ok(SendAttr {
            sq_psn: self.sq_psn.ok_or(ModifyError::Missing("sq_psn"))?,
            timeout: self.timeout.unwrap_or(0),
            retry_cnt: self.retry_cnt.unwrap_or(0),
            rnr_retry: self.rnr_retry.unwrap_or(0),
            max_rd_atomic: self.max_rd_atomic.unwrap_or(0),
        })
    }

    /// Those of the given attributes that may change at any time.
    pub(crate) fn update(&self, template: Option<Template>) -> Update {
        Update {
            access: self.access,
            min_rnr_timer: self.min_rnr_timer.map(RnrTimer),
            template,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: self.max_rd_atomic,
            qkey: self.qkey,
        }
    }
}

/// Why a state change was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ModifyError {
    /// There is no such queue pair.
    #[error("no such queue pair")]
    NoSuchQp,
    /// There is no transition between these states.
    #[error("a queue pair cannot go from {from:?} to {to:?}")]
    Transition {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// The transition requires an attribute.
    #[error("the transition needs {0}")]
    Missing(&'static str),
    /// The transition does not permit an attribute.
    #[error("the transition does not take {0}")]
    NotAllowed(&'static str),
    /// The value of an attribute is not valid.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// The path MTU exceeds that of the port.
    #[error("a path MTU of {asked} is more than the port's {port}")]
    PathMtu {
        /// The requested path MTU.
        asked: u32,
        /// The MTU of the port.
        port: u32,
    },
    /// The link cannot carry packets of the path MTU with the trailer of authentication.
    #[error("authenticated packets of this path MTU need a link MTU of {needed}, and the link has {link}")]
    LinkMtu {
        /// The MTU that the link needs.
        needed: u32,
        /// The MTU of the link.
        link: u32,
    },
    /// The path's source is not an address of this port.
    #[error("the path's source is not an address of this port")]
    NotOurAddress,
    /// The send queue is not drained yet.
    #[error("the send queue is not drained yet")]
    NotDrained,
}

/// The attributes that a connected queue pair needs to receive (IBA 11.2.5.2, INIT to RTR).
#[derive(Debug, Clone, Copy)]
pub struct ReceiveAttr {
    /// The path to the peer.
    pub path: Path,
    /// The peer's queue pair number.
    pub dest_qp: Qpn,
    /// Maximum payload of a packet.
    pub mtu: PathMtu,
    /// The first PSN that the peer sends.
    pub rq_psn: Psn,
    /// Access rights granted to the peer.
    pub access: Access,
    /// The time that a peer waits after it found no receive here.
    pub min_rnr_timer: RnrTimer,
    /// Maximum number of outstanding READs and atomics from the peer.
    pub max_dest_rd_atomic: u8,
    /// The partition key.
    pub pkey: u16,
}

/// The attributes that a queue pair needs to send (IBA 11.2.5.2, RTR to RTS). Services without acknowledgements need only the PSN.
#[derive(Debug, Clone, Copy)]
pub struct SendAttr {
    /// The first PSN to send.
    pub sq_psn: Psn,
    /// Local ACK timeout code: 4.096 µs · 2^n, 0 for none.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs; 7 means seven.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs; 7 is unlimited.
    pub rnr_retry: u8,
    /// Maximum number of outstanding READs and atomics.
    pub max_rd_atomic: u8,
}

/// The attributes that may change while connected; `None` leaves an attribute unchanged.
#[derive(Debug, Clone, Copy, Default)]
pub struct Update {
    /// Access rights granted to the peer.
    pub access: Option<Access>,
    /// The time that a peer waits after it found no receive here.
    pub min_rnr_timer: Option<RnrTimer>,
    /// Another path to the same peer.
    pub template: Option<Template>,
    /// Local ACK timeout code.
    pub timeout: Option<u8>,
    /// Retries after timeouts and sequence NAKs.
    pub retry_cnt: Option<u8>,
    /// Retries after RNR NAKs.
    pub rnr_retry: Option<u8>,
    /// Maximum number of outstanding READs and atomics.
    pub max_rd_atomic: Option<u8>,
    /// The key that datagrams to this queue pair must carry.
    pub qkey: Option<u32>,
}
