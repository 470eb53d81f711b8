//! What is wrong must be found: captures in which one number was altered, ICRC and all.

mod common;

use std::collections::HashSet;

use common::{Frame, load, play, play_with};
use softnic_replay::Options;
use softnic_wire::Opcode;
use softnic_wire::opcode::{Kind, Service};

/// Positions of RC packets that a test chooses.
fn positions(frames: &[Frame], wanted: impl Fn(Kind, &softnic_wire::ExtHeaders) -> bool) -> Vec<usize> {
    let rc = |f: &Frame| {
        f.packet().is_some_and(|p| p.bth.opcode.service() == Service::Rc && wanted(p.bth.opcode.kind(), &p.ext))
    };
    (0..frames.len()).filter(|&i| rc(&frames[i])).collect()
}

fn is_ack(kind: Kind, ext: &softnic_wire::ExtHeaders) -> bool {
    kind == Kind::Acknowledge && ext.aeth.is_some_and(|a| a.syndrome.to_byte() >> 5 == 0)
}

fn is_nak(kind: Kind, ext: &softnic_wire::ExtHeaders) -> bool {
    kind == Kind::Acknowledge && ext.aeth.is_some_and(|a| a.syndrome.to_byte() >> 5 == 3)
}

/// The altered capture must differ.
fn must_differ(name: &str, frames: &[Frame], at: usize, what: &str, change: impl Fn(&mut Frame)) {
    let mut altered = frames.to_vec();
    change(&mut altered[at]);
    let report = play(&altered);
    assert_eq!(report.exit_code(), 1, "{name}: packet {}, {what}: not found\n{}", at + 1, common::explain(&report));
}

const WITH_ACKS: &[&str] = &[
    "cm_rping_ipv4.pcap",
    "cm_rping_ipv6.pcap",
    "cm_ucmatose_ipv4.pcap",
    "loss_final_ack.pcap",
    "loss_send_middle_nak.pcap",
    "loss_send_random10pct.pcap",
    "loss_write_first_nak.pcap",
    "pingpong_rc_ipv4.pcap",
    "pingpong_srq_ipv4.pcap",
    "rc_mixed_mtu256.pcap",
    "rc_mixed_mtu1024_ipv6.pcap",
    "rc_rnr_nak.pcap",
    "rc_send_inv.pcap",
    "rc_send_mtu1024.pcap",
    "rc_write_mtu1024.pcap",
];

#[test]
fn every_altered_psn_and_msn_of_an_ack_is_found() {
    for name in WITH_ACKS {
        let frames = load(name);
        for at in positions(&frames, is_ack) {
            for by in [1, -1, 2, -3, 100, -100, 70_000] {
                must_differ(name, &frames, at, &format!("ACK PSN {by:+}"), |f| f.add_to_psn(by));
            }
            for by in [1, 7] {
                let change = |f: &mut Frame| f.change(|bth| bth[15] = bth[15].wrapping_add(by));
                must_differ(name, &frames, at, &format!("MSN +{by}"), change);
            }
        }
    }
}

#[test]
fn every_altered_nak_code_is_found() {
    for name in ["loss_send_middle_nak.pcap", "loss_write_first_nak.pcap", "loss_read_request.pcap", "rc_rnr_nak.pcap"]
    {
        let frames = load(name);
        for at in positions(&frames, is_nak) {
            for code in 1..5 {
                must_differ(name, &frames, at, &format!("NAK code {code}"), |f| f.change(|bth| bth[12] = 0x60 | code));
            }
            must_differ(name, &frames, at, "NAK PSN -1", |f| f.add_to_psn(-1));
        }
    }
}

/// What a queue pair allows its peer is in no packet: who wants to know that NAK 1 is right says so in a side file.
#[test]
fn every_altered_refusal_is_found_with_what_the_queue_pairs_allow() {
    let frames = load("rc_access_err_nak.pcap");
    let mut side = String::new();
    for qp in 0x45..=0x4a {
        let rights = if qp == 0x4a { "['write', 'atomic']" } else { "['write', 'read', 'atomic']" };
        side += &format!("[[qp]]\naddress = '10.33.0.2'\nqp = {qp}\nrights = {rights}\n");
    }
    let options = Options { side: side.parse().unwrap(), ..Options::default() };
    assert_eq!(play_with(&frames, &options).exit_code(), 0);
    for at in positions(&frames, is_nak) {
        let own = frames[at].packet().unwrap().ext.aeth.unwrap().syndrome.to_byte();
        for code in (0..4).map(|c| 0x60 | c).filter(|&c| c != own) {
            let mut altered = frames.clone();
            altered[at].change(|bth| bth[12] = code);
            let report = play_with(&altered, &options);
            assert_eq!(report.exit_code(), 1, "packet {}, syndrome {code:#x}", at + 1);
            assert!(report.differences.iter().any(|d| d.packet == at as u64 + 1), "{}", common::explain(&report));
        }
    }
}

