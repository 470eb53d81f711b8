//! Negotiation of the extensions that a connected queue pair uses with its peer: offers, answers, and the outcome.
//!
//! Both sides send an offer when they become ready to receive, in a MAD to the peer's QP1 ([`vendor::Negotiation`]). A side that offers an
//! extension accepts its packets from then on, whatever happens to the MADs. Only the peer's answer decides: it contains the transaction id
//! that this side drew, so no one who cannot see this side's packets can have sent it. The peer's offer is answered, and shows that the
//! peer is present. A peer that refuses, is silent, or has no extension in common gets standard packets.
//!
//! The settings of an extension are in bytes of their own ([`vendor::Settings`]), which only the extension interprets. The information that
//! the two ends of SDR exchange is longer: the [`Agreement`] adds it to MADs and stores the peer's. A negotiator sees only the bit of SDR.
//!
//! A [`Negotiator`] is the state of one queue pair, from RTR on. Its caller ensures that only MADs from the peer's address are passed in,
//! stores an offer that arrives before RTR, and remembers peers that never answer ([`SilentPeers`]).

use core::ops::Range;
use core::time::Duration;

use softnic_wire::mad::Status;
use softnic_wire::mad::vendor::{Extensions, Kind, Negotiation, Settings, VERSION};
use softnic_wire::{Instant, Qpn};

mod agreement;
mod decline;
mod extension;
mod frame;
mod fuzz;
mod round_trips;
mod silent_peers;

pub use agreement::Agreement;
pub(crate) use decline::Decline;
pub use frame::{write, write_mad};
#[doc(hidden)]
pub use fuzz::fuzz_negotiation;
pub use round_trips::RoundTrips;
pub use silent_peers::SilentPeers;
pub use softnic_wire::mad::vendor;

/// Minimum number of offers that are sent before the peer counts as silent.
pub(crate) const MIN_TRIES: u8 = 3;
/// Minimum wait of the first offer for an answer; longer if the round-trip time is known to be more than half of it. Each further offer
/// waits twice as long as the one before.
pub(crate) const MIN_WAIT: Duration = Duration::from_millis(50);
/// Minimum wait of all offers together: one side may become ready to receive long before the other, and the round-trip time may be long
/// without being known.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// An extension in the negotiation. The module of each transport that needs its peer's consent defines one.
pub(crate) struct Extension {
    /// Its bit in an offer.
    pub(crate) bit: Extensions,
    /// Its bytes among the settings.
    pub(crate) range: Range<usize>,
    /// Whether communication is possible with a peer that has these settings.
    pub(crate) is_usable: fn(&Settings) -> bool,
}

/// The offer of this side for one queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offer {
    /// The offered extensions.
    pub extensions: Extensions,
    /// Their settings.
    pub settings: Settings,
}

/// The extensions that both sides support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agreed {
    /// The extensions, at least one.
    pub extensions: Extensions,
    /// The peer's settings of these extensions.
    pub settings: Settings,
}

/// The result of a negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NegotiationOutcome {
    /// The peer accepts packets of these extensions.
    Agreed(Agreed),
    /// The standard's transport is used.
    Standard(FallbackReason),
}

/// Why a queue pair that offered an extension uses the standard with its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FallbackReason {
    /// The peer answered with an error: it does not know the negotiation. Linux does so.
    Refused,
    /// The peer did not answer.
    Silent,
    /// The peer and this side have no extension in common.
    NothingInCommon,
    /// The peer's address never answered before, so this connection did not wait for an answer.
    KnownSilent,
    /// The local link does not carry the extension's packets: its MTU must be at least this.
    LinkMtu(u32),
    /// With authentication: a MAD that claimed to be the peer's had no valid MAC. The peer has no secret or another one, or a third party
    /// sent the MAD.
    Unauthenticated,
}

/// The protocol that a queue pair uses for its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The peer has not answered yet; requests wait.
    Waiting,
    /// The standard's Go-Back-N, with the reason.
    Standard(FallbackReason),
    /// The extension that was offered.
    Agreed,
}

/// The state of the local offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    /// The offer is sent next.
    Due,
    /// The offer was sent; at this time the next one is sent, or the negotiation gives up.
    Waiting(Instant),
    /// No further offer is sent.
    Over,
}

/// An answer that is sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    transaction_id: u64,
    extensions: Extensions,
}

/// One queue pair's negotiation with its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiator {
    offer: Offer,
    qpn: Qpn,
    peer_qpn: Qpn,
    transaction_id: u64,
    asking: Asking,
    /// Number of offers sent.
    tries: u8,
    /// When the first offer was sent.
    asked: Instant,
    known_rtt: Duration,
    rtt: Option<Duration>,
    /// The offer is sent once more, independently of its timer, because the peer has shown that it is present.
    repeat: bool,
    /// The offer was sent once more in this way.
    repeated: bool,
    answer: Option<Answer>,
    outcome: Option<NegotiationOutcome>,
}

