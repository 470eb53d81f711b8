//! One rank a process, here each in a thread with a NIC of its own, on a network in memory: they find each other by TCP and come to the sum.

use std::net::TcpListener;
use std::time::Duration;

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::member::MemberSettings;
use softnic_collectives::on_device::{Peer, Process, run_rank};
use softnic_collectives::report::Report;
use softnic_collectives::run::Options;
use softnic_runtime::api::OpenOptions;
use softnic_sim::Cc;

const CALL: Call = Call {
    operation: Operation::AllReduce,
    algorithm: Algorithm::Ring,
    element: Element::F32,
    reduction: Reduction::Sum,
    bytes: 100_000,
};

fn options(call: Call, ranks: usize, transport: &str) -> Options {
    Options {
        call,
        ranks,
        transport: transport.parse().unwrap(),
        stride: 1,
        cc: Cc::Window,
        timeout: None,
        iterations: 4,
        pause: Duration::ZERO,
        // Longer than any machine needs: time decides nothing here.
        member: MemberSettings {
            fixed: Some(Duration::from_secs(20)),
            patience: Duration::from_secs(60),
            ..MemberSettings::default()
        },
        seed: 1,
    }
}

/// Runs all ranks; what each of them came to. `call` says what a rank calls.
fn run(name: &str, ranks: usize, options: impl Fn(usize) -> Options + Sync) -> Vec<Result<Report, String>> {
    let listeners: Vec<TcpListener> = (0..ranks).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let peer = |l: &TcpListener| Peer { host: "127.0.0.1".into(), port: l.local_addr().unwrap().port() };
    let peers: Vec<Peer> = listeners.iter().map(peer).collect();
    drop(listeners);
    let device = format!("shm:collectives-{}-{name}", std::process::id()).parse().unwrap();
    let (peers, device, options) = (&peers, &device, &options);
    std::thread::scope(|scope| {
        let rank = |rank| {
            let process = Process {
                device: Clone::clone(device),
                open: OpenOptions::default(),
                rank,
                peers: peers.clone(),
                mtu: None,
            };
            scope.spawn(move || run_rank(&options(rank), &process, &|_| true).map_err(|e| e.to_string()))
        };
        let threads: Vec<_> = (0..ranks).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ranks_of_different_nics_find_each_other_and_come_to_their_end() {
    for (ranks, transport, algorithm) in
        [(2, "rc", Algorithm::Ring), (3, "sr", Algorithm::Tree), (3, "xp", Algorithm::Ring)]
    {
        let call = Call { algorithm, ..CALL };
        let reports = run(transport, ranks, |_| options(call, ranks, transport));
        for (rank, report) in reports.into_iter().enumerate() {
            let report = report.unwrap_or_else(|e| panic!("{transport}, rank {rank}: {e}"));
            assert_eq!((report.first_rank, report.ranks.len(), report.times.all().len()), (rank, 1, 4));
            let counters = report.ranks[0].member;
            assert_eq!((counters.collectives, counters.missing_bytes), (4, 0));
            assert!(counters.received_bytes > 0 && report.timeouts.is_empty() == (transport != "xp"));
        }
    }
}

#[test]
fn ranks_that_call_different_things_say_so_before_any_work() {
    let reports = run("differ", 2, |rank| options(Call { bytes: 4096 << rank, ..CALL }, 2, "rc"));
    for report in reports {
        let error = report.unwrap_err();
        assert!(error.contains("4096 bytes") && error.contains("8192 bytes") && !error.contains('\n'), "{error}");
    }
}
