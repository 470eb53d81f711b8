//! XP in virtual time: what it costs where nothing is lost, and that every message ends in time with the bytes that came.

use std::time::Duration;

use softnic_nic::transports::congestion::Cc;
use softnic_nic::transports::qp::PayloadMode;
use softnic_sim::{Op, Options, Report, Transport, UNITS, run};
use softnic_wire::PathMtu;

fn options(transport: &str, op: Op) -> Options {
    Options { transport: transport.parse().unwrap(), op, rtt: Duration::from_micros(100), ..Options::default() }
}

fn report(options: &Options) -> Report {
    run(options, None, &mut |_| {}).unwrap()
}

/// Headers are 2.8 % of a packet at a path MTU of 1024, and 0.8 % at 4096.
#[test]
fn without_loss_it_is_as_fast_as_rc_but_for_its_headers() {
    for (mtu, least) in [(PathMtu::B1024, 0.965), (PathMtu::B4096, 0.985)] {
        for op in [Op::Write, Op::Send, Op::Read] {
            let goodput = |transport| report(&Options { mtu, ..options(transport, op) }).goodput_gbps;
            let (rc, xp) = (goodput("rc"), goodput("xp"));
            assert!((least..1.0).contains(&(xp / rc)), "{op:?} at {mtu:?}: {xp} against {rc} Gbit/s");
        }
    }
}

/// Bytes that come are those that the loss leaves, and no message takes longer than its deadline.
#[test]
fn every_message_ends_by_its_deadline_with_what_the_loss_leaves() {
    for (rtt, deadline) in [(Duration::from_micros(100), 2), (Duration::from_millis(40), 30)] {
        let of = |loss: f64, transport| {
            report(&Options {
                rtt,
                deadline: Some(Duration::from_millis(deadline)),
                depth: 1,
                count: 500,
                payload: PayloadMode::Elided,
                faults: format!("ab.loss={loss}").parse().unwrap(),
                ..options(transport, Op::Send)
            })
        };
        let free = of(0.0, "xp").completion_times.quantile_ms(0.99);
        for loss in [0.001, 0.01, 0.05] {
            for transport in ["xp", "xp:tail=2", "xp:linger=inf"] {
                let r = of(loss, transport);
                let (d, times) = (r.delivered.unwrap(), &r.completion_times);
                let what = format!("{transport}, loss {loss}, {rtt:?}: {d:?}");
                assert_eq!((r.completed, r.failed), (500, 0), "{what}");
                assert!(times.max_ms() <= deadline as f64, "{what}: {} ms", times.max_ms());
                if transport == "xp:tail=2" {
                    assert!(times.quantile_ms(0.99) <= 1.05 * free, "{what}: {} ms", times.quantile_ms(0.99));
                }
                // Binomial: 1024 packets a message.
                let (sent, lost) = (500.0 * 1024.0, d.missing_bytes as f64 / 1024.0);
                let sigma = (sent * loss * (1.0 - loss)).sqrt();
                assert!((lost - sent * loss).abs() <= 3.5 * sigma, "{what}: {lost} packets");
                assert_eq!(d.bytes + d.missing_bytes, 500 << 20, "{what}");
            }
        }
    }
}

/// The run itself compares bytes and bitmaps; here it is that faults of all kinds leave it with nothing to complain of.
#[test]
fn bytes_and_bitmaps_agree_whatever_the_network_does() {
    let faults = "loss=0.02,burst=1e-3:1:8,dup=0.02,corrupt=0.01,reorder=0.02:5";
    for (transport, stride, deadline) in [
        ("xp", 1, None),
        ("xp:linger=20us,active=2ms", 1, None),
        ("xp:tail=2,spray=4", 64, Some(20)),
        ("xp:linger=inf,active=5ms,uc", 8, Some(20)),
    ] {
        for op in [Op::Write, Op::Send, Op::Read] {
            if op == Op::Read && transport.ends_with("uc") {
                continue;
            }
            let r = report(&Options {
                size: 50_000,
                count: 2000,
                stride,
                deadline: deadline.map(Duration::from_millis),
                faults: faults.parse().unwrap(),
                ..options(transport, op)
            });
            let d = r.delivered.unwrap();
            assert!(d.partial > 500 && d.bytes > 60_000_000, "{transport} {op:?}: {d:?}");
            assert_eq!(r.failed, 0);
        }
    }
}

#[test]
fn dcqcn_and_a_window_slow_it_down_behind_a_bottleneck() {
    let faults = "ab.rate=5Gbit,ab.queue=256K,ab.ecn=5K:200K:0.01";
    let of = |cc: &str| {
        let cc = Cc::parse(cc, &UNITS).unwrap();
        let r = report(&Options {
            cc,
            size: 64 << 10,
            count: 400,
            faults: faults.parse().unwrap(),
            ..options("xp", Op::Write)
        });
        (r.links[0].tail_dropped, r.requester, r.goodput_gbps)
    };
    let (dropped, _, _) = of("none");
    let (with_dcqcn, c, _) = of("dcqcn");
    assert!(with_dcqcn < dropped && c.rp_cnp_handled > 10 && c.xp_feedback_received == 0, "{with_dcqcn} of {dropped}");
    let (with_window, c, goodput) = of("fixed:10Gbit:128K");
    assert!(with_window == 0 && c.xp_feedback_received > 100, "{with_window} dropped, {}", c.xp_feedback_received);
    assert!(goodput > 4.0, "the window fills the bottleneck: {goodput} Gbit/s");
}

#[test]
fn what_xp_has_not_is_refused() {
    let refused = |o: Options| run(&o, None, &mut |_| {}).unwrap_err().to_string();
    assert!(refused(Options { size: 8, ..options("xp", Op::Atomic) }).contains("no atomics"));
    assert!(
        refused(Options { deadline: Some(Duration::from_millis(1)), ..options("rc", Op::Send) }).contains("--deadline")
    );
    assert!(refused(Options { stride: 2, ..options("uc", Op::Send) }).contains("--stride"));
    assert!(refused(Options { stride: 3, ..options("xp", Op::Send) }).contains("power of two"));
    assert_eq!("xp".parse::<Transport>(), Ok(Transport::XP));
}
