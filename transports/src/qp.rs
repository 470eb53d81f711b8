//! The trait of a queue pair: what every transport offers to the NIC, from its creation to its end.

mod attributes;
mod rules;

pub use attributes::{ModifyError, QpAttr, ReceiveAttr, SendAttr, Update};
pub use rules::check_rules;

use std::time::Duration;

use softnic_wire::opcode::Service;
use softnic_wire::{ExtHeaders, Instant, MacAddr, Psn, Qpn, TxFrame, bth, grh};

use crate::completion::CqId;
use crate::congestion::{CongestionControl, EqdsConfig};
use crate::memory::PdId;
use crate::negotiation::{Choice, NegotiationOutcome};
use crate::outstanding::{OutstandingRecvs, OutstandingSends, RecvsKept};
use crate::posting::{RecvRules, SendRules};
use crate::recv_queue::SrqId;
use crate::wr::AhId;
use crate::{Host, PostError, RecvWr, SendWr, Vitals};

/// The kinds of queue pairs that a program can ask for.
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
    pub const fn service(self) -> Service {
        match self {
            QpKind::Rc => Service::Rc,
            QpKind::Uc => Service::Uc,
            QpKind::Ud | QpKind::Gsi => Service::Ud,
        }
    }

    /// Whether it has one peer, not one for each work request.
    pub const fn is_connected(self) -> bool {
        matches!(self, QpKind::Rc | QpKind::Uc)
    }
}

/// Queue pair states (IBA 10.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Made, and nothing more.
    Reset,
    /// Receives may be posted.
    Init,
    /// Receives packets.
    ReadyToReceive,
    /// Sends too.
    ReadyToSend,
    /// Begins no further send: what was begun is finished (SQD).
    SendQueueDrain,
    /// A send failed and the rest is flushed, but receiving goes on (SQE); only without reliability.
    SendQueueError,
    /// All work is flushed.
    Error,
}

impl QpState {
    /// Whether packets are received.
    #[inline]
    pub const fn receives(self) -> bool {
        use QpState::*;
        matches!(self, ReadyToReceive | ReadyToSend | SendQueueDrain | SendQueueError)
    }

    /// The name of the state, as `ibv_devinfo` and its kin write it.
    pub const fn name(self) -> &'static str {
        match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::ReadyToReceive => "RTR",
            QpState::ReadyToSend => "RTS",
            QpState::SendQueueDrain => "SQD",
            QpState::SendQueueError => "SQE",
            QpState::Error => "ERR",
        }
    }

    /// Whether packets are sent.
    #[inline]
    pub const fn sends(self) -> bool {
        matches!(self, QpState::ReadyToSend | QpState::SendQueueDrain)
    }
}

/// How much a queue pair holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Send work requests outstanding.
    pub max_send_wr: u32,
    /// Receives posted.
    pub max_recv_wr: u32,
    /// Elements of a send.
    pub max_send_sge: u32,
    /// Elements of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
}

/// A shared receive queue, as a queue pair knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedReceives {
    /// Which it is.
    pub id: SrqId,
    /// Its protection domain: that of the memory that its receives name (IBA 10.2.9).
    pub pd: PdId,
    /// What its receives are like.
    pub rules: RecvRules,
}

/// What a queue pair is made with.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Its number.
    pub qpn: Qpn,
    /// Its protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// Receives complete in a sink: WRITEs with immediate need no receive.
    pub recv_sink: bool,
    /// The shared queue that receives come from.
    pub srq: Option<SharedReceives>,
    /// How much it holds.
    pub caps: Caps,
    /// Every send is signaled.
    pub sig_all: bool,
    /// Acknowledgements go at once, and before any request: for programs that sleep until an event comes.
    pub prompt_acks: bool,
    /// Packets outstanding on a reliable connection with Go-Back-N, or on one of best effort, are limited to what a receiver in software has room for.
    pub limit_flight: bool,
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
    /// A reliable connection that runs out of retries halts, with its work in place, instead of flushing it.
    pub halt_on_retry_exceeded: bool,
}

