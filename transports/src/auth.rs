//! Authentication of connections: every packet carries a tag that cannot be computed without the shared secret, and no packet is accepted
//! twice.
//!
//! This is the lowest layer of a connection. Packets of a queue pair or its shim are sealed last, and a received packet is not processed
//! before its tag is verified. The MADs by which both ends negotiate authentication carry a MAC under the same secret. Both ends draw a
//! nonce for each negotiation. The keys of the two directions are derived from the secret, the nonces, the addresses and the queue pair
//! numbers, so no packet of another connection, or of the opposite direction, has a valid tag.

mod fuzz;
mod keys;
mod replay;
mod seal;
mod secret;

use std::net::IpAddr;

#[doc(hidden)]
pub use fuzz::{Unsealed, fuzz_unseal};
use keys::{Direction, MadKey};
pub(crate) use seal::{Exhausted, Unauthentic};
use seal::{Sealer, Unsealer};
pub use secret::{Secret, SecretError};
use softnic_wire::auth::{AuthSettings, TRAILER_LEN, link_mtu};
use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::vendor::{ExtensionSettings, Extensions, MAC, Negotiation};
use softnic_wire::{Addresses, Layout, Qpn, TxFrame};

use crate::negotiation::{Extension, FallbackReason, Offer};
use crate::qp::{ModifyError, PathProps};

/// The settings that the negotiation exchanges.
pub(crate) const EXTENSION: Extension =
    Extension { bit: Extensions::AUTH, range: AuthSettings::RANGE, is_usable: |_| true };

/// Why a queue pair cannot be authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Its transport is not a reliable connection.
    #[error("only rc, sr and lowar have authentication")]
    Transport,
    /// Its frames carry no payload, so there is nothing to authenticate.
    #[error("frames without their payload cannot be authenticated")]
    Elided,
    /// The processor lacks AES, carry-less multiplication or another instruction that computes the tags.
    #[error(
        "this processor lacks instructions that authentication needs: AES, PCLMULQDQ, AVX2, ADX and BMI1 (aarch64: AES, PMULL and SHA2)"
    )]
    Processor,
    /// The queue pair is connected, or was.
    #[error("the secret of a connection is set before it is ready to receive")]
    State,
}

/// One end of a connection and its peer.
#[derive(Debug, Clone, Copy)]
struct Ends {
    local: (IpAddr, Qpn),
    peer: (IpAddr, Qpn),
}

/// The authentication state of one queue pair.
pub(crate) struct Auth {
    secret: Secret,
    mad_key: MadKey,
    /// Set from RTR on.
    ends: Option<Ends>,
    /// The local nonce, drawn for each negotiation.
    nonce: [u8; 16],
    /// The peer's nonce from which the keys were derived.
    peer_nonce: Option<[u8; 16]>,
    /// Set when the peer has answered.
    sealer: Option<Sealer>,
    /// Set by the first MAD of the peer: a peer that has the local answer sends packets, although its own answer may be lost.
    unsealer: Option<Unsealer>,
    /// A MAD that claimed to be the peer's had an invalid MAC.
    heard_stranger: bool,
    /// Number of packets and MADs dropped since the queue pair was created.
    pub(crate) rejected: u64,
}

impl Auth {
    pub(crate) fn new(secret: &Secret) -> Result<Auth, AuthError> {
        if !keys::are_possible() {
            return Err(AuthError::Processor);
        }
        Ok(Auth {
            mad_key: MadKey::new(secret),
            secret: secret.clone(),
            ends: None,
            nonce: [0; 16],
            peer_nonce: None,
            sealer: None,
            unsealer: None,
            heard_stranger: false,
            rejected: 0,
        })
    }

    /// Returns to the reset state; the secret stays.
    pub(crate) fn reset(&mut self) {
        (self.ends, self.peer_nonce, self.sealer, self.unsealer) = (None, None, None, None);
        self.heard_stranger = false;
    }

    /// INIT to RTR: starts a negotiation, with a fresh nonce.
    pub(crate) fn begin(&mut self, addresses: &Addresses, qpns: (Qpn, Qpn), nonce: [u8; 16]) {
        self.reset();
        self.ends = Some(Ends { local: (addresses.src(), qpns.0), peer: (addresses.dst(), qpns.1) });
        self.nonce = nonce;
    }

    /// Adds authentication to an offer of the transport.
    pub(crate) fn offer(&self, offer: Offer) -> Offer {
        Offer {
            extensions: offer.extensions.union(Extensions::AUTH),
            settings: offer.settings.with(AuthSettings { nonce: self.nonce }),
        }
    }

