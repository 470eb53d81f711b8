//! What a queue pair and its peer agreed on, over the lives of the queue pair: offers that come early, and one negotiation for each life.

use std::net::IpAddr;

use softnic_wire::mad::Status;
use softnic_wire::mad::vendor::{Extensions, Kind, Negotiation};
use softnic_wire::{Instant, Qpn, Template, TxFrame};

use super::{Agreed, Choice, Negotiator, Offer, Verdict, Why, write};

/// A queue pair's negotiations.
#[derive(Debug, Clone)]
pub struct Agreement {
    qpn: Qpn,
    transaction_id: u64,
    /// From RTR on.
    negotiator: Option<Negotiator>,
    /// An offer that came before.
    early: Option<(IpAddr, Negotiation)>,
    /// Why nothing is offered.
    refused: Option<Why>,
}

impl Agreement {
    /// Of the queue pair `qpn`, before RTR. Answers are known by the transaction id.
    pub fn new(qpn: Qpn, transaction_id: u64) -> Agreement {
        Agreement { qpn, transaction_id, negotiator: None, early: None, refused: None }
    }

    /// To the reset state.
    pub fn reset(&mut self) {
        (self.negotiator, self.early, self.refused) = (None, None, None);
    }

    /// INIT to RTR: an offer goes to `peer`. `known_silent`: its address answered none before.
    pub fn begin(&mut self, offer: Offer, peer: (IpAddr, Qpn), known_silent: bool) {
        // Another one for each life of the queue pair; its number stays in the lower bits.
        self.transaction_id = self.transaction_id.wrapping_add(1 << 24);
        let mut negotiator = Negotiator::new(offer, (self.qpn, peer.1), self.transaction_id, known_silent);
        if let Some((from, mad)) = self.early.take()
            && from == peer.0
        {
            negotiator.handle_offer(Instant::from_nanos(0), &mad);
        }
        self.negotiator = Some(negotiator);
    }

    /// INIT to RTR, where nothing can be offered: the peer is told so if it asks.
    pub fn refuse(&mut self, why: Why, peer: (IpAddr, Qpn)) {
        self.begin(Offer::default(), peer, false);
        self.refused = Some(why);
    }

    /// A MAD of the negotiation came, from this address; for this queue pair, as it says.
    pub fn handle_mad(&mut self, now: Instant, from: IpAddr, mad: &Negotiation) {
        let Some(negotiator) = &mut self.negotiator else {
            if mad.kind == Kind::Offer {
                self.early = Some((from, *mad));
            }
            return;
        };
        match mad.kind {
            Kind::Offer => negotiator.handle_offer(now, mad),
            Kind::Answer(Status::SUCCESS) => negotiator.handle_answer(now, mad),
            Kind::Answer(_) => negotiator.handle_refusal(now, mad.transaction_id),
        }
    }

    /// The peer does not know what was offered by this transaction id.
    pub fn handle_refusal(&mut self, now: Instant, transaction_id: u64) {
        if let Some(negotiator) = &mut self.negotiator {
            negotiator.handle_refusal(now, transaction_id);
        }
    }

    /// The negotiation of this life, from RTR on.
    pub fn negotiator(&self) -> Option<&Negotiator> {
        self.negotiator.as_ref()
    }

    /// The verdict, as soon as there is one.
    pub fn verdict(&self) -> Option<Verdict> {
        self.negotiator.as_ref()?.verdict()
    }

    /// What was agreed on, if all these extensions are in it.
    pub fn agreed(&self, extensions: Extensions) -> Option<Agreed> {
        match self.verdict()? {
            Verdict::Agreed(agreed) if agreed.extensions.contains(extensions) => Some(agreed),
            _ => None,
        }
    }

    /// Why the peer is spoken to without these extensions, as soon as that is known.
    pub fn fell_back(&self, extensions: Extensions) -> Option<Why> {
        match self.verdict()? {
            _ if self.refused.is_some() => self.refused,
            Verdict::Agreed(agreed) if agreed.extensions.contains(extensions) => None,
            Verdict::Agreed(_) => Some(Why::NothingInCommon),
            Verdict::Standard(why) => Some(why),
        }
    }

    /// What requests are sent by, where these extensions were offered.
    pub fn choice(&self, extensions: Extensions) -> Choice {
        match (self.verdict(), self.fell_back(extensions)) {
            (None, _) => Choice::Waiting,
            (_, Some(why)) => Choice::Standard(why),
            (_, None) => Choice::Agreed,
        }
    }

    /// Whether [`Agreement::poll_transmit`] has something.
    #[inline]
    pub fn has_something(&self) -> bool {
        self.negotiator.as_ref().is_some_and(|n| n.has_something())
    }

    /// Writes the MAD that is due.
    pub fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, template: &Template) -> bool {
        let Some(negotiator) = &mut self.negotiator else { return false };
        negotiator.poll_transmit(now).is_some_and(|mad| write(tx, template, &mad))
    }

    /// When [`Agreement::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.negotiator.as_ref()?.poll_timeout()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(negotiator) = &mut self.negotiator {
            negotiator.handle_timeout(now);
        }
    }
}