/// A packet for a queue pair: headers read, ICRC right, sender and partition checked.
#[derive(Debug, Clone, Copy)]
pub struct Inbound<'a> {
    /// Base transport header.
    pub bth: bth::Repr,
    /// Extension headers.
    pub ext: &'a ExtHeaders,
    /// The payload; empty where the simulator elided it.
    pub payload: &'a [u8],
    /// Bytes of payload, elided or not.
    pub payload_len: u32,
    /// The network header, as a datagram's receiver gets it, and the MAC address that the frame came from; `None` for other services,
    /// which do not look at them.
    pub grh: Option<(&'a [u8; grh::LEN], MacAddr)>,
    /// The network marked congestion.
    pub ecn_ce: bool,
}

/// Packets and bytes that the simulator can leave out because nobody looks at them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PayloadMode {
    /// Payload is copied and covered by the ICRC.
    #[default]
    Real,
    /// Frames carry headers only; lengths are those of whole packets.
    Elided,
}

/// The link and the peer as far as they are known when a connected queue pair becomes ready to receive.
#[derive(Debug, Clone, Copy)]
pub struct PathProps {
    /// Partition key of its packets.
    pub pkey: u16,
    /// The MTU of the link; `None` where it carries packets of any length.
    pub link_mtu: Option<u32>,
    /// The rate of the link in bits a second.
    pub link_rate: u64,
    /// The port of the NIC by which packets leave and come.
    pub port: usize,
    /// The peer's address has never answered an offer of extensions.
    pub known_silent: bool,
    /// The round trip to the peer, as far as somebody measured it; else zero.
    pub known_rtt: Duration,
    /// Drawn for the negotiation of an authenticated connection; zeros for others.
    pub nonce: [u8; 16],
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
}

/// As a number of retries in [`Update`]: they are not counted. No program can ask for it.
pub const RETRY_FOREVER: u8 = u8::MAX;

/// The PSNs that a queue pair expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpectedPsns {
    /// Of the peer's next request; `None` where PSNs say nothing.
    pub request: Option<Psn>,
    /// Of the next READ response or value of an atomic; `None` while none is owed.
    pub response: Option<Psn>,
}

/// The PSNs of the packets that come next, as far as all before them was sent or has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextPsns {
    /// Of our next new request; 0 before the queue pair is ready to send.
    pub send: Psn,
    /// Of the request that is expected of the peer.
    pub receive: Psn,
}

/// The transport of a queue pair has no congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this transport has no congestion control")]
pub struct NoCongestionControl;

/// A queue pair of some transport.
///
/// The NIC moves it through its states by the rules of the IBTA and calls `poll_transmit` until it says `false`, again after each
/// `handle_*` and each doorbell; and `handle_timeout` when the time of `poll_timeout` has come. Nothing here assumes that packets
/// have one sequence of PSNs. A transport implements the methods without a body; the others have one for transports that lack
/// the feature they are about.
pub trait QueuePair {
    /// What its send work requests must be like.
    fn send_rules(&self) -> &SendRules;

    /// What its receive work requests must be like.
    fn recv_rules(&self) -> &RecvRules;

    /// The number by which the peer knows it.
    fn qpn(&self) -> Qpn;

    /// The state it is in. A queue pair goes to [`QpState::Error`] by itself when it must.
    fn state(&self) -> QpState;

    // ---- life cycle ----

    /// To the reset state: all work is forgotten.
    fn reset(&mut self);

    /// RESET to INIT.
    fn init(&mut self);

    /// INIT to RTR. `connection` is there for connected queue pairs.
    fn ready_to_receive(&mut self, connection: Option<&ReceiveAttr>, props: &PathProps);

    /// RTR to RTS.
    fn ready_to_send(&mut self, a: &SendAttr);

    /// RTS to SQD: what was begun is finished, nothing else begins. With `notify` an event says when that is done.
    fn drain(&mut self, notify: bool, host: &mut impl Host);

    /// SQD or SQE to RTS.
    fn resume(&mut self);

    /// Whether nothing that was sent is unanswered and no message is half sent.
    fn is_drained(&mut self) -> bool;

    /// Changes what may change while connected.
    fn update(&mut self, u: &Update);

    /// Goes to the error state and flushes all work, because the program asked for it.
    fn fail(&mut self, host: &mut impl Host);

    // ---- work and packets ----

    /// Writes a send work request that keeps to [`QueuePair::send_rules`] into the queue. Nothing happens before
    /// [`QueuePair::ring_doorbell`].
    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError>;

    /// Publishes the send work requests written so far.
    fn ring_doorbell(&mut self, now: Instant, host: &mut impl Host);

    /// Posts a receive that keeps to [`QueuePair::recv_rules`].
    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError>;

