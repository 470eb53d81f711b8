//! The trait of a queue pair: the interface of every transport to the NIC, from creation to destruction.

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

/// The kinds of queue pairs that a program can create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum QpKind {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// QP1, for management datagrams; a NIC has at most one.
    Gsi,
}

impl QpKind {
    /// The service of its packets.
    pub const fn service(self) -> Service {
        match self {
            QpKind::Rc => Service::Rc,
            QpKind::Uc => Service::Uc,
            QpKind::Ud | QpKind::Gsi => Service::Ud,
        }
    }

    /// Whether it has one peer, rather than one for each work request.
    pub const fn is_connected(self) -> bool {
        matches!(self, QpKind::Rc | QpKind::Uc)
    }
}

/// Queue pair states (IBA 10.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Newly created.
    Reset,
    /// Receives may be posted.
    Init,
    /// Receives packets.
    ReadyToReceive,
    /// Also sends packets.
    ReadyToSend,
    /// Starts no further send; started sends are finished (SQD).
    SendQueueDrain,
    /// A send failed and later sends are flushed, but receiving continues (SQE); only for unreliable services.
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

    /// The name of the state, as `ibv_devinfo` and similar tools print it.
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

/// The capacities of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Maximum number of outstanding send work requests.
    pub max_send_wr: u32,
    /// Maximum number of posted receives.
    pub max_recv_wr: u32,
    /// Maximum number of elements of a send.
    pub max_send_sge: u32,
    /// Maximum number of elements of a receive.
    pub max_recv_sge: u32,
    /// Maximum number of bytes of inline data.
    pub max_inline: u32,
}

/// A shared receive queue, as a queue pair sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedReceives {
    /// Its name.
    pub id: SrqId,
    /// Its protection domain, which is that of the memory of its receives (IBA 10.2.9).
    pub pd: PdId,
    /// The rules for its receives.
    pub rules: RecvRules,
}

/// The configuration of a new queue pair.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Its number.
    pub qpn: Qpn,
    /// Its protection domain.
    pub pd: PdId,
    /// The completion queue of sends.
    pub send_cq: CqId,
    /// The completion queue of receives.
    pub recv_cq: CqId,
    /// Receives complete in a sink, so WRITEs with immediate need no receive.
    pub recv_sink: bool,
    /// The shared receive queue, if receives come from one.
    pub srq: Option<SharedReceives>,
    /// Its capacities.
    pub caps: Caps,
    /// Every send is signaled.
    pub sig_all: bool,
    /// Acknowledgements are sent at once, and before any request: for programs that sleep until an event.
    pub prompt_acks: bool,
    /// The number of outstanding packets on a reliable connection with Go-Back-N, or on one of best effort, is limited to the buffer of a
    /// software receiver.
    pub limit_flight: bool,
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
    /// A reliable connection that runs out of retries halts, with its work in place, instead of flushing it.
    pub halt_on_retry_exceeded: bool,
}

/// A packet for a queue pair: headers parsed, ICRC valid, sender and partition checked.
#[derive(Debug, Clone, Copy)]
pub struct Inbound<'a> {
    /// Base transport header.
    pub bth: bth::Repr,
    /// Extension headers.
    pub ext: &'a ExtHeaders,
    /// The payload; empty if the simulator elided it.
    pub payload: &'a [u8],
    /// Length of the payload, elided or not.
    pub payload_len: u32,
    /// The network header, in the form that a datagram's receiver gets, and the source MAC address of the frame; `None` for other services,
    /// which do not use them.
    pub grh: Option<(&'a [u8; grh::LEN], MacAddr)>,
    /// The packet has a congestion mark of the network.
    pub ecn_ce: bool,
}

/// Whether frames carry their payload. The simulator can omit a payload that is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PayloadMode {
    /// Payload is copied and covered by the ICRC.
    #[default]
    Real,
    /// Frames carry headers only; lengths are those of whole packets.
    Elided,
}

