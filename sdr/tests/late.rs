//! Packets that come when their message's number serves another one (SDR-RDMA §3.3.2), and control messages that are lost.

use std::time::Duration;

use softnic_sdr::{QpAttr, RecvHandle};

use crate::world::{A, B, MTU, World, attr};

/// Two bits of message numbers: they come round after four messages.
fn tiny(generations: u8) -> QpAttr {
    QpAttr { split: "2+26+4".parse().unwrap(), slots: 4, generations, ..attr() }
}

/// Sends a message and lets none of it arrive: its frames.
fn held_back(w: &mut World) -> Vec<Vec<u8>> {
    let receive = w.recv(0, 2 * MTU);
    w.send(0, 2 * MTU, None);
    w.clear();
    let frames = w.frames(A);
    w.complete(receive);
    frames
}

/// So many messages, each received and completed.
fn pass(w: &mut World, count: usize) {
    for _ in 0..count {
        let receive = w.recv(8 * MTU, 2 * MTU);
        w.send(8 * MTU, 2 * MTU, None);
        w.settle();
        assert_eq!(w.bits(receive), [true]);
        w.complete(receive);
    }
}

#[test]
fn a_packet_that_is_late_by_fewer_than_all_generations_is_known() {
    for screened in [true, false] {
        for generations in 1..=4u8 {
            for late in 1..=4u64 {
                let mut w = World::new(&QpAttr { screened, ..tiny(generations) });
                let frames = held_back(&mut w);
                pass(&mut w, 4 * late as usize - 1);
                // The slot of the first message has another one now.
                let receive = w.recv(4 * MTU, 2 * MTU);
                assert_eq!(receive.number(), 4 * late);
                w.memory[B].write_at(4 * MTU, &[0xee; 2 * MTU]);
                w.deliver(B, &frames[0]);
                w.deliver(B, &frames[1]);
                // The limit: after as many rounds as there are generations they look like the message that is there.
                let is_taken = late % u64::from(generations) == 0;
                assert_eq!(w.bits(receive), [is_taken], "{generations} generations, {late} late");
                let untouched = w.bytes(B, 4 * MTU, 2 * MTU) == [0xee; 2 * MTU];
                assert_eq!(untouched, !is_taken, "{generations} generations, {late} late");
                assert_eq!(w.counters(B).old_generation, if is_taken { 0 } else { 2 });
            }
        }
    }
}

/// A late packet into a slot that serves a new message, whose own packet came before: whether it harms that.
fn corrupts(key_per_generation: bool, screened: bool) -> bool {
    let mut w = World::new(&QpAttr { key_per_generation, screened, ..tiny(4) });
    let frames = held_back(&mut w);
    pass(&mut w, 3);
    let receive: RecvHandle = w.recv(4 * MTU, 2 * MTU);
    w.send(20_000, 2 * MTU, None);
    w.settle();
    assert_eq!(w.bits(receive), [true]);
    for frame in &frames {
        w.deliver(B, frame);
    }
    assert_eq!(w.counters(B).old_generation, 2, "the bitmap is safe either way");
    w.bytes(B, 4 * MTU, 2 * MTU) != w.bytes(A, 20_000, 2 * MTU)
}

#[test]
fn with_one_root_key_for_all_generations_a_late_packet_corrupts_a_later_message() {
    assert!(corrupts(false, false), "as the paper has it, on any NIC");
}

#[test]
fn with_a_root_key_for_each_generation_a_late_packet_is_discarded_on_any_nic() {
    assert!(!corrupts(true, false));
}

#[test]
fn a_nic_that_looks_before_it_places_needs_no_keys_for_that() {
    assert!(!corrupts(false, true) && !corrupts(true, true));
}

#[test]
fn what_comes_twice_is_counted_and_written_once() {
    let mut w = World::new(&attr());
    let receive = w.recv(0, 4 * MTU);
    w.send(0, 4 * MTU, None);
    w.clear();
    let frames = w.frames(A);
    w.deliver(B, &frames[1]);
    w.memory[B].write_at(MTU, &[0xee; MTU]);
    w.deliver(B, &frames[1]);
    assert_eq!((w.bytes(B, MTU, MTU), w.counters(B).duplicates), (vec![0xee; MTU], 1));
    assert_eq!(w.bits(receive), [false, false], "one packet of a chunk, twice, is not two");
}

#[test]
fn a_cts_that_is_lost_is_repeated_and_then_asked_for() {
    let mut w = World::new(&attr());
    let receive = w.recv(0, MTU);
    w.send(0, MTU, None);
    assert_eq!((w.frames(B).len(), w.frames(A).len()), (1, 0), "a CTS, which is lost");
    // The receiver repeats it by itself, a few times.
    for wait in [1, 2, 4] {
        w.now = w.now + Duration::from_millis(wait);
        assert_eq!(w.frames(B).len(), 1);
    }
    w.now = w.now + Duration::from_secs(1);
    assert_eq!(w.frames(B).len(), 0);
    assert_eq!((w.counters(B).cts_sent, w.counters(B).cts_repeated), (4, 3));
    // Then it is the sender's turn to ask.
    let asks = w.frames(A);
    assert_eq!((asks.len(), w.counters(A).asks_sent), (1, 1));
    w.deliver(B, &asks[0]);
    let answer = w.frames(B);
    assert_eq!(answer.len(), 1);
    // Twice is as good as once.
    w.deliver(A, &answer[0]);
    w.deliver(A, &answer[0]);
    w.settle();
    assert_eq!(w.bits(receive), [true]);
    w.now = w.now + Duration::from_secs(10);
    assert!(w.frames(A).is_empty(), "who waits for nothing asks for nothing");
}

#[test]
fn a_cts_counts_all_receives_so_any_of_them_is_enough() {
    let mut w = World::new(&attr());
    let receives = [0, 1, 2].map(|i| w.recv(i * MTU, MTU));
    let cts = w.frames(B);
    for i in 0..3 {
        w.send(i * MTU, MTU, None);
    }
    w.deliver(A, cts.last().unwrap());
    w.settle();
    assert!(receives.iter().all(|&receive| w.bits(receive) == [true]));
}
