//! Queue pairs as the control plane sees them: what they are made with, and the rules of their states.

mod rules;

use std::net::IpAddr;

use rules::check_rules;
use softnic_transports::completion::CqId;
use softnic_transports::lowar::{self, Code, Lowar};
use softnic_transports::memory::{Access, PdId};
use softnic_transports::negotiation::{Agreement, Choice, Offer, Why};
use softnic_transports::qp::{Caps, Config, PayloadMode, QpState};
use softnic_transports::rc::{self, Rc, SendAttr, Update};
use softnic_transports::recv_queue::SrqId;
use softnic_transports::shim::Shim;
use softnic_transports::sr::{Sr, SrConfig};
use softnic_transports::uc::{self, Uc};
use softnic_transports::ud::{QKEY_GSI, Ud};
use softnic_transports::{Host, QueuePair};
use softnic_wire::aeth::RnrTimer;
use softnic_wire::mad::vendor::{Extensions, Negotiation};
use softnic_wire::opcode::Service;
use softnic_wire::{Path, PathMtu, Psn, Qpn, Template, bth};

use crate::table::Generator;

/// What kind of queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum QpKind {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// QP1, for management datagrams; a NIC has one at most.
    Gsi,
}

impl QpKind {
    /// The service that its packets belong to.
    pub(crate) fn service(self) -> Service {
        match self {
            QpKind::Rc => Service::Rc,
            QpKind::Uc => Service::Uc,
            QpKind::Ud | QpKind::Gsi => Service::Ud,
        }
    }
}

/// What a queue pair is made with.
#[derive(Debug, Clone, Copy)]
pub struct QpInit {
    /// What kind it is.
    pub kind: QpKind,
    /// Its protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// The shared queue that its receives come from, instead of one of its own.
    pub srq: Option<SrqId>,
    /// How much it holds.
    pub caps: Caps,
    /// Every send is signaled.
    pub sig_all: bool,
    /// Nothing goes ahead of an acknowledgement, and none waits: for programs that sleep until an event comes.
    pub prompt_acks: bool,
    /// Selective Repeat is offered to the peer; for reliable connections.
    pub sr: Option<SrConfig>,
    /// LoWAR is offered to the peer; for reliable connections without Selective Repeat.
    pub lowar: Option<Code>,
    /// A reliable connection that runs out of retries halts, with its work in place, instead of flushing it ([`Event::QpHalted`]).
    ///
    /// [`Event::QpHalted`]: softnic_transports::Event::QpHalted
    pub halt_on_retry_exceeded: bool,
}

impl QpInit {
    /// With receives of its own, and sends signaled one by one.
    pub fn new(kind: QpKind, pd: PdId, send_cq: CqId, recv_cq: CqId, caps: Caps) -> QpInit {
        QpInit {
            kind,
            pd,
            send_cq,
            recv_cq,
            srq: None,
            caps,
            sig_all: false,
            prompt_acks: false,
            sr: None,
            lowar: None,
            halt_on_retry_exceeded: false,
        }
    }
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
    /// The key that datagrams to here must carry.
    pub qkey: Option<u32>,
    /// On the way to SQD: an event is wanted when the send queue is drained.
    pub sqd_notify: Option<bool>,
}

impl QpAttr {
    /// All that is given in `a`, and the rest as it was.
    fn merge(&mut self, a: &QpAttr) {
        macro_rules! take {
            ($($field:ident)*) => { $(self.$field = a.$field.or(self.$field);)* };
        }
        take!(state pkey_index port access path mtu dest_qp rq_psn max_dest_rd_atomic min_rnr_timer sq_psn timeout);
        take!(retry_cnt rnr_retry max_rd_atomic qkey);
    }
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
    /// The path MTU is more than the port carries.
    #[error("a path MTU of {asked} is more than the port's {port}")]
    PathMtu {
        /// What was asked for.
        asked: u32,
        /// What the port carries.
        port: u32,
    },
    /// The path does not begin at an address of this port.
    #[error("the path's source is not an address of this port")]
    NotOurAddress,
    /// The send queue is not drained yet.
    #[error("the send queue is not drained yet")]
    NotDrained,
}

