//! What an endpoint negotiates with its peer: authentication, SDR, and the extension of its transport.

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
    /// Its packets, which carry their payload, are authenticated from now on. The negotiation has this transaction id.
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

    /// SDR is offered to the peer from RTR on, beside what else is: this scheme, and what the peer must know of this end. The negotiation
    /// has this transaction id, where there was to be none.
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

    /// Whether it agrees with its peer on anything, or tries to.
    pub fn negotiates(&self) -> bool {
        self.terms.is_some()
    }

    /// Credit is offered to the peer from RTR on, beside what else is, and what is sent waits for the peer's where the peer offers it too; or
    /// no credit. The negotiation has this transaction id, where there was to be none.
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

    /// What it agreed on with its peer in this life, where that can hold in another one: keys of authentication are
    /// drawn for each.
    pub fn agreed(&self) -> Option<Agreed> {
        let agreement = self.agreement()?;
        match agreement.outcome() {
            Some(NegotiationOutcome::Agreed(agreed)) if !self.is_authenticated() => Some(agreed),
            Some(_) => None,
            // Connecting anew has failed since: it holds for the next time.
            None => agreement.kept(),
        }
    }

    /// What it agreed on with its peer in its last life holds in the next one, which begins with RTR: nothing is offered.
    pub fn keep_agreed(&mut self, agreed: Agreed) {
        self.terms.iter_mut().for_each(|terms| terms.agreement.keep(agreed));
    }

    /// What it speaks itself where its peer agrees. SDR is not among it: that is spoken by the software on the NIC, on other queue pairs.
    fn extensions(&self) -> Extensions {
        let extension = self.transport.extension();
        if self.is_authenticated() { extension.union(Extensions::AUTH) } else { extension }
    }

    /// Whether a MAD from one address to the other is the peer's, where that must be proven.
    pub fn is_authentic(&mut self, mad: &[u8; MAD_LEN], from: IpAddr, to: IpAddr) -> bool {
        self.auth_mut().is_none_or(|auth| auth.verify(mad, from, to))
    }

    /// A MAD of the negotiation came, from this address; for this queue pair, as it says. An answer to no offer of ours
    /// is dropped (`false`), and whatever comes for one that has halted: its next life answers, with what is drawn for
    /// that.
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
            // A peer that offers something to a transport of the standard is told so at once, and need not wait.
            self.decline.note(mad);
            if let (Some(_), Some(dest_qp)) = (self.peer(), self.attr.dest_qp) {
                self.check_declined(dest_qp);
            }
        }
        is_offer
    }

    /// The peer is known: an offer of it is answered.
    pub(super) fn check_declined(&mut self, peer: Qpn) {
        if self.decline.is_due_to(peer) {
            (self.due, self.bare) = (true, false);
        }
    }

    /// The peer does not know what was offered by this transaction id; `false` if nothing was.
    pub fn handle_refusal(&mut self, now: Instant, transaction_id: u64) -> bool {
        let Some(terms) = self.terms.as_mut().filter(|_| !self.qp.is_halted()) else { return false };
        let fits = terms.agreement.handle_refusal(now, transaction_id);
        self.follow_negotiation();
        fits
    }

    /// The negotiation may have moved: the queue pair and the shim follow it.
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
        // Nothing waits for what the peer says of SDR.
        if self.extensions() != Extensions::NONE || self.qp.offers_credit() {
            self.qp.on_negotiation(of_transport.as_ref(), rtt);
        }
    }

    /// Why the peer is refused, where it must be authenticated and is not: the queue pair has to end.
    pub fn refusal(&self) -> Option<FallbackReason> {
        let auth = self.auth()?;
        self.agreement()?.unauthenticated().map(|reason| auth.refusal(reason))
    }

    /// What requests are sent by, where an extension is offered, and not SDR alone; `None` for others. A peer that is refused gets none.
    /// Where nothing but credit is offered, whether it is agreed on.
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

    /// Why the standard is spoken, where an extension was offered: that of the transport, else SDR.
    pub fn fallback_reason(&self) -> Option<FallbackReason> {
        let agreement = self.agreement()?;
        let sdr = self.transport.extension() == Extensions::NONE && agreement.sdr().is_some();
        let of_sdr = if sdr { Extensions::SDR } else { Extensions::NONE };
        agreement.fell_back(self.extensions().union(of_sdr))
    }

    /// How SDR stands with the peer; `None` where it is not offered.
    pub fn sdr(&self) -> Option<SdrOutcome<'_>> {
        self.agreement()?.sdr()
    }
}
