//! Reliable messages over SDR on opened NICs: they come whole through loss, or say why not, and everything ends with its handle.

use std::time::{Duration, Instant};

use softnic_nic::transports::memory::Access;
use softnic_runtime::api::sdr::{
    Outcome, ReliableAttr, ReliableError, ReliableQueuePair, Scheme, SdrAttr, SdrContext, SdrError, SdrSettings,
};
use softnic_runtime::api::{
    CmConnection, CmListener, ConnectionManager, MemoryRegion, OpenOptions, PathMtu, PeerPath, Progress,
};

use crate::world::{LIMIT, contexts_and_paths};

const LEN: usize = 150_000;

fn schemes() -> [Scheme; 4] {
    ["sdr-sr", "sdr-nack", "sdr-ec:8,2", "sdr-xor:8,2"].map(|name| name.parse().unwrap())
}

struct Side {
    qp: ReliableQueuePair,
    mr: MemoryRegion,
    sdr: SdrContext,
}

fn attr(scheme: Scheme) -> ReliableAttr {
    let qp = SdrAttr {
        max_message: 1 << 20,
        chunk: 4096,
        slots: 64,
        mtu: PathMtu::B1024,
        channels: 2,
        ..SdrAttr::default()
    };
    // Longer than any pause of a thread here, most of the time: the tests hold, whatever it is.
    ReliableAttr { qp, scheme, rtt: Duration::from_millis(1), timeout: LIMIT, ..ReliableAttr::default() }
}

