//! Reliable connection: requester and responder of one queue pair, with the loss recovery of its choice.

mod recv_queue;
mod requester;
mod responder;
mod send_queue;

use std::time::Duration;

use requester::{Limits, Requester};
use responder::Responder;
use softnic_wire::aeth::RnrTimer;
use softnic_wire::{Instant, Opcode, Path, PathMtu, Psn, Qpn, Template, TxFrame};

use crate::completion::CqId;
use crate::congestion::{CongestionControl, Feedback};
use crate::memory::{Access, PdId};
use crate::qp::PayloadMode;
use crate::recovery::LossRecovery;
use crate::{Host, Inbound, PostError, QpState, QueuePair, RecvWr, SendWr, Status};

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
    /// How much it holds.
    pub caps: Caps,
    /// Every send is signaled.
    pub sig_all: bool,
    /// Whether frames carry their payload.
    pub payload: PayloadMode,
}

/// What it needs to receive (IBA 11.2.5.2, INIT to RTR).
#[derive(Debug, Clone, Copy)]
pub struct ReceiveAttr {
    /// The way to the peer.
    pub path: Path,
    /// The peer's queue pair.
    pub dest_qp: Qpn,
    /// Bytes of payload a packet carries at most.
    pub mtu: PathMtu,
    /// The first PSN that the peer will send.
    pub rq_psn: Psn,
    /// What the peer may do here.
    pub access: Access,
    /// How long a peer shall wait that found no receive.
    pub min_rnr_timer: RnrTimer,
    /// READs and atomics of the peer that may be outstanding.
    pub max_dest_rd_atomic: u8,
    /// Partition.
    pub pkey: u16,
}

/// What it needs to send (IBA 11.2.5.2, RTR to RTS).
#[derive(Debug, Clone, Copy)]
pub struct SendAttr {
    /// The first PSN to send.
    pub sq_psn: Psn,
    /// Local ACK timeout code: 4.096 µs · 2^n, 0 for none.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs; 7 is seven.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs; 7 is for ever.
    pub rnr_retry: u8,
    /// READs and atomics that may be outstanding.
    pub max_rd_atomic: u8,
}

/// The local ACK timeout of a code (IBA 9.7.6.1.3): 4.096 µs · 2^code; 0 means that there is none.
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    match code & 0x1f {
        0 => None,
        n => Some(Duration::from_nanos(4096 << n)),
    }
}

/// A connection: what requester and responder both need to know.
#[derive(Debug, Clone, Copy)]
struct Link {
    qpn: Qpn,
    pd: PdId,
    template: Template,
    mtu: PathMtu,
    access: Access,
    payload: PayloadMode,
}

/// A queue pair of a reliable connection.
pub struct Rc<R> {
    qpn: Qpn,
    pd: PdId,
    payload: PayloadMode,
    state: QpState,
    link: Option<Link>,
    requester: Requester,
    responder: Responder,
    recovery: R,
}

impl<R: LossRecovery + Default> Rc<R> {
    /// In the reset state.
    pub fn new(c: &Config) -> Rc<R> {
        Rc {
            qpn: c.qpn,
            pd: c.pd,
            payload: c.payload,
            state: QpState::Reset,
            link: None,
            requester: Requester::new(&c.caps, c.send_cq, c.sig_all),
            responder: Responder::new(&c.caps, c.recv_cq),
            recovery: R::default(),
        }
    }

    /// To the reset state: all work is forgotten.
    pub fn reset(&mut self) {
        self.state = QpState::Reset;
        self.link = None;
        self.requester.reset();
        self.responder.queue.clear();
        self.recovery = R::default();
    }

    /// RESET to INIT.
    pub fn init(&mut self) {
        self.state = QpState::Init;
    }

    /// INIT to RTR.
    pub fn ready_to_receive(&mut self, a: &ReceiveAttr) {
        self.link = Some(Link {
            qpn: self.qpn,
            pd: self.pd,
            template: Template::new(&a.path, a.dest_qp, a.pkey),
            mtu: a.mtu,
            access: a.access,
            payload: self.payload,
        });
        self.responder.start(a.rq_psn, a.mtu, a.min_rnr_timer, a.max_dest_rd_atomic);
        self.state = QpState::ReadyToReceive;
    }

    /// RTR to RTS.
    pub fn ready_to_send(&mut self, a: &SendAttr) {
        let SendAttr { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic } = *a;
        self.requester.start(sq_psn, &Limits { timeout: ack_timeout(timeout), retry_cnt, rnr_retry, max_rd_atomic });
        self.state = QpState::ReadyToSend;
    }

