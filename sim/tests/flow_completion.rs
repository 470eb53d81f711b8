//! What a loss costs a flow of Selective Repeat: a WRITE, posted when the one before it was done, of which one packet is lost.

use std::time::Duration;

use softnic_fault_injector::{Script, Spec};
use softnic_sim::{Op, Options, Report, run};
use softnic_transports::qp::PayloadMode;

const RTTS: [Duration; 4] =
    [Duration::from_micros(10), Duration::from_micros(100), Duration::from_millis(1), Duration::from_millis(40)];
/// Packets of a flow of 1 MiB.
const PACKETS: u64 = 1024;
/// The flow that something happens to, and how many there are.
const HIT: u64 = 2;
const FLOWS: u64 = 4;
/// What a packet of 1024 bytes takes at 10 Gbit/s, and a few of them.
const FEW_PACKETS: Duration = Duration::from_nanos(4 * 900);
/// A low timeout is no shorter.
const SHORTEST_LOW: Duration = Duration::from_micros(50);

fn flows(op: Op, packets: u64, rtt: Duration, events: &[String]) -> Report {
    let script = match events {
        [] => Script::default(),
        _ => Script::parse(&format!("event = [{}]", events.join(", "))).expect("a script"),
    };
    let options = Options {
        op,
        size: packets as u32 * 1024,
        count: FLOWS,
        depth: 1,
        rtt,
        faults: Spec { script, ..Spec::default() },
        payload: PayloadMode::Elided,
        ..Options::default()
    };
    let report = run(&options.over_wide_sr(), None, &mut |_| {}).expect("it runs");
    assert_eq!((report.completed, report.failed), (FLOWS, 0));
    assert_eq!(report.applied_events, vec![1; events.len()], "each event for one packet: {events:?}");
    report
}

/// The longest completion time of the flows.
fn longest(report: &Report) -> Duration {
    Duration::from_secs_f64(report.completion_times.max_ms() / 1e3)
}

/// What cost more than it may, all of it, to be shown at the end.
#[derive(Default)]
struct TooMuch(Vec<String>);

impl TooMuch {
    /// The flow that the events happen to must not take longer than `most` more than it does without.
    fn check(&mut self, op: Op, packets: u64, rtt: Duration, events: &[String], most: Duration) {
        let cost = longest(&flows(op, packets, rtt, events)).saturating_sub(longest(&flows(op, packets, rtt, &[])));
        if cost > most + FEW_PACKETS {
            self.0.push(format!("at {rtt:?}, {packets} packets: {cost:?}, more than {most:?}: {events:?}"));
        }
    }
}

impl Drop for TooMuch {
    fn drop(&mut self) {
        assert!(self.0.is_empty() || std::thread::panicking(), "{:#?}", self.0);
    }
}

/// An event that drops packet `k` of flow `flow`, both counted from 0, when it is sent for the `iteration`th time; in the direction of
/// the data. The negotiation is no destination that counts.
fn drop_packet(op: Op, packets: u64, flow: u64, k: u64, iteration: u32) -> String {
    let psn = flow * packets + k;
    let direction = if op == Op::Read { "ba" } else { "ab" };
    format!(
        r##"{{ action = "drop", direction = "{direction}", qpn = "#1", psn = "+{psn}", iteration = {iteration} }}"##
    )
}

fn low_timeout(rtt: Duration) -> Duration {
    (rtt * 5 / 4).max(SHORTEST_LOW)
}

#[test]
fn a_lost_packet_of_1_mib_costs_a_round_trip_and_the_last_one_a_low_timeout() {
    let mut too_much = TooMuch::default();
    for (rtt, op) in RTTS.into_iter().flat_map(|rtt| [(rtt, Op::Write), (rtt, Op::Read)]) {
        for flow in [0, HIT] {
            for k in [0, 1, PACKETS / 2, PACKETS - 17, PACKETS - 16, PACKETS - 3, PACKETS - 2, PACKETS - 1] {
                let most = if k + 1 == PACKETS { low_timeout(rtt) } else { rtt };
                too_much.check(op, PACKETS, rtt, &[drop_packet(op, PACKETS, flow, k, 1)], most);
            }
        }
    }
}

#[test]
fn so_does_any_packet_of_a_short_flow() {
    let mut too_much = TooMuch::default();
    for (rtt, op) in RTTS.into_iter().flat_map(|rtt| [(rtt, Op::Write), (rtt, Op::Read)]) {
        for packets in [1, 2, 3, 4, 15, 16, 17, 18, 33] {
            for k in 0..packets {
                let most = if k + 1 == packets { low_timeout(rtt) } else { rtt };
                too_much.check(op, packets, rtt, &[drop_packet(op, packets, HIT, k, 1)], most);
            }
        }
    }
}

#[test]
fn a_retransmission_that_is_lost_too_costs_a_low_timeout_more() {
    let mut too_much = TooMuch::default();
    for (rtt, op) in RTTS.into_iter().flat_map(|rtt| [(rtt, Op::Write), (rtt, Op::Read)]) {
        for k in [0, 1, PACKETS / 2, PACKETS - 2] {
            let events = [1, 2].map(|iteration| drop_packet(op, PACKETS, HIT, k, iteration));
            too_much.check(op, PACKETS, rtt, &events, rtt + low_timeout(rtt));
        }
        // A timeout behind another one takes twice as long.
        let events = [1, 2].map(|iteration| drop_packet(op, PACKETS, HIT, PACKETS - 1, iteration));
        too_much.check(op, PACKETS, rtt, &events, low_timeout(rtt) * 3);
    }
}

#[test]
fn a_lost_acknowledgement_costs_at_most_a_round_trip_and_the_last_one_a_low_timeout() {
    let mut too_much = TooMuch::default();
    for rtt in RTTS {
        // One every sixteen packets.
        let acknowledgements = PACKETS / 16;
        for nth in 1..=acknowledgements {
            let nth_of_all = HIT * acknowledgements + nth;
            let event = format!(r#"{{ action = "drop", direction = "ba", opcode = 0xd1, nth = {nth_of_all} }}"#);
            let most = if nth == acknowledgements { low_timeout(rtt) } else { rtt };
            too_much.check(Op::Write, PACKETS, rtt, &[event], most);
        }
    }
}

#[test]
fn a_lost_read_request_costs_a_low_timeout() {
    let mut too_much = TooMuch::default();
    for (rtt, packets) in RTTS.into_iter().flat_map(|rtt| [(rtt, 1), (rtt, PACKETS)]) {
        let event = format!(r#"{{ action = "drop", direction = "ab", opcode = 0xcc, nth = {} }}"#, HIT + 1);
        too_much.check(Op::Read, packets, rtt, &[event], low_timeout(rtt));
    }
}
