//! Shims below queue pairs: frames on their way through them, what they are lent, and the negotiation about them.

use softnic_transports::lowar::{Buffers, Code};
use softnic_transports::negotiation::Choice;
use softnic_transports::qp::{PayloadMode, earlier};
use softnic_transports::shim::{Arrival, Awaited, Lent, Verdict};
use softnic_transports::{QueuePair, Transport};
use softnic_wire::{Instant, Layout, Opcode, Qpn, Template, TxFrame, icrc};

use super::{Nic, ObjectError};
use crate::qp::{AnyQp, Slot, each};

impl Slot {
    /// When its shim, or the negotiation about it, wants to be called.
    pub(super) fn shim_timeout(&self) -> Option<Instant> {
        let shim = self.shim.as_ref().and_then(|s| s.poll_timeout());
        earlier(shim, self.agreement.as_ref().and_then(|a| a.poll_timeout()))
    }

    /// What it waits for; `response`: also among answers.
    #[inline]
    fn awaited(&self, response: bool) -> Awaited {
        match &self.qp {
            AnyQp::Rc(qp) => Awaited {
                request: Some(qp.awaited_request()),
                response: if response { qp.awaited_response() } else { None },
            },
            _ => Awaited::default(),
        }
    }
}

impl Nic {
    /// One frame of a queue pair with a shim: what the shim adds goes before the next packet.
    #[inline(never)]
    pub(super) fn transmit_with_shim(&mut self, now: Instant, index: u32, tx: &mut TxFrame<'_>) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return false };
        if slot.shim_due {
            if self.transmit_of_shim(now, index, tx) {
                return true;
            }
            return self.transmit_with_shim(now, index, tx);
        }
        let sent = each!(&mut slot.qp, qp => qp.poll_transmit(now, tx, &mut self.shared));
        self.timers.arm(index, each!(&slot.qp, qp => qp.poll_timeout()));
        if let (true, Some(shim)) = (sent, &mut slot.shim) {
            let lent = Lent { buffers: &mut self.buffers, counters: &mut self.shared.counters };
            slot.shim_due = shim.on_transmit(now, tx, lent);
        }
        sent
    }

    /// One frame of the shim's own, or of the negotiation about it; without any, nothing is due any more.
    fn transmit_of_shim(&mut self, now: Instant, index: u32, tx: &mut TxFrame<'_>) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return false };
        let mut sent = false;
        if let Some(agreement) = &mut slot.agreement
            && agreement.has_something()
            && let Some(path) = &slot.attr.path
        {
            sent = agreement.poll_transmit(now, tx, &Template::new(path, Qpn::GSI, slot.pkey));
            self.timers.arm(index, agreement.poll_timeout());
        }
        if let (false, Some(shim)) = (sent, &mut slot.shim) {
            let lent = Lent { buffers: &mut self.buffers, counters: &mut self.shared.counters };
            sent = shim.poll_transmit(now, tx, lent);
            if let (true, AnyQp::Rc(qp)) = (sent, &mut slot.qp) {
                qp.count_for_pacing(now, tx);
            }
        }
        slot.shim_due = sent;
        sent
    }

