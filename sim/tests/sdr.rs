//! Messages over SDR in virtual time: what arrived is told by chunks, and a run is the same each time.

use softnic_sim::{Op, Options, Report, SdrOptions, SimError, Transport, run};
use softnic_wire::PathMtu;

fn options(faults: &str) -> Options {
    let sdr = Some(SdrOptions { chunk: Some(16 << 10), ..SdrOptions::default() });
    Options {
        transport: Transport::Uc,
        size: 100_000,
        count: 200,
        mtu: PathMtu::B1024,
        faults: faults.parse().unwrap(),
        sdr,
        ..Options::default()
    }
}

fn outcome(options: &Options) -> Report {
    run(options, None, &mut |_| ()).unwrap()
}

#[test]
fn without_faults_nothing_is_missing_and_the_line_is_full() {
    let report = outcome(&options(""));
    let chunks = report.chunks.unwrap();
    // 100,000 bytes are six chunks and a short one.
    assert_eq!((report.completed, chunks.chunks, chunks.missing, chunks.late_packets), (200, 1400, 0, 0));
    assert_eq!(chunks.bytes, 200 * 100_000);
    assert_eq!((report.responder.sdr_packets, report.responder.sdr_duplicates), (200 * 98, 0));
    assert!(report.link_utilization > 0.9, "{}", report.link_utilization);
    assert!(chunks.cts_sent >= 200 - 16, "a receive is told of: {}", chunks.cts_sent);
    assert_eq!(report.responder.sdr_cts_sent, chunks.cts_sent);
}

#[test]
fn a_lost_packet_costs_its_chunk_and_nothing_else() {
    let script = std::env::temp_dir().join(format!("softnic-sdr-{}.toml", std::process::id()));
    let event =
        "[[event]]\naction = 'drop'\ndirection = 'ab'\nopcode = 'UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE'\nnth = 20\n";
    std::fs::write(&script, event).unwrap();
    let report = outcome(&options(&format!("@{}", script.display())));
    std::fs::remove_file(&script).unwrap();
    let chunks = report.chunks.unwrap();
    assert_eq!((report.completed, chunks.chunks, chunks.missing), (200, 1400, 1));
    assert_eq!(chunks.bytes, 200 * 100_000 - (16 << 10));
    assert_eq!((report.links[0].lost, report.responder.sdr_packets), (1, 200 * 98 - 1));
}

#[test]
fn the_same_seed_is_the_same_run() {
    let faults = "loss=0.01,dup=0.01,jitter=300us";
    let [a, b] = [1, 1].map(|seed| outcome(&Options { seed, ..options(faults) }));
    assert_eq!((a.digest, a.chunks), (b.digest, b.chunks));
    let chunks = a.chunks.unwrap();
    assert!(chunks.missing > 0 && chunks.missing < chunks.chunks / 2, "{chunks:?}");
    assert!(a.responder.sdr_duplicates > 0);
    assert_ne!(outcome(&Options { seed: 2, ..options(faults) }).digest, a.digest);
}

#[test]
fn chunks_are_lost_as_often_as_the_formula_says() {
    // 1 - (1 - p)^N, N packets a chunk (SDR-RDMA §5.4.2), over some ten thousand chunks.
    for (chunk, packets) in [(1 << 10, 1), (4 << 10, 4), (16 << 10, 16)] {
        let sdr = Some(SdrOptions { chunk: Some(chunk), ..SdrOptions::default() });
        let report =
            outcome(&Options { sdr, size: 64 << 10, count: 12_800 / (64 / packets), ..options("ab.loss=0.01") });
        let chunks = report.chunks.unwrap();
        let expected = 1.0 - 0.99f64.powi(packets as i32);
        let found = chunks.missing as f64 / chunks.chunks as f64;
        let deviation = (expected * (1.0 - expected) / chunks.chunks as f64).sqrt();
        assert!((found - expected).abs() < 5.0 * deviation, "{packets} packets: {found}, not {expected}");
    }
}

#[test]
fn several_channels_carry_a_message_and_a_short_one_is_a_chunk() {
    let sdr = |channels| Some(SdrOptions { channels, ..options("").sdr.unwrap() });
    // Of the longest ones two share their place in memory.
    let cases = [(100_000, 4, 1400), (1, 1, 200), (1024, 3, 200), (1025, 2, 200), (1 << 20, 1, 200 * 64)];
    for (size, channels, chunks) in cases {
        let report = outcome(&Options { size, sdr: sdr(channels), ..options("") });
        let told = report.chunks.unwrap();
        assert_eq!((told.chunks, told.missing, told.bytes), (chunks, 0, 200 * u64::from(size)));
    }
}

#[test]
fn what_a_run_cannot_have_is_refused() {
    let refused = |options: Options| match run(&options, None, &mut |_| ()) {
        Err(error @ (SimError::Options(_) | SimError::Sdr(_))) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(Options { qps: 2, ..options("") }).contains("--channels"));
    assert!(refused(Options { op: Op::Send, ..options("") }).contains("--op"));
    assert!(refused(Options { transport: Transport::Rc, ..options("") }).contains("uc"));
    assert!(refused(Options { depth: 2000, ..options("") }).contains("11 bits"));
    let odd = Some(SdrOptions { chunk: Some(1500), ..SdrOptions::default() });
    assert!(refused(Options { sdr: odd, ..options("") }).contains("2048 is"));
}

#[test]
fn a_run_whose_sender_hears_nothing_stands_still() {
    let report = outcome(&options("ba.loss=1"));
    assert_eq!((report.completed, report.stalled), (0, true));
    assert!(report.requester.sdr_asks_sent > 100, "it asked: {}", report.requester.sdr_asks_sent);
    let lost = outcome(&options("ab.loss=1"));
    let chunks = lost.chunks.unwrap();
    assert_eq!((lost.completed, lost.stalled, chunks.missing), (200, false, chunks.chunks), "all is lost, and told");
}