/// Bytes that the capture shows more than once: written before, or read again.
#[test]
fn altered_read_data_is_found_where_anything_else_tells_what_it_is() {
    for (name, skip) in [
        ("loss_read_request.pcap", &[][..]),
        ("loss_read_resp_last.pcap", &[]),
        ("rc_mixed_mtu256.pcap", &[]),
        ("rc_mixed_mtu512.pcap", &[]),
        ("rc_mixed_mtu1024_ipv6.pcap", &[]),
        ("rc_mixed_mtu2048.pcap", &[]),
        ("rc_mixed_mtu4096.pcap", &[]),
        // The end of the longest READ is read once only.
        ("rc_read_mtu1024.pcap", &[13, 14, 15]),
    ] {
        let frames = load(name);
        for at in positions(&frames, |kind, _| kind == Kind::ReadResponse) {
            let payload = frames[at].packet().unwrap().payload;
            if payload.is_empty() || skip.contains(&(at + 1)) {
                continue;
            }
            for byte in [payload.start, (payload.start + payload.end) / 2, payload.end - 1] {
                must_differ(name, &frames, at, &format!("byte {byte}"), |f| {
                    f.data[byte] ^= 0x40;
                    common::sign(&mut f.data);
                });
            }
        }
    }
}

#[test]
fn every_altered_value_of_an_atomic_is_found() {
    let frames = load("rc_atomic.pcap");
    let answers = positions(&frames, |kind, _| kind == Kind::AtomicAcknowledge);
    assert_eq!(answers.len(), 4);
    for at in answers {
        for bit in [1, 0x80] {
            must_differ("rc_atomic.pcap", &frames, at, "value", |f| f.change(|bth| bth[23] ^= bit));
        }
    }
}

#[test]
fn every_altered_psn_of_what_is_sent_again_is_found() {
    for name in [
        "loss_final_ack.pcap",
        "loss_read_request.pcap",
        "loss_send_last_timeout.pcap",
        "loss_send_middle_nak.pcap",
        "loss_send_random10pct.pcap",
        "loss_write_first_nak.pcap",
    ] {
        let frames = load(name);
        let mut seen = HashSet::new();
        let is_again = |&i: &usize| {
            let p = frames[i].packet().unwrap();
            !seen.insert((p.bth.dest_qp, p.bth.psn))
        };
        let requests = positions(&frames, |kind, _| !matches!(kind, Kind::Acknowledge | Kind::ReadResponse));
        let again: Vec<usize> = requests.into_iter().filter(is_again).collect();
        assert!(!again.is_empty(), "{name}");
        for at in again {
            for by in [1, -1, 3, 100] {
                must_differ(name, &frames, at, &format!("request PSN {by:+}"), |f| f.add_to_psn(by));
            }
        }
    }
}

#[test]
fn a_difference_names_its_packet_and_what_our_nic_sends() {
    let mut frames = load("rc_send_mtu1024.pcap");
    frames[8].change(|bth| bth[15] += 1);
    let report = play(&frames);
    let [d] = &report.differences[..] else { panic!("{}", common::explain(&report)) };
    assert_eq!((d.packet, d.ours.as_str(), d.captured.as_str()), (9, "msn 4", "msn 5"));
    assert_eq!(frames[8].packet().unwrap().bth.opcode, Opcode::RC_ACKNOWLEDGE);
}

/// Captures of softnic and rxe.
fn interop() -> Vec<String> {
    let files = std::fs::read_dir(common::corpus()).unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
    let mut names: Vec<String> = files.filter(|n| n.starts_with("interop_") && !n.starts_with("interop_u")).collect();
    names.sort();
    names
}

/// A name, and what is done to a packet.
type Way<'a> = (&'a str, &'a dyn Fn(&mut Frame));

