//! The lines that people read, filters, help, and the errors of a command line.

use softnic_pcaps::LinkType;

use super::program::{Run, corpus, ethernet, frames, inspect, pcap, run, run_with_input};

#[test]
fn a_lost_packet_and_its_recovery() {
    let out = run(inspect().arg(corpus("loss_send_middle_nak.pcap"))).well();
    let lines = out.lines();
    assert_eq!(
        lines[3],
        "    4    0.000224 10.33.0.1 > 10.33.0.2 RC_SEND_MIDDLE qp 0x000075 psn 259 len 1024, icrc ok"
    );
    assert_eq!(
        lines[6],
        "    7    0.000748 10.33.0.2 > 10.33.0.1 RC_ACKNOWLEDGE qp 0x00007c psn 259 len 0, nak psn sequence error msn 0, \
         icrc ok"
    );
    assert_eq!(
        lines[9],
        "   10    0.001948 10.33.0.1 > 10.33.0.2 RC_SEND_LAST qp 0x000075 psn 261 [A] len 1024, icrc ok (retransmission)"
    );
    assert_eq!(
        lines[25..],
        [
            "",
            "25 RoCE packets in 25 frames (0 of other protocols, 0 fragments, 0 not decoded)",
            "ICRC: 25 ok, 0 bad, 0 truncated; 0 malformed",
            "22970 bytes in 0.003580 s, 51.330 Mbit/s",
            "",
            "  packets  opcode",
            "        3  RC_SEND_FIRST",
            "       14  RC_SEND_MIDDLE",
            "        4  RC_SEND_LAST",
            "        4  RC_ACKNOWLEDGE",
            "",
            "  packets        bytes retrans out-seq   NAK   RNR  flow",
            "       21        21504       3       0     0     0  10.33.0.1 > 10.33.0.2 qp 0x000075",
            "        4            0       0       0     1     0  10.33.0.2 > 10.33.0.1 qp 0x00007c  1 nak psn sequence error",
            "",
            "connections",
            "  10.33.0.1 qp 0x00007c <-> 10.33.0.2 qp 0x000075 (paired by answers)",
            "    > 21 packets, 3 sent again, 18432 bytes of payload, 44.806 Mbit/s, \
             round trip min 289.0us median 289.0us p99 626.0us of 2",
            "    < 4 packets",
            "",
            "no verdicts: nothing in the capture looks wrong",
        ]
    );
    assert!(!out.stdout.contains('\x1b'), "no colour into a pipe");
}

#[test]
fn headers_of_every_kind_have_their_words() {
    let shows = |file, words: &str| {
        let out = run(inspect().arg(corpus(file))).well();
        assert!(out.stdout.contains(words), "{file} does not show: {words}\n{}", out.stdout);
    };
    shows("rc_atomic.pcap", "va 0xd9de000 rkey 0x00002171 swap/add 0xdeadbeefcafef00d compare 0x1122334455667789,");
    shows("rc_atomic.pcap", "ack msn 1, original 0x1122334455667788,");
    shows(
        "rc_send_inv.pcap",
        "RC_SEND_ONLY_WITH_INVALIDATE qp 0x000055 psn 9523592 [A] len 32, invalidate rkey 0x080002c3,",
    );
    shows("ud_send.pcap", "len 20, qkey 0x11111111 src qp 0x000041, imm 0x44332211,");
    shows("rc_rnr_nak.pcap", "rnr nak 5.12ms msn 0,");
    shows("rc_send_mtu1024.pcap", " [AS] ");
    shows("cm_rping_ipv6.pcap", "fd33::1 > fd33::2 UD_SEND_ONLY qp 0x000001 psn 12 [A] len 256, ");
    shows("cm_rping_ipv6.pcap", ", CM REQ comm_id 0xc60377e4 ");
}

