//! Work that moves to another NIC: queue pairs that their owner halts, what is read and taken from them, and
//! completions from elsewhere.

use crate::common::*;
use softnic_nic::transports::SendProgress::{self, PartlyAcknowledged, Sent, Unsent};
use softnic_nic::transports::lowar::Code;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{
    Completion, CqId, Data, Event, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, Transport, WcOpcode,
};
use softnic_nic::{CqError, ModifyError, NextPsns, Notify, ObjectError, QpKind};
use softnic_wire::{Psn, Qpn};

const SR: Option<Transport> = Some(Transport::Sr { window: 1024 });

fn lowar() -> Option<Transport> {
    Some(Transport::Lowar(Code::new(8, 2).unwrap()))
}

/// Reliable connections of all kinds, with the negotiation behind them.
fn worlds(o: Options) -> Vec<World> {
    let kinds = [(None, None), (SR, None), (lowar(), None), (None, Some(7)), (SR, Some(7)), (lowar(), Some(7))];
    let made = kinds.map(|(offer, secret)| {
        let mut w = World::new(Options { offers: [offer; 2], secrets: [secret; 2], ..o });
        w.run();
        w.events(A);
        w
    });
    made.into()
}

fn halt(w: &mut World, h: usize) -> Result<(), ModifyError> {
    let Host { nic, qpn, .. } = &mut w.hosts[h];
    nic.halt_qp(*qpn)
}

fn progress(w: &World) -> Vec<(u64, SendProgress)> {
    let sends = w.hosts[A].nic.outstanding_sends(w.hosts[A].qpn).expect("a reliable connection");
    sends.map(|send| (send.wr.wr_id, send.progress)).collect()
}

fn receives(w: &World, h: usize) -> Vec<(u64, Vec<Sge>)> {
    let all = w.hosts[h].nic.outstanding_recvs(w.hosts[h].qpn).expect("receives of its own");
    all.map(|wr| (wr.wr_id, wr.sges.to_vec())).collect()
}

fn take(w: &mut World, h: usize) -> Result<Vec<u64>, ObjectError> {
    let Host { nic, qpn, .. } = &mut w.hosts[h];
    let mut ids = Vec::new();
    let count = nic.take_recvs(*qpn, |wr| ids.push(wr.wr_id))?;
    assert_eq!(count as usize, ids.len());
    Ok(ids)
}

fn psns(w: &World, h: usize) -> (i32, i32) {
    let NextPsns { send, receive } = w.hosts[h].nic.next_psns(w.hosts[h].qpn).expect("connected");
    let first = Psn::new(w.options.psn);
    (send.distance(first), receive.distance(first))
}

/// Nothing leaves A, and no timer of it runs; one that was armed before may still be looked at once.
fn assert_silent(w: &mut World) {
    assert!(w.transmit(A).is_empty());
    w.wait_for_timer(A);
    assert!(w.transmit(A).is_empty());
    assert_eq!(w.wait_for_timer(A), None);
}

#[test]
fn a_halted_queue_pair_is_silent_and_drops_what_comes() {
    for mut w in worlds(Options::default()) {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 256 * 8);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames);
        let answers = w.transmit(B);
        // A packet of the peer's that was not acknowledged yet, and answers on their way.
        w.recv(A, 7, 0, 256);
        w.send(B, 2, SendOp::Send, 0, 100);
        let requests = w.transmit(B);
        w.deliver_all(A, &requests);
        assert_eq!(halt(&mut w, A), Ok(()));
        assert_eq!(w.state(A), QpState::Error);
        let dropped = w.counters(A).rx_bad_qp;
        w.deliver_all(A, &answers);
        w.deliver_all(A, &requests);
        assert_eq!(w.counters(A).rx_bad_qp - dropped, (answers.len() + requests.len()) as u64);
        assert_silent(&mut w);
        assert!(w.sent(A).is_empty() && w.events(A).is_empty());
        assert_eq!(progress(&w), [(1, Sent)]);
        // Once more changes nothing.
        assert_eq!(halt(&mut w, A), Ok(()));
        assert_eq!(progress(&w), [(1, Sent)]);
    }
}

