//! The calls: streams, errors, and that everything comes back.

use softnic_sdr::{AttrError, QpAttr, SdrError, SdrQp};

use crate::world::{A, B, MTU, World, attr, path};

#[test]
fn a_stream_sends_any_part_at_any_time_beside_one_shot_sends() {
    let mut w = World::new(&attr());
    let [first, second] = [0, 1].map(|i| w.recv(i * 20 * MTU, 6 * MTU + 5));
    let stream = w.qps[A].send_stream_start(w.now, &mut w.nics[A], 6 * MTU as u64 + 5, Some(9)).unwrap();
    let one_shot = w.send(40 * MTU, 6 * MTU + 5, None);
    w.settle();
    assert_eq!((w.bits(first), w.bits(second)), (vec![false; 4], vec![true; 4]));
    assert_eq!((w.qps[A].send_poll(stream), w.qps[A].send_poll(one_shot)), (Ok(false), Ok(true)));
    let part = |w: &mut World, offset: usize, len: usize| {
        let memory = w.local(A, offset, len);
        w.qps[A].send_stream_continue(w.now, &mut w.nics[A], stream, offset as u64, memory)
    };
    part(&mut w, 2 * MTU, 2 * MTU).unwrap();
    w.settle();
    assert_eq!(w.bits(first), [false, true, false, false]);
    // The end, and a part again.
    part(&mut w, 6 * MTU, 5).unwrap();
    part(&mut w, 2 * MTU, MTU).unwrap();
    w.settle();
    assert_eq!((w.bits(first), w.counters(B).duplicates), (vec![false, true, false, true], 1));
    assert_eq!(w.qps[A].send_stream_poll(stream), Ok(true));
    for (offset, len) in [(1, MTU), (0, 100), (6 * MTU, MTU), (7 * MTU, 0), (5 * MTU, MTU + 4)] {
        let refused = part(&mut w, offset, len);
        assert_eq!(refused, Err(SdrError::Part(len as u64, offset as u64, 6 * MTU as u64 + 5)), "{len} at {offset}");
    }
    part(&mut w, 0, 2 * MTU).unwrap();
    part(&mut w, 4 * MTU, 2 * MTU).unwrap();
    w.qps[A].send_stream_end(stream).unwrap();
    assert_eq!(part(&mut w, 0, MTU), Err(SdrError::Ended));
    w.settle();
    assert_eq!((w.bits(first), w.qps[B].recv_imm_get(first)), (vec![true; 4], Ok(Some(9))));
    assert_eq!(w.qps[A].send_poll(stream), Ok(true));
    assert_eq!(w.bytes(B, 0, 6 * MTU + 5), w.bytes(A, 0, 6 * MTU + 5));
}

#[test]
fn calls_that_cannot_be_are_refused_and_change_nothing() {
    let mut w = World::new(&attr());
    let long = w.local(B, 0, 17 * MTU);
    let too_long = SdrError::TooLong(17 * MTU as u64, 16 * MTU as u64);
    assert_eq!(w.qps[B].recv_post(w.now, &mut w.nics[B], long), Err(too_long));
    assert_eq!(w.qps[A].send_post(w.now, &mut w.nics[A], long, None), Err(too_long));
    let receives: Vec<_> = (0..8).map(|i| w.recv(i * MTU, MTU)).collect();
    let memory = w.local(B, 0, MTU);
    assert_eq!(w.qps[B].recv_post(w.now, &mut w.nics[B], memory), Err(SdrError::Full(8)));
    // Any may be completed, but the next one has the oldest's slot.
    w.complete(receives[3]);
    assert_eq!(w.qps[B].recv_post(w.now, &mut w.nics[B], memory), Err(SdrError::Full(8)));
    w.complete(receives[0]);
    assert_eq!(w.recv(0, MTU).number(), 8);
    assert_eq!(w.qps[B].recv_complete(&mut w.nics[B], receives[0]), Err(SdrError::NoSuchMessage));
    assert_eq!(w.qps[B].recv_imm_get(receives[3]), Err(SdrError::NoSuchMessage));
    let nobodys = softnic_sdr::Local { key: 1, addr: 0, len: 1 };
    w.complete(receives[1]);
    assert!(matches!(w.qps[B].recv_post(w.now, &mut w.nics[B], nobodys), Err(SdrError::Key(_))));
    assert_eq!(w.recv(0, MTU).number(), 9, "the one that was refused has no number");
    let bytes = w.qps[B].info().encode();
    let path = path(&w.nics[A], B);
    assert_eq!(w.qps[A].connect(&mut w.nics[A], 1, &path, &bytes), Err(SdrError::Connected));
}

#[test]
fn ends_that_do_not_fit_are_not_connected() {
    let mut w = World::new(&attr());
    let mut other = |attr: QpAttr| SdrQp::create(&mut w.nics[B], w.pds[B], &attr).unwrap().info().encode();
    let cases = [
        (other(QpAttr { channels: 2, ..attr() }), SdrError::Differs("number of channels", 2, 1)),
        (other(QpAttr { generations: 3, ..attr() }), SdrError::Differs("number of generations", 3, 4)),
    ];
    let path = path(&w.nics[A], B);
    let mut fresh = SdrQp::create(&mut w.nics[A], w.pds[A], &attr()).unwrap();
    for (info, error) in cases {
        assert_eq!(fresh.connect(&mut w.nics[A], 1, &path, &info), Err(error));
    }
    let memory = w.local(A, 0, 1);
    let unconnected = fresh.send_post(w.now, &mut w.nics[A], memory, None);
    assert_eq!(unconnected, Err(SdrError::NotConnected));
    let refused = SdrQp::create(&mut w.nics[A], w.pds[A], &QpAttr { chunk: 100, ..attr() });
    assert_eq!(refused.err(), Some(SdrError::Attr(AttrError::Chunk(100, 256, 256))));
}

#[test]
fn everything_comes_back_with_messages_under_way_or_not() {
    let mut w = World::new(&QpAttr { channels: 2, ..attr() });
    for i in 0..5 {
        w.recv(i * 1000, 3 * MTU);
        w.send(0, 3 * MTU, Some(1));
    }
    w.clear();
    let World { mut nics, qps, pds, keys, .. } = w;
    assert!(nics[B].dereg_mr(keys[B]).is_err(), "slots point into it");
    for (side, qp) in qps.into_iter().enumerate() {
        qp.destroy(&mut nics[side]);
        // Only the test's own region is left in the domain.
        assert!(nics[side].dealloc_pd(pds[side]).is_err());
        nics[side].dereg_mr(keys[side]).unwrap();
        nics[side].dealloc_pd(pds[side]).unwrap();
    }
}

#[test]
fn memory_that_may_not_be_read_ends_the_sending_with_an_error() {
    let mut w = World::new(&attr());
    w.recv(0, MTU);
    w.clear();
    let nobodys = softnic_sdr::Local { key: 77, addr: 0, len: MTU as u64 };
    let send = w.qps[A].send_post(w.now, &mut w.nics[A], nobodys, None).unwrap();
    w.settle();
    assert!(matches!(w.qps[A].send_poll(send), Err(SdrError::Send(_))), "{:?}", w.qps[A].send_poll(send));
    assert!(w.qps[A].failure().is_some());
}
