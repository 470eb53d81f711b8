//! LoWAR over the wire in memory: what was lost is repaired, and nothing is sent again for it.

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::lowar::Code;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::{RecvWr, SendOp, Status};
use softnic_runtime::api::{Context, OpenOptions, Progress, QpOptions, Transport};

use crate::world::{LIMIT, SIZE, Side, completion, connect, contents, filled, post, side, write};

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
        for round in 0..8 {
            let bytes = filled(&a, round);
            write(&a, &b, 7, SIZE).unwrap();
            assert_eq!(completion(&a, || ()).status, Status::Success);
            assert!(contents(&b) == bytes, "WRITE in round {round}");
            let bytes = filled(&b, 100 + round);
            let op = SendOp::Read { remote_addr: b.mr.addr(), rkey: b.mr.rkey() };
            post(&a.qp, op, &[a.mr.sge(0, SIZE)]).unwrap();
            assert_eq!(completion(&a, || ()).status, Status::Success);
            assert!(contents(&a) == bytes, "READ in round {round}");
            for i in 0..100 {
                b.qp.post_recv(&RecvWr { wr_id: i, sges: &[b.mr.sge(0, 5000)], deadline: None }).unwrap();
            }
            for i in 0..100 {
                post(&a.qp, SendOp::SendImm { imm: i }, &[a.mr.sge(0, 40 * i as usize)]).unwrap();
            }
            for i in 0..100 {
                let got = completion(&b, || {
                    a.context.progress();
                });
                let expected = (u64::from(i), Status::Success, 40 * i, Some(i));
                assert_eq!((got.wr_id, got.status, got.byte_len, got.imm), expected);
                assert_eq!(completion(&a, || ()).status, Status::Success);
            }
        }
        for side in [&a, &b] {
            let counters = side.context.counters();
            assert!(counters.lowar_repairs_sent > 0 && counters.lowar_recovered_packets > 0, "{counters:?}");
            assert_eq!((counters.lowar_rejected, counters.rx_icrc_encapsulated), (0, 0), "{counters:?}");
        }
    }
}
