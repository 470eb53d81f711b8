//! Queue pairs.

mod connection;
mod multicast;
mod posting;
mod protection;

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

pub use connection::Connection;
pub use multicast::MulticastError;
pub use protection::{Protection, QpFailover};
use softnic_nic as nic;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{RecvRules, Secret, SendRules};
use softnic_nic::{ModifyError, ObjectError, QpAttr, QpInit, QpKind};
use softnic_sync::ring::{Producer, ring};
use softnic_wire::Qpn;

use super::Transport;
use super::allowance::Permit;
use super::completion_queue::CompletionQueue;
use super::congestion::{Cc, LATE};
use super::context::ProtectionDomain;
use super::shared_receive_queue::SharedReceiveQueue;
use crate::engine::{Engine, PostedRecv, PostedSend, Target, WorkQueue};
use crate::failover::list::Shadow;

/// The attributes of a new queue pair.
#[derive(Debug, Clone)]
pub struct QpOptions {
    /// Its transport.
    pub kind: QpKind,
    /// Where sends complete.
    pub send_cq: CompletionQueue,
    /// Where receives complete.
    pub recv_cq: CompletionQueue,
    /// The shared queue that its receives come from, instead of one of its own.
    pub srq: Option<SharedReceiveQueue>,
    /// How much it holds.
    pub caps: Caps,
    /// Every send is signaled.
    pub sig_all: bool,
    /// The transport, one of the queue pair's kind. A queue pair of another kind than RC has that of the standard where this is of another kind.
    pub transport: Transport,
    /// Congestion control of an RC or UC queue pair; datagrams leave as fast as they can.
    pub cc: Cc,
    /// The secret by which an RC queue pair authenticates every packet of its peer: a peer without it is refused.
    pub auth: Option<Secret>,
}

