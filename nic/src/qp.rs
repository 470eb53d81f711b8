//! Queue pairs as the control plane sees them: what they are made with, and the rules of their states.

use softnic_transports::completion::CqId;
use softnic_transports::memory::{Access, PdId};
use softnic_transports::qp::{PayloadMode, QpState};
use softnic_transports::rc::{self, Caps, Rc, ReceiveAttr, SendAttr};
use softnic_transports::recovery::GoBackN;
use softnic_transports::{Host, QueuePair};
use softnic_wire::aeth::RnrTimer;
use softnic_wire::{Path, PathMtu, Psn, Qpn, bth};

/// What a queue pair is made with.
#[derive(Debug, Clone, Copy)]
pub struct QpInit {
    /// Its protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// How much it holds.
    pub caps: Caps,
    /// Every send is signaled.
    pub sig_all: bool,
}

/// Attributes of a state change; each transition demands some and allows some (IBA 11.2.5.2, table 91).
#[derive(Debug, Clone, Copy, Default)]
pub struct QpAttr {
    /// The state to go to.
    pub state: Option<QpState>,
    /// Index of the partition key.
    pub pkey_index: Option<u16>,
    /// Port, from 1.
    pub port: Option<u8>,
    /// What the peer may do.
    pub access: Option<Access>,
    /// The way to the peer.
    pub path: Option<Path>,
    /// Bytes of payload a packet carries at most.
    pub mtu: Option<PathMtu>,
    /// The peer's queue pair.
    pub dest_qp: Option<Qpn>,
    /// The first PSN that the peer will send.
    pub rq_psn: Option<Psn>,
    /// READs and atomics of the peer that may be outstanding.
    pub max_dest_rd_atomic: Option<u8>,
    /// How long a peer shall wait that found no receive: a 5-bit code.
    pub min_rnr_timer: Option<u8>,
    /// The first PSN to send.
    pub sq_psn: Option<Psn>,
    /// Local ACK timeout: a 5-bit code, 0 for none.
    pub timeout: Option<u8>,
    /// Retries after timeouts and sequence NAKs, 3 bits.
    pub retry_cnt: Option<u8>,
    /// Retries after RNR NAKs, 3 bits; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// READs and atomics of ours that may be outstanding.
    pub max_rd_atomic: Option<u8>,
}