/// A queue pair of any transport.
pub(crate) enum AnyQp {
    Rc(Box<Rc>),
    Sr(Box<Sr>),
    Uc(Box<Uc>),
    Ud(Box<Ud>),
}

impl AnyQp {
    /// Whether it still listens although it is in error.
    pub(crate) fn owes_answers(&self) -> bool {
        matches!(self, AnyQp::Sr(qp) if qp.owes_answers())
    }
}

/// Calls the same method on whichever transport it is.
macro_rules! each {
    ($any:expr, $qp:ident => $call:expr) => {
        match $any {
            $crate::qp::AnyQp::Rc($qp) => $call,
            $crate::qp::AnyQp::Sr($qp) => $call,
            $crate::qp::AnyQp::Uc($qp) => $call,
            $crate::qp::AnyQp::Ud($qp) => $call,
        }
    };
}
pub(crate) use each;

/// What a queue pair's way out is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// The peer has never answered an offer.
    pub(crate) silent: bool,
    /// The MTU of the link; `None` where it carries anything.
    pub(crate) mtu: Option<u32>,
    pub(crate) payload: PayloadMode,
}

/// A queue pair in its slot.
pub(crate) struct Slot {
    pub(crate) qp: AnyQp,
    pub(crate) init: QpInit,
    /// All attributes that were set.
    pub(crate) attr: QpAttr,
    /// The peer's address once connected; packets from elsewhere are dropped. Datagrams come from anywhere.
    pub(crate) peer: Option<IpAddr>,
    /// The port of the Node by which a connection's frames leave.
    pub(crate) port: usize,
    pub(crate) pkey: u16,
    /// The port in whose list of those that may have something to send it waits.
    pub(crate) queued: Option<usize>,
    /// Bytes that it sent beyond its last turn.
    pub(crate) debt: u32,
    /// What is between it and its frames.
    pub(crate) shim: Option<Box<dyn Shim>>,
    /// The shim, or what is agreed on about it, may have something to send.
    pub(crate) shim_due: bool,
    /// What it agrees on with its peer about the shim.
    pub(crate) agreement: Option<Box<Agreement>>,
    /// The peer offers extensions, which this queue pair does not take: to be refused.
    pub(crate) offer: Option<Box<(IpAddr, Negotiation)>>,
    /// The program was told that the peer speaks no extension.
    pub(crate) fell_back: bool,
}

impl Slot {
    /// A queue pair in the reset state; datagrams are at most `mtu` long. `random` is for what nobody shall guess.
    pub(crate) fn new(init: &QpInit, config: &Config, mtu: PathMtu, random: &mut dyn Generator) -> Slot {
        let ud = || Box::new(Ud::new(config, mtu));
        // The number is in the transaction id, so that an answer finds its queue pair.
        let mut transaction_id = || {
            let unguessable = u64::from(random.next_u32()) << 32 | u64::from(random.next_u32() & 0xff) << 24;
            unguessable | u64::from(config.qpn.value())
        };
        let mut agreement = None;
        let qp = match (init.kind, init.sr) {
            (QpKind::Rc, Some(sr)) => {
                let mut sr = Sr::new(config, sr, transaction_id());
                if init.prompt_acks {
                    sr.set_prompt_acks();
                }
                AnyQp::Sr(Box::new(sr))
            }
            (QpKind::Rc, None) => {
                let mut rc = Rc::new(config);
                if init.prompt_acks {
                    rc.set_prompt_acks();
                }
                if init.lowar.is_some() {
                    agreement = Some(Box::new(Agreement::new(config.qpn, transaction_id())));
                }
                AnyQp::Rc(Box::new(rc))
            }
            (QpKind::Uc, _) => AnyQp::Uc(Box::new(Uc::new(config))),
            (QpKind::Ud, _) => AnyQp::Ud(ud()),
            (QpKind::Gsi, _) => {
                let mut gsi = ud();
                gsi.set_qkey(QKEY_GSI);
                AnyQp::Ud(gsi)
            }
        };
        let attr = QpAttr::default();
        let pkey = bth::DEFAULT_PKEY;
        Slot {
            qp,
            init: *init,
            attr,
            peer: None,
            port: 0,
            pkey,
            queued: None,
            debt: 0,
            shim: None,
            shim_due: false,
            agreement,
            offer: None,
            fell_back: false,
        }
    }

