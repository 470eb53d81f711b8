//! XP, the transport of OptiNIC: connected, segmented by the NIC, congestion controlled; best effort, out of order, within a time limit.
//!
//! Every packet contains the position of its bytes, and is placed when it arrives. A message ends when its last fragment arrives, when a
//! later message starts, or at its deadline, whatever part is missing. With a peer that did not agree, XP is plain RC or UC.

mod bitmap;
mod credit;
mod end;
mod feedback;
#[cfg(test)]
mod footprint;
mod fragment;
mod life;
mod packet;
mod reads;
mod receiver;
mod sender;
mod settings;
mod standard;

use std::time::Duration;

use feedback::Flight;
pub use fragment::missing_ranges;
use reads::Jobs;
use receiver::Receiver;
use sender::Sender;
pub use settings::{XpSettings, XpSettingsError};
use softnic_wire::mad::vendor::{Extensions, Settings};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::xp::{XpFeedback, XpReport};
use softnic_wire::{ExtHeaders, Instant, PacketFields, PathMtu, Psn, Template, TxFrame};
use standard::{Standard, either, supported};

use crate::best_effort::NEVER;
use crate::congestion::{CongestionPoint, Credit};
use crate::invariants::invariant;
use crate::message::Link;
use crate::negotiation::{Choice, Extension, FallbackReason, Offer};
use crate::planted::{Bug, planted};
use crate::posting::{Operations, SendRules, Supported};
use crate::qp::{Config, PathProps, PayloadMode};
use crate::recv_queue::Receives;
use crate::{Event, Host, Inbound, QpState, QueuePair};

/// Opcodes.
mod op {
    use softnic_wire::Opcode;

    pub(super) const SEND: Opcode = Opcode(0xe4);
    pub(super) const SEND_IMM: Opcode = Opcode(0xe5);
    pub(super) const WRITE: Opcode = Opcode(0xea);
    pub(super) const WRITE_IMM: Opcode = Opcode(0xeb);
    pub(super) const READ_REQUEST: Opcode = Opcode(0xec);
    pub(super) const READ_RESPONSE: Opcode = Opcode(0xf0);
}

/// The work requests that an RC queue pair of XP supports.
const SUPPORTED: Supported = Supported { operations: Operations::BestEffort, deadlines: true };

/// Message numbers have 24 bits.
const SEQ_MASK: u32 = 0x00ff_ffff;

/// How far message `a` is ahead of `b`; numbers wrap around.
#[inline]
fn ahead(a: u32, b: u32) -> i32 {
    if planted(Bug::XpWrap) {
        return a as i32 - b as i32;
    }
    (a.wrapping_sub(b) << 8) as i32 >> 8
}

/// XP has no settings that the peer needs to know.
pub(crate) const EXTENSION: Extension = Extension { bit: Extensions::XP, range: 0..0, is_usable: |_| true };

/// The offer of every queue pair; or why XP cannot be used on this link.
pub(crate) fn offer(mtu: PathMtu, props: &PathProps) -> Result<Offer, FallbackReason> {
    let needed = link_mtu(mtu.bytes());
    match props.link_mtu {
        Some(link) if link < needed => Err(FallbackReason::LinkMtu(needed)),
        _ => Ok(Offer { extensions: Extensions::XP, settings: Settings::NONE }),
    }
}

/// The MTU of a link that carries packets of this path MTU: IPv6, UDP, BTH, XP, RETH, immediate data and ICRC around the payload.
pub(crate) const fn link_mtu(path_mtu: u32) -> u32 {
    path_mtu + 40 + 8 + 12 + 16 + 16 + 4 + 4
}

/// The connection, as a packet uses it.
struct Way<'a> {
    link: &'a Link,
    /// Headers with another source port, if packets are spread over several paths.
    sprayed: Option<Template>,
}

