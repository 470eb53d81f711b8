//! Frames of any kind arrive as they were sent; those that the other side cannot carry are counted.

use std::time::{Duration, Instant};

use softnic_runtime::MAX_MTU;
use softnic_runtime::PacketIo;
use softnic_runtime::afxdp::{AfXdp, Options, Takes};

use crate::path::{adds_up, options, start, wired};
use crate::veth::{LIMIT, Veth};

/// Both ends, which take and send everything.
fn ends(veth: &Veth) -> [Vec<AfXdp>; 2] {
    let options = Options { takes: Takes::Everything, max_frame: MAX_MTU + 22, ..Options::default() };
    [0, 1].map(|side| veth.open(side, &options))
}

/// A frame that is no IP, for anybody, with what `seed` says in it.
fn other(len: usize, seed: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (i * 7 + seed * 131) as u8).collect();
    // Not for the receiver, nor from the sender, so that nobody's address matters; and of a type of our own.
    frame[..14].copy_from_slice(&[2, 1, 1, 1, 1, seed as u8, 2, 2, 2, 2, 2, 2, 0x88, 0xb5]);
    frame
}

fn send(io: &mut AfXdp, frame: &[u8]) {
    let begin = Instant::now();
    while io.room(1) == 0 {
        assert!(begin.elapsed() < LIMIT, "no room to send");
    }
    assert!(io.put(frame));
    io.publish();
    io.flush().unwrap();
}

/// The next frame of our type that comes, by whichever queue.
fn next(queues: &mut [AfXdp], patience: Duration) -> Option<Vec<u8>> {
    let begin = Instant::now();
    let mut came = None;
    while came.is_none() && begin.elapsed() < patience {
        for io in &mut *queues {
            let mut take = |frame: &mut [u8]| {
                if frame[12..14] == [0x88, 0xb5] {
                    came = Some(frame.to_vec());
                }
            };
            if io.receive(1, &mut take).unwrap() > 0 {
                break;
            }
        }
        std::thread::yield_now();
    }
    came
}

#[test]
fn frames_of_all_lengths_in_both_directions_by_every_queue() {
    for (queues, mtu) in [(1, 1500), (2, 9000)] {
        let Some((veth, bump)) = wired(queues, mtu, "") else { return };
        let mut ends = ends(&veth);
        let mut count = 0;
        for len in [14, 15, 60, 64, 1500, 1514, 3840, 3841, 4096, 4097, 4352, 4353, 8192, 8193, 9014] {
            if len > mtu as usize + 14 {
                continue;
            }
            for (from, queue) in (0..2).flat_map(|from| (0..queues as usize).map(move |queue| (from, queue))) {
                let frame = other(len, count);
                send(&mut ends[from][queue], &frame);
                let came = next(&mut ends[1 - from], LIMIT);
                // The kernel fills up what is shorter than Ethernet has it.
                assert_eq!(came.as_deref().map(|c| &c[..len]), Some(&frame[..]), "{len} bytes from {from}");
                count += 1;
            }
        }
        drop(ends);
        bump.stop().unwrap().counters.iter().for_each(adds_up);
    }
}

#[test]
fn a_frame_longer_than_the_other_mtu_is_dropped_and_counted() {
    let Some(veth) = Veth::with_middle(1, [4200, 1500]) else { return };
    let bump = start(&veth, &options("")).unwrap();
    let mut ends = ends(&veth);
    send(&mut ends[0][0], &other(1515, 1));
    send(&mut ends[0][0], &other(4214, 2));
    send(&mut ends[0][0], &other(1514, 3));
    assert_eq!(next(&mut ends[1], LIMIT), Some(other(1514, 3)), "the only one that fits");
    send(&mut ends[1][0], &other(1514, 4));
    assert_eq!(next(&mut ends[0], LIMIT), Some(other(1514, 4)));
    let [ab, ba] = bump.stop().unwrap().counters;
    assert_eq!((ab.too_long, ba.too_long), (2, 0), "{ab:?} {ba:?}");
    [ab, ba].iter().for_each(adds_up);
}

#[test]
fn an_mtu_that_changes_counts_from_then_on() {
    let Some(veth) = Veth::with_middle(1, [1500; 2]) else { return };
    let bump = start(&veth, &options("")).unwrap();
    let middle = veth.middle.as_ref().unwrap();
    crate::veth::ip(&format!("-n {middle} link set {} mtu 1000", crate::veth::MIDDLE[1])).unwrap();
    let mut ends = ends(&veth);
    let begin = Instant::now();
    // It looks once a second.
    while bump.counters()[0].too_long == 0 {
        assert!(begin.elapsed() < LIMIT);
        send(&mut ends[0][0], &other(1200, 1));
        std::thread::sleep(Duration::from_millis(20));
    }
}
