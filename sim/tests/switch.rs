//! The switch alone, frame by frame, and between senders and receivers of plain frames.

use std::time::Duration;

use softnic_fault_injector::{Direction, Policy, Red, Spec};
use softnic_sim::node::SimNode;
use softnic_sim::{End, LinkConfig, Simulator};
use softnic_switch::{NextHop, Prefix, Switch, SwitchConfig};
use softnic_wire::{
    Addresses, ExtHeaders, Instant, Layout, MacAddr, Node, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame,
    bth, icrc, ipv4,
};

const OWN: MacAddr = MacAddr([2, 1, 0, 0, 0, 0]);

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn frame(src: u8, dst_mac: MacAddr, dst: [u8; 4], src_port: u16, hop_limit: u8, payload: usize) -> Vec<u8> {
    let path = Path {
        src_mac: mac(src),
        dst_mac,
        tags: [None; 2],
        addresses: Addresses::V4 { src: [10, 0, 0, src].into(), dst: dst.into() },
        traffic_class: 0b10,
        flow_label: 0,
        hop_limit,
        src_port,
    };
    let fields = PacketFields {
        opcode: Opcode::RC_SEND_ONLY,
        psn: Psn::new(1),
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: 0,
    };
    let mut buffer = [0; 2048];
    let mut tx = TxFrame::new(&mut buffer);
    let template = Template::new(&path, Qpn::new(5), bth::DEFAULT_PKEY);
    template.build(&mut tx, &fields, &ExtHeaders::default(), &vec![7; payload]).expect("room");
    tx.segments().0.to_vec()
}

fn switch(ports: usize, policy: Policy) -> Switch {
    let config = SwitchConfig { mac: OWN, max_frame: 2048, max_frames: 64, elided: false, seed: 1 };
    let mut s = Switch::new(config);
    (0..ports).for_each(|port| assert_eq!(s.add_port(policy), port));
    s
}

const ROOM: Policy = Policy { limit: 1 << 20, red: None };

fn put(s: &mut Switch, port: usize, frame: &[u8]) {
    s.handle_frame(Instant::ZERO, port, &mut frame.to_vec());
}

/// Everything that leaves by a port.
fn out(s: &mut Switch, port: usize) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2048];
    let mut frames = Vec::new();
    loop {
        let mut tx = TxFrame::new(&mut buffer);
        if !s.poll_transmit(Instant::ZERO, port, &mut tx) {
            return frames;
        }
        frames.push(tx.segments().0.to_vec());
    }
}

#[test]
fn unknown_addresses_are_flooded_until_they_are_learned_and_nothing_goes_back() {
    let mut s = switch(4, ROOM);
    let there = frame(1, mac(2), [10, 0, 0, 2], 1, 64, 10);
    put(&mut s, 0, &there);
    for port in 0..4 {
        assert_eq!(out(&mut s, port).len(), usize::from(port != 0), "port {port}");
    }
    put(&mut s, 2, &frame(2, mac(1), [10, 0, 0, 1], 1, 64, 10));
    assert_eq!([0, 1, 2, 3].map(|p| out(&mut s, p).len()), [1, 0, 0, 0], "the first was learned from what it sent");
    put(&mut s, 0, &there);
    let copies = [0, 1, 2, 3].map(|p| out(&mut s, p));
    assert!(copies[2].len() == 1 && copies[2][0] == there, "switched as it is");
    assert_eq!(copies.iter().flatten().count(), 1);
    put(&mut s, 2, &there);
    assert_eq!((s.counters().filtered, out(&mut s, 2).len()), (1, 0), "its destination is where it came from");
    put(&mut s, 1, &frame(3, MacAddr([0xff; 6]), [10, 0, 0, 255], 1, 64, 10));
    assert_eq!([0, 1, 2, 3].map(|p| out(&mut s, p).len()), [1, 0, 1, 1], "for all");
    assert_eq!(s.counters().flooded, 2);
}

#[test]
fn a_routed_packet_has_a_hop_less_and_the_next_hops_address_and_is_whole() {
    let mut s = switch(3, ROOM);
    s.add_route(Prefix { addr: [10, 7, 0, 0].into(), len: 16 }, vec![NextHop::Fixed { port: 2, mac: mac(77) }]);
    put(&mut s, 0, &frame(1, OWN, [10, 7, 0, 9], 1, 3, 100));
    let frames = out(&mut s, 2);
    let f = &frames[0];
    assert_eq!((&f[..6], &f[6..12]), (&mac(77).0[..], &OWN.0[..]));
    let ip = ipv4::Packet::new_checked(&f[14..]).unwrap();
    assert!(ip.ttl() == 2 && ip.verify_checksum());
    assert_eq!(icrc::verify_shared(f, &Layout::locate(f).unwrap()), Ok(()));
    for (hops, arrives) in [(2, true), (1, false), (0, false)] {
        put(&mut s, 0, &frame(1, OWN, [10, 7, 0, 9], 1, hops, 100));
        assert_eq!(out(&mut s, 2).len(), usize::from(arrives), "{hops}");
    }
    put(&mut s, 0, &frame(1, OWN, [10, 8, 0, 9], 1, 64, 100));
    let c = s.counters();
    assert_eq!((c.hops_exceeded, c.unroutable, c.flooded), (2, 1, 0));
}

