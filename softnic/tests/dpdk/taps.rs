//! `tap=NAME`: the kernel has all that is no RoCE. A memif between two namespaces, in each of which the tap is the only interface.
//! Without root or `ip` these are left out.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::ends::{Ends, Running};
use crate::meeting::Meeting;
use crate::namespaces::Namespaces;

/// Two namespaces without any interface but loopback.
fn spaces() -> Option<Rc<Namespaces>> {
    Namespaces::new(&["a", "b"], &["-n @a link set lo up", "-n @b link set lo up"]).map(Rc::new)
}

/// A memif between them, with a tap at each end.
fn memif(name: &str, spaces: &Rc<Namespaces>, words: &str) -> Ends {
    let mut ends = Ends::memif(name);
    ends.meeting.devices = ends.meeting.devices.clone().map(|device| format!("{device},tap=nic0{words}"));
    ends.host = "10.9.0.1";
    let inside = |side: &'static str| {
        let spaces = Rc::clone(spaces);
        Box::new(move || spaces.inside(side, env!("CARGO_BIN_EXE_softnic"))) as Box<dyn Fn() -> Command>
    };
    ends.softnic = [inside("a"), inside("b")];
    ends
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned()
}

/// What a command says in a namespace.
fn say(spaces: &Namespaces, side: &str, words: &str) -> String {
    let mut words = words.split_whitespace();
    let mut command = spaces.inside(side, words.next().expect("a program"));
    said(&command.args(words).output().expect("it runs"))
}

#[test]
fn two_ends_meet_by_the_kernels_tcp_over_their_taps_by_either_ip_version() {
    let Some(spaces) = spaces() else { return };
    let mut ends = memif("tap", &spaces, "");
    for host in ["10.9.0.1", "fd09::1"] {
        ends.host = host;
        for op in ["write_bw", "read_bw", "send_bw"] {
            let v = ends.run(&[op, "--size", "64K", "--iters", "200", "--verify"]);
            assert_eq!(v["iterations"].as_u64(), Some(200), "{v}");
        }
    }
}

#[test]
fn all_frames_are_in_the_vlan_and_the_tap_knows_nothing_of_it() {
    let Some(spaces) = spaces() else { return };
    let ends = memif("tap-vlan", &spaces, ",vlan=7");
    let path = ends.folder.join("capture.pcap");
    ends.run(&["write_bw", "--size", "64K", "--iters", "50", "--verify", "--pcap", path.to_str().expect("UTF-8")]);
    // The kernel's frames pass by the NIC, and by its capture: that they arrive at all shows that both ends have the tag.
    assert_eq!(crate::ethertypes(&path), [0x8100].into());
}

#[test]
fn the_kernel_has_the_tap_with_the_ports_addresses_as_long_as_the_process_lives() {
    let Some(spaces) = spaces() else { return };
    let ends = memif("tap-life", &spaces, "");
    let server = ends.server();
    let link = say(&spaces, "a", "ip address show dev nic0");
    for part in ["mtu 4330", ",UP", "inet 10.9.0.1/24", "inet6 fd09::1/64"] {
        assert!(link.contains(part), "{part}: {link}");
    }
    server.kill();
    let gone = say(&spaces, "a", "ip address show dev nic0");
    assert!(gone.contains("does not exist"), "{gone}");
}

/// Whether there is a program; that it is not is said.
fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        let test = std::thread::current().name().unwrap_or("a test").to_string();
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: there is no {program}");
    }
    there
}

#[test]
fn the_kernels_answer_echo_requests_while_the_nics_are_busy() {
    let Some(spaces) = spaces().filter(|_| is_there("ping")) else { return };
    let ends = memif("tap-ping", &spaces, "");
    let (_server, _client) = (ends.server(), ends.client(&["write_bw", "--size", "64K", "--duration", "60"]));
    for (side, to) in [("a", "10.9.0.2"), ("b", "10.9.0.1"), ("a", "fd09::2")] {
        // The client's tap is there a moment after its process.
        let start = Instant::now();
        while !say(&spaces, side, &format!("ping -c 1 -W 10 {to}")).contains(" 0% packet loss") {
            assert!(start.elapsed() < Duration::from_secs(60), "{to} does not answer");
        }
    }
}

