//! The list of transports: the state machine, the offer and the shim of each.

use softnic_wire::opcode::Service;
use softnic_wire::{Instant, PathMtu, Qpn, Template, TxFrame};
use std::time::Duration;

use crate::congestion::{CongestionControl, EqdsConfig};
use crate::lowar::{self, Lowar};
use crate::negotiation::{Choice, FallbackReason, NegotiationOutcome, Offer};
use crate::outstanding::{OutstandingRecvs, OutstandingSends, RecvsKept};
use crate::posting::{RecvRules, SendRules};
use crate::prefetch::prefetch;
use crate::qp::{
    Config, ExpectedPsns, NextPsns, NoCongestionControl, PathProps, PayloadMode, QpKind, ReceiveAttr, SendAttr, Update,
};
use crate::rc::Rc;
use crate::shim::{Shim, ShimPools};
use crate::sr::{self, Sr};
use crate::uc::Uc;
use crate::ud::Ud;
use crate::wr::AhId;
use crate::xp::{self, Xp};
use crate::{Host, Inbound, PostError, QpState, QueuePair, RecvWr, SendWr, Transport, Vitals};

/// A queue pair of any transport. An enum rather than a trait object, because the trait's methods are generic over the host.
pub enum AnyQp {
    /// Reliable connection, with or without a shim below it.
    Rc(Box<Rc>),
    /// Selective Repeat.
    Sr(Box<Sr>),
    /// Best effort with deadlines.
    Xp(Box<Xp>),
    /// Unreliable connection.
    Uc(Box<Uc>),
    /// Unreliable datagram, and QP1.
    Ud(Box<Ud>),
}

/// Calls the same method for each transport.
macro_rules! each {
    ($any:expr, $qp:ident => $call:expr) => {
        match $any {
            AnyQp::Rc($qp) => $call,
            AnyQp::Sr($qp) => $call,
            AnyQp::Xp($qp) => $call,
            AnyQp::Uc($qp) => $call,
            AnyQp::Ud($qp) => $call,
        }
    };
}

impl AnyQp {
    /// Creates a queue pair in the reset state; datagrams are at most `mtu` long.
    pub fn new(transport: Transport, kind: QpKind, config: &Config, mtu: PathMtu) -> AnyQp {
        match transport {
            Transport::Rc | Transport::Lowar(_) => AnyQp::Rc(Box::new(Rc::new(config))),
            Transport::Sr { window } => AnyQp::Sr(Box::new(Sr::new(config, window))),
            Transport::Xp(settings) => AnyQp::Xp(Box::new(Xp::new(config, settings))),
            Transport::Uc => AnyQp::Uc(Box::new(Uc::new(config))),
            Transport::Ud if kind == QpKind::Gsi => AnyQp::Ud(Box::new(Ud::gsi(config, mtu))),
            Transport::Ud => AnyQp::Ud(Box::new(Ud::new(config, mtu))),
        }
    }

    /// [`QueuePair::poll_transmit`] for the other transports.
    #[inline(never)]
    fn transmit_other(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        each!(self, qp => qp.poll_transmit(now, tx, host))
    }

    /// [`QueuePair::poll_timeout`] for the other transports.
    #[inline(never)]
    fn timeout_of_other(&self) -> Option<Instant> {
        each!(self, qp => qp.poll_timeout())
    }

    /// [`QueuePair::handle_packet`] for the other transports.
    #[inline(never)]
    fn hand_to_other(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        each!(self, qp => qp.handle_packet(now, packet, host))
    }

    /// Prefetches the state of the queue pair.
    #[inline]
    pub fn prefetch_state(&self) {
        if let AnyQp::Rc(qp) = self {
            prefetch(&**qp);
        }
    }
}

