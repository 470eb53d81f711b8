//! Traffic between two NICs: run by the program, by the NICs' own threads, and by whoever is there.

use std::time::Duration;

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, RecvRules, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_nic::{ObjectError, QpAttr, QpKind};
use softnic_runtime::api::{Progress, QpOptions};

use crate::world::{LIMIT, SIZE, Side, completion, connect, contents, filled, post, side_of, world, write};

#[test]
fn one_thread_runs_both() {
    let [a, b] = world([Progress::Inline; 2]);
    let bytes = filled(&a, 1);
    write(&a, &b, 7, SIZE).unwrap();
    let done = completion(&a, || {
        b.context.progress();
    });
    assert_eq!((done.wr_id, done.status), (7, Status::Success));
    assert_eq!(contents(&b), bytes);
}

#[test]
fn the_peer_sleeps_and_its_nic_takes_over() {
    let [a, b] = world([Progress::Inline; 2]);
    let bytes = filled(&a, 2);
    write(&a, &b, 7, SIZE).unwrap();
    assert_eq!(completion(&a, || ()).status, Status::Success, "nobody polls at the other end");
    assert_eq!(contents(&b), bytes);
}

#[test]
fn both_programs_sleep_and_the_completion_wakes_one() {
    let [a, b] = world([Progress::Inline; 2]);
    let bytes = filled(&a, 3);
    write(&a, &b, 9, SIZE).unwrap();
    assert!(a.cq.wait(LIMIT).unwrap());
    assert_eq!(a.cq.poll_one().unwrap().map(|c| c.wr_id), Some(9));
    assert_eq!(contents(&b), bytes);
}

#[test]
fn the_nics_own_threads_run_them() {
    let [a, b] = world([Progress::Dedicated; 2]);
    for round in 0..3 {
        let bytes = filled(&a, round);
        write(&a, &b, u64::from(round), SIZE).unwrap();
        assert_eq!(completion(&a, || ()).wr_id, u64::from(round));
        assert_eq!(contents(&b), bytes);
    }
}

#[test]
fn many_threads_post_to_one_queue_pair_and_every_work_request_completes() {
    let [a, b] = world([Progress::Inline, Progress::Dedicated]);
    const EACH: u64 = 500;
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let (a, b) = (&a, &b);
            s.spawn(move || {
                for i in 0..EACH {
                    while write(a, b, t << 32 | i, 64).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; 4];
        for _ in 0..4 * EACH {
            let done = completion(&a, || ());
            assert_eq!(done.status, Status::Success);
            let t = (done.wr_id >> 32) as usize;
            assert_eq!(done.wr_id & 0xffff_ffff, next[t], "in the order in which the thread posted");
            next[t] += 1;
        }
    });
}

#[test]
fn receives_wait_for_messages() {
    let [a, b] = world([Progress::Inline; 2]);
    b.qp.post_recv(&RecvWr { wr_id: 5, sges: &[b.mr.sge(0, 64)], best_effort: None }).unwrap();
    a.mr.write_at(0, b"hello");
    let sge = [a.mr.sge(0, 5)];
    let flags = SendFlags::default();
    let wr = SendWr {
        wr_id: 1,
        op: SendOp::SendImm { imm: 42 },
        data: Data::Gather(&sge),
        flags,
        best_effort: None,
        to: None,
    };
    a.qp.post_send(&wr).unwrap();
    let got = completion(&b, || {
        a.context.progress();
    });
    assert_eq!((got.wr_id, got.byte_len, got.imm, got.status), (5, 5, Some(42), Status::Success));
    assert_eq!(&contents(&b)[..5], b"hello");
}