    /// Changes state by the rules. A change that is refused changes nothing. What the shim was lent is given back before.
    pub(crate) fn modify(&mut self, a: &QpAttr, line: Line, host: &mut impl Host) -> Result<(), ModifyError> {
        use QpState::*;
        let from = each!(&self.qp, qp => qp.state());
        let to = a.state.unwrap_or(from);
        check_rules(self.init.kind, from, to, a)?;
        if (from, to) == (SendQueueDrain, SendQueueDrain) && !each!(&mut self.qp, qp => qp.is_drained()) {
            return Err(ModifyError::NotDrained);
        }
        self.attr.merge(a);
        match (from, to) {
            (_, Reset) => {
                each!(&mut self.qp, qp => qp.reset());
                (self.peer, self.attr, self.shim, self.offer) = (None, QpAttr::default(), None, None);
                self.fell_back = false;
                if let Some(agreement) = &mut self.agreement {
                    agreement.reset();
                }
            }
            (_, Error) => each!(&mut self.qp, qp => qp.fail(host)),
            (_, Init) => each!(&mut self.qp, qp => qp.init()),
            (Init, ReadyToReceive) => self.ready_to_receive(line)?,
            (ReadyToReceive, ReadyToSend) => self.ready_to_send()?,
            (ReadyToSend, SendQueueDrain) => {
                each!(&mut self.qp, qp => qp.drain(a.sqd_notify.unwrap_or(false), host));
            }
            (SendQueueDrain | SendQueueError, ReadyToSend) => each!(&mut self.qp, qp => qp.resume()),
            _ => {}
        }
        self.update(a);
        Ok(())
    }

    fn ready_to_receive(&mut self, line: Line) -> Result<(), ModifyError> {
        let a = &self.attr;
        let pkey = self.pkey;
        // Datagrams need none of these.
        let connection = || match (a.path, a.mtu, a.dest_qp, a.rq_psn) {
            (Some(path), Some(mtu), Some(dest_qp), Some(rq_psn)) => Ok((path, mtu, dest_qp, rq_psn)),
            _ => Err(ModifyError::Missing("path")),
        };
        let access = a.access.unwrap_or_default();
        match &mut self.qp {
            AnyQp::Rc(_) | AnyQp::Sr(_) => {
                let (path, mtu, dest_qp, rq_psn) = connection()?;
                let min_rnr_timer = RnrTimer(a.min_rnr_timer.unwrap_or(0));
                let max_dest_rd_atomic = a.max_dest_rd_atomic.unwrap_or(0);
                let attr =
                    rc::ReceiveAttr { path, dest_qp, mtu, rq_psn, access, min_rnr_timer, max_dest_rd_atomic, pkey };
                match &mut self.qp {
                    AnyQp::Sr(qp) => qp.ready_to_receive(&attr, line.silent),
                    AnyQp::Rc(qp) => qp.ready_to_receive(&attr),
                    _ => {}
                }
                self.peer = Some(path.addresses.dst());
                self.offer_lowar(path, mtu, dest_qp, line);
            }
            AnyQp::Uc(qp) => {
                let (path, mtu, dest_qp, rq_psn) = connection()?;
                qp.ready_to_receive(&uc::ReceiveAttr { path, dest_qp, mtu, rq_psn, access, pkey });
                self.peer = Some(path.addresses.dst());
            }
            AnyQp::Ud(qp) => qp.ready_to_receive(),
        }
        Ok(())
    }

    /// The negotiation of LoWAR begins, if it is wanted, and its shim is there for what the peer may send from now on.
    fn offer_lowar(&mut self, path: Path, mtu: PathMtu, dest_qp: Qpn, line: Line) {
        let (Some(code), Some(agreement)) = (self.init.lowar, &mut self.agreement) else { return };
        let peer = (path.addresses.dst(), dest_qp);
        let needed = lowar::link_mtu(mtu.bytes());
        if line.mtu.is_some_and(|mtu| mtu < needed) {
            agreement.refuse(Why::LinkMtu(needed), peer);
            self.follow_agreement();
            return;
        }
        let offer = Offer { extensions: Extensions::LOWAR, sr_window: 0, lowar: Some(code) };
        agreement.begin(offer, peer, line.silent);
        let template = Template::new(&path, dest_qp, self.pkey);
        self.shim = Some(Box::new(Lowar::new(code, &template, mtu.bytes() as usize, line.payload)));
        self.follow_agreement();
    }

