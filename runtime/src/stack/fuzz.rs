//! The fuzz body of this module: arbitrary frames, and segments of a peer that breaks the rules, for a stack that listens and connects.

use std::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{EthernetFrame, IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket, TcpSeqNumber};
use softnic_nic::Port;
use softnic_wire::PathMtu;

use super::*;
use crate::neighbours::Links;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const IP: Ipv4Addr = Ipv4Addr::new(10, 33, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 33, 0, 2);
const PORT: u16 = 7;
/// The largest number of streams and half-open connections of a stack, whatever it receives.
const MAX_CONNECTIONS: usize = 64 + 32;

/// The peer of the connections: the latest segment that it received.
#[derive(Default)]
struct Peer {
    ports: (u16, u16),
    sequence: u32,
    acknowledged: u32,
}

/// The input is a sequence of frames, each preceded by a byte that selects the actions around it, and a length byte.
pub(crate) fn fuzz_stack(mut data: &[u8]) {
    let port = Port { mac: MAC, addresses: vec![IP.into()], mtu: PathMtu::B1024 };
    let links = Links { addresses: vec![(IP.into(), 24)], gateways: vec![PEER.into()] };
    let mut stack = Stack::with_streams(Neighbours::with_links(&port, links), 1500, 1);
    let streams = stack.streams().expect("it has streams");
    streams.listen(PORT, 2).expect("a free port");
    stack.set_groups(Instant::ZERO, [[239, 1, 2, 3].into(), [239, 1, 2, 4].into()]).expect("few groups");
    let mut ids = vec![stack.connect(SocketAddr::new(PEER.into(), 9)).expect("a way there")];
    let mut peer = Peer { ports: (1, PORT), ..Peer::default() };
    let mut now = Instant::ZERO;
    while let [how, len, rest @ ..] = data {
        let (frame, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        data = rest;
        now = now + std::time::Duration::from_millis(if how & 1 != 0 { 500 } else { 1 });
        if stack.poll_timeout().is_some_and(|at| at <= now) {
            stack.handle_timeout(now);
        }
        let mut frame = match how & 8 {
            0 => frame.to_vec(),
            _ => peer.segment(frame),
        };
        stack.handle_frame(now, 0, &mut frame);
        let streams = stack.streams().expect("it has streams");
        ids.extend(streams.accept(PORT).map(|(id, _)| id));
        let id = ids[usize::from(how >> 4) % ids.len()];
        let _ = streams.read(id, &mut [0; 700]);
        match how & 6 {
            2 => drop(streams.write(id, &[7; 3000])),
            4 => drop(streams.shutdown(id)),
            6 if how >> 4 == 15 => streams.close(now, id),
            _ => {}
        }
        assert!(streams.len() <= MAX_CONNECTIONS);
        peer.take(&mut stack, now);
    }
}

impl Peer {
    /// Takes all frames that the stack sends, and answers requests for the peer's address.
    fn take(&mut self, stack: &mut Stack, now: Instant) {
        let mut room = [0; 2048];
        for sent in 0.. {
            let mut tx = TxFrame::new(&mut room);
            if !stack.poll_transmit(now, 0, &mut tx) {
                return;
            }
            assert!(sent < 1000, "a stack that never ends to send");
            let eth = EthernetFrame::new_checked(tx.segments().0).expect("a frame");
            assert_eq!(eth.src_addr().0, MAC.0);
            if eth.payload().get(6..8) == Some(&[0, 1]) && u16::from(eth.ethertype()) == 0x0806 {
                let head = [&MAC.0[..], &PEER_MAC.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &PEER_MAC.0].concat();
                let mut reply = [&head[..], &eth.payload()[24..28], &MAC.0, &IP.octets()].concat();
                stack.handle_frame(now, 0, &mut reply);
            } else if let Some(segment) = Segment::of(eth.payload()) {
                let (ports, sequence, acknowledged) = segment.for_peer();
                *self = Peer { ports, sequence, acknowledged: acknowledged.unwrap_or(self.acknowledged) };
            }
        }
    }

    /// A segment that is almost right: `how` holds the deviations.
    fn segment(&self, how: &[u8]) -> Vec<u8> {
        let at = |n: usize| how.get(n).copied().unwrap_or(0);
        let payload = usize::from(at(5)) * 6;
        let ip = Ipv4Repr {
            src_addr: PEER,
            dst_addr: IP,
            next_header: IpProtocol::Tcp,
            payload_len: 20 + payload,
            hop_limit: 64,
        };
        let mut frame = [&MAC.0[..], &PEER_MAC.0, &[8, 0]].concat();
        frame.resize(14 + 40 + payload, 0);
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
        ip.emit(&mut packet, &ChecksumCapabilities::default());
        let mut tcp = TcpPacket::new_unchecked(packet.payload_mut());
        // One of several connections that the peer opens, or the one that it saw last.
        let source = if at(6) == 0 { self.ports.0 } else { at(6).into() };
        tcp.set_src_port(source.max(1));
        tcp.set_dst_port(if at(6) == 0 { self.ports.1 } else { PORT });
        let off = |n: usize| i32::from(at(n) as i8) * if at(7) & 1 == 0 { 1 } else { 300 };
        tcp.set_seq_number(TcpSeqNumber((self.acknowledged as i32).wrapping_add(off(1))));
        tcp.set_ack_number(TcpSeqNumber((self.sequence as i32).wrapping_add(off(2))));
        tcp.set_header_len(20);
        let flags = at(0);
        tcp.set_fin(flags & 1 != 0);
        tcp.set_syn(flags & 2 != 0);
        tcp.set_rst(flags & 4 != 0);
        tcp.set_psh(flags & 8 != 0);
        tcp.set_ack(flags & 16 != 0);
        tcp.set_window_len(u16::from_be_bytes([at(3), at(4)]));
        tcp.fill_checksum(&PEER.into(), &IP.into());
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mostly segments that acknowledge everything and carry data, so that connections get far.
    #[test]
    fn peers_that_keep_to_no_rule_do_no_harm() {
        let mut random = 1u32;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random
        };
        for _ in 0..300 {
            let mut data = Vec::new();
            for _ in 0..100 {
                let mut small = |most: u32| if next() % 4 == 0 { next() as u8 } else { (next() % most) as u8 };
                let flags = [16, 16, 16, 24, 2, 17, 18, 4][usize::from(small(5) % 8)];
                let segment = [flags, small(2), small(1), 255 - small(9), 0, small(250), small(2), small(2)];
                data.extend([small(250) | 8, segment.len() as u8]);
                data.extend(segment);
            }
            fuzz_stack(&data);
        }
    }
}
