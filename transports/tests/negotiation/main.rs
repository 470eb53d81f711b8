//! The negotiation of extensions in virtual time: against each kind of peer, and two of them over bad links.

mod links;
mod peers;

use std::time::Duration;

use softnic_transports::Instant;
use softnic_transports::negotiation::vendor::{Extensions, Kind, Negotiation, VERSION};
use softnic_transports::negotiation::{Agreed, Negotiator, Offer, Verdict, Why};
use softnic_wire::Qpn;
use softnic_wire::mad::Status;

const QPN: Qpn = Qpn::new(0x11);
const PEER: Qpn = Qpn::new(0x22);
const TRANSACTION: u64 = 0xfeed_0000_0000_0001;

const SR: Offer = Offer { extensions: Extensions::SR, sr_window: 64, lowar: None };

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

fn sr(sr_window: u32) -> Option<Verdict> {
    Some(Verdict::Agreed(Agreed { extensions: Extensions::SR, sr_window, lowar: None }))
}

fn standard(why: Why) -> Option<Verdict> {
    Some(Verdict::Standard(why))
}

fn negotiator() -> Negotiator {
    Negotiator::new(SR, (QPN, PEER), TRANSACTION, false)
}

/// One that sent its offer at 0 and waits.
fn asked() -> Negotiator {
    let mut n = negotiator();
    assert_eq!(n.poll_transmit(ms(0)).map(|mad| mad.kind), Some(Kind::Offer));
    n
}

/// What the peer says.
fn says(kind: Kind, transaction_id: u64, extensions: Extensions, sr_window: u32) -> Negotiation {
    Negotiation {
        transaction_id,
        kind,
        version: VERSION,
        sender_qpn: PEER.value(),
        receiver_qpn: QPN.value(),
        extensions,
        lowar_r: 0,
        lowar_c: 0,
        sr_window,
    }
}

fn offers(transaction_id: u64, extensions: Extensions, sr_window: u32) -> Negotiation {
    says(Kind::Offer, transaction_id, extensions, sr_window)
}

fn answers(extensions: Extensions, sr_window: u32) -> Negotiation {
    says(Kind::Answer(Status::SUCCESS), TRANSACTION, extensions, sr_window)
}

/// Lets it send and time out until nothing is left to do; says when its offers went out.
fn run_alone(n: &mut Negotiator, from: Instant) -> (Vec<Instant>, Instant) {
    let (mut now, mut sent) = (from, vec![]);
    loop {
        while let Some(mad) = n.poll_transmit(now) {
            assert_eq!(mad.kind, Kind::Offer);
            sent.push(now);
        }
        let Some(at) = n.poll_timeout() else { return (sent, now) };
        now = at;
        n.handle_timeout(now);
    }
}

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}
