//! Whole runs of hosts with backups: what they have in common with runs without, how long a fallback takes, what each link carries.

use std::time::Duration;

use softnic_fault_injector::{Script, Spec};
use softnic_nic::transports::qp::PayloadMode;
use softnic_sim::{Backup, Cc, Op, Options, Outage, Report, Transport, run, run_timed};
use softnic_wire::Opcode;

const OPS: [Op; 3] = [Op::Write, Op::Send, Op::Read];
const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::SR, Transport::LOWAR];

const LOST_REQUEST: &str = r#"event = [{ action = "drop", opcode = "RC_RDMA_WRITE_MIDDLE", nth = 100 }]"#;
const LOST_RESPONSE: &str = r#"event = [{ action = "drop", opcode = "RC_RDMA_READ_RESPONSE_MIDDLE", nth = 100 }]"#;

fn spec(text: &str) -> Spec {
    if text.is_empty() { Spec::default() } else { text.parse().unwrap() }
}

fn backup(faults: &str) -> Option<Backup> {
    Some(Backup { faults: spec(faults), ..Backup::default() })
}

fn options(op: Op, transport: Transport, faults: &str) -> Options {
    Options {
        transport,
        op,
        size: 4096,
        count: 400,
        depth: 16,
        rtt: Duration::from_micros(100),
        faults: spec(faults),
        retry: 2,
        ..Options::default()
    }
}

fn completed(options: &Options) -> Report {
    let report = run(options, None, &mut |_| {}).unwrap_or_else(|e| panic!("{e}: {options:?}"));
    assert_eq!((report.completed, report.failed), (options.count, 0), "{options:?}");
    report
}

/// A frame of a capture: when it left, the network and the host of its sender, its bytes.
struct Sent {
    at: u64,
    network: u8,
    host: u8,
    frame: Vec<u8>,
}

/// When a frame left, and its bytes.
type Timed = (u64, Vec<u8>);

/// The frames of a run, without those by which the ends meet: between QP1s, and notices.
fn frames(options: &Options) -> Vec<Sent> {
    let mut capture = Vec::new();
    run(options, Some(&mut capture), &mut |_| {}).unwrap();
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    assert_eq!(word(0), 0xa1b2_3c4d, "nanoseconds");
    let (mut at, mut all) = (24, Vec::new());
    while at < capture.len() {
        let len = word(at + 8) as usize;
        let frame = capture[at + 16..at + 16 + len].to_vec();
        let (network, host) = (frame[27], frame[29]);
        let is_mad = frame[47..50] == [0, 0, 1];
        // By it an end of LoWAR says that a connection is negotiated.
        let is_notice = frame[42] == Opcode::LOWAR.0 && frame[54] == 2;
        if !is_mad && !is_notice {
            all.push(Sent { at: u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)), network, host, frame });
        }
        at += 16 + len;
    }
    all
}

#[test]
fn without_a_failure_the_default_link_carries_the_same_frames_at_the_same_times_and_the_backup_none() {
    for transport in TRANSPORTS {
        for op in OPS {
            // A script draws nothing, so MADs that go before do not change what is lost.
            let script = match (transport, op) {
                (Transport::Rc, Op::Write) => Script::parse(LOST_REQUEST).unwrap(),
                (Transport::Rc, Op::Read) => Script::parse(LOST_RESPONSE).unwrap(),
                _ => Script::default(),
            };
            let plain = Options { faults: Spec { script, ..Spec::default() }, ..options(op, transport, "") };
            let protected = Options { backup: backup(""), ..plain.clone() };
            let (without, with) = (frames(&plain), frames(&protected));
            assert!(with.iter().all(|sent| sent.network == 0), "{transport} {op:?}: the backup is idle");
            let offset = with[0].at - without[0].at;
            for host in [1, 2] {
                let of = |frames: &[Sent], offset: u64| -> Vec<Timed> {
                    let ours = frames.iter().filter(|sent| sent.host == host);
                    ours.map(|sent| (sent.at - offset, sent.frame.clone())).collect()
                };
                let (without, with) = (of(&without, 0), of(&with, offset));
                assert!(!without.is_empty());
                // The capture has whole nanoseconds, and a negotiation need not end with one.
                let same = |a: &Timed, b: &Timed| a.1 == b.1 && a.0.abs_diff(b.0) <= 1;
                let first = without.iter().zip(&with).position(|(a, b)| !same(a, b));
                assert_eq!((first, without.len()), (None, with.len()), "{transport} {op:?}, host {host}");
            }
        }
    }
}

