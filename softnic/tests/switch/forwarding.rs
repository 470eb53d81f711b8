//! What kernels of hosts send to each other through a switch.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use crate::star::{LIMIT, SOFTNIC, Star, scratch};

const BYTES: usize = 2 << 20;
/// Nothing more comes after this time.
const QUIET: Duration = Duration::from_secs(1);

fn data(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|i| ((i * 31 + seed) >> 3) as u8).collect()
}

/// Bytes there and back by TCP.
fn tcp(star: &Star, from: &str, to: &str, address: IpAddr) {
    let listener = star.inside(to, || TcpListener::bind((address, 0)).expect("an address"));
    let port = listener.local_addr().expect("one").port();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut came = vec![0; BYTES];
            stream.read_exact(&mut came).expect("all of it");
            assert!(came == data(1));
            stream.write_all(&data(2)).expect("it reads");
        });
        let connect = || TcpStream::connect_timeout(&(address, port).into(), LIMIT);
        let mut stream = star.inside(from, connect).unwrap_or_else(|e| panic!("{from} to {address}: {e}"));
        stream.set_read_timeout(Some(LIMIT)).expect("a socket");
        stream.write_all(&data(1)).expect("it reads");
        let mut came = vec![0; BYTES];
        stream.read_exact(&mut came).expect("all of it");
        assert!(came == data(2), "the data is another");
    });
}

/// A datagram there; fragments of a long one, too.
fn udp(star: &Star, from: &str, to: &str, [here, there]: [IpAddr; 2], len: usize) {
    let there = star.inside(to, || UdpSocket::bind((there, 0)).expect("an address"));
    let here = star.inside(from, || UdpSocket::bind((here, 0)).expect("an address"));
    there.set_read_timeout(Some(LIMIT)).expect("a socket");
    let message: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
    here.send_to(&message, there.local_addr().expect("one")).expect("sent");
    let mut room = vec![0; 65536];
    let (came, _) = there.recv_from(&mut room).expect("it comes");
    assert_eq!(&room[..came], message);
}

/// Whether one of some packets is answered: the switch drops those whose next hop it only asks for, there and back.
fn ping(star: &Star, from: &str, to: &str) -> bool {
    let out = star.0.inside(from, "ping").args(["-c", "1", "-i", "0.2", "-w", "20", to]).output().expect("ip");
    // Where there is no such program the sockets say enough.
    out.status.success() || String::from_utf8_lossy(&out.stderr).contains("exec of")
}

fn total(summary: &Value, name: &str) -> u64 {
    summary["ports"].as_array().expect("a list").iter().map(|port| port[name].as_u64().expect("a number")).sum()
}

#[test]
fn kernels_of_a_subnet_reach_each_other_by_mac_address() {
    for mtu in [1500, 9000] {
        let Some(star) = Star::flat(mtu) else { return };
        let switch = star.switch("", "", &["--json"]);
        for (to, address) in [("b", "10.78.0.2"), ("d", "fd78::4")] {
            assert!(ping(&star, "a", address), "{address}");
            tcp(&star, "a", to, address.parse().expect("one"));
        }
        udp(&star, "c", "b", ["10.78.0.3", "10.78.0.2"].map(|a| a.parse().expect("one")), 5000);
        let summary = switch.summary();
        let n = |port: usize, name: &str| summary["ports"][port][name].as_u64().expect("a number");
        assert!(n(0, "rx_bytes") > 2 * BYTES as u64 && n(1, "tx_bytes") > BYTES as u64, "{summary}");
        // Once it is known where a host is, others do not get its frames.
        assert!(n(2, "tx_bytes") < BYTES as u64 / 2, "{summary}");
        assert_eq!((total(&summary, "too_long"), total(&summary, "unsegmented")), (0, 0), "{summary}");
        assert!(total(&summary, "checksums_completed") > 0 && summary["switch"]["flooded"].as_u64() > Some(0));
        for port in 0..4 {
            assert_eq!(n(port, "queue"), 0, "{summary}");
        }
    }
}

/// a and b are in a subnet, c and d in another.
fn routed() -> Option<Star> {
    let mut commands = Vec::new();
    for (host, subnet, n) in [("a", 1, 1), ("b", 1, 2), ("c", 2, 1), ("d", 2, 2)] {
        commands.push(format!("-n @{host} address add 10.{subnet}.0.{n}/24 dev e"));
        commands.push(format!("-n @{host} address add fd0{subnet}::{n}/64 dev e nodad"));
        commands.push(format!("-n @{host} route add default via 10.{subnet}.0.254"));
        commands.push(format!("-n @{host} -6 route add default via fd0{subnet}::fe"));
    }
    Star::new(1500, &commands.iter().map(String::as_str).collect::<Vec<_>>())
}

const ROUTER: &str = "mac = \"02:00:00:00:78:fe\"\n\
    addresses = [\"10.1.0.254/24\", \"10.2.0.254/24\", \"fd01::fe/64\", \"fd02::fe/64\"]\n";