    /// Changes what may change while connected.
    pub fn update(&mut self, access: Option<Access>, min_rnr_timer: Option<RnrTimer>) {
        if let (Some(link), Some(access)) = (&mut self.link, access) {
            link.access = access;
        }
        if let Some(timer) = min_rnr_timer {
            self.responder.set_rnr_timer(timer);
        }
    }

    /// Puts a congestion controller in charge of what is sent.
    pub fn set_congestion_control(&mut self, cc: Option<Box<dyn CongestionControl>>) {
        self.requester.congestion = cc;
    }

    /// Falls silent and flushes; `work` is how the oldest send ends.
    fn stop(&mut self, work: Status, host: &mut impl Host) {
        self.responder.fall_silent();
        self.flush(work, None, host);
    }

    /// Goes to the error state and flushes. `work` is how the oldest send ends, `receive` the receive in use.
    fn flush(&mut self, work: Status, receive: Option<Status>, host: &mut impl Host) {
        if self.state == QpState::Error {
            return;
        }
        self.state = QpState::Error;
        self.requester.flush(work, self.qpn, host);
        self.responder.flush(receive, self.qpn, host);
    }

    fn on_request_failure(&mut self, f: requester::Failure, host: &mut impl Host) {
        match f {
            requester::Failure::Work(status) => self.stop(status, host),
            requester::Failure::CqOverflow => self.stop(Status::WrFlushErr, host),
        }
    }
}

impl<R: LossRecovery + Default> QueuePair for Rc<R> {
    fn qpn(&self) -> Qpn {
        self.qpn
    }

    fn state(&self) -> QpState {
        self.state
    }

    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if wr.deadline.is_some() {
            return Err(PostError::NoDeadlines);
        }
        if !matches!(self.state, QpState::ReadyToSend | QpState::Error) {
            return Err(PostError::State);
        }
        self.requester.queue.write(wr, self.requester.sig_all())
    }

    fn ring_doorbell(&mut self, _now: Instant, host: &mut impl Host) {
        match (self.state, &self.link) {
            (QpState::ReadyToSend, Some(link)) => self.requester.queue.publish(link.mtu),
            // What is posted to a queue pair in error is flushed at once (IBA 10.3.1.6).
            (QpState::Error, _) => self.requester.flush(Status::WrFlushErr, self.qpn, host),
            _ => {}
        }
    }

    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        if wr.deadline.is_some() {
            return Err(PostError::NoDeadlines);
        }
        if self.state == QpState::Reset {
            return Err(PostError::State);
        }
        self.responder.queue.post(wr)?;
        if self.state == QpState::Error {
            self.responder.flush(None, self.qpn, host);
        }
        Ok(())
    }

    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) {
        let Some(link) = &self.link else { return };
        let opcode = packet.bth.opcode;
        let can_receive = matches!(self.state, QpState::ReadyToSend | QpState::ReadyToReceive);
        if opcode == Opcode::CNP {
            host.counters().rp_cnp_handled += 1;
            self.requester.feed_back(now, Feedback::CongestionNotification);
        } else if let (QpState::ReadyToSend, Opcode::RC_ACKNOWLEDGE, Some(aeth)) = (self.state, opcode, packet.ext.aeth)
        {
            let done = self.requester.handle_aeth(now, packet.bth.psn, aeth, link, &mut self.recovery, host);
            if let Err(f) = done {
                self.on_request_failure(f, host);
            }
        } else if self.state == QpState::ReadyToSend && opcode.is_response() {
            let done = self.requester.handle_data(now, packet, link, &mut self.recovery, host);
            if let Err(f) = done {
                self.on_request_failure(f, host);
            }
        } else if can_receive && !opcode.is_response() {
            match self.responder.handle_request(packet, link, &mut self.recovery, host) {
                Ok(()) => {}
                // What came before the request is still answered, and the NAK is still owed.
                Err(responder::Failure::Refused(receive)) => self.flush(Status::WrFlushErr, receive, host),
                Err(responder::Failure::CqOverflow) => self.stop(Status::WrFlushErr, host),
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let Some(link) = &self.link else { return false };
        // Answers first: the peer waits for them, and the NAK of a queue pair that stopped is still owed.
        if self.responder.has_answer() && self.responder.poll_transmit(tx, link, host) {
            return true;
        }
        if self.state != QpState::ReadyToSend {
            return false;
        }
        match self.requester.poll_transmit(now, tx, link, &mut self.recovery, host) {
            Ok(sent) => sent,
            Err(f) => {
                self.on_request_failure(f, host);
                false
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.requester.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host) {
        if self.state != QpState::ReadyToSend {
            return;
        }
        if let Err(f) = self.requester.handle_timeout(now, &mut self.recovery, host) {
            self.on_request_failure(f, host);
        }
    }

    fn fail(&mut self, host: &mut impl Host) {
        self.stop(Status::WrFlushErr, host);
    }
}