/// The time that a fallback may take, beside round trips: the first message on the wire.
fn message_time(o: &Options) -> Duration {
    let bits = u64::from(o.size + o.mtu.packets(o.size) * 100) * 8;
    Duration::from_nanos(bits * 1_000_000_000 / o.rate)
}

#[test]
fn a_fallback_takes_two_round_trips_and_one_more_where_keys_are_asked_for() {
    check_fallbacks((4096, 400), Duration::from_micros(100), 100);
}

#[test]
fn a_fallback_takes_no_longer_where_a_message_takes_longer_than_a_round_trip() {
    // 64 KiB take 57 µs at 10 Gbit/s, 128 KiB twice that.
    for (size, rtt) in [(65536, 50), (131_072, 50), (65536, 20)] {
        check_fallbacks((size, 40), Duration::from_micros(rtt), 20);
    }
}

/// The times of so many failures of each kind, with so many messages of a size.
fn check_fallbacks((size, count): (u32, u64), rtt: Duration, failures: u64) {
    let mut report = Vec::new();
    let options =
        |op: Op, transport: Transport, faults: &str| Options { size, count, rtt, ..options(op, transport, faults) };
    for op in OPS {
        for direction in ["ab.down", "ba.down", "down"] {
            let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
            let mut skipped = 0;
            for i in 0..failures {
                // When the link is full, and at no particular time of a packet.
                let from = 420_000 + i * 7_919;
                let plain = options(op, Transport::Rc, &format!("{direction}={from}ns+10s"));
                let run = completed(&Options { backup: backup(""), ..plain });
                let failover = run.failover.unwrap().counters;
                assert_eq!((failover.failovers, failover.refused, failover.times().len()), (1, 0, 1), "{op:?} {from}");
                shortest = shortest.min(failover.times()[0]);
                longest = longest.max(failover.times()[0]);
                skipped += failover.skipped;
            }
            let o = options(op, Transport::Rc, "");
            let trips = if op == Op::Send { 2 } else { 3 };
            report.push(format!("{op:?} {direction}: {shortest:?} to {longest:?}, {skipped} skipped"));
            assert!(longest <= o.rtt * trips * 11 / 10 + message_time(&o), "{report:?}");
            // What the peer had is done when the peer has said so; all else is sent and answered after that.
            let least = if skipped > 0 { o.rtt } else { o.rtt * 2 };
            assert!(shortest >= least, "{report:?}");
        }
    }
}

/// Bytes a second that completed from one virtual time to another, in ms.
fn rates(options: &Options, windows: &[(u64, u64)]) -> Vec<f64> {
    let mut done = vec![[None; 2]; windows.len()];
    let last = Duration::from_millis(windows.iter().map(|w| w.1).max().unwrap());
    let report = run_timed(options, &mut |at| {
        assert_eq!(at.failed, 0, "at {:?}", at.now);
        for (window, seen) in windows.iter().zip(&mut done) {
            for (edge, seen) in [window.0, window.1].into_iter().zip(seen) {
                if seen.is_none() && at.now >= Duration::from_millis(edge) {
                    *seen = Some(at.completed);
                }
            }
        }
        at.now < last
    });
    report.unwrap();
    let rate = |((from, to), seen): (&(u64, u64), &[Option<u64>; 2])| {
        (seen[1].unwrap() - seen[0].unwrap()) as f64 * f64::from(options.size) / (to - from) as f64 * 1e3
    };
    windows.iter().zip(&done).map(rate).collect()
}