/// perftest's ends tell each other of their queue pairs by TCP, without knowing of any of this.
#[test]
fn unmodified_programs_that_meet_by_tcp_run_over_taps() {
    let library = Path::new(env!("CARGO_BIN_EXE_softnic")).with_file_name("libsoftnic_verbs.so");
    if !library.exists() {
        let _ = writeln!(std::io::stderr(), "LEFT OUT: perftest over taps: there is no {}", library.display());
        return;
    }
    let Some(spaces) = spaces().filter(|_| is_there("ib_write_bw")) else { return };
    let ends = memif("tap-perftest", &spaces, "");
    let run = |end: usize, host: &[&str]| {
        let mut command = (ends.softnic[end])();
        command
            .args([
                "run",
                "--dev",
                &ends.meeting.devices[end],
                "--",
                "ib_write_bw",
                "-u",
                "18",
                "-n",
                "500",
                "-s",
                "65536",
            ])
            .args(host);
        Running::start(&mut command)
    };
    let mut server = run(0, &[]);
    // perftest's own port.
    while !server.has_ended() && !say(&spaces, "a", "ss -Hltn sport = :18515").contains("18515") {
        std::thread::sleep(Duration::from_millis(20));
    }
    if server.has_ended() {
        let (_, text) = server.end();
        assert!(text.contains("built without DPDK"), "{text}");
        let _ = writeln!(std::io::stderr(), "LEFT OUT: perftest over taps: {} is without DPDK", library.display());
        return;
    }
    let (code, text) = run(1, &["10.9.0.1"]).end();
    assert_eq!(code, Some(0), "{text}");
    let row = text.lines().find(|line| line.trim_start().starts_with("65536 ")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(row.split_whitespace().nth(1), Some("500"), "{row}");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_tap_that_is_deleted_ends_the_nic_in_one_line() {
    let Some(spaces) = spaces() else { return };
    let ends = memif("tap-deleted", &spaces, "");
    let _server = ends.server();
    let mut client = ends.client(&["write_bw", "--size", "64K", "--duration", "60"]);
    // Its NIC is at work; what is before that is the next test's.
    let ask = format!("{} counters {} --json", env!("CARGO_BIN_EXE_softnic"), client.id());
    let has_sent = |said: String| {
        let counters = said.lines().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        counters.is_some_and(|v| v["counters"]["sent_requests"].as_u64() > Some(0))
    };
    while !has_sent(say(&spaces, "b", &ask)) {
        assert!(!client.has_ended(), "{:?}", client.end());
        std::thread::sleep(Duration::from_millis(20));
    }
    spaces.ip("-n @b link delete nic0").expect("it is there");
    let (code, text) = client.end();
    assert_eq!((code, text.trim().lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("the interface nic0 is gone"), "{text}");
}

/// The two ends of a run tell each other of their queue pairs by the tap, and one that lost it would wait for what never comes.
#[test]
fn a_tap_that_is_deleted_while_the_ends_talk_by_it_ends_the_run_at_once() {
    let Some(spaces) = spaces() else { return };
    let ends = memif("tap-talk", &spaces, "");
    // It carries the kernel's frames. Another server there stands still: the kernel takes its clients, and nobody answers them.
    let _carrier = ends.server();
    let devices = ["dpdk:net_null0,ip=10.9.7.1/24".to_owned(), ends.meeting.devices[1].clone()];
    let meeting = Meeting::new(devices);
    let mute = meeting.server(ends.softnic[0](), &[]);
    say(&spaces, "a", &format!("kill -STOP {}", mute.id()));
    let mut client = Running::start(&mut meeting.client(ends.softnic[1](), ends.host, &["write_bw", "--size", "64K"]));
    while !say(&spaces, "b", "ss -Htn state established").contains("10.9.0.1") {
        assert!(!client.has_ended(), "{:?}", client.end());
        std::thread::sleep(Duration::from_millis(20));
    }
    spaces.ip("-n @b link delete nic0").expect("it is there");
    let start = Instant::now();
    let (code, text) = client.end();
    assert!(start.elapsed() < Duration::from_secs(15), "it waited for the other end: {text}");
    assert_eq!((code, text.trim().lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("the interface nic0 is gone"), "{text}");
}

#[test]
fn a_server_whose_tap_is_deleted_waits_for_no_client() {
    let Some(spaces) = spaces() else { return };
    let ends = memif("tap-waiting", &spaces, "");
    let server = ends.server();
    spaces.ip("-n @a link delete nic0").expect("it is there");
    let (code, text) = server.end();
    assert_eq!((code, text.trim().lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("the interface nic0 is gone"), "{text}");
}

#[test]
fn a_tap_that_cannot_be_had_is_named_with_what_to_do() {
    let Some(spaces) = spaces() else { return };
    let refusal = |wrapper: &[&str], device: &str| {
        let mut command = spaces.inside("a", wrapper.first().unwrap_or(&env!("CARGO_BIN_EXE_softnic")));
        if !wrapper.is_empty() {
            command.args(&wrapper[1..]).arg(env!("CARGO_BIN_EXE_softnic"));
        }
        let out = command.args(["devinfo", "--dev", device]).output().expect("softnic runs");
        let text = said(&out);
        assert!(!out.status.success() && text.lines().count() == 1, "{device}: {text}");
        text
    };
    let device = "dpdk:net_null0,ip=10.9.0.1/24,tap=";
    spaces.ip("-n @a link add name plain type veth peer name other").expect("a pair");
    let text = refusal(&[], &format!("{device}plain"));
    assert!(text.contains("there is an interface plain already that is no tap"), "{text}");
    let unprivileged = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    let text = refusal(&unprivileged, &format!("{device}nic0"));
    assert!(text.contains("making it needs CAP_NET_ADMIN"), "{text}");
    let ends = memif("tap-taken", &spaces, "");
    let _server = ends.server();
    let text = refusal(&[], &format!("{device}nic0"));
    assert!(text.contains("another process has this tap"), "{text}");
}

#[test]
fn a_tap_that_was_made_to_stay_is_used_with_the_addresses_that_it_has() {
    let Some(spaces) = spaces() else { return };
    spaces.ip("-n @a tuntap add mode tap name nic0").expect("a tap");
    spaces.ip("-n @a address add 10.9.7.1/24 dev nic0").expect("an address");
    let mut command = spaces.inside("a", env!("CARGO_BIN_EXE_softnic"));
    let out = command.args(["devinfo", "--dev", "dpdk:net_null0,tap=nic0"]).output().expect("softnic runs");
    let text = said(&out);
    assert!(out.status.success() && text.contains("10.9.7.1") && text.contains("tap nic0"), "{text}");
    assert!(say(&spaces, "a", "ip link show dev nic0").contains("nic0"), "it stays");
}

#[test]
fn a_peer_that_is_gone_takes_the_carrier_of_the_tap_along() {
    let Some(spaces) = spaces() else { return };
    let ends = memif("tap-carrier", &spaces, "");
    let server = ends.server();
    let mut client = ends.client(&["write_bw", "--size", "64K", "--duration", "60"]);
    while !say(&spaces, "b", "ip neighbour show dev nic0").contains("10.9.0.1 lladdr") {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    // The client gives up by itself, and its line was down before.
    let mut down = false;
    while !down && !client.has_ended() {
        down = say(&spaces, "b", "ip link show dev nic0").contains("NO-CARRIER");
    }
    let (code, text) = client.end();
    assert!(down && code == Some(1), "{text}");
}
