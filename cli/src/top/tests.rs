//! Exact screens of `softnic top`, and what keys do to them.

use serde_json::json;

use super::model::{Action, Focus, Model};
use super::screen::{self, short};
use super::status::Status;
use crate::terminal::{Key, Size};

const SIZE: Size = Size { columns: 80, rows: 24 };

/// Two NICs with three queue pairs and a wire, `seconds` after they began.
fn looked(seconds: u64, dropped: u64) -> Vec<Status> {
    let qp = |qpn: u32, transport: &str, each: u64| {
        json!({
            "qpn": qpn, "transport": transport, "state": "RTS", "peer": "10.33.0.2", "peer_qpn": 59, "mtu": 4096,
            "window": 64, "posted": 128 + 100 * seconds, "completed": 100 * seconds, "requested": each * seconds,
            "answered": (0xff_ff00 + 25 * seconds) % (1 << 24), "in_flight": 12, "retries": qpn % 2, "rnr_retries": 0,
        })
    };
    let nic = |pid: u32, description: &str, bytes: u64, again: u64, qps: serde_json::Value| {
        json!({
            "pid": pid, "nic": 0, "description": description, "up": pid != 99, "queue_pairs": 2, "qps": qps,
            "counters": {
                "sent_bytes": bytes * seconds, "rcvd_bytes": 1000 * seconds, "sent_pkts": seconds, "rcvd_pkts": seconds,
                "retransmitted_packets": again / 2 * seconds,
                "sdr_retransmitted_packets": again.div_ceil(2) * seconds,
            },
        })
    };
    let wire = json!({
        "pid": 500, "nic": 0, "description": "wire", "a": "eth1", "b": "eth2", "fault": "loss=1e-3",
        "counters": {
            "ab_tx_frames": 150_000 * seconds, "ab_tx_bytes": 150_000_000 * seconds, "ab_fault_lost": 150 * seconds,
            "ab_rx_missed": dropped, "ba_tx_frames": 0,
        },
    });
    let all = [
        nic(99, "mem, end 2", 2_000_000, 7, json!([])),
        nic(
            4711,
            "afxdp:enp3s0f0np0, thread progress",
            1_250_000_000,
            0,
            json!([qp(0x11, "rc", 1000), qp(0x38605c, "lowar:32,1", 2_500_000)]),
        ),
        wire,
    ];
    all.iter().map(|said| Status::of(0, said).unwrap()).collect()
}

/// After three looks, at the beginning and then every second.
fn model(dropped: u64) -> Model {
    let mut model = Model::default();
    model.update(looked(0, 0), 0.0);
    model.update(looked(1, dropped), 1.0);
    model.update(looked(2, dropped), 1.0);
    model
}

