//! The keys that are derived from a secret, and their use: tags of packets (AES-256-GMAC) and MACs of MADs (HMAC-SHA-256).

use std::net::IpAddr;

use graviola::aead::AesGcm;
use graviola::hashing::Sha256;
use graviola::hashing::hmac::Hmac;
use softnic_wire::Qpn;
use softnic_wire::auth::TAG_LEN;
use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::vendor::MAC;

use super::Secret;

/// Separates the keys of packets from all others derived from the same secret.
const PACKET_LABEL: &[u8] = b"softnic auth 1 packet";
/// Separates the keys of MADs from all others derived from the same secret.
const MAD_LABEL: &[u8] = b"softnic auth 1 negotiation";
const MAC_LEN: usize = MAC.end - MAC.start;

/// Whether the processor has all required instructions; without them the computations would end the process.
pub(super) fn are_possible() -> bool {
    #[cfg(target_arch = "x86_64")]
    let possible = std::is_x86_feature_detected!("aes")
        && std::is_x86_feature_detected!("pclmulqdq")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("adx")
        && std::is_x86_feature_detected!("avx2");
    #[cfg(target_arch = "aarch64")]
    let possible = std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
        && std::arch::is_aarch64_feature_detected!("sha2");
    possible
}

/// One direction of a connection.
pub(super) struct Direction {
    /// The sender.
    pub(super) from: (IpAddr, Qpn),
    /// The receiver.
    pub(super) to: (IpAddr, Qpn),
    /// The nonces of the sender and of the receiver.
    pub(super) nonces: [[u8; 16]; 2],
}

impl Direction {
    /// The key of this direction's packets.
    pub(super) fn key(&self, secret: &Secret) -> PacketKey {
        let qpn = |qpn: Qpn| {
            let [_, a, b, c] = qpn.value().to_be_bytes();
            [a, b, c]
        };
        let (from, to) = (address(self.from.0), address(self.to.0));
        let info: [&[u8]; 5] = [PACKET_LABEL, &from, &qpn(self.from.1), &to, &qpn(self.to.1)];
        PacketKey(AesGcm::new(&hkdf(secret, self.nonces.as_flattened(), &info)))
    }
}

/// 32 bytes of HKDF-SHA-256 (RFC 5869), which is one block of output.
fn hkdf(secret: &Secret, salt: &[u8], info: &[&[u8]]) -> [u8; 32] {
    let mut extract = Hmac::<Sha256>::new(salt);
    extract.update(secret.bytes());
    let mut expand = Hmac::<Sha256>::new(extract.finish().as_ref());
    info.iter().for_each(|part| expand.update(part));
    expand.update([1]);
    let mut key = [0; 32];
    key.copy_from_slice(expand.finish().as_ref());
    key
}

/// The key of the packets of one direction.
pub(super) struct PacketKey(AesGcm);

impl PacketKey {
    /// The tag of `sealed`: GCM with no plaintext.
    #[inline]
    pub(super) fn tag(&self, nonce: &[u8; 12], sealed: &[u8]) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        self.0.encrypt(nonce, sealed, &mut [], &mut tag);
        tag
    }

    /// Whether this is the tag of `sealed`; takes constant time.
    #[inline]
    pub(super) fn verifies(&self, nonce: &[u8; 12], sealed: &[u8], tag: &[u8; TAG_LEN]) -> bool {
        self.0.decrypt(nonce, sealed, &mut [], tag).is_ok()
    }
}

/// The key of the MADs of all negotiations under one secret.
pub(super) struct MadKey(Hmac<Sha256>);

impl MadKey {
    pub(super) fn new(secret: &Secret) -> MadKey {
        MadKey(Hmac::new(hkdf(secret, &[], &[MAD_LABEL])))
    }

    /// The MAC of a MAD from one address to the other; the MAC field itself is ignored.
    pub(super) fn mac(&self, mad: &[u8; MAD_LEN], from: IpAddr, to: IpAddr) -> [u8; MAC_LEN] {
        let mut context = self.0.clone();
        context.update(&mad[..MAC.start]);
        context.update([0; MAC_LEN]);
        context.update(&mad[MAC.end..]);
        context.update(address(from));
        context.update(address(to));
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&context.finish().as_ref()[..MAC_LEN]);
        mac
    }
}

/// Whether two MACs are equal; takes constant time.
pub(super) fn are_equal(a: &[u8; MAC_LEN], b: &[u8; MAC_LEN]) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// 16 bytes; an IPv4 address is mapped into IPv6.
fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python's `cryptography`: HMAC(HKDF(SHA256, 32, None, b"softnic auth 1 negotiation").derive(b"0123456789abcdef" * 2),
    /// SHA256()) of 00..ff with zeros from 88 to 104, ::ffff:10.0.0.1 and ::ffff:10.0.0.2, 16 bytes.
    #[test]
    fn the_mac_is_that_of_an_independent_implementation() {
        let key = MadKey::new(&Secret::new(b"0123456789abcdef0123456789abcdef").unwrap());
        let mad = std::array::from_fn(|i| i as u8);
        let [from, to] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let mac = key.mac(&mad, from, to);
        assert_eq!(mac, 0xa485_12b0_4f96_b020_17f2_b249_bd80_cd04_u128.to_be_bytes());
        assert!(are_equal(&mac, &mac) && !are_equal(&mac, &key.mac(&mad, to, from)));
    }
}
