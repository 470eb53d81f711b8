//! One end of a communication as a NIC holds it: the queue pair of some transport, the shim below it, and its negotiation with the peer.

mod negotiation;

use std::net::IpAddr;

use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::vendor::Extensions;
use softnic_wire::{Instant, Layout, MacAddr, Path, PathMtu, Qpn, Template, TxFrame, bth};

use crate::auth::{self, Auth, Exhausted, Unauthentic};
use crate::negotiation::{Agreement, Choice, Decline};
use crate::qp::{Config, ModifyError, PathProps, QpAttr, QpKind, check_rules, earlier};
use crate::queue_pairs::{self, AnyQp};
use crate::shim::{ReceivedFrame, Shim, ShimAction, ShimPools, ShimResources};
use crate::{Counters, Event, Host, QpState, QueuePair, Transport};

/// A queue pair with its attributes, its shim and its negotiation.
pub struct Endpoint {
    /// The queue pair.
    pub qp: AnyQp,
    /// The layer between the queue pair and its frames.
    shim: Option<Box<dyn Shim>>,
    /// The shim, or the negotiation, may have a frame to send.
    due: bool,
    /// There is neither a shim nor an active negotiation: one check for each packet, instead of two.
    bare: bool,
    /// There is a shim or authentication: one check for each packet, instead of two.
    layered: bool,
    transport: Transport,
    kind: QpKind,
    /// All attributes set since the reset state.
    attr: QpAttr,
    /// The negotiation with the peer, if the queue pair offers an extension.
    terms: Option<Box<Terms>>,
    /// The peer's offer, if the queue pair offers none.
    decline: Decline,
}

/// The agreement with the peer, and the authentication of packets if it is part of the agreement.
struct Terms {
    agreement: Agreement,
    auth: Option<Auth>,
}

/// Size of the agreement with the peer.
pub(crate) const fn terms_size() -> usize {
    size_of::<Terms>()
}

impl Endpoint {
    /// Creates an endpoint in the reset state; datagrams are at most `mtu` long. The transaction id identifies the answers of the
    /// negotiation.
    pub fn new(transport: Transport, kind: QpKind, config: &Config, mtu: PathMtu, transaction_id: u64) -> Endpoint {
        let negotiates = transport.extension() != Extensions::NONE;
        Endpoint {
            qp: AnyQp::new(transport, kind, config, mtu),
            shim: None,
            due: false,
            bare: !negotiates,
            layered: false,
            transport,
            kind,
            attr: QpAttr::default(),
            terms: negotiates
                .then(|| Box::new(Terms { agreement: Agreement::new(config.qpn, transaction_id), auth: None })),
            decline: Decline::default(),
        }
    }

    /// Whether its packets are authenticated.
    pub fn is_authenticated(&self) -> bool {
        self.auth().is_some()
    }

    fn auth(&self) -> Option<&Auth> {
        self.terms.as_ref()?.auth.as_ref()
    }

    fn auth_mut(&mut self) -> Option<&mut Auth> {
        self.terms.as_mut()?.auth.as_mut()
    }

    fn agreement(&self) -> Option<&Agreement> {
        self.terms.as_ref().map(|terms| &terms.agreement)
    }

    /// A layer was added or removed.
    fn find_layers(&mut self) {
        self.layered = self.shim.is_some() || self.is_authenticated();
        self.bare = !self.layered && self.agreement().is_none_or(Agreement::is_over);
    }

    /// All attributes set since the reset state, and the state.
    pub fn attributes(&self) -> QpAttr {
        QpAttr { state: Some(self.qp.state()), ..self.attr }
    }

    /// The peer's address, for a connection from RTR on.
    pub fn peer(&self) -> Option<IpAddr> {
        let connected = self.kind.is_connected() && !matches!(self.qp.state(), QpState::Reset | QpState::Init);
        self.attr.path.filter(|_| connected).map(|path| path.addresses.dst())
    }

    /// The local address towards the peer.
    pub fn local(&self) -> Option<IpAddr> {
        self.attr.path.map(|path| path.addresses.src())
    }

    // ---- states ----

