//! What is called wrong in a capture, and what is not: each verdict with a capture that earns it and one that does not.

use std::collections::BTreeSet;

use softnic_pcaps::analysis::{EndedBy, Finding, MtuMismatch, RefusedRequest, Verdict};
use softnic_wire::Opcode;
use softnic_wire::aeth::NakCode;

use super::capture::*;

fn verdicts(packets: impl IntoIterator<Item = (u64, Packet)>) -> Vec<Verdict> {
    Capture::of(packets).analyse().verdicts()
}

/// The only verdict, and the packets that it names.
fn only(mut all: Vec<Verdict>) -> (Finding, Vec<u64>) {
    assert_eq!(all.len(), 1, "{all:?}");
    let v = all.remove(0);
    assert!(!v.finding.to_string().is_empty() && v.finding.advice().len() > 20);
    (v.finding, v.packets.first().to_vec())
}

fn send(us: u64, psn: u32) -> (u64, Packet) {
    (us, Packet::forth(SEND_ONLY, 0x11, psn).payload(64))
}

fn ack(us: u64, psn: u32) -> (u64, Packet) {
    (us, Packet::back(ACK, 0x22, psn).ext(&GOOD))
}

fn syndrome(us: u64, psn: u32, syndrome: u8) -> (u64, Packet) {
    (us, Packet::back(ACK, 0x22, psn).ext(&[syndrome, 0, 0, 1]))
}

const NAK_SEQUENCE: u8 = 0x60;
const NAK_ACCESS: u8 = 0x62;
const NOT_READY: u8 = 0x25;

/// Requests and their acknowledgements, 50 µs later, one pair every 100 µs.
fn healthy(psns: std::ops::Range<u32>) -> Vec<(u64, Packet)> {
    psns.flat_map(|psn| [send(u64::from(psn) * 100, psn), ack(u64::from(psn) * 100 + 50, psn)]).collect()
}

#[test]
fn a_clean_capture_has_none() {
    assert_eq!(verdicts(healthy(0..20)), []);
    assert_eq!(Capture::default().analyse().verdicts(), []);
}

#[test]
fn all_icrcs_bad() {
    let spoil = |only_from: Option<bool>| {
        let mut c = Capture::of(healthy(0..6));
        for (i, (_, frame)) in c.0.iter_mut().enumerate() {
            if only_from.is_none_or(|forth| forth == (i % 2 == 0)) {
                frame[34] ^= 1; // the UDP source port, as a mirror port does
            }
        }
        c.analyse().verdicts()
    };
    assert_eq!(only(spoil(None)), (Finding::IcrcAllBad { sender: None }, (1..=8).collect()));
    let sender = Some("10.0.0.1".parse().unwrap());
    assert_eq!(only(spoil(Some(true))), (Finding::IcrcAllBad { sender }, vec![1, 3, 5, 7, 9, 11]));
    // One damaged packet is none.
    let mut one = Capture::of(healthy(0..6));
    one.0[4].1[34] ^= 1;
    assert!(one.analyse().verdicts().iter().all(|v| v.finding.name() != "icrc-all-bad"));
}

#[test]
fn a_retransmission_without_a_nak_is_a_timeout() {
    let lost = |answer: Option<(u64, Packet)>| {
        let mut all = healthy(0..4);
        all.extend([send(1000, 4), send(1001, 5)]);
        all.extend(answer);
        all.extend([send(9000, 4), send(9001, 5), ack(9050, 5)]);
        verdicts(all)
    };
    assert_eq!(only(lost(None)), (Finding::Timeout, vec![11]));
    assert_eq!(lost(Some(syndrome(1050, 4, NAK_SEQUENCE))), []);
    assert_eq!(lost(Some(syndrome(1050, 4, NOT_READY))), [], "one that is late is no storm");
}

#[test]
fn receivers_that_are_not_ready_again_and_again() {
    let tries = |n: u64| {
        let mut all: Vec<_> = (0..n).flat_map(|i| [send(i * 1000, 7), syndrome(i * 1000 + 50, 7, NOT_READY)]).collect();
        all.extend([send(n * 1000, 7), ack(n * 1000 + 50, 7)]);
        verdicts(all)
    };
    assert_eq!(only(tries(3)), (Finding::NotReadyStorm { in_a_row: 3 }, vec![2, 4, 6]));
    assert_eq!(tries(2), []);
}

#[test]
fn an_access_error_has_its_key_and_address() {
    let write = |opcode, psn| Packet::forth(opcode, 0x11, psn).payload(1024);
    let refused = |code| {
        verdicts([
            (0, write(WRITE_ONLY, 0).reth(1024)),
            ack(50, 0),
            (100, write(WRITE_FIRST, 1).reth(2048)),
            (101, write(0x08, 2)),
            syndrome(150, 2, code),
        ])
    };
    let request = RefusedRequest { number: 3, opcode: Opcode(WRITE_FIRST), va: 0x1000, rkey: 0xabcd, len: 2048 };
    let expected = Finding::Refused { code: NakCode::REMOTE_ACCESS_ERROR, request: Some(request) };
    let (finding, packets) = only(refused(NAK_ACCESS));
    assert_eq!((&finding, packets), (&expected, vec![3, 5]));
    assert!(
        finding
            .to_string()
            .contains("packet 3 is the RC_RDMA_WRITE_FIRST of 2048 bytes at address 0x1000 with rkey 0x0000abcd")
    );
    assert_eq!(refused(NAK_SEQUENCE), [], "that one goes on");
}

