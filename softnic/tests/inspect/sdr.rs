//! SDR-RDMA in captures: what immediates and control messages mean, where somebody or a negotiation says how immediates are divided.

use std::fs::File;
use std::net::IpAddr;

use serde_json::{Value, json};
use softnic_pcaps::Reader;

use softnic_runtime::api::sdr::{SdrAttr, SdrContext};
use softnic_runtime::api::{Access, Context, OpenOptions, PathMtu, Progress};
use softnic_wire::mad::vendor::{Extensions, Kind, Negotiation, SDR_INFO, Settings};
use softnic_wire::mad::{MAD_LEN, Status};
use softnic_wire::sdr::{Info, SdrSettings};

use super::program::{ethernet, inspect, mad_frame, objects, run, run_with_input};

/// A message of five packets over a wire in memory.
struct Recorded {
    file: std::path::PathBuf,
    addresses: [IpAddr; 2],
    /// What each end told the other.
    infos: [Vec<u8>; 2],
}

impl Recorded {
    fn frames(&self) -> Vec<Vec<u8>> {
        let mut reader = Reader::new(File::open(&self.file).expect("it is there")).expect("a capture");
        let mut frames = Vec::new();
        while let Some(frame) = reader.next_frame().expect("whole") {
            frames.push(frame.data.to_vec());
        }
        frames
    }