/// Alters each chosen packet of all of them in each way; how many there were, and those that were not found.
fn tally(wanted: fn(Kind, &softnic_wire::ExtHeaders) -> bool, ways: &[Way<'_>]) -> (usize, Vec<String>) {
    let (mut tried, mut missed) = (0, Vec::new());
    for name in interop() {
        let frames = load(&name);
        for at in positions(&frames, wanted) {
            for (what, change) in ways {
                let mut altered = frames.clone();
                change(&mut altered[at]);
                if altered[at].data == frames[at].data {
                    continue;
                }
                tried += 1;
                if play(&altered).exit_code() != 1 {
                    missed.push(format!("{name} packet {} {what}", at + 1));
                }
            }
        }
    }
    (tried, missed)
}

/// What is not found is what packets do not determine (docs/replay.md); that must not become more.
#[track_caller]
fn all_but(not_found: usize, class: &str, (tried, missed): (usize, Vec<String>)) {
    assert!(tried > 100, "{class}: only {tried} alterations");
    assert_eq!(missed.len(), not_found, "{class}, {tried} alterations; not found: {missed:#?}");
}

fn add_to_psn(by: i32) -> impl Fn(&mut Frame) {
    move |f| f.add_to_psn(by)
}

fn add_to_msn(by: u8) -> impl Fn(&mut Frame) {
    move |f| f.change(|bth| bth[15] = bth[15].wrapping_add(by))
}

#[test]
fn altered_psns_in_captures_with_rxe_are_found() {
    let ways = [add_to_psn(1), add_to_psn(-1), add_to_psn(100), add_to_psn(-100)];
    let names = ["PSN +1", "PSN -1", "PSN +100", "PSN -100"];
    let ways: Vec<Way<'_>> = names.into_iter().zip(ways.iter().map(|w| w as &dyn Fn(&mut Frame))).collect();
    // ACKs of duplicates within a message, and the only answers of connections that may have begun before.
    all_but(32, "ACK PSN", tally(is_ack, &ways));
    all_but(0, "READ PSN", tally(|kind, _| kind == Kind::ReadResponse, &ways));
}

#[test]
fn altered_msns_in_captures_with_rxe_are_found() {
    let ways = [add_to_msn(1), add_to_msn(7), add_to_msn(255)];
    let names = ["MSN +1", "MSN +7", "MSN -1"];
    let ways: Vec<Way<'_>> = names.into_iter().zip(ways.iter().map(|w| w as &dyn Fn(&mut Frame))).collect();
    // Ten connections with one answer each, which may have begun before.
    all_but(30, "MSN of an ACK", tally(is_ack, &ways));
    all_but(0, "MSN of data", tally(|kind, ext| kind != Kind::Acknowledge && ext.aeth.is_some(), &ways));
}

#[test]
fn altered_nak_codes_in_captures_with_rxe_are_found() {
    let names = ["NAK 0", "NAK 1", "NAK 2", "NAK 3", "NAK 4"];
    let ways: Vec<_> = (0..5).map(|code| move |f: &mut Frame| f.change(|bth| bth[12] = 0x60 | code)).collect();
    let ways: Vec<Way<'_>> = names.into_iter().zip(ways.iter().map(|w| w as &dyn Fn(&mut Frame))).collect();
    let (tried, missed) = tally(is_nak, &ways);
    // A NAK that asks for a gap to be filled, or refuses for good, must not be taken for the other while the connection goes on.
    let goes_on = |m: &String| ["loss", "reorder", "corrupt", "duplicate", "mixed"].iter().any(|n| m.contains(n));
    assert!(!missed.iter().any(goes_on), "{missed:#?}");
    // Rights and sizes of receives, which packets do not tell; and a NAK 0 with which the capture ends.
    all_but(23, "NAK code", (tried, missed));
}

/// A value that is seen first is given; of all others the lowest bit is enough.
#[test]
fn altered_data_in_captures_with_rxe_is_found() {
    let value: Way<'_> = ("value", &|f| f.change(|bth| bth[23] ^= 1));
    let (tried, missed) = tally(|kind, _| kind == Kind::AtomicAcknowledge, &[value]);
    assert!(tried > 60 && missed.len() == 10, "{tried}: {missed:#?}");
    let byte: Way<'_> = ("byte", &|f| {
        let payload = f.packet().unwrap().payload;
        if !payload.is_empty() {
            f.data[payload.start] ^= 0x40;
            common::sign(&mut f.data);
        }
    });
    // Most READs of these captures find what nothing else shows, or what its owner changed.
    all_but(102, "READ byte", tally(|kind, _| kind == Kind::ReadResponse, &[byte]));
}