impl<'a> Way<'a> {
    #[inline]
    fn new(link: &'a Link, psn: Psn, spray: u8) -> Way<'a> {
        let port = || (psn.value() % u32::from(spray)) as u16;
        Way { link, sprayed: (spray > 1).then(|| link.template.with_src_port_ahead(port())) }
    }

    #[inline]
    fn template(&self) -> &Template {
        self.sprayed.as_ref().unwrap_or(&self.link.template)
    }

    /// Writes a packet without payload; returns `None` if there is no room for it.
    fn build(&self, tx: &mut TxFrame<'_>, fields: &PacketFields, ext: &ExtHeaders) -> Option<()> {
        let built = match self.link.payload {
            PayloadMode::Real => self.template().build(tx, fields, ext, &[]),
            PayloadMode::Elided => self.template().build_elided(tx, fields, ext),
        };
        built.ok()
    }
}

/// A queue pair of XP.
pub struct Xp {
    state: QpState,
    /// A packet has arrived since the queue pair became ready to receive.
    established: bool,
    /// The program waits for the event that the send queue is drained.
    tell_drained: bool,
    /// The standard's queue pair handled a packet, which it may have to answer.
    standard_took: bool,
    /// Congestion control, or a limit on the data in flight, determines when packets are sent.
    limited: bool,
    /// The last packet was a READ response: the next one is a request packet, if there is any.
    requests_turn: bool,
    /// READs of the peer are to be answered.
    answers: bool,
    /// The peer agreed, and the standard's queue pair is not needed any more: all packets are XP's own.
    settled: bool,
    settings: XpSettings,
    /// When work ends by its deadline, or the next packet may be sent; otherwise [`NEVER`]. Checked for every packet.
    due: Instant,
    sender: Sender,
    receiver: Receiver,
    /// The receives, from the first packet of XP on; before that they are with the standard's queue pair.
    receives: Option<Receives>,
    link: Option<Link>,
    congestion: CongestionPoint,
    /// When congestion control permits the next packet; otherwise [`NEVER`].
    paced: Instant,
    rest: Box<Rest>,
}

/// The state that packets of XP rarely or never access.
struct Rest {
    config: Config,
    choice: Choice,
    /// The outcome of the negotiation: the peer agreed, or the reason for using the standard.
    outcome: Option<Result<(), FallbackReason>>,
    /// There is work whose deadline cannot be kept any more: the queue pair has to fail.
    unkept: bool,
    standard: Option<Standard>,
    jobs: Jobs,
    flight: Option<Box<Flight>>,
    /// The credit, if the receiver decides when packets are sent.
    credit: Option<Box<Credit>>,
}

impl Rest {
    fn new(config: &Config, settings: &XpSettings) -> Rest {
        Rest {
            config: *config,
            choice: Choice::Waiting,
            outcome: None,
            unkept: false,
            standard: Some(Standard::new(settings.kind(), config)),
            jobs: Jobs::default(),
            flight: None,
            credit: None,
        }
    }
}

/// Size of the state that a queue pair keeps behind a pointer.
pub(crate) const fn kept_apart() -> usize {
    size_of::<Rest>()
}

impl Xp {
    /// Creates a queue pair in the reset state.
    pub fn new(c: &Config, settings: XpSettings) -> Xp {
        Xp {
            state: QpState::Reset,
            established: false,
            tell_drained: false,
            standard_took: false,
            limited: false,
            requests_turn: false,
            answers: false,
            settled: false,
            settings,
            due: NEVER,
            sender: Sender::new(c, SendRules::new(&c.caps, supported(settings.kind()))),
            receiver: Receiver::new(0),
            receives: None,
            link: None,
            congestion: CongestionPoint::default(),
            paced: NEVER,
            rest: Box::new(Rest::new(c, &settings)),
        }
    }

    /// Whether the local requests are packets of XP, or will be.
    fn sends_own(&self) -> bool {
        !matches!(self.rest.choice, Choice::Standard(_))
    }

    // ---- packets that come ----

    /// Handles a packet of XP.
    fn handle_own(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) {
        if self.receives.is_none() {
            self.take_receives();
        }
        if self.limited {
            self.note_heard(now);
        }
        let (Some(link), Some(receives)) = (&self.link, &mut self.receives) else { return };
        if packet.bth.ack_req {
            self.receiver.asked = Some((packet.bth.psn, now));
        }
        if packet.ecn_ce {
            self.receiver.marks = self.receiver.marks.wrapping_add(1);
        }
        self.receiver.bytes += u64::from(packet.payload_len);
        let settings = &self.settings;
        match packet.bth.opcode.kind() {
            Kind::Send | Kind::Write => {
                let done = self.receiver.receive(now, packet, (link, receives, settings), host);
                if let Err(failure) = done {
                    self.on_receive_failure(failure, host);
                }
            }
            Kind::ReadRequest => {
                self.rest.jobs.request(now, packet, link, host);
                self.answers = !self.rest.jobs.is_empty();
            }
            Kind::ReadResponse if self.state.sends() => {
                let done = self.sender.on_response(now, packet, link, settings, host);
                if let Err(failure) = done {
                    self.on_send_failure(failure, host);
                }
                self.check_drained(host);
            }
            Kind::Feedback => self.on_feedback(now, packet, host),
            Kind::Credit => self.on_credit(now, packet, host),
            _ => {}
        }
    }

