//! Packets in any order, lost and twice: one message is active, a later one ends it, an earlier one is over.

use super::*;

/// The frames of two SENDs of three packets each.
fn two_messages(w: &mut World) -> Vec<Vec<u8>> {
    w.fill(A, 0, &pattern(1, 3 * MTU));
    w.fill(A, 3 * MTU, &pattern(2, 3 * MTU));
    w.recv(B, 1, 0, 3 * MTU);
    w.recv(B, 2, 4096, 3 * MTU);
    w.send(A, 1, SendOp::Send, 0, 3 * MTU);
    w.send(A, 2, SendOp::Send, 3 * MTU, 3 * MTU);
    w.transmit(A)
}

/// What a receiver must do, as plainly as it can be said; the packets that were placed, and how the two receives end.
fn model(order: &[usize]) -> (Vec<usize>, Vec<Ended>) {
    let (mut active, mut count, mut placed, mut ends) = (0, 0, Vec::new(), Vec::new());
    for &p in order {
        let message = p / 3;
        if message < active {
            continue;
        }
        if message > active {
            if active == 0 {
                ends.push((1, count * MTU as u32, PREEMPTED));
            }
            (active, count) = (message, 0);
        }
        placed.push(p);
        count += 1;
        if p % 3 == 2 {
            ends.push((message as u64 + 1, count * MTU as u32, if count == 3 { None } else { LAST }));
            (active, count) = (message + 1, 0);
        }
    }
    (placed, ends)
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.len() <= 1 {
        return vec![items.to_vec()];
    }
    let without =
        |i: usize| items.iter().enumerate().filter(move |&(j, _)| j != i).map(|(_, &p)| p).collect::<Vec<_>>();
    (0..items.len())
        .flat_map(|i| permutations(&without(i)).into_iter().map(move |rest| [vec![items[i]], rest].concat()))
        .collect()
}

#[test]
fn every_order_of_the_packets_of_two_messages() {
    for order in permutations(&[0, 1, 2, 3, 4, 5]) {
        let psn = FIRST_PSNS[order[0] % FIRST_PSNS.len()]; // message numbers begin with it, and count round
        let mut w = agreed(Options { psn, ..options("") });
        let frames = two_messages(&mut w);
        order.iter().for_each(|&p| w.deliver(B, &frames[p]));
        let (placed, ends) = model(&order);
        assert_eq!(received(&mut w), ends, "{order:?}");
        for p in 0..6 {
            let (at, bytes) = (if p < 3 { p * MTU } else { 4096 + (p - 3) * MTU }, pattern(p as u32 / 3 + 1, 3 * MTU));
            let expected =
                if placed.contains(&p) { bytes[p % 3 * MTU..][..MTU].to_vec() } else { vec![UNTOUCHED; MTU] };
            assert_eq!(w.read(B, at, MTU), expected, "packet {p} of {order:?}");
        }
        assert_eq!(w.counters(B).xp_late_packets as usize, 6 - placed.len(), "{order:?}");
    }
}

#[test]
fn a_message_of_each_kind_ends_the_one_before_it() {
    for kind in 0..4 {
        let mut w = world();
        w.recv(B, 1, 0, 3 * MTU);
        w.recv(B, 2, 4096, 3 * MTU);
        w.send(A, 1, SendOp::SendImm { imm: 9 }, 0, 3 * MTU);
        let first = w.transmit(A);
        w.deliver(B, &first[1]);
        let op = match kind {
            0 => SendOp::Send,
            1 => SendOp::SendImm { imm: 5 },
            2 => w.write_to(B, 9000),
            _ => w.write_imm_to(B, 9000, 5),
        };
        w.send(A, 2, op, 0, 10);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let cq = w.hosts[B].recv_cq;
        let done = w.all(B, cq);
        let (id, partial) = (done[0].wr_id, done[0].partial);
        assert_eq!((id, partial, done[0].byte_len, done[0].message_len), (1, PREEMPTED, 256, 768), "kind {kind}");
        assert_eq!(done[0].imm, Some(9), "a partial completion has the immediate, too");
        assert_eq!(done.len(), if kind == 2 { 1 } else { 2 });
        w.deliver_all(B, &first);
        assert_eq!((received(&mut w), w.counters(B).xp_late_packets), (vec![], 3));
    }
}

#[test]
fn first_packets_last_packets_and_all_of_them_may_be_lost() {
    for (lost, bytes, why) in [([true, false, false], 512, LAST), ([false, false, true], 512, PREEMPTED)] {
        let mut w = world();
        let frames = two_messages(&mut w);
        (0..3).filter(|&i| !lost[i]).for_each(|i| w.deliver(B, &frames[i]));
        w.deliver_all(B, &frames[3..]);
        assert_eq!(received(&mut w), [(1, bytes, why), (2, 768, None)]);
    }
    let mut w = world();
    let frames = two_messages(&mut w);
    w.deliver_all(B, &frames[3..]);
    assert_eq!(received(&mut w), [(1, 0, PREEMPTED), (2, 768, None)], "receive 2 is message 2's all the same");
    assert_eq!(w.read(B, 4096, 3 * MTU), pattern(2, 3 * MTU));
}

#[test]
fn a_write_tells_of_sends_of_which_nothing_came() {
    let mut w = world();
    w.recv(B, 1, 0, 100);
    w.recv(B, 2, 0, 100);
    w.send(A, 1, SendOp::Send, 0, 100);
    let _lost = w.transmit(A);
    let op = w.write_to(B, 5000);
    w.send(A, 2, op, 0, 100);
    w.run();
    assert_eq!(received(&mut w), [(1, 0, PREEMPTED)]);
    w.send(A, 3, SendOp::Send, 0, 100);
    w.run();
    assert_eq!(received(&mut w), [(2, 100, None)]);
}