#[test]
fn subnets_are_routed_with_arp_and_ndp_of_the_switchs_own() {
    let Some(star) = routed() else { return };
    let pcap = scratch("all.pcapng");
    let switch = star.switch(ROUTER, "", &["--json", "--pcap", &pcap.display().to_string()]);
    for address in ["10.1.0.254", "10.2.0.254", "fd01::fe"] {
        assert!(ping(&star, "a", address), "its own address {address}");
    }
    for (to, address) in [("c", "10.2.0.1"), ("d", "fd02::2"), ("b", "10.1.0.2")] {
        assert!(ping(&star, "a", address), "{address}");
        tcp(&star, "a", to, address.parse().expect("one"));
    }
    let mut ask = star.0.inside("m", SOFTNIC);
    let out = ask.args(["counters", "--json"]).output().expect("softnic runs");
    let live: Value = serde_json::from_slice(&out.stdout).expect("an object");
    assert!(live["description"].as_str().is_some_and(|d| d.starts_with("switch: p0 (")), "{live}");
    assert!(live["counters"]["p0_rx"].as_u64() > Some(100), "{live}");
    let summary = switch.summary();
    assert!(summary["neighbours"].as_u64() >= Some(3), "{summary}");
    let switch = &summary["switch"];
    // At most the first packets for each host: some wait in their sender's own queue.
    assert!(switch["unresolved"].as_u64().is_some_and(|n| n < 20) && switch["hops_exceeded"] == 0, "{summary}");
    // All ports are in the capture, both ways.
    let file = std::fs::File::open(&pcap).expect("it is there");
    let mut reader = softnic_pcaps::Reader::new(file).expect("a capture");
    let mut frames = 0;
    while reader.next_frame().expect("a whole capture").is_some() {
        frames += 1;
    }
    assert_eq!(frames, total(&summary, "rx") + total(&summary, "tx"), "{summary}");
    std::fs::remove_file(pcap).expect("it is there");
}

#[test]
fn a_next_hop_that_nobody_answers_for_is_counted_and_others_go_on() {
    let Some(star) = routed() else { return };
    let switch = star.switch(ROUTER, "", &["--json"]);
    let socket = star.inside("a", || UdpSocket::bind(("10.1.0.1", 0)).expect("an address"));
    for _ in 0..50 {
        socket.send_to(b"nobody", ("10.2.0.77", 9)).expect("sent");
    }
    tcp(&star, "a", "c", "10.2.0.1".parse().expect("one"));
    let summary = switch.summary();
    assert!(summary["switch"]["unresolved"].as_u64() >= Some(50), "{summary}");
}

#[test]
fn a_rate_fills_its_queue_which_marks_and_drops() {
    let Some(star) = Star::flat(1500) else { return };
    let config = "[[port]]\ninterface = \"p0\"\n[[port]]\ninterface = \"p1\"\nrate = \"20Mbit/s\"\nqueue = \"20K\"\n\
                  ecn = \"2K:10K:0.5\"\n";
    let switch = star.switch_of(config, &["--json"]);
    let there = star.inside("b", || UdpSocket::bind(("10.78.0.2", 0)).expect("an address"));
    let here = star.inside("a", || UdpSocket::bind(("10.78.0.1", 0)).expect("an address"));
    // ECN-capable.
    rustix::net::sockopt::set_ip_tos(&here, 2).expect("a socket");
    let to = there.local_addr().expect("one");
    there.set_read_timeout(Some(LIMIT)).expect("a socket");
    let begin = std::time::Instant::now();
    for _ in 0..1000 {
        here.send_to(&[0; 1000], to).expect("sent");
    }
    let sent_in = begin.elapsed();
    // Until nothing more comes: a whole queue of 20K leaves within 8 ms.
    let (mut room, mut came, mut taken) = ([0; 2000], 0, Duration::ZERO);
    while there.recv_from(&mut room).is_ok() {
        (came, taken) = (came + 1, begin.elapsed());
        there.set_read_timeout(Some(QUIET)).expect("a socket");
    }
    let summary = switch.summary();
    let p1 = &summary["ports"][1];
    let n = |name: &str| p1[name].as_u64().expect("a number");
    assert!(n("max_queue") > 18_000 && n("max_queue") <= 20_480, "{summary}");
    assert!(n("marked") > 0 && summary["ports"][0]["marked"] == 0, "{summary}");
    // Of 8.5 Mbit what did not fit is lost, unless they took as long to send as to leave.
    assert!(n("dropped") > 0 || sent_in.as_millis() > 400, "{summary}");
    // 1000 bytes, 42 of UDP, IPv4 and Ethernet, 24 of every frame on a cable. The first to come is not waited for.
    assert!(came >= 18, "{came} of what fits into the queue: {summary}");
    assert!(taken.as_micros() >= (came - 1) * 1066 * 8 / 20, "{came} in {taken:?} is faster than the rate");
}

#[test]
fn what_is_too_long_for_the_other_mtu_is_counted_and_dropped() {
    let Some(star) = Star::flat(9000) else { return };
    // Both ends of a pair have one MTU; the other hosts have another.
    for command in ["-n @b link set e mtu 1500", "-n @m link set p1 mtu 1500"] {
        star.0.ip(command).expect("an interface");
    }
    let switch = star.switch("", "", &["--json"]);
    let [a, b] = ["10.78.0.1", "10.78.0.2"].map(|a| a.parse().expect("one"));
    let here = star.inside("a", || UdpSocket::bind((a, 0)).expect("an address"));
    udp(&star, "a", "b", [a, b], 1000);
    here.send_to(&[7; 5000], (b, 9)).expect("sent");
    udp(&star, "a", "b", [a, b], 1000);
    let summary = switch.summary();
    assert!(summary["ports"][1]["too_long"] == 1, "{summary}");
    assert_eq!(total(&summary, "unsegmented"), 0);
}
