//! Authentication of connections: every packet carries a tag that nobody can make without the shared secret, and none counts twice.
//!
//! It is the layer below everything else of a connection: what a queue pair or its shim sends is sealed last, and what comes is looked at
//! by nobody before its tag is found right. The MADs by which both ends agree on it carry a MAC of the same secret. Both ends draw a nonce
//! for each negotiation, and the keys of the two directions follow from the secret, the nonces, the addresses and the numbers of the
//! queue pairs: no packet of another connection, nor of this one's other direction, has a right tag.

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

/// Why a queue pair has no authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Its transport is none of a reliable connection.
    #[error("only rc, sr and lowar have authentication")]
    Transport,
    /// Its frames carry no payload, so there is nothing to authenticate.
    #[error("frames without their payload cannot be authenticated")]
    Elided,
    /// The processor lacks AES, carry-less multiplication or another instruction that the tags are computed with.
    #[error(
        "this processor lacks instructions that authentication needs: AES, PCLMULQDQ, AVX2, ADX and BMI1 (aarch64: AES, PMULL and SHA2)"
    )]
    Processor,
    /// It is connected, or was.
    #[error("the secret of a connection is set before it is ready to receive")]
    State,
}

/// One end of a connection and its peer.
#[derive(Debug, Clone, Copy)]
struct Ends {
    local: (IpAddr, Qpn),
    peer: (IpAddr, Qpn),
}

/// The authentication of one queue pair.
pub(crate) struct Auth {
    secret: Secret,
    mad_key: MadKey,
    /// From RTR on.
    ends: Option<Ends>,
    /// What this side has drawn for this life of the queue pair.
    nonce: [u8; 16],
    /// The peer's, which the keys were made with.
    peer_nonce: Option<[u8; 16]>,
    /// From the peer's answer on.
    sealer: Option<Sealer>,
    /// From the first MAD of the peer on: who has our answer sends, though its own answer to us may be lost.
    unsealer: Option<Unsealer>,
    /// A MAD came as the peer's and had no right MAC.
    heard_stranger: bool,
    /// Packets and MADs that were dropped, in all lives of the queue pair.
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

    /// To the reset state: the secret stays.
    pub(crate) fn reset(&mut self) {
        (self.ends, self.peer_nonce, self.sealer, self.unsealer) = (None, None, None, None);
        self.heard_stranger = false;
    }

    /// INIT to RTR: a negotiation begins, with a nonce that was never used.
    pub(crate) fn begin(&mut self, addresses: &Addresses, qpns: (Qpn, Qpn), nonce: [u8; 16]) {
        self.reset();
        self.ends = Some(Ends { local: (addresses.src(), qpns.0), peer: (addresses.dst(), qpns.1) });
        self.nonce = nonce;
    }

    /// An offer of the transport, and authentication.
    pub(crate) fn offer(&self, offer: Offer) -> Offer {
        Offer {
            extensions: offer.extensions.union(Extensions::AUTH),
            settings: offer.settings.with(AuthSettings { nonce: self.nonce }),
        }
    }

    /// A MAD of the peer has a right MAC and fits the negotiation: its packets may come from now on.
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

    /// The peer answered our offer: what is sent is sealed from now on.
    pub(crate) fn on_agreement(&mut self, AuthSettings { nonce }: AuthSettings) {
        let Some(ends) = self.ends.filter(|_| self.sealer.is_none()) else { return };
        let direction = Direction { from: ends.local, to: ends.peer, nonces: [self.nonce, nonce] };
        self.sealer = Some(Sealer::new(direction.key(&self.secret)));
    }

    /// Whether packets can be sealed.
    pub(crate) fn can_seal(&self) -> bool {
        self.sealer.is_some()
    }

    /// Seals a frame that is about to leave.
    pub(crate) fn seal(&mut self, tx: &mut TxFrame<'_>) -> Result<(), Exhausted> {
        self.sealer.as_mut().ok_or(Exhausted)?.seal(tx)
    }

    /// Makes a plain frame of a sealed one that came; with its own ICRC where somebody looks at that again.
    pub(crate) fn unseal(&mut self, frame: &mut [u8], layout: &mut Layout, icrc: bool) -> Result<(), Unauthentic> {
        let done = self.unsealer.as_mut().ok_or(Unauthentic::Tag).and_then(|u| u.unseal(frame, layout, icrc));
        self.rejected += u64::from(done.is_err());
        done
    }

    /// Puts the MAC into a MAD that is about to leave.
    pub(crate) fn sign(&self, mad: &mut [u8; MAD_LEN]) {
        let Some(ends) = self.ends else { return };
        let mac = self.mad_key.mac(mad, ends.local.0, ends.peer.0);
        mad[MAC].copy_from_slice(&mac);
    }

    /// Whether a MAD from one address to the other has a right MAC.
    pub(crate) fn verify(&mut self, mad: &[u8; MAD_LEN], from: IpAddr, to: IpAddr) -> bool {
        let mut found = [0; MAC.end - MAC.start];
        found.copy_from_slice(&mad[MAC]);
        let right = keys::are_equal(&found, &self.mad_key.mac(mad, from, to));
        self.heard_stranger |= !right;
        self.rejected += u64::from(!right);
        right
    }

    /// Why the connection is refused, where the negotiation ended like this.
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

/// The link as a transport below whose packets the trailer stands may use it; and the MTU that it says it needs, with the trailer again.
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
