//! The MAD by which an end shows that it wrote its entry of a store, and has read the other end's.
//!
//! It goes between the backups, and its QPNs are those of the backup queue pairs. Up to byte 52 the layout is the
//! negotiation's:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 52 | 4 | reserved |
//! | 56 | 16 | nonce of the sender's entries about regions |
//! | 72 | 16 | MAC of both QPNs and that nonce, under the secret of the sender's direction |
//! | 88 | 168 | reserved; bytes 88 to 103 are the negotiation's MAC |

use core::fmt;

use super::super::vendor::{Head, Kind};
use super::super::{Attribute, MAD_LEN};
use crate::bytes::array;
use crate::failover::proof_mac;
use crate::{Error, Qpn};

/// The attribute of [`Proof`].
pub const FAILOVER_PROOF: Attribute = Attribute(0x0013);

/// Inside the vendor's data, which begins at byte 40 of the MAD.
mod field {
    pub(super) const REGION_NONCE: usize = 16;
    pub(super) const MAC: usize = 32;
}

/// One end proves to the other that it knows both nonces of a connection, without showing either.
///
/// As with a negotiation, look for an error status with [`mad::Repr`](super::super::Repr) before parsing an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Proof {
    /// What ties an answer to its offer.
    pub transaction_id: u64,
    /// Offer or answer: the sender of an offer wants the receiver's proof, too.
    pub kind: Kind,
    /// Format version of the sender, [`VERSION`](super::VERSION) from this code.
    pub version: u8,
    /// QPN of the backup queue pair at the sender.
    pub sender_qpn: Qpn,
    /// QPN of the backup queue pair at the receiver.
    pub receiver_qpn: Qpn,
    /// What the sender has drawn for its entries about regions.
    pub region_nonce: [u8; 16],
    /// See [`Proof::sign`].
    pub mac: [u8; 16],
}

impl Proof {
    /// Reads a whole MAD. Whether its MAC is right only [`Proof::is_right`] says.
    pub fn parse(mad: &[u8]) -> Result<Proof, Error> {
        let (head, data) = Head::parse(mad, FAILOVER_PROOF, "softnic proof MAD")?;
        Ok(Proof {
            transaction_id: head.transaction_id,
            kind: head.kind,
            version: head.version,
            sender_qpn: head.sender_qpn,
            receiver_qpn: head.receiver_qpn,
            region_nonce: array(data, field::REGION_NONCE),
            mac: array(data, field::MAC),
        })
    }

