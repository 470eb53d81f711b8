//! The paper's own examples: Figure 4, a send of four packets with two a chunk; Figure 6, a packet that comes too late.

use crate::world::{A, B, MTU, World, attr};

#[test]
fn figure_4_packet_by_packet() {
    let mut w = World::new(&attr());
    let receive = w.recv(0, 4 * MTU);
    assert_eq!(w.bits(receive), [false, false]);
    let send = w.send(0, 4 * MTU, None);
    assert!(w.frames(A).is_empty(), "the receive is not known to be posted");
    w.clear();
    let frames = w.frames(A);
    assert_eq!(frames.len(), 4);
    assert_eq!(w.qps[A].send_poll(send), Ok(true), "all has left");
    let expected = [[false, false], [true, false], [true, false], [true, true]];
    for (frame, bits) in frames.iter().zip(expected) {
        w.deliver(B, frame);
        assert_eq!(w.bits(receive), bits);
    }
    assert_eq!(w.bytes(B, 0, 4 * MTU), w.bytes(A, 0, 4 * MTU));
    assert!(w.qps[B].recv_bitmap_get(receive).unwrap().is_full());
    w.complete(receive);
    assert_eq!(w.counters(B).packets, 4);
}

#[test]
fn figure_4_in_every_order() {
    let orders: Vec<Vec<usize>> = (0..256)
        .map(|n| vec![n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6 & 3])
        .filter(|order| (0..4).all(|i| order.contains(&i)))
        .collect();
    assert_eq!(orders.len(), 24);
    for order in orders {
        let mut w = World::new(&attr());
        let receive = w.recv(0, 4 * MTU);
        w.send(0, 4 * MTU, None);
        w.clear();
        let frames = w.frames(A);
        for i in 0..4 {
            w.deliver(B, &frames[order[i]]);
            let came = &order[..=i];
            let chunk = |c: usize| came.contains(&(2 * c)) && came.contains(&(2 * c + 1));
            assert_eq!(w.bits(receive), [chunk(0), chunk(1)], "{order:?} after {i}");
        }
        assert_eq!(w.bytes(B, 0, 4 * MTU), w.bytes(A, 0, 4 * MTU));
    }
}

#[test]
fn figure_6_what_comes_after_the_completion_touches_nothing() {
    for screened in [true, false] {
        let mut w = World::new(&softnic_sdr::QpAttr { screened, ..attr() });
        let receive = w.recv(0, 4 * MTU);
        w.send(0, 4 * MTU, None);
        w.clear();
        let frames = w.frames(A);
        w.deliver(B, &frames[0]);
        w.deliver(B, &frames[1]);
        w.complete(receive);
        w.memory[B].write_at(0, &[0xee; 4 * MTU]);
        for frame in &frames {
            w.deliver(B, frame);
        }
        assert_eq!(w.bytes(B, 0, 4 * MTU), [0xee; 4 * MTU]);
        assert_eq!((w.counters(B).packets, w.counters(B).into_null), (2, 4));
        assert!(w.qps[B].recv_bitmap_get(receive).is_err());
    }
}

#[test]
fn sends_land_in_receives_in_the_order_in_which_both_were_posted() {
    let mut w = World::new(&attr());
    let receives = [0, 1, 2].map(|i| w.recv(i * 1000, 2 * MTU));
    for i in 0..3 {
        w.send(i * 5000, 2 * MTU, None);
    }
    w.clear();
    // Whatever comes first.
    let mut frames = w.frames(A);
    frames.reverse();
    for frame in frames {
        w.deliver(B, &frame);
    }
    for (i, receive) in receives.into_iter().enumerate() {
        assert_eq!((w.bits(receive), receive.number()), (vec![true], i as u64));
        assert_eq!(w.bytes(B, i * 1000, 2 * MTU), w.bytes(A, i * 5000, 2 * MTU));
    }
}

#[test]
fn messages_of_every_kind_of_length() {
    for len in [0, 1, MTU - 1, MTU, MTU + 1, 2 * MTU, 5 * MTU + 3, 16 * MTU - 1, 16 * MTU] {
        for chunk in [1, 2, 3, 16] {
            let mut w = World::new(&softnic_sdr::QpAttr { chunk: chunk * MTU as u32, ..attr() });
            let receive = w.recv(100, len);
            w.send(200, len, None);
            w.settle();
            let packets = len.div_ceil(MTU).max(1);
            assert_eq!(w.bits(receive), vec![true; packets.div_ceil(chunk as usize)], "{len} bytes by {chunk}");
            assert_eq!(w.bytes(B, 100, len), w.bytes(A, 200, len));
            assert_eq!(w.bytes(B, 100 + len, 100), [0; 100], "nothing behind it");
            assert_eq!(w.counters(B).packets, packets as u64);
        }
    }
}

#[test]
fn packets_take_turns_on_the_channels_each_with_a_source_port_of_its_own() {
    let mut w = World::new(&softnic_sdr::QpAttr { channels: 3, ..attr() });
    let receive = w.recv(0, 7 * MTU);
    w.send(0, 7 * MTU, None);
    w.clear();
    let frames = w.frames(A);
    // Ethernet and IPv4 without options before the UDP source port.
    let port = |frame: &Vec<u8>| u16::from_be_bytes([frame[34], frame[35]]);
    let mut ports: Vec<u16> = frames.iter().map(port).collect();
    ports.sort();
    let counts: Vec<usize> = ports.chunk_by(|a, b| a == b).map(<[u16]>::len).collect();
    assert_eq!(counts, [3, 2, 2]);
    for frame in &frames {
        w.deliver(B, frame);
    }
    assert_eq!(w.bits(receive), [true; 4]);
    assert_eq!(w.bytes(B, 0, 7 * MTU), w.bytes(A, 0, 7 * MTU));
}
