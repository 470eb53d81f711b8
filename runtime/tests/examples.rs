//! The examples do what they say, over the wire in memory; the one that connects by address also between network namespaces.
#![allow(clippy::duplicate_mod)] // each example has what they share for itself
#![allow(dead_code)] // `main` is for the example

#[path = "../examples/by_address/main.rs"]
mod by_address;
#[path = "../examples/deadlines.rs"]
mod deadlines;
#[path = "../examples/file_copy.rs"]
mod file_copy;
#[path = "../examples/key_value.rs"]
mod key_value;
#[path = "../examples/own_scheme.rs"]
mod own_scheme;
#[path = "../examples/ping_pong.rs"]
mod ping_pong;
#[path = "common/process.rs"]
mod process;
#[path = "common/veth.rs"]
mod veth;

use std::thread::JoinHandle;
use std::time::Duration;

use process::Process;
use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr};
use softnic_runtime::api::{CmConnection, ConnectionManager, Context, DeviceSpec, OpenOptions, QpOptions};
use veth::{LIMIT, Veth};

#[test]
fn ping_pong_counts_its_round_trips() {
    let said = ping_pong::run(&[]).unwrap();
    assert!(said.starts_with("10000 round trips"), "{said}");
}

#[test]
fn deadlines_end_receives_and_none_before_its_time() {
    let said = deadlines::run(&["--count".into(), "200".into()]).unwrap();
    assert!(said.lines().all(|line| line.starts_with("200 deadlines, the program ")), "{said}");
}

#[test]
fn a_scheme_of_its_own_carries_every_message() {
    let said = own_scheme::run(&["--count".into(), "50".into()]).unwrap();
    assert!(said.starts_with("50 messages each way"), "{said}");
    let again = said.split("; ").nth(1).and_then(|s| s.split(' ').next()).and_then(|n| n.parse().ok());
    assert!(again.is_some_and(|packets: u64| packets > 0), "{said}");
    // The documentation shows the code that ran here.
    let (source, page) = (include_str!("../examples/own_scheme.rs"), include_str!("../../docs/sdr.md"));
    let begin = source.find("/// A scheme: all").unwrap();
    let scheme = &source[begin..begin + source[begin..].find("\n/// Its name on the wire").unwrap()];
    assert!(page.contains(scheme), "docs/sdr.md has another scheme than examples/own_scheme.rs");
}

#[test]
fn key_value_finds_every_key() {
    let said = key_value::run(&[]).unwrap();
    assert!(said.starts_with("20000 keys read"), "{said}");
}

