//! XP in captures: what is lost is missing, and nothing counts as sent again.

use serde_json::{Value, json};

use super::program::{corpus, inspect, objects, run};

#[test]
fn a_flow_says_what_is_missing_and_takes_no_gap_for_a_retransmission() {
    let out = run(inspect().args(["--json"]).arg(corpus("xp_send_loss.pcap"))).well();
    let all = objects(&out.stdout);
    let summary = &all.last().unwrap()["summary"];
    let flow = summary["qps"].as_array().unwrap().iter().find(|flow| flow["xp"].is_object()).unwrap();
    assert_eq!(
        flow["xp"],
        json!({
            "messages": 4, "without_last": 1, "unseen_messages": 0, "missing_packets": 2, "late_packets": 0,
            "duplicates": 0, "feedback": 0,
        })
    );
    assert_eq!((&summary["retransmissions"], &summary["out_of_sequence"]), (&0.into(), &2.into()));
    assert_eq!(summary["verdicts"], json!([]), "losses are what XP is for");
    assert_eq!(summary["connections"][0]["paired_by"], "negotiation");
    let first = all.iter().find(|packet| packet["opcode"] == "XP_SEND").unwrap();
    let header = &first["ext"]["xp"];
    let of = |name: &str| header[name].clone();
    assert_eq!(
        [of("offset"), of("length"), of("last"), of("stride"), of("receive")],
        [json!(0), json!(1700), json!(false), json!(1), json!(0)]
    );
}

#[test]
fn strides_are_shown_and_what_was_dropped_behind_the_capture_is_not_missing() {
    let out = run(inspect().arg("--summary").arg(corpus("xp_write_stride.pcap"))).well();
    let text = out.stdout;
    let flow = text.lines().find(|line| line.contains(" messages")).unwrap();
    assert!(flow.ends_with("  3 messages"), "{flow}");
    let out = run(inspect().arg("--json").arg(corpus("xp_write_stride.pcap"))).well();
    let strides: Vec<Value> = objects(&out.stdout).iter().map(|packet| packet["ext"]["xp"]["stride"].clone()).collect();
    let message = [4, 4, 4, 4, 2, 2, 1].map(Value::from);
    assert_eq!(strides[4..25], [&message[..], &message, &message].concat());
}
