//! Work that is posted and completes: each mistake is found, and what is right beside it is not.

mod common;

use common::*;
use softnic_check::{
    Access, Change, Completed, Kind, ObjectId, ObjectKind, Outcome, QpState, QpType, ReceiveQueue, ReceiveWork,
    Refusal, Region, SendOp, SendWork, Severity, Sge, Tickets,
};

#[test]
fn a_send_buffer_that_changes_before_its_completion_is_found() {
    let mut world = World::new();
    world.post(QP, send(&[sge(0, 64), sge(128, 64)]));
    world.write(130);
    world.complete(17, 7, Outcome::Success);
    let finding = world.one();
    assert_eq!((finding.kind, finding.severity, finding.wr_id), (Kind::SendBufferChanged, Severity::Error, Some(7)));
    assert_eq!(finding.queue_pair.map(|qp| (qp.number, qp.order)), Some((17, 1)));
    // Behind the completion it is the program's.
    world.post(QP, send(&[sge(0, 64)]));
    world.complete(17, 7, Outcome::Success);
    world.write(0);
    assert_eq!(world.found(), []);
}

#[test]
fn other_bytes_and_inline_data_and_failed_sends_may_change() {
    let mut world = World::new();
    world.post(QP, send(&[sge(0, 64)]));
    world.write(64);
    world.post(QP, SendWork { is_inline: true, ..send(&[sge(256, 64)]) });
    world.write(256);
    world.complete(17, 7, Outcome::Success);
    world.complete(17, 7, Outcome::Success);
    world.post(QP, send(&[sge(512, 64)]));
    world.write(512);
    world.complete(17, 7, Outcome::Flushed);
    assert_eq!(world.found(), []);
}

#[test]
fn an_unsignaled_send_is_held_to_the_completion_of_a_later_one() {
    let mut world = World::new();
    world.post(QP, SendWork { wr_id: 1, is_signaled: false, ..send(&[sge(0, 64)]) });
    world.post(QP, SendWork { wr_id: 2, ..send(&[sge(64, 64)]) });
    world.write(3);
    world.complete(17, 2, Outcome::Success);
    assert_eq!(world.one().wr_id, Some(1));
}

#[test]
fn a_changed_buffer_that_peers_may_write_is_a_warning() {
    let mut world = World::new();
    let place = world.place();
    let access = Access { local_write: true, remote_change: true };
    world.model.region_made(ObjectId(51), Region { lkey: 5, access, ..region() }, &place);
    world.post(QP, send(&[Sge { lkey: 5, ..sge(0, 64) }]));
    world.write(0);
    world.complete(17, 7, Outcome::Success);
    assert_eq!(world.one().severity, Severity::Warning);
    // Of whichever region of these bytes: also one that went since the post.
    for goes in [false, true] {
        world.post(QP, send(&[sge(0, 64)]));
        if goes {
            world.destroy(ObjectKind::Region, ObjectId(51));
        }
        world.write(0);
        world.complete(17, 7, Outcome::Success);
        assert_eq!(world.one().severity, Severity::Warning, "{goes}");
    }
    world.post(QP, send(&[sge(0, 64)]));
    world.write(0);
    world.complete(17, 7, Outcome::Success);
    assert_eq!(world.one().severity, Severity::Error, "it went before");
    // So is one that a receive is posted for.
    world.receive(PEER, 1, &[sge(64, 64)]);
    world.post(QP, send(&[sge(64, 64)]));
    world.write(64);
    world.complete(17, 7, Outcome::Success);
    assert_eq!(world.one().severity, Severity::Warning);
}

#[test]
fn each_kind_is_told_once_for_each_place() {
    let mut world = World::new();
    let (here, there) = (world.place(), world.place());
    for place in [&here, &here, &there] {
        world.post_at(QP, send(&[sge(0, 64)]), place);
        world.write(0);
        world.complete(17, 7, Outcome::Success);
    }
    assert_eq!(world.found(), [Kind::SendBufferChanged; 2]);
}

