//! Losses that nothing behind them tells of, where the program asked for an ACK timeout of four seconds, as NCCL does.

use std::time::Duration;

use softnic_nic::transports::qp::PayloadMode;
use softnic_sim::{Op, Options, Report, Transport, run};
use softnic_wire::PathMtu;

const RTT: Duration = Duration::from_micros(100);

/// Messages one after the other, each of which waits for its last packet.
fn one_by_one(transport: Transport, op: Op, loss: &str) -> Report {
    let options = Options {
        transport,
        op,
        size: 64 << 10,
        count: 400,
        depth: 1,
        mtu: PathMtu::B4096,
        rtt: RTT,
        timeout: Some(20),
        faults: format!("loss={loss}").parse().unwrap(),
        payload: PayloadMode::Elided,
        ..Options::default()
    };
    run(&options, None, &mut |_| {}).unwrap()
}

#[test]
fn over_an_extension_no_loss_waits_for_the_ack_timeout_of_the_program() {
    let sr = Transport::Sr { window: 16384 };
    // A block of LoWAR that cannot be mended is given up after 4 ms, and Go-Back-N sends it again.
    for (transport, limit_ms) in [(sr, 200.0), (Transport::LOWAR, 2000.0)] {
        for op in [Op::Write, Op::Send, Op::Read] {
            for loss in ["1e-3", "3e-2"] {
                let report = one_by_one(transport, op, loss);
                let what = format!("{transport} {op:?} with loss {loss}");
                assert_eq!((report.completed, report.failed), (400, 0), "{what}");
                assert_eq!(report.requester.local_ack_timeout_err, 0, "{what}");
                assert!(report.virtual_ms < limit_ms, "{what}: {} ms", report.virtual_ms);
            }
        }
    }
}

#[test]
fn the_standard_waits_for_it() {
    let report = one_by_one(Transport::Rc, Op::Write, "1e-2");
    assert!(report.requester.local_ack_timeout_err > 0);
}