impl Negotiator {
    /// Creates the negotiation of the queue pairs `qpns`, the local one and the peer's, when the local one becomes ready to receive.
    ///
    /// `transaction_id` must not be in use by another negotiation of this NIC, and must be hard to guess. `known_silent` means that the
    /// peer's address never answered before: one offer is still sent, but the outcome is known at once. The outcome is also known at once
    /// if nothing is offered; then a peer that offers is only told so. If authentication is offered, the queue pair waits for an answer in
    /// any case.
    pub fn new(offer: Offer, qpns: (Qpn, Qpn), transaction_id: u64, known_silent: bool) -> Negotiator {
        let offer = extension::usable(offer);
        let nothing = offer.extensions == Extensions::NONE;
        let outcome = match (nothing, known_silent && !offer.extensions.contains(Extensions::AUTH)) {
            (true, _) => Some(NegotiationOutcome::Standard(FallbackReason::NothingInCommon)),
            (false, true) => Some(NegotiationOutcome::Standard(FallbackReason::KnownSilent)),
            (false, false) => None,
        };
        Negotiator {
            offer,
            qpn: qpns.0,
            peer_qpn: qpns.1,
            transaction_id,
            asking: if nothing { Asking::Over } else { Asking::Due },
            tries: 0,
            asked: Instant::ZERO,
            known_rtt: Duration::ZERO,
            rtt: None,
            repeat: false,
            repeated: false,
            answer: None,
            outcome,
        }
    }

    /// Sets the known round-trip time to the peer, so that a far peer gets enough time to answer.
    pub fn with_known_rtt(self, rtt: Duration) -> Negotiator {
        Negotiator { known_rtt: rtt, ..self }
    }

    /// A negotiation whose outcome is already known. Offers of the peer are answered as usual.
    pub(crate) fn agreed(self, agreed: Agreed) -> Negotiator {
        Negotiator { asking: Asking::Over, outcome: Some(NegotiationOutcome::Agreed(agreed)), ..self }
    }

