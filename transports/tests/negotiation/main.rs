//! The negotiation of extensions in virtual time: against each kind of peer, and two of them over bad links.

mod links;
mod peers;
mod sdr;

use std::time::Duration;

use softnic_transports::negotiation::vendor::{Extensions, Kind, Negotiation, Settings, VERSION};
use softnic_transports::negotiation::{Agreed, FallbackReason, NegotiationOutcome, Negotiator, Offer};
use softnic_wire::mad::Status;
use softnic_wire::sdr::{Info, SdrSettings};
use softnic_wire::sr::SrSettings;
use softnic_wire::{Instant, Qpn};

const QPN: Qpn = Qpn::new(0x11);
const PEER: Qpn = Qpn::new(0x22);
const TRANSACTION: u64 = 0xfeed_0000_0000_0001;

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

fn window(window: u32) -> Settings {
    Settings::NONE.with(SrSettings { window })
}

/// An offer of Selective Repeat.
fn sr_offer() -> Offer {
    Offer { extensions: Extensions::SR, settings: window(64) }
}

/// Selective Repeat, with a peer of this window.
fn sr(peer: u32) -> Option<NegotiationOutcome> {
    Some(NegotiationOutcome::Agreed(Agreed { extensions: Extensions::SR, settings: window(peer) }))
}

fn standard(why: FallbackReason) -> Option<NegotiationOutcome> {
    Some(NegotiationOutcome::Standard(why))
}

fn negotiator() -> Negotiator {
    Negotiator::new(sr_offer(), (QPN, PEER), TRANSACTION, false)
}

/// One that sent its offer at 0 and waits.
fn asked() -> Negotiator {
    let mut n = negotiator();
    assert_eq!(n.poll_transmit(ms(0)).map(|mad| mad.kind), Some(Kind::Offer));
    n
}

/// What the peer says.
fn says(kind: Kind, transaction_id: u64, extensions: Extensions, sr_window: u32) -> Negotiation<'static> {
    Negotiation {
        transaction_id,
        kind,
        version: VERSION,
        sender_qpn: PEER.value(),
        receiver_qpn: QPN.value(),
        extensions,
        settings: window(sr_window),
        sdr: None,
    }
}

fn offers(transaction_id: u64, extensions: Extensions, sr_window: u32) -> Negotiation<'static> {
    says(Kind::Offer, transaction_id, extensions, sr_window)
}

fn answers(extensions: Extensions, sr_window: u32) -> Negotiation<'static> {
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

/// What an end of SDR tells the other: one generation of one channel.
fn some_info() -> Vec<u8> {
    let mut info = vec![0; Info::len_of(1, 1)];
    info[..16].copy_from_slice(&[1, 5, 0, 52, 10, 18, 4, 20, 1, 1, 0, 0, 0, 0, 0, 64]);
    info[16..24].copy_from_slice(&(1_u64 << 20).to_be_bytes());
    (info[31], info[47]) = (0x63, 0x64);
    assert!(Info::parse(&info).is_ok());
    info
}

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}
