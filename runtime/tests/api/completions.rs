//! Completion queues: channels, taking without a list, other sizes; and events that are told at once.

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softnic_nic::transports::{Event, RecvWr, SendOp, Status};
use softnic_nic::{CqError, Notify, QpKind};
use softnic_runtime::api::{CompletionChannel, Context, EventSink, OpenOptions, Progress, QpOptions};

use crate::world::{LIMIT, Side, completion, connect, post, side, side_with, world, write};

fn inline() -> OpenOptions {
    OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() }
}

/// Whether the channel's descriptor becomes readable in that time.
fn readable(channel: &CompletionChannel, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)], Some(&limit)).unwrap() > 0
}

/// The first has a channel, where its completion queue is called 7.
fn with_channel() -> ([Side; 2], CompletionChannel) {
    let options = inline();
    let [a, b] = Context::open_pair([&options; 2]).unwrap();
    let channel = CompletionChannel::new().unwrap();
    let cq = a.create_cq_with(256, Some((&channel, 7)));
    let sides = [side_with(a, cq), side(b)];
    connect(&sides[0], &sides[1]);
    (sides, channel)
}

#[test]
fn a_program_that_sleeps_on_its_channel_is_told_once_for_each_arming() {
    let ([a, b], channel) = with_channel();
    for round in 0..20 {
        a.cq.arm(Notify::Next);
        assert!(!readable(&channel, Duration::ZERO));
        write(&a, &b, round, 4096).unwrap();
        // Nobody makes progress but the NICs' own threads.
        assert!(readable(&channel, LIMIT), "round {round}");
        assert_eq!((channel.next_event(), channel.next_event()), (Some(7), None));
        assert!(!readable(&channel, Duration::ZERO));
        assert_eq!(a.cq.poll_one().unwrap().map(|c| c.wr_id), Some(round));
    }
}

#[test]
fn what_comes_unasked_raises_no_event_once_it_is_polled() {
    let ([a, b], channel) = with_channel();
    let done = |n| {
        for _ in 0..n {
            completion(&a, || {
                b.context.progress();
            });
        }
    };
    write(&a, &b, 1, 8).unwrap();
    done(1);
    assert_eq!(channel.next_event(), None, "nobody asked");
    // Two: the first is taken, so the second has come by the time that it was looked for.
    a.cq.arm(Notify::Next);
    a.cq.arm(Notify::Solicited);
    (2..4).for_each(|i| write(&a, &b, i, 8).unwrap());
    done(2);
    assert_eq!((channel.next_event(), channel.next_event()), (Some(7), None), "one event for one arming");
    assert!(!readable(&channel, Duration::ZERO));
    a.cq.arm(Notify::Solicited);
    write(&a, &b, 4, 8).unwrap();
    done(1);
    assert_eq!(channel.next_event(), None, "the peer asked for no event");
}

#[test]
fn what_came_before_the_arming_and_is_not_polled_raises_its_event_at_once() {
    let ([a, _b], channel) = with_channel();
    let qp = a.pd.create_qp(&QpOptions::new(QpKind::Rc, &a.cq)).unwrap();
    qp.init(softnic_nic::transports::memory::Access::NONE).unwrap();
    // Three receives are flushed, and nobody asked for an event.
    (1..4).for_each(|wr_id| qp.post_recv(&RecvWr { wr_id, sges: &[], best_effort: None }).unwrap());
    let error = softnic_nic::transports::qp::QpState::Error;
    qp.modify(&softnic_nic::QpAttr { state: Some(error), ..Default::default() }).unwrap();
    assert_eq!(channel.next_event(), None);
    for what in [Notify::Next, Notify::Solicited] {
        a.cq.arm(what);
        assert_eq!((channel.next_event(), channel.next_event()), (Some(7), None));
    }
    a.cq.arm(Notify::Next);
    assert_eq!(channel.next_event(), None, "the event before was for the last one");
    // A ring that takes over what is in another one keeps that in mind.
    a.cq.disarm();
    a.cq.resize(100).unwrap();
    a.cq.arm(Notify::Next);
    assert_eq!(channel.next_event(), None);
    qp.post_recv(&RecvWr { wr_id: 4, sges: &[], best_effort: None }).unwrap();
    assert!(readable(&channel, LIMIT), "the queue is armed still");
    assert_eq!(channel.next_event(), Some(7));
    assert_eq!(a.cq.poll(&mut Vec::new(), 9), Ok(4));
    a.cq.arm(Notify::Next);
    assert_eq!(channel.next_event(), None, "all are polled");
}

