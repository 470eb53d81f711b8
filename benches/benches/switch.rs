//! What a frame costs a switch without any IO: forwarded, copied to the receivers of a group, and with tables that are full.
//!
//! Goals: forwarding at most two copies of the frame and 60 ns, each further branch of a group at most one copy and 60 ns; with 65,536
//! groups of three and a million ranges at most twice the cost with one.
#![allow(missing_docs, clippy::print_stdout)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use softnic_benches::frames::Write;
use softnic_benches::rows::Rows;
use softnic_fault_injector::Policy;
use softnic_fault_injector::random::Random;
use softnic_switch::group::{GroupSpec, MAX_GROUPS, MergeSpec, Range, Receiver, Target};
use softnic_switch::{NextHop, Prefix, Switch, SwitchConfig};
use softnic_wire::{Instant, MacAddr, Node, Psn, Qpn, TxFrame};

const SIZES: [usize; 3] = [64, 1024, 4096];
const ROUNDS: usize = 3;
/// Receivers of a group.
const FEW: usize = 1;
const MANY: usize = 8;
/// Ranges of each group when tables are full: three receivers have 983,040 of them.
const RANGES: u64 = 5;
/// Frames that are drawn in advance.
const DRAWN: usize = 65_536;

const COPY: &str = "one copy of the frame";
const FORWARD: &str = "forward by MAC address";
const ROUTE: &str = "forward by route";
const GROUP_FEW: &str = "group of 1";
const GROUP_MANY: &str = "group of 8";
const ONE: &str = "group of 3, the only one";
const ALL: &str = "group of 3, one of 65,536";

const OWN: MacAddr = MacAddr([2, 1, 0, 0, 0, 0]);
const NOW: Instant = Instant::ZERO;

fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
}

fn receiver(host: usize) -> Ipv4Addr {
    [10, 0, 0, host as u8 + 1].into()
}

/// The sender of a group: each has its own address.
fn sender(group: u32) -> Ipv4Addr {
    (0x0a80_0000 + group).into()
}

/// The sender at port 0, and receivers at the ports behind it.
fn switch(receivers: usize) -> Switch {
    let config = SwitchConfig { mac: OWN, max_frame: 8192, max_frames: 1024, elided: false, seed: 1 };
    let mut switch = Switch::new(config);
    for host in 0..=receivers {
        let port = switch.add_port(Policy { limit: 1 << 20, red: None });
        switch.add_mac(mac(host), port);
    }
    switch
}

fn group(group: u32, receivers: usize, ranges: u64) -> GroupSpec {
    GroupSpec {
        sender: sender(group).into(),
        mc_id: Qpn::new(0x10_0000 + group),
        merge: Some(MergeSpec { qpn: Qpn::new(0x11), psn: Psn::new(0) }),
        receivers: (1..=receivers)
            .map(|host| Receiver {
                address: receiver(host).into(),
                qpn: Qpn::new(0x100 + host as u32),
                mac: Some(mac(host)),
                branch: None,
            })
            .collect(),
        ranges: (0..ranges)
            .map(|i| Range {
                start: i << 20,
                len: 1 << 20,
                rkey: 7,
                targets: (1..=receivers).map(|host| Target { start: (host as u64) << 30, rkey: 99 }).collect(),
            })
            .collect(),
    }
}

fn write(of: u32, range: u64, size: usize) -> Write {
    Write {
        src: sender(of),
        dst: receiver(1),
        dst_mac: mac(1),
        dest_qp: Qpn::new(0x10_0000 + of),
        va: (range << 20) + 64,
        rkey: 7,
        size,
    }
}

/// A frame comes from the sender, and leaves by as many ports.
fn pass(switch: &mut Switch, frame: &mut [u8], ports: usize, room: &mut [u8]) -> usize {
    switch.handle_frame(NOW, 0, frame);
    let mut sent = 0;
    for port in 1..=ports {
        let mut tx = TxFrame::new(black_box(&mut *room));
        sent += usize::from(switch.poll_transmit(NOW, port, &mut tx));
    }
    sent
}