#[test]
fn receives_for_the_same_bytes_are_found() {
    let mut world = World::new();
    world.receive(QP, 1, &[sge(0, 64)]);
    world.receive(QP, 2, &[sge(64, 64)]);
    assert_eq!(world.found(), []);
    world.receive(PEER, 3, &[sge(32, 64)]);
    assert_eq!(world.found(), [Kind::ReceiveOverlap]);
    // What is done may be used again.
    let mut world = World::new();
    world.receive(QP, 1, &[sge(0, 64)]);
    world.received(17, 1);
    world.receive(QP, 1, &[sge(0, 64)]);
    assert_eq!(world.found(), []);
    world.modify(QP, QpState::Reset);
    world.receive(PEER, 1, &[sge(0, 64)]);
    assert_eq!(world.found(), [], "a reset takes the receives with it");
}

#[test]
fn the_40_bytes_before_datagrams_may_share_a_place() {
    let mut world = World::of(QpType::Ud);
    world.receive(QP, 1, &[sge(0, 40), sge(64, 64)]);
    world.receive(QP, 2, &[sge(0, 40), sge(128, 64)]);
    assert_eq!(world.found(), []);
    world.receive(QP, 2, &[sge(0, 40), sge(100, 64)]);
    assert_eq!(world.found(), [Kind::ReceiveOverlap]);
}

#[test]
fn a_receive_that_no_datagram_fits_is_found() {
    let mut world = World::of(QpType::Ud);
    world.receive(QP, 1, &[sge(0, 39)]);
    assert_eq!(world.found(), [Kind::DatagramReceiveTooShort]);
    world.receive(QP, 2, &[sge(64, 20), sge(84, 20)]);
    assert_eq!(world.found(), []);
    let mut connected = World::new();
    connected.receive(QP, 1, &[sge(0, 1)]);
    assert_eq!(connected.found(), []);
}

#[test]
fn elements_are_held_to_their_regions() {
    let mut world = World::new();
    let place = world.place();
    let read_only = Access { local_write: false, remote_change: false };
    world.model.region_made(ObjectId(51), Region { lkey: 5, access: read_only, ..region() }, &place);
    world.model.region_made(ObjectId(52), Region { lkey: 6, domain: OTHER_DOMAIN, ..region() }, &place);
    let end = LEN - 8;
    for (element, is_receive, found) in [
        (sge(end, 8), false, None),
        (sge(end, 9), false, Some(Kind::SgeOutsideRegion)),
        (Sge { address: IOVA - 1, ..sge(0, 8) }, false, Some(Kind::SgeOutsideRegion)),
        (Sge { address: u64::MAX - 3, ..sge(0, 8) }, false, Some(Kind::SgeOutsideRegion)),
        (Sge { lkey: 0x99, ..sge(0, 8) }, false, Some(Kind::SgeUnknownKey)),
        (Sge { lkey: 0x99, ..sge(0, 0) }, false, None),
        (Sge { lkey: 5, ..sge(0, 8) }, false, None),
        (Sge { lkey: 5, ..sge(0, 8) }, true, Some(Kind::SgeNotWritable)),
        (Sge { lkey: 6, ..sge(0, 8) }, false, Some(Kind::SgeOtherDomain)),
    ] {
        match is_receive {
            true => drop(world.receive(QP, 1, &[element])),
            false => world.post(QP, send(&[element])),
        }
        assert_eq!(world.found(), Vec::from_iter(found), "{element:?}");
    }
    world.post(QP, remote(SendOp::Read, &[Sge { lkey: 5, ..sge(0, 8) }], 0));
    assert_eq!(world.found(), [Kind::SgeNotWritable]);
    world.post(QP, SendWork { is_inline: true, ..send(&[Sge { lkey: 0, ..sge(0, 8) }]) });
    assert_eq!(world.found(), [], "inline data have no key");
}

#[test]
fn a_key_of_a_region_that_is_gone_is_found_with_its_end() {
    let mut world = World::new();
    world.destroy(ObjectKind::Region, REGION);
    assert_eq!(world.found(), []);
    world.post(QP, send(&[sge(0, 8)]));
    let finding = world.one();
    assert_eq!(finding.kind, Kind::SgeUnknownKey);
    assert!(finding.message.contains("deregistered") && finding.related.is_some());
}

#[test]
fn a_region_of_no_memory_has_every_address() {
    let mut world = World::new();
    let place = world.place();
    world.model.region_made(ObjectId(51), Region { lkey: 5, is_null: true, len: 0, ..region() }, &place);
    world.receive(QP, 1, &[Sge { address: 12, len: 1 << 30, lkey: 5 }]);
    world.receive(QP, 1, &[Sge { address: 12, len: 1 << 30, lkey: 5 }]);
    assert_eq!(world.found(), []);
}

