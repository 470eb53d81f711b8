//! The user's immediate, which goes in pieces.

use softnic_sdr::{QpAttr, SdrError};

use crate::world::{A, B, MTU, World, attr};

#[test]
fn an_immediate_is_there_when_all_of_its_pieces_are() {
    for (split, pieces) in [("10+18+4", 8), ("8+22+2", 16), ("8+21+3", 11), ("4+12+16", 2)] {
        let mut w = World::new(&QpAttr { split: split.parse().unwrap(), ..attr() });
        // Fewer packets than pieces, as many, more.
        for len in [0, MTU, 3 * MTU, 8 * MTU, 16 * MTU] {
            let receive = w.recv(0, len);
            let imm = 0x89ab_cdef ^ len as u32;
            w.send(0, len, Some(imm));
            w.clear();
            let frames = w.frames(A);
            let packets = len.div_ceil(MTU).max(1);
            assert_eq!(frames.len(), packets.max(pieces), "{split}, {len} bytes");
            for (i, frame) in frames.iter().enumerate() {
                let early = w.qps[B].recv_imm_get(receive).unwrap();
                assert_eq!(early.is_some(), i >= pieces, "{split}, {len} bytes, {i} packets");
                w.deliver(B, frame);
            }
            assert_eq!(w.qps[B].recv_imm_get(receive), Ok(Some(imm)), "{split}, {len} bytes");
            assert!(w.qps[B].recv_bitmap_get(receive).unwrap().is_full());
            w.complete(receive);
        }
    }
}

#[test]
fn a_lost_packet_of_a_long_message_takes_no_piece_away() {
    let mut w = World::new(&attr());
    let receive = w.recv(0, 16 * MTU);
    w.send(0, 16 * MTU, Some(77));
    w.clear();
    let frames = w.frames(A);
    for (i, frame) in frames.iter().enumerate() {
        if i != 3 {
            w.deliver(B, frame);
        }
    }
    assert_eq!(w.qps[B].recv_imm_get(receive), Ok(Some(77)));
    assert_eq!(w.bits(receive), [true, false, true, true, true, true, true, true]);
}

#[test]
fn without_bits_for_it_there_is_none() {
    let mut w = World::new(&QpAttr { split: "10+22+0".parse().unwrap(), ..attr() });
    let memory = w.local(A, 0, MTU);
    assert_eq!(w.qps[A].send_post(w.now, &mut w.nics[A], memory, Some(1)), Err(SdrError::NoImmediate));
    let receive = w.recv(0, MTU);
    w.send(0, MTU, None);
    w.settle();
    assert_eq!((w.bits(receive), w.qps[B].recv_imm_get(receive)), (vec![true], Ok(None)));
}

#[test]
fn a_message_that_is_shorter_than_its_receive_by_whole_packets_has_its_immediate() {
    let mut w = World::new(&attr());
    let receive = w.recv(0, 16 * MTU);
    w.send(0, 2 * MTU, Some(0xfeed_beef));
    w.settle();
    assert_eq!(w.qps[B].recv_imm_get(receive), Ok(Some(0xfeed_beef)));
    assert_eq!(w.bits(receive), [true, false, false, false, false, false, false, false]);
    assert_eq!(w.counters(B).rejected, 0);
}
