//! SDR-RDMA on opened NICs: bits come while the program does something else, and everything ends with its handle.

use std::time::Instant;

use softnic_nic::transports::memory::Access;
use softnic_runtime::api::sdr::{SdrAttr, SdrContext, SdrError, SdrQueuePair};
use softnic_runtime::api::{
    CmConnection, CmListener, ConnectionManager, MemoryRegion, OpenOptions, PathMtu, PeerPath, Progress, QpKind,
    QpOptions,
};

use crate::world::{LIMIT, contexts_and_paths};

const LEN: usize = 300_000;

struct Side {
    qp: SdrQueuePair,
    mr: MemoryRegion,
    sdr: SdrContext,
}

fn attr() -> SdrAttr {
    SdrAttr { max_message: 1 << 20, chunk: 8192, slots: 4, mtu: PathMtu::B1024, channels: 2, ..SdrAttr::default() }
}

fn sides(progress: [Progress; 2], engines: u32, fault: Option<&str>) -> [Side; 2] {
    let (made, paths) = strangers(progress, engines, fault);
    for i in [0, 1] {
        made[i].qp.connect(&paths[i], &made[1 - i].qp.info().unwrap()).unwrap();
    }
    made
}

/// Two ends that are not connected, and the paths to each other.
fn strangers(progress: [Progress; 2], engines: u32, fault: Option<&str>) -> ([Side; 2], [PeerPath; 2]) {
    let options = progress.map(|p| OpenOptions {
        progress: Some(p),
        queues: Some(engines),
        fault: fault.map(|f| f.parse().unwrap()),
        seed: 5,
        ..OpenOptions::default()
    });
    let (contexts, paths) = contexts_and_paths([&options[0], &options[1]]);
    let made = contexts.map(|context| {
        let sdr = SdrContext::new(&context).unwrap();
        let mr = sdr.pd().alloc_mr(1 << 20, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        let qp = sdr.create_qp(&attr()).unwrap();
        assert_eq!((context.engines(), qp.engines()), (engines as usize, engines.min(2) as usize));
        Side { qp, mr, sdr }
    });
    (made, paths)
}

fn bytes(seed: usize) -> Vec<u8> {
    (0..LEN).map(|i| (i * 31 + seed * 7 + i / 1000) as u8).collect()
}

#[test]
fn messages_come_into_their_receives_whoever_makes_progress() {
    let (inline, dedicated) = (Progress::Inline, Progress::Dedicated);
    let ways = [([inline; 2], 1), ([dedicated; 2], 1), ([inline, dedicated], 1), ([inline; 2], 2), ([dedicated; 2], 3)];
    for (progress, engines) in ways {
        let [a, b] = sides(progress, engines, None);
        for round in 0..10 {
            a.mr.write_at(0, &bytes(round));
            let receive = b.qp.recv_post(&b.mr, 100, LEN).unwrap();
            let send = a.qp.send_post(&a.mr, 0, LEN, Some(round as u32)).unwrap();
            assert_eq!((send.number(), receive.number()), (round as u64, round as u64));
            let start = Instant::now();
            while !(send.poll().unwrap() && receive.bitmap().is_full()) {
                a.qp.progress();
                assert!(start.elapsed() < LIMIT, "{:?}", b.qp.counters());
                std::thread::yield_now();
            }
            assert_eq!(receive.imm(), Some(round as u32));
            let mut found = vec![0; LEN];
            receive.memory().read_at(100, &mut found);
            assert!(found == bytes(round), "round {round}");
            receive.complete().unwrap();
        }
        let counters = b.qp.counters().unwrap();
        assert_eq!((counters.packets, counters.rejected), (10 * LEN.div_ceil(1024) as u64, 0));
    }
}

#[test]
fn through_loss_and_reordering_what_is_missing_is_sent_again() {
    for engines in [1, 2] {
        through_loss(engines);
    }
}

fn through_loss(engines: u32) {
    let [a, b] = sides([Progress::Inline; 2], engines, Some("loss=0.05,dup=0.02"));
    for round in 0..5 {
        a.mr.write_at(0, &bytes(round));
        let receive = b.qp.recv_post(&b.mr, 0, LEN).unwrap();
        let mut stream = a.qp.send_stream_start(LEN, None).unwrap();
        let start = Instant::now();
        while !receive.bitmap().is_full() {
            assert!(start.elapsed() < LIMIT, "{:?}", b.qp.counters());
            let missing: Vec<u32> = receive.bitmap().missing().collect();
            for chunk in missing {
                let at = chunk as usize * 8192;
                stream.send(at as u64, &a.mr, at, 8192.min(LEN - at)).unwrap();
            }
            while !stream.is_idle().unwrap() {
                a.qp.progress();
                b.qp.progress();
            }
            // What has left may still be on its way.
            for _ in 0..100 {
                b.qp.progress();
            }
        }
        let mut found = vec![0; LEN];
        b.mr.read_at(0, &mut found);
        assert!(found == bytes(round), "round {round}");
    }
}

#[test]
fn handles_end_themselves_and_memory_comes_back() {
    for engines in [1, 2, 3] {
        ends(engines);
    }
}

fn ends(engines: u32) {
    let [a, b] = sides([Progress::Inline; 2], engines, None);
    let receives: Vec<_> = (0..4).map(|_| b.qp.recv_post(&b.mr, 0, 1000).unwrap()).collect();
    assert_eq!(b.qp.recv_post(&b.mr, 0, 1000).err(), Some(SdrError::Full(4)));
    let (mr, _) = b.mr.clone().deregister().expect_err("receives point into it");
    drop(receives);
    let again = b.qp.recv_post(&b.mr, 0, 1000).unwrap();
    assert_eq!(again.number(), 4);
    drop(again);
    mr.deregister().expect("nothing points into it any more");
    // A stream that is dropped ends, and the next message has the next number.
    drop(a.qp.send_stream_start(1000, None).unwrap());
    assert_eq!(a.qp.send_stream_start(1000, None).unwrap().end().unwrap().number(), 1);
    // Queue pairs come and go, with others beside them.
    for _ in 0..50 {
        let qp = a.sdr.create_qp(&attr()).unwrap();
        assert!(qp.info().unwrap().len() > 40);
        let cq = a.sdr.context().create_cq(4).unwrap();
        drop(qp);
        assert_eq!(cq.poll_one().unwrap(), None);
    }
    assert_eq!(SdrContext::new(a.sdr.context()).err(), Some(SdrError::Layered));
    let none = a.sdr.create_qp(&SdrAttr { chunk: 1000, ..attr() });
    assert_eq!(none.unwrap_err().to_string(), "a chunk of 1000 bytes is no multiple of the path MTU 1024: 1024 is");
}

/// A sender that waits has its frames ready at both engines; the clear to send comes to one of them, and the other one must hear of it although
/// nothing comes in there, and nobody polls.
#[test]
fn an_engine_that_sleeps_hears_of_receives_that_were_told_to_another() {
    let [a, b] = sides([Progress::Inline; 2], 2, None);
    for round in 0..30 {
        let send = a.qp.send_post(&a.mr, 0, LEN, None).unwrap();
        if round % 2 == 0 {
            // Long enough for the NIC's threads to sleep.
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        let receive = b.qp.recv_post(&b.mr, 0, LEN).unwrap();
        let start = Instant::now();
        let bitmap = receive.bitmap().clone();
        // Memory is read here, and nobody is called.
        while !bitmap.is_full() {
            assert!(start.elapsed() < LIMIT, "{:?}, {:?}", a.qp.counters(), b.qp.counters());
            std::thread::yield_now();
        }
        drop((send, bitmap));
        receive.complete().unwrap();
    }
}

/// Threads that send on one queue pair at the same time: all engines hear of the same messages in the same order, whatever that is.
#[test]
fn messages_of_several_threads_keep_one_order_at_all_engines() {
    let [a, b] = sides([Progress::Inline; 2], 2, None);
    const EACH: usize = 40;
    const LEN: usize = 5000;
    std::thread::scope(|s| {
        for thread in 0..3usize {
            let a = &a;
            s.spawn(move || {
                for n in 0..EACH {
                    let at = (thread * EACH + n) * LEN;
                    a.mr.write_at(at, &[(thread * EACH + n) as u8 + 1; LEN]);
                    let send = a.qp.send_post(&a.mr, at, LEN, Some((thread * EACH + n) as u32)).unwrap();
                    while !send.poll().unwrap() {
                        a.qp.progress();
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut seen = Vec::new();
        for _ in 0..3 * EACH {
            let receive = b.qp.recv_post(&b.mr, 0, LEN).unwrap();
            let start = Instant::now();
            while !receive.bitmap().is_full() || receive.imm().is_none() {
                assert!(start.elapsed() < LIMIT, "{:?}, {:?}", a.qp.counters(), b.qp.counters());
                std::thread::yield_now();
            }
            let (which, mut found) = (receive.imm().unwrap(), vec![0; LEN]);
            b.mr.read_at(0, &mut found);
            assert!(found.iter().all(|&byte| byte == which as u8 + 1), "all packets are of one message");
            seen.push(which);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..3 * EACH as u32).collect::<Vec<_>>());
    });
}

/// A message goes from one to the other.
fn talk(a: &Side, b: &Side) {
    a.mr.write_at(0, &bytes(3));
    let receive = b.qp.recv_post(&b.mr, 0, LEN).unwrap();
    let send = a.qp.send_post(&a.mr, 0, LEN, Some(9)).unwrap();
    let start = Instant::now();
    while !(send.poll().unwrap() && receive.bitmap().is_full()) {
        a.qp.progress();
        assert!(start.elapsed() < LIMIT, "{:?}", b.qp.counters());
        std::thread::yield_now();
    }
    let mut found = vec![0; LEN];
    b.mr.read_at(0, &mut found);
    assert!(found == bytes(3) && receive.imm() == Some(9));
}

/// Waits until both know each other.
fn until_met(sides: &[Side; 2]) {
    let start = Instant::now();
    while sides.iter().any(|side| !side.qp.is_met().unwrap()) {
        assert!(start.elapsed() < LIMIT);
        std::thread::yield_now();
    }
}

#[test]
fn ends_find_out_about_each_other_by_a_number_alone() {
    for (engines, fault) in [(1, None), (2, None), (2, Some("loss=0.2"))] {
        let (sides, paths) = strangers([Progress::Inline; 2], engines, fault);
        assert_eq!(sides[0].qp.is_met().err(), Some(SdrError::NotConnected));
        for i in [0, 1] {
            sides[i].qp.meet(&paths[i], sides[1 - i].qp.number().unwrap()).unwrap();
            assert_eq!(sides[i].qp.meet(&paths[i], sides[1 - i].qp.number().unwrap()).err(), Some(SdrError::Connected));
        }
        until_met(&sides);
        if fault.is_none() {
            talk(&sides[0], &sides[1]);
            talk(&sides[1], &sides[0]);
        }
    }
}

#[test]
fn a_receive_that_is_posted_before_the_ends_know_each_other_is_told_when_they_do() {
    let (sides, paths) = strangers([Progress::Inline; 2], 2, None);
    let receive = sides[1].qp.recv_post(&sides[1].mr, 0, 1000).unwrap();
    for i in [0, 1] {
        sides[i].qp.meet(&paths[i], sides[1 - i].qp.number().unwrap()).unwrap();
    }
    until_met(&sides);
    let _send = sides[0].qp.send_post(&sides[0].mr, 0, 1000, None).unwrap();
    let start = Instant::now();
    while !receive.bitmap().is_full() {
        sides[0].qp.progress();
        assert!(start.elapsed() < LIMIT);
    }
}

#[test]
fn a_peer_that_speaks_no_sdr_declines() {
    let (sides, paths) = strangers([Progress::Inline; 2], 1, None);
    let cq = sides[1].sdr.context().create_cq(4).unwrap();
    let plain = sides[1].sdr.pd().create_qp(&QpOptions::new(QpKind::Uc, &cq)).unwrap();
    let connection = softnic_runtime::api::Connection::new(
        paths[1],
        sides[0].qp.number().unwrap(),
        softnic_wire::Psn::new(1),
        softnic_wire::Psn::new(1),
    );
    plain.connect(&connection).unwrap();
    sides[0].qp.meet(&paths[0], plain.qpn()).unwrap();
    let start = Instant::now();
    let why = loop {
        match sides[0].qp.is_met() {
            Ok(false) => assert!(start.elapsed() < LIMIT),
            other => break other,
        }
        sides[1].qp.progress();
    };
    assert_eq!(why.unwrap_err().to_string(), "the peer does not offer SDR with this scheme");
}

#[test]
fn more_channels_than_the_ends_can_tell_each_other_are_refused_with_what_fits() {
    let (sides, paths) = strangers([Progress::Inline; 2], 1, None);
    let many = sides[0].sdr.create_qp(&SdrAttr { channels: 4, ..attr() }).unwrap();
    let why = many.meet(&paths[0], sides[1].qp.number().unwrap()).unwrap_err().to_string();
    assert!(why.contains("4 generations of 3 channels fit"), "{why}");
}

#[test]
fn the_connection_manager_brings_two_ends_together() {
    let (sides, _) = strangers([Progress::Dedicated; 2], 2, None);
    let managers = [0, 1].map(|i: usize| ConnectionManager::new(sides[i].sdr.context()).unwrap());
    let address = (sides[1].sdr.context().addresses()[0], 7471).into();
    let listener = CmListener::bind(&managers[1], address).unwrap();
    std::thread::scope(|s| {
        let asks = s.spawn(|| CmConnection::connect(&managers[0], &sides[0].qp, address, b"sdr", LIMIT).unwrap());
        let request = listener.next(LIMIT).expect("a request");
        assert_eq!(&request.private_data()[..3], b"sdr");
        let mut accepted = request.accept(&sides[1].qp, b"", LIMIT).unwrap();
        let asked = asks.join().unwrap();
        until_met(&sides);
        talk(&sides[0], &sides[1]);
        let ends = s.spawn(|| asked.disconnect(LIMIT));
        while !accepted.is_over() {
            std::thread::yield_now();
        }
        assert!(ends.join().unwrap());
    });
    // One that asks for RC is refused by an end of SDR.
    let cq = sides[0].sdr.context().create_cq(4).unwrap();
    let rc = sides[0].sdr.pd().create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
    let other = sides[1].sdr.create_qp(&attr()).unwrap();
    std::thread::scope(|s| {
        let asks =
            s.spawn(|| CmConnection::connect(&managers[0], &rc, address, b"rc", LIMIT).err().map(|e| e.to_string()));
        let why = listener.next(LIMIT).expect("a request").accept(&other, b"", LIMIT).err().map(|e| e.to_string());
        assert!(why.is_some_and(|why| why.ends_with("which this queue pair is not for")));
        assert!(asks.join().unwrap().is_some_and(|why| why.contains("transport service")));
    });
    // It is over: what is sent now fails.
    let send = sides[0].qp.send_post(&sides[0].mr, 0, 100, None);
    assert!(send.is_err() || send.unwrap().poll().is_err());
}
