//! The fuzz body: a negotiator, a caller that polls at any time, and a peer that sends anything, byte by byte.

use core::time::Duration;

use softnic_wire::lowar::LowarSettings;
use softnic_wire::mad::Status;
use softnic_wire::sdr::SdrSettings;
use softnic_wire::sr::SrSettings;
use softnic_wire::{Instant, Qpn};

use super::vendor::{Extensions, Kind, Negotiation, Settings, VERSION};
use super::{FallbackReason, MIN_TRIES, MIN_WAIT, NegotiationOutcome, Negotiator, Offer};
use crate::lowar::Code;

const QPN: u32 = 0x11;
const PEER: u32 = 0x22;
const TRANSACTION: u64 = 0x33;
/// Offers that wait 50, 100, 200, 400 and 800 ms wait more than a second in all.
const MAX_TRIES: u8 = 5;

/// Decisions, read from the input; zeros after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn one_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    /// `usual`, or with one bit of it flipped.
    fn about(&mut self, usual: u32, bits: u32) -> u32 {
        if self.one_in(8) { usual ^ 1 << (u32::from(self.byte()) % bits) } else { usual }
    }

    /// The settings of SDR, if it is among these extensions: one of three schemes, with different settings each.
    fn sdr(&mut self, extensions: Extensions) -> SdrSettings {
        if !extensions.contains(Extensions::SDR) {
            return SdrSettings::SDK;
        }
        let byte = self.byte();
        SdrSettings { scheme: byte % 3, parameters: [byte / 3, 0, 0] }
    }

    fn window(&mut self) -> u32 {
        match self.byte() {
            255 => u32::MAX,
            n => u32::from(n),
        }
    }
}

fn window_of(settings: &Settings) -> u32 {
    settings.get::<SrSettings>().window
}

fn scheme_of(settings: &Settings) -> u8 {
    settings.get::<SdrSettings>().scheme
}

fn code_of(settings: &Settings) -> Option<Code> {
    let LowarSettings { r, c } = settings.get();
    Code::new(r, c)
}

struct World<'a> {
    input: Input<'a>,
    negotiator: Negotiator,
    offer: Offer,
    known_silent: bool,
    wait: Duration,
    now: Instant,
    /// Number of offers sent.
    tries: u8,
    /// The peer's last offer since the last answer, by the id that the answer must carry, and its scheme of SDR, if it has one.
    unanswered: Option<(u64, Option<u8>)>,
    /// All extensions that the peer ever offered.
    peer_offered: Extensions,
    /// All extensions that the peer ever accepted, with the largest window that it named then.
    peer_said: Offer,
    /// The schemes of SDR that the peer ever accepted, one bit each.
    peer_schemes: u8,
    /// Whether any MAD of the peer was accepted.
    heard: bool,
}

/// Passes arbitrary decisions to a negotiator. Panics if the negotiator agrees to an extension that not both sides offered, revokes an
/// agreement, leaves an offer unanswered, sends more offers than permitted, or could wait forever. Returns the outcome after the peer stops
/// sending.
#[doc(hidden)]
pub fn fuzz_negotiation(data: &[u8]) -> NegotiationOutcome {
    let mut input = Input(data);
    let extensions = Extensions(u32::from(input.byte() % 32));
    let offer = Offer {
        extensions,
        settings: Settings::NONE
            .with(SrSettings { window: input.window() })
            .with(LowarSettings { r: input.byte() % 9, c: input.byte() % 9 })
            .with(input.sdr(extensions)),
    };
    let known_silent = input.one_in(4);
    let known_rtt = match input.byte() {
        0..128 => Duration::ZERO,
        255 => Duration::MAX,
        n => Duration::from_millis(u64::from(n)),
    };
    let qpns = (Qpn::new(QPN), Qpn::new(PEER));
    let mut world = World {
        input,
        negotiator: Negotiator::new(offer, qpns, TRANSACTION, known_silent).with_known_rtt(known_rtt),
        offer,
        known_silent: known_silent && !offer.extensions.contains(Extensions::AUTH),
        wait: MIN_WAIT.max(known_rtt.saturating_mul(2)),
        now: Instant::from_nanos(1),
        tries: 0,
        unanswered: None,
        peer_offered: Extensions::NONE,
        peer_said: Offer::default(),
        peer_schemes: 0,
        heard: false,
    };
    world.check();
    while !world.input.0.is_empty() {
        let before = world.negotiator.outcome();
        world.step();
        let after = world.negotiator.outcome();
        if matches!(before, Some(NegotiationOutcome::Agreed(_))) {
            assert_eq!(before, after, "an agreement stands");
        }
        assert!(before.is_none() || after.is_some(), "an outcome does not go away");
        world.check();
    }
    world.end()
}