#[test]
fn more_signaled_work_than_the_completion_queue_holds_is_found() {
    let mut world = World::new();
    for _ in 0..16 {
        world.post(QP, send(&[]));
    }
    world.post(QP, SendWork { is_signaled: false, ..send(&[]) });
    assert_eq!(world.found(), []);
    // Room again, and used.
    world.complete(17, 7, Outcome::Success);
    world.post(QP, send(&[]));
    assert_eq!(world.found(), []);
    world.post(PEER, send(&[]));
    let finding = world.one();
    assert_eq!((finding.kind, finding.severity), (Kind::CompletionQueueTooSmall, Severity::Error));
}

#[test]
fn a_queue_pair_that_goes_takes_its_signaled_work_with_it() {
    let mut world = World::new();
    for _ in 0..16 {
        world.post(QP, send(&[]));
    }
    world.destroy(ObjectKind::QueuePair, QP);
    world.post(PEER, send(&[]));
    assert_eq!(world.found(), []);
}

#[test]
fn a_queue_that_is_full_of_unsignaled_work_is_found() {
    let quiet = || SendWork { is_signaled: false, ..send(&[]) };
    let mut world = World::new();
    for _ in 0..8 {
        world.post(QP, quiet());
    }
    world.refuse(QP, quiet(), Refusal::Full);
    assert_eq!(world.found(), [Kind::SendQueueStuck]);
    let mut right = World::new();
    for wr_id in 0..8 {
        right.post(QP, SendWork { is_signaled: wr_id == 3, ..send(&[]) });
    }
    right.refuse(QP, quiet(), Refusal::Full);
    assert_eq!(right.found(), [], "the fourth has a completion");
}

#[test]
fn more_sends_than_the_queue_holds_are_found_though_softnic_takes_them() {
    let filled = |signaled: Option<u64>, polled: bool| {
        let mut world = World::new();
        for wr_id in 0..65 {
            if wr_id == 64 && polled {
                world.complete(17, 3, Outcome::Success);
            }
            world.post(QP, SendWork { wr_id, is_signaled: Some(wr_id) == signaled, ..send(&[]) });
        }
        world.found()
    };
    assert_eq!(filled(None, false), [Kind::SendQueueStuck]);
    assert_eq!(filled(Some(3), false), [Kind::SendQueueOverrun]);
    assert_eq!(filled(Some(3), true), []);
}

#[test]
fn a_program_that_posts_until_it_is_refused_is_right() {
    let mut world = World::new();
    for wr_id in 0..64 {
        world.post(QP, SendWork { wr_id, is_signaled: wr_id == 3, ..send(&[]) });
    }
    world.refuse(QP, send(&[]), Refusal::Full);
    assert_eq!(world.found(), []);
}

#[test]
fn what_a_read_brings_to_a_fenced_send_is_no_change() {
    let mut world = World::new();
    world.post(QP, SendWork { wr_id: 1, ..remote(SendOp::Read, &[sge(0, 64)], 0x5000) });
    world.post(QP, SendWork { wr_id: 2, is_fenced: true, ..send(&[sge(0, 64)]) });
    world.write(5);
    world.complete(17, 1, Outcome::Success);
    world.complete(17, 2, Outcome::Success);
    assert_eq!(world.found(), []);
}

#[test]
fn a_post_in_a_state_that_takes_none_is_found() {
    let mut world = World::new();
    world.refuse(QP, send(&[sge(0, 8)]), Refusal::State(QpState::Init));
    let finding = world.one();
    assert!(finding.kind == Kind::PostInWrongState && finding.message.contains("INIT"), "{finding:?}");
    let tickets = world.receive(QP, 5, &[sge(0, 8)]);
    let place = world.place();
    world.model.receives_refused(ReceiveQueue::Own(QP), tickets, 0, Refusal::State(QpState::Reset), &place);
    assert_eq!(world.found(), [Kind::PostInWrongState]);
    // What was refused is not outstanding.
    world.receive(QP, 6, &[sge(0, 8)]);
    world.received(17, 6);
    world.destroy(ObjectKind::Region, REGION);
    assert_eq!(world.found(), []);
}