#[test]
fn file_copy_copies_files_of_every_kind_of_length() {
    let folder = std::env::temp_dir().join(format!("softnic-file-copy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.join(name));
    for len in [0, 1, 65_536, 5_000_001] {
        let bytes: Vec<u8> = (0..len).map(|i: usize| ((i * 131) >> 4) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        let names = [&from, &to].map(|name| name.to_str().unwrap().to_string());
        let said = file_copy::run(&names).unwrap();
        assert!(said.starts_with(&format!("{len} bytes")), "{said}");
        assert!(std::fs::read(&to).unwrap() == bytes, "{len} bytes");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(file_copy::run(&[]).unwrap_err().to_string().contains("which file?"));
}

#[test]
fn by_address_connects_over_both_ip_versions() {
    for address in ["10.0.0.1:7174", "[fd00::1]:7174"] {
        let said = by_address::run(&["both", address, "a", "bc"]).unwrap();
        assert_eq!(said, "2 messages sent and answered\nclients served: 1, messages answered: 2");
    }
    assert!(by_address::run(&[]).unwrap().starts_with("3 messages sent"));
}

#[test]
fn by_address_says_what_is_wrong() {
    let wrong = |args: &[&str]| by_address::run(args).unwrap_err().to_string();
    assert_eq!(wrong(&["both", "--name", ""]), "10.0.0.1:7174 says: say your name, by --name");
    assert_eq!(wrong(&["both", "10.0.0.9:7174"]), "cannot listen to 10.0.0.9: the NIC has 10.0.0.1, fd00::1");
    assert!(
        wrong(&["both", "--name", &"x".repeat(57)]).contains("57 bytes of private data: this message has room for 56")
    );
    assert!(wrong(&["both", "10.0.0.1:7174", &"x".repeat(401)]).contains("401 bytes"));
    assert!(wrong(&["client", "10.0.0.1", "--dev", "mem"]).contains("invalid socket address"));
    assert!(wrong(&["client", "10.0.0.1:7174", "--dev", "mem"]).contains("by_address both"));
    assert!(wrong(&["--help"]).contains("Examples:"));
}

const VARIABLE: &str = "SOFTNIC_TEST_BY_ADDRESS";

/// The example in a thread that lives in a namespace.
fn by_address_inside(veth: &Veth, side: usize, arguments: &str) -> Result<String, String> {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    veth.inside(side, || by_address::run(&words).map_err(|e| e.to_string()))
}

/// The example as a server, in a thread that nobody must wait for when a test fails. Its NIC is there when this returns: a request that
/// comes before is lost, and comes again seconds later.
fn serve(veth: &Veth, arguments: &str) -> JoinHandle<Result<String, String>> {
    let (namespace, arguments) = (veth.namespaces[0].clone(), arguments.to_string());
    let server = std::thread::spawn(move || {
        veth::enter(&namespace);
        by_address::run(&arguments.split_whitespace().collect::<Vec<_>>()).map_err(|e| e.to_string())
    });
    while !veth.has_program(0) {
        assert!(!server.is_finished(), "{:?}", server.join());
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

#[test]
#[ignore = "only as a process of its own that other tests start"]
fn connects_and_falls_silent() {
    let Ok(address) = std::env::var(VARIABLE) else { return };
    let device = DeviceSpec::afxdp("sn1");
    let context = Context::open(&device, &OpenOptions::default()).unwrap();
    let manager = ConnectionManager::new(&context).unwrap();
    let (pd, cq) = (context.alloc_pd(), context.create_cq(16).unwrap());
    let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
    let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE).unwrap();
    qp.init(Access::LOCAL_WRITE).unwrap();
    qp.post_recv(&RecvWr { wr_id: 0, sges: &[mr.sge(0, 4096)], best_effort: None }).unwrap();
    let connect = || CmConnection::connect(&manager, &qp, address.parse().unwrap(), b"a silent one", LIMIT);
    // The server may be about to listen.
    let _connection = std::iter::repeat_with(connect).find_map(Result::ok);
    let (sges, flags) = ([mr.sge(0, 1)], SendFlags::default());
    let data = Data::Gather(&sges);
    qp.post_send(&SendWr { wr_id: 1, op: SendOp::Send, data, flags, best_effort: None, to: None }).unwrap();
    // Sent, and answered: so the server knows that we are connected.
    for _ in 0..2 {
        while cq.poll_one().unwrap().is_none() {
            cq.wait(LIMIT).unwrap();
        }
    }
    process::say("answered");
    std::thread::sleep(LIMIT);
}

#[test]
fn by_address_connects_two_namespaces() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    veth.add_ipv6().unwrap();
    let server = serve(&veth, "server [::]:7174 --dev afxdp:sn0 --clients 2");
    for address in [format!("{}:7174", veth.address(0)), format!("[{}]:7174", veth.address_v6(0))] {
        let client = || by_address_inside(&veth, 1, &format!("client {address} --dev afxdp:sn1 a b c d"));
        // The server may be about to listen.
        let early = |e: &str| e.contains("nobody listens") || e.contains("does not answer");
        let said = std::iter::repeat_with(client).find(|said| !said.as_ref().is_err_and(|e| early(e)));
        assert_eq!(said.unwrap().unwrap(), "4 messages sent and answered");
    }
    assert_eq!(server.join().unwrap().unwrap(), "clients served: 2, messages answered: 8");
    let nowhere = by_address_inside(&veth, 1, "client 192.0.2.1:7174 --dev afxdp:sn1").unwrap_err();
    assert!(nowhere.starts_with("there is no way to 192.0.2.1: "), "{nowhere}");
    let nobody = by_address_inside(&veth, 1, "client 10.77.0.9:7174 --dev afxdp:sn1").unwrap_err();
    assert!(nobody.starts_with("there is no way to 10.77.0.9: "), "{nobody}");
}

#[test]
fn by_address_finds_out_that_its_peer_was_killed() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let address = format!("{}:7174", veth.address(0));
    let server = serve(&veth, &format!("server {address} --dev afxdp:sn0"));
    let wrapper = format!("ip netns exec {}", veth.namespaces[1]);
    let mut client = Process::start(&wrapper, "connects_and_falls_silent", VARIABLE, &address);
    assert_eq!(client.said, "answered");
    client.kill();
    let said = server.join().unwrap().unwrap_err();
    assert!(said.starts_with("10.77.0.2:") && said.contains("is gone or broken"), "{said}");
}
