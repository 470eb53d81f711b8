//! The supported extensions: which settings of each are valid, and where the settings are in a MAD.

use softnic_wire::mad::vendor::{Extensions, Settings};

use super::{Extension, Offer};
use crate::{auth, congestion, lowar, sdr, sr, xp};

/// All supported extensions.
const EXTENSIONS: &[&Extension] =
    &[&sr::EXTENSION, &lowar::EXTENSION, &auth::EXTENSION, &xp::EXTENSION, &sdr::EXTENSION, &congestion::EXTENSION];

/// The settings of these extensions, without those of others.
pub(super) fn settings_of(extensions: Extensions, settings: Settings) -> Settings {
    let unwanted = EXTENSIONS.iter().filter(|e| !extensions.contains(e.bit));
    unwanted.fold(settings, |settings, e| settings.without(e.range.clone()))
}

/// An offer without the extensions whose settings are not valid.
pub(super) fn usable(offer: Offer) -> Offer {
    let wrong = EXTENSIONS.iter().filter(|e| !(e.is_usable)(&offer.settings));
    let extensions = wrong.fold(offer.extensions, |extensions, e| extensions.without(e.bit));
    Offer { extensions, settings: settings_of(extensions, offer.settings) }
}

/// The extensions in both offers. SDR is common only with the same scheme on top of it; the other extensions use their peer's settings,
/// whatever the local ones are. Credit is for packets of one kind: those of XP on both sides, or those of reliable connections on both.
pub(super) fn common(ours: &Offer, peers: &Offer) -> Extensions {
    let both = ours.extensions.intersection(peers.extensions);
    let has_xp = |offer: &Offer| offer.extensions.contains(Extensions::XP);
    let both = if has_xp(ours) == has_xp(peers) { both } else { both.without(Extensions::EQDS) };
    if sdr::is_same_scheme(&ours.settings, &peers.settings) { both } else { both.without(Extensions::SDR) }
}