    /// A MAD of the negotiation that this end sends to the other; `change` is made to its bytes.
    fn mad(&self, from: usize, kind: Kind, extensions: Extensions, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let negotiation = Negotiation {
            transaction_id: 5,
            kind,
            version: 1,
            sender_qpn: 0x100 + from as u32,
            receiver_qpn: 0x101 - from as u32,
            extensions,
            settings: Settings::NONE.with(SdrSettings::SDK),
            sdr: extensions.contains(Extensions::SDR).then(|| Info::parse(&self.infos[from]).expect("information")),
        };
        let mut mad = [0; MAD_LEN];
        negotiation.emit(&mut mad);
        change(&mut mad);
        mad_frame(self.addresses[from], self.addresses[1 - from], &mad)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn capture(name: &str, split: &str) -> Recorded {
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
    let attr = SdrAttr { split: split.parse().expect("a split"), ..attr };
    let qps = [0, 1].map(|i: usize| sides[i].create_qp(&attr).expect("a queue pair"));
    let infos = [0, 1].map(|i: usize| qps[i].info().expect("bytes"));
    for i in [0, 1] {
        qps[i].connect(&paths[i], &infos[1 - i]).expect("connected");
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
    Recorded { file: path, addresses: [a.addresses()[0], b.addresses()[0]], infos }
}

/// Message, packet and piece of each packet of SDR.
fn data(all: &[Value]) -> Vec<[u64; 3]> {
    all.iter()
        .filter(|packet| packet["ext"]["sdr"].is_object())
        .map(|packet| ["msg", "packet", "user"].map(|name| packet["ext"]["sdr"][name].as_u64().expect("a number")))
        .collect()
}

/// Five packets of the message, and three behind its end for the rest of the immediate, lowest bits first.
const MESSAGE: [[u64; 3]; 8] = [[0, 0, 1], [0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 5], [0, 5, 6], [0, 6, 7], [0, 7, 8]];

#[test]
fn immediates_and_control_messages_are_read_where_their_division_is_said() {
    let recorded = capture("said", "10+18+4");
    let path = &recorded.file;
    let out = run(inspect().args(["--json", "--sdr", "10+18+4"]).arg(path)).well();
    let all = objects(&out.stdout);
    assert_eq!(data(&all), MESSAGE);
    let cts = all.iter().find(|packet| packet["ext"]["sdr_control"]["kind"] == "cts").expect("one");
    assert_eq!(cts["ext"]["sdr_control"]["count"], 1);
    let plain = run(inspect().arg("--json").arg(path)).well();
    assert!(!plain.stdout.contains("sdr"), "nothing in a packet tells them from others");
    let human = run(inspect().args(["--sdr", "10+18+4"]).arg(path)).well().stdout;
    assert!(human.contains("sdr msg 0 packet 4 user 0x5") && human.contains("sdr cts 1"), "{human}");
    let wrong = run(inspect().args(["--sdr", "10+18+5"]).arg(path));
    assert!(wrong.stderr.contains("three numbers that add up to 32"), "{}", wrong.stderr);
}

#[test]
fn a_negotiation_in_the_capture_says_it_and_an_option_overrides_it() {
    // With the usual division, numbers would be others.
    let recorded = capture("negotiated", "8+20+4");
    let answer = Kind::Answer(Status::SUCCESS);
    let mads = [0, 1].map(|from| recorded.mad(from, answer, Extensions::SDR, |_| ()));
    let with = |mads: &[Vec<u8>]| ethernet(&[mads, &recorded.frames()].concat());
    let all = objects(&run_with_input(&["--json"], &with(&mads)).well().stdout);
    assert_eq!(data(&all), MESSAGE);
    let controls: Vec<&Value> = all.iter().map(|p| &p["ext"]["sdr_control"]).filter(|c| c.is_object()).collect();
    assert!(controls.iter().any(|c| c["kind"] == "cts" && c["count"] == 1), "{controls:?}");
    let info = Info::parse(&recorded.infos[1]).expect("information");
    let shown = &all[1]["ext"]["negotiation"];
    assert_eq!((&shown["extensions"], &shown["sdr"]["scheme"]), (&json!("sdr"), &json!(0)));
    let first = info.generations().next().expect("one");
    let channel = first.channels().next().expect("one");
    let shown = &shown["sdr"]["info"];
    assert_eq!((&shown["split"], &shown["token"], &shown["mtu"]), (&json!("8+20+4"), &json!(info.token), &json!(1024)));
    assert_eq!(shown["control"]["qpn"], info.control.qpn.value());
    assert_eq!(shown["generations"].as_array().map(Vec::len), Some(4));
    let expected =
        json!({ "key": first.key, "channels": [{ "qpn": channel.qpn.value(), "psn": channel.psn.value() }] });
    assert_eq!(shown["generations"][0], expected);
    let human = run_with_input(&[], &with(&mads)).well().stdout;
    for words in ["ext sdr sdr scheme 0 split 8+20+4", "sdr msg 0 packet 4 user 0x5", "sdr cts 1"] {
        assert!(human.contains(words), "{words}: {human}");
    }
    // Packet 0 with piece 1 is the same number however it is divided; packet 1 is not.
    let overridden = objects(&run_with_input(&["--json", "--sdr", "8+22+2"], &with(&mads)).well().stdout);
    assert_eq!(data(&overridden)[..2], [[0, 0, 1], [0, 4, 2]]);
}

#[test]
fn only_an_answer_that_accepts_it_tells_of_its_sender_s_queue_pairs() {
    let recorded = capture("accepted", "10+18+4");
    let answer = Kind::Answer(Status::SUCCESS);
    let shown = |mads: &[Vec<u8>]| {
        let all = objects(&run_with_input(&["--json"], &ethernet(&[mads, &recorded.frames()].concat())).well().stdout);
        let controls = all.iter().filter(|packet| packet["ext"]["sdr_control"].is_object()).count();
        (data(&all).len(), controls, all)
    };
    let accepted = recorded.mad(1, answer, Extensions::SDR, |_| ());
    let (data_packets, _, _) = shown(std::slice::from_ref(&accepted));
    assert_eq!(data_packets, 8, "the receiver's answer is enough for what goes to it");
    let offer = recorded.mad(1, Kind::Offer, Extensions::SDR, |_| ());
    let declined = recorded.mad(1, answer, Extensions::NONE, |_| ());
    let refused = recorded.mad(1, Kind::Answer(Status(0x000c)), Extensions::SDR, |_| ());
    let of_sender = recorded.mad(0, answer, Extensions::SDR, |_| ());
    let rubbish = recorded.mad(1, answer, Extensions::SDR, |mad| mad[SDR_INFO][3] = 9);
    for mads in [vec![offer], vec![declined.clone()], vec![refused], vec![of_sender], vec![rubbish.clone()]] {
        assert_eq!(shown(&mads).0, 0);
    }
    assert_eq!(shown(&[accepted, declined]).0, 0, "the last answer counts");
    let said = shown(std::slice::from_ref(&rubbish)).2[0]["ext"]["negotiation"].clone();
    assert_eq!(said["extensions"], "none", "it counts as without SDR");
    assert_eq!(said["sdr"]["error"], "the information about the peer's queue pair has 9 bytes, not 40");
    let human = run_with_input(&[], &ethernet(&[rubbish])).well().stdout;
    assert!(human.contains("no sdr: the information about the peer's queue pair has 9 bytes"), "{human}");
}

#[test]
fn reports_of_reliable_messages_say_what_is_there_and_what_is_asked_for() {
    let file = std::env::temp_dir().join(format!("softnic-sdr-reports-{}.pcap", std::process::id()));
    let path = file.to_str().expect("a name");
    let mut sim = std::process::Command::new(env!("CARGO_BIN_EXE_softnic"));
    let made = ["sim", "--transport", "sdr-nack", "--size", "64K", "--count", "20", "--fault", "ab.loss=0.02"];
    assert_eq!(run(sim.args(made).args(["--pcap", path, "--seed", "4"])).code, Some(0));
    let split = ["--sdr", "10+18+4"];
    let text = run(inspect().arg(path).args(split)).well().stdout;
    assert!(text.contains("sdr ack msg 0 ") && text.contains("sdr nack msg "), "{text}");
    let lines = run(inspect().arg(path).args(split).arg("--json")).well().stdout;
    let reports: Vec<Value> =
        objects(&lines).into_iter().filter_map(|o| o["ext"].get("sdr_control").cloned()).collect();
    let of = |kind: &str| reports.iter().filter(|r| r["kind"] == kind).collect::<Vec<_>>();
    assert!(of("cts").len() >= 20 && !of("nack").is_empty(), "{reports:?}");
    let last = of("ack").last().map(|r| r["done"].clone());
    assert_eq!(last, Some(json!(20)), "the last one says that all are complete");
    std::fs::remove_file(&file).expect("it is there");
}

/// A packet was lost, and its chunk alone came again, by the same channel; nothing of it looks wrong, for nobody answers on UC.
#[test]
fn the_capture_of_the_corpus() {
    let file = super::program::corpus("sdr_stream_loss.pcap");
    let all = objects(&run(inspect().arg("--json").arg(&file)).well().stdout);
    let packets: Vec<[u64; 2]> = data(&all).iter().map(|&[msg, packet, _]| [msg, packet]).collect();
    let first = [0, 2, 4, 6, 1, 3, 5, 4].map(|packet| [0, packet]);
    let second = [0, 2, 4, 6, 1, 3, 5, 7].map(|packet| [1, packet]);
    assert_eq!(packets, [first, second].concat(), "packet p goes by channel p mod 2");
    let channels = |odd: u64| -> std::collections::BTreeSet<u64> {
        let of = |packet: &&Value| packet["ext"]["sdr"]["packet"].as_u64().is_some_and(|number| number % 2 == odd);
        all.iter().filter(of).map(|packet| packet["dest_qp"].as_u64().expect("a number")).collect()
    };
    assert!(channels(0).len() == 1 && channels(1).len() == 1 && channels(0) != channels(1));
    let cts: Vec<&Value> = all.iter().map(|p| &p["ext"]["sdr_control"]).filter(|c| c.is_object()).collect();
    assert_eq!(cts.iter().map(|c| c["count"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    let info = &all[0]["ext"]["negotiation"]["sdr"]["info"];
    assert_eq!((&info["split"], &info["mtu"], &info["slots"]), (&json!("10+18+4"), &json!(256), &json!(2)));
    let summary = &all.last().unwrap()["summary"];
    assert_eq!(
        (&summary["packets"], &summary["malformed"], &summary["icrc"]["ok"]),
        (&22.into(), &0.into(), &22.into())
    );
}

/// The counts of the flows of SDR: data, parity, and what was sent again.
fn counted(name: &str) -> Vec<[Value; 3]> {
    let all = objects(&run(inspect().arg("--json").arg("--summary").arg(super::program::corpus(name))).well().stdout);
    let flows = all.last().unwrap()["summary"]["qps"].as_array().expect("flows");
    let of = |sdr: &Value| ["data", "parity", "retransmitted"].map(|name| sdr[name].clone());
    flows.iter().filter_map(|flow| flow.get("sdr").map(of)).collect()
}

#[test]
fn packets_of_messages_are_counted_by_flow() {
    let row = |counts: [u64; 3]| counts.map(Value::from);
    assert_eq!(counted("sdr_nack_loss.pcap"), [row([15, 0, 1])]);
    assert_eq!(counted("sdr_sr_loss.pcap"), [row([10, 0, 3])]);
    assert_eq!(counted("sdr_ec_fallback.pcap"), [row([11, 4, 3])]);
    // Two channels, and packet 4 of the first message again.
    assert_eq!(counted("sdr_stream_loss.pcap").iter().map(|c| c[2].as_u64().unwrap()).sum::<u64>(), 1);
    assert!(counted("uc_write_mtu1024.pcap").is_empty());
    let text = run(inspect().arg("--summary").arg(super::program::corpus("sdr_sr_loss.pcap"))).well().stdout;
    assert!(text.contains("  10 data, 3 sent again\n"), "{text}");
}

/// A loss is asked for, and comes again; the last report says that both messages are complete.
#[test]
fn a_capture_of_a_reliable_connection_tells_what_was_repaired() {
    let all = objects(&run(inspect().arg("--json").arg(super::program::corpus("sdr_nack_loss.pcap"))).well().stdout);
    let told: Vec<&Value> = all.iter().map(|p| &p["ext"]["sdr_control"]).filter(|c| c.is_object()).collect();
    let kinds: Vec<&str> = told.iter().filter_map(|c| c["kind"].as_str()).collect();
    assert_eq!(kinds, ["cts", "cts", "nack", "ack", "ack", "ack"]);
    assert_eq!((&told[2]["msg"], &told[2]["chunks"], &told[5]["done"]), (&json!(0), &json!(1), &json!(2)));
    assert_eq!(all[0]["ext"]["negotiation"]["sdr"]["scheme"], 2);
}