    fn on_feedback(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) {
        let (Some(flight), Some(feedback)) = (&mut self.rest.flight, packet.ext.xp_feedback()) else { return };
        match flight.on_feedback(now, packet.bth.psn, feedback, &mut self.congestion) {
            true => host.counters().xp_feedback_received += 1,
            false => host.count_stale_answer(),
        }
    }

    // ---- packets that leave ----

    /// Writes the next packet of XP, if one can be sent now.
    fn transmit_own(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let Some(link) = &self.link else { return false };
        if self.congestion.owes_notification() {
            let link = Some(link).filter(|_| self.state.receives());
            if self.congestion.transmit_notification(now, tx, link, host) {
                return true;
            }
        }
        if self.receiver.asked.is_some() && self.transmit_feedback(now, tx, host) {
            return true;
        }
        if self.limited && self.transmit_credit(now, tx, host) {
            return true;
        }
        let draining = self.state == QpState::SendQueueDrain;
        let sends = self.state.sends() && (self.settled || self.rest.choice == Choice::Agreed);
        let has_request = sends && self.sender.has_something(draining);
        let has_answer = self.answers && self.state.receives();
        if !has_request && !has_answer || self.must_wait(now) {
            return false;
        }
        let answers_first = has_answer && !(self.requests_turn && has_request);
        self.requests_turn = false;
        if answers_first && self.transmit_answer(now, tx, host) {
            return true;
        }
        if has_request && self.transmit_request(now, tx, host) {
            return true;
        }
        !answers_first && has_answer && self.transmit_answer(now, tx, host)
    }

    /// Whether congestion control permits no packet now; sets the time at which it will.
    fn must_wait(&mut self, now: Instant) -> bool {
        if !self.limited {
            return false;
        }
        let mtu = self.link.map_or(0, |link| link.mtu.bytes());
        let closed = self.rest.flight.as_mut().and_then(|flight| flight.closed_until(now, mtu, &self.congestion));
        let until = self.congestion.pacing(now).max(closed);
        self.paced = until.unwrap_or(NEVER);
        // Credit arrives in a packet, which wakes the queue pair.
        until.is_some() || !self.has_credit()
    }

    /// Whether the current packet requests feedback.
    #[inline]
    fn asks(&self) -> bool {
        let mtu = || self.link.as_ref().map_or(0, |link| link.mtu.bytes());
        self.limited && self.rest.flight.as_ref().is_some_and(|flight| flight.asks(mtu(), &self.congestion))
    }

    fn transmit_request(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let ask = self.asks();
        let Some(link) = &self.link else { return false };
        let settings = &self.settings;
        let way = Way::new(link, self.sender.psn, settings.spray);
        let draining = self.state == QpState::SendQueueDrain;
        match self.sender.transmit(now, tx, (&way, settings, draining, ask), host) {
            Ok(sent) => {
                if sent {
                    self.on_sent(now, tx, ask);
                }
                self.check_drained(host);
                sent
            }
            Err(failure) => {
                self.on_send_failure(failure, host);
                false
            }
        }
    }

    fn transmit_answer(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let ask = self.asks();
        let Some(link) = &self.link else { return false };
        let (settings, jobs) = (&self.settings, &mut self.rest.jobs);
        let way = Way::new(link, self.sender.psn, settings.spray);
        let sent = jobs.transmit(now, tx, (&way, settings, ask), &mut self.sender, host);
        self.answers = !jobs.is_empty();
        if sent {
            self.on_sent(now, tx, ask);
            self.requests_turn = true;
        }
        sent
    }

    /// A packet was sent, with or without a feedback request: later packets are paced.
    #[inline]
    fn on_sent(&mut self, now: Instant, tx: &TxFrame<'_>, asked: bool) {
        if !self.limited {
            return;
        }
        self.congestion.on_sent(now, tx);
        if let Some(credit) = &mut self.rest.credit {
            credit.on_sent(tx.wire_len() as u32);
        }
        if let Some(flight) = &mut self.rest.flight {
            let headers = self.link.map_or(0, |link| link.template.headers_len());
            let payload = tx.wire_len().saturating_sub(headers) as u32;
            flight.on_sent(now, self.sender.psn.sub(1), payload, asked);
        }
    }

