//! The fuzz body of this module: any frames for the responder, in between questions of its own and time.

use softnic_wire::PathMtu;

use super::table::INTERVAL;
use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const IP: Ipv4Addr = Ipv4Addr::new(10, 33, 0, 1);
const IP6: Ipv6Addr = Ipv6Addr::new(0xfd33, 0, 0, 0, 0, 0, 0, 1);
/// Whom the responder asks for.
const PEERS: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 33, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd33, 0, 0, 0, 0, 0, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)),
];
/// An answer is at most so much longer than the question: by the option with our MAC address. More, and anybody could have us
/// send more than they send.
const LONGER: usize = 8;

/// An advertisement of our own, once in ten seconds: longer than a claim without a MAC address.
const LONGEST_DEFENCE: usize = 14 + 40 + 32;

/// Frames, each behind a byte that says what comes first and one that is its length; for neighbours alone, and for a whole stack.
#[doc(hidden)]
pub fn fuzz_neighbours(mut data: &[u8]) {
    crate::stack::fuzz_stack(data);
    let mut n = Neighbours::new(&Port { mac: MAC, addresses: vec![IP.into(), IP6.into()], mtu: PathMtu::B4096 });
    let mut now = Instant::ZERO;
    while let [how, len, rest @ ..] = data {
        let (frame, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        data = rest;
        let mut frame = frame.to_vec();
        if how & 1 != 0 {
            now = now + INTERVAL;
            n.handle_timeout(now);
        }
        if how & 2 != 0 {
            let _ = n.mac_of(now, PEERS[usize::from(how >> 4) % PEERS.len()]);
        }
        check_sent(&mut n, now, PEERS.len(), usize::MAX);
        if how & 4 == 0 {
            repair(&mut frame);
        }
        let most = frame.len() + LONGER;
        n.handle_frame(now, 0, &mut frame);
        // An answer, and the defence of an address.
        check_sent(&mut n, now, 2, most.max(LONGEST_DEFENCE));
        assert!(n.table.len() <= PEERS.len(), "who was not asked for is not remembered");
        assert!(n.table.macs().all(|mac| mac.0[0] & 1 == 0), "nobody's address is that of a group");
    }
}

/// What is sent is at most so many frames of at most so many bytes, from us, and can be read.
fn check_sent(n: &mut Neighbours, now: Instant, most: usize, longest: usize) {
    let mut room = [0; 2048];
    for sent in 0.. {
        let mut tx = TxFrame::new(&mut room);
        if !n.poll_transmit(now, 0, &mut tx) {
            return;
        }
        assert!(sent < most && tx.len() <= longest, "{} bytes, of at most {longest}", tx.len());
        let eth = EthernetFrame::new_unchecked(tx.segments().0);
        assert_eq!(eth.src_addr().0, MAC.0);
        match eth.ethertype() {
            EthernetProtocol::Arp => assert!(ArpPacket::new_checked(eth.payload()).is_ok()),
            EthernetProtocol::Ipv4 => {
                assert!(Ipv4Packet::new_checked(eth.payload()).is_ok_and(|p| p.verify_checksum()));
            }
            _ => assert!(Ipv6Packet::new_checked(eth.payload()).is_ok()),
        }
    }
}

/// Makes the checksums right where there are any: nobody would guess them.
fn repair(frame: &mut [u8]) {
    let Ok(mut eth) = EthernetFrame::new_checked(frame) else { return };
    match eth.ethertype() {
        EthernetProtocol::Ipv4 => {
            let Ok(mut ip) = Ipv4Packet::new_checked(eth.payload_mut()) else { return };
            ip.fill_checksum();
            if let Ok(mut icmp) = Icmpv4Packet::new_checked(ip.payload_mut()) {
                icmp.fill_checksum();
            }
        }
        EthernetProtocol::Ipv6 => {
            let Ok(mut ip) = Ipv6Packet::new_checked(eth.payload_mut()) else { return };
            let (src, dst) = (ip.src_addr(), ip.dst_addr());
            if let Ok(mut icmp) = Icmpv6Packet::new_checked(ip.payload_mut()) {
                icmp.fill_checksum(&src, &dst);
            }
        }
        _ => {}
    }
}
