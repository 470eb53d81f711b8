//! Congestion control as a program asks for it: a rate that holds, and DCQCN that hears of marks.

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::Status;
use softnic_runtime::api::{Cc, Context, OpenOptions, Progress, QpOptions, Transport, parse_cc};

use crate::world::{SIZE, Side, completion, connect, contents, filled, side, write};

fn world(cc: &str, transport: Transport, fault: Option<&str>) -> [Side; 2] {
    let (cc, fault) = (parse_cc(cc).unwrap(), fault.map(|spec| spec.parse().unwrap()));
    let options = OpenOptions { progress: Some(Progress::Dedicated), fault, seed: 7, ..OpenOptions::default() };
    let sides = Context::open_pair([&options, &OpenOptions { fault: None, ..options.clone() }]).unwrap().map(side);
    let sides = sides.map(|side| {
        let options = QpOptions { cc, transport, ..QpOptions::new(QpKind::Rc, &side.cq) };
        Side { qp: side.pd.create_qp(&options).unwrap(), ..side }
    });
    connect(&sides[0], &sides[1]);
    sides
}

#[test]
fn a_fixed_rate_is_not_exceeded() {
    for transport in [Transport::Rc, Transport::SR] {
        let [a, b] = world("fixed:80Mbit", transport, None);
        let bytes = filled(&a, 1);
        let start = Instant::now();
        write(&a, &b, 7, SIZE).unwrap();
        assert_eq!(completion(&a, || ()).status, Status::Success);
        // 1 MiB at 80 Mbit/s; what may be made up for is far less.
        assert!(start.elapsed() > Duration::from_millis(100), "{:?}", start.elapsed());
        assert_eq!(contents(&b), bytes);
    }
}

#[test]
fn marks_are_told_by_notifications_and_those_are_heeded_by_who_asked_for_it() {
    for (cc, transport) in [("dcqcn", Transport::Rc), ("dcqcn:f=2", Transport::SR), ("none", Transport::Rc)] {
        // The queue holds all that is outstanding, and marks all that finds another before it.
        let [a, b] = world(cc, transport, Some("rate=500Mbit,queue=4M,ecn=0:1K:1"));
        let bytes = filled(&a, 3);
        write(&a, &b, 7, SIZE).unwrap();
        assert_eq!(completion(&a, || ()).status, Status::Success, "{cc}");
        assert_eq!(contents(&b), bytes);
        let (ours, theirs) = (a.context.counters(), b.context.counters());
        assert!(theirs.np_ecn_marked_roce_packets > 0 && theirs.np_cnp_sent > 0, "{cc}: {theirs:?}");
        let (heeded, ignored) = (ours.rp_cnp_handled, ours.rp_cnp_ignored);
        // Of those that come within 50 µs one is heeded: a thread that was not running finds several.
        let right = if cc == "none" { heeded == 0 && ignored > 0 } else { heeded > ignored };
        assert!(right, "{cc}: {heeded} heeded, {ignored} ignored");
    }
}

#[test]
fn names_are_read_with_the_units_of_fault_specs() {
    assert_eq!(parse_cc("fixed:2Gbit:256K"), Ok(Cc::Fixed { rate: 2_000_000_000, window: 256 << 10 }));
    let Ok(Cc::Dcqcn(config)) = parse_cc("dcqcn:timer=300us,ai=5Mbit,bytes=1M") else { panic!("dcqcn") };
    assert_eq!((config.increase_timer, config.additive), (Duration::from_micros(300), 5_000_000));
    assert_eq!(config.byte_counter, 1 << 20);
    assert!(parse_cc("reno").is_err());
}
