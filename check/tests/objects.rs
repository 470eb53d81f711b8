//! Objects that are made, changed and destroyed, and the end of the process: each mistake is found, and what is right is not.

mod common;

use common::*;
use softnic_check::{
    Capacity, Change, CompletionQueue, Kind, ObjectId, ObjectKind, Outcome, QpState, QpType, QueuePair, Region,
    SendWork, Severity,
};

#[test]
fn a_region_that_goes_under_work_is_found() {
    let mut world = World::new();
    world.post(QP, send(&[sge(0, 8)]));
    world.destroy(ObjectKind::Region, REGION);
    let finding = world.one();
    assert_eq!((finding.kind, finding.severity), (Kind::RegionInUse, Severity::Error));
    let mut world = World::new();
    world.receive(QP, 1, &[sge(0, 8)]);
    world.destroy(ObjectKind::Region, REGION);
    let finding = world.one();
    assert_eq!((finding.kind, finding.severity), (Kind::RegionInUse, Severity::Warning));
}

#[test]
fn a_region_may_go_when_its_work_is_over() {
    let posted = || {
        let mut world = World::new();
        world.post(QP, send(&[sge(0, 8)]));
        world.receive(QP, 1, &[sge(64, 8)]);
        world
    };
    let mut polled = posted();
    polled.complete(17, 7, Outcome::Success);
    polled.received(17, 1);
    polled.destroy(ObjectKind::Region, REGION);
    assert_eq!(polled.found(), []);
    for state in [QpState::Reset, QpState::Err] {
        let mut over = posted();
        over.modify(QP, state);
        over.destroy(ObjectKind::Region, REGION);
        assert_eq!(over.found(), [], "{state:?}");
    }
    let mut destroyed = posted();
    destroyed.destroy(ObjectKind::QueuePair, QP);
    destroyed.destroy(ObjectKind::Region, REGION);
    assert_eq!(destroyed.found(), []);
    // By librdmacm, which the model does not hear of.
    let mut disconnected = posted();
    let place = disconnected.place();
    disconnected.model.going(ObjectKind::Region, REGION, |_| Some(QpState::Err), &place);
    disconnected.model.gone(ObjectKind::Region, REGION);
    assert_eq!(disconnected.found(), []);
}

#[test]
fn a_region_that_stays_is_as_it_was() {
    let mut world = World::new();
    world.post(QP, send(&[sge(0, 8)]));
    let place = world.place();
    world.model.going(ObjectKind::Region, REGION, |_| None, &place);
    world.model.stays(ObjectKind::Region, REGION);
    world.post(QP, send(&[sge(0, 8)]));
    assert_eq!(world.found(), [], "it was refused (EBUSY)");
    world.destroy(ObjectKind::Region, REGION);
    assert_eq!(world.found(), [Kind::RegionInUse]);
}

#[test]
fn a_region_of_a_shared_queue_may_go_when_no_queue_pair_is_left_that_takes_from_it() {
    for (state, found) in [(QpState::Rts, vec![Kind::RegionInUse]), (QpState::Err, vec![])] {
        let mut world = World::empty();
        let place = world.place();
        world.model.region_made(REGION, region(), &place);
        world.model.shared_receive_made(SRQ, &place);
        let pair = QueuePair { srq: Some(SRQ), ..pair(17, QpType::Rc) };
        world.model.queue_pair_made(QP, pair, true, &place);
        world.connect(QP, 18, Change::default());
        let queue = softnic_check::ReceiveQueue::Shared(SRQ);
        let work = softnic_check::ReceiveWork { wr_id: 1, sges: &[sge(0, 8)] };
        world.model.receive_posted(queue, &work, Some((NIC, DOMAIN)), &place, &mut Default::default());
        world.modify(QP, state);
        world.destroy(ObjectKind::Region, REGION);
        assert_eq!(world.found(), found, "{state:?}");
    }
}