#[test]
fn the_screen_of_80_columns_has_nics_wires_and_the_queue_pairs_of_the_selected_nic() {
    let shown = screen::lines(&model(0), SIZE, false);
    let expected = "\
softnic top: 2 NICs, 1 wire; rates of 1.0 s, sorted by rate
    PROCESS NIC                      QPS    OUT bit/s        IN bit/s    AGAIN/s
>    4711/0 afxdp:enp3s0f0np0, th…     2  10.0G       ██  8.00k       ██       0
       99/0 DOWN mem, end 2            2  16.0M       ██  8.00k       ██       7
    PROCESS WIRE                          bit/s    FRAMES/s INJECTED/s DROPPED
        500 eth1 > eth2             1.20G       ██     150k        150       0
            eth2 > eth1                 0       ▁▁        0          0       0
            faults: loss=1e-3
       QP TRANSPORT  STATE PEER                OUT pkt/s    IN pkt/s   FLYING RT
 0x38605c lowar:32,1 RTS   10.33.0.2 0x3b      2.50M    ██    25    ██     12  0
     0x11 rc         RTS   10.33.0.2 0x3b      1.00k    ██    25    ██     12  1
arrows select  Enter queue pairs  s sort  f faults of a wire  q quit";
    assert_eq!(shown.iter().map(|line| line.trim_end()).collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
    assert!(shown.iter().all(|line| line.chars().count() <= 80), "{shown:#?}");
}

#[test]
fn a_wire_that_itself_dropped_frames_is_invalid_in_red() {
    let shown = screen::lines(&model(3), SIZE, true);
    let line = shown.iter().find(|line| line.contains("INVALID")).unwrap();
    assert_eq!(line, "\x1b[1;31m            INVALID: the wire itself dropped 3 frames\x1b[0m");
    assert!(!screen::lines(&model(0), SIZE, true).iter().any(|line| line.contains("INVALID")));
}

#[test]
fn a_small_terminal_shows_what_is_selected_and_cuts_lines() {
    let mut model = model(0);
    model.press(Key::Down);
    model.press(Key::Down);
    let size = Size { columns: 30, rows: 4 };
    let shown = screen::lines(&model, size, false);
    assert_eq!(shown.len(), 4);
    assert_eq!(shown[2], ">       500 eth1 > eth2      …");
    assert!(shown.iter().all(|line| line.chars().count() <= 30), "{shown:#?}");
    for size in [Size { columns: 1, rows: 1 }, Size { columns: 3, rows: 2 }] {
        assert!(screen::lines(&model, size, false).len() <= size.rows);
    }
}

#[test]
fn keys_select_sort_and_open() {
    let mut model = model(0);
    let first = |model: &Model| model.nics[0].status.id.pid;
    assert_eq!((first(&model), model.press(Key::Char('s')), first(&model)), (4711, Action::Nothing, 99), "by number");
    assert_eq!((model.nic().unwrap().status.id.pid, model.nic().unwrap().qps[0].status.qpn), (4711, 0x11));
    model.press(Key::Char('s'));
    assert_eq!((first(&model), model.nic().unwrap().qps[0].status.qpn), (99, 0x11), "by what is sent again");
    model.press(Key::Char('s'));
    assert_eq!(first(&model), 4711, "by rate again");
    model.press(Key::Enter);
    assert_eq!((model.focus, model.selected_qp), (Focus::QueuePairs, Some(0x38605c)));
    model.press(Key::Down);
    model.press(Key::Enter);
    let shown = screen::lines(&model, SIZE, false);
    let expected = "\
softnic top: 2 NICs, 1 wire; rates of 1.0 s, sorted by rate
queue pair 0x11 of 4711/0 (afxdp:enp3s0f0np0, thread progress)
  transport   rc, RTS
  peer        10.33.0.2 0x3b
  path MTU    4096 bytes
  requests     1.00k packets/s                                       ██
  answered        25 packets/s                                       ██
  work           100 completed/s, 128 outstanding
  in flight       12 packets of at most 64
  retries          1 since the last progress, 0 without a receive
arrows other queue pairs  Esc back  q quit";
    assert_eq!(shown.join("\n"), expected);
    model.press(Key::Escape);
    model.press(Key::Escape);
    assert_eq!(
        (model.focus, model.press(Key::Down), model.nic().unwrap().status.id.pid),
        (Focus::All, Action::Nothing, 99)
    );
    model.press(Key::Enter);
    assert_eq!(model.focus, Focus::All, "it has no queue pairs");
    assert_eq!((model.press(Key::Char('q')), model.press(Key::Interrupt)), (Action::Quit, Action::Interrupt));
}

#[test]
fn faults_are_typed_for_a_wire_and_an_error_leaves_what_was_typed() {
    let mut model = model(0);
    model.press(Key::Char('f'));
    assert!(model.prompt.is_none() && model.message.as_ref().unwrap().1, "a NIC is selected");
    model.press(Key::Down);
    model.press(Key::Down);
    model.press(Key::Char('f'));
    assert_eq!(screen::lines(&model, SIZE, false).last().unwrap(), "faults (Enter sets, Esc leaves): loss=1e-3_");
    model.press(Key::Backspace);
    model.press(Key::Char('q'));
    let Action::SetFaults(id, text) = model.press(Key::Enter) else { panic!("nothing is set") };
    assert_eq!((id.pid, text.as_str()), (500, "loss=1e-q"));
    model.faults_set(id, text, Err("loss: 1e-q is no number".into()));
    let shown = screen::lines(&model, SIZE, true);
    assert_eq!(
        shown[shown.len() - 2..],
        ["\x1b[1;31mloss: 1e-q is no number\x1b[0m", "faults (Enter sets, Esc leaves): loss=1e-q_"]
    );
    model.press(Key::EraseLine);
    let Action::SetFaults(id, text) = model.press(Key::Enter) else { panic!("nothing is set") };
    model.faults_set(id, text, Ok(()));
    assert!(screen::lines(&model, SIZE, false).iter().any(|line| line.ends_with("faults: none")));
    model.press(Key::Char('f'));
    model.update(Vec::new(), 1.0);
    assert!(model.prompt.is_none(), "the wire is gone");
    let shown = screen::lines(&model, SIZE, false);
    assert!(shown[1].starts_with("no NIC and no wire runs here"), "{shown:#?}");
}

#[test]
fn a_queue_pair_that_was_connected_anew_has_no_rate_from_before() {
    let mut model = model(0);
    let mut all = looked(3, 0);
    let Status::Nic(nic) = &mut all[1] else { panic!("a NIC") };
    (nic.qps[0].peer_qpn, nic.qps[0].answered, nic.qps[0].requested) = (Some(60), 77, 1 << 40);
    model.update(all, 1.0);
    let qp = model.nic().unwrap().qps.iter().find(|qp| qp.status.qpn == 0x11).unwrap();
    assert_eq!((qp.packets[0].now(), qp.packets[1].now(), qp.messages), (0.0, 0.0, 0.0));
}

#[test]
fn one_table_has_the_queue_pairs_of_all_nics_and_json_has_the_same_numbers() {
    let model = model(3);
    let table = screen::table(&model, false);
    assert!(table.lines().all(|line| line.chars().count() <= 80 && !line.starts_with('>')), "{table}");
    assert!(table.contains("0x38605c lowar:32,1 RTS") && table.contains("INVALID"), "{table}");
    let json = super::json_of(&model);
    assert_eq!(json["nics"][0]["out_bps"], 1e10);
    assert_eq!(json["nics"][0]["qps"][0]["out_pps"], 2.5e6);
    assert_eq!(json["nics"][0]["qps"][1]["in_pps"], 25.0);
    assert_eq!((&json["wires"][0]["valid"], &json["wires"][0]["ab"]["injected_per_s"]), (&json!(false), &json!(150.0)));
}

#[test]
fn numbers_have_at_most_five_columns() {
    let all = [0.0, 0.4, 999.0, 999.6, 9_994.0, 9_996.0, 99_960.0, 999_600.0, 1.5e12, 4e15];
    let expected = ["0", "0", "999", "1.00k", "9.99k", "10.0k", "100k", "1.00M", "1.50T", "4000T"];
    assert_eq!(all.map(short), expected);
}
