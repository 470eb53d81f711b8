//! The agreement of a queue pair with its peer across resets of the queue pair: offers that arrive early, and one negotiation per
//! connection.

use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::mad::vendor::{Extensions, Kind, Negotiation};
use softnic_wire::mad::{MAD_LEN, Status};
use softnic_wire::{Instant, Qpn, Template, TxFrame};

use super::frame::write_signed;
use super::{Agreed, Choice, FallbackReason, NegotiationOutcome, Negotiator, Offer};
use crate::sdr::{SdrOutcome, SdrTerms};

/// A queue pair's negotiations.
#[derive(Debug, Clone)]
pub struct Agreement {
    qpn: Qpn,
    transaction_id: u64,
    /// Set from RTR on.
    negotiator: Option<Negotiator>,
    /// An offer that arrived before RTR.
    early: Option<(IpAddr, Negotiation<'static>)>,
    /// The agreement of the last connection, if it is kept for this one.
    kept: Option<Agreed>,
    /// Why nothing is offered.
    refused: Option<FallbackReason>,
    /// The state of SDR, if it is offered. Boxed, because most queue pairs do not offer SDR.
    sdr: Option<Box<SdrTerms>>,
}

impl Agreement {
    /// Creates the agreement of the queue pair `qpn`, before RTR. The transaction id identifies the answers.
    pub fn new(qpn: Qpn, transaction_id: u64) -> Agreement {
        Agreement { qpn, transaction_id, negotiator: None, early: None, kept: None, refused: None, sdr: None }
    }

    /// Returns to the reset state.
    pub fn reset(&mut self) {
        (self.negotiator, self.early, self.kept, self.refused) = (None, None, None, None);
        self.sdr.iter_mut().for_each(|sdr| sdr.reset());
    }

    /// Keeps the agreement of the last connection for the next one, with the same peer.
    pub(crate) fn keep(&mut self, agreed: Agreed) {
        self.kept = Some(agreed);
    }

    /// The agreement kept for the next connection, if that has not started.
    pub(crate) fn kept(&self) -> Option<Agreed> {
        self.kept
    }

    /// Stops sending until the queue pair is reset.
    pub(crate) fn fall_silent(&mut self) {
        self.negotiator.iter_mut().for_each(Negotiator::fall_silent);
    }

    /// Offers SDR from the next RTR on, besides other offers.
    pub(crate) fn offer_sdr(&mut self, sdr: Option<Box<SdrTerms>>) {
        self.sdr = sdr;
    }

    /// Takes the SDR offer out, for the agreement that replaces this one.
    pub(crate) fn take_sdr(&mut self) -> Option<Box<SdrTerms>> {
        self.sdr.take()
    }

    /// INIT to RTR: sends the offer to `peer`. If nothing is offered, a peer that offers is told so. `known_silent`: the peer's address has
    /// never answered an offer. `known_rtt`: the round-trip time to the peer if it was measured, else zero.
    pub fn begin(&mut self, offer: Offer, peer: (IpAddr, Qpn), known_silent: bool, known_rtt: Duration) {
        // A new id for each connection; the queue pair number stays in the lower bits.
        self.transaction_id = self.transaction_id.wrapping_add(1 << 24);
        let offer = self.sdr.as_ref().map_or(offer, |sdr| sdr.beside(offer));
        let mut negotiator =
            Negotiator::new(offer, (self.qpn, peer.1), self.transaction_id, known_silent).with_known_rtt(known_rtt);
        if let Some(agreed) = self.kept.take() {
            negotiator = negotiator.agreed(agreed);
        }
        if let Some((from, mad)) = self.early.take()
            && from == peer.0
        {
            negotiator.handle_offer(Instant::from_nanos(0), &mad);
        }
        self.negotiator = Some(negotiator);
    }

    /// The extension of the transport was not offered, for this reason; others were.
    pub(crate) fn set_refused(&mut self, reason: Option<FallbackReason>) {
        self.refused = reason;
    }

    /// The offer of a peer at this address that arrived before RTR.
    pub(crate) fn early(&self, peer: IpAddr) -> Option<Negotiation<'static>> {
        self.early.filter(|(from, _)| *from == peer).map(|(_, mad)| mad)
    }

    /// Handles a MAD of the negotiation from this address, for this queue pair. An answer that matches no offer is dropped (`false`).
    pub fn handle_mad(&mut self, now: Instant, from: IpAddr, mad: &Negotiation<'_>) -> bool {
        let Some(negotiator) = &mut self.negotiator else {
            let is_offer = mad.kind == Kind::Offer;
            if is_offer {
                self.early = Some((from, mad.without_info()));
            }
            return is_offer;
        };
        match mad.kind {
            Kind::Offer => {
                negotiator.handle_offer(now, mad);
                true
            }
            Kind::Answer(Status::SUCCESS) => {
                let before = negotiator.outcome();
                let fits = negotiator.handle_answer(now, mad);
                if negotiator.outcome() != before {
                    self.keep_info(mad);
                }
                fits
            }
            Kind::Answer(_) => negotiator.handle_refusal(now, mad.transaction_id),
        }
    }

