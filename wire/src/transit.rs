//! What a network changes in an IP packet on its way: the congestion mark and the hops left. The ICRC covers neither.

use crate::bytes::{be16, put16};
use crate::ethernet::{self, ethertype};
use crate::{ipv4, ipv6};

/// The two ECN bits of a traffic class: not ECN-capable.
pub const NOT_ECT: u8 = 0b00;
/// ECN-capable, as RoCE senders mark their packets.
pub const ECT_0: u8 = 0b10;
/// Congestion experienced.
pub const CE: u8 = 0b11;

/// What became of a packet that takes a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// It has one hop less.
    Taken,
    /// It had none left for this one: it must not go on.
    Expired,
    /// It is not IP, or cut off.
    NotIp,
}

/// Sets "congestion experienced" in a frame whose packet says that it understands that, and keeps the IPv4 checksum as right
/// as it was. Whether the frame is marked now.
pub fn mark_ce(frame: &mut [u8]) -> bool {
    let Some((version, ip)) = network(frame) else { return false };
    // The low two bits of the traffic class: of byte 1 in IPv4; shifted up by four in IPv6.
    let shift = if version == 4 { 0 } else { 4 };
    if ip[1] >> shift & CE == NOT_ECT {
        return false;
    }
    change(ip, version, 0, |word| word | u16::from(CE) << shift);
    true
}

/// Takes one hop from a frame's packet, and keeps the IPv4 checksum as right as it was.
#[inline]
pub fn take_hop(frame: &mut [u8]) -> Hop {
    let Some((version, ip)) = network(frame) else { return Hop::NotIp };
    let at = if version == 4 { ipv4::field::TTL } else { ipv6::field::HOP_LIMIT };
    if ip[at] <= 1 {
        return Hop::Expired;
    }
    // Words begin at even offsets: the TTL is the upper half of its word, the hop limit the lower half.
    change(ip, version, at & !1, |word| if at % 2 == 0 { word - 0x100 } else { word - 1 });
    Hop::Taken
}

/// The IP version and the packet from its header on, if that is whole.
#[inline]
fn network(frame: &mut [u8]) -> Option<(u8, &mut [u8])> {
    let (kind, at) = ethernet::network_layer(frame).ok()?;
    let packet = frame.get_mut(at..)?;
    let version = match kind {
        ethertype::IPV4 => ipv4::Packet::new_checked(&*packet).ok().map(|_| 4),
        ethertype::IPV6 => ipv6::Packet::new_checked(&*packet).ok().map(|_| 6),
        _ => None,
    }?;
    Some((version, packet))
}

/// Changes a word of the header. The checksum is updated, not computed anew (RFC 1624): damage done before stays visible.
#[inline]
fn change(ip: &mut [u8], version: u8, at: usize, to: impl Fn(u16) -> u16) {
    let old = be16(ip, at);
    let new = to(old);
    put16(ip, at, new);
    if version == 4 {
        let sum = u64::from(!be16(ip, ipv4::field::CHECKSUM)) + u64::from(!old) + u64::from(new);
        put16(ip, ipv4::field::CHECKSUM, !ipv4::fold(sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Addresses;
    use crate::{ExtHeaders, Layout, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame, bth, icrc};

    fn frame(v6: bool, traffic_class: u8, hop_limit: u8) -> Vec<u8> {
        let addresses = if v6 {
            Addresses::V6 { src: [0xfd; 16].into(), dst: [0xfe; 16].into() }
        } else {
            Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() }
        };
        let macs = [1, 2].map(|n| MacAddr([2, 0, 0, 0, 0, n]));
        let path = Path {
            src_mac: macs[0],
            dst_mac: macs[1],
            tags: [None; 2],
            addresses,
            traffic_class,
            flow_label: 0x12345,
            hop_limit,
            src_port: 0xc000,
        };
        let fields = PacketFields {
            opcode: Opcode::RC_SEND_ONLY,
            psn: Psn::new(7),
            ack_req: true,
            solicited: false,
            becn: false,
            payload_len: 5,
        };
        let mut buffer = [0; 256];
        let mut tx = TxFrame::new(&mut buffer);
        let template = Template::new(&path, Qpn::new(3), bth::DEFAULT_PKEY);
        template.build(&mut tx, &fields, &ExtHeaders::default(), b"hello").expect("room");
        tx.segments().0.to_vec()
    }

    fn right(frame: &[u8]) -> bool {
        let layout = Layout::locate(frame).expect("RoCE");
        let checksum = frame[14] >> 4 == 6 || ipv4::Packet::new_checked(&frame[14..]).unwrap().verify_checksum();
        checksum && icrc::verify_shared(frame, &layout).is_ok()
    }

    #[test]
    fn a_mark_leaves_checksum_and_icrc_right_and_is_only_for_those_who_understand_it() {
        for v6 in [false, true] {
            for class in 0..=255u8 {
                let mut f = frame(v6, class, 64);
                let before = f.clone();
                assert!(right(&f));
                let capable = class & 3 != NOT_ECT;
                assert_eq!(mark_ce(&mut f), capable, "class {class:#x}");
                let now = Layout::locate(&f).unwrap().traffic_class(&f);
                assert_eq!(now, Some(if capable { class | CE } else { class }));
                assert!(right(&f) && (capable || f == before), "class {class:#x}");
            }
        }
    }

    #[test]
    fn every_hop_is_counted_down_to_the_last() {
        for v6 in [false, true] {
            let mut f = frame(v6, ECT_0, 255);
            let hops = |f: &[u8]| if v6 { f[14 + 7] } else { f[14 + 8] };
            for left in (1..255).rev() {
                assert_eq!(take_hop(&mut f), Hop::Taken);
                assert!(hops(&f) == left && right(&f), "{left}");
            }
            let last = f.clone();
            assert_eq!((take_hop(&mut f), &f), (Hop::Expired, &last));
        }
        let mut arp = frame(false, 0, 64);
        arp[12..14].copy_from_slice(&[8, 6]);
        assert_eq!((take_hop(&mut arp), mark_ce(&mut arp), take_hop(&mut [])), (Hop::NotIp, false, Hop::NotIp));
    }

    #[test]
    fn damage_done_before_stays_visible() {
        let mut f = frame(false, ECT_0, 64);
        f[14 + 15] ^= 4; // the source address
        assert!(mark_ce(&mut f) && take_hop(&mut f) == Hop::Taken);
        assert!(!ipv4::Packet::new_checked(&f[14..]).unwrap().verify_checksum());
        f[14 + 15] ^= 4;
        assert!(right(&f));
    }
}
