//! SDR-RDMA on the wire: the division of immediates, what one end tells the other, control messages, and the settings of the extension
//! `sdr` in a negotiation (docs/wire-formats.md has the tables).

pub mod control;
mod info;
pub mod report;
mod split;

use core::fmt;
use core::ops::Range;

pub use info::{Contact, GenerationInfo, Info, InfoError};
pub use split::{Split, SplitError};

use crate::PathMtu;
use crate::settings::ExtensionSettings;

/// The most generations.
pub const MAX_GENERATIONS: u8 = 16;
/// The most queue pairs of a generation.
pub const MAX_CHANNELS: u8 = 16;
/// The most receives that can be posted at a time.
pub const MAX_SLOTS: u32 = 1 << 20;

/// Packets of a message: one without bytes has one, too.
pub fn packets(len: u64, mtu: PathMtu) -> u64 {
    len.div_ceil(mtu.bytes().into()).max(1)
}

/// The settings of SDR in a negotiation, beside the [`Info`]: what is spoken on top of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SdrSettings {
    /// The scheme that makes messages reliable; SDR is agreed on only where both ends have the same.
    pub scheme: u8,
    /// Its own settings, of the MAD's sender.
    pub parameters: [u8; 3],
}

impl SdrSettings {
    /// No scheme: the program itself decides what a loss means.
    pub const SDK: SdrSettings = SdrSettings { scheme: 0, parameters: [0; 3] };
}

impl ExtensionSettings for SdrSettings {
    const RANGE: Range<usize> = 24..28;

    fn parse(bytes: &[u8]) -> SdrSettings {
        SdrSettings { scheme: bytes[0], parameters: [bytes[1], bytes[2], bytes[3]] }
    }

    fn emit(&self, bytes: &mut [u8]) {
        bytes[0] = self.scheme;
        bytes[1..].copy_from_slice(&self.parameters);
    }
}

/// `sdr scheme 0`, with the scheme's settings where it has any.
impl fmt::Display for SdrSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sdr scheme {}", self.scheme)?;
        match self.parameters {
            [0, 0, 0] => Ok(()),
            [a, b, c] => write!(f, ":{a},{b},{c}"),
        }
    }
}