/// Why a state change was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ModifyError {
    /// There is no such queue pair.
    #[error("no such queue pair")]
    NoSuchQp,
    /// There is no way from the one state to the other.
    #[error("a queue pair cannot go from {from:?} to {to:?}")]
    Transition {
        /// The state it is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// The transition needs an attribute.
    #[error("the transition needs {0}")]
    Missing(&'static str),
    /// The transition does not allow an attribute.
    #[error("the transition does not take {0}")]
    NotAllowed(&'static str),
    /// An attribute's value cannot be.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// The path does not begin at an address of this port.
    #[error("the path's source is not an address of this port")]
    NotOurAddress,
}

/// A queue pair of any transport.
pub(crate) enum AnyQp {
    Rc(Box<Rc<GoBackN>>),
}

/// Calls the same method on whichever transport it is.
macro_rules! each {
    ($any:expr, $qp:ident => $call:expr) => {
        match $any {
            $crate::qp::AnyQp::Rc($qp) => $call,
        }
    };
}
pub(crate) use each;

/// A queue pair in its slot.
pub(crate) struct Slot {
    pub(crate) qp: AnyQp,
    pub(crate) init: QpInit,
    /// Attributes that later transitions fall back on.
    attr: QpAttr,
    /// The peer's address once connected; packets from elsewhere are dropped.
    pub(crate) peer: Option<std::net::IpAddr>,
    pub(crate) pkey: u16,
    /// It waits in the list of those that may have something to send.
    pub(crate) queued: bool,
    pub(crate) shim: Option<Box<dyn softnic_transports::shim::Shim>>,
}

/// The attributes by name, to say which are missing or too many.
fn given(a: &QpAttr) -> [(&'static str, bool); 14] {
    [
        ("pkey_index", a.pkey_index.is_some()),
        ("port", a.port.is_some()),
        ("access", a.access.is_some()),
        ("path", a.path.is_some()),
        ("path_mtu", a.mtu.is_some()),
        ("dest_qp", a.dest_qp.is_some()),
        ("rq_psn", a.rq_psn.is_some()),
        ("max_dest_rd_atomic", a.max_dest_rd_atomic.is_some()),
        ("min_rnr_timer", a.min_rnr_timer.is_some()),
        ("sq_psn", a.sq_psn.is_some()),
        ("timeout", a.timeout.is_some()),
        ("retry_cnt", a.retry_cnt.is_some()),
        ("rnr_retry", a.rnr_retry.is_some()),
        ("max_rd_atomic", a.max_rd_atomic.is_some()),
    ]
}

/// Which attributes a transition of RC needs and which it allows besides.
type Rules = (&'static [&'static str], &'static [&'static str]);

fn rules(from: QpState, to: QpState) -> Option<Rules> {
    use QpState::*;
    Some(match (from, to) {
        (_, Reset | Error) => (&[], &[]),
        (Reset, Init) => (&["pkey_index", "port", "access"], &[]),
        (Init, Init) => (&[], &["pkey_index", "port", "access"]),
        (Init, ReadyToReceive) => (
            &["path", "path_mtu", "dest_qp", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"],
            &["access", "pkey_index"],
        ),
        (ReadyToReceive, ReadyToSend) => {
            (&["sq_psn", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic"], &["access", "min_rnr_timer"])
        }
        (ReadyToSend, ReadyToSend) => (&[], &["access", "min_rnr_timer"]),
        _ => return None,
    })
}

fn check_rules(from: QpState, to: QpState, a: &QpAttr) -> Result<(), ModifyError> {
    let (needed, optional) = rules(from, to).ok_or(ModifyError::Transition { from, to })?;
    for (name, there) in given(a) {
        if needed.contains(&name) && !there {
            return Err(ModifyError::Missing(name));
        }
        if there && !needed.contains(&name) && !optional.contains(&name) {
            return Err(ModifyError::NotAllowed(name));
        }
    }
    for (name, value, limit) in [
        ("timeout", a.timeout, 31),
        ("min_rnr_timer", a.min_rnr_timer, 31),
        ("retry_cnt", a.retry_cnt, 7),
        ("rnr_retry", a.rnr_retry, 7),
    ] {
        if value.is_some_and(|v| v > limit) {
            return Err(ModifyError::Range(name));
        }
    }
    match a {
        QpAttr { port: Some(p), .. } if *p != 1 => Err(ModifyError::Range("port")),
        QpAttr { pkey_index: Some(i), .. } if *i != 0 => Err(ModifyError::Range("pkey_index")),
        _ => Ok(()),
    }
}

impl Slot {
    pub(crate) fn new_rc(qpn: Qpn, init: &QpInit, payload: PayloadMode) -> Slot {
        let QpInit { pd, send_cq, recv_cq, caps, sig_all } = *init;
        let config = rc::Config { qpn, pd, send_cq, recv_cq, caps, sig_all, payload };
        Slot {
            qp: AnyQp::Rc(Box::new(Rc::new(&config))),
            init: *init,
            attr: QpAttr::default(),
            peer: None,
            pkey: bth::DEFAULT_PKEY,
            queued: false,
            shim: None,
        }
    }

    /// Changes state by the rules. A change that is refused changes nothing.
    pub(crate) fn modify(&mut self, a: &QpAttr, host: &mut impl Host) -> Result<(), ModifyError> {
        let AnyQp::Rc(qp) = &mut self.qp;
        let from = qp.state();
        let to = a.state.unwrap_or(from);
        check_rules(from, to, a)?;
        self.attr.access = a.access.or(self.attr.access);
        self.attr.min_rnr_timer = a.min_rnr_timer.or(self.attr.min_rnr_timer);
        match (from, to) {
            (_, QpState::Reset) => {
                qp.reset();
                (self.peer, self.attr, self.shim) = (None, QpAttr::default(), None);
            }
            (_, QpState::Error) => qp.fail(host),
            (_, QpState::Init) => qp.init(),
            (QpState::Init, QpState::ReadyToReceive) => {
                let (Some(path), Some(mtu), Some(dest_qp), Some(rq_psn)) = (a.path, a.mtu, a.dest_qp, a.rq_psn) else {
                    return Err(ModifyError::Missing("path"));
                };
                qp.ready_to_receive(&ReceiveAttr {
                    path,
                    dest_qp,
                    mtu,
                    rq_psn,
                    access: self.attr.access.unwrap_or_default(),
                    min_rnr_timer: RnrTimer(self.attr.min_rnr_timer.unwrap_or(0)),
                    max_dest_rd_atomic: a.max_dest_rd_atomic.unwrap_or(0),
                    pkey: self.pkey,
                });
                self.peer = Some(path.addresses.dst());
            }
            (QpState::ReadyToReceive, QpState::ReadyToSend) => {
                let (Some(sq_psn), Some(timeout), Some(retry_cnt), Some(rnr_retry)) =
                    (a.sq_psn, a.timeout, a.retry_cnt, a.rnr_retry)
                else {
                    return Err(ModifyError::Missing("sq_psn"));
                };
                let max_rd_atomic = a.max_rd_atomic.unwrap_or(0);
                qp.ready_to_send(&SendAttr { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic });
            }
            _ => {}
        }
        if matches!(to, QpState::ReadyToReceive | QpState::ReadyToSend) {
            let AnyQp::Rc(qp) = &mut self.qp;
            qp.update(self.attr.access, self.attr.min_rnr_timer.map(RnrTimer));
        }
        Ok(())
    }
}