#[test]
fn of_a_shared_receive_queue_nothing_is_taken_for_a_message_of_which_nothing_came() {
    let mut w = agreed(Options { srq: true, ..options("") });
    w.recv(B, 1, 0, 100);
    w.recv(B, 2, 0, 100);
    w.send(A, 1, SendOp::Send, 0, 100);
    let _lost = w.transmit(A);
    w.send(A, 2, SendOp::Send, 0, 100);
    w.run();
    assert_eq!(received(&mut w), [(1, 100, None)]);
}

/// With a bitmap nothing is counted twice, and it says what is missing; without one a packet that comes twice counts twice.
#[test]
fn a_bitmap_says_which_packets_came() {
    for (bitmap, bytes) in [(true, 512), (false, 768)] {
        let mut w = agreed(options("linger=inf"));
        w.fill(B, 9000, &[0xff; 8]);
        let work = BestEffort { bitmap: bitmap.then(|| w.sge(B, 9000, 2)), ..within(&w, 1000) };
        recv_with(&mut w, 1, 0, 10 * MTU, &work);
        w.send(A, 1, SendOp::Send, 0, 10 * MTU);
        let frames = w.transmit(A);
        for i in [9, 3, 3] {
            w.deliver(B, &frames[i]);
        }
        assert_eq!(received(&mut w), []);
        w.wait(1000);
        assert_eq!(received(&mut w), [(1, bytes, EXPIRED)]);
        let expected = if bitmap { [0b1000, 0b10, 0xff] } else { [0xff; 3] };
        assert_eq!(w.read(B, 9000, 3), expected);
    }
}

#[test]
fn the_last_fragment_ends_a_message_or_begins_the_time_of_stragglers() {
    // (linger, the packets that come and when, how it ends and when)
    for (settings, straggler, end) in [
        ("", None, (0, 512, LAST)),
        ("linger=1us", None, (1000, 512, LAST)),
        ("linger=1us", Some(999), (999, 768, None)),
        ("linger=1us", Some(1000), (1000, 512, LAST)),
        ("linger=inf", Some(4999), (4999, 768, None)),
        ("linger=inf", None, (5000, 512, EXPIRED)),
    ] {
        let mut w = agreed(options(settings));
        let work = within(&w, 5000);
        recv_with(&mut w, 1, 0, 3 * MTU, &work);
        w.send(A, 1, SendOp::Send, 0, 3 * MTU);
        let (frames, start) = (w.transmit(A), w.now.as_nanos());
        w.deliver(B, &frames[0]);
        w.deliver(B, &frames[2]);
        if let Some(nanos) = straggler {
            w.now = Instant::from_nanos(start + nanos);
            w.deliver(B, &frames[1]);
        }
        let mut done = received(&mut w);
        while done.is_empty() {
            w.wait_for_timer(B).expect("a time at which it ends");
            done = received(&mut w);
        }
        assert_eq!((w.now.as_nanos() - start, done), (end.0, vec![(1, end.1, end.2)]), "{settings} {straggler:?}");
    }
}

#[test]
fn the_last_fragment_is_sent_as_often_as_the_sender_says() {
    let mut w = agreed(options("tail=3"));
    w.recv(B, 1, 0, 3 * MTU);
    w.recv(B, 2, 0, 10);
    w.send(A, 1, SendOp::Send, 0, 3 * MTU);
    w.send(A, 2, SendOp::Send, 0, 10);
    let frames = w.transmit(A);
    let last: Vec<_> = headers(&w, &frames).iter().map(|h| (h.wqe_seq - w.options.psn, h.is_last())).collect();
    assert_eq!(last, [(0, false), (0, false), (0, true), (0, true), (0, true), (1, true), (1, true), (1, true)]);
    w.deliver_all(B, &frames);
    assert_eq!(received(&mut w), [(1, 768, None), (2, 10, None)]);
    assert_eq!(w.counters(B).xp_late_packets, 4);
}

/// Numbers of messages count round after 2^24, those of receives after 2^16.
#[test]
fn numbers_count_round() {
    let mut w = agreed(Options { buffer: 4096, psn: 0xff_ff00, ..options("") });
    for i in 0..70_000u64 {
        w.recv(B, i, 0, 16);
        w.send(A, i, SendOp::Send, 0, 16);
        let frames = w.transmit(A);
        // Some are lost: the one after tells.
        if i % 1000 != 500 {
            w.deliver_all(B, &frames);
        }
        sent(&mut w);
        match i % 1000 {
            500 => assert_eq!(received(&mut w), []),
            501 => assert_eq!(received(&mut w), [(i - 1, 0, PREEMPTED), (i, 16, None)]),
            _ => assert_eq!(received(&mut w), [(i, 16, None)]),
        }
    }
}

#[test]
fn source_ports_are_sprayed() {
    let mut w = agreed(options("spray=4"));
    w.recv(B, 1, 0, 8 * MTU);
    w.send(A, 1, SendOp::Send, 0, 8 * MTU);
    let frames = w.transmit(A);
    let ports: std::collections::BTreeSet<[u8; 2]> = frames.iter().map(|f| [f[34], f[35]]).collect();
    assert!(ports.len() == 4 && ports.iter().all(|p| p[0] >= 0xc0), "{ports:?}");
    w.deliver_all(B, &frames);
    assert_eq!(received(&mut w), [(1, 2048, None)]);
}