#[test]
fn what_was_received_is_acknowledged_though_the_program_ends_its_queue_pair_at_once() {
    for end in [None, Some(QpState::Error), Some(QpState::Reset)] {
        let [a, b] = world([Progress::Inline; 2]);
        // A program that answered so far: its NIC waits for its answer to the last message, too.
        for _ in 0..8 {
            for [from, to] in [[&a, &b], [&b, &a]] {
                write(from, to, 1, 8).unwrap();
                assert_eq!(completion(from, || ()).status, Status::Success);
            }
        }
        b.qp.post_recv(&RecvWr { wr_id: 5, sges: &[b.mr.sge(0, 64)], best_effort: None }).unwrap();
        post(&a.qp, SendOp::Send, &[a.mr.sge(0, 5)]).unwrap();
        let got = completion(&b, || {
            a.context.progress();
        });
        assert_eq!((got.wr_id, got.status), (5, Status::Success));
        let Side { qp, context: _context, .. } = b;
        match end {
            None => drop(qp),
            state => qp.modify(&QpAttr { state, ..QpAttr::default() }).unwrap(),
        }
        assert_eq!(completion(&a, || ()).status, Status::Success, "{end:?}: the peer never heard that it arrived");
    }
}

/// The acknowledgement of what a program is used to answer waits for the answer, for a moment; this program ends in that moment.
#[test]
fn the_last_message_of_a_ping_pong_is_acknowledged_though_no_answer_comes() {
    for _ in 0..20 {
        let [a, b] = world([Progress::Inline; 2]);
        for last in [false, false, false, false, false, true] {
            b.qp.post_recv(&RecvWr { wr_id: 5, sges: &[b.mr.sge(0, 64)], best_effort: None }).unwrap();
            post(&a.qp, SendOp::Send, &[a.mr.sge(0, 5)]).unwrap();
            let got = completion(&b, || {
                a.context.progress();
            });
            assert_eq!((got.wr_id, got.status), (5, Status::Success));
            if last {
                break;
            }
            write(&b, &a, 6, 8).unwrap();
            for side in [&a, &b] {
                let other = if std::ptr::eq(side, &a) { &b } else { &a };
                assert_eq!(
                    completion(side, || {
                        other.context.progress();
                    })
                    .status,
                    Status::Success
                );
            }
        }
        let Side { qp, context: _context, .. } = b;
        drop(qp);
        assert_eq!(completion(&a, || ()).status, Status::Success, "the peer never heard that it arrived");
    }
}

#[test]
fn a_receive_posted_before_a_message_is_there_when_it_comes() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let [mut a, mut b] = world([progress; 2]);
        // Nobody sends a message again.
        for side in [&mut a, &mut b] {
            side.qp = side.pd.create_qp(&QpOptions::new(QpKind::Uc, &side.cq)).unwrap();
        }
        connect(&a, &b);
        for i in 0..5000 {
            b.qp.post_recv(&RecvWr { wr_id: i, sges: &[b.mr.sge(0, 64)], best_effort: None }).unwrap();
            post(&a.qp, SendOp::Send, &[a.mr.sge(0, 8)]).unwrap();
            let got = completion(&b, || {
                a.context.progress();
            });
            assert_eq!((got.wr_id, got.status), (i, Status::Success));
            completion(&a, || ());
        }
    }
}

#[test]
fn a_nic_whose_peer_is_gone_retries_and_then_says_so() {
    let [a, b] = world([Progress::Inline; 2]);
    drop(b);
    let target = side_of(&a);
    write(&a, &target, 3, 64).unwrap();
    assert_eq!(completion(&a, || ()).status, Status::RetryExcErr);
}

#[test]
fn flushes_come_though_the_nics_own_thread_sleeps() {
    let [_a, b] = world([Progress::Dedicated; 2]);
    b.qp.post_recv(&RecvWr { wr_id: 5, sges: &[b.mr.sge(0, 64)], best_effort: None }).unwrap();
    // Longer than the thread looks for work before it sleeps; a shorter sleep would only make this easier.
    std::thread::sleep(Duration::from_millis(60));
    b.qp.modify(&QpAttr { state: Some(QpState::Error), ..QpAttr::default() }).unwrap();
    assert_eq!(completion(&b, || ()).status, Status::WrFlushErr);
}

