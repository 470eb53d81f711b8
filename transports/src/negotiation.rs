//! Which extensions a connected queue pair speaks with its peer: offers, answers, and the outcome that follows from them.
//!
//! Both sides offer when they become ready to receive, in a MAD to the peer's QP1 ([`vendor::Negotiation`]). Who offers an
//! extension takes its packets from then on, whatever becomes of the MADs. Only the peer's answer decides: it has the id that we
//! drew, so nobody who does not see our packets can have sent it. The peer's offer is answered, and says that the peer is there. A
//! peer that refuses, says nothing, or has nothing in common with us gets standard packets.
//!
//! What an extension is set to stands in bytes of its own ([`vendor::Settings`]), which nobody but the extension reads. What one end of
//! SDR tells the other is longer: the [`Agreement`] puts it into MADs and keeps the peer's, and a negotiator sees only its bit.
//!
//! A [`Negotiator`] is one queue pair's part in it, from RTR on. Its caller sees to it that only MADs from the peer's address get
//! here, keeps an offer that came before RTR, and remembers who never answers ([`SilentPeers`]).

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

/// Offers that a peer gets before it counts as silent, at least.
pub(crate) const MIN_TRIES: u8 = 3;
/// How long the first offer waits for an answer, at least; longer where the round trip is known to be more than half of it. Each
/// further offer waits twice as long as the one before.
pub(crate) const MIN_WAIT: Duration = Duration::from_millis(50);
/// How long all offers together wait, at least: one side may become ready to receive long before the other, and the round trip
/// may be long without anybody knowing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// An extension as the negotiation sees it. The module of each transport that needs its peer's consent has one.
pub(crate) struct Extension {
    /// Its bit in an offer.
    pub(crate) bit: Extensions,
    /// Its bytes among the settings.
    pub(crate) range: Range<usize>,
    /// Whether a peer can be spoken to that has these settings.
    pub(crate) is_usable: fn(&Settings) -> bool,
}

/// The offer of this side for one queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offer {
    /// The extensions that it speaks.
    pub extensions: Extensions,
    /// Their settings.
    pub settings: Settings,
}

/// The extensions that both sides speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agreed {
    /// The extensions, at least one.
    pub extensions: Extensions,
    /// The peer's settings of these extensions.
    pub settings: Settings,
}

/// How a negotiation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NegotiationOutcome {
    /// The peer takes packets of these extensions.
    Agreed(Agreed),
    /// The transport of the standard.
    Standard(FallbackReason),
}

/// Why a queue pair that offered an extension speaks the standard with its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FallbackReason {
    /// The peer answered with an error: it knows nothing of the negotiation, as Linux.
    Refused,
    /// The peer said nothing.
    Silent,
    /// The peer speaks no extension that we do.
    NothingInCommon,
    /// The peer's address never answered before, so nobody waited for it this time.
    KnownSilent,
    /// Our own link does not carry the extension's packets: its MTU must be at least this.
    LinkMtu(u32),
    /// With authentication: what came as the peer's had no right MAC, so the peer has no secret or another one, or somebody else sent it.
    Unauthenticated,
}

/// The protocol that a queue pair's requests are sent by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The peer has not answered yet; requests wait.
    Waiting,
    /// The standard's Go-Back-N, and why.
    Standard(FallbackReason),
    /// The extension that was offered.
    Agreed,
}

/// How our own offer fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    /// It goes out next.
    Due,
    /// It went out; time for the next one, or to give up, is then.
    Waiting(Instant),
    /// Nothing more goes out.
    Over,
}

/// An answer that goes out next.
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
    /// Offers that went out.
    tries: u8,
    /// When the first one did.
    asked: Instant,
    known_rtt: Duration,
    rtt: Option<Duration>,
    /// Our offer goes out once more, beside its timer: the peer showed that it is there.
    repeat: bool,
    /// It did.
    repeated: bool,
    answer: Option<Answer>,
    outcome: Option<NegotiationOutcome>,
}