#[test]
fn receives_count_on_a_completion_queue_as_soon_as_the_verb_has_taken_them() {
    let mut world = World::new();
    for wr_id in 0..15 {
        world.receive(QP, wr_id, &[]);
    }
    world.post(QP, send(&[]));
    let (mut tickets, place) = (Tickets::default(), world.place());
    let work = ReceiveWork { wr_id: 99, sges: &[] };
    world.model.receive_posted(ReceiveQueue::Own(QP), &work, None, &place, &mut tickets);
    world.model.receives_refused(ReceiveQueue::Own(QP), tickets, 0, Refusal::Other, &place);
    assert_eq!(world.found(), [], "sixteen fit, and one was refused");
    world.received(17, 0);
    world.receive(QP, 15, &[]);
    assert_eq!(world.found(), [], "there is room again");
    world.receive(QP, 16, &[]);
    let finding = world.one();
    assert_eq!((finding.kind, finding.severity), (Kind::CompletionQueueTooSmall, Severity::Warning));
    world.modify(QP, QpState::Reset);
    for wr_id in 0..16 {
        world.receive(PEER, wr_id, &[]);
    }
    assert_eq!(world.found(), [], "those of a queue pair in RESET are gone");
}

#[test]
fn of_a_list_the_first_work_requests_stay() {
    let mut world = World::new();
    let (mut tickets, place) = (Tickets::default(), world.place());
    for wr_id in 1..=3 {
        let work = SendWork { wr_id, ..send(&[]) };
        world.model.send_posted(QP, &work, &world.memory, &place, &mut tickets);
    }
    world.model.sends_refused(QP, tickets, 1, Refusal::Other, &place);
    for _ in 0..15 {
        world.post(QP, send(&[]));
    }
    assert_eq!(world.found(), [], "one and 15 are 16");
    world.post(QP, send(&[]));
    assert_eq!(world.found(), [Kind::CompletionQueueTooSmall]);
}

#[test]
fn a_send_of_what_a_read_brings_needs_its_completion_or_a_fence() {
    let read = [sge(0, 64)];
    let overlapping = [sge(60, 64)];
    let sent = |(is_fenced, is_inline), qp, polled: bool| {
        let mut world = World::new();
        world.post(QP, SendWork { wr_id: 1, ..remote(SendOp::Read, &read, 0x5000) });
        if polled {
            world.complete(17, 1, Outcome::Success);
        }
        world.post(qp, SendWork { is_fenced, is_inline, ..send(&overlapping) });
        world.found()
    };
    let (plain, fenced, inline) = ((false, false), (true, false), (true, true));
    assert_eq!(sent(plain, QP, false), [Kind::ResultNotAwaited]);
    assert_eq!(sent(plain, QP, true), []);
    assert_eq!(sent(fenced, QP, false), []);
    assert_eq!(sent(fenced, PEER, false), [Kind::ResultNotAwaited], "a fence is of one queue pair");
    // Inline data are at plain addresses, which here are others.
    assert_eq!(sent(inline, QP, false), []);
    let mut world = World::new();
    world.post(QP, remote(SendOp::Atomic, &[sge(0, 8)], 0x5000));
    let plain_address = [Sge { address: ADDRESS, len: 8, lkey: 0 }];
    world.post(QP, SendWork { is_inline: true, is_fenced: true, ..send(&plain_address) });
    assert_eq!(world.found(), [Kind::ResultNotAwaited], "inline data are taken at once");
}

#[test]
fn an_atomic_must_be_aligned() {
    let mut world = World::new();
    world.post(QP, remote(SendOp::Atomic, &[sge(0, 8)], 0x5004));
    assert_eq!(world.found(), [Kind::AtomicNotAligned]);
    world.post(QP, remote(SendOp::Atomic, &[sge(4, 8)], 0x5008));
    world.post(QP, remote(SendOp::Write, &[sge(64, 8)], 0x5004));
    assert_eq!(world.found(), []);
}