    /// Follows the verdict about the shim: requests wait for it.
    pub(crate) fn follow_agreement(&mut self) {
        let (Some(agreement), AnyQp::Rc(qp)) = (&self.agreement, &mut self.qp) else { return };
        self.shim_due = true;
        qp.hold_requests(agreement.verdict().is_none() && agreement.negotiator().is_some());
        if let (Some(agreed), Some(shim)) = (agreement.agreed(Extensions::LOWAR), &mut self.shim) {
            shim.on_agreement(&agreed);
        }
    }

    /// What requests are sent by, where an extension is offered.
    pub(crate) fn choice(&self) -> Option<Choice> {
        match (&self.qp, &self.agreement) {
            (AnyQp::Sr(qp), _) => Some(qp.choice()),
            (_, Some(agreement)) => Some(agreement.choice(Extensions::LOWAR)),
            _ => None,
        }
    }

    /// Why the standard is spoken, where an extension was offered.
    pub(crate) fn fell_back_because(&self) -> Option<Why> {
        match (&self.qp, &self.agreement) {
            (AnyQp::Sr(qp), _) => qp.fell_back(),
            (_, Some(agreement)) => agreement.fell_back(Extensions::LOWAR),
            _ => None,
        }
    }

    fn ready_to_send(&mut self) -> Result<(), ModifyError> {
        let a = &self.attr;
        let sq_psn = a.sq_psn.ok_or(ModifyError::Missing("sq_psn"))?;
        match &mut self.qp {
            AnyQp::Rc(_) | AnyQp::Sr(_) => {
                let (Some(timeout), Some(retry_cnt), Some(rnr_retry)) = (a.timeout, a.retry_cnt, a.rnr_retry) else {
                    return Err(ModifyError::Missing("timeout"));
                };
                let max_rd_atomic = a.max_rd_atomic.unwrap_or(0);
                let attr = SendAttr { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic };
                match &mut self.qp {
                    AnyQp::Sr(qp) => qp.ready_to_send(&attr),
                    AnyQp::Rc(qp) => qp.ready_to_send(&attr),
                    _ => {}
                }
            }
            AnyQp::Uc(qp) => qp.ready_to_send(sq_psn),
            AnyQp::Ud(qp) => qp.ready_to_send(sq_psn),
        }
        Ok(())
    }

    /// Passes on what was given and may change at any time.
    fn update(&mut self, a: &QpAttr) {
        let template = match (a.path, self.attr.dest_qp) {
            (Some(path), Some(dest_qp)) => {
                self.peer = Some(path.addresses.dst());
                let template = Template::new(&path, dest_qp, self.pkey);
                if let Some(shim) = &mut self.shim {
                    shim.set_template(&template);
                }
                Some(template)
            }
            _ => None,
        };
        let update = Update {
            access: a.access,
            min_rnr_timer: a.min_rnr_timer.map(RnrTimer),
            template,
            timeout: a.timeout,
            retry_cnt: a.retry_cnt,
            rnr_retry: a.rnr_retry,
            max_rd_atomic: a.max_rd_atomic,
        };
        match &mut self.qp {
            AnyQp::Rc(qp) => qp.update(&update),
            AnyQp::Sr(qp) => qp.update(&update),
            AnyQp::Uc(qp) => qp.update(a.access, template),
            AnyQp::Ud(qp) => {
                if let Some(qkey) = a.qkey {
                    qp.set_qkey(qkey);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    /// What a queue pair takes beside its queues; docs/performance.md has the figures of release builds.
    #[test]
    fn the_state_of_a_queue_pair_stays_small() {
        let sizes = [size_of::<Slot>(), size_of::<Rc>(), size_of::<Uc>(), size_of::<Ud>()];
        assert!(sizes.iter().zip([296, 688, 464, 260]).all(|(&size, limit)| size <= limit), "{sizes:?}");
    }
}
