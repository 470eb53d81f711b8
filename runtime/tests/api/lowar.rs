//! LoWAR over the wire in memory: what was lost is repaired, and nothing is sent again for it.

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::lowar::Code;
use softnic_nic::transports::negotiation::Choice;
use softnic_runtime::api::{Context, OpenOptions, Progress, QpOptions, Transport};

use crate::world::{LIMIT, Side, connect, rounds, side};

/// Each side sends blocks of its own.
fn world(progress: Progress, fault: &str) -> [Side; 2] {
    let fault = Some(fault.parse().unwrap());
    let options = OpenOptions { progress: Some(progress), fault, seed: 7, ..OpenOptions::default() };
    let sides = Context::open_pair([&options, &OpenOptions { fault: None, ..options.clone() }]).unwrap().map(side);
    let mut codes = [Code::new(32, 4), Code::new(8, 2)].into_iter().flatten();
    let sides = sides.map(|side| {
        let transport = Transport::Lowar(codes.next().unwrap());
        let options = QpOptions { transport, ..QpOptions::new(QpKind::Rc, &side.cq) };
        Side { qp: side.pd.create_qp(&options).unwrap(), ..side }
    });
    connect(&sides[0], &sides[1]);
    for side in &sides {
        let start = Instant::now();
        while side.qp.choice() != Some(Choice::Agreed) {
            assert!(start.elapsed() < LIMIT, "{:?}", side.qp.choice());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    sides
}

#[test]
fn what_is_lost_is_repaired_and_the_data_is_right() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let [a, b] = world(progress, "loss=1e-2");
        rounds(&a, &b, 8);
        for side in [&a, &b] {
            let counters = side.context.counters();
            assert!(counters.lowar_repairs_sent > 0 && counters.lowar_recovered_packets > 0, "{counters:?}");
            assert_eq!((counters.lowar_rejected, counters.rx_icrc_encapsulated), (0, 0), "{counters:?}");
        }
    }
}