    /// Takes a packet. Says whether there may be something to send after it, or a timer that moved.
    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool;

    /// Writes the next frame, if there is one to send now.
    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool;

    /// When [`QueuePair::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host);

    // ---- what not every transport has ----

    /// Whether it takes packets of an extension's service, beside those of its kind.
    #[inline]
    fn takes(&self, _: Service) -> bool {
        false
    }

    /// Whether it still listens although it is in the error state.
    #[inline]
    fn owes_answers(&self) -> bool {
        false
    }

    /// Where the datagram goes that it sends next.
    #[inline]
    fn next_address(&self) -> Option<AhId> {
        None
    }

    /// What is sent waits for credit of the peer, and what the peer sends for ours, where the peer agrees to it. Before the queue pair is
    /// connected.
    fn use_credit(&mut self, _: Option<EqdsConfig>) -> Result<(), NoCongestionControl> {
        Err(NoCongestionControl)
    }

    /// Whether it offers its peer credit.
    fn offers_credit(&self) -> bool {
        false
    }

    /// How the negotiation stands, for whoever offers credit beside another extension or none; before [`QueuePair::on_negotiation`].
    fn on_credit_negotiation(&mut self, _: Option<&NegotiationOutcome>) {}

    /// Puts a congestion controller in charge of what is sent.
    fn set_congestion_control(&mut self, _: Option<Box<dyn CongestionControl>>) -> Result<(), NoCongestionControl> {
        Err(NoCongestionControl)
    }

    /// An acknowledgement that waits for the program's reply goes with the next packet: no reply will come.
    fn release_ack(&mut self) {}

    /// How the negotiation with the peer stands, from RTR on and whenever it may have moved; `None` while the peer has not answered.
    /// `rtt` is the round trip that it measured.
    fn on_negotiation(&mut self, _: Option<&NegotiationOutcome>, _: Option<Duration>) {}

    /// What its requests are sent by, where that does not follow from the negotiation alone.
    fn choice(&self) -> Option<Choice> {
        None
    }

    /// The sends that have not completed, oldest first: what is in place where a reliable connection halted.
    fn outstanding_sends(&self) -> Option<OutstandingSends<'_>> {
        None
    }

    /// The receives that were posted to it and are not used up, oldest first; `None` where they come from a shared
    /// queue.
    fn outstanding_recvs(&self) -> Option<OutstandingRecvs<'_>> {
        None
    }

    /// Withdraws these receives without completing them: each goes to `take`, oldest first. How many there were.
    fn take_recvs(&mut self, _take: impl FnMut(&RecvWr<'_>)) -> Result<u32, RecvsKept> {
        Err(RecvsKept::NotOwn)
    }

    /// The PSNs of the packets that come next, from RTR on, whatever became of it since.
    fn next_psns(&self) -> Option<NextPsns> {
        None
    }

    /// The next messages, so many, each ask for an acknowledgement where they end: their owner waits for the completions.
    fn hasten_acks(&mut self, messages: u8) {
        let _ = messages;
    }

    /// Halts: goes to the error state with all work in place, because its owner asked for it. [`QueuePair::fail`]
    /// flushes it then. `false` where it is not connected, or its work is flushed already.
    fn halt(&mut self) -> bool {
        false
    }

    /// Goes to the state in which sends are flushed, as after one of them failed. `false` where its service has no such state, or it does not
    /// send.
    fn fail_sends(&mut self, host: &mut impl Host) -> bool {
        let _ = host;
        false
    }

    /// Whether it has halted: its work is in place and no more is taken.
    fn is_halted(&self) -> bool {
        false
    }

    /// How it stands, for whoever watches it.
    fn vitals(&self) -> Vitals {
        Vitals::default()
    }

    /// The PSNs that it expects next, for a shim below it.
    fn expected_psns(&self) -> ExpectedPsns {
        ExpectedPsns::default()
    }

    /// A frame of the shim below it leaves: congestion control counts it.
    fn on_shim_sent(&mut self, _: Instant, _: &TxFrame<'_>) {}

    /// A frame of the shim below it came, with the mark of congestion.
    fn on_shim_marked(&mut self, _: Instant) {}

    /// Hints that what it sends next will be wanted soon.
    #[inline]
    fn prefetch_work(&self) {}
}

/// The earlier one of two times, where there is one.
#[inline]
pub fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
