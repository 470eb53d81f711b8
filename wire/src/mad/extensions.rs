//! The extensions that two NICs negotiate, as a set of bits and in words.

use core::fmt;

use crate::auth::AuthSettings;
use crate::lowar::LowarSettings;
use crate::sdr::SdrSettings;
use crate::settings::{ExtensionSettings, Settings};
use crate::sr::SrSettings;

/// A set of extensions to a connected transport: offered or accepted. Bits without a name are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extensions(pub u32);

/// An extension as MADs are shown: its bit, its name, and its settings in words.
struct Listed {
    bit: Extensions,
    name: &'static str,
    show: fn(&Settings, &mut fmt::Formatter<'_>) -> fmt::Result,
}

/// By their bits, the lowest first.
const LIST: &[Listed] = &[
    Listed { bit: Extensions::SR, name: "sr", show: show::<SrSettings> },
    Listed { bit: Extensions::LOWAR, name: "lowar", show: show::<LowarSettings> },
    Listed { bit: Extensions::XP, name: "xp", show: |_, _| Ok(()) },
    Listed { bit: Extensions::SDR, name: "sdr", show: show::<SdrSettings> },
    Listed { bit: Extensions::AUTH, name: "auth", show: show::<AuthSettings> },
    Listed { bit: Extensions::EQDS, name: "eqds", show: |_, _| Ok(()) },
];

fn show<T: ExtensionSettings + fmt::Display>(settings: &Settings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " {}", settings.get::<T>())
}

impl Extensions {
    /// None: a transport of the standard.
    pub const NONE: Extensions = Extensions(0);
    /// Selective Repeat.
    pub const SR: Extensions = Extensions(1 << 0);
    /// LoWAR forward error correction.
    pub const LOWAR: Extensions = Extensions(1 << 1);
    /// XP, best effort with deadlines (OptiNIC).
    pub const XP: Extensions = Extensions(1 << 2);
    /// SDR, bitmaps of partial completion.
    pub const SDR: Extensions = Extensions(1 << 3);
    /// Authentication of every packet.
    pub const AUTH: Extensions = Extensions(1 << 4);

    /// Credit of the receiver (EQDS), for XP, or for reliable connections.
    pub const EQDS: Extensions = Extensions(1 << 5);

    /// Whether all of `other` are in this set.
    pub const fn contains(self, other: Extensions) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those in either set.
    pub const fn union(self, other: Extensions) -> Extensions {
        Extensions(self.0 | other.0)
    }

    /// Those that are not in the other set.
    pub const fn without(self, other: Extensions) -> Extensions {
        Extensions(self.0 & !other.0)
    }

    /// Those in both sets: what an answer accepts of an offer.
    pub const fn intersection(self, other: Extensions) -> Extensions {
        Extensions(self.0 & other.0)
    }

    /// Writes the settings of the extensions in this set, those of the highest bit first.
    pub(super) fn show_settings(self, settings: &Settings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LIST.iter().rev().filter(|l| self.contains(l.bit)).try_for_each(|l| (l.show)(settings, f))
    }
}

impl fmt::Display for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let mut rest = self.0;
        let mut comma = "";
        for &Listed { bit, name, .. } in LIST {
            if self.contains(bit) {
                write!(f, "{comma}{name}")?;
                comma = ",";
                rest &= !bit.0;
            }
        }
        if rest != 0 { write!(f, "{comma}{rest:#x}") } else { Ok(()) }
    }
}