#[test]
fn work_is_read_back_whole_after_a_halt_in_the_middle_of_a_message() {
    for mut w in worlds(Options { max_rd_atomic: 1, ..Options::default() }) {
        let (write, read, add) = (w.write_to(B, 64), w.read_from(B, 0), w.add_to(B, 8, 3));
        let flags = |signaled, solicited, fence| SendFlags { signaled, solicited, fence };
        let (two, word) = ([w.sge(A, 0, 256 * 150), w.sge(A, 4096, 77)], [w.sge(A, 0, 8)]);
        let wr = |wr_id, op, data, flags| SendWr { wr_id, op, data, flags, best_effort: None, to: None };
        let inline = pattern(3, 33);
        let posted = [
            wr(1, write, Data::Gather(&two), flags(true, false, false)),
            wr(2, SendOp::SendImm { imm: 9 }, Data::Inline(&inline), flags(false, true, false)),
            wr(3, read, Data::Gather(&two[1..]), flags(true, false, false)),
            wr(4, add, Data::Gather(&word), flags(true, false, false)),
            wr(5, SendOp::Send, Data::Gather(&[]), flags(false, false, true)),
            wr(6, SendOp::SendInv { rkey: 5 }, Data::Inline(&[]), flags(true, true, true)),
        ];
        for wr in &posted[..5] {
            w.post(A, wr).unwrap();
        }
        let Host { nic, qpn, .. } = &mut w.hosts[A];
        let qpn = *qpn;
        // Its doorbell does not ring.
        nic.write_send(qpn, &posted[5]).unwrap();
        let frames = w.transmit(A);
        // Selective Repeat begins with fewer.
        w.deliver_all(B, &frames[..frames.len().min(80)]);
        let answers = w.transmit(B);
        w.deliver_all(A, &answers);
        halt(&mut w, A).unwrap();
        let now = w.now;
        let nic = &mut w.hosts[A].nic;
        let found: Vec<SendWr<'_>> = nic.outstanding_sends(qpn).unwrap().map(|send| send.wr).collect();
        assert_eq!(found, posted);
        let of = progress(&w);
        assert_eq!((of[0], of[5]), ((1, PartlyAcknowledged), (6, Unsent)));
        // A bell that rings later changes nothing.
        w.hosts[A].nic.ring_doorbell(now, qpn);
        assert_eq!((progress(&w), w.transmit(A).len(), w.sent(A).len()), (of, 0, 0));
    }
}

#[test]
fn what_waits_for_the_negotiation_is_not_sent_and_nothing_of_it_is_said_after_a_halt() {
    for (offer, secret) in [(SR, None), (lowar(), None), (None, Some(7)), (SR, Some(7))] {
        let mut w = World::new(Options { offers: [offer; 2], secrets: [secret; 2], ..Options::default() });
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 100);
        let (offers, of_peer) = (w.transmit(A), w.transmit(B));
        assert!(!offers.is_empty());
        w.deliver_all(B, &offers);
        let answers = w.transmit(B);
        halt(&mut w, A).unwrap();
        w.deliver_all(A, &of_peer);
        w.deliver_all(A, &answers);
        assert_silent(&mut w);
        assert_eq!(progress(&w), [(1, Unsent)]);
        assert!(w.sent(A).is_empty() && w.events(A).is_empty());
        assert_eq!(psns(&w, A), (0, 0));
    }
}

#[test]
fn a_halt_by_the_owner_is_flushed_by_the_error_state_and_forgotten_by_a_reset() {
    for mut w in worlds(Options::default()) {
        let op = w.write_to(B, 0);
        w.send(A, 1, op, 0, 100);
        w.send(A, 2, op, 0, 100);
        w.recv(A, 3, 0, 100);
        halt(&mut w, A).unwrap();
        let sges = [w.sge(A, 0, 100)];
        assert_eq!(w.post(A, &wr(4, op, Data::Gather(&sges))), Err(PostError::State));
        assert_eq!(w.post_recv(A, &RecvWr { wr_id: 5, sges: &sges, best_effort: None }), Err(PostError::State));
        w.modify(A, &to_state(QpState::Error));
        let flushed = Status::WrFlushErr;
        assert_eq!(w.sent_status(A), [(1, flushed), (2, flushed)]);
        assert_eq!(w.received_status(A), [(3, flushed)]);
        // Its work is gone: there is nothing to halt.
        let transition = ModifyError::Transition { from: QpState::Error, to: QpState::Error };
        assert_eq!(halt(&mut w, A), Err(transition));
        // As any other in error, it flushes what is posted.
        w.send(A, 6, op, 0, 100);
        assert_eq!(w.sent_status(A), [(6, flushed)]);
        let o = w.options;
        for again in [false, true] {
            for h in [A, B] {
                w.modify(h, &to_state(QpState::Reset));
                w.modify(h, &init_attr(&o));
                let rtr = rtr_attr(&o, w.path(h), w.hosts[1 - h].qpn);
                w.modify(h, &rtr);
                w.modify(h, &rts_attr(&o));
            }
            assert!(progress(&w).is_empty() && receives(&w, A).is_empty());
            w.run();
            w.send(A, 7, op, 0, 100);
            w.run();
            assert_eq!(w.sent_status(A), [(7, Status::Success)]);
            if !again {
                w.send(A, 8, op, 0, 100);
                halt(&mut w, A).unwrap();
            }
        }
        assert!(w.sent(A).is_empty());
    }
}