#[test]
fn a_read_needs_a_depth() {
    let mut world = World::empty();
    let place = world.place();
    world.model.region_made(REGION, region(), &place);
    world.model.queue_pair_made(QP, pair(17, QpType::Rc), true, &place);
    world.connect(QP, 18, Change { read_depth: Some(0), ..Change::default() });
    world.post(QP, remote(SendOp::Write, &[sge(64, 8)], 0x5000));
    assert_eq!(world.found(), []);
    world.post(QP, remote(SendOp::Read, &[sge(0, 8)], 0x5000));
    assert_eq!(world.found(), [Kind::ReadDepthZero]);
}

#[test]
fn a_remote_access_error_for_a_key_that_is_gone_is_explained() {
    let mut world = World::new();
    world.post(QP, remote(SendOp::Write, &[], IOVA + 8));
    world.complete(17, 7, Outcome::RemoteAccess);
    assert_eq!(world.found(), [], "the region is there: it has not the right, which its program can see");
    let mut world = World::new();
    world.destroy(ObjectKind::Region, REGION);
    world.post(QP, remote(SendOp::Write, &[], IOVA + 8));
    world.complete(17, 7, Outcome::RemoteAccess);
    let finding = world.one();
    assert!(finding.kind == Kind::StaleRkey && finding.related.is_some());
    // The same key at an address that was never in it is another machine's.
    let mut world = World::new();
    world.destroy(ObjectKind::Region, REGION);
    world.post(QP, remote(SendOp::Write, &[], IOVA + LEN));
    world.complete(17, 7, Outcome::RemoteAccess);
    assert_eq!(world.found(), []);
}

#[test]
fn completions_end_the_work_that_they_are_of() {
    let mut world = World::new();
    // The same number for all, as many programs have it.
    for is_signaled in [false, true, false] {
        world.post(QP, SendWork { is_signaled, ..send(&[sge(0, 8)]) });
    }
    world.complete(17, 7, Outcome::Success);
    world.destroy(ObjectKind::Region, REGION);
    assert_eq!(world.found(), [Kind::RegionInUse], "the third is outstanding");
    let mut world = World::new();
    world.post(QP, SendWork { is_signaled: false, ..send(&[sge(0, 8)]) });
    world.complete(17, 7, Outcome::Failed);
    world.destroy(ObjectKind::Region, REGION);
    assert_eq!(world.found(), [], "an error completes unsignaled work, too");
}

#[test]
fn receives_of_a_shared_queue_are_found_by_the_queue_pair_that_takes_them() {
    let mut world = World::new();
    let place = world.place();
    world.model.shared_receive_made(SRQ, &place);
    let of_shared = softnic_check::QueuePair { srq: Some(SRQ), ..pair(19, QpType::Rc) };
    world.model.queue_pair_made(ObjectId(32), of_shared, true, &place);
    let post = |world: &mut World, wr_id, offset| {
        let place = world.place();
        let sges = [sge(offset, 64)];
        let work = ReceiveWork { wr_id, sges: &sges };
        let queue = ReceiveQueue::Shared(SRQ);
        world.model.receive_posted(queue, &work, Some((NIC, DOMAIN)), &place, &mut Tickets::default());
    };
    post(&mut world, 1, 0);
    post(&mut world, 2, 64);
    world.received(19, 2);
    post(&mut world, 3, 64);
    assert_eq!(world.found(), []);
    // The first 40 bytes do not count here: the queue pair that takes it may be one of datagrams.
    post(&mut world, 4, 0);
    assert_eq!(world.found(), [Kind::ReceiveOverlap]);
    world.model.shared_receive_going(SRQ);
    world.destroy(ObjectKind::SharedReceive, SRQ);
    world.receive(QP, 9, &[sge(0, 64)]);
    assert_eq!(world.found(), []);
}

#[test]
fn what_the_model_was_not_told_of_is_not_judged() {
    let mut world = World::new();
    let stranger = ObjectId(99);
    world.post(stranger, send(&[Sge { lkey: 1, ..sge(0, 8) }]));
    world.receive(stranger, 1, &[Sge { lkey: 1, ..sge(0, 8) }]);
    world.complete(999, 1, Outcome::Success);
    let unknown = Completed { qp_number: 17, wr_id: 1234, outcome: Outcome::Success, is_receive: false };
    world.model.completed(CQ, &unknown, &world.memory);
    world.modify(stranger, QpState::Rts);
    world.destroy(ObjectKind::QueuePair, stranger);
    assert_eq!(world.found(), []);
}
