//! The fuzz body of this module: arbitrary frames for the responder, interleaved with its own requests and with time.

use softnic_wire::PathMtu;

use super::table::INTERVAL;
use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const IP: Ipv4Addr = Ipv4Addr::new(10, 33, 0, 1);
const IP6: Ipv6Addr = Ipv6Addr::new(0xfd33, 0, 0, 0, 0, 0, 0, 1);
/// The addresses that the responder requests.
const PEERS: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 33, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd33, 0, 0, 0, 0, 0, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)),
];
/// The number of bytes by which an answer may exceed the request: the option with the port's MAC address. With more, an attacker could use the
/// port to amplify traffic.
const LONGER: usize = 8;

/// The length of the port's own advertisement, which leaves once in ten seconds: longer than a claim without a MAC address.
const LONGEST_DEFENCE: usize = 14 + 40 + 32;

/// The input is a sequence of frames, each preceded by a byte that selects what happens before it and a length byte. The frames go to a
/// responder alone, and to a whole stack.
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

/// Checks that at most `most` frames of at most `longest` bytes are sent, from this port, and that they parse.
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

/// Repairs the checksums, which a fuzzer would not guess.
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