#[test]
fn a_queue_pair_halts_in_every_state_in_which_it_is_connected_and_others_refuse() {
    for offer in [None, SR] {
        let o = Options { offers: [offer; 2], ..Options::default() };
        let mut w = World::unconnected(o);
        let refused = |from| Err(ModifyError::Transition { from, to: QpState::Error });
        assert_eq!(halt(&mut w, A), refused(QpState::Reset));
        w.modify(A, &init_attr(&o));
        assert_eq!((halt(&mut w, A), w.hosts[A].nic.next_psns(w.hosts[A].qpn)), (refused(QpState::Init), None));
        w.recv(A, 1, 0, 100);
        let rtr = rtr_attr(&o, w.path(A), w.hosts[B].qpn);
        w.modify(A, &rtr);
        halt(&mut w, A).unwrap();
        assert_eq!((w.state(A), receives(&w, A).len()), (QpState::Error, 1));
        w = World::new(o);
        w.run();
        w.modify(A, &to_state(QpState::SendQueueDrain));
        w.events(A);
        halt(&mut w, A).unwrap();
        assert_eq!((w.state(A), w.events(A)), (QpState::Error, vec![]));
        assert_eq!(w.hosts[A].nic.halt_qp(Qpn::new(5)), Err(ModifyError::NoSuchQp));
    }
    for (kind, offer) in [(QpKind::Uc, None), (QpKind::Ud, None), (QpKind::Rc, Some(Transport::XP))] {
        let mut w = World::new(Options { kind, offers: [offer; 2], ..Options::default() });
        w.run();
        w.recv(A, 1, 0, 100);
        assert!(matches!(halt(&mut w, A), Err(ModifyError::Transition { .. })));
        assert_eq!((w.state(A), take(&mut w, A)), (QpState::ReadyToSend, Err(ObjectError::WrongKind)));
        let Host { nic, qpn, .. } = &w.hosts[A];
        assert!(nic.outstanding_recvs(*qpn).is_none() && nic.next_psns(*qpn).is_none());
    }
}

#[test]
fn receives_are_read_and_withdrawn_in_order_and_credits_follow() {
    for mut w in worlds(Options::default()) {
        for id in 1..=4 {
            w.recv(B, id, 512 * id as usize, 512);
        }
        w.send(A, 1, SendOp::Send, 0, 100);
        w.run();
        assert_eq!(w.received_status(B), [(1, Status::Success)]);
        let expected: Vec<_> = (2..=4).map(|id| (id, vec![w.sge(B, 512 * id as usize, 512)])).collect();
        assert_eq!(receives(&w, B), expected);
        assert_eq!(take(&mut w, B), Ok(vec![2, 3, 4]));
        assert_eq!((take(&mut w, B), receives(&w, B)), (Ok(vec![]), vec![]));
        assert!(w.received(B).is_empty(), "nothing completed");
        // The peer hears that there is none, and waits until there is one.
        w.send(A, 2, SendOp::Send, 0, 50);
        w.run();
        assert!(w.sent(A).iter().all(|c| c.wr_id == 1) && w.received(B).is_empty());
        w.recv(B, 9, 0, 512);
        for _ in 0..4 {
            w.wait_for_timer(A);
            w.run();
        }
        assert_eq!((w.sent_status(A), w.received_status(B)), (vec![(2, Status::Success)], vec![(9, Status::Success)]));
        w.recv(B, 10, 0, 512);
        halt(&mut w, B).unwrap();
        assert_eq!(take(&mut w, B), Ok(vec![10]));
        w.modify(B, &to_state(QpState::Error));
        assert!(w.received(B).is_empty());
    }
}

#[test]
fn a_receive_that_a_message_is_half_in_is_withdrawn_only_where_the_rest_cannot_come() {
    for mut w in worlds(Options::default()) {
        w.fill(A, 0, &pattern(1, 1000));
        w.recv(B, 1, 0, 2000);
        w.recv(B, 2, 2000, 2000);
        w.send(A, 1, SendOp::Send, 0, 1000);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames[..2]);
        assert_eq!(receives(&w, B).len(), 2);
        assert_eq!(take(&mut w, B), Err(ObjectError::Busy));
        w.deliver_all(B, &frames[2..]);
        w.run();
        assert_eq!((w.received_status(B), w.read(B, 0, 1000)), (vec![(1, Status::Success)], pattern(1, 1000)));
        assert_eq!(take(&mut w, B), Ok(vec![2]));
        // The same, and it halts.
        w.recv(B, 3, 0, 2000);
        w.send(A, 2, SendOp::Send, 0, 1000);
        let frames = w.transmit(A);
        w.deliver_all(B, &frames[..2]);
        halt(&mut w, B).unwrap();
        assert_eq!((receives(&w, B).len(), take(&mut w, B)), (1, Ok(vec![3])));
    }
}