#[test]
fn retries_that_are_exhausted() {
    let tries = |n: u64, answer: bool| {
        let mut all = healthy(0..4);
        all.extend((0..n).map(|i| send(1000 + i * 5000, 4)));
        all.extend(answer.then(|| ack(90_000, 4)));
        verdicts(all)
    };
    let (finding, packets) = only(tries(4, false));
    assert_eq!(packets, [9, 10, 11, 12]);
    assert!(matches!(finding, Finding::RetriesExhausted { tries: 4, not_ready: false, .. }), "{finding:?}");
    assert_eq!(only(tries(4, true)).0, Finding::Timeout, "the last try was answered");
    // A peer that never says a word, too.
    let alone = verdicts((0..3).map(|i| send(i * 5000, 4)));
    assert!(matches!(only(alone).0, Finding::RetriesExhausted { tries: 3, .. }));
}

#[test]
fn a_storm_of_duplicates() {
    let doubled = |every: u32| {
        let twice = healthy(0..40).into_iter().flat_map(move |(us, p)| {
            let n = if p.psn % every == 0 { 2 } else { 1 };
            vec![(us, p); n]
        });
        verdicts(twice)
    };
    let (finding, _) = only(doubled(1));
    assert_eq!(finding, Finding::DuplicateStorm { acknowledged: 0, requests: 80 });
    assert_eq!(doubled(20), [], "two of forty");
    // What was acknowledged comes again, long after.
    let mut late = healthy(0..20);
    late.extend((0..20).map(|psn| send(50_000 + u64::from(psn), psn)));
    let found = verdicts(late);
    let storm = found.iter().find(|v| v.finding.name() == "duplicate-storm").unwrap();
    assert_eq!(storm.finding, Finding::DuplicateStorm { acknowledged: 20, requests: 40 });
}

#[test]
fn path_mtus_that_differ() {
    let read = |mtu: usize| {
        verdicts([
            (0, Packet::forth(WRITE_FIRST, 0x11, 0).reth(2048).payload(1024)),
            (1, Packet::forth(0x08, 0x11, 1).payload(1024)),
            ack(50, 1),
            (100, Packet::forth(READ_REQUEST, 0x11, 2).reth(2048)),
            (150, Packet::back(READ_FIRST, 0x22, 2).ext(&GOOD).payload(mtu)),
            (151, Packet::back(0x0f, 0x22, 3).ext(&GOOD).payload(2048 - mtu)),
        ])
    };
    assert_eq!(only(read(512)), (Finding::MtuMismatch(MtuMismatch::Ends([1024, 512])), vec![1, 5]));
    assert_eq!(read(1024), []);
    // Short packets get through, full ones do not.
    let mut blocked = healthy(0..4);
    let full = |us| (us, Packet::forth(WRITE_FIRST, 0x11, 4).reth(8192).payload(4096));
    blocked.extend([full(1000), full(9000), full(17_000)]);
    let found = verdicts(blocked);
    assert!(found.iter().any(|v| v.finding == Finding::MtuMismatch(MtuMismatch::Blocked([4096, 64]))), "{found:?}");
}

/// Management datagrams of `cm_rping_ipv4.pcap`: REQ, REP, RTU, DREQ, DREP at these times in seconds.
fn management(at: &[(usize, u64)]) -> Capture {
    let mads: Vec<_> = corpus_frames("cm_rping_ipv4.pcap").into_iter().filter(|f| f[42] == 0x64).collect();
    assert_eq!(mads.len(), 5);
    Capture(at.iter().map(|&(i, s)| (s * 1_000_000, mads[i].clone())).collect())
}

#[test]
fn a_message_of_the_connection_manager_without_an_answer() {
    let unanswered = |at: &[(usize, u64)]| management(at).analyse().verdicts();
    assert_eq!(only(unanswered(&[(0, 0), (0, 4)])), (Finding::CmUnanswered { message: "REQ" }, vec![1, 2]));
    assert_eq!(
        only(unanswered(&[(0, 0), (1, 0), (2, 0), (3, 9), (3, 13)])).0,
        Finding::CmUnanswered { message: "DREQ" }
    );
    assert_eq!(unanswered(&[(0, 0), (0, 4), (1, 4), (2, 4), (3, 9), (4, 9)]), []);
    assert_eq!(unanswered(&[(0, 0)]), [], "the capture ends before an answer could come");
}