/// The properties of the link and the peer that are known when a connected queue pair becomes ready to receive.
#[derive(Debug, Clone, Copy)]
pub struct PathProps {
    /// Partition key of its packets.
    pub pkey: u16,
    /// The MTU of the link; `None` if it carries packets of any length.
    pub link_mtu: Option<u32>,
    /// The rate of the link in bits per second.
    pub link_rate: u64,
    /// The port of the NIC for the queue pair's packets.
    pub port: usize,
    /// The peer's address has never answered an offer of extensions.
    pub known_silent: bool,
    /// The round-trip time to the peer if it was measured, else zero.
    pub known_rtt: Duration,
    /// Drawn for the negotiation of an authenticated connection; zeros for others.
    pub nonce: [u8; 16],
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
}

/// As the retry count in [`Update`]: retries are not counted. A program cannot set this value.
pub const RETRY_FOREVER: u8 = u8::MAX;

/// The PSNs that a queue pair expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpectedPsns {
    /// The PSN of the peer's next request; `None` if the PSN has no meaning.
    pub request: Option<Psn>,
    /// The PSN of the next READ response or atomic value; `None` while none is expected.
    pub response: Option<Psn>,
}

/// The PSNs that follow those of all packets sent or received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextPsns {
    /// The PSN of the next new request; 0 before the queue pair is ready to send.
    pub send: Psn,
    /// The expected PSN of the peer's requests.
    pub receive: Psn,
}

/// The transport of a queue pair has no congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this transport has no congestion control")]
pub struct NoCongestionControl;

/// A queue pair of some transport.
///
/// The NIC changes its state by the rules of the IBTA. It calls `poll_transmit` until that returns `false`, and again after each `handle_*`
/// call and each doorbell. It calls `handle_timeout` when the time of `poll_timeout` has passed. The trait does not assume that packets
/// have a single sequence of PSNs. A transport implements the methods without a body; the others have a default for transports without the
/// feature.
pub trait QueuePair {
    /// The rules for its send work requests.
    fn send_rules(&self) -> &SendRules;

    /// The rules for its receive work requests.
    fn recv_rules(&self) -> &RecvRules;

    /// The queue pair number.
    fn qpn(&self) -> Qpn;

    /// The current state. A queue pair enters [`QpState::Error`] by itself after an error.
    fn state(&self) -> QpState;

    // ---- life cycle ----

    /// Returns to the reset state: all work is dropped.
    fn reset(&mut self);

    /// RESET to INIT.
    fn init(&mut self);

    /// INIT to RTR. `connection` is present for connected queue pairs.
    fn ready_to_receive(&mut self, connection: Option<&ReceiveAttr>, props: &PathProps);

    /// RTR to RTS.
    fn ready_to_send(&mut self, a: &SendAttr);

    /// RTS to SQD: started sends are finished, no other is started. With `notify` an event is raised when that is done.
    fn drain(&mut self, notify: bool, host: &mut impl Host);

    /// SQD or SQE to RTS.
    fn resume(&mut self);

    /// Whether nothing is outstanding and no message is partly sent.
    fn is_drained(&mut self) -> bool;

    /// Changes the attributes that may change while connected.
    fn update(&mut self, u: &Update);

    /// Enters the error state and flushes all work, at the request of the program.
    fn fail(&mut self, host: &mut impl Host);

    // ---- work and packets ----

    /// Writes a send work request that follows [`QueuePair::send_rules`] into the queue. Nothing is sent before
    /// [`QueuePair::ring_doorbell`].
    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError>;

    /// Publishes the send work requests written so far.
    fn ring_doorbell(&mut self, now: Instant, host: &mut impl Host);

    /// Posts a receive that follows [`QueuePair::recv_rules`].
    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError>;

    /// Handles a packet. Returns whether there may be a frame to send now, or a changed timer.
    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool;

    /// Writes the next frame, if there is one to send now.
    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool;

    /// When to call [`QueuePair::handle_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;