#[test]
fn a_message_of_selective_repeat_that_came_early_keeps_its_receive() {
    let mut w = World::new(Options { offers: [SR; 2], ..Options::default() });
    w.run();
    w.recv(B, 1, 0, 500);
    w.recv(B, 2, 500, 500);
    w.send(A, 1, SendOp::Send, 0, 100);
    w.send(A, 2, SendOp::Send, 0, 100);
    let frames = w.transmit(A);
    w.deliver(B, &frames[1]);
    assert_eq!((take(&mut w, B), psns(&w, B)), (Err(ObjectError::Busy), (0, 0)));
    w.deliver(B, &frames[0]);
    assert_eq!((take(&mut w, B), psns(&w, B)), (Ok(vec![]), (0, 2)));
    assert_eq!(w.received_status(B), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn a_long_write_that_arrives_uses_no_receive() {
    for mut w in worlds(Options::default()) {
        w.recv(B, 1, 0, 500);
        let op = w.write_imm_to(B, 0, 3);
        w.send(A, 1, op, 0, 1000);
        let frames = w.transmit(A);
        w.deliver(B, &frames[0]);
        assert_eq!(take(&mut w, B), Ok(vec![1]));
    }
}

#[test]
fn shared_receives_are_neither_told_of_nor_withdrawn() {
    for mut w in worlds(Options { srq: true, ..Options::default() }) {
        w.recv(A, 1, 0, 100);
        assert!(w.hosts[A].nic.outstanding_recvs(w.hosts[A].qpn).is_none());
        assert_eq!(take(&mut w, A), Err(ObjectError::WrongKind));
    }
}

#[test]
fn the_next_psns_count_requests_and_stay_behind_a_halt() {
    for psn in FIRST_PSNS {
        for mut w in worlds(Options { psn, ..Options::default() }) {
            assert_eq!((psns(&w, A), psns(&w, B)), ((0, 0), (0, 0)));
            let (write, read) = (w.write_to(B, 0), w.read_from(B, 0));
            w.send(A, 1, write, 0, 256 * 3);
            w.run();
            assert_eq!((psns(&w, A), psns(&w, B)), ((3, 0), (0, 3)));
            w.send(A, 2, read, 0, 256 * 4);
            w.run();
            // The request of a READ has the PSNs of its answers, but with Selective Repeat.
            let n = if w.options.offers[A] == SR { 4 } else { 7 };
            assert_eq!((psns(&w, A), psns(&w, B)), ((n, 0), (0, n)));
            w.send(A, 3, write, 0, 256 * 2);
            w.transmit(A);
            for _ in 0..2 {
                halt(&mut w, A).unwrap();
                halt(&mut w, B).unwrap();
                assert_eq!((psns(&w, A), psns(&w, B)), ((n + 2, 0), (0, n)));
            }
            w.modify(A, &to_state(QpState::Error));
            assert_eq!(psns(&w, A), (n + 2, 0));
            w.modify(A, &to_state(QpState::Reset));
            assert_eq!(w.hosts[A].nic.next_psns(w.hosts[A].qpn), None);
        }
    }
}

#[test]
fn a_completion_of_another_nic_is_polled_raises_events_and_overflows_as_any_other() {
    let mut w = World::new(Options { cq: 2, ..Options::default() });
    let cq = w.hosts[A].recv_cq;
    let completion = |wr_id, solicited| Completion {
        solicited,
        byte_len: 5,
        ..Completion::new(wr_id, Status::Success, WcOpcode::Recv, Qpn::new(0x1234))
    };
    let nic = &mut w.hosts[A].nic;
    assert_eq!(nic.push_completion(CqId(99), completion(1, false)), Err(CqError::NoSuchCq));
    nic.req_notify_cq(cq, Notify::Solicited).unwrap();
    assert_eq!(nic.push_completion(cq, completion(1, false)), Ok(()));
    assert_eq!(nic.poll_completion_event(), None);
    assert_eq!(nic.push_completion(cq, completion(2, true)), Ok(()));
    assert_eq!(nic.poll_completion_event(), Some(cq));
    assert_eq!(nic.push_completion(cq, completion(3, false)), Err(CqError::Overflow));
    assert_eq!(nic.poll_event(), Some(Event::CqErr(cq)));
    let polled = [0, 1].map(|_| nic.poll_cq(cq).unwrap().unwrap());
    assert_eq!(polled, [completion(1, false), completion(2, true)]);
    assert_eq!(nic.poll_cq(cq), Err(CqError::Overflow));
}
