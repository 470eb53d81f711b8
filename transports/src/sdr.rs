//! The negotiation of SDR: the information that the two ends exchange. The rest of SDR is software on a NIC, and uses UC.

use softnic_wire::mad::vendor::{ExtensionSettings, Extensions, SDR_INFO, Settings};
use softnic_wire::sdr::{Info, InfoError, SdrSettings};

use crate::negotiation::{Extension, FallbackReason, Offer};

/// The settings that the negotiation exchanges.
pub(crate) const EXTENSION: Extension =
    Extension { bit: Extensions::SDR, range: SdrSettings::RANGE, is_usable: |_| true };

/// Whether both ends have the same scheme on top of SDR: messages of another scheme cannot be interpreted.
pub(crate) fn is_same_scheme(ours: &Settings, peers: &Settings) -> bool {
    ours.get::<SdrSettings>().scheme == peers.get::<SdrSettings>().scheme
}

/// Why a queue pair cannot offer SDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SdrOfferError {
    /// The queue pair is not a connection.
    #[error("only queue pairs of rc and uc offer sdr")]
    Transport,
    /// It is connected, or was.
    #[error("sdr is offered before a queue pair is ready to receive")]
    State,
    /// The bytes are no information about an SDR queue pair.
    #[error(transparent)]
    Info(#[from] InfoError),
    /// The information does not fit into a MAD.
    #[error(
        "{generations} generations of {channels} channels take {len} bytes, and a MAD has room for {room}: {} generations of {} channels fit",
        .fit.0, .fit.1, room = SDR_INFO.len()
    )]
    TooLong {
        /// Number of generations in the information.
        generations: u8,
        /// Number of channels of each generation.
        channels: u8,
        /// Length of the information in bytes.
        len: usize,
        /// The numbers of generations and channels that would fit.
        fit: (u8, u8),
    },
}

/// The state of the SDR negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SdrOutcome<'a> {
    /// The peer has not answered yet, or has not been asked.
    Open,
    /// Both ends use SDR. This does not change before the queue pair is reset.
    Agreed {
        /// The scheme on top of SDR, equal on both ends, with the peer's settings of it.
        settings: SdrSettings,
        /// The peer's information about its end: bytes that [`Info::parse`] accepts.
        info: &'a [u8],
    },
    /// The peer does not support SDR, or has nothing in common with this end. A late answer may still turn this into an agreement.
    FellBack(FallbackReason),
}

/// SDR information, of at most the length that a MAD has room for.
#[derive(Debug, Clone)]
struct Kept {
    len: u8,
    bytes: [u8; SDR_INFO.end - SDR_INFO.start],
}

impl Kept {
    fn new(info: &Info<'_>) -> Result<Kept, SdrOfferError> {
        let from = info.as_bytes();
        let mut kept = Kept { len: from.len() as u8, bytes: [0; _] };
        let Some(to) = kept.bytes.get_mut(..from.len()) else {
            let (generations, channels) = (info.generation_count(), info.channel_count());
            let fit = what_fits(generations, channels);
            return Err(SdrOfferError::TooLong { generations, channels, len: from.len(), fit });
        };
        to.copy_from_slice(from);
        Ok(kept)
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

/// The number of these generations that fit, and then the number of these channels.
fn what_fits(generations: u8, channels: u8) -> (u8, u8) {
    let fits = |g: u8, c: u8| Info::len_of(g, c) <= SDR_INFO.len();
    let generations = (1..=generations).rev().find(|&g| fits(g, 1)).unwrap_or(1);
    (generations, (1..=channels).rev().find(|&c| fits(generations, c)).unwrap_or(1))
}

/// The local offer of SDR, and the peer's information.
#[derive(Debug, Clone)]
pub(crate) struct SdrTerms {
    settings: SdrSettings,
    ours: Kept,
    /// Set by the agreement.
    peers: Option<Kept>,
}

impl SdrTerms {
    /// An offer of this scheme, with the information about an SDR queue pair.
    pub(crate) fn new(settings: SdrSettings, info: &[u8]) -> Result<SdrTerms, SdrOfferError> {
        Ok(SdrTerms { settings, ours: Kept::new(&Info::parse(info)?)?, peers: None })
    }

    /// Returns to the reset state: the offer stays.
    pub(crate) fn reset(&mut self) {
        self.peers = None;
    }

    /// Adds SDR to another offer.
    pub(crate) fn beside(&self, offer: Offer) -> Offer {
        Offer { extensions: offer.extensions.union(Extensions::SDR), settings: offer.settings.with(self.settings) }
    }

    /// The information in a local MAD that has SDR among its extensions.
    pub(crate) fn info(&self) -> Option<Info<'_>> {
        Info::parse(self.ours.as_bytes()).ok()
    }

    /// The peer agreed, with this information.
    pub(crate) fn on_agreement(&mut self, info: &Info<'_>) {
        self.peers = Kept::new(info).ok();
    }

    /// The peer's information, once SDR is agreed on.
    pub(crate) fn of_peer(&self) -> Option<&[u8]> {
        self.peers.as_ref().map(Kept::as_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_refused_with_what_would_fit() {
        let fits = [(4, 3), (4, 1), (9, 1), (2, 6), (1, 13)];
        assert!(fits.iter().all(|&(g, c)| Info::len_of(g, c) <= SDR_INFO.len() && what_fits(g, c) == (g, c)));
        for ((g, c), best) in [((4, 4), (4, 3)), ((16, 1), (9, 1)), ((16, 16), (9, 1)), ((1, 16), (1, 13))] {
            assert!(Info::len_of(g, c) > SDR_INFO.len());
            assert_eq!(what_fits(g, c), best);
        }
        let error = SdrOfferError::TooLong { generations: 4, channels: 4, len: 184, fit: (4, 3) };
        assert_eq!(
            error.to_string(),
            "4 generations of 4 channels take 184 bytes, and a MAD has room for 152: 4 generations of 3 channels fit"
        );
    }
}
