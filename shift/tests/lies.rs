//! Peers whose statuses or keys cannot be right, or that say nothing: errors, in order and once, and nothing worse.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{SendOp, Status as WcStatus, WcOpcode};
use softnic_shift::{Notice, Reason, Refusal};
use softnic_wire::Node;
use softnic_wire::failover::{Phase, RegionAnswer, Side, Status};
use softnic_wire::mad::Status as MadStatus;
use softnic_wire::mad::failover::{RegionQuery, VERSION};
use softnic_wire::mad::vendor::Kind;

use crate::liar::{ANSWER, MS, World};

/// The connection ended for a reason: two sends and a receive, in order and once.
fn assert_failed(world: &mut World, why: Refusal) {
    let failed: Vec<_> = world.notices.iter().filter(|notice| matches!(notice, Notice::Failed(..))).collect();
    assert_eq!(failed, [&Notice::Failed(world.qpns[0], why)]);
    let all = world.completions();
    let sends: Vec<_> = all.iter().filter(|c| c.opcode != WcOpcode::Recv).map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(sends, [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)]);
    let recvs: Vec<_> = all.iter().filter(|c| c.opcode == WcOpcode::Recv).map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(recvs, [(100, WcStatus::WrFlushErr)]);
    assert!(all.iter().all(|c| c.qpn == world.qpns[0]));
    world.pass(2 * ANSWER);
    assert_eq!(world.completions(), []);
    world.host.destroy_qp(world.qpns[0]).unwrap();
    assert_eq!(world.host.backup().unwrap().queue_pairs().count(), 0);
}

#[test]
fn a_count_ahead_of_all_that_was_sent_is_a_lie() {
    for count in [3, 1000, u32::MAX] {
        let mut world = World::met();
        world.lose_the_default();
        world.write_status(&Status { recv_count: count, ..world.status() });
        assert_failed(&mut world, Refusal::Lie);
    }
}

#[test]
fn an_epoch_two_ahead_is_a_lie() {
    let mut world = World::met();
    world.lose_the_default();
    world.write_status(&Status { epoch: 3, ..world.status() });
    assert_failed(&mut world, Refusal::Lie);
    // Also where nothing had failed.
    let mut world = World::met();
    world.write_status(&Status { epoch: 2, ..world.status() });
    assert_eq!(world.notices.last(), Some(&Notice::Failed(world.qpns[0], Refusal::Lie)));
}

#[test]
fn a_status_of_another_connection_is_as_nothing() {
    let mut world = World::met();
    let mut block = [0; Status::LEN];
    let mut secret = world.secret();
    secret[3] ^= 1;
    world.status().emit(&secret, &mut block);
    world.write_block(&block, true);
    world.pass(MS);
    assert_eq!(world.host.machine(world.qpns[0]).unwrap().phase(), Phase::Default);
    assert!(!world.notices.iter().any(|notice| matches!(notice, Notice::Failed(..) | Notice::Moved(..))));
    // It goes on to work,
    world.liar_receives();
    world.post(7, SendOp::Send);
    world.pass(MS);
    assert_eq!(world.completions().iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), [(7, WcStatus::Success)]);
    // and such a block is no answer.
    world.lose_the_default();
    world.write_block(&block, false);
    world.pass(ANSWER / 2);
    assert_eq!(world.completions(), []);
    world.pass(ANSWER);
    assert_failed(&mut world, Refusal::Silence);
}

#[test]
fn a_block_with_any_byte_wrong_is_as_nothing() {
    let mut world = World::met();
    world.lose_the_default();
    let mut right = [0; Status::LEN];
    world.status().emit(&world.secret(), &mut right);
    let phase = |world: &World| world.host.machine(world.qpns[0]).unwrap().phase();
    for at in 0..Status::LEN {
        let mut block = right;
        block[at] ^= 0x10;
        world.write_block(&block, false);
        assert_eq!(phase(&world), Phase::Moving, "byte {at}");
    }
    world.write_block(&right, true);
    let moved = Notice::Moved(world.qpns[0], Side::Backup, Reason::Retries);
    assert_eq!(world.notices.iter().filter(|&&notice| notice == moved).count(), 1);
}

#[test]
fn a_peer_whose_nic_acknowledges_and_whose_software_is_silent_ends_it_after_the_time_for_an_answer() {
    let mut world = World::met();
    world.lose_the_default();
    let begun = world.now;
    world.pass(ANSWER - 5 * MS);
    assert_eq!(world.completions(), []);
    world.pass(5 * MS);
    assert!(world.now - begun <= ANSWER);
    assert_failed(&mut world, Refusal::Silence);
}

#[test]
fn a_status_that_comes_between_running_out_of_retries_and_the_look_at_it_finds_the_work_in_place() {
    let mut world = World::met();
    world.cut[0] = true;
    world.post(1, SendOp::Write { remote_addr: world.memory[1].addr(), rkey: world.liar_keys()[0] });
    while world.host.nic.qp_state(world.qpns[0]) != Some(QpState::Error) {
        world.carry();
        world.now = world.host.nic.poll_timeout().unwrap();
        // The default's alone: nobody has looked at what follows.
        world.host.nic.handle_timeout(world.now);
    }
    world.post_status(&world.status());
    world.carry_to_host(1);
    world.carry();
    assert_eq!(world.completions(), []);
    assert_eq!(world.host.machine(world.qpns[0]).unwrap().phase(), Phase::Fallback, "{:?}", world.notices);
}

#[test]
fn a_peer_that_refuses_ends_it() {
    let mut world = World::met();
    world.lose_the_default();
    world.write_status(&Status { refused: true, phase: Phase::Failed, ..world.status() });
    assert_failed(&mut world, Refusal::Peer);
}

