//! SDR without payload: only control messages carry theirs, and all that happens is what happens with it, at the same times.

use softnic_nic::transports::Counters;
use softnic_nic::transports::qp::PayloadMode;
use softnic_sim::{Chunks, Options, Report, Scheme, SdrOptions, Transport, run};
use softnic_wire::PathMtu;

/// What a run came to, without what the payload itself makes different: the digest sees each ICRC, and a NIC counts the bytes of frames that
/// are there.
fn outcome(options: &Options, payload: PayloadMode) -> (Report, Vec<String>) {
    let report = run(&Options { payload, ..options.clone() }, None, &mut |_| ()).unwrap();
    let counters = |c: &Counters| format!("{:?}", Counters { rcvd_bytes: 0, sent_bytes: 0, ..*c });
    let times = &report.completion_times;
    let quantiles = [0.0, 0.1, 0.5, 0.9, 0.99].map(|q| times.quantile_ms(q));
    let seen = vec![
        format!("{:?}", (report.completed, report.failed, report.stalled, report.virtual_ms, report.goodput_gbps)),
        format!("{:?}", (times.mean_ms(), times.max_ms(), quantiles)),
        format!("{:?}", (report.tx_packets, report.retransmitted_packets, report.chunks, report.reliability)),
        format!("{:?}", report.links),
        counters(&report.requester),
        counters(&report.responder),
    ];
    (report, seen)
}

fn compare(scheme: Option<Scheme>, faults: &str, mtu: PathMtu) -> Report {
    let options = Options {
        transport: Transport::Uc,
        size: 300_000,
        count: 60,
        mtu,
        faults: faults.parse().unwrap(),
        sdr: Some(SdrOptions { scheme, ..SdrOptions::default() }),
        seed: 5,
        ..Options::default()
    };
    let [(whole, seen), (elided, without)] =
        [PayloadMode::Real, PayloadMode::Elided].map(|payload| outcome(&options, payload));
    assert_eq!(seen, without, "{scheme:?} {faults} {mtu:?}");
    assert_ne!(whole.digest, elided.digest, "the payload is left out");
    elided
}

#[test]
fn a_run_without_payload_is_the_run_with_it() {
    for mtu in [PathMtu::B256, PathMtu::B4096] {
        for faults in ["", "loss=0.02,dup=0.01,jitter=100us", "ab.burst=1e-3:0.2:20,ba.loss=0.1"] {
            for scheme in [None, Some(Scheme::Sr), Some(Scheme::Nack)] {
                let report = compare(scheme, faults, mtu);
                assert_eq!((report.completed, report.failed), (60, 0));
                let lost = |chunks: Chunks| chunks.missing > 0;
                let repaired = report.retransmitted_packets > 0;
                assert_eq!(repaired || report.chunks.is_some_and(lost), !faults.is_empty());
            }
        }
    }
}

/// A damaged control message is dropped for its ICRC, which a frame that is whole has.
#[test]
fn what_is_damaged_is_dropped() {
    for scheme in [None, Some(Scheme::Sr), Some(Scheme::Nack)] {
        let options = Options {
            transport: Transport::Uc,
            size: 100_000,
            count: 100,
            faults: "corrupt=0.05".parse().unwrap(),
            sdr: Some(SdrOptions { scheme, ..SdrOptions::default() }),
            payload: PayloadMode::Elided,
            ..Options::default()
        };
        let report = run(&options, None, &mut |_| ()).unwrap();
        assert_eq!((report.completed, report.failed), (100, 0));
        let nics = [&report.requester, &report.responder];
        let dropped: u64 = nics.iter().map(|c| c.rx_icrc_encapsulated + c.rx_malformed + c.rx_bad_qp).sum();
        assert!(dropped > 0, "of the control messages");
        assert_eq!(nics.map(|c| c.sdr_rejected), [0, 0], "{scheme:?}");
    }
}
