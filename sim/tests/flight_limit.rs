//! The limit of what is outstanding: a receiver with room for few frames is not overrun, a long path is filled.

use std::time::Duration;

use softnic_nic::transports::congestion::Cc;
use softnic_nic::transports::qp::PayloadMode;
use softnic_sim::{Options, Report, run};
use softnic_wire::PathMtu;

/// A host on a line of 100 Gbit/s with 128 messages of 64 KiB outstanding on each queue pair, and a receiver that takes 40 Gbit/s in and
/// has room for this many bytes.
fn overrun(cc: Cc, qps: u32, room: &str) -> Report {
    let options = Options {
        cc,
        size: 64 << 10,
        count: 800,
        depth: 128,
        qps,
        mtu: PathMtu::B4096,
        rate: 100_000_000_000,
        rtt: Duration::from_micros(10),
        faults: format!("ab.rate=40Gbit,ab.queue={room}").parse().unwrap(),
        payload: PayloadMode::Elided,
        ..Options::default()
    };
    run(&options, None, &mut |_| {}).unwrap()
}

#[test]
fn a_receiver_with_room_for_512_frames_is_not_overrun_whatever_is_posted() {
    let (without, with) = (overrun(Cc::None, 1, "2M"), overrun(Cc::Window, 1, "2M"));
    assert!(without.retransmitted_packets > 200, "{}", without.retransmitted_packets);
    assert_eq!((with.completed, with.retransmitted_packets), (800, 0));
    assert!(with.goodput_gbps > 38.0 && with.goodput_gbps > without.goodput_gbps, "{}", with.goodput_gbps);
}

#[test]
fn eight_queue_pairs_share_a_receiver_with_room_for_4096_frames_without_loss() {
    let report = overrun(Cc::Window, 8, "16M");
    assert_eq!((report.completed, report.retransmitted_packets), (800, 0));
    assert!(report.goodput_gbps > 38.0, "{}", report.goodput_gbps);
}

/// Eight have more outstanding together than there is room for: each that loses packets has less, until all fit.
#[test]
fn queue_pairs_that_overrun_a_receiver_together_have_less_outstanding_afterwards() {
    let (without, with) = (overrun(Cc::None, 8, "2M"), overrun(Cc::Window, 8, "2M"));
    assert_eq!((with.completed, with.failed), (800, 0));
    assert!(with.goodput_gbps > 2.0 * without.goodput_gbps, "{} {}", with.goodput_gbps, without.goodput_gbps);
}

#[test]
fn a_long_path_is_filled_after_some_round_trips() {
    let path = |cc| {
        let options = Options {
            cc,
            count: 3000,
            depth: 128,
            mtu: PathMtu::B4096,
            rtt: Duration::from_millis(40),
            payload: PayloadMode::Elided,
            ..Options::default()
        };
        run(&options, None, &mut |_| {}).unwrap().goodput_gbps
    };
    let (without, with) = (path(Cc::None), path(Cc::Window));
    assert!(with > 0.8 * without, "{with} of {without} Gbit/s");
}