    /// Changes the state by the rules. A refused change has no effect. Before a change to the reset state, the caller frees the memory of
    /// the shim ([`Endpoint::reset_shim`]).
    pub fn modify(&mut self, a: &QpAttr, props: &PathProps, host: &mut impl Host) -> Result<(), ModifyError> {
        use QpState::*;
        let from = self.qp.state();
        let to = a.state.unwrap_or(from);
        check_rules(self.kind, from, to, a)?;
        if (from, to) == (SendQueueDrain, SendQueueDrain) && !self.qp.is_drained() {
            return Err(ModifyError::NotDrained);
        }
        if let (Some(_), Some(path), Some(mtu)) = (self.auth(), a.path, a.mtu) {
            auth::check_link(mtu.bytes(), &path.addresses, props)?;
        }
        self.attr.merge(a);
        match (from, to) {
            (_, Reset) => self.reset(),
            (_, Error) => self.qp.fail(host),
            (_, Init) => self.qp.init(),
            (Init, ReadyToReceive) => self.ready_to_receive(props)?,
            (ReadyToReceive, ReadyToSend) => self.qp.ready_to_send(&self.attr.send_attr()?),
            (ReadyToSend, SendQueueDrain) => self.qp.drain(a.sqd_notify.unwrap_or(false), host),
            (SendQueueDrain | SendQueueError, ReadyToSend) => self.qp.resume(),
            _ => {}
        }
        self.update(a, props.pkey);
        Ok(())
    }

    /// Makes sends fail from now on, as after a failed send; returns `false` if the service has no such state.
    pub fn fail_sends(&mut self, host: &mut impl Host) -> bool {
        self.qp.fail_sends(host)
    }

    /// Halts the queue pair at the request of its owner; returns `false` if that is not possible. No frame is sent any more, including MADs
    /// of the negotiation. The shim is not needed any more; the caller removes it next ([`Endpoint::reset_shim`]).
    pub fn halt(&mut self) -> bool {
        let halted = self.qp.halt();
        if let (true, Some(terms)) = (halted, &mut self.terms) {
            terms.agreement.fall_silent();
        }
        halted
    }

    fn reset(&mut self) {
        self.qp.reset();
        (self.attr, self.shim, self.due) = (QpAttr::default(), None, false);
        self.decline = Decline::default();
        if let Some(terms) = &mut self.terms {
            terms.agreement.reset();
            terms.auth.iter_mut().for_each(Auth::reset);
        }
        self.find_layers();
    }

    fn ready_to_receive(&mut self, props: &PathProps) -> Result<(), ModifyError> {
        if !self.kind.is_connected() {
            self.qp.ready_to_receive(None, props);
            return Ok(());
        }
        let connection = self.attr.receive_attr(props.pkey)?;
        self.qp.ready_to_receive(Some(&connection), props);
        let Some(Terms { agreement, auth }) = self.terms.as_deref_mut() else {
            self.check_declined(connection.dest_qp);
            return Ok(());
        };
        let peer = (connection.path.addresses.dst(), connection.dest_qp);
        let of_transport = |props: &PathProps| queue_pairs::offer(self.transport, connection.mtu, props);
        let offer = match auth {
            None => of_transport(props),
            Some(_) => auth::offer_below(props, of_transport),
        };
        let reason = offer.err();
        let mut offer = offer.unwrap_or_default();
        if reason.is_none() && self.qp.offers_credit() {
            offer.extensions = offer.extensions.union(Extensions::EQDS);
        }
        if let Some(auth) = auth {
            auth.begin(&connection.path.addresses, (self.qp.qpn(), connection.dest_qp), props.nonce);
            agreement.early(peer.0).iter().for_each(|mad| auth.on_mad(mad));
            offer = auth.offer(offer);
        }
        agreement.begin(offer, peer, props.known_silent, props.known_rtt);
        agreement.set_refused(reason);
        if reason.is_none() {
            let template = Template::new(&connection.path, connection.dest_qp, connection.pkey);
            // From now on the peer may use the extension that was offered.
            self.shim = queue_pairs::shim(self.transport, &template, connection.mtu, props.payload);
        }
        self.find_layers();
        self.follow_negotiation();
        Ok(())
    }

