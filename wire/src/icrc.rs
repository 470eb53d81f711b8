//! The invariant CRC at the end of every RoCE packet (IBA 7.8.1 and annex A17.3.3).
//!
//! CRC-32 (the Ethernet polynomial) over eight bytes of ones in place of the LRH, then everything from the IP header
//! to the last pad byte, with ones in place of what a router may change: IPv4 TOS, TTL and header checksum, IPv6 traffic
//! class, flow label and hop limit, the UDP checksum, and the fifth byte of the BTH. It is stored little-endian.
//!
//! The variant fields of a packet without options all lie before the end of the BTH, so checking reads it through a mask. The first four
//! bytes of the CRC's register are ones as well, and ones added to ones are zero: the CRC begins in the middle of the LRH, with
//! an empty register.

use softnic_crc::Mask;

use crate::bytes::array;
use crate::layout::{Carrier, Layout};
use crate::{Error, bth, ipv4, ipv6, udp};

/// Bytes of an ICRC.
pub const LEN: usize = 4;

/// CRC-32 of eight 0xff bytes: the state in which every ICRC begins.
const AFTER_LRH: u32 = {
    let mut crc = !0u32;
    let mut bit = 0;
    while bit < 64 {
        crc = (crc >> 1) ^ if (crc ^ 1) & 1 != 0 { 0xedb8_8320 } else { 0 };
        bit += 1;
    }
    !crc
};

/// Offset of the BTH byte that is left out: FECN, BECN and reserved bits.
pub const BTH_VARIANT: usize = 4;

/// A running ICRC over bytes in which the variant fields are ones already.
#[derive(Debug, Clone, Copy)]
pub struct Icrc(u32);

impl Icrc {
    /// Behind the eight bytes that stand for the LRH.
    #[inline]
    #[allow(clippy::new_without_default)] // a CRC in mid-packet is not a default of anything
    pub fn new() -> Icrc {
        Icrc(AFTER_LRH)
    }

    /// Takes in more of the packet.
    #[inline]
    pub fn update(&mut self, masked: &[u8]) {
        self.0 = softnic_crc::update(self.0, masked);
    }

    /// What [`softnic_crc`] goes on from.
    #[inline]
    pub fn value(self) -> u32 {
        self.0
    }

    /// An ICRC that was continued elsewhere.
    #[inline]
    pub fn from_value(crc: u32) -> Icrc {
        Icrc(crc)
    }

    /// The four bytes as they stand on the wire.
    #[inline]
    pub fn finish(self) -> [u8; LEN] {
        self.0.to_le_bytes()
    }
}

/// Puts ones into the variant fields of a network header.
#[inline]
pub(crate) fn mask_network(ip: &mut [u8], carrier: Carrier) {
    if carrier == Carrier::Ipv4 {
        ip[ipv4::field::TOS] = 0xff;
        ip[ipv4::field::TTL] = 0xff;
        ip[ipv4::field::CHECKSUM] = 0xff;
        ip[ipv4::field::CHECKSUM + 1] = 0xff;
    } else {
        ip[0] |= 0x0f; // the version stays
        ip[1..4].fill(0xff);
        ip[ipv6::field::HOP_LIMIT] = 0xff;
    }
}

/// Puts ones into the variant fields from the UDP header (RoCEv1: from the BTH) on.
#[inline]
pub(crate) fn mask_transport(b: &mut [u8], carrier: Carrier) {
    if carrier == Carrier::RoceV1 {
        b[BTH_VARIANT] = 0xff;
    } else {
        b[udp::field::CHECKSUM] = 0xff;
        b[udp::field::CHECKSUM + 1] = 0xff;
        b[udp::LEN + BTH_VARIANT] = 0xff;
    }
}

/// Bytes of the LRH that the CRC takes in one by one; those before them leave an empty register.
const LRH_REST: usize = 4;
const AFTER_LRH_BEGIN: u32 = !0;

/// Ones in place of the rest of the LRH and in the variant fields of a packet whose UDP header (RoCEv1: BTH) is at `udp`.
const fn mask(carrier: Carrier, udp: usize) -> Mask {
    let mut m = [0; Mask::MAX];
    let mut i = 0;
    while i < LRH_REST {
        m[i] = 0xff;
        i += 1;
    }
    if matches!(carrier, Carrier::Ipv4) {
        m[LRH_REST + ipv4::field::TOS] = 0xff;
        m[LRH_REST + ipv4::field::TTL] = 0xff;
        m[LRH_REST + ipv4::field::CHECKSUM] = 0xff;
        m[LRH_REST + ipv4::field::CHECKSUM + 1] = 0xff;
    } else {
        (m[LRH_REST], m[LRH_REST + 1], m[LRH_REST + 2], m[LRH_REST + 3]) = (0x0f, 0xff, 0xff, 0xff);
        m[LRH_REST + ipv6::field::HOP_LIMIT] = 0xff;
    }
    let mut bth = LRH_REST + udp;
    if !matches!(carrier, Carrier::RoceV1) {
        m[bth + udp::field::CHECKSUM] = 0xff;
        m[bth + udp::field::CHECKSUM + 1] = 0xff;
        bth += udp::LEN;
    }
    m[bth + BTH_VARIANT] = 0xff;
    Mask::new(&m)
}

static IPV4_MASK: Mask = mask(Carrier::Ipv4, ipv4::LEN);
static IPV6_MASK: Mask = mask(Carrier::Ipv6, ipv6::LEN);
static V1_MASK: Mask = mask(Carrier::RoceV1, ipv6::LEN);

