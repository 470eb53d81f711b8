//! The receiving half of a reliable connection: requests are received, acknowledgements are sent (IBA 9.7.4, 9.7.5.1).

mod data;

use data::DataAnswers;
use softnic_wire::aeth::{Aeth, NakCode, RnrTimer, Syndrome};
use softnic_wire::opcode::Kind;
use softnic_wire::segment::{MAX_MESSAGE, Reassembly};
use softnic_wire::{ExtHeaders, Opcode, PacketFields, PathMtu, Psn, TxFrame};

use super::go_back_n::{PsnOrder, SequenceNak};
use crate::invariants::invariant;
use crate::memory::{Access, Region};
use crate::message::Link;
use crate::planted::{Bug, planted};
use crate::posting::Supported;
use crate::qp::{Config, PayloadMode};
use crate::recv_queue::Receives;
use crate::{CqOverflow, Host, Inbound, Status};

/// The destination of the WRITE in progress.
#[derive(Debug, Clone, Copy)]
struct WriteTarget {
    addr: u64,
    rkey: u32,
}

/// The acknowledgement that the responder owes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Acknowledges everything before the expected PSN.
    Ack,
    /// Acknowledges the SEND or WRITE packet with this PSN, and all before it. Later requests are answered by data.
    AckOf { psn: Psn },
    /// The request with this PSN was refused.
    Nak { psn: Psn, syndrome: Syndrome },
}

/// Why the queue pair must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request was refused with a NAK. If it was using a receive, that receive completes with the status.
    Refused { code: NakCode, receive: Option<Status> },
    /// A SEND invalidates a key that it is not permitted to: its receive fails, and the requester gets no NAK (IBA 9.9.2.4, class J).
    Invalidate,
    /// A completion was lost.
    CqOverflow,
}

impl From<CqOverflow> for Failure {
    fn from(_: CqOverflow) -> Failure {
        Failure::CqOverflow
    }
}

pub(crate) struct Responder {
    pub(crate) receives: Receives,
    expected: Psn,
    sequence_nak: SequenceNak,
    /// Number of completed messages, 24 bits (IBA 9.7.7.1).
    msn: u32,
    message: Reassembly,
    target: WriteTarget,
    pub(crate) rnr_timer: RnrTimer,
    /// The answer that is owed; at most one, because an ACK covers all earlier ones.
    answer: Option<Answer>,
    /// A failure found while an answer was written; its NAK was written instead.
    pub(super) failure: Option<Failure>,
    /// The last executed request is answered by data.
    data_last: bool,
    /// READ responses and values of atomics that are owed. They are sent before `answer`, which covers them.
    data: DataAnswers,
    /// The furthest packet that was dropped as early while the answer that reports the gap was waiting.
    dropped: Option<Psn>,
}

impl Responder {
    pub(super) fn new(c: &Config, ahead: u32, supported: Supported) -> Responder {
        Responder {
            receives: Receives::new(c, ahead, supported),
            expected: Psn::new(0),
            sequence_nak: SequenceNak::default(),
            msn: 0,
            message: Reassembly::new(PathMtu::B256),
            target: WriteTarget { addr: 0, rkey: 0 },
            rnr_timer: RnrTimer(0),
            answer: None,
            failure: None,
            data_last: false,
            data: DataAnswers::default(),
            dropped: None,
        }
    }

    /// Whether a message is partly received.
    pub(crate) fn is_receiving(&self) -> bool {
        self.message.received().is_some()
    }

    /// Whether a SEND is partly received, with its data in a receive.
    pub(super) fn is_filling_receive(&self) -> bool {
        self.message.is_send_open()
    }

    /// The PSN of the next request.
    #[inline]
    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    /// Makes the responder ready to receive, starting with `psn`.
    pub(super) fn start(&mut self, psn: Psn, mtu: PathMtu, rnr_timer: RnrTimer, max_dest_rd_atomic: u8) {
        (self.expected, self.sequence_nak) = (psn, SequenceNak::default());
        self.data = DataAnswers::new(max_dest_rd_atomic);
        self.msn = 0;
        if !(planted(Bug::ResetForgotten) && self.message.received().is_some()) {
            self.message = Reassembly::new(mtu);
        }
        self.rnr_timer = rnr_timer;
        (self.answer, self.dropped, self.data_last, self.failure) = (None, None, false, None);
    }

    pub(super) fn set_rnr_timer(&mut self, timer: RnrTimer) {
        self.rnr_timer = timer;
    }

    /// Checks the invariants between two calls.
    pub(super) fn check_invariants(&self) {
        self.receives.check_invariants();
        self.data.check_invariants(self.expected);
        invariant!(self.msn <= 0x00ff_ffff, "an MSN has 24 bits");
    }

    /// Drops all answers that are owed.
    pub(super) fn fall_silent(&mut self) {
        self.answer = None;
        self.data.clear();
    }

    /// Number of complete messages received, 24 bits.
    #[inline]
    pub(super) fn messages(&self) -> u32 {
        self.msn
    }

