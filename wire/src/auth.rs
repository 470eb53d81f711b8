//! The trailer of authenticated packets, and the settings of the extension `auth` in a negotiation.
//!
//! The trailer stands between the payload with its pad and the ICRC (docs/wire-formats.md has the table):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | epoch: packets that the sender has sealed on this connection, this one included; the upper 16 bits are zero |
//! | 8 | 16 | tag |

use core::fmt;
use core::ops::Range;

use crate::bytes::array;
use crate::settings::ExtensionSettings;

/// Bytes of the epoch.
pub const EPOCH_LEN: usize = 8;
/// Bytes of the tag.
pub const TAG_LEN: usize = 16;
/// Bytes of the trailer.
pub const TRAILER_LEN: usize = EPOCH_LEN + TAG_LEN;
/// The last epoch of a connection.
pub const MAX_EPOCH: u64 = (1 << 48) - 1;

/// The trailer of an authenticated packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Which packet of its sender on this connection it is, from 1.
    pub epoch: u64,
    /// The tag.
    pub tag: [u8; TAG_LEN],
}

impl Trailer {
    /// Reads a trailer; `None` when the epoch is none that there is.
    #[inline]
    pub fn parse(bytes: &[u8; TRAILER_LEN]) -> Option<Trailer> {
        let epoch = u64::from_be_bytes(array(bytes, 0));
        (epoch <= MAX_EPOCH).then(|| Trailer { epoch, tag: array(bytes, EPOCH_LEN) })
    }
}

/// The MTU that a link must have for connections of this path MTU: the longest packet is a WRITE with immediate of Selective Repeat.
pub const fn link_mtu(path_mtu: u32, over_ipv6: bool) -> u32 {
    // IP, UDP, BTH; SrETH, RETH and ImmDt; trailer and ICRC.
    path_mtu + if over_ipv6 { 40 } else { 20 } + 8 + 12 + 28 + TRAILER_LEN as u32 + 4
}

/// The settings of authentication in a negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuthSettings {
    /// What the MAD's sender has drawn for this negotiation.
    pub nonce: [u8; 16],
}

impl ExtensionSettings for AuthSettings {
    const RANGE: Range<usize> = 8..24;

    fn parse(bytes: &[u8]) -> AuthSettings {
        let mut nonce = [0; 16];
        nonce.copy_from_slice(bytes);
        AuthSettings { nonce }
    }

    fn emit(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.nonce);
    }
}

/// `nonce 00112233445566778899aabbccddeeff`.
impl fmt::Display for AuthSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nonce {:032x}", u128::from_be_bytes(self.nonce))
    }
}