/// Two ends that are not connected, and the paths to each other.
fn strangers(attrs: [ReliableAttr; 2], options: OpenOptions) -> ([Side; 2], [PeerPath; 2]) {
    let (contexts, paths) = contexts_and_paths([&options; 2]);
    let mut attrs = attrs.into_iter();
    let sides = contexts.map(|context| {
        let sdr = SdrContext::new(&context).unwrap();
        let mr = sdr.pd().alloc_mr(16 * LEN, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        let qp = sdr.create_reliable(&attrs.next().unwrap()).unwrap();
        Side { qp, mr, sdr }
    });
    (sides, paths)
}

fn options(progress: Progress, engines: u32, fault: &str) -> OpenOptions {
    let fault = Some(fault.parse().unwrap());
    OpenOptions { progress: Some(progress), queues: Some(engines), fault, seed: 5, ..OpenOptions::default() }
}

fn connect((sides, paths): ([Side; 2], [PeerPath; 2])) -> [Side; 2] {
    for i in [0, 1] {
        sides[i].qp.connect(&paths[i], &sides[1 - i].qp.info().unwrap()).unwrap();
    }
    sides
}

fn meet((sides, paths): ([Side; 2], [PeerPath; 2])) -> [Side; 2] {
    for i in [0, 1] {
        sides[i].qp.meet(&paths[i], sides[1 - i].qp.number().unwrap()).unwrap();
    }
    until_met(&sides);
    sides
}

fn until_met(sides: &[Side; 2]) {
    let start = Instant::now();
    while sides.iter().any(|side| !side.qp.is_met().unwrap()) {
        assert!(start.elapsed() < LIMIT);
        std::thread::yield_now();
    }
}

fn bytes(side: usize, number: u64) -> Vec<u8> {
    (0..LEN).map(|i| (i * 31 + side * 77 + number as usize * 13 + i / 1000) as u8).collect()
}

/// Messages in both directions at once, four at a time. What is sent is in the lower half of memory, what comes in the upper one.
fn carry(sides: &[Side; 2], count: u64) {
    let place = |number: u64| (number % 4) as usize * LEN;
    let mut over = [[0; 2]; 2];
    let post = |i: usize, number: u64, receives: bool| match receives {
        true => {
            assert_eq!(sides[i].qp.receive(&sides[i].mr, 8 * LEN + place(number), LEN), Ok(number));
        }
        false => {
            sides[i].mr.write_at(place(number), &bytes(i, number));
            assert_eq!(sides[i].qp.write(&sides[i].mr, place(number), LEN), Ok(number));
        }
    };
    for i in [0, 1] {
        (0..count.min(4)).for_each(|number| [true, false].into_iter().for_each(|receives| post(i, number, receives)));
    }
    let start = Instant::now();
    while over != [[count; 2]; 2] {
        assert!(start.elapsed() < LIMIT, "{over:?}");
        for i in [0, 1] {
            let Some(outcome) = sides[i].qp.poll() else {
                std::thread::yield_now();
                continue;
            };
            let (Outcome::Written { id, outcome: result } | Outcome::Received { id, outcome: result }) = outcome;
            assert_eq!(result, Ok(()));
            let receives = matches!(outcome, Outcome::Received { .. });
            if receives {
                let mut found = vec![0; LEN];
                sides[i].mr.read_at(8 * LEN + place(id), &mut found);
                assert!(found == bytes(1 - i, id), "message {id} to {i}");
            }
            let before = over[i][usize::from(receives)];
            over[i][usize::from(receives)] += 1;
            // A place is used again when all four are over: they end in any order.
            if before % 4 == 3 {
                (before + 1..count.min(before + 5)).for_each(|number| post(i, number, receives));
            }
        }
    }
    assert!(sides.iter().all(|side| side.qp.poll().is_none() && side.qp.outstanding() == (0, 0)));
}

#[test]
fn messages_come_whole_in_both_directions_whoever_makes_progress() {
    for scheme in schemes() {
        for (progress, engines) in [(Progress::Inline, 1), (Progress::Dedicated, 1), (Progress::Inline, 2)] {
            let sides = connect(strangers([attr(scheme); 2], options(progress, engines, "")));
            carry(&sides, 12);
            let counters = sides[0].qp.reliable_counters().unwrap();
            assert!(counters.chunks_sent == 12 * LEN.div_ceil(4096) as u64 && counters.acks_sent > 0, "{counters:?}");
        }
    }
}

#[test]
fn through_loss_duplicates_and_reordering_too() {
    for scheme in schemes() {
        for join in [connect, meet] {
            let sides =
                join(strangers([attr(scheme); 2], options(Progress::Inline, 1, "loss=0.03,dup=0.02,jitter=100us")));
            carry(&sides, 12);
            for side in &sides {
                let counters = side.qp.reliable_counters().unwrap();
                match scheme {
                    Scheme::Ec(_) => {
                        assert!(counters.chunks_recovered > 0 && counters.parity_packets > 0, "{counters:?}")
                    }
                    _ => assert!(counters.chunks_repeated > 0, "{scheme}: {counters:?}"),
                }
                assert!(counters.nacks_sent > 0 || scheme != Scheme::Nack, "{counters:?}");
                assert!(side.qp.rtt().unwrap() > Duration::ZERO && side.qp.counters().unwrap().packets > 0);
            }
        }
    }
}

/// The outcomes of an end, so many.
fn outcomes(side: &Side, count: usize) -> Vec<Outcome> {
    let (start, mut all) = (Instant::now(), Vec::new());
    while all.len() < count {
        assert!(start.elapsed() < LIMIT, "{all:?}");
        all.extend(side.qp.poll());
        std::thread::yield_now();
    }
    all
}

#[test]
fn a_peer_that_goes_away_ends_all_that_is_posted_in_the_timeout() {
    for scheme in schemes() {
        let short = ReliableAttr { timeout: Duration::from_millis(100), ..attr(scheme) };
        let [a, b] = connect(strangers([short; 2], options(Progress::Inline, 1, "")));
        b.qp.receive(&b.mr, 0, LEN).unwrap();
        drop(b.qp);
        a.qp.receive(&a.mr, 0, LEN).unwrap();
        for number in [0, 1] {
            assert_eq!(a.qp.write(&a.mr, 0, LEN), Ok(number));
        }
        let outcome = Err(ReliableError::Timeout);
        let all = outcomes(&a, 3);
        for expected in [
            Outcome::Written { id: 0, outcome },
            Outcome::Written { id: 1, outcome },
            Outcome::Received { id: 0, outcome },
        ] {
            assert!(all.contains(&expected), "{all:?}");
        }
        assert_eq!(a.qp.write(&a.mr, 0, 10), Err(SdrError::Ended));
        assert_eq!(a.qp.receive(&a.mr, 0, 10), Err(SdrError::Ended));
        assert_eq!((a.qp.poll(), a.qp.outstanding()), (None, (0, 0)));
    }
}

#[test]
fn memory_stays_until_its_outcome_and_goes_with_the_queue_pair() {
    let [a, b] = connect(strangers([attr(Scheme::Nack); 2], options(Progress::Inline, 1, "loss=0.05")));
    // Nobody but the queue pair has the region.
    let from = a.sdr.pd().alloc_mr(LEN, Access::NONE).unwrap();
    from.write_at(0, &bytes(0, 0));
    a.qp.write(&from, 0, LEN).unwrap();
    drop(from);
    b.qp.receive(&b.mr, 0, LEN).unwrap();
    let start = Instant::now();
    while b.qp.poll() != Some(Outcome::Received { id: 0, outcome: Ok(()) }) {
        assert!(start.elapsed() < LIMIT);
        a.qp.progress();
    }
    let mut found = vec![0; LEN];
    b.mr.read_at(0, &mut found);
    assert!(found == bytes(0, 0));
    // What is posted goes with the last handle, and its memory is free then.
    b.qp.receive(&b.mr, 0, LEN).unwrap();
    let (mr, _) = b.mr.clone().deregister().expect_err("a receive points into it");
    let other = b.qp.clone();
    drop(b.qp);
    let (mr, _) = mr.deregister().expect_err("a handle is left");
    drop(other);
    mr.deregister().expect("nothing points into it any more");
    assert_eq!(a.qp.write(&b.mr, 0, usize::MAX).err(), Some(SdrError::TooLong(u64::MAX, 1 << 20)));
}

/// Each with a scheme of its own, or other chunks.
fn unequal() -> [([ReliableAttr; 2], &'static str); 4] {
    let [sr, nack] = [Scheme::Sr, Scheme::Nack].map(attr);
    let ec = |name: &str| attr(name.parse().unwrap());
    let long = ReliableAttr { qp: SdrAttr { chunk: 8192, ..sr.qp }, ..sr };
    [
        ([sr, nack], "the peer has another scheme: sdr scheme 2 there, sdr scheme 1 here"),
        ([nack, ec("sdr-ec:32,8")], "the peer has another scheme: sdr scheme 3:32,8,1 there, sdr scheme 2 here"),
        (
            [ec("sdr-ec:16,4"), ec("sdr-ec:32,8")],
            "the peer has another scheme: sdr scheme 3:32,8,1 there, sdr scheme 3:16,4,1 here",
        ),
        ([sr, long], "the peer has another packets of a chunk: 8 there, 4 here"),
    ]
}

#[test]
fn ends_with_different_schemes_are_refused_by_their_information() {
    for (attrs, why) in unequal() {
        let (sides, paths) = strangers(attrs, OpenOptions::default());
        let refused = sides[0].qp.connect(&paths[0], &sides[1].qp.info().unwrap());
        assert_eq!(refused.unwrap_err().to_string(), why);
    }
    // One with a scheme and one without, in either order.
    let (sides, paths) = strangers([attr(Scheme::Sr); 2], OpenOptions::default());
    let plain = sides[1].sdr.create_qp(&attr(Scheme::Sr).qp).unwrap();
    let (none, sr) = (SdrSettings::SDK, Scheme::Sr.settings());
    assert_eq!(sides[0].qp.connect(&paths[0], &plain.info().unwrap()), Err(SdrError::Scheme(none, sr)));
    assert_eq!(plain.connect(&paths[1], &sides[0].qp.info().unwrap()), Err(SdrError::Scheme(sr, none)));
    let wrong = ReliableAttr { alpha: -1.0, ..attr(Scheme::Sr) };
    assert!(sides[0].sdr.create_reliable(&wrong).unwrap_err().to_string().starts_with("α"));
}

#[test]
fn ends_with_different_schemes_do_not_meet() {
    for (n, (attrs, why)) in unequal().into_iter().enumerate() {
        let (sides, paths) = strangers(attrs, OpenOptions::default());
        for i in [0, 1] {
            sides[i].qp.meet(&paths[i], sides[1 - i].qp.number().unwrap()).unwrap();
        }
        let start = Instant::now();
        let refused = loop {
            match sides[0].qp.is_met() {
                Ok(met) => assert!(!met && start.elapsed() < LIMIT),
                Err(error) => break error.to_string(),
            }
            sides[1].qp.progress();
        };
        // The negotiation compares schemes, and the ends their settings.
        let expected = if n < 2 { "the peer does not offer SDR with this scheme" } else { why };
        assert_eq!(refused, expected);
    }
}

#[test]
fn the_connection_manager_brings_two_reliable_ends_together() {
    let (sides, _) = strangers([attr(Scheme::Sr); 2], options(Progress::Dedicated, 1, ""));
    let managers = [0, 1].map(|i: usize| ConnectionManager::new(sides[i].sdr.context()).unwrap());
    let address = (sides[1].sdr.context().addresses()[0], 7471).into();
    let listener = CmListener::bind(&managers[1], address).unwrap();
    std::thread::scope(|s| {
        let asks = s.spawn(|| CmConnection::connect(&managers[0], &sides[0].qp, address, b"", LIMIT).unwrap());
        let mut accepted = listener.next(LIMIT).expect("a request").accept(&sides[1].qp, b"", LIMIT).unwrap();
        let asked = asks.join().unwrap();
        until_met(&sides);
        carry(&sides, 4);
        sides[1].qp.receive(&sides[1].mr, 0, LEN).unwrap();
        let ends = s.spawn(|| asked.disconnect(LIMIT));
        while !accepted.is_over() {
            std::thread::yield_now();
        }
        assert!(ends.join().unwrap());
    });
    // It is over, and with it all that was posted.
    let outcome = Err(ReliableError::Sdr(SdrError::NotConnected));
    assert_eq!(outcomes(&sides[1], 1), [Outcome::Received { id: 4, outcome }]);
    assert_eq!(sides[0].qp.write(&sides[0].mr, 0, LEN), Err(SdrError::Ended));
}