#[test]
fn a_capture_of_one_direction() {
    let way = |forth: bool| verdicts(healthy(0..20).into_iter().filter(|(_, p)| p.forth == forth));
    let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|addr| addr.parse().unwrap());
    assert_eq!(only(way(true)).0, Finding::OneSided { seen: a, missing: b, connections: 1 });
    assert_eq!(only(way(false)).0, Finding::OneSided { seen: b, missing: a, connections: 1 });
    let unreliable = (0..20).map(|psn| (u64::from(psn), Packet::forth(0x24, 0x11, psn)));
    assert_eq!(verdicts(unreliable), [], "nobody answers those");
}

const CNP: u8 = 0x81;

/// Packets of 1024 bytes every `gap` microseconds, `marked` ones of them, acknowledged, with notifications from the 100th on.
fn congested(marked: u32, notified: bool, gap_after: u64) -> Vec<Verdict> {
    let mut all = Vec::new();
    let mut now = 0;
    for psn in 0..400u32 {
        let mut p = Packet::forth(SEND_ONLY, 0x11, psn).payload(1024);
        p.tos |= if psn >= 100 && psn < 100 + marked { 3 } else { 0 };
        all.extend([(now, p), ack(now + 1, psn)]);
        if notified && psn >= 100 && psn % 20 == 0 {
            all.push((now + 1, Packet::back(CNP, 0x22, 0).payload(16)));
        }
        now += if psn < 100 { 2 } else { gap_after };
    }
    verdicts(all)
}

#[test]
fn marks_without_notifications() {
    let (finding, packets) = only(congested(200, false, 2));
    assert_eq!((finding, packets[0]), (Finding::EcnWithoutCnp, 201));
    assert_eq!(congested(200, true, 4), []);
    assert_eq!(congested(0, false, 2), []);
}

#[test]
fn notifications_without_a_reaction() {
    let (finding, _) = only(congested(200, true, 2));
    let Finding::CnpWithoutReaction { before, after } = finding else { panic!("{finding:?}") };
    assert!((4.0e9..4.2e9).contains(&before) && (4.0e9..4.2e9).contains(&after), "{before} {after}");
    assert_eq!(congested(200, true, 4), [], "half as fast");
}

#[test]
fn packets_after_the_end() {
    let after_nak = |us: u64| {
        let mut all = healthy(0..4);
        all.extend([send(1000, 4), syndrome(1050, 4, 0x61), send(us, 5)]);
        verdicts(all)
    };
    let found = after_nak(50_000);
    let after = found.iter().find(|v| v.finding == Finding::AfterEnd { by: EndedBy::Nak }).unwrap();
    assert_eq!(after.packets.first(), [10, 11]);
    assert_eq!(after_nak(1060).len(), 1, "one that was on its way is none");
    // A SEND of the connection, a second after DREP.
    let all = corpus_frames("cm_rping_ipv4.pcap");
    let send = all.iter().rposition(|f| f[42] == SEND_ONLY).unwrap();
    let mut c = Capture(all.iter().cloned().enumerate().map(|(i, f)| (i as u64 * 10, f)).collect());
    assert_eq!(c.analyse().verdicts(), []);
    c.0.remove(send);
    c.0.push((1_000_000, all[send].clone()));
    assert!(c.analyse().verdicts().iter().any(|v| v.finding == Finding::AfterEnd { by: EndedBy::Disconnect }));
}

/// What the index of the corpus says of each file: these have something wrong, and no other has.
#[test]
fn the_corpus_has_the_verdicts_that_its_index_tells() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".pcap") {
            continue;
        }
        let found: BTreeSet<_> = corpus(&name).verdicts().iter().map(|v| v.finding.name()).collect();
        let has = |words: &[&str]| words.iter().any(|w| name.contains(w));
        let expected: &[&str] = if has(&["rnr_exceeded", "rnr_retry_exceeded"]) {
            &["retries-exhausted", "rnr-storm"]
        } else if has(&["rc_rnr_nak", "interop_rnr_softnic", "interop_srq_softnic"]) {
            &["rnr-storm"]
        } else if has(&["retry_exceeded", "peer_gone"]) {
            &["retries-exhausted"]
        } else if has(&["rc_access_err_nak"]) {
            &["access-error", "request-refused"]
        } else if has(&["qp_no_read", "too_long"]) {
            &["request-refused"]
        } else if has(&["loss_final_ack", "loss_read_resp_last", "loss_send_last_timeout", "group_at_sender"]) {
            &["timeout"]
        // It gets again what another receiver asked for.
        } else if has(&["group_at_receiver_1"]) {
            &["duplicate-storm", "timeout"]
        } else if has(&["interop_loss", "interop_corrupt", "interop_mixed", "interop_reorder", "many_qps_mixed"]) {
            assert!(found.iter().all(|f| *f == "timeout"), "{name}: {found:?}");
            continue;
        // rxe allows a WRITE behind the end of a memory window.
        } else if has(&["bad_rkey", "out_of_range", "mr_no_write", "send_inv", "window"])
            && !has(&["interop_window_bounds_softnic"])
        {
            &["access-error"]
        } else {
            &[]
        };
        assert_eq!(found, expected.iter().copied().collect(), "{name}");
    }
}