fn main() {
    let mut rows = Rows::new();
    for _ in 0..ROUNDS {
        for size in SIZES {
            forwarding(&mut rows, size);
            copying(&mut rows, size);
        }
        tables(&mut rows);
    }
    rows.end();
    let mut at = |row, size| rows.typical(row, size).unwrap_or(f64::NAN);
    println!("\n| ns a frame | 64 | 1024 | 4096 |\n|---|---|---|---|");
    for row in [COPY, FORWARD, ROUTE, GROUP_FEW, GROUP_MANY] {
        println!("| {row} | {} |", SIZES.map(|size| format!("{:.1}", at(row, size))).join(" | "));
    }
    for size in SIZES {
        let copy = at(COPY, size);
        let further = (at(GROUP_MANY, size) - at(GROUP_FEW, size)) / (MANY - FEW) as f64;
        for (name, cost, copies) in [
            ("forwarding by MAC address", at(FORWARD, size), 2.0),
            ("forwarding by route", at(ROUTE, size), 2.0),
            ("each further branch", further, 1.0),
        ] {
            let allowed = copies * copy + 60.0;
            println!("{name}, {size} bytes: {cost:.1} ns of {allowed:.1}, {}", verdict(cost <= allowed));
        }
    }
    let (one, all) = (at(ONE, 64), at(ALL, 64));
    let ratio = all / one;
    println!("65,536 groups of three: {all:.1} ns, with one {one:.1}: {ratio:.2} times, {}", verdict(ratio <= 2.0));
}

fn verdict(good: bool) -> &'static str {
    if good { "reached" } else { "not reached" }
}

fn forwarding(rows: &mut Rows, size: usize) {
    let mut frame = write(0, 0, size).frame();
    let mut room = vec![0; 8192];
    let len = frame.len();
    rows.run(COPY, size, || black_box(&mut room[..len]).copy_from_slice(black_box(&frame)));
    let mut by_mac = switch(1);
    rows.run(FORWARD, size, || pass(&mut by_mac, &mut frame, 1, &mut room));
    assert_eq!((by_mac.port_stats(1).dropped, by_mac.counters()), Default::default());
    let mut routes = switch(1);
    let to = Prefix { addr: IpAddr::from([10, 0, 0, 0]), len: 24 };
    routes.add_route(to, vec![NextHop::Fixed { port: 1, mac: mac(1) }]);
    let frame = Write { dst_mac: OWN, ..write(0, 0, size) }.frame();
    let mut passing = frame.clone();
    rows.run(ROUTE, size, || {
        // What a route changes: MAC addresses, hops, checksum.
        passing[..26].copy_from_slice(&frame[..26]);
        pass(&mut routes, &mut passing, 1, &mut room)
    });
    assert_eq!((routes.port_stats(1).dropped, routes.counters()), Default::default());
}

fn copying(rows: &mut Rows, size: usize) {
    let mut frame = write(0, 0, size).frame();
    let mut room = vec![0; 8192];
    for (row, receivers) in [(GROUP_FEW, FEW), (GROUP_MANY, MANY)] {
        let mut switch = switch(receivers);
        assert_eq!(switch.add_group(group(0, receivers, 1)), Ok(()));
        assert_eq!(pass(&mut switch, &mut frame, receivers, &mut room), receivers);
        rows.run(row, size, || pass(&mut switch, &mut frame, receivers, &mut room));
    }
}

/// Frames of random groups, drawn in advance; of one group as many, so that both read as much memory.
fn tables(rows: &mut Rows) {
    let mut room = vec![0; 8192];
    for (row, groups, ranges) in [(ONE, 1, 1), (ALL, MAX_GROUPS as u32, RANGES)] {
        let mut switch = switch(3);
        (0..groups).for_each(|n| assert_eq!(switch.add_group(group(n, 3, ranges)), Ok(())));
        let mut random = Random::stream(7, 1);
        let mut draw = |below: u64| random.below(below);
        let mut frames = Vec::new();
        let len = write(0, 0, 64).frame().len();
        for _ in 0..DRAWN {
            frames.extend(write(draw(groups.into()) as u32, draw(ranges), 64).frame());
        }
        let mut next = 0;
        rows.run(row, 64, || {
            next = (next + 1) % DRAWN;
            pass(&mut switch, &mut frames[next * len..][..len], 3, &mut room)
        });
        assert!(switch.groups(NOW).all(|group| group.counters.bad + group.counters.unresolved == 0));
    }
}