/// Numbers of the packets that are shown.
fn numbers(out: &Run) -> Vec<u64> {
    out.packets().iter().map(|l| l.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

#[test]
fn one_queue_pair_in_decimal_and_in_hex() {
    let file = corpus("interop_many_qps_rxe.pcap");
    let hex = run(inspect().args(["--qp", "0x33"]).arg(&file)).well();
    let decimal = run(inspect().args(["--qp", "51"]).arg(&file)).well();
    assert_eq!(hex.stdout, decimal.stdout);
    let to = |qp: &str| hex.packets().iter().filter(|l| l.contains(&format!(" qp {qp} "))).count();
    assert_eq!((to("0x000033"), to("0xc7147d"), hex.packets().len()), (2, 5, 7), "both directions\n{}", hex.stdout);
    assert!(numbers(&hex).iter().any(|n| *n > 7), "frames keep their numbers");
    assert!(hex.stdout.contains("\n7 RoCE packets in 35 frames "), "{}", hex.stdout);
    assert_eq!(hex.stdout.matches(" <-> ").count(), 1, "{}", hex.stdout);
    let peer = run(inspect().args(["--qp", "0xc7147d"]).arg(&file)).well();
    assert_eq!(peer.stdout, hex.stdout);
    let none = run(inspect().args(["--qp", "5"]).arg(&file)).well();
    assert_eq!(none.stdout, "\n0 RoCE packets in 35 frames (0 of other protocols, 0 fragments, 0 not decoded)\n");
}

#[test]
fn verdicts_say_which_packets_and_what_to_do() {
    let out = run(inspect().arg(corpus("rc_access_err_nak.pcap"))).well();
    let lines = out.lines();
    let at = lines.iter().position(|l| *l == "verdicts").unwrap();
    assert_eq!(
        lines[at + 1],
        "  access-error: the responder refused a request: remote access error; packet 1 is the RC_RDMA_WRITE_FIRST of 3072 \
         bytes at address 0x7effa6b5d000 with rkey 0x0000dead (packets 1, 4)"
    );
    assert!(lines[at + 2].starts_with("    in 10.33.0.1 qp 0x0000"), "{}", lines[at + 2]);
    assert!(lines[at + 3].starts_with("    Compare rkey, address and length"), "{}", lines[at + 3]);
    let json = run(inspect().arg("--json").arg(corpus("rc_access_err_nak.pcap"))).well();
    let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    let first = &last["summary"]["verdicts"][0];
    assert_eq!((&first["name"], &first["request"]["rkey"]), (&"access-error".into(), &0xdead.into()));
    assert_eq!((&first["packets"], &first["count"]), (&serde_json::json!([1, 4]), &2.into()));
}

#[test]
fn filters_choose_packets() {
    let file = corpus("loss_send_middle_nak.pcap");
    let shown = |arguments: &[&str]| numbers(&run(inspect().args(arguments).arg(&file)).well());
    assert_eq!(shown(&["--opcode", "nak"]), [7]);
    assert_eq!(shown(&["--opcode", "ACK", "--opcode", "rc-send-first"]), [1, 7, 11, 12, 18, 24, 25]);
    assert!(shown(&["--opcode", "cnp"]).is_empty());
    assert_eq!(shown(&["--time", "748us..1948us"]), [7, 8, 9, 10]);
    assert_eq!(shown(&["--opcode", "send", "-c", "2"]), [1, 2]);
    assert!(shown(&["--summary"]).is_empty());
    assert!(shown(&["--problems"]).is_empty(), "there is none");
    assert_eq!(numbers(&run(inspect().arg("--problems").arg(corpus("loss_final_ack.pcap"))).well()), [21]);
    // The summary is of what was chosen; connections and verdicts are of all.
    let out = run(inspect().args(["--opcode", "nak"]).arg(&file)).well();
    assert!(out.stdout.contains("\n1 RoCE packets in 25 frames ") && out.stdout.contains("    > 21 packets, "));
    let summary = run(inspect().arg("--summary").arg(&file)).well();
    let all = run(inspect().arg(&file)).well();
    assert_eq!(summary.lines(), all.lines()[25..]);
}

#[test]
fn filters_that_cannot_be() {
    let fails = |arguments: &[&str], words: &str| {
        let out = run(inspect().args(arguments).arg(corpus("rc_atomic.pcap")));
        assert!(out.code == Some(2) && out.stderr.contains(words), "{arguments:?}: {}", out.stderr);
    };
    fails(&["--opcode", "wrote"], "write the beginning of an opcode");
    fails(&["--time", "5"], "write FROM..TO");
    fails(&["--summary", "-c", "1"], "cannot be used with");
    run_with_input(&["--problems"], &[])
        .failed_with("--problems reads the capture twice: it needs a file, not standard input");
}

#[test]
fn of_a_pipe_both_directions_are_shown_once_they_are_paired() {
    let capture = std::fs::read(corpus("loss_send_middle_nak.pcap")).unwrap();
    let out = run_with_input(&["--qp", "0x7c"], &capture).well();
    assert_eq!(numbers(&out), (7..=25).collect::<Vec<_>>(), "packet 7 is the first answer");
}

#[test]
fn of_datagrams_also_those_that_a_queue_pair_sent() {
    let out = run(inspect().args(["--qp", "1"]).arg(corpus("cm_udaddy_sidr.pcap"))).well();
    assert!(out.packets().iter().all(|l| l.contains("src qp 0x000001")), "{}", out.stdout);
    assert!(!out.packets().is_empty());
}

#[test]
fn a_wrong_queue_pair_number_is_refused_with_what_is_right() {
    for wrong in ["x", "0x", "-1", "16777216", "0x1000000", ""] {
        let out = run(inspect().arg(format!("--qp={wrong}")).arg("f.pcap"));
        assert_eq!((out.code, &*out.stdout), (Some(2), ""), "--qp={wrong}");
        assert!(out.stderr.contains("a queue pair number is below 2^24, decimal or 0x…"), "{}", out.stderr);
    }
}

#[test]
fn help_shows_examples() {
    let out = run(inspect().arg("--help")).well();
    assert!(out.stdout.contains("Examples:\n  softnic inspect pcaps/corpus/"), "{}", out.stdout);
    assert!(
        out.stdout.contains("\n  tcpdump --immediate-mode -U -w - udp port 4791 | softnic inspect -\n"),
        "{}",
        out.stdout
    );
    let nothing = run(&mut inspect());
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("<FILE>"), "{}", nothing.stderr);
}

#[test]
fn standard_input_is_a_capture_too() {
    let path = corpus("rc_atomic.pcap");
    let piped = run_with_input(&[], &std::fs::read(&path).unwrap()).well();
    assert_eq!(piped.stdout, run(inspect().arg(path)).well().stdout);
}

#[test]
fn congestion_marks_are_shown() {
    let mut all = frames("rc_atomic.pcap");
    all[0][15] |= 3; // ECN of the IPv4 header: congestion experienced
    all[1][42] = 0x81; // a notification: the ICRC does not match any more, which is shown as well
    all[1][46] = 0x40;
    let out = run_with_input(&[], &pcap(LinkType::Ethernet, &all[..2], usize::MAX)).well();
    assert!(out.lines()[0].ends_with(", CE, icrc ok"), "{}", out.stdout);
    assert!(out.lines()[1].contains(" CNP qp 0x00003d psn 10018850 [B] len 12, icrc BAD"), "{}", out.stdout);
    assert!(out.stdout.contains("  1 bad icrc  1 cnp"), "{}", out.stdout);
    assert!(out.stdout.contains("  1 ce"), "{}", out.stdout);
}

#[test]
fn an_unknown_opcode_is_shown_by_its_number() {
    let mut all = frames("rc_atomic.pcap");
    all[0][42] = 0xdf;
    let out = run_with_input(&[], &ethernet(&all[..1])).well();
    assert!(out.stdout.contains(" UNKNOWN_0xdf qp 0x00003d psn 10018850 [A] len 28, icrc BAD\n"), "{}", out.stdout);
}

/// Retransmissions, NAKs and RNR NAKs as the index of the corpus tells the story of each file.
#[test]
fn counts_of_what_went_wrong() {
    for (file, retransmissions, naks, rnr_naks) in [
        ("loss_final_ack.pcap", 6, 0, 0),
        ("loss_read_request.pcap", 3, 1, 0),
        ("loss_read_resp_last.pcap", 1, 0, 0),
        ("loss_send_last_timeout.pcap", 6, 0, 0),
        ("loss_send_middle_nak.pcap", 3, 1, 0),
        ("loss_send_random10pct.pcap", 5, 1, 0),
        ("loss_write_first_nak.pcap", 12, 1, 0),
        ("rc_retry_exceeded.pcap", 2, 0, 0),
        ("rc_rnr_retry_exceeded.pcap", 2, 0, 3),
        ("rc_rnr_nak.pcap", 17, 3, 11),
        ("rc_access_err_nak.pcap", 0, 6, 0),
        ("rc_send_inv.pcap", 0, 1, 0),
        ("rc_read_mtu1024.pcap", 0, 0, 0),
        ("cm_rping_ipv4.pcap", 0, 0, 0),
        ("pingpong_srq_ipv4.pcap", 0, 0, 0),
    ] {
        let out = run(inspect().arg("--json").arg(corpus(file))).well();
        let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        let s = &last["summary"];
        let counts = [&s["retransmissions"], &s["naks"], &s["rnr_naks"], &s["out_of_sequence"]];
        assert_eq!(counts.map(|v| v.as_u64().unwrap()), [retransmissions, naks, rnr_naks, 0], "{file}");
        let again = out.stdout.matches(r#""retransmission":true"#).count();
        assert_eq!(again as u64, retransmissions, "{file}");
    }
}