    /// Changes those attributes that may change at any time, in any state.
    pub fn change(&mut self, a: &QpAttr) {
        self.attr.merge(&QpAttr { state: None, ..*a });
        self.qp.update(&a.update(None));
    }

    /// The next hop of the path has another MAC address: all packets are sent there from now on, in any state.
    pub fn redirect(&mut self, mac: MacAddr, pkey: u16) {
        if let Some(path) = self.attr.path.filter(|path| path.dst_mac != mac) {
            let path = Some(Path { dst_mac: mac, ..path });
            self.attr.path = path;
            self.update(&QpAttr { path, ..QpAttr::default() }, pkey);
        }
    }

    /// Passes on those of the given attributes that may change at any time.
    fn update(&mut self, a: &QpAttr, pkey: u16) {
        let template = match (a.path, self.attr.dest_qp) {
            (Some(path), Some(dest_qp)) => Some(Template::new(&path, dest_qp, pkey)),
            _ => None,
        };
        if let (Some(template), Some(shim)) = (&template, &mut self.shim) {
            shim.set_template(template);
        }
        self.qp.update(&a.update(template));
    }

    // ---- frames ----

    /// Writes the next frame, if one can be sent now. Frames of the negotiation and the shim are sent before the queue pair's packets.
    #[inline(always)] // a packet of a queue pair without a shim must not pay for those with one
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        host: &mut impl Host,
        pools: &mut ShimPools,
    ) -> bool {
        if !self.bare && (self.due || self.layered) {
            return self.transmit_with_shim(now, tx, host, pools);
        }
        self.qp.poll_transmit(now, tx, host)
    }

    #[inline(never)]
    fn transmit_with_shim(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        host: &mut impl Host,
        pools: &mut ShimPools,
    ) -> bool {
        if self.due {
            self.due = self.transmit_own(now, tx, host, pools);
            if self.due {
                return true;
            }
        }
        // Without a key nothing is sent, neither requests nor answers.
        if self.auth().is_some_and(|auth| !auth.can_seal()) {
            return false;
        }
        let sent = self.qp.poll_transmit(now, tx, host);
        if let (true, Some(shim)) = (sent, &mut self.shim) {
            self.due = shim.on_transmit(now, tx, ShimResources { pools, counters: host.counters() });
        }
        sent && self.seal(tx, host)
    }

    /// Seals a frame before it is sent, if required; returns `false` if it cannot be sent.
    fn seal(&mut self, tx: &mut TxFrame<'_>, host: &mut impl Host) -> bool {
        let Some(auth) = self.auth_mut() else { return true };
        let sealed = auth.seal(tx);
        if sealed == Err(Exhausted) {
            host.notify(Event::QpFatal(self.qp.qpn()));
            self.qp.fail(host);
        }
        sealed.is_ok()
    }

    /// Writes one frame of the negotiation, or one of the shim's own.
    fn transmit_own(
        &mut self,
        now: Instant,
        tx: &mut TxFrame<'_>,
        host: &mut impl Host,
        pools: &mut ShimPools,
    ) -> bool {
        if let Some(path) = &self.attr.path {
            let template = || Template::new(path, Qpn::GSI, bth::DEFAULT_PKEY);
            if let Some(Terms { agreement, auth }) = self.terms.as_deref_mut() {
                let sign = |mad: &mut [u8; MAD_LEN]| auth.iter().for_each(|auth| auth.sign(mad));
                if agreement.has_something() && agreement.poll_transmit(now, tx, &template(), sign) {
                    return true;
                }
            } else if let (Some(peer), true) = (self.attr.dest_qp, self.qp.state().receives())
                && self.decline.is_due_to(peer)
            {
                return crate::negotiation::write(tx, &template(), &self.decline.take(self.qp.qpn()));
            }
        }
        self.find_layers();
        let can_seal = self.auth().is_none_or(|auth| auth.can_seal());
        let Some(shim) = self.shim.as_mut().filter(|_| can_seal) else { return false };
        let sent = shim.poll_transmit(now, tx, ShimResources { pools, counters: host.counters() });
        if sent {
            self.qp.on_shim_sent(now, tx);
        }
        sent && self.seal(tx, host)
    }

    /// When to call [`Endpoint::handle_timeout`] or [`Endpoint::handle_shim_timeout`].
    #[inline(always)]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.bare {
            true => self.qp.poll_timeout(),
            false => self.poll_all_timeouts(),
        }
    }

    #[inline(never)]
    fn poll_all_timeouts(&self) -> Option<Instant> {
        let shim = self.shim.as_ref().and_then(|shim| shim.poll_timeout());
        let negotiation = self.agreement().and_then(|agreement| agreement.poll_timeout());
        earlier(self.qp.poll_timeout(), earlier(shim, negotiation))
    }

    /// Handles a timeout of the queue pair and its negotiation.
    pub fn handle_timeout(&mut self, now: Instant, host: &mut impl Host) {
        if let Some(terms) = &mut self.terms {
            terms.agreement.handle_timeout(now);
            self.follow_negotiation();
        }
        self.qp.handle_timeout(now, host);
    }

    // ---- the shim ----

    /// Sets the shim below the queue pair, or removes it; the memory of the previous one was freed.
    pub fn set_shim(&mut self, shim: Option<Box<dyn Shim>>) {
        self.due = shim.is_some();
        self.shim = shim;
        self.find_layers();
    }

    /// Whether there is neither a shim nor authentication, so that received frames are the queue pair's own.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        !self.layered
    }

    /// Whether there is a shim.
    pub fn has_shim(&self) -> bool {
        self.shim.is_some()
    }

    /// Number of received packets without a valid tag, and MADs without a valid MAC.
    pub fn rejected(&self) -> u64 {
        self.auth().map_or(0, |auth| auth.rejected)
    }

    /// Unseals a received frame, if packets are authenticated. A frame without a valid tag, or a replayed one, is counted and dropped
    /// (`false`).
    pub fn unseal(&mut self, frame: &mut [u8], layout: &mut Layout, counters: &mut Counters) -> bool {
        let has_shim = self.shim.is_some();
        let Some(auth) = self.auth_mut() else { return true };
        let done = auth.unseal(frame, layout, has_shim);
        match done {
            Ok(()) => {}
            Err(Unauthentic::Tag) => counters.rx_auth_failed += 1,
            Err(Unauthentic::Replayed) => counters.rx_auth_replayed += 1,
        }
        done.is_ok()
    }

    /// The shim, if it is of this type and the peer agreed to it. It may have frames to send afterwards.
    pub fn agreed_shim<S: Shim>(&mut self) -> Option<&mut S> {
        if self.choice() != Some(Choice::Agreed) {
            return None;
        }
        let shim: &mut dyn std::any::Any = self.shim.as_deref_mut()?;
        self.due = true;
        shim.downcast_mut()
    }

    /// A frame for the queue pair or its shim was received. Without a shim it is for the queue pair.
    pub fn receive_by_shim(&mut self, now: Instant, received: &ReceivedFrame<'_>, r: ShimResources<'_>) -> ShimAction {
        let expected = self.qp.expected_psns();
        let Some(shim) = &mut self.shim else { return ShimAction::Deliver };
        let action = shim.on_receive(now, received, expected, r);
        // A frame for the shim may require an answer.
        self.due |= action == ShimAction::Consume;
        action
    }

    /// Copies a frame that the shim held back or recovered to `out`; returns its length.
    pub fn poll_deliver(&mut self, now: Instant, out: &mut [u8], resources: ShimResources<'_>) -> Option<usize> {
        let expected = self.qp.expected_psns();
        self.shim.as_mut()?.poll_deliver(now, expected, out, resources)
    }

    /// Handles a timeout of the shim.
    pub fn handle_shim_timeout(&mut self, now: Instant, resources: ShimResources<'_>) {
        if let Some(shim) = &mut self.shim {
            shim.handle_timeout(now, resources);
        }
    }

    /// Removes the shim, which frees its memory.
    pub fn reset_shim(&mut self, resources: ShimResources<'_>) {
        if let Some(mut shim) = self.shim.take() {
            shim.reset(resources);
        }
        self.find_layers();
    }
}