    /// Handles a timeout.
    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host);

    // ---- what not every transport has ----

    /// Whether it accepts packets of an extension's service, besides those of its kind.
    #[inline]
    fn takes(&self, _: Service) -> bool {
        false
    }

    /// Whether it still handles packets although it is in the error state.
    #[inline]
    fn owes_answers(&self) -> bool {
        false
    }

    /// The address handle of the datagram that it sends next.
    #[inline]
    fn next_address(&self) -> Option<AhId> {
        None
    }

    /// Makes sends wait for credit of the peer, and grants credit for the peer's sends, if the peer agrees. Call this before the queue pair
    /// is connected.
    fn use_credit(&mut self, _: Option<EqdsConfig>) -> Result<(), NoCongestionControl> {
        Err(NoCongestionControl)
    }

    /// Whether it offers credit to its peer.
    fn offers_credit(&self) -> bool {
        false
    }

    /// Passes the state of the negotiation to a queue pair that offers credit, besides another extension or none; called before
    /// [`QueuePair::on_negotiation`].
    fn on_credit_negotiation(&mut self, _: Option<&NegotiationOutcome>) {}

    /// Sets the congestion controller for the sends.
    fn set_congestion_control(&mut self, _: Option<Box<dyn CongestionControl>>) -> Result<(), NoCongestionControl> {
        Err(NoCongestionControl)
    }

    /// An acknowledgement that waits for the program's reply is sent with the next packet, because no reply will follow.
    fn release_ack(&mut self) {}

    /// Passes the state of the negotiation with the peer, from RTR on and whenever it may have changed; `None` while the peer has not
    /// answered. `rtt` is the round-trip time that the negotiation measured.
    fn on_negotiation(&mut self, _: Option<&NegotiationOutcome>, _: Option<Duration>) {}

    /// The protocol of its requests, if that does not follow from the negotiation alone.
    fn choice(&self) -> Option<Choice> {
        None
    }

    /// The sends that have not completed, oldest first. After a reliable connection has halted, these are the sends left in place.
    fn outstanding_sends(&self) -> Option<OutstandingSends<'_>> {
        None
    }

    /// The posted receives that are not used up, oldest first; `None` if receives come from a shared queue.
    fn outstanding_recvs(&self) -> Option<OutstandingRecvs<'_>> {
        None
    }

    /// Withdraws these receives without completing them, and passes each to `take`, oldest first. Returns their number.
    fn take_recvs(&mut self, _take: impl FnMut(&RecvWr<'_>)) -> Result<u32, RecvsKept> {
        Err(RecvsKept::NotOwn)
    }

    /// The PSNs of the next packets, from RTR on, whatever the current state is.
    fn next_psns(&self) -> Option<NextPsns> {
        None
    }

    /// The next `messages` messages each request an acknowledgement in their last packet, because the owner waits for the completions.
    fn hasten_acks(&mut self, messages: u8) {
        let _ = messages;
    }

    /// Halts at the request of the owner: enters the error state with all work in place. [`QueuePair::fail`] then flushes the work. Returns
    /// `false` if the queue pair is not connected, or its work was already flushed.
    fn halt(&mut self) -> bool {
        false
    }

    /// Enters the state in which sends are flushed, as after a failed send. Returns `false` if its service has no such state, or if the
    /// queue pair does not send.
    fn fail_sends(&mut self, host: &mut impl Host) -> bool {
        let _ = host;
        false
    }

    /// Whether it has halted: its work is in place, and no more is accepted.
    fn is_halted(&self) -> bool {
        false
    }

    /// The state of the queue pair, for observers.
    fn vitals(&self) -> Vitals {
        Vitals::default()
    }

    /// The expected PSNs, for a shim below the queue pair.
    fn expected_psns(&self) -> ExpectedPsns {
        ExpectedPsns::default()
    }

    /// A frame of the shim below was sent: congestion control counts it.
    fn on_shim_sent(&mut self, _: Instant, _: &TxFrame<'_>) {}

    /// A marked frame of the shim below has arrived.
    fn on_shim_marked(&mut self, _: Instant) {}

    /// Prefetches the work that is sent next.
    #[inline]
    fn prefetch_work(&self) {}
}

/// The earlier of two times, if there is any.
#[inline]
pub fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