    /// The next MAD that is due, answers before offers. Sending an offer starts the timer.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Negotiation<'static>> {
        if let Some(answer) = self.answer.take() {
            return Some(self.mad(Kind::Answer(Status::SUCCESS), answer.transaction_id, answer.extensions));
        }
        let repeat = core::mem::take(&mut self.repeat);
        if self.asking != Asking::Due {
            self.repeated |= repeat;
            return repeat.then(|| self.mad(Kind::Offer, self.transaction_id, self.offer.extensions));
        }
        if self.tries == 0 {
            self.asked = now;
        }
        self.tries += 1;
        self.asking = match self.outcome {
            None => Asking::Waiting(now + self.wait()),
            Some(_) => Asking::Over,
        };
        Some(self.mad(Kind::Offer, self.transaction_id, self.offer.extensions))
    }

    /// Whether [`Negotiator::poll_transmit`] has a MAD.
    #[inline]
    pub fn has_something(&self) -> bool {
        self.answer.is_some() || self.asking == Asking::Due || self.repeat
    }

    /// Handles the peer's offer (Get), including one stored from before RTR. Each offer is answered, because a repeated offer shows that
    /// the answer was lost. An offer decides nothing: it contains no id of this side, so anyone could have sent it. But a peer that offers
    /// is present and will answer. So if the local offer was given up, or waits longer than at first, it is sent again at once, one time.
    pub fn handle_offer(&mut self, _now: Instant, mad: &Negotiation<'_>) {
        if mad.kind != Kind::Offer || !self.is_between_us(mad) {
            return;
        }
        let common = self.common(mad);
        self.answer = Some(Answer { transaction_id: mad.transaction_id, extensions: common.extensions });
        let asks_long = match self.outcome {
            None => self.tries > 1,
            Some(NegotiationOutcome::Agreed(_)) => false,
            Some(NegotiationOutcome::Standard(_)) => self.tries > 0,
        };
        // Only once: two sides that receive each other's offers and no answer must not continue forever.
        self.repeat |= asks_long && !self.repeated && common.extensions != Extensions::NONE;
    }

    /// Handles the peer's answer (GetResp). Extensions that were not offered are ignored. An answer after silence still counts, even if it
    /// is too late for the caller to use it.
    ///
    /// Returns whether the MAD answers an offer of this side.
    pub fn handle_answer(&mut self, now: Instant, mad: &Negotiation<'_>) -> bool {
        match mad.kind {
            Kind::Answer(Status::SUCCESS) => {}
            Kind::Answer(_) => return self.handle_refusal(now, mad.transaction_id),
            Kind::Offer => return false,
        }
        let ours = self.is_between_us(mad) && self.is_ours(mad.transaction_id);
        if ours {
            self.take_rtt(now);
            if self.is_undecided() {
                self.decide(self.common(mad));
            }
        }
        ours
    }

    /// Handles a GetResp with any error status. Its other contents do not matter: a peer that does not know the negotiation may return
    /// anything after the MAD header. Returns whether the MAD answers an offer of this side.
    pub fn handle_refusal(&mut self, now: Instant, transaction_id: u64) -> bool {
        let ours = self.is_ours(transaction_id);
        if ours {
            self.take_rtt(now);
            if self.is_undecided() {
                self.end(NegotiationOutcome::Standard(FallbackReason::Refused));
            }
        }
        ours
    }

    /// When to call [`Negotiator::handle_timeout`].
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.asking {
            Asking::Waiting(until) => Some(until),
            Asking::Due | Asking::Over => None,
        }
    }

    /// Handles the timeout given by [`Negotiator::poll_timeout`]; does nothing before that time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|until| now < until) {
            return;
        }
        if self.tries < MIN_TRIES || now.saturating_since(self.asked) < PATIENCE {
            self.asking = Asking::Due;
        } else {
            self.end(NegotiationOutcome::Standard(FallbackReason::Silent));
        }
    }

    /// Stops sending, unless the peer makes an offer. A pending outcome stays unknown.
    pub fn fall_silent(&mut self) {
        (self.asking, self.repeat, self.answer) = (Asking::Over, false, None);
    }

    /// The outcome; `None` while it is pending. Plain RC may later become an agreement, but never the reverse.
    #[inline]
    pub fn outcome(&self) -> Option<NegotiationOutcome> {
        self.outcome
    }

    /// The round-trip time of the offer and its answer, if the offer was sent once. Otherwise it is unknown which offer was answered.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Whether packets of all these extensions are accepted from the peer. They were offered, so the peer may send them at any time, even
    /// if its answer was lost and the local outcome is plain RC.
    #[inline]
    pub fn accepts(&self, extensions: Extensions) -> bool {
        self.offer.extensions.contains(extensions)
    }

    /// How long to wait after the offer that is sent now.
    fn wait(&self) -> Duration {
        let first = MIN_WAIT.max(self.known_rtt.saturating_mul(2));
        first.saturating_mul(1 << (self.tries - 1).min(16))
    }

    fn mad(&self, kind: Kind, transaction_id: u64, extensions: Extensions) -> Negotiation<'static> {
        Negotiation {
            transaction_id,
            kind,
            version: VERSION,
            sender_qpn: self.qpn.value(),
            receiver_qpn: self.peer_qpn.value(),
            extensions,
            settings: extension::settings_of(extensions, self.offer.settings),
            sdr: None,
        }
    }

    fn is_between_us(&self, mad: &Negotiation<'_>) -> bool {
        mad.sender_qpn == self.peer_qpn.value() && mad.receiver_qpn == self.qpn.value()
    }

    /// Whether this is the id of an offer that was sent.
    fn is_ours(&self, transaction_id: u64) -> bool {
        self.tries > 0 && self.transaction_id == transaction_id
    }

    /// Whether only silence has decided so far, or the peer was asked once more since.
    fn is_undecided(&self) -> bool {
        match self.outcome {
            None | Some(NegotiationOutcome::Standard(FallbackReason::Silent | FallbackReason::KnownSilent)) => true,
            Some(NegotiationOutcome::Standard(_)) => self.repeated,
            Some(NegotiationOutcome::Agreed(_)) => false,
        }
    }

    /// The extensions that this side and a MAD of the peer have in common.
    fn common(&self, mad: &Negotiation<'_>) -> Agreed {
        let peer = extension::usable(Offer { extensions: mad.extensions, settings: mad.settings });
        let extensions = extension::common(&self.offer, &peer);
        Agreed { extensions, settings: extension::settings_of(extensions, peer.settings) }
    }

    fn decide(&mut self, common: Agreed) {
        self.end(match common.extensions {
            Extensions::NONE => NegotiationOutcome::Standard(FallbackReason::NothingInCommon),
            _ => NegotiationOutcome::Agreed(common),
        });
    }

    fn end(&mut self, outcome: NegotiationOutcome) {
        (self.asking, self.repeat) = (Asking::Over, false);
        self.outcome = Some(outcome);
    }

    fn take_rtt(&mut self, now: Instant) {
        if self.tries == 1 && !self.repeated && self.rtt.is_none() {
            self.rtt = Some(now - self.asked);
        }
    }
}