impl World<'_> {
    fn step(&mut self) {
        match self.input.byte() % 8 {
            0 | 1 => self.transmit(),
            2 => self.time(),
            3 | 4 => {
                let mad = self.mad(Kind::Offer);
                self.note(&mad);
                self.negotiator.handle_offer(self.now, &mad);
            }
            5 => {
                let status = if self.input.one_in(8) { Status(self.input.byte().into()) } else { Status::SUCCESS };
                let mad = self.mad(Kind::Answer(status));
                self.note(&mad);
                self.negotiator.handle_answer(self.now, &mad);
            }
            6 => {
                let transaction_id = u64::from(self.input.about(TRANSACTION as u32, 32));
                self.heard |= transaction_id == TRANSACTION && self.tries > 0;
                self.negotiator.handle_refusal(self.now, transaction_id);
            }
            // A caller that passes an offer and an answer to the wrong method.
            _ => {
                let before = self.negotiator;
                let offer = self.mad(Kind::Offer);
                self.negotiator.handle_answer(self.now, &offer);
                let answer = self.mad(Kind::Answer(Status::SUCCESS));
                self.negotiator.handle_offer(self.now, &answer);
                assert_eq!(self.negotiator, before, "each is taken only for what it is");
            }
        }
    }

    fn mad(&mut self, kind: Kind) -> Negotiation<'static> {
        let mad = Negotiation {
            transaction_id: self.input.about(TRANSACTION as u32, 32).into(),
            kind,
            version: if self.input.one_in(4) { self.input.byte().max(1) } else { VERSION },
            sender_qpn: self.input.about(PEER, 24),
            receiver_qpn: self.input.about(QPN, 24),
            extensions: Extensions(self.input.byte().into()),
            settings: Settings::NONE.with(SrSettings { window: self.input.window() }),
            sdr: None,
        };
        Negotiation { settings: mad.settings.with(self.input.sdr(mad.extensions)), ..mad }
    }

    /// Records what the peer offers or accepts by this MAD, if the MAD counts.
    fn note(&mut self, mad: &Negotiation<'_>) {
        let scheme = mad.extensions.contains(Extensions::SDR).then(|| scheme_of(&mad.settings));
        let between_us = (mad.sender_qpn, mad.receiver_qpn) == (PEER, QPN);
        let known = mad.transaction_id == TRANSACTION && self.tries > 0;
        match mad.kind {
            Kind::Offer if between_us => {
                self.unanswered = Some((mad.transaction_id, scheme));
                // An offer decides nothing.
                self.peer_offered = self.peer_offered.union(mad.extensions);
                return;
            }
            Kind::Answer(Status::SUCCESS) if between_us && known => {}
            Kind::Answer(status) if status != Status::SUCCESS && known => {
                self.heard = true;
                return;
            }
            _ => return,
        }
        self.heard = true;
        self.peer_schemes |= scheme.map_or(0, |scheme| 1 << scheme);
        self.peer_said.extensions = self.peer_said.extensions.union(mad.extensions);
        let window = window_of(&self.peer_said.settings).max(window_of(&mad.settings));
        self.peer_said.settings = self.peer_said.settings.with(SrSettings { window });
    }

    fn transmit(&mut self) {
        let expected = self.negotiator.has_something();
        let sent = self.negotiator.poll_transmit(self.now);
        assert_eq!(sent.is_some(), expected);
        let Some(mad) = sent else { return };
        assert_eq!((mad.sender_qpn, mad.receiver_qpn, mad.version), (QPN, PEER, VERSION));
        assert!(self.offer.extensions.contains(mad.extensions));
        match mad.kind {
            Kind::Offer => {
                assert_eq!((self.unanswered, mad.transaction_id), (None, TRANSACTION));
                let sdr = SdrSettings::default() != mad.settings.get();
                assert!(!sdr || mad.extensions.contains(Extensions::SDR), "settings are those of what is offered");
                self.tries += 1;
            }
            Kind::Answer(status) => {
                let (id, scheme) = self.unanswered.take().expect("an offer that is to be answered");
                assert_eq!((id, status), (mad.transaction_id, Status::SUCCESS));
                let accepts_sdr = mad.extensions.contains(Extensions::SDR);
                assert!(
                    !accepts_sdr || scheme == Some(scheme_of(&self.offer.settings)),
                    "another scheme is not accepted"
                );
                assert!(self.peer_offered.contains(mad.extensions));
            }
        }
    }

    /// Advances the time: to the timeout, a little, or a lot.
    fn time(&mut self) {
        let due = self.negotiator.poll_timeout();
        self.now = match self.input.byte() {
            0..64 => due.unwrap_or(self.now).max(self.now),
            n @ 64..250 => self.now + Duration::from_millis(n.into()) / 16,
            n => self.now + Duration::from_secs(n.into()),
        };
        let before = self.negotiator;
        self.negotiator.handle_timeout(self.now);
        if due.is_none_or(|at| self.now < at) {
            assert_eq!(self.negotiator, before, "nothing was due");
        }
    }

    fn check(&self) {
        let n = &self.negotiator;
        assert_eq!(n.has_something(), { *n }.poll_transmit(self.now).is_some());
        assert!(n.has_something() || self.unanswered.is_none(), "every offer is answered");
        let offered = u8::from(self.peer_offered != Extensions::NONE);
        assert!(self.tries <= offered + if self.known_silent { 1 } else { MAX_TRIES });
        assert!(n.poll_timeout().is_none() || n.outcome().is_none(), "nothing is waited for after an outcome");
        let moves = n.has_something() || n.poll_timeout().is_some();
        assert!(n.poll_timeout().is_none_or(|at| at <= self.now + self.wait.saturating_mul(1 << (MAX_TRIES - 1))));
        assert!(n.rtt().is_none() || self.tries > 0 && self.heard);
        match n.outcome() {
            None => assert!(moves && !self.heard, "an outcome comes with the first word of the peer, or in time"),
            Some(NegotiationOutcome::Agreed(agreed)) => {
                assert!(agreed.extensions != Extensions::NONE && n.accepts(agreed.extensions));
                assert!(self.offer.extensions.contains(agreed.extensions));
                assert!(self.peer_said.extensions.contains(agreed.extensions));
                let sr = agreed.extensions.contains(Extensions::SR);
                let window = window_of(&agreed.settings);
                assert_eq!(window > 0, sr, "a window is there for Selective Repeat");
                assert!(window <= window_of(&self.peer_said.settings));
                let scheme = scheme_of(&agreed.settings);
                if agreed.extensions.contains(Extensions::SDR) {
                    assert_eq!(scheme, scheme_of(&self.offer.settings), "both have the same scheme");
                    assert!(self.peer_schemes & 1 << scheme != 0);
                }
                assert_eq!(code_of(&agreed.settings).is_some(), agreed.extensions.contains(Extensions::LOWAR));
            }
            Some(NegotiationOutcome::Standard(FallbackReason::Silent)) => {
                assert!(!self.heard && self.tries >= MIN_TRIES)
            }
            Some(NegotiationOutcome::Standard(FallbackReason::KnownSilent)) => {
                assert!(!self.heard && self.known_silent)
            }
            Some(NegotiationOutcome::Standard(FallbackReason::Refused)) => assert!(self.heard),
            Some(NegotiationOutcome::Standard(FallbackReason::NothingInCommon)) => {
                let mut usable = self.offer.extensions;
                if window_of(&self.offer.settings) == 0 {
                    usable = usable.without(Extensions::SR);
                }
                if code_of(&self.offer.settings).is_none() {
                    usable = usable.without(Extensions::LOWAR);
                }
                assert!(self.heard || usable == Extensions::NONE);
            }
            Some(NegotiationOutcome::Standard(FallbackReason::LinkMtu(_))) => panic!("a negotiator knows of no link"),
            Some(NegotiationOutcome::Standard(FallbackReason::Unauthenticated)) => {
                panic!("a negotiator knows of no MAC")
            }
        }
    }

    /// The peer stops sending: there is an outcome in time, and then nothing more to do.
    fn end(mut self) -> NegotiationOutcome {
        for _ in 0..=MAX_TRIES {
            while self.negotiator.has_something() {
                self.transmit();
            }
            let Some(at) = self.negotiator.poll_timeout() else { break };
            self.now = self.now.max(at);
            self.negotiator.handle_timeout(self.now);
            self.check();
        }
        assert!(!self.negotiator.has_something() && self.negotiator.poll_timeout().is_none());
        self.negotiator.outcome().expect("there is an outcome after all tries")
    }
}
