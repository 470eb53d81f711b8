//! Stacks on a wire, or on two wires with a router between them, and their virtual time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};
use softnic_nic::Port;
use softnic_wire::{Instant, MacAddr, Node, PathMtu, TxFrame};

use crate::neighbours::{Links, Neighbours};
use crate::stack::{Stack, Streams};

/// The delay of a frame, and of a frame that others overtake.
const DELAY: Duration = Duration::from_micros(50);
const LATE: Duration = Duration::from_micros(400);

/// An IGMPv3 query for all groups, to be answered within a second.
pub(super) const GENERAL_QUERY: [u8; 32] = [
    0x45, 0, 0, 32, 0, 0, 0, 0, 1, 2, 0xd9, 0xdb, 0, 0, 0, 0, 224, 0, 0, 1, 0x11, 10, 0xee, 0xf5, 0, 0, 0, 0, 0, 0, 0,
    0,
];

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

pub(super) fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

/// A neighbour table of a port with `address/len`.
pub(super) fn neighbours(n: u8, address: &str, gateways: &[&str]) -> Neighbours {
    let (address, len) = address.split_once('/').unwrap();
    let port = Port { mac: mac(n), addresses: vec![ip(address)], mtu: PathMtu::B1024 };
    let addresses = vec![(ip(address), len.parse().unwrap())];
    Neighbours::with_links(&port, Links { addresses, gateways: gateways.iter().map(|g| ip(g)).collect() })
}

/// Probabilities of faults, in percent of frames.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) loss: u32,
    pub(super) reorder: u32,
    pub(super) duplicate: u32,
}

/// Two stacks, and the network between them.
pub(super) struct World {
    pub(super) stacks: [Stack; 2],
    addresses: [IpAddr; 2],
    pub(super) now: Instant,
    pub(super) faults: Faults,
    pub(super) random: u32,
    /// All frames are lost.
    pub(super) cut: bool,
    /// The number of frames sent to each stack.
    pub(super) heard: [usize; 2],
    /// The number of ARP requests.
    pub(super) asked: usize,
    /// Frames by arrival time, each with its destination.
    wire: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    frames: u64,
    /// The router's ports, one on the link of each stack.
    router: Option<[Neighbours; 2]>,
}

impl World {
    fn new(texts: [&str; 2], gateways: [&[&str]; 2], faults: Faults) -> World {
        let stack =
            |n: usize| Stack::with_streams(neighbours(n as u8 + 1, texts[n], gateways[n]), 1500, 0x1234_5678_9abc << n);
        World {
            stacks: [stack(0), stack(1)],
            addresses: texts.map(|text| ip(text.split_once('/').unwrap().0)),
            now: Instant::from_nanos(1),
            faults,
            random: 1,
            cut: false,
            heard: [0; 2],
            asked: 0,
            wire: BTreeMap::new(),
            frames: 0,
            router: None,
        }
    }

    /// Two stacks on one link.
    pub(super) fn two(version: u8, faults: Faults) -> World {
        let texts = if version == 4 { ["10.0.0.1/24", "10.0.0.2/24"] } else { ["fd00::1/64", "fd00::2/64"] };
        World::new(texts, [&[], &[]], faults)
    }

    /// Two stacks on two links, with a router between them.
    pub(super) fn routed() -> World {
        let texts = ["10.0.0.1/24", "10.0.1.1/24"];
        let mut world = World::new(texts, [&["10.0.0.254"], &["10.0.1.254"]], Faults::default());
        world.router = Some([neighbours(8, "10.0.0.254/24", &[]), neighbours(9, "10.0.1.254/24", &[])]);
        world
    }

    pub(super) fn address(&self, stack: usize) -> IpAddr {
        self.addresses[stack]
    }

    pub(super) fn streams(&mut self, stack: usize) -> &mut Streams {
        self.stacks[stack].streams().unwrap()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random % 100 < percent
    }

    /// Puts a frame on the wire, to the stack `to`.
    fn carry(&mut self, to: usize, frame: &[u8]) {
        self.heard[to] += 1;
        self.asked += usize::from(frame[12..14] == [8, 6] && frame[21] == 1);
        if self.cut || self.chance(self.faults.loss) {
            return;
        }
        let copies = 1 + u32::from(self.chance(self.faults.duplicate));
        for _ in 0..copies {
            let delay = if self.chance(self.faults.reorder) { LATE } else { DELAY };
            self.frames += 1;
            self.wire.insert((self.now + delay, self.frames), (to, frame.to_vec()));
        }
    }