    #[inline]
    pub(crate) fn has_answer(&self) -> bool {
        self.answer.is_some() || self.data.is_due()
    }

    /// Whether the next answer contains data.
    #[inline]
    pub(crate) fn owes_data(&self) -> bool {
        self.data.is_due()
    }

    /// Whether the next answer is a READ response.
    #[inline]
    pub(super) fn owes_read(&self) -> bool {
        self.data.is_read_due()
    }

    /// Whether only an acknowledgement is owed.
    #[inline]
    pub(super) fn owes_ack_only(&self) -> bool {
        matches!(self.answer, Some(Answer::Ack | Answer::AckOf { .. })) && !self.data.is_due()
    }

    /// Handles a request.
    pub(super) fn handle_request(
        &mut self,
        packet: &Inbound<'_>,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        match self.sequence_nak.on_arrival(packet.bth.psn, self.expected) {
            PsnOrder::InOrder => {}
            PsnOrder::Duplicate => {
                // The acknowledgement was lost, or the requester did not wait for it (IBA 9.7.5.1.4).
                host.counters().duplicate_request += 1;
                host.misfits().psn += 1;
                if packet.bth.opcode.kind().is_answered_by_data() {
                    self.answer_again(packet, link, host);
                } else {
                    if let (Some(r), true) = (packet.ext.reth, planted(Bug::WriteAgain)) {
                        let _ = host.write(remote(link, r.rkey, r.va, Access::REMOTE_WRITE), packet.payload);
                    }
                    self.acknowledge_again(packet.bth.psn);
                }
                return Ok(());
            }
            PsnOrder::Early { nak } => {
                host.counters().out_of_sequence += 1;
                host.misfits().psn += 1;
                if nak {
                    self.nak(self.expected, NakCode::PSN_SEQUENCE_ERROR);
                }
                // After a NAK that has left, the requester sends all of these packets again by itself.
                let nak_waits = matches!(self.answer, Some(Answer::Nak { .. }));
                if nak_waits && self.dropped.is_none_or(|p| p.is_before(packet.bth.psn)) {
                    self.dropped = Some(packet.bth.psn);
                }
                return Ok(());
            }
        }
        self.execute(packet, link, host)
    }

    /// Acknowledges a SEND or WRITE again, because the acknowledgement was lost.
    ///
    /// The PSN of a later READ or atomic is not named: such a request is acknowledged by its data alone, and Linux's rxe completes a READ
    /// without its data if the plain acknowledgement arrives first.
    fn acknowledge_again(&mut self, psn: Psn) {
        match self.answer {
            None if self.data_last => self.answer = Some(Answer::AckOf { psn }),
            None => self.answer = Some(Answer::Ack),
            Some(Answer::AckOf { psn: earlier }) if earlier.is_before(psn) => self.answer = Some(Answer::AckOf { psn }),
            Some(_) => {}
        }
    }

    /// Executes the expected request.
    fn execute(&mut self, packet: &Inbound<'_>, link: &Link, host: &mut impl Host) -> Result<(), Failure> {
        let opcode = packet.bth.opcode;
        if opcode.kind().is_answered_by_data() {
            return self.execute_data(packet, link, host);
        }
        let before = self.message;
        let Ok(place) = self.message.accept(opcode, packet.payload_len, packet.ext.reth.map(|r| r.len)) else {
            return self.refuse(packet, NakCode::INVALID_REQUEST, None, host);
        };
        let is_send = opcode.kind() == Kind::Send;
        // A SEND takes its receive with the first packet, a WRITE with immediate with its last one.
        if (is_send && place.offset == 0 || packet.ext.imm.is_some()) && self.receives.lacks_receive(is_send, host) {
            self.message = if planted(Bug::RnrForgotten) { self.message } else { before };
            self.sequence_nak.on_receiver_not_ready();
            host.counters().out_of_buffer += 1;
            self.answer = Some(Answer::Nak { psn: packet.bth.psn, syndrome: Syndrome::RnrNak(self.rnr_timer) });
            return Ok(());
        }
        if planted(Bug::AckWithoutPlacing) && self.answer.is_some() {
            // The planted bug: the packet is not placed.
        } else if is_send {
            self.place_send(packet, place.offset, host)?;
            if let Some(key) = packet.ext.ieth {
                host.invalidate(link.qpn, link.pd, key).map_err(|_| Failure::Invalidate)?;
            }
        } else {
            self.place_write(packet, place.offset, link, host)?;
        }
        self.expected = self.expected.next();
        if planted(Bug::PsnWrap) && self.expected == Psn::new(0) {
            self.expected = Psn::new(1);
        }
        self.data_last = false;
        // A NAK that still waits was for this very packet, which has arrived meanwhile.
        if packet.bth.ack_req || self.answer.is_some() {
            self.answer = Some(Answer::Ack);
            self.ask_for_dropped();
        }
        if !place.complete {
            return Ok(());
        }
        self.msn = (self.msn + 1) & 0x00ff_ffff;
        self.receives.end_message(packet, place.offset, host)?;
        Ok(())
    }

    /// The packets that were dropped as early in this batch do not arrive again by themselves. The requester must be notified of the gap,
    /// although the packet before it has arrived by now.
    fn ask_for_dropped(&mut self) {
        if self.dropped.is_some_and(|p| !p.is_before(self.expected)) {
            // Also recorded in `sequence_nak`, so that there is still one NAK for this gap.
            let _ = self.sequence_nak.on_arrival(self.expected.next(), self.expected);
            self.nak(self.expected, NakCode::PSN_SEQUENCE_ERROR);
        }
    }

    fn place_send(&mut self, packet: &Inbound<'_>, offset: u32, host: &mut impl Host) -> Result<(), Failure> {
        let Some(receive) = self.receives.head(host) else { return Ok(()) };
        if u64::from(offset) + u64::from(packet.payload_len) > receive.capacity {
            host.counters().resp_local_length_error += 1;
            return self.refuse(packet, NakCode::INVALID_REQUEST, Some(Status::LocLenErr), host);
        }
        if self.receives.scatter(&receive, u64::from(offset), packet.payload, &*host).is_err() {
            return self.refuse(packet, NakCode::REMOTE_OPERATIONAL_ERROR, Some(Status::LocProtErr), host);
        }
        Ok(())
    }

    fn place_write(
        &mut self,
        packet: &Inbound<'_>,
        offset: u32,
        link: &Link,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        if let Some(reth) = packet.ext.reth {
            if !link.access.allows(Access::REMOTE_WRITE) || reth.len > MAX_MESSAGE {
                return self.refuse(packet, NakCode::INVALID_REQUEST, None, host);
            }
            self.target = WriteTarget { addr: reth.va, rkey: reth.rkey };
            // The whole range is checked before a byte of it is written. If this packet is the whole range, writing checks it anyway.
            let more = reth.len != packet.payload_len || packet.payload.is_empty();
            if more && host.check(self.region(link, 0), u64::from(reth.len)).is_err() {
                return self.refuse_access(packet, host);
            }
        }
        if host.write(self.region(link, offset), packet.payload).is_err() {
            return self.refuse_access(packet, host);
        }
        Ok(())
    }

    #[inline]
    fn region(&self, link: &Link, offset: u32) -> Region {
        let WriteTarget { addr, rkey } = self.target;
        remote(link, rkey, addr.wrapping_add(u64::from(offset)), Access::REMOTE_WRITE)
    }

    fn nak(&mut self, psn: Psn, code: NakCode) {
        self.answer = Some(Answer::Nak { psn, syndrome: Syndrome::Nak(code) });
    }

    /// Refuses a WRITE to memory that the peer may not write. If the packet has immediate data, its receive completes with an error.
    fn refuse_access(&mut self, packet: &Inbound<'_>, host: &mut impl Host) -> Result<(), Failure> {
        let receive = self.receives.ended_by(packet);
        self.refuse(packet, NakCode::REMOTE_ACCESS_ERROR, receive, host)
    }

    /// Refuses the request permanently: the queue pair stops (IBA 9.9.2.4).
    fn refuse(
        &mut self,
        packet: &Inbound<'_>,
        code: NakCode,
        receive: Option<Status>,
        host: &mut impl Host,
    ) -> Result<(), Failure> {
        match code {
            NakCode::INVALID_REQUEST => host.counters().resp_remote_invalid_request += 1,
            NakCode::REMOTE_ACCESS_ERROR => host.count_access_error(),
            _ => {}
        }
        self.nak(packet.bth.psn, code);
        Err(Failure::Refused { code, receive })
    }

    /// Writes the answer that is due.
    pub(super) fn poll_transmit(&mut self, tx: &mut TxFrame<'_>, link: &Link, host: &mut impl Host) -> bool {
        if self.data.is_due() {
            return self.send_data(tx, link, host);
        }
        let Some(answer) = self.answer.take() else { return false };
        self.dropped = None;
        let (psn, syndrome) = match answer {
            Answer::Ack => (self.expected.sub(1), Syndrome::Ack(self.receives.credits())),
            Answer::AckOf { psn } => (psn, Syndrome::Ack(self.receives.credits())),
            Answer::Nak { psn, syndrome } => (psn, syndrome),
        };
        let sequence_nak = syndrome == Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR);
        host.counters().sent_seq_naks += u64::from(sequence_nak);
        let ext = ExtHeaders { aeth: Some(Aeth { syndrome, msn: self.msn }), ..ExtHeaders::default() };
        let fields = PacketFields {
            opcode: Opcode::RC_ACKNOWLEDGE,
            psn,
            ack_req: false,
            solicited: false,
            becn: false,
            payload_len: 0,
        };
        match link.payload {
            PayloadMode::Real => link.template.build(tx, &fields, &ext, &[]).is_ok(),
            PayloadMode::Elided => link.template.build_elided(tx, &fields, &ext).is_ok(),
        }
    }
}

/// Local memory as the peer addresses it.
#[inline]
pub(crate) fn remote(link: &Link, key: u32, addr: u64, access: Access) -> Region {
    Region { qpn: link.qpn, pd: link.pd, key, addr, access }
}