impl QpOptions {
    /// One completion queue for both, room for 128 work requests each way with one element, no inline data, all sends signaled,
    /// the standard's recovery from loss.
    pub fn new(kind: QpKind, cq: &CompletionQueue) -> QpOptions {
        let caps = Caps { max_send_wr: 128, max_recv_wr: 128, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        QpOptions {
            kind,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            caps,
            sig_all: true,
            transport: Transport::default(),
            cc: Cc::Window,
            auth: None,
        }
    }
}

/// A queue pair. It is destroyed when the last clone goes.
#[derive(Clone)]
pub struct QueuePair(Arc<Pair>);

struct Pair {
    pd: ProtectionDomain,
    engine: Arc<Engine>,
    /// Its queue of work requests at the engine.
    index: u32,
    qpn: Qpn,
    options: QpOptions,
    send_rules: SendRules,
    recv_rules: RecvRules,
    sends: Mutex<Producer<PostedSend>>,
    recvs: Mutex<Producer<PostedRecv>>,
    /// Whether sends and receives may be posted, as of the last change of its state by the program.
    posts: AtomicU8,
    groups: Mutex<Vec<(IpAddr, multicast::Membership)>>,
    _permit: Option<Permit>,
}

const SENDS: u8 = 1;
const RECEIVES: u8 = 2;
/// The peer is known to have agreed to the transport, since the last change of state.
const AGREED: u8 = 4;

impl Drop for Pair {
    fn drop(&mut self) {
        let mut core = self.engine.control();
        // What was posted is not lost: programs destroy a queue pair right behind a datagram that nobody acknowledges.
        core.take_work_of(self.index);
        self.engine.settle(&mut core, Some(self.qpn));
        core.remove_work(self.index);
        // It exists: nobody else destroys it.
        let _ = core.dual().destroy_qp(self.qpn);
        core.pass_requests();
    }
}

impl ProtectionDomain {
    /// Makes a queue pair.
    ///
    /// # Errors
    /// When it asks for more than there can be, an RC queue pair for a transport of another kind, or one of another kind for authentication.
    pub fn create_qp(&self, options: &QpOptions) -> Result<QueuePair, ObjectError> {
        let context = self.inner();
        // Shared receives are at one engine, and so are those who take from them; QP1 is where everybody looks for it.
        let engine = match &options.srq {
            Some(srq) => srq.engine(),
            None if options.kind == QpKind::Gsi => &context.engines()[0],
            None => context.pick_engine(),
        };
        let QpOptions { kind, send_cq, recv_cq, srq, caps, sig_all, transport, cc, auth } = options;
        let usual = QpInit::new(*kind, self.id(), send_cq.id(), recv_cq.id(), *caps);
        let transport = match *kind {
            QpKind::Rc if transport.kind() != QpKind::Rc => return Err(ObjectError::WrongTransport),
            // One whose kind has other transports is what it is; XP is there for RC and UC.
            kind => transport.for_kind(kind),
        };
        let init = QpInit {
            srq: srq.as_ref().map(SharedReceiveQueue::engine_id),
            sig_all: *sig_all,
            prompt_acks: send_cq.has_channel() || recv_cq.has_channel(),
            limit_flight: cc.limits_flight(),
            transport,
            ..usual
        };
        // QP1 is the connection manager's, and is there anyway.
        let permit = context.queue_pairs.take();
        if permit.is_none() && *kind != QpKind::Gsi {
            return Err(ObjectError::NoNumbers);
        }
        let mut core = engine.control();
        let qpn = core.dual().create_qp(&init)?;
        if kind.is_connected() {
            core.nic().set_congestion_control(qpn, cc.make(context.rate, LATE))?;
            // Other transports have none, and a program of several kinds of queue pairs goes on with those.
            if let credit @ Some(_) = cc.credit(LATE).filter(|_| cc.is_for(transport)) {
                core.nic().use_credit(qpn, credit)?;
            }
        }
        if let Some(Err(error)) = auth.as_ref().map(|secret| core.nic().authenticate(qpn, secret)) {
            let _ = core.dual().destroy_qp(qpn);
            return Err(error);
        }
        let (send_rules, recv_rules) = core.nic().rules(qpn).ok_or(ObjectError::NoSuchQp)?;
        let (sends, sends_out) = ring(caps.max_send_wr as usize);
        let (recvs, recvs_out) = ring(caps.max_recv_wr as usize);
        let cqs = Some((send_cq.id(), recv_cq.id()));
        let queue = WorkQueue {
            target: Target::Qp(qpn),
            connection: core.dual().connection(qpn),
            sends: sends_out,
            recvs: recvs_out,
            cqs,
        };
        let Some(index) = core.add_work(queue) else {
            let _ = core.dual().destroy_qp(qpn);
            return Err(ObjectError::NoNumbers);
        };
        drop(core);
        Ok(QueuePair(Arc::new(Pair {
            pd: self.clone(),
            engine: Arc::clone(engine),
            index,
            qpn,
            options: QpOptions { transport, ..options.clone() },
            send_rules,
            recv_rules,
            sends: Mutex::new(sends),
            recvs: Mutex::new(recvs),
            posts: AtomicU8::new(0),
            groups: Mutex::default(),
            _permit: permit.filter(|_| *kind != QpKind::Gsi),
        })))
    }
}

impl QueuePair {
    /// The transport that it was made with; [`QueuePair::choice`] says whether the peer has it.
    pub fn transport(&self) -> Transport {
        self.0.options.transport
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.0.qpn
    }

    /// The state it is in.
    pub fn state(&self) -> QpState {
        self.0.engine.control().dual().qp_state(self.0.qpn).unwrap_or(QpState::Reset)
    }

    /// All attributes that were set.
    pub fn query(&self) -> QpAttr {
        // With a backup the attributes may be those of an earlier state.
        let known = self.0.engine.control().dual().query_qp(self.0.qpn);
        known.map(|(state, attr)| QpAttr { state: Some(state), ..attr }).unwrap_or_default()
    }

    /// What its requests are sent by, where Selective Repeat or LoWAR was wished for; `None` for others. A peer that has it answers within a
    /// round trip, and so does one that knows nothing of it; one that says nothing is waited for. What is posted meanwhile waits.
    pub fn choice(&self) -> Option<Choice> {
        self.0.engine.control().nic().choice(self.0.qpn)
    }

    /// Every packet is authenticated from now on by this secret, and a peer without it is refused: before it becomes ready to receive.
    ///
    /// # Errors
    /// When it is no RC queue pair, or connected already.
    pub fn authenticate(&self, secret: &Secret) -> Result<(), ObjectError> {
        self.0.engine.control().nic().authenticate(self.0.qpn, secret)
    }