    fn transmit_feedback(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let (Some((psn, at)), Some(link)) = (self.receiver.asked.take(), &self.link) else { return false };
        if !self.state.receives() {
            return false;
        }
        let held = now.saturating_since(at).as_nanos().min(u32::MAX.into()) as u32;
        let Receiver { marks, bytes, .. } = self.receiver;
        let feedback = XpFeedback { held, marks, bytes, credit: 0 };
        let ext = ExtHeaders { xp_report: Some(XpReport::Feedback(feedback)), ..ExtHeaders::default() };
        let opcode = softnic_wire::Opcode::XP_FEEDBACK;
        let fields = PacketFields { opcode, psn, ack_req: false, solicited: false, becn: false, payload_len: 0 };
        let sent = Way::new(link, psn, 1).build(tx, &fields, &ext).is_some();
        host.counters().xp_feedback_sent += u64::from(sent);
        sent
    }

    // ---- time ----

    /// Ends the work whose deadline has passed.
    fn expire(&mut self, now: Instant, host: &mut impl Host) {
        if let Some(credit) = &mut self.rest.credit {
            credit.expire(now, host);
        }
        let mtu = self.link.map_or(0, |link| link.mtu.bytes());
        if self.sends_own() && self.state != QpState::Error {
            let (sender, settings) = (&mut self.sender, &self.settings);
            let done = sender.expire(now, mtu, host);
            let done = done.and_then(|()| Ok(sender.expire_reads(now, settings, host)?));
            if let Err(failure) = done {
                self.on_send_failure(failure, host);
            }
            self.check_drained(host);
        }
        self.expire_receives(now, host);
        self.refresh();
    }

    fn expire_receives(&mut self, now: Instant, host: &mut impl Host) {
        if self.state == QpState::Error {
            return;
        }
        let receives = match (&mut self.receives, &mut self.rest.standard) {
            (Some(receives), _) => receives,
            (None, Some(standard)) => {
                // In the middle of a standard message it is unknown which part is missing.
                let due = standard.receives().first_deadline().is_some_and(|(_, at)| at <= now);
                if due && standard.is_receiving() {
                    return self.fail(host);
                }
                standard.receives_mut()
            }
            (None, None) => return,
        };
        if let Err(failure) = self.receiver.expire(now, receives, host) {
            self.on_receive_failure(failure, host);
        }
    }

    /// When work ends by its deadline, or the next packet may be sent.
    fn find_due(&self) -> Instant {
        let mut due = self.paced.min(self.receiver.until()).min(self.sender.queue.earliest_deadline());
        if let Some(receives) = &self.receives {
            due = due.min(receives.earliest_deadline());
        } else if let Some(standard) = &self.rest.standard {
            due = due.min(standard.receives().earliest_deadline());
        }
        if let Some(credit) = self.rest.credit.as_ref().filter(|_| self.limited) {
            due = due.min(credit.due());
        }
        match self.sender.reads.outstanding {
            0 => due,
            _ => due.min(self.sender.poll_read_timeout(&self.settings)),
        }
    }

    /// Recomputes the time that every packet checks.
    fn refresh(&mut self) {
        self.due = self.find_due();
        self.settled = self.is_standard_idle() && !self.rest.unkept;
    }

    /// Whether the standard's queue pair has nothing to do: the peer agreed, and the standard's queue pair only handles standard requests
    /// of the peer, if there are any.
    #[inline]
    fn is_standard_idle(&self) -> bool {
        self.rest.choice == Choice::Agreed && !self.standard_took
    }

    fn check_invariants(&self) {
        // With the standard, the queue has moved, and the cursor was left in place: after local operations, if any were executed.
        if self.sends_own() {
            self.sender.check_invariants();
        }
        self.receives.iter().for_each(Receives::check_invariants);
        invariant!(self.receiver.is_bounded() == (self.receiver.until() != NEVER), "a flag is another one");
        invariant!(self.due == self.find_due(), "it is due at {:?}, not at {:?}", self.find_due(), self.due);
        let settled = self.is_standard_idle() && !self.rest.unkept;
        invariant!(self.settled == settled && self.answers != self.rest.jobs.is_empty(), "a flag is another one");
    }
}