/// In Fallback, with a WRITE whose key the host has to ask for; its question.
fn asked_for_a_key(world: &mut World) -> RegionQuery {
    world.cut[0] = true;
    world.post_recv(100);
    let write = SendOp::Write { remote_addr: world.memory[1].addr(), rkey: world.liar_keys()[0] };
    world.post(1, write);
    world.post(2, write);
    world.pass(5 * MS);
    world.mads.clear();
    world.write_status(&world.status());
    world.pass(MS);
    assert_eq!(world.host.machine(world.qpns[0]).unwrap().phase(), Phase::Fallback);
    let asked: Vec<_> = world.mads.iter().filter(|(side, _)| *side == 1).collect();
    let query = RegionQuery::parse(&asked.first().expect("a question by the backup").1.mad).unwrap();
    assert_eq!((query.kind, query.rkey), (Kind::Offer, world.liar_keys()[0]));
    query
}

fn answer(query: &RegionQuery, key: Option<u32>) -> RegionQuery {
    let answer = key.map(|backup_rkey| RegionAnswer { addr: 0x2000_0000, len: 4096, backup_rkey });
    let (sender_qpn, receiver_qpn) = (query.receiver_qpn, query.sender_qpn);
    RegionQuery { kind: Kind::Answer(MadStatus::SUCCESS), sender_qpn, receiver_qpn, answer, ..*query }
}

#[test]
fn a_key_that_the_peer_does_not_have_ends_it() {
    let mut world = World::met();
    let query = asked_for_a_key(&mut world);
    world.say(1, |mad| answer(&query, None).emit(mad));
    assert_failed(&mut world, Refusal::Key);
}

#[test]
fn a_key_that_is_told_wrong_ends_it_as_any_wrong_key_does() {
    let mut world = World::met();
    let query = asked_for_a_key(&mut world);
    world.say(1, |mad| answer(&query, Some(0xdead_beef)).emit(mad));
    world.pass(5 * MS);
    let all = world.completions();
    let sends: Vec<_> = all.iter().filter(|c| c.opcode != WcOpcode::Recv).map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(sends, [(1, WcStatus::RemAccessErr), (2, WcStatus::WrFlushErr)]);
    let recvs: Vec<_> = all.iter().filter(|c| c.opcode == WcOpcode::Recv).map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(recvs, [(100, WcStatus::WrFlushErr)]);
}

#[test]
fn answers_about_keys_that_nobody_asked_for_are_not_kept() {
    let mut world = World::met();
    let early = RegionQuery {
        transaction_id: 1,
        kind: Kind::Offer,
        version: VERSION,
        sender_qpn: world.qpns[0],
        receiver_qpn: world.qpns[1],
        rkey: world.liar_keys()[0],
        answer: None,
        pending: false,
    };
    for by in [0, 1] {
        world.say(by, |mad| answer(&early, Some(0xdead_beef)).emit(mad));
    }
    // The host asks all the same. Of another key it wants no answer; the right one it takes.
    let query = asked_for_a_key(&mut world);
    let another = RegionQuery { rkey: query.rkey ^ 1, ..query };
    world.say(1, |mad| answer(&another, Some(0xdead_beef)).emit(mad));
    world.say(1, |mad| answer(&another, None).emit(mad));
    let key = world.liar_keys()[1];
    world.say(1, |mad| answer(&query, Some(key)).emit(mad));
    world.pass(2 * MS);
    let all: Vec<_> = world.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(all, [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

#[test]
fn a_peer_that_asks_for_a_key_that_does_not_exist_is_told_so() {
    let mut world = World::met();
    let query = RegionQuery {
        transaction_id: 5,
        kind: Kind::Offer,
        version: VERSION,
        sender_qpn: world.qpns[1],
        receiver_qpn: world.qpns[0],
        rkey: 0x1234_5678,
        answer: None,
        pending: false,
    };
    world.mads.clear();
    world.say(1, |mad| query.emit(mad));
    let (_, received) = world.mads.pop().expect("an answer");
    let told = RegionQuery::parse(&received.mad).unwrap();
    assert_eq!((told.transaction_id, told.rkey, told.answer, told.pending), (5, 0x1234_5678, None, false));
}

#[test]
fn a_peer_that_asks_for_a_region_that_the_backup_will_never_have_is_not_put_off() {
    let mut world = World::met();
    let pd = world.host.nic.alloc_pd();
    let memory = softnic_nic::Buffer::new(0x4000_0000, 64);
    let rkey = world.host.nic.reg_mr(pd, &memory, softnic_nic::transports::memory::Access::REMOTE_READ).unwrap();
    let query = RegionQuery {
        transaction_id: 5,
        kind: Kind::Offer,
        version: VERSION,
        sender_qpn: world.qpns[1],
        receiver_qpn: world.qpns[0],
        rkey,
        answer: None,
        pending: false,
    };
    for pending in [true, false] {
        world.say(1, |mad| query.emit(mad));
        let (_, received) = world.mads.pop().expect("an answer");
        let told = RegionQuery::parse(&received.mad).unwrap();
        assert_eq!((told.answer, told.pending), (None, pending));
        // It could not be made: the domain has no shadow.
        world.host.refuse_mr(rkey);
    }
}

#[test]
fn work_with_a_region_that_the_backup_will_never_have_ends_and_does_not_wait() {
    let mut world = World::met();
    world.lose_the_default();
    let key = world.own_key();
    world.host.forget_mr(key);
    world.host.refuse_mr(key);
    world.write_status(&world.status());
    assert_failed(&mut world, Refusal::Key);
}
