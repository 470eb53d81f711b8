//! The negotiations of an endpoint with its peer: authentication, SDR, and the extension of its transport.

use std::net::IpAddr;

use softnic_wire::auth::AuthSettings;
use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::vendor::{Extensions, Kind, Negotiation};
use softnic_wire::sdr::SdrSettings;
use softnic_wire::{Instant, Qpn};

use super::{Endpoint, Terms};
use crate::auth::{Auth, AuthError, Secret};
use crate::congestion::EqdsConfig;
use crate::negotiation::{Agreed, Agreement, Choice, FallbackReason, NegotiationOutcome};
use crate::qp::{NoCongestionControl, QpKind};
use crate::sdr::{SdrOfferError, SdrOutcome, SdrTerms};
use crate::{QpState, QueuePair};

impl Endpoint {
    /// Authenticates all packets from now on; packets must carry their payload. The negotiation uses this transaction id.
    pub fn authenticate(&mut self, secret: &Secret, transaction_id: u64) -> Result<(), AuthError> {
        if self.kind != QpKind::Rc {
            return Err(AuthError::Transport);
        }
        if !matches!(self.qp.state(), QpState::Reset | QpState::Init) {
            return Err(AuthError::State);
        }
        let (mut agreement, auth) = (Agreement::new(self.qp.qpn(), transaction_id), Some(Auth::new(secret)?));
        agreement.offer_sdr(self.terms.as_mut().and_then(|terms| terms.agreement.take_sdr()));
        self.terms = Some(Box::new(Terms { agreement, auth }));
        self.find_layers();
        Ok(())
    }

    /// Offers SDR to the peer from RTR on, besides other offers: this scheme, and `info` about the local end. If there was no negotiation
    /// before, it uses this transaction id.
    pub fn offer_sdr(&mut self, settings: SdrSettings, info: &[u8], transaction_id: u64) -> Result<(), SdrOfferError> {
        if !self.kind.is_connected() {
            return Err(SdrOfferError::Transport);
        }
        if !matches!(self.qp.state(), QpState::Reset | QpState::Init) {
            return Err(SdrOfferError::State);
        }
        let sdr = Box::new(SdrTerms::new(settings, info)?);
        let qpn = self.qp.qpn();
        let first = || Box::new(Terms { agreement: Agreement::new(qpn, transaction_id), auth: None });
        self.terms.get_or_insert_with(first).agreement.offer_sdr(Some(sdr));
        self.find_layers();
        Ok(())
    }

    /// Whether the endpoint has agreed on extensions with its peer, or negotiates them.
    pub fn negotiates(&self) -> bool {
        self.terms.is_some()
    }

    /// Offers credit to the peer from RTR on, besides other offers; packets wait for the peer's credit if the peer offers it too. `None`
    /// offers no credit. If there was no negotiation before, it uses this transaction id.
    pub fn use_credit(&mut self, config: Option<EqdsConfig>, transaction_id: u64) -> Result<(), NoCongestionControl> {
        if !self.transport.has_credit() {
            return Err(NoCongestionControl);
        }
        self.qp.use_credit(config)?;
        let qpn = self.qp.qpn();
        let first = || Box::new(Terms { agreement: Agreement::new(qpn, transaction_id), auth: None });
        if config.is_some() {
            self.terms.get_or_insert_with(first);
        }
        self.find_layers();
        Ok(())
    }

    /// The agreement with the peer in this connection, if it can be kept for the next one; the keys of authentication are drawn for each.
    pub fn agreed(&self) -> Option<Agreed> {
        let agreement = self.agreement()?;
        match agreement.outcome() {
            Some(NegotiationOutcome::Agreed(agreed)) if !self.is_authenticated() => Some(agreed),
            Some(_) => None,
            // Reconnecting has failed since: the agreement is kept for the next attempt.
            None => agreement.kept(),
        }
    }

    /// Keeps the agreement of the last connection for the next one, which starts with RTR: nothing is offered.
    pub fn keep_agreed(&mut self, agreed: Agreed) {
        self.terms.iter_mut().for_each(|terms| terms.agreement.keep(agreed));
    }

    /// The extensions that this endpoint uses if its peer agrees. SDR is not among them: it is used by the software on the NIC, on other
    /// queue pairs.
    fn extensions(&self) -> Extensions {
        let extension = self.transport.extension();
        if self.is_authenticated() { extension.union(Extensions::AUTH) } else { extension }
    }

    /// Whether a MAD from one address to the other is authentic, if that must be proven.
    pub fn is_authentic(&mut self, mad: &[u8; MAD_LEN], from: IpAddr, to: IpAddr) -> bool {
        self.auth_mut().is_none_or(|auth| auth.verify(mad, from, to))
    }