#[test]
fn goodput_before_a_failure_in_fallback_and_after_it_is_that_of_a_connection_without_backup() {
    const WINDOWS: [(u64, u64); 3] = [(10, 95), (115, 195), (230, 340)];
    for transport in TRANSPORTS {
        for op in OPS {
            let plain =
                Options { size: 8192, count: 1 << 20, depth: 64, rate: 1_000_000_000, ..options(op, transport, "") };
            let faults = spec("down=100ms+100ms");
            let probe = Duration::from_millis(10);
            let protected = Options { faults, backup: Some(Backup { probe, ..Backup::default() }), ..plain.clone() };
            let (without, with) = (rates(&plain, &WINDOWS), rates(&protected, &WINDOWS));
            for (i, (a, b)) in without.iter().zip(&with).enumerate() {
                assert!((b / a - 1.0).abs() < 0.01, "{transport} {op:?}, window {i}: {b} of {a} bytes a second");
            }
        }
    }
}

#[test]
fn connections_go_on_when_the_port_of_either_host_is_down_and_return() {
    for op in OPS {
        for host in [0, 1] {
            let outages = vec![Outage { host, from: Duration::from_micros(700), lasts: Duration::from_millis(4) }];
            let probe = Duration::from_millis(1);
            let protected = Options {
                count: 20_000,
                qps: 4,
                outages,
                backup: Some(Backup { probe, ..Backup::default() }),
                ..options(op, Transport::Rc, "")
            };
            let failover = completed(&protected).failover.unwrap();
            let counters = failover.counters;
            assert_eq!((counters.protected, counters.failovers, counters.failbacks), (4, 4, 4), "{op:?}, host {host}");
            assert!(counters.resubmitted > 0 && failover.links[0].frames > 100);
        }
    }
}

#[test]
fn two_paths_that_both_fail_end_in_errors() {
    let down = "down=1ms+10s";
    let both = Options { count: 4000, backup: backup(down), ..options(Op::Write, Transport::Rc, down) };
    let report = run(&both, None, &mut |_| {}).unwrap();
    assert!(report.failed > 0 && report.completed > 0, "{} {}", report.failed, report.completed);
    assert_eq!(report.completed + report.failed, both.count);
    assert_eq!(report.failover.unwrap().counters.refused, 1);
}

#[test]
fn an_atomic_that_is_outstanding_refuses_the_fallback() {
    let atomics = Options { size: 8, depth: 4, count: 4000, ..options(Op::Atomic, Transport::Rc, "down=1ms+10s") };
    let report = run(&Options { backup: backup(""), ..atomics }, None, &mut |_| {}).unwrap();
    let counters = report.failover.unwrap().counters;
    assert!(report.failed > 0);
    assert_eq!((counters.refused, counters.resubmitted), (1, 0));
}

#[test]
fn a_backup_is_refused_for_what_it_does_not_protect() {
    let plain = || Options { backup: backup(""), ..options(Op::Send, Transport::Rc, "") };
    let refused = [
        (Options { transport: Transport::Uc, ..plain() }, "rc, sr and lowar"),
        (Options { transport: Transport::Ud, size: 512, ..plain() }, "rc, sr and lowar"),
        (Options { payload: PayloadMode::Elided, ..plain() }, "--payload real"),
        (Options { auth: true, ..plain() }, "--auth"),
        (Options { cc: Cc::Window, ..plain() }, "--cc"),
        (Options { backup: Some(Backup { probe: Duration::ZERO, ..Backup::default() }), ..plain() }, "probes"),
    ];
    for (options, word) in refused {
        let said = run(&options, None, &mut |_| {}).unwrap_err().to_string();
        assert!(said.contains(word), "{said}");
    }
}