#[test]
fn an_object_at_the_address_of_one_that_goes_is_another() {
    let mut world = World::new();
    let place = world.place();
    world.model.going(ObjectKind::Region, REGION, |_| None, &place);
    // Another thread gets the memory of the object before the verb has returned.
    world.model.region_made(REGION, Region { lkey: 5, ..region() }, &place);
    world.model.gone(ObjectKind::Region, REGION);
    world.post(QP, send(&[softnic_check::Sge { lkey: 5, ..sge(0, 8) }]));
    assert_eq!(world.found(), []);
}

#[test]
fn a_region_that_is_registered_anew_has_its_new_bounds() {
    let mut world = World::new();
    world.model.region_changed(REGION, Region { lkey: 5, len: 16, ..region() });
    world.post(QP, send(&[sge(0, 8)]));
    assert_eq!(world.found(), [Kind::SgeUnknownKey]);
    world.post(QP, send(&[softnic_check::Sge { lkey: 5, ..sge(0, 16) }]));
    assert_eq!(world.found(), []);
}

#[test]
fn a_mask_that_the_kernel_refuses_is_found() {
    let rtr = [7, 8, 20, 12, 17, 15];
    let rts = [9, 10, 11, 16, 13];
    let mut world = World::empty();
    let place = world.place();
    world.model.queue_pair_made(QP, pair(17, QpType::Rc), true, &place);
    world.by_mask(QP, QpState::Init, &[4, 5, 3]);
    world.by_mask(QP, QpState::Rtr, &rtr);
    world.by_mask(QP, QpState::Rts, &rts);
    assert_eq!(world.found(), []);
    world.modify(QP, QpState::Reset);
    world.by_mask(QP, QpState::Init, &[4, 5]);
    let finding = world.one();
    assert!(finding.kind == Kind::AttributeMask && finding.message.contains("IBV_QP_ACCESS_FLAGS"), "{finding:?}");
    world.by_mask(QP, QpState::Rtr, &rtr[..5]);
    assert!(world.one().message.contains("IBV_QP_MIN_RNR_TIMER"));
    world.by_mask(QP, QpState::Rts, &[9, 10, 11, 16, 13, 6]);
    assert!(world.one().message.contains("with IBV_QP_QKEY"));
    world.modify(QP, QpState::Rtr);
    world.by_mask(QP, QpState::Rts, &[9, 10, 11, 16, 13, 25, 30]);
    assert!(
        world.one().message.contains("with IBV_QP_RATE_LIMIT, 0x40000000:"),
        "bits without a name are named by number"
    );
}

#[test]
fn datagrams_need_other_attributes() {
    let mut world = World::empty();
    let place = world.place();
    world.model.queue_pair_made(QP, pair(17, QpType::Ud), true, &place);
    world.by_mask(QP, QpState::Init, &[4, 5, 6]);
    world.by_mask(QP, QpState::Rtr, &[]);
    world.by_mask(QP, QpState::Rts, &[16]);
    // What librdmacm names is not the program's.
    world.modify(QP, QpState::Reset);
    world.modify(QP, QpState::Init);
    assert_eq!(world.found(), []);
}

#[test]
fn timeout_0_is_found_on_reliable_connections() {
    for (kind, timeout, found) in
        [(QpType::Rc, 0, vec![Kind::TimeoutZero]), (QpType::Rc, 1, vec![]), (QpType::Ud, 0, vec![])]
    {
        let mut world = World::empty();
        let place = world.place();
        world.model.queue_pair_made(QP, pair(17, kind), true, &place);
        world.connect(QP, 18, Change { timeout: Some(timeout), ..Change::default() });
        assert_eq!(world.found(), found, "{kind:?} {timeout}");
    }
}

#[test]
fn more_than_a_connectx_has_is_found() {
    let mut world = World::empty();
    let with = |send_sges, receive_sges| QueuePair {
        capacity: Capacity { sends: 8, send_sges, receive_sges },
        ..pair(17, QpType::Rc)
    };
    for (attributes, found) in
        [(with(30, 30), vec![]), (with(31, 1), vec![Kind::BeyondConnectX]), (with(1, 31), vec![Kind::BeyondConnectX])]
    {
        let place = world.place();
        world.model.queue_pair_made(QP, attributes, true, &place);
        assert_eq!(world.found(), found);
    }
    for (capacity, found) in [(4_194_303, vec![]), (4_194_304, vec![Kind::BeyondConnectX])] {
        let place = world.place();
        world.model.completion_queue_made(CQ, CompletionQueue { capacity }, &place);
        assert_eq!(world.found(), found);
    }
}