/// The offer of a transport to its peer, on a connection of this path MTU; or why the transport cannot be used on this link.
pub(crate) fn offer(transport: Transport, mtu: PathMtu, props: &PathProps) -> Result<Offer, FallbackReason> {
    match transport {
        Transport::Sr { window } => Ok(sr::offer(window)),
        Transport::Lowar(code) => lowar::offer(code, mtu, props),
        Transport::Xp(_) => xp::offer(mtu, props),
        Transport::Rc | Transport::Uc | Transport::Ud => Ok(Offer::default()),
    }
}

/// The shim of a transport, below a queue pair whose frames start like `template` and carry up to `mtu` bytes of payload.
pub(crate) fn shim(
    transport: Transport,
    template: &Template,
    mtu: PathMtu,
    payload: PayloadMode,
) -> Option<Box<dyn Shim>> {
    match transport {
        Transport::Lowar(code) => Some(Box::new(Lowar::new(code, template, mtu.bytes() as usize, payload))),
        _ => None,
    }
}

impl ShimPools {
    /// Allocates the shared memory that queue pairs of this transport need, on a port of this MTU.
    pub fn provide(&mut self, transport: Transport, mtu: PathMtu) {
        if let Transport::Lowar(_) = transport {
            self.lowar.provide(mtu.bytes() as usize);
        }
    }
}

impl QueuePair for AnyQp {
    #[inline]
    fn qpn(&self) -> Qpn {
        each!(self, qp => qp.qpn())
    }

    #[inline(always)]
    fn state(&self) -> QpState {
        each!(self, qp => qp.state())
    }

    #[inline]
    fn send_rules(&self) -> &SendRules {
        each!(self, qp => qp.send_rules())
    }

    #[inline]
    fn recv_rules(&self) -> &RecvRules {
        each!(self, qp => qp.recv_rules())
    }

    fn reset(&mut self) {
        each!(self, qp => qp.reset());
    }

    fn init(&mut self) {
        each!(self, qp => qp.init());
    }

    fn ready_to_receive(&mut self, connection: Option<&ReceiveAttr>, props: &PathProps) {
        each!(self, qp => qp.ready_to_receive(connection, props));
    }

    fn ready_to_send(&mut self, a: &SendAttr) {
        each!(self, qp => qp.ready_to_send(a));
    }

    fn drain(&mut self, notify: bool, host: &mut impl Host) {
        each!(self, qp => qp.drain(notify, host));
    }

    fn resume(&mut self) {
        each!(self, qp => qp.resume());
    }

    fn is_drained(&mut self) -> bool {
        each!(self, qp => qp.is_drained())
    }

    fn update(&mut self, u: &Update) {
        each!(self, qp => qp.update(u));
    }

    fn fail(&mut self, host: &mut impl Host) {
        each!(self, qp => qp.fail(host));
    }