    /// An answer decided the negotiation: stores its SDR information, if SDR was agreed on.
    fn keep_info(&mut self, answer: &Negotiation<'_>) {
        if self.agreed(Extensions::SDR).is_some()
            && let (Some(sdr), Some(info)) = (&mut self.sdr, &answer.sdr)
        {
            sdr.on_agreement(info);
        }
    }

    /// The peer does not know the extension offered under this transaction id; returns `false` if nothing was offered.
    pub fn handle_refusal(&mut self, now: Instant, transaction_id: u64) -> bool {
        self.negotiator.as_mut().is_some_and(|negotiator| negotiator.handle_refusal(now, transaction_id))
    }

    /// The negotiation of this connection, from RTR on.
    pub fn negotiator(&self) -> Option<&Negotiator> {
        self.negotiator.as_ref()
    }

    /// The outcome, once it is known.
    pub fn outcome(&self) -> Option<NegotiationOutcome> {
        self.negotiator.as_ref()?.outcome()
    }

    /// The agreement, if it includes all these extensions.
    pub fn agreed(&self, extensions: Extensions) -> Option<Agreed> {
        match self.outcome()? {
            NegotiationOutcome::Agreed(agreed) if agreed.extensions.contains(extensions) => Some(agreed),
            _ => None,
        }
    }

    /// Why these extensions are not used with the peer, once that is known.
    pub fn fell_back(&self, extensions: Extensions) -> Option<FallbackReason> {
        self.outcome()?;
        self.refused.or_else(|| self.lacks(extensions))
    }

    /// Why the peer is not authenticated although authentication was offered, once that is known.
    pub(crate) fn unauthenticated(&self) -> Option<FallbackReason> {
        self.lacks(Extensions::AUTH)
    }

    /// Why these extensions, which were offered, are not agreed on, once that is known.
    fn lacks(&self, extensions: Extensions) -> Option<FallbackReason> {
        match self.outcome()? {
            NegotiationOutcome::Agreed(agreed) if agreed.extensions.contains(extensions) => None,
            NegotiationOutcome::Agreed(_) => Some(FallbackReason::NothingInCommon),
            NegotiationOutcome::Standard(reason) => Some(reason),
        }
    }

    /// The state of SDR, if it is offered.
    pub fn sdr(&self) -> Option<SdrOutcome<'_>> {
        let sdr = self.sdr.as_ref()?;
        Some(match (self.outcome(), self.lacks(Extensions::SDR), sdr.of_peer()) {
            (None, ..) => SdrOutcome::Open,
            (_, Some(reason), _) => SdrOutcome::FellBack(reason),
            (Some(NegotiationOutcome::Agreed(agreed)), None, Some(info)) => {
                SdrOutcome::Agreed { settings: agreed.settings.get(), info }
            }
            // A peer that names SDR without information does not support it; this does not occur in a MAD that was parsed.
            (Some(_), None, _) => SdrOutcome::FellBack(FallbackReason::NothingInCommon),
        })
    }

    /// The protocol of the requests, if these extensions were offered.
    pub fn choice(&self, extensions: Extensions) -> Choice {
        match (self.outcome(), self.fell_back(extensions)) {
            (None, _) => Choice::Waiting,
            (_, Some(reason)) => Choice::Standard(reason),
            (_, None) => Choice::Agreed,
        }
    }

    /// Whether there is a MAD to send.
    #[inline]
    pub fn has_something(&self) -> bool {
        self.negotiator.as_ref().is_some_and(|n| n.has_something())
    }

    /// Writes the MAD that is due; `sign` adds the MAC, if there is one.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        template: &Template,
        sign: impl FnOnce(&mut [u8; MAD_LEN]),
    ) -> bool {
        let Some(negotiator) = &mut self.negotiator else { return false };
        let Some(mad) = negotiator.poll_transmit(now) else { return false };
        let sdr = self.sdr.as_ref().filter(|_| mad.extensions.contains(Extensions::SDR)).and_then(|sdr| sdr.info());
        write_signed(tx, template, &Negotiation { sdr, ..mad }, sign)
    }

    /// Whether there is nothing to send or wait for until another MAD arrives.
    pub(crate) fn is_over(&self) -> bool {
        !self.has_something() && self.poll_timeout().is_none()
    }

    /// When to call [`Agreement::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.negotiator.as_ref()?.poll_timeout()
    }

    /// Handles a timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(negotiator) = &mut self.negotiator {
            negotiator.handle_timeout(now);
        }
    }
}