#[test]
fn an_event_that_is_not_acknowledged_is_found() {
    let mut world = World::new();
    world.model.event_taken(ObjectKind::CompletionQueue, CQ);
    world.model.event_taken(ObjectKind::CompletionQueue, CQ);
    world.model.events_acknowledged(ObjectKind::CompletionQueue, CQ, 1);
    let place = world.place();
    let wait = world.model.going(ObjectKind::CompletionQueue, CQ, |_| None, &place).unwrap();
    assert_eq!(world.found(), [], "another thread may be about to do it");
    world.model.waits_long(ObjectKind::CompletionQueue, CQ, wait);
    world.model.waits_long(ObjectKind::CompletionQueue, CQ, wait);
    assert_eq!(world.found(), [Kind::EventNotAcknowledged]);
    let mut right = World::new();
    right.model.event_taken(ObjectKind::CompletionQueue, CQ);
    right.model.event_taken(ObjectKind::CompletionQueue, CQ);
    right.model.events_acknowledged(ObjectKind::CompletionQueue, CQ, 2);
    right.destroy(ObjectKind::CompletionQueue, CQ);
    assert_eq!(right.found(), []);
}

#[test]
fn an_event_that_another_thread_acknowledges_while_its_object_goes_is_right() {
    let id = ObjectId(70);
    let goes = |acknowledged: bool| {
        let mut world = World::empty();
        let place = world.place();
        world.model.made(ObjectKind::ConnectionId, id, &place);
        world.model.event_taken(ObjectKind::ConnectionId, id);
        let wait = world.model.going(ObjectKind::ConnectionId, id, |_| None, &place).unwrap();
        if acknowledged {
            world.model.events_acknowledged(ObjectKind::ConnectionId, id, 1);
            world.model.gone(ObjectKind::ConnectionId, id);
            // Another one is where it was, and waits since a moment ago.
            world.model.made(ObjectKind::ConnectionId, id, &place);
            world.model.event_taken(ObjectKind::ConnectionId, id);
            world.model.going(ObjectKind::ConnectionId, id, |_| None, &place);
            world.model.waits_long(ObjectKind::ConnectionId, id, wait);
            assert_eq!(world.found(), []);
            world.model.events_acknowledged(ObjectKind::ConnectionId, id, 1);
        }
        world.model.ended();
        world.found()
    };
    assert_eq!(goes(true), []);
    assert_eq!(goes(false), [Kind::EventNotAcknowledged], "the process ends, and it waits still");
}

#[test]
fn signaled_work_that_nobody_polls_for_is_found() {
    let mut world = World::new();
    world.post(QP, send(&[]));
    world.destroy(ObjectKind::QueuePair, QP);
    world.destroy(ObjectKind::QueuePair, PEER);
    world.destroy(ObjectKind::CompletionQueue, CQ);
    assert_eq!(world.found(), [Kind::CompletionsNotPolled]);
    for (is_signaled, polled) in [(false, false), (true, true)] {
        let mut right = World::new();
        right.post(QP, SendWork { is_signaled, ..send(&[]) });
        if polled {
            right.model.polled(CQ);
        }
        right.destroy(ObjectKind::CompletionQueue, CQ);
        assert_eq!(right.found(), []);
    }
}