    /// Puts frames of a stack on the wire.
    pub(super) fn carry_all(&mut self, from: usize, frames: Vec<Vec<u8>>) {
        frames.iter().for_each(|frame| self.carry(1 - from, frame));
    }

    /// Forwards a frame of the stack `from`, on a link with the router.
    fn route(&mut self, from: usize, mut frame: Vec<u8>) {
        let now = self.now;
        let [near, far] = self.router.as_mut().unwrap().get_disjoint_mut([from, 1 - from]).unwrap();
        near.handle_frame(now, 0, &mut frame);
        let mut replies: Vec<_> = sent(near, now).into_iter().map(|frame| (from, frame)).collect();
        if frame[..6] == near.mac().0 && frame[12..14] == [8, 0] && frame[23] == 6 {
            let destination = IpAddr::from(*frame[30..].first_chunk::<4>().unwrap());
            // As with other routers, a packet is lost while its next hop is being resolved.
            if let Ok(Some(mac)) = far.mac_of(now, destination) {
                far.push_ip(mac, &frame[14..]);
            }
            replies.extend(sent(far, now).into_iter().map(|frame| (1 - from, frame)));
        }
        for (to, frame) in replies {
            self.carry(to, &frame);
        }
    }

    /// Lets time pass until `done` or until `end`. Returns whether it is done.
    pub(super) fn run_until(&mut self, end: Instant, mut done: impl FnMut(&mut World) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            for stack in 0..2 {
                for frame in sent(&mut self.stacks[stack], self.now) {
                    match self.router {
                        Some(_) => self.route(stack, frame),
                        None => self.carry(1 - stack, &frame),
                    }
                }
            }
            let arrival = self.wire.first_key_value().map(|(&(at, _), _)| at);
            let timers = self.stacks.iter().filter_map(|stack| stack.poll_timeout());
            let Some(next) = timers.chain(arrival).min().filter(|&next| next < end) else {
                self.now = end;
                return false;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, mut frame) = entry.remove();
                self.stacks[to].handle_frame(self.now, 0, &mut frame);
            }
            let now = self.now;
            self.stacks.iter_mut().for_each(|stack| stack.handle_timeout(now));
        }
    }
}

/// All frames that a Node has to send.
pub(super) fn sent(node: &mut impl Node, now: Instant) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut room = [0; 2048];
    loop {
        let mut tx = TxFrame::new(&mut room);
        if !node.poll_transmit(now, 0, &mut tx) {
            return frames;
        }
        frames.push(tx.segments().0.to_vec());
    }
}

/// The first segment of a connection from the `n`th client to 10.0.0.2.
pub(super) fn syn(to: &Stack, n: u16) -> Vec<u8> {
    let (src, dst) = ([10, 0, 0, 100 + (n % 100) as u8].into(), [10, 0, 0, 2].into());
    let tcp = TcpRepr {
        src_port: 1000 + n,
        dst_port: super::PORT,
        control: TcpControl::Syn,
        seq_number: TcpSeqNumber(7),
        ack_number: None,
        window_len: 1000,
        window_scale: None,
        max_seg_size: Some(1460),
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let header = Ipv4Repr {
        src_addr: src,
        dst_addr: dst,
        next_header: IpProtocol::Tcp,
        payload_len: tcp.buffer_len(),
        hop_limit: 64,
    };
    let mut frame = [&to.neighbours.mac().0[..], &mac(77).0, &[8, 0]].concat();
    frame.resize(14 + header.buffer_len() + header.payload_len, 0);
    let sums = ChecksumCapabilities::default();
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
    header.emit(&mut packet, &sums);
    tcp.emit(&mut TcpPacket::new_unchecked(packet.payload_mut()), &src.into(), &dst.into(), &sums);
    frame
}

/// A frame with an IPv4 segment, moved forward in its stream by `bytes`.
pub(super) fn later(frame: &[u8], bytes: i32) -> Vec<u8> {
    changed(frame, |tcp| tcp.set_seq_number(TcpSeqNumber(tcp.seq_number().0.wrapping_add(bytes))))
}

/// A frame with an IPv4 segment that acknowledges `bytes` more.
pub(super) fn acknowledging(frame: &[u8], bytes: usize) -> Vec<u8> {
    changed(frame, |tcp| tcp.set_ack_number(tcp.ack_number() + bytes))
}

fn changed(frame: &[u8], change: impl FnOnce(&mut TcpPacket<&mut [u8]>)) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
    let (src, dst) = (packet.src_addr(), packet.dst_addr());
    let mut tcp = TcpPacket::new_unchecked(packet.payload_mut());
    change(&mut tcp);
    tcp.fill_checksum(&src.into(), &dst.into());
    frame
}