#[test]
fn flows_are_spread_by_source_port_and_each_keeps_its_way() {
    let mut s = switch(5, ROOM);
    let hops = (1..5).map(|port| NextHop::Fixed { port, mac: mac(port as u8) }).collect();
    s.add_route(Prefix { addr: [10, 7, 0, 0].into(), len: 16 }, hops);
    let mut counts = [0; 5];
    for src_port in 0..4000 {
        let ways = [(); 2].map(|()| {
            put(&mut s, 0, &frame(1, OWN, [10, 7, 0, 9], 0xc000 + src_port, 64, 0));
            (1..5).find(|p| !out(&mut s, *p).is_empty()).unwrap()
        });
        assert_eq!(ways[0], ways[1]);
        counts[ways[0]] += 1;
    }
    // A thousand each, with a standard deviation of 27.
    assert!(counts[1..].iter().all(|n| (865..1135).contains(n)), "{counts:?}");
}

#[test]
fn a_queue_drops_what_does_not_fit_and_marks_by_what_waits() {
    let len = frame(1, mac(2), [10, 0, 0, 2], 1, 64, 900).len() as u64;
    let red = Red { min: 2 * len, max: 2 * len, chance: 0.0 };
    let mut s = switch(2, Policy { limit: 5 * len, red: Some(red) });
    s.add_mac(mac(2), 1);
    for _ in 0..8 {
        put(&mut s, 0, &frame(1, mac(2), [10, 0, 0, 2], 1, 64, 900));
    }
    let stats = s.port_stats(1);
    assert_eq!((stats.dropped, stats.marked, stats.max_queue), (3, 2, 5 * len));
    let frames = out(&mut s, 1);
    let marked: Vec<_> = frames.iter().map(|f| f[15] & 3 == 3).collect();
    assert_eq!(marked, [false, false, false, true, true], "those that found more than two frames");
    assert!(frames.iter().all(|f| icrc::verify_shared(f, &Layout::locate(f).unwrap()).is_ok()));
    assert_eq!((s.port_stats(1).sent, s.port_stats(0).received), (5, 8));
}

#[test]
fn memory_is_bounded_and_comes_back() {
    let mut s = switch(2, ROOM);
    s.add_mac(mac(2), 1);
    for round in 1..=3 {
        for _ in 0..70 {
            put(&mut s, 0, &frame(1, mac(2), [10, 0, 0, 2], 1, 64, 10));
        }
        assert_eq!((out(&mut s, 1).len(), s.counters().no_buffer), (64, 6 * round));
    }
    put(&mut s, 0, &[0; 3000]);
    put(&mut s, 0, &[0; 5]);
    assert_eq!(out(&mut s, 1).len(), 0, "too long, too short");
}

/// Sends the same frame a number of times.
struct Sender {
    left: u32,
    frame: Vec<u8>,
}

impl Node for Sender {
    fn handle_frame(&mut self, _now: Instant, _port: usize, _frame: &mut [u8]) {}

    fn poll_transmit(&mut self, _now: Instant, _port: usize, tx: &mut TxFrame<'_>) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        tx.put_frame(&self.frame).is_ok()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

impl SimNode for Sender {}

/// Counts frames, and those that are marked.
#[derive(Default)]
struct Receiver {
    frames: u64,
    marked: u64,
}

impl Node for Receiver {
    fn handle_frame(&mut self, _now: Instant, _port: usize, frame: &mut [u8]) {
        self.frames += 1;
        self.marked += u64::from(frame[15] & 3 == 3);
    }

    fn poll_transmit(&mut self, _now: Instant, _port: usize, _tx: &mut TxFrame<'_>) -> bool {
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}

impl SimNode for Receiver {}

/// Two senders with `n` frames each to one receiver, all links alike: frames and marks received, the port's counters.
fn two_into_one(n: u32, policy: Policy) -> (u64, u64, softnic_switch::PortStats) {
    let mut sim = Simulator::new(2048);
    for src in [1, 2] {
        sim.add_node(Box::new(Sender { left: n, frame: frame(src, mac(3), [10, 0, 0, 3], 1, 64, 900) }));
    }
    sim.add_node(Box::new(Receiver::default()));
    let mut s = switch(3, policy);
    s.add_mac(mac(3), 2);
    sim.add_node(Box::new(s));
    let config = LinkConfig { rate: 10_000_000_000, delay: Duration::from_micros(1), faults: Spec::default() };
    for node in 0..3 {
        let (host, at) = (End { node, port: 0 }, End { node: 3, port: node });
        sim.add_link(host, at, &config, Direction::Ab, 1);
        sim.add_link(at, host, &config, Direction::Ba, 2);
    }
    (0..2).for_each(|node| sim.touch(node));
    while sim.step().is_some() {}
    let Receiver { frames, marked } = *sim.node(2).expect("the receiver");
    let s: &mut Switch = sim.node(3).expect("the switch");
    (frames, marked, s.port_stats(2))
}

#[test]
fn what_is_missing_was_dropped_and_what_is_marked_was_counted() {
    let len = frame(1, mac(3), [10, 0, 0, 3], 1, 64, 900).len() as u64;
    let red = |frames| Some(Red { min: frames * len, max: frames * len, chance: 0.0 });
    // Two come for each that leaves: thirty that wait leave room for the first sixty or so.
    let (frames, marked, stats) = two_into_one(500, Policy { limit: 30 * len, red: red(20) });
    assert_eq!(frames + stats.dropped, 1000);
    assert_eq!((frames, marked), (stats.sent, stats.marked));
    assert!((400..480).contains(&stats.dropped) && stats.max_queue == 30 * len, "{stats:?}");
    assert!(marked > 450, "the queue stays above its threshold: {marked}");
    let (frames, marked, stats) = two_into_one(20, Policy { limit: 30 * len, red: red(20) });
    assert!(stats.max_queue <= 20 * len, "{stats:?}");
    assert_eq!((frames, marked, stats.dropped), (40, 0, 0), "never above the threshold, never marked");
}
