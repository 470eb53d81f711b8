//! `softnic` on devices that DPDK drives, as people and scripts use it: two processes with a wire between them that needs no NIC.
//!
//! Built with the feature `dpdk`; DPDK starts once a process, and here each has its own.

mod ends;
#[path = "../common/meeting.rs"]
mod meeting;
#[path = "../common/namespaces.rs"]
mod namespaces;
mod programs;
mod refusals;
mod taps;
mod veths;

use ends::Ends;

/// All operations, with their data compared where there is any.
fn all_operations(ends: &Ends, mtu: &str) {
    for (op, transport) in [
        ("write_bw", "rc"),
        ("read_bw", "rc"),
        ("send_bw", "rc"),
        ("atomic_bw", "rc"),
        ("write_lat", "rc"),
        ("send_lat", "ud"),
        ("write_lat", "uc"),
        ("write_bw", "sr"),
    ] {
        let mut args = vec![op, "--transport", transport, "--iters", "300", "--mtu", mtu];
        if !op.starts_with("atomic") {
            args.extend(["--size", "1000", "--verify"]);
        }
        let v = ends.run(&args);
        assert_eq!((v["op"].as_str(), v["iterations"].as_u64()), (Some(op), Some(300)), "{v}");
    }
    let v = ends.run(&["write_bw", "--size", "1M", "--iters", "50", "--verify", "--mtu", mtu]);
    assert_eq!(v["iterations"].as_u64(), Some(50), "{v}");
}

#[test]
fn all_operations_over_memif() {
    let ends = Ends::memif("ops");
    all_operations(&ends, "4096");
    let v = ends.run(&["raw", "--size", "1024", "--iters", "20000"]);
    assert!(v["iterations"].as_u64().is_some_and(|n| n > 0), "{v}");
}

#[test]
fn all_operations_over_vhost_and_virtio_user() {
    all_operations(&Ends::vhost("vhost-ops"), "4096");
}

#[test]
fn connections_live_through_loss_on_a_memif() {
    let v =
        Ends::memif("loss").run(&["write_bw", "--size", "64K", "--iters", "200", "--verify", "--fault", "loss=1e-2"]);
    assert!(v["counters"]["retransmitted_packets"].as_u64().is_some_and(|n| n > 0), "{v}");
}

#[test]
fn a_thousand_queue_pairs_share_a_memif() {
    let v = Ends::memif("thousand").run(&["write_bw", "--qps", "1000", "--size", "4K", "--iters", "5000", "--verify"]);
    assert_eq!(v["iterations"].as_u64(), Some(5000), "{v}");
}

#[test]
fn queue_pairs_are_spread_over_the_queues_of_a_memif() {
    let mut ends = Ends::memif("queues");
    // Said in the name of one device, and beside the other.
    ends.meeting.devices[0] += ",queues=2";
    for op in ["write_bw", "read_bw", "send_bw"] {
        let v = ends.run(&[op, "--qps", "8", "--size", "64K", "--iters", "400", "--verify", "--queues", "2"]);
        assert_eq!(v["iterations"].as_u64(), Some(400), "{v}");
    }
}

#[test]
fn a_capture_has_the_frames_of_a_memif() {
    let ends = Ends::memif("pcap");
    let path = ends.folder.join("capture.pcap");
    ends.run(&["write_bw", "--size", "4096", "--iters", "100", "--pcap", path.to_str().expect("UTF-8")]);
    let file = std::fs::File::open(&path).expect("the capture");
    let mut reader = softnic_pcaps::Reader::new(std::io::BufReader::new(file)).expect("a capture");
    let mut longest = 0;
    while let Some(frame) = reader.next_frame().expect("a frame") {
        longest = longest.max(frame.data.len());
    }
    // Ethernet, IPv4, UDP, BTH, RETH, data and ICRC.
    assert_eq!(longest, 14 + 20 + 8 + 12 + 16 + 4096 + 4);
}

/// The ethertypes of a capture, those in its tags among them.
fn ethertypes(path: &std::path::Path) -> std::collections::BTreeSet<u16> {
    let file = std::fs::File::open(path).expect("the capture");
    let mut reader = softnic_pcaps::Reader::new(std::io::BufReader::new(file)).expect("a capture");
    let mut all = std::collections::BTreeSet::new();
    while let Some(frame) = reader.next_frame().expect("a frame") {
        all.insert(u16::from_be_bytes([frame.data[12], frame.data[13]]));
    }
    all
}

#[test]
fn two_ends_meet_by_the_tcp_of_their_nics_over_either_ip_version() {
    let mut ends = Ends::memif("tcp");
    for host in ["10.9.0.1", "fd09::1"] {
        ends.host = host;
        let v = ends.run(&["write_bw", "--size", "64K", "--iters", "200", "--verify"]);
        assert_eq!(v["iterations"].as_u64(), Some(200), "{v}");
    }
}

#[test]
fn all_frames_of_a_port_in_a_vlan_have_its_tag() {
    let mut ends = Ends::memif("vlan");
    ends.meeting.devices = ends.meeting.devices.clone().map(|device| format!("{device},vlan=7"));
    ends.host = "10.9.0.1";
    let path = ends.folder.join("capture.pcap");
    ends.run(&["write_bw", "--size", "64K", "--iters", "50", "--verify", "--pcap", path.to_str().expect("UTF-8")]);
    assert_eq!(ethertypes(&path), [0x8100].into());
}

#[test]
fn a_peer_that_is_killed_takes_nobody_along() {
    // The driver frees what it shares with its peer at any time, and a poller may be inside.
    for round in 0..6 {
        let ends = Ends::memif(&format!("killed{round}"));
        let server = ends.server();
        let client = ends.client(&["write_bw", "--size", "64K", "--duration", "20"]);
        std::thread::sleep(std::time::Duration::from_millis(400 + 50 * round));
        let (killed, left) = if round % 2 == 0 { (server, client) } else { (client, server) };
        killed.kill();
        let (code, text) = left.end();
        assert_eq!(code, Some(1), "it ends by itself: {text}");
    }
}