/// The ICRC of a packet without options or extension headers; `None` where it has some.
#[inline]
fn of_plain(frame: &[u8], layout: &Layout) -> Option<Icrc> {
    let packet = frame.get(layout.network.checked_sub(LRH_REST)?..layout.end.checked_sub(LEN)?)?;
    let mask = match (layout.carrier, layout.udp.checked_sub(layout.network)?) {
        (Carrier::Ipv4, ipv4::LEN) => &IPV4_MASK,
        (Carrier::Ipv6, ipv6::LEN) => &IPV6_MASK,
        (Carrier::RoceV1, ipv6::LEN) => &V1_MASK,
        _ => return None,
    };
    Some(Icrc(softnic_crc::masked(AFTER_LRH_BEGIN, mask, packet)))
}

/// Checks the ICRC of a frame; where it must mask in place, the frame is as before when this returns.
#[inline]
pub fn verify(frame: &mut [u8], layout: &Layout) -> Result<(), Error> {
    layout.check(frame.len())?;
    match of_plain(frame, layout) {
        Some(crc) => judge(crc, &frame[layout.end - LEN..layout.end]),
        None => verify_in_place(frame, layout),
    }
}

/// Writes the ICRC of a frame whose other bytes are as they leave.
#[inline]
pub fn write(frame: &mut [u8], layout: &Layout) -> Result<(), Error> {
    layout.check(frame.len())?;
    let crc = match of_plain(frame, layout) {
        Some(crc) => crc,
        None => of_masked(frame, layout),
    };
    frame[layout.end - LEN..layout.end].copy_from_slice(&crc.finish());
    Ok(())
}

/// Checks the ICRC of a frame that has options or extension headers.
#[inline(never)]
fn verify_in_place(frame: &mut [u8], layout: &Layout) -> Result<(), Error> {
    let crc = of_masked(frame, layout);
    judge(crc, &frame[layout.end - LEN..layout.end])
}

/// Writes the ones into the frame, runs the CRC once over it, and puts the fields back.
fn of_masked(frame: &mut [u8], layout: &Layout) -> Icrc {
    let Layout { carrier, network, udp, bth, end, .. } = *layout;
    // All variant fields lie in the first 12 bytes of the network header and from UDP to the BTH's fifth byte.
    let saved_network: [u8; 12] = array(frame, network);
    let saved_udp: [u8; 2] = array(frame, udp + udp::field::CHECKSUM);
    let saved_bth = frame[bth + BTH_VARIANT];
    mask_network(&mut frame[network..udp], carrier);
    mask_transport(&mut frame[udp..bth + bth::LEN], carrier);
    let mut crc = Icrc::new();
    crc.update(&frame[network..end - LEN]);
    frame[network..network + 12].copy_from_slice(&saved_network);
    frame[udp + udp::field::CHECKSUM..udp + udp::LEN].copy_from_slice(&saved_udp);
    frame[bth + BTH_VARIANT] = saved_bth;
    crc
}

/// Checks the ICRC of a frame that must not be written to.
pub fn verify_shared(frame: &[u8], layout: &Layout) -> Result<(), Error> {
    layout.check(frame.len())?;
    if let Some(crc) = of_plain(frame, layout) {
        return judge(crc, &frame[layout.end - LEN..layout.end]);
    }
    let Layout { carrier, network, udp, bth, end, .. } = *layout;
    // The masked fields lie in the fixed IP header and from UDP to BTH; between them only options, which stay.
    let mut ip = [0; ipv6::LEN];
    let ip = &mut ip[..if carrier == Carrier::Ipv4 { ipv4::LEN } else { ipv6::LEN }];
    let options = network + ip.len();
    ip.copy_from_slice(&frame[network..options]);
    mask_network(ip, carrier);
    let mut transport = [0; udp::LEN + bth::LEN];
    let transport = &mut transport[..bth + bth::LEN - udp];
    transport.copy_from_slice(&frame[udp..bth + bth::LEN]);
    mask_transport(transport, carrier);
    let mut crc = Icrc::new();
    crc.update(ip);
    crc.update(&frame[options..udp]);
    crc.update(transport);
    crc.update(&frame[bth + bth::LEN..end - LEN]);
    judge(crc, &frame[end - LEN..end])
}

#[inline]
fn judge(crc: Icrc, found: &[u8]) -> Result<(), Error> {
    let expected = crc.finish();
    if expected[..] == *found {
        return Ok(());
    }
    let le = |b: &[u8]| b.iter().rev().fold(0u32, |v, &x| v << 8 | u32::from(x));
    Err(Error::Icrc { found: le(found), expected: le(&expected) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_the_crc_of_eight_ones() {
        assert_eq!(AFTER_LRH_BEGIN, softnic_crc::update(0, &[0xff; 4]));
        assert_eq!(AFTER_LRH, softnic_crc::update(0, &[0xff; 8]));
    }

    /// A packet of Linux rxe from our own corpus (rc_send_mtu1024.pcap, the acknowledgement of the first SEND).
    #[test]
    fn a_real_acknowledgement_matches() {
        let mut frame = crate::tests::ACK_FRAME;
        let layout = Layout::locate(&frame).unwrap();
        assert_eq!(verify(&mut frame, &layout), Ok(()));
        assert_eq!(frame, crate::tests::ACK_FRAME, "the frame is restored");
        assert_eq!(verify_shared(&frame, &layout), Ok(()));
    }
}