#[test]
fn two_queues_at_one_channel_are_told_apart_and_one_that_is_gone_is_forgotten() {
    let ([a, b], channel) = with_channel();
    let other = a.context.create_cq_with(16, Some((&channel, 8)));
    let qp = a.pd.create_qp(&QpOptions::new(QpKind::Rc, &other)).unwrap();
    qp.init(softnic_nic::transports::memory::Access::NONE).unwrap();
    qp.post_recv(&RecvWr { wr_id: 1, sges: &[], best_effort: None }).unwrap();
    a.cq.arm(Notify::Next);
    other.arm(Notify::Next);
    write(&a, &b, 1, 8).unwrap();
    completion(&a, || {
        b.context.progress();
    });
    // The completion is there a moment before its event.
    assert!(readable(&channel, LIMIT));
    assert_eq!((channel.next_event(), channel.next_event()), (Some(7), None));
    let error = softnic_nic::transports::qp::QpState::Error;
    qp.modify(&softnic_nic::QpAttr { state: Some(error), ..Default::default() }).unwrap();
    assert!(readable(&channel, Duration::ZERO), "its receive is flushed");
    drop((qp, other));
    channel.forget(7);
    assert!(readable(&channel, Duration::ZERO), "another's event stays");
    channel.forget(8);
    assert!(!readable(&channel, Duration::ZERO));
    assert_eq!(channel.next_event(), None);
}

#[test]
fn a_queue_of_another_size_has_the_same_completions_in_their_order() {
    let [a, b] = world([Progress::Inline; 2]);
    (0..100).for_each(|i| write(&a, &b, i, 8).unwrap());
    let done = completion(&a, || {
        b.context.progress();
    });
    assert_eq!(done.wr_id, 0);
    // Until the last one has come, and all before it have.
    let mut seen = Vec::new();
    while seen.last() != Some(&49) {
        b.context.progress();
        assert!(a.cq.poll_each(1, |c| seen.push(c.wr_id)).unwrap() <= 1);
    }
    assert_eq!(a.cq.capacity(), 256);
    let start = Instant::now();
    while a.cq.resize(49) != Err(CqError::TooSmall) {
        assert!(start.elapsed() < LIMIT, "fifty never come");
        let _ = (a.context.progress(), b.context.progress());
    }
    a.cq.resize(50).unwrap();
    assert_eq!(a.cq.capacity(), 50);
    a.cq.resize(1000).unwrap();
    (100..128).for_each(|i| write(&a, &b, i, 8).unwrap());
    while seen.last() != Some(&127) {
        b.context.progress();
        a.cq.poll_each(9, |c| seen.push(c.wr_id)).unwrap();
    }
    assert_eq!(seen, (1..128).collect::<Vec<u64>>());
}

#[test]
fn events_are_told_at_once_to_whoever_wants_that() {
    let (tell, told) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let sink = EventSink::new(move |event| tell.lock().unwrap().send(event).unwrap());
    let [a, b] = Context::open_pair([&inline(), &OpenOptions { on_event: Some(sink), ..inline() }]).unwrap();
    let [a, b] = [side(a), side(b)];
    connect(&a, &b);
    let srq = b.pd.create_srq(8, 1).unwrap();
    let other = b.pd.create_srq(8, 1).unwrap();
    assert_ne!(srq.id(), other.id());
    post(&a.qp, SendOp::Write { remote_addr: b.mr.addr(), rkey: b.mr.rkey() ^ 0x100 }, &[a.mr.sge(0, 8)]).unwrap();
    let done = completion(&a, || {
        b.context.progress();
    });
    assert_eq!(done.status, Status::RemAccessErr);
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), Event::QpAccessErr(b.qp.qpn()));
    assert_eq!(b.context.poll_event(), None);
}

#[test]
fn a_receive_posted_behind_the_completion_that_filled_its_queue_is_there_for_the_next_message() {
    let options = inline();
    let [a, b] = Context::open_pair([&options; 2]).unwrap();
    // One completion fills it, as it does a queue that rdma_create_qp makes for one receive.
    let cq = b.create_cq(1).unwrap();
    let mut sides = [side(a), side_with(b, cq)];
    for side in &mut sides {
        side.qp = side.pd.create_qp(&QpOptions::new(QpKind::Uc, &side.cq)).unwrap();
    }
    let [a, b] = sides;
    connect(&a, &b);
    for round in 0..100 {
        b.qp.post_recv(&RecvWr { wr_id: round, sges: &[b.mr.sge(0, 64)], best_effort: None }).unwrap();
        post(&a.qp, SendOp::Send, &[a.mr.sge(0, 64)]).unwrap();
        assert_eq!(completion(&a, || ()).status, Status::Success);
        // UC: what finds no receive is lost.
        assert_eq!(completion(&b, || ()).wr_id, round);
    }
}