    #[inline]
    fn write_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        each!(self, qp => qp.write_send(wr))
    }

    #[inline]
    fn ring_doorbell(&mut self, now: Instant, host: &mut impl Host) {
        each!(self, qp => qp.ring_doorbell(now, host));
    }

    #[inline]
    fn post_recv(&mut self, wr: &RecvWr<'_>, host: &mut impl Host) -> Result<(), PostError> {
        each!(self, qp => qp.post_recv(wr, host))
    }

    #[inline(always)]
    fn handle_packet(&mut self, now: Instant, packet: &Inbound<'_>, host: &mut impl Host) -> bool {
        match self {
            AnyQp::Rc(qp) => qp.handle_packet(now, packet, host),
            _ => self.hand_to_other(now, packet, host),
        }
    }

    #[inline(always)] // most packets are those of RC, which then need no call
    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        match self {
            AnyQp::Rc(qp) => qp.poll_transmit(now, tx, host),
            _ => self.transmit_other(now, tx, host),
        }
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            AnyQp::Rc(qp) => qp.poll_timeout(),
            _ => self.timeout_of_other(),
        }
    }

    fn handle_timeout(&mut self, now: Instant, host: &mut impl Host) {
        each!(self, qp => qp.handle_timeout(now, host));
    }

    #[inline]
    fn takes(&self, service: Service) -> bool {
        each!(self, qp => qp.takes(service))
    }

    #[inline]
    fn owes_answers(&self) -> bool {
        each!(self, qp => qp.owes_answers())
    }

    #[inline]
    fn next_address(&self) -> Option<AhId> {
        each!(self, qp => qp.next_address())
    }

    fn set_congestion_control(&mut self, cc: Option<Box<dyn CongestionControl>>) -> Result<(), NoCongestionControl> {
        each!(self, qp => qp.set_congestion_control(cc))
    }

    fn use_credit(&mut self, config: Option<EqdsConfig>) -> Result<(), NoCongestionControl> {
        each!(self, qp => qp.use_credit(config))
    }

    fn offers_credit(&self) -> bool {
        each!(self, qp => qp.offers_credit())
    }

    fn on_credit_negotiation(&mut self, outcome: Option<&NegotiationOutcome>) {
        each!(self, qp => qp.on_credit_negotiation(outcome));
    }

    fn release_ack(&mut self) {
        each!(self, qp => qp.release_ack());
    }

    fn on_negotiation(&mut self, outcome: Option<&NegotiationOutcome>, rtt: Option<Duration>) {
        each!(self, qp => qp.on_negotiation(outcome, rtt));
    }

    fn choice(&self) -> Option<Choice> {
        each!(self, qp => qp.choice())
    }

    fn outstanding_sends(&self) -> Option<OutstandingSends<'_>> {
        each!(self, qp => qp.outstanding_sends())
    }

    fn outstanding_recvs(&self) -> Option<OutstandingRecvs<'_>> {
        each!(self, qp => qp.outstanding_recvs())
    }

    fn take_recvs(&mut self, take: impl FnMut(&RecvWr<'_>)) -> Result<u32, RecvsKept> {
        each!(self, qp => qp.take_recvs(take))
    }

    fn next_psns(&self) -> Option<NextPsns> {
        each!(self, qp => qp.next_psns())
    }

    fn hasten_acks(&mut self, messages: u8) {
        each!(self, qp => qp.hasten_acks(messages))
    }

    fn fail_sends(&mut self, host: &mut impl Host) -> bool {
        each!(self, qp => qp.fail_sends(host))
    }

    fn halt(&mut self) -> bool {
        each!(self, qp => qp.halt())
    }

    fn is_halted(&self) -> bool {
        each!(self, qp => qp.is_halted())
    }

    fn vitals(&self) -> Vitals {
        each!(self, qp => qp.vitals())
    }

    #[inline]
    fn expected_psns(&self) -> ExpectedPsns {
        each!(self, qp => qp.expected_psns())
    }

    fn on_shim_sent(&mut self, now: Instant, tx: &TxFrame<'_>) {
        each!(self, qp => qp.on_shim_sent(now, tx));
    }

    fn on_shim_marked(&mut self, now: Instant) {
        each!(self, qp => qp.on_shim_marked(now));
    }

    #[inline]
    fn prefetch_work(&self) {
        each!(self, qp => qp.prefetch_work());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recv_queue::RecvQueue;
    use crate::send_queue::SendQueue;
    use std::mem::size_of;

    /// The memory of a queue pair besides its queues; docs/performance.md has the figures of release builds.
    #[test]
    fn the_state_of_a_queue_pair_stays_small() {
        // XP with its separately stored state, without the headers of its frames and without its two queues, as docs/xp.md counts it.
        let xp = size_of::<Xp>() + crate::xp::kept_apart()
            - size_of::<Template>()
            - size_of::<SendQueue>()
            - size_of::<RecvQueue>();
        let sizes = [size_of::<Rc>(), size_of::<Uc>(), size_of::<Ud>(), xp];
        assert!(sizes.iter().zip([800, 472, 260, 400]).all(|(&size, limit)| size <= limit), "{sizes:?}");
    }
}
