//! Rate limits of clients, and the run time of the programs.

use std::io::Write;
use std::time::Instant;

use softnic_wire::Qpn;

use super::frames::*;
use super::*;

/// Far longer than a test takes.
const AN_HOUR: u64 = 3_600_000_000_000;

fn sent(port: &SharedPort, limit: Client, frames: u32) -> Client {
    port.maps.set_client(process(SENDER), &Client { ifindex: 1, ..limit }).unwrap();
    let frame = rc(&outwards(false, REMOTE_MAC), Qpn::new(5));
    for _ in 0..frames {
        let verdict = port.egress.test_run(&frame).unwrap();
        assert!(verdict == TC_ACT_REDIRECT || verdict == TC_ACT_SHOT);
    }
    port.client(SENDER)
}

#[test]
fn a_client_sends_its_burst_and_then_no_more_than_its_rate() {
    let Some(port) = SharedPort::new() else { return };
    let len = rc(&outwards(false, REMOTE_MAC), Qpn::new(5)).len() as u64;
    // A frame takes an hour at this rate, so the run time of the test does not matter.
    let cost = (AN_HOUR << 16) / len;
    for (burst, through) in [(0, 1), (AN_HOUR / 2, 1), (AN_HOUR * 3 / 2, 2), (AN_HOUR * 9 / 2, 5)] {
        let client = sent(&port, Client { cost, burst, ..Client::default() }, 8);
        assert_eq!((client.tx_frames, client.tx_policed, client.tx_denied), (through, 8 - through, 0), "{burst}");
        assert_eq!(client.tx_bytes, through * len);
    }
    // An idle period earns no credit: `due` starts at the current time.
    let client = sent(&port, Client { cost, burst: 0, due: 1, ..Client::default() }, 3);
    assert_eq!((client.tx_frames, client.tx_policed), (1, 2));
    let client = sent(&port, Client::default(), 8);
    assert_eq!((client.tx_frames, client.tx_policed, client.due), (8, 0, 0));
    // A frame takes a nanosecond, and a run of the program takes longer.
    let client = sent(&port, Client { cost: (1 << 16) / len, burst: AN_HOUR, ..Client::default() }, 8);
    assert_eq!((client.tx_frames, client.tx_policed), (8, 0));
}

#[test]
fn datagrams_to_qp1_have_a_rate_of_their_own() {
    const INTERVAL: u64 = 1_000_000_000 / 2048;
    let Some(port) = SharedPort::new() else { return };
    let request = cm(&outwards(false, REMOTE_MAC), &requests(id(SENDER), SERVICE)[0]);
    let datagram = ud(&outwards(false, REMOTE_MAC), Qpn::new(5), qp(SENDER));
    port.maps.set_client(process(SENDER), &Client { ifindex: 1, ..Client::default() }).unwrap();
    assert_eq!(port.egress.test_run(&request).unwrap(), TC_ACT_REDIRECT);
    // An idle period is not counted: `gsi_due` starts at the current time.
    let now = port.client(SENDER).gsi_due - INTERVAL;
    assert!(now > 0);
    // No datagram to QP1 is allowed for an hour; other datagrams continue.
    let flooded = Client { ifindex: 1, gsi_due: now + AN_HOUR, ..Client::default() };
    port.maps.set_client(process(SENDER), &flooded).unwrap();
    for _ in 0..3 {
        assert_eq!(port.egress.test_run(&request).unwrap(), TC_ACT_SHOT);
        assert_eq!(port.egress.test_run(&datagram).unwrap(), TC_ACT_REDIRECT);
    }
    let client = port.client(SENDER);
    assert_eq!((client.tx_frames, client.tx_policed, client.tx_denied), (3, 3, 0));
    assert_eq!(client.gsi_due, flooded.gsi_due);
    // 1024 are allowed at once, and each counts against those that follow.
    port.maps.set_client(process(SENDER), &Client { ifindex: 1, ..Client::default() }).unwrap();
    for n in 1..=1024 {
        assert_eq!(port.egress.test_run(&request).unwrap(), TC_ACT_REDIRECT);
        let ahead = port.client(SENDER).gsi_due - now;
        assert!(ahead >= n * INTERVAL, "{n}: {ahead}");
    }
}

#[test]
fn what_a_client_may_not_send_is_not_held_against_its_rate() {
    let Some(port) = SharedPort::new() else { return };
    let limit = Client { ifindex: 1, cost: AN_HOUR << 10, burst: 0, ..Client::default() };
    port.maps.set_client(process(SENDER), &limit).unwrap();
    let bad = ud(&outwards(false, REMOTE_MAC), Qpn::new(5), qp(1));
    assert_eq!(port.egress.test_run(&bad).unwrap(), TC_ACT_SHOT);
    assert_eq!(port.client(SENDER), Client { tx_denied: 1, ..limit });
}

#[test]
#[ignore = "measures"]
fn nanoseconds_a_frame() {
    let Some(port) = SharedPort::with_members(&[1, 2]) else { return };
    let mut out = std::io::stderr();
    let mut say = |what: &str, program: &Program, frame: &[u8]| {
        let (verdict, ns) = program.test_runs(frame, 1_000_000).unwrap();
        writeln!(out, "{what}: {ns} ns (verdict {verdict})").unwrap();
    };
    let (v4, v6) = (inwards(false), inwards(true));
    let mut tcp = rc(&v4, qp(1));
    tcp[23] = 6;
    say("ingress, TCP", &port.ingress, &tcp);
    say("ingress, RC, IPv4", &port.ingress, &rc(&v4, qp(1)));
    say("ingress, RC, IPv6", &port.ingress, &rc(&v6, qp(1)));
    say("ingress, REP", &port.ingress, &cm(&v4, &rej(id(1), id(2))));
    say("ingress, REQ", &port.ingress, &cm(&v4, &requests(id(1), SERVICE)[0]));
    say("spread, TCP", &port.spread, &tcp);
    say("spread, RC, IPv4", &port.spread, &rc(&v4, qp(1)));
    for (where_to, mac) in [("wire", REMOTE_MAC), ("client", LOCAL_MAC)] {
        for (version, path) in [("IPv4", outwards(false, mac)), ("IPv6", outwards(true, mac))] {
            say(&format!("egress, RC to {where_to}, {version}"), &port.egress, &rc(&path, qp(1)));
            say(&format!("egress, UD to {where_to}, {version}"), &port.egress, &ud(&path, qp(1), qp(SENDER)));
        }
    }
    say("egress, denied", &port.egress, &tcp);
    let limit = Client { ifindex: 1, cost: 1, burst: AN_HOUR, ..Client::default() };
    port.maps.set_client(process(SENDER), &limit).unwrap();
    say("egress, RC to wire, with a rate", &port.egress, &rc(&outwards(false, REMOTE_MAC), qp(1)));
    let start = Instant::now();
    for _ in 0..10 {
        Program::load(Kind::Classifier, &egress(&port.maps, process(SENDER))).unwrap();
    }
    writeln!(out, "egress, load: {:?}", start.elapsed() / 10).unwrap();
}