#[test]
fn a_send_that_waits_for_a_receive_for_ever_is_found() {
    let mut world = World::new();
    world.post(QP, send(&[]));
    world.model.polled(CQ);
    world.destroy(ObjectKind::QueuePair, QP);
    assert_eq!(world.found(), [Kind::ReceiverNeverReady]);
    let right = |prepare: fn(&mut World)| {
        let mut world = World::new();
        prepare(&mut world);
        world.model.polled(CQ);
        world.destroy(ObjectKind::QueuePair, QP);
        world.found()
    };
    assert_eq!(
        right(|world| {
            world.receive(PEER, 1, &[]);
            world.post(QP, send(&[]));
        }),
        [],
        "there is a receive"
    );
    assert_eq!(
        right(|world| {
            world.receive(PEER, 1, &[]);
            world.post(QP, send(&[]));
            world.received(18, 1);
        }),
        [],
        "it came, and only its completion was not polled"
    );
    assert_eq!(
        right(|world| {
            world.post(QP, send(&[]));
            world.modify(PEER, QpState::Err);
        }),
        [],
        "the peer does not answer"
    );
    assert_eq!(
        right(|world| {
            world.modify(QP, QpState::Reset);
            world.connect(QP, 18, Change { rnr_retry: Some(6), ..Change::default() });
            world.post(QP, send(&[]));
        }),
        [],
        "it will fail"
    );
}

#[test]
fn what_is_left_at_the_end_is_told_once_for_each_place() {
    let mut world = World::empty();
    let (here, there) = (world.place(), world.place());
    world.model.made(ObjectKind::Context, ObjectId(1), &here);
    for id in 0..3 {
        world.model.made(ObjectKind::Address, ObjectId(100 + id), &there);
    }
    world.model.made(ObjectKind::Address, ObjectId(200), &here);
    world.destroy(ObjectKind::Address, ObjectId(200));
    world.model.ended();
    let findings = world.model.take_findings();
    let told: Vec<_> = findings.iter().map(|f| (f.kind, f.severity, &f.message[..])).collect();
    assert_eq!(
        told,
        [
            (Kind::Leak, Severity::Note, "a device context is left: nobody called ibv_close_device"),
            (Kind::Leak, Severity::Note, "3 address handles made here are left: nobody called ibv_destroy_ah"),
        ]
    );
    assert!(findings.iter().all(|finding| finding.made.is_some()));
}

#[test]
fn what_librdmacm_made_for_an_id_is_left_too_and_named_by_its_function() {
    let mut world = World::empty();
    let place = world.place();
    world.model.queue_pair_made(QP, pair(17, QpType::Rc), false, &place);
    world.model.shared_receive_made(SRQ, &place);
    world.model.is_of_connection(ObjectKind::SharedReceive, SRQ);
    world.model.ended();
    let messages: Vec<_> = world.model.take_findings().into_iter().map(|finding| finding.message).collect();
    let left = [
        "a shared receive queue is left: nobody called rdma_destroy_srq",
        "a queue pair is left: nobody called rdma_destroy_qp",
    ];
    assert_eq!(messages, left);
}

#[test]
fn a_process_that_leaves_nothing_has_no_findings() {
    let mut world = World::new();
    world.receive(PEER, 1, &[sge(0, 64)]);
    world.post(QP, send(&[sge(64, 64)]));
    world.complete(17, 7, Outcome::Success);
    world.received(18, 1);
    for (kind, id) in [
        (ObjectKind::QueuePair, QP),
        (ObjectKind::QueuePair, PEER),
        (ObjectKind::CompletionQueue, CQ),
        (ObjectKind::Region, REGION),
        (ObjectKind::Domain, DOMAIN),
    ] {
        world.destroy(kind, id);
    }
    world.model.ended();
    assert_eq!(world.found(), []);
}

#[test]
fn kinds_have_names_of_their_own() {
    for kind in Kind::ALL {
        assert_eq!(Kind::named(kind.name()), Some(*kind));
        assert!(!kind.title().is_empty());
    }
    assert_eq!(Kind::named("nonsense"), None);
}

#[test]
fn every_kind_is_documented_with_its_severity() {
    let docs = include_str!("../../docs/check.md");
    for kind in Kind::ALL {
        let row = format!("| `{}` | {}", kind.name(), kind.severity().name());
        assert!(docs.contains(&row), "docs/check.md has no row that begins with {row}");
    }
    let rows = docs
        .lines()
        .filter(|line| line.starts_with("| `") && !line.starts_with("| `-") && line.matches('|').count() == 5)
        .count();
    assert_eq!(rows, Kind::ALL.len(), "docs/check.md has rows of kinds that there are not");
}