    /// Bytes that [`Proof::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        MAD_LEN
    }

    /// Writes a whole MAD.
    ///
    /// # Panics
    /// When `mad` is shorter than [`MAD_LEN`].
    pub fn emit(&self, mad: &mut [u8]) {
        let data = self.head().emit(FAILOVER_PROOF, mad);
        data[field::REGION_NONCE..][..self.region_nonce.len()].copy_from_slice(&self.region_nonce);
        data[field::MAC..][..self.mac.len()].copy_from_slice(&self.mac);
    }

    /// The proof with its MAC, under the [secret](crate::failover::connection_secret) of the sender's direction.
    pub fn sign(self, secret: &[u8; 16]) -> Proof {
        Proof { mac: proof_mac(secret, [self.sender_qpn, self.receiver_qpn], &self.region_nonce), ..self }
    }

    /// Whether somebody with this secret has signed it.
    pub fn is_right(&self, secret: &[u8; 16]) -> bool {
        let right = self.sign(secret).mac;
        // In a time that does not depend on where they differ.
        self.mac.iter().zip(right).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }

    fn head(&self) -> Head {
        let Proof { transaction_id, kind, version, sender_qpn, receiver_qpn, .. } = *self;
        Head { transaction_id, kind, version, sender_qpn, receiver_qpn }
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head().show("proof ", f)?;
        write!(f, " region nonce {:032x}", u128::from_be_bytes(self.region_nonce))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::VERSION;
    use super::*;
    use crate::failover::connection_secret;
    use crate::mad::tests::mad;
    use crate::mad::{Status, fuzz_mad};

    fn proof() -> Proof {
        Proof {
            transaction_id: 0x0102_0304_0506_0708,
            kind: Kind::Offer,
            version: VERSION,
            sender_qpn: Qpn::new(0x11_1213),
            receiver_qpn: Qpn::new(0x21_2223),
            region_nonce: *b"0123456789abcdef",
            mac: *b"ABCDEFGHIJKLMNOP",
        }
    }

    fn bytes_of(proof: &Proof) -> [u8; MAD_LEN] {
        let mut bytes = [0xff; MAD_LEN];
        proof.emit(&mut bytes);
        bytes
    }

    #[test]
    fn fields_of_a_proof_in_their_places() {
        let expect = mad("014e0101 00000000 0102030405060708 0013 0000 00000000
            000000000000000000000000 00 0e534e 01000000 00111213 00212223
            00000000 30313233343536373839616263646566 4142434445464748494a4b4c4d4e4f50");
        assert_eq!(bytes_of(&proof()), expect);
        assert_eq!(Proof::parse(&expect), Ok(proof()));
        let ends = "tid 0x0102030405060708 qpn 0x111213 > 0x212223";
        let shown = format!("softnic proof offer {ends} region nonce 30313233343536373839616263646566");
        assert_eq!(proof().to_string(), shown);
    }

    #[test]
    fn only_both_nonces_in_the_order_of_the_direction_make_a_right_proof() {
        let (a, b) = ([1; 16], [2; 16]);
        let secret = connection_secret([a, b]);
        let signed = proof().sign(&secret);
        assert!(signed.is_right(&secret));
        // The other direction, an earlier run of either end, nobody.
        for wrong in [[b, a], [a, [3; 16]], [[3; 16], b], [[0; 16]; 2]] {
            assert!(!signed.is_right(&connection_secret(wrong)), "{wrong:?}");
        }
        let changed = [
            Proof { sender_qpn: Qpn::new(7), ..signed },
            Proof { receiver_qpn: Qpn::new(7), ..signed },
            Proof { region_nonce: [7; 16], ..signed },
            Proof { mac: [0; 16], ..signed },
        ];
        assert!(changed.iter().all(|proof| !proof.is_right(&secret)));
        let mad = bytes_of(&signed);
        assert!([a, b, secret].iter().all(|kept| !mad.windows(16).any(|bytes| bytes == kept)));
    }

    #[test]
    fn what_is_no_proof() {
        let good = bytes_of(&proof());
        // Class, method, attribute, RMPP flags, OUI, format version.
        for (at, value) in [(1, 0x30), (3, 0x02), (17, 0x12), (26, 0x01), (38, 0x00), (40, 0x00)] {
            let mut bad = good;
            bad[at] = value;
            assert!(matches!(Proof::parse(&bad), Err(Error::Malformed { .. })), "byte {at} = {value:#04x}");
        }
        for have in 0..MAD_LEN {
            let error = Proof::parse(&good[..have]).err();
            assert!(matches!(error, Some(Error::Truncated { need: MAD_LEN, have: h, .. }) if h == have));
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            transaction_id: u64,
            answer in prop::option::of(any::<u16>()),
            version in 1..=u8::MAX,
            qpns: (u32, u32),
            region_nonce: [u8; 16],
            mac: [u8; 16],
        ) {
            let kind = answer.map_or(Kind::Offer, |status| Kind::Answer(Status(status)));
            let (sender_qpn, receiver_qpn) = (Qpn::new(qpns.0), Qpn::new(qpns.1));
            let proof = Proof { transaction_id, kind, version, sender_qpn, receiver_qpn, region_nonce, mac };
            prop_assert_eq!(Proof::parse(&bytes_of(&proof)), Ok(proof));
            fuzz_mad(&bytes_of(&proof));
        }
    }
}