    /// Handles a MAD of the negotiation from this address, for this queue pair. Returns `false` for an answer that matches no offer, and
    /// for any MAD to a halted queue pair: the next connection answers, with values drawn for it.
    pub fn handle_mad(&mut self, now: Instant, from: IpAddr, mad: &Negotiation<'_>) -> bool {
        if !self.kind.is_connected() || self.qp.is_halted() {
            return false;
        }
        let is_offer = mad.kind == Kind::Offer;
        if let Some(Terms { agreement, auth }) = self.terms.as_deref_mut() {
            let fits = agreement.handle_mad(now, from, mad);
            if let (Some(auth), true) = (auth, fits) {
                auth.on_mad(mad);
            }
            self.follow_negotiation();
            return fits;
        }
        if is_offer {
            // A peer that offers an extension to a transport of the standard gets a refusal at once, and need not wait.
            self.decline.note(mad);
            if let (Some(_), Some(dest_qp)) = (self.peer(), self.attr.dest_qp) {
                self.check_declined(dest_qp);
            }
        }
        is_offer
    }

    /// Answers the offer of a peer, now that the peer is known.
    pub(super) fn check_declined(&mut self, peer: Qpn) {
        if self.decline.is_due_to(peer) {
            (self.due, self.bare) = (true, false);
        }
    }

    /// The peer does not know the extension offered under this transaction id; returns `false` if nothing was offered.
    pub fn handle_refusal(&mut self, now: Instant, transaction_id: u64) -> bool {
        let Some(terms) = self.terms.as_mut().filter(|_| !self.qp.is_halted()) else { return false };
        let fits = terms.agreement.handle_refusal(now, transaction_id);
        self.follow_negotiation();
        fits
    }

    /// Passes changes of the negotiation to the queue pair and the shim.
    pub(super) fn follow_negotiation(&mut self) {
        let Some(negotiator) = self.agreement().and_then(|a| a.negotiator()) else { return };
        let (outcome, rtt) = (negotiator.outcome(), negotiator.rtt());
        (self.due, self.bare) = (true, false);
        if self.refusal().is_some() {
            return;
        }
        let mut of_transport = outcome;
        if let Some(NegotiationOutcome::Agreed(agreed)) = &outcome {
            if let Some(auth) = self.auth_mut() {
                auth.on_agreement(agreed.settings.get::<AuthSettings>());
            }
            let extension = self.transport.extension();
            if extension == Extensions::NONE || !agreed.extensions.contains(extension) {
                of_transport = Some(NegotiationOutcome::Standard(FallbackReason::NothingInCommon));
            } else if let Some(shim) = &mut self.shim {
                shim.on_agreement(agreed);
            }
        }
        self.qp.on_credit_negotiation(outcome.as_ref());
        // No packet waits for the peer's answer about SDR.
        if self.extensions() != Extensions::NONE || self.qp.offers_credit() {
            self.qp.on_negotiation(of_transport.as_ref(), rtt);
        }
    }

    /// Why the peer is refused, if it must be authenticated and is not: the queue pair has to fail.
    pub fn refusal(&self) -> Option<FallbackReason> {
        let auth = self.auth()?;
        self.agreement()?.unauthenticated().map(|reason| auth.refusal(reason))
    }

    /// The protocol of the requests, if an extension other than SDR is offered; `None` for others, and if the peer is refused. If only
    /// credit is offered, whether credit is agreed on.
    pub fn choice(&self) -> Option<Choice> {
        let agreement = self.agreement()?;
        if self.extensions() == Extensions::NONE {
            return self.qp.offers_credit().then(|| agreement.choice(Extensions::EQDS));
        }
        if let Some(reason) = self.refusal() {
            return Some(Choice::Standard(reason));
        }
        Some(self.qp.choice().unwrap_or_else(|| agreement.choice(self.extensions())))
    }

    /// Why the endpoint fell back to the standard, if an extension was offered: the extension of the transport, else SDR.
    pub fn fallback_reason(&self) -> Option<FallbackReason> {
        let agreement = self.agreement()?;
        let sdr = self.transport.extension() == Extensions::NONE && agreement.sdr().is_some();
        let of_sdr = if sdr { Extensions::SDR } else { Extensions::NONE };
        agreement.fell_back(self.extensions().union(of_sdr))
    }

    /// The state of SDR with the peer; `None` if it is not offered.
    pub fn sdr(&self) -> Option<SdrOutcome<'_>> {
        self.agreement()?.sdr()
    }
}