impl Negotiator {
    /// For the queue pairs `qpns`, ours and the peer's, when ours becomes ready to receive.
    ///
    /// `transaction_id` is one that no other negotiation of this NIC has in flight, and hard to guess. With `known_silent` the
    /// peer's address never answered before: one offer still goes out, but the outcome stands at once. It stands at once, too,
    /// where nothing is offered: then peers are only told so. Who offers authentication waits for an answer in any case.
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

    /// A negotiation where the round trip to the peer is known from before: a far peer is given the time that it needs.
    pub fn with_known_rtt(self, rtt: Duration) -> Negotiator {
        Negotiator { known_rtt: rtt, ..self }
    }

    /// A negotiation whose outcome is known from before. Offers of the peer's are answered as ever.
    pub(crate) fn agreed(self, agreed: Agreed) -> Negotiator {
        Negotiator { asking: Asking::Over, outcome: Some(NegotiationOutcome::Agreed(agreed)), ..self }
    }

    /// The next MAD that is due, an answer before an offer. An offer that goes out starts the clock.
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

    /// Whether [`Negotiator::poll_transmit`] has something.
    #[inline]
    pub fn has_something(&self) -> bool {
        self.answer.is_some() || self.asking == Asking::Due || self.repeat
    }

    /// The peer's offer (Get), also one that was kept from before RTR. Each one is answered: that the peer repeats it says that our answer
    /// got lost. It decides nothing: it carries no id of ours, so anybody could have sent it. But who offers is there, and will
    /// answer: where our offer was given up, or waits for longer than at first, it goes out at once, one time.
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
        // Once: two that hear each other's offers and no answer must not go on for ever.
        self.repeat |= asks_long && !self.repeated && common.extensions != Extensions::NONE;
    }

    /// The peer's answer (GetResp). What it accepts beyond our offer is left out. After silence it still counts, if it comes
    /// too late for the caller to make use of it or not.
    ///
    /// Says whether it answers an offer of ours.
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

    /// A GetResp with any error status. What else it says does not matter: a peer that knows nothing of this may send back
    /// anything behind the MAD header. Says whether it answers an offer of ours.
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

    /// When [`Negotiator::handle_timeout`] has something to do.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.asking {
            Asking::Waiting(until) => Some(until),
            Asking::Due | Asking::Over => None,
        }
    }

    /// Lets the time come that [`Negotiator::poll_timeout`] said; earlier it does nothing.
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

    /// Nothing more goes out, unless the peer offers something. What was waited for is not known.
    pub fn fall_silent(&mut self) {
        (self.asking, self.repeat, self.answer) = (Asking::Over, false, None);
    }

    /// The outcome; `None` while it is waited for. From plain RC it may become an agreement later, never the other way.
    #[inline]
    pub fn outcome(&self) -> Option<NegotiationOutcome> {
        self.outcome
    }

    /// The round trip of our offer and what came back, if it went out once: else nobody knows which one was answered.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Whether packets of all these extensions are taken from the peer: we offered them, so it may send them at any time,
    /// also when its answer got lost and our outcome is plain RC.
    #[inline]
    pub fn accepts(&self, extensions: Extensions) -> bool {
        self.offer.extensions.contains(extensions)
    }

    /// How long the offer that goes out now waits.
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

    /// Whether this is the id of an offer that went out.
    fn is_ours(&self, transaction_id: u64) -> bool {
        self.tries > 0 && self.transaction_id == transaction_id
    }

    /// Whether nothing but silence has decided yet, or the peer was asked once more since.
    fn is_undecided(&self) -> bool {
        match self.outcome {
            None | Some(NegotiationOutcome::Standard(FallbackReason::Silent | FallbackReason::KnownSilent)) => true,
            Some(NegotiationOutcome::Standard(_)) => self.repeated,
            Some(NegotiationOutcome::Agreed(_)) => false,
        }
    }

    /// The extensions that we and a MAD of the peer have in common.
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
