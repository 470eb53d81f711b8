//! Congestion control of unreliable connections: a rate that holds, and DCQCN behind a bottleneck that marks.

use softnic_nic::transports::congestion::Cc;
use softnic_sim::{Op, Options, Report, Transport, UNITS, run};

fn uc(cc: &str, faults: &str, op: Op) -> Report {
    let options = Options {
        transport: Transport::Uc,
        cc: Cc::parse(cc, &UNITS).unwrap(),
        op,
        size: 64 << 10,
        count: 400,
        rtt: std::time::Duration::from_micros(100),
        faults: faults.parse().unwrap(),
        ..Options::default()
    };
    run(&options, None, &mut |_| {}).unwrap()
}

#[test]
fn a_fixed_rate_is_kept() {
    // 1024 bytes of payload in each frame of 1082, with preamble, FCS and gap 1106.
    let share = 1024.0 / 1106.0;
    for op in [Op::Write, Op::Send] {
        for (cc, rate) in [("fixed:500Mbit", 0.5), ("fixed:2Gbit", 2.0), ("fixed:2Gbit:1", 2.0)] {
            let report = uc(cc, "", op);
            assert_eq!((report.completed, report.failed), (400, 0), "{cc}");
            let found = report.goodput_gbps / (rate * share);
            assert!((0.98..1.001).contains(&found), "{op:?} {cc}: {} Gbit/s", report.goodput_gbps);
        }
    }
}

#[test]
fn dcqcn_slows_down_behind_a_bottleneck_that_marks() {
    let faults = "ab.rate=5Gbit,ab.queue=256K,ab.ecn=5K:200K:0.01";
    let (without, with) = (uc("none", faults, Op::Write), uc("dcqcn", faults, Op::Write));
    assert_eq!(without.requester.rp_cnp_handled, 0);
    assert!(without.requester.rp_cnp_ignored > 10, "{}", without.requester.rp_cnp_ignored);
    let c = with.requester;
    assert!(c.rp_cnp_handled > 10 && c.rp_cnp_ignored == 0, "{} of {}", c.rp_cnp_handled, with.responder.np_cnp_sent);
    // The queue is shorter: fewer packets are marked, and fewer messages are lost in it.
    let marks = [without.responder, with.responder].map(|c| c.np_ecn_marked_roce_packets);
    assert!(marks[1] * 2 < marks[0], "{marks:?}");
    assert!(with.completed > without.completed, "{} {}", with.completed, without.completed);
}