#[test]
fn who_posts_as_long_as_there_is_room_loses_no_completion() {
    let [a, b] = world([Progress::Dedicated; 2]);
    let mut posted = 0;
    // The NICs' own threads go on meanwhile, and nobody takes completions: at some time there is no more room.
    let mut refused = 0;
    while refused < 200 {
        match write(&a, &b, posted, 8) {
            Ok(()) => (posted, refused) = (posted + 1, 0),
            Err(_) => {
                refused += 1;
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        assert!(posted < 100_000, "nothing makes it wait");
    }
    for i in 0..posted {
        let done = completion(&a, || ());
        assert_eq!((done.wr_id, done.status), (i, Status::Success));
    }
}

#[test]
fn mistakes_are_told_when_they_are_made() {
    use softnic_nic::transports::PostError;
    let [a, b] = world([Progress::Inline; 2]);
    let too_many = [a.mr.sge(0, 8), a.mr.sge(8, 8)];
    let wr =
        |data| SendWr { wr_id: 0, op: SendOp::Send, data, flags: SendFlags::default(), best_effort: None, to: None };
    assert_eq!(a.qp.post_send(&wr(Data::Gather(&too_many))), Err(PostError::TooManySges));
    assert_eq!(a.qp.post_send(&wr(Data::Inline(&[0; 8]))), Err(PostError::InlineTooLong));
    let (soon, recv) = (Duration::from_millis(1), RecvWr { wr_id: 0, sges: &[], best_effort: None });
    assert_eq!(a.qp.post_send_within(&wr(Data::Gather(&[])), soon), Err(PostError::NoDeadlines));
    assert_eq!(a.qp.write_send_within(&wr(Data::Gather(&[])), soon), Err(PostError::NoDeadlines));
    assert_eq!(a.qp.post_recv_within(&recv, soon), Err(PostError::NoDeadlines));
    assert_eq!(a.pd.create_srq(1, 1).unwrap().post_recv_within(&recv, soon), Err(PostError::NoDeadlines));
    let with_deadlines = a.pd.create_srq_of(1, RecvRules::new(1).with_deadlines()).unwrap();
    assert_eq!(with_deadlines.post_recv_within(&recv, soon), Ok(()));
    let on_it = QpOptions { srq: Some(with_deadlines), ..QpOptions::new(QpKind::Rc, &a.cq) };
    assert_eq!(a.pd.create_qp(&on_it).unwrap_err(), ObjectError::WrongKind);
    let fresh = a.pd.create_qp(&QpOptions::new(QpKind::Rc, &a.cq)).unwrap();
    assert_eq!(fresh.post_send(&wr(Data::Gather(&[]))), Err(PostError::State));
    assert_eq!(fresh.post_recv(&RecvWr { wr_id: 0, sges: &[], best_effort: None }), Err(PostError::State));
    let posted = (0..1000).take_while(|&i| write(&a, &b, i, 8).is_ok()).count();
    assert!((128..1000).contains(&posted), "a queue nobody runs is full at some time, {posted}");
}

#[test]
fn what_was_posted_before_a_reset_is_never_sent() {
    let [a, b] = world([Progress::Inline; 2]);
    // Longer than the NIC has time for: what has completed by then is no longer in the queue.
    let posted = (0..1000).take_while(|&i| write(&a, &b, i, SIZE).is_ok()).count() as u64;
    for side in [&a, &b] {
        side.qp.modify(&QpAttr { state: Some(QpState::Reset), ..QpAttr::default() }).unwrap();
    }
    connect(&a, &b);
    write(&a, &b, 5000, 8).unwrap();
    let done: Vec<u64> =
        std::iter::from_fn(|| Some(completion(&a, || ()).wr_id)).take_while(|&id| id != 5000).collect();
    assert!((done.len() as u64) < posted, "all of it was sent: {done:?}");
    assert_eq!(a.cq.poll_one().unwrap(), None);
}
