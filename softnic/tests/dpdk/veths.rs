//! Drivers of DPDK's on an interface of the kernel's, a veth pair between two namespaces; at the other end AF_XDP, or the kernel itself.
//! Without root or `ip` they are left out.

use std::process::Command;
use std::rc::Rc;

use crate::all_operations;
use crate::ends::Ends;
use crate::namespaces::Namespaces;

/// Two namespaces with a veth pair for frames, and another by which the two ends talk beforehand.
fn spaces(mtu: u32) -> Option<Rc<Namespaces>> {
    let mtu = format!("-n @a link set e mtu {mtu} up");
    let mut commands = vec![
        "link add name e netns @a type veth peer name e netns @b".to_string(),
        "link add name talk netns @a type veth peer name talk netns @b".to_string(),
        mtu.clone(),
        mtu.replace("@a", "@b"),
        // The kernel has an address on the link at one end: that is AF_XDP's, or its own.
        "-n @a address add 10.78.0.1/24 dev e".to_string(),
        "-n @a address add 10.79.0.1/24 dev talk".to_string(),
        "-n @b address add 10.79.0.2/24 dev talk".to_string(),
    ];
    commands.extend(["a", "b"].map(|name| format!("-n @{name} link set talk up")));
    commands.extend(["a", "b"].map(|name| format!("-n @{name} link set lo up")));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    Namespaces::new(&["a", "b"], &commands).map(Rc::new)
}

/// A server over AF_XDP in the one, and a client on a device of DPDK's in the other.
fn across(name: &str, spaces: &Rc<Namespaces>, device: &str) -> Ends {
    let mut ends = Ends::new(name, |_| ["afxdp:e".into(), device.into()]);
    let inside = |side: &'static str| {
        let spaces = Rc::clone(spaces);
        Box::new(move || spaces.inside(side, env!("CARGO_BIN_EXE_softnic"))) as Box<dyn Fn() -> Command>
    };
    (ends.softnic, ends.host) = ([inside("a"), inside("b")], "10.79.0.1");
    ends
}

#[test]
fn all_operations_between_af_packet_and_af_xdp() {
    let Some(spaces) = spaces(4200) else { return };
    all_operations(&across("af_packet", &spaces, "dpdk:net_af_packet0,iface=e,ip=10.78.0.2/24"), "4096");
}

/// Its driver has one queue unless it is told another number itself.
#[test]
fn queues_that_are_asked_for_beside_the_device_are_the_drivers_too() {
    let Some(spaces) = spaces(4200) else { return };
    let ends = across("queues", &spaces, "dpdk:net_af_packet0,iface=e,ip=10.78.0.2/24");
    let v = ends.run(&["write_bw", "--qps", "8", "--size", "64K", "--iters", "400", "--verify", "--queues", "2"]);
    assert_eq!(v["iterations"].as_u64(), Some(400), "{v}");
}

#[test]
fn all_operations_between_dpdks_af_xdp_and_ours() {
    let Some(spaces) = spaces(3400) else { return };
    all_operations(&across("af_xdp", &spaces, "dpdk:net_af_xdp0,iface=e,ip=10.78.0.2/24"), "2048");
}

/// The client is behind a router, which is a kernel; so is the TCP of the server that it talks to beforehand.
#[test]
fn a_peer_behind_a_gateway_is_reached_and_so_is_the_kernels_tcp_there() {
    let commands = [
        "link add name e netns @a type veth peer name a netns @r",
        "link add name e netns @b type veth peer name b netns @r",
        "-n @a address add 10.78.1.1/24 dev e",
        "-n @r address add 10.78.1.254/24 dev a",
        "-n @r address add 10.78.2.254/24 dev b",
        "-n @a link set e up",
        "-n @b link set e up",
        "-n @r link set dev a up",
        "-n @r link set dev b up",
        "-n @a route add 10.78.2.0/24 via 10.78.1.254",
    ];
    let Some(spaces) = Namespaces::new(&["a", "r", "b"], &commands).map(Rc::new) else { return };
    let inside = |side: &'static str, program: &str, args: &[&str]| {
        let done = spaces.inside(side, program).args(args).output().is_ok_and(|out| out.status.success());
        assert!(done, "{program} {args:?}");
    };
    inside("r", "sysctl", &["-w", "net.ipv4.ip_forward=1"]);
    // Between the ends of a veth pair the kernel leaves checksums out, and nobody completes them here.
    for (side, interface) in [("a", "e"), ("r", "a"), ("r", "b")] {
        inside(side, "ethtool", &["-K", interface, "tx", "off"]);
    }
    let device = "dpdk:net_af_packet0,iface=e,ip=10.78.2.2/24,gw=10.78.2.254";
    let mut ends = across("gateway", &spaces, device);
    ends.host = "10.78.1.1";
    for op in ["write_bw", "read_bw", "send_bw"] {
        let v = ends.run(&[op, "--size", "64K", "--iters", "100", "--verify"]);
        assert_eq!(v["iterations"].as_u64(), Some(100), "{v}");
    }
}

/// The destination of the last frame of a capture that is still written.
fn last_destination(path: &std::path::Path) -> Option<Vec<u8>> {
    let file = std::fs::File::open(path).ok()?;
    let mut reader = softnic_pcaps::Reader::new(std::io::BufReader::new(file)).ok()?;
    let mut last = None;
    // The last one may be half there.
    while let Ok(Some(frame)) = reader.next_frame() {
        let is_roce = frame.data.get(12..14) == Some(&[8, 0]) && frame.data.get(36..38) == Some(&4791u16.to_be_bytes());
        if is_roce && frame.data.get(26..30) == Some(&[10, 78, 0, 2]) {
            last = Some(frame.data[..6].to_vec());
        }
    }
    last
}

/// The peer's interface gets another MAC address in the middle of a connection, and its kernel says so to everybody.
#[test]
fn a_connection_follows_a_peer_whose_mac_address_changes() {
    let Some(spaces) = spaces(4200) else { return };
    let ends = across("moves", &spaces, "dpdk:net_af_packet0,iface=e,ip=10.78.0.2/24");
    let path = ends.folder.join("capture.pcap");
    let notify = ["-w", "net.ipv4.conf.e.arp_notify=1"];
    let done = spaces.inside("a", "sysctl").args(notify).output().is_ok_and(|out| out.status.success());
    assert!(done, "sysctl {notify:?}");
    let server = ends.server();
    let client =
        ends.client(&["write_lat", "--size", "64", "--duration", "60", "--pcap", path.to_str().expect("UTF-8")]);
    let until = |mac: Option<&[u8]>| {
        let start = std::time::Instant::now();
        while last_destination(&path).is_none_or(|last| mac.is_some_and(|mac| last != mac)) {
            assert!(start.elapsed() < std::time::Duration::from_secs(50), "frames go elsewhere");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    until(None);
    spaces.ip("-n @a link set e address 02:00:00:00:00:77").expect("another address");
    until(Some(&[2, 0, 0, 0, 0, 0x77]));
    client.kill();
    drop(server);
}