    /// A frame for a queue pair with a shim. Says whether there may be something to send now.
    pub(super) fn receive_through_shim(&mut self, now: Instant, index: u32, frame: &[u8], layout: Layout) -> bool {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return false };
        let opcode = Opcode(frame[layout.bth]);
        let awaited = slot.awaited(opcode.is_response() || opcode == Opcode::LOWAR);
        let Some(shim) = &mut slot.shim else { return false };
        let lent = Lent { buffers: &mut self.buffers, counters: &mut self.shared.counters };
        let arrival = Arrival { frame, bth: layout.bth, end: layout.end };
        match shim.on_receive(now, &arrival, awaited, lent) {
            Verdict::Deliver => self.deliver(now, index, frame, layout),
            Verdict::DeliverAndPoll => {
                let active = self.deliver(now, index, frame, layout);
                self.deliver_held(now, index) || active
            }
            Verdict::Consume => {
                // What came may ask for an answer.
                slot.shim_due |= opcode == Opcode::LOWAR;
                let marked = opcode == Opcode::LOWAR && layout.traffic_class(frame).is_some_and(|c| c & 3 == 3);
                if let (true, AnyQp::Rc(qp)) = (marked, &mut slot.qp) {
                    self.shared.counters.np_ecn_marked_roce_packets += 1;
                    qp.on_marked_of_shim(now);
                }
                self.deliver_held(now, index) || opcode == Opcode::LOWAR
            }
        }
    }

    /// Hands over the frames that a shim held back or recovered, and arms its clock. Says whether there may be something to send now.
    fn deliver_held(&mut self, now: Instant, index: u32) -> bool {
        // Taken out for the time, so that the frame does not borrow the NIC that it is delivered to.
        let mut held = std::mem::take(&mut self.held);
        let mut active = false;
        while let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            let awaited = slot.awaited(true);
            let lent = Lent { buffers: &mut self.buffers, counters: &mut self.shared.counters };
            let Some(len) = slot.shim.as_mut().and_then(|s| s.poll_deliver(now, awaited, &mut held, lent)) else {
                break;
            };
            let len = len.min(held.len());
            let frame = &mut held[..len];
            let Ok(layout) = Layout::locate(frame) else { continue };
            // Whatever the shim made of it, it has to prove itself.
            if self.payload == PayloadMode::Real && icrc::verify(frame, &layout).is_err() {
                self.shared.counters.rx_icrc_encapsulated += 1;
                continue;
            }
            active |= self.deliver(now, index, frame, layout);
        }
        self.held = held;
        if let Some(Some(slot)) = self.slots.get(index as usize) {
            self.timers.arm(index, slot.shim_timeout());
        }
        active
    }

    /// Time has passed for a shim, or for the negotiation about it.
    pub(super) fn handle_shim_timeout(&mut self, now: Instant, index: u32) {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return };
        if let Some(agreement) = &mut slot.agreement {
            agreement.handle_timeout(now);
            slot.follow_agreement();
        }
        if let Some(shim) = &mut slot.shim {
            shim.handle_timeout(now, Lent { buffers: &mut self.buffers, counters: &mut self.shared.counters });
            self.deliver_held(now, index);
        }
    }

    /// Asks the peer of a queue pair with LoWAR to send other blocks from now on (section IV-C of its paper); it follows with its next one.
    pub fn wish_lowar(&mut self, qpn: Qpn, code: Code) -> Result<(), ObjectError> {
        let index = self.index_of(qpn).ok_or(ObjectError::NoSuchQp)?;
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return Err(ObjectError::NoSuchQp) };
        // To a peer that did not agree nothing is said.
        if slot.choice() != Some(Choice::Agreed) || !matches!(slot.init.transport, Transport::Lowar(_)) {
            return Err(ObjectError::WrongKind);
        }
        if let Some(shim) = &mut slot.shim {
            shim.wish(code);
        }
        slot.shim_due = true;
        self.activate(index);
        Ok(())
    }

    /// What LoWAR's queue pairs share, made of another size before there is any of them: to see what happens when it runs out.
    #[doc(hidden)]
    pub fn provide_lowar(&mut self, units: u16, packets: u32) {
        self.buffers.provide_some(self.port.mtu.bytes() as usize, units, packets);
    }

    /// What LoWAR's queue pairs share.
    #[doc(hidden)]
    pub fn lowar_buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The shim gives back what it was lent, and is gone.
    pub(super) fn reset_shim(&mut self, index: u32) {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return };
        if let Some(mut shim) = slot.shim.take() {
            shim.reset(Lent { buffers: &mut self.buffers, counters: &mut self.shared.counters });
        }
    }
}