    /// A MAD of the peer has a valid MAC and fits the negotiation: the peer's packets are accepted from now on.
    pub(crate) fn on_mad(&mut self, mad: &Negotiation<'_>) {
        let Some(ends) = self.ends.filter(|_| self.sealer.is_none()) else { return };
        let of_peer = (mad.sender_qpn, mad.receiver_qpn) == (ends.peer.1.value(), ends.local.1.value());
        let AuthSettings { nonce } = mad.settings.get();
        if of_peer && mad.extensions.contains(Extensions::AUTH) && self.peer_nonce != Some(nonce) {
            self.peer_nonce = Some(nonce);
            let direction = Direction { from: ends.peer, to: ends.local, nonces: [nonce, self.nonce] };
            self.unsealer = Some(Unsealer::new(direction.key(&self.secret)));
        }
    }

    /// The peer answered the offer: packets are sealed from now on.
    pub(crate) fn on_agreement(&mut self, AuthSettings { nonce }: AuthSettings) {
        let Some(ends) = self.ends.filter(|_| self.sealer.is_none()) else { return };
        let direction = Direction { from: ends.local, to: ends.peer, nonces: [self.nonce, nonce] };
        self.sealer = Some(Sealer::new(direction.key(&self.secret)));
    }

    /// Whether packets can be sealed.
    pub(crate) fn can_seal(&self) -> bool {
        self.sealer.is_some()
    }

    /// Seals a frame before it is sent.
    pub(crate) fn seal(&mut self, tx: &mut TxFrame<'_>) -> Result<(), Exhausted> {
        self.sealer.as_mut().ok_or(Exhausted)?.seal(tx)
    }

    /// Unseals a received frame. With `icrc` the plain frame gets its own ICRC, because another layer checks it.
    pub(crate) fn unseal(&mut self, frame: &mut [u8], layout: &mut Layout, icrc: bool) -> Result<(), Unauthentic> {
        let done = self.unsealer.as_mut().ok_or(Unauthentic::Tag).and_then(|u| u.unseal(frame, layout, icrc));
        self.rejected += u64::from(done.is_err());
        done
    }

    /// Adds the MAC to a MAD before it is sent.
    pub(crate) fn sign(&self, mad: &mut [u8; MAD_LEN]) {
        let Some(ends) = self.ends else { return };
        let mac = self.mad_key.mac(mad, ends.local.0, ends.peer.0);
        mad[MAC].copy_from_slice(&mac);
    }

    /// Whether a MAD from one address to the other has a valid MAC.
    pub(crate) fn verify(&mut self, mad: &[u8; MAD_LEN], from: IpAddr, to: IpAddr) -> bool {
        let mut found = [0; MAC.end - MAC.start];
        found.copy_from_slice(&mad[MAC]);
        let right = keys::are_equal(&found, &self.mad_key.mac(mad, from, to));
        self.heard_stranger |= !right;
        self.rejected += u64::from(!right);
        right
    }

    /// Why the connection is refused, if the negotiation ended with this reason.
    pub(crate) fn refusal(&self, reason: FallbackReason) -> FallbackReason {
        match reason {
            FallbackReason::Silent if self.heard_stranger => FallbackReason::Unauthenticated,
            reason => reason,
        }
    }
}

/// Whether a link carries sealed packets of a path MTU.
pub(crate) fn check_link(mtu: u32, addresses: &Addresses, props: &PathProps) -> Result<(), ModifyError> {
    let needed = link_mtu(mtu, addresses.src().is_ipv6());
    match props.link_mtu {
        Some(link) if link < needed => Err(ModifyError::LinkMtu { needed, link }),
        _ => Ok(()),
    }
}

/// The offer of a transport whose packets carry the trailer. The transport sees the link MTU without the trailer; the MTU that it reports
/// as needed includes the trailer again.
pub(crate) fn offer_below(
    props: &PathProps,
    offer: impl FnOnce(&PathProps) -> Result<Offer, FallbackReason>,
) -> Result<Offer, FallbackReason> {
    const TRAILER: u32 = TRAILER_LEN as u32;
    let rest = PathProps { link_mtu: props.link_mtu.map(|mtu| mtu.saturating_sub(TRAILER)), ..*props };
    offer(&rest).map_err(|reason| match reason {
        FallbackReason::LinkMtu(needed) => FallbackReason::LinkMtu(needed + TRAILER),
        reason => reason,
    })
}