    /// Changes its state and attributes.
    ///
    /// # Errors
    /// When the transition does not exist, or lacks or forbids an attribute.
    pub fn modify(&self, attr: &QpAttr) -> Result<(), ModifyError> {
        self.change(attr).map(|_| ())
    }

    /// [`QueuePair::modify`] for whoever keeps the state: the state that it is in now.
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn change(&self, attr: &QpAttr) -> Result<QpState, ModifyError> {
        let mut core = self.0.engine.control();
        // What was posted before was posted in the old state.
        core.take_work_of(self.0.index);
        if matches!(attr.state, Some(QpState::Reset | QpState::Error)) {
            self.0.engine.settle(&mut core, Some(self.0.qpn));
        }
        let (now, before) = (core.driver.now(), core.nic().qp_state(self.0.qpn));
        core.dual().modify_qp(now, self.0.qpn, attr)?;
        let state = core.dual().qp_state(self.0.qpn);
        let posts = match state {
            None | Some(QpState::Reset) => {
                core.forget_work_of(self.0.index);
                for cq in [&self.0.options.send_cq, &self.0.options.recv_cq] {
                    cq.forget(&self.0.engine, &mut core, self.0.qpn);
                }
                0
            }
            Some(QpState::Init | QpState::ReadyToReceive) => RECEIVES,
            Some(_) => SENDS | RECEIVES,
        };
        self.0.posts.store(posts, Ordering::Release);
        // The peer is told what this side speaks, though no work is posted and nobody polls.
        let tells = attr.state == Some(QpState::ReadyToReceive) && core.nic().negotiates(self.0.qpn);
        // What is flushed need not wait until a frame comes in.
        core.hand_out();
        drop(core);
        if tells {
            // Not before: whoever is woken wants the token.
            self.0.engine.wake();
        }
        // From then on, and not once more when it is ready to send: one that only answers may stay as it is.
        if state == Some(QpState::ReadyToReceive)
            && before != state
            && self.0.options.kind != QpKind::Gsi
            && let Some(control) = self.0.pd.inner().control()
        {
            let engines = self.0.pd.inner().engines();
            if let Some(engine) = engines.iter().position(|engine| Arc::ptr_eq(engine, &self.0.engine)) {
                control.record(Shadow::Protect { engine, qpn: self.0.qpn });
            }
        }
        Ok(state.unwrap_or(QpState::Reset))
    }

    /// A send failed, though not on the wire: a fault of the device is played. The queue pair goes to the state that follows, in which the
    /// other sends are flushed: one of a reliable connection to the error state, another to that of its send queue.
    ///
    /// # Errors
    /// When it does not send.
    pub fn fail_sends(&self) -> Result<(), ModifyError> {
        if self.0.options.kind == QpKind::Rc {
            return self.modify(&QpAttr { state: Some(QpState::Error), ..QpAttr::default() });
        }
        let mut core = self.0.engine.control();
        core.take_work_of(self.0.index);
        core.nic().fail_sends(self.0.qpn)?;
        core.hand_out();
        Ok(())
    }

    /// From RESET to INIT: receives may be posted.
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn init(&self, access: Access) -> Result<(), ModifyError> {
        let [init, ..] = nic::Connection { access, ..nic::Connection::default() }.attributes(self.0.options.kind);
        self.modify(&init)
    }

    /// From RESET or INIT to RTS, connected to a peer.
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn connect(&self, c: &Connection) -> Result<(), ModifyError> {
        if self.state() == QpState::Reset {
            self.init(c.access)?;
        }
        let port = self.0.engine.control().nic().port().clone();
        let path = c.path.attr.path(&port).map_err(|_| ModifyError::NotOurAddress)?;
        let [_, receive, send] = c.settings(path).attributes(self.0.options.kind);
        self.modify(&receive)?;
        self.modify(&send)
    }

    /// From RESET to RTS, for datagrams with this key.
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn open_datagrams(&self, qkey: u32) -> Result<(), ModifyError> {
        let settings = nic::Connection { qkey: Some(qkey), ..nic::Connection::default() };
        settings.attributes(self.0.options.kind).iter().try_for_each(|attr| self.modify(attr))
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:?}, {:#08x})", self.0.options.kind, self.0.qpn.value())
    }
}
