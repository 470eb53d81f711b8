//! SDR-RDMA in captures: what immediates and control messages mean, where somebody says how immediates are divided.

use softnic_runtime::api::sdr::{SdrAttr, SdrContext};
use softnic_runtime::api::{Access, Context, OpenOptions, PathMtu, Progress};

use super::program::{inspect, objects, run};

/// A message of five packets over a wire in memory, recorded.
fn capture(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("softnic-inspect-sdr-{}-{name}.pcap", std::process::id()));
    let options = |pcap| OpenOptions { progress: Some(Progress::Inline), pcap, ..OpenOptions::default() };
    let [a, b] = Context::open_pair([&options(Some(path.clone())), &options(None)]).expect("two NICs");
    let paths = [(&a, &b), (&b, &a)].map(|(me, peer)| {
        std::thread::scope(|s| {
            let path = s.spawn(|| me.path_to(peer.addresses()[0], 7));
            while !path.is_finished() {
                peer.progress();
                std::thread::yield_now();
            }
            path.join().expect("it ended").expect("a path")
        })
    });
    let sides = [&a, &b].map(|context| SdrContext::new(context).expect("nothing is on it"));
    let attr = SdrAttr { max_message: 1 << 16, chunk: 1024, mtu: PathMtu::B1024, ..SdrAttr::default() };
    let qps = [0, 1].map(|i: usize| sides[i].create_qp(&attr).expect("a queue pair"));
    for i in [0, 1] {
        qps[i].connect(&paths[i], &qps[1 - i].info().expect("bytes")).expect("connected");
    }
    let rights = Access::LOCAL_WRITE | Access::REMOTE;
    let [from, to] = [0, 1].map(|i: usize| sides[i].pd().alloc_mr(8192, rights).expect("memory"));
    let receive = qps[1].recv_post(&to, 0, 5000).expect("posted");
    let send = qps[0].send_post(&from, 0, 5000, Some(0x8765_4321)).expect("posted");
    while !(send.poll().expect("it leaves") && receive.bitmap().is_full() && receive.imm().is_some()) {
        qps[0].progress();
    }
    receive.complete().expect("it was posted");
    a.flush_capture().expect("written");
    path
}

#[test]
fn immediates_and_control_messages_are_read_where_their_division_is_said() {
    let path = capture("said");
    let out = run(inspect().args(["--json", "--sdr", "10+18+4"]).arg(&path)).well();
    let all = objects(&out.stdout);
    let data: Vec<[u64; 3]> = all
        .iter()
        .filter(|packet| packet["ext"]["sdr"].is_object())
        .map(|packet| ["msg", "packet", "user"].map(|name| packet["ext"]["sdr"][name].as_u64().expect("a number")))
        .collect();
    // Five packets of the message, and three behind its end for the rest of the immediate, lowest bits first.
    assert_eq!(data, [1, 2, 3, 4, 5, 6, 7, 8].map(|piece| [0, piece - 1, piece]));
    let cts = all.iter().find(|packet| packet["ext"]["sdr_control"]["kind"] == "cts").expect("one");
    assert_eq!(cts["ext"]["sdr_control"]["count"], 1);
    let plain = run(inspect().arg("--json").arg(&path)).well();
    assert!(!plain.stdout.contains("sdr"), "nothing in a packet tells them from others");
    let human = run(inspect().args(["--sdr", "10+18+4"]).arg(&path)).well().stdout;
    assert!(human.contains("sdr msg 0 packet 4 user 0x5") && human.contains("sdr cts 1"), "{human}");
    let wrong = run(inspect().args(["--sdr", "10+18+5"]).arg(&path));
    assert!(wrong.stderr.contains("three numbers that add up to 32"), "{}", wrong.stderr);
    std::fs::remove_file(path).expect("ours");
}
