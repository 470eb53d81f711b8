//! Peers that have no backup, another kind of it, or no word to say: the program runs as without one.

use std::net::IpAddr;
use std::time::Duration;

use softnic_nic::transports::{SendOp, Status as WcStatus};
use softnic_shift::{Notice, ProtectError};
use softnic_wire::failover::{Phase, Side};
use softnic_wire::mad::failover::{Hello, Mode, Readiness};
use softnic_wire::mad::vendor::Kind;

use crate::liar::{MS, World, address};

/// It has no backup, and works; and when its link fails, errors come as ever.
fn assert_runs_unprotected(world: &mut World, why: ProtectError) {
    assert_eq!(world.notices, [Notice::Unprotected(world.qpns[0], why)]);
    assert!(!world.host.is_protected(world.qpns[0]));
    world.liar_receives();
    world.post_recv(100);
    world.post(1, SendOp::Send);
    world.pass(MS);
    assert_eq!(world.completions().iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), [(1, WcStatus::Success)]);
    world.cut[0] = true;
    world.post(2, SendOp::Send);
    world.post(3, SendOp::Send);
    world.pass(20 * MS);
    let told: Vec<_> = world.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(told, [(2, WcStatus::RetryExcErr), (3, flushed), (100, flushed)]);
    world.host.destroy_qp(world.qpns[0]).unwrap();
    assert_eq!(world.host.backup().unwrap().queue_pairs().count(), 0);
}

#[test]
fn a_peer_that_knows_nothing_of_failover_refuses_and_all_is_as_without_a_backup() {
    let mut world = World::new(false);
    assert_runs_unprotected(&mut world, ProtectError::Peer);
}

#[test]
fn a_peer_that_never_answers_is_asked_twelve_times() {
    let mut world = World::new(true);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.mads.len(), 12);
    assert_runs_unprotected(&mut world, ProtectError::Peer);
}

#[test]
fn a_peer_that_says_that_it_has_none_is_not_asked_again() {
    let mut world = World::new(true);
    let hello = Hello { readiness: Readiness::None, backup: None, ..world.honest() };
    world.say(0, |mad| hello.emit(mad));
    world.mads.clear();
    world.pass(Duration::from_secs(60));
    assert!(world.mads.is_empty());
    assert_runs_unprotected(&mut world, ProtectError::Peer);
}

#[test]
fn a_peer_that_protects_in_another_way_is_no_peer() {
    let mut world = World::new(true);
    let hello = Hello { mode: Mode::Other(9), ..world.honest() };
    world.say(0, |mad| hello.emit(mad));
    assert_runs_unprotected(&mut world, ProtectError::Mode);
}

#[test]
fn a_peer_that_is_not_ready_yet_is_asked_as_long_as_it_takes() {
    let mut world = World::new(true);
    for _ in 0..30 {
        let hello = Hello { readiness: Readiness::NotYet, backup: None, ..world.honest() };
        world.say(0, |mad| hello.emit(mad));
        world.pass(Duration::from_secs(2));
    }
    assert_eq!(world.notices, []);
    world.answer_hello();
    assert!(world.host.is_protected(world.qpns[0]));
}

#[test]
fn a_peer_that_names_our_own_backup_as_its_own_has_none() {
    let mut world = World::new(true);
    let IpAddr::V4(ours) = address(1, true).0 else { unreachable!() };
    let mut hello = world.honest();
    hello.backup.as_mut().unwrap().gid = ours.to_ipv6_mapped();
    world.say(0, |mad| hello.emit(mad));
    assert_runs_unprotected(&mut world, ProtectError::Peer);
}

#[test]
fn a_connection_without_a_backup_keeps_nothing_of_one_and_is_not_tried_again() {
    let mut world = World::new(true);
    let hello = Hello { readiness: Readiness::None, backup: None, ..world.honest() };
    world.say(0, |mad| hello.emit(mad));
    assert_eq!(world.host.backup().unwrap().queue_pairs().count(), 0);
    // A program that becomes ready to send asks once more.
    world.host.protect(world.now, world.qpns[0]).unwrap();
    assert_eq!(world.host.backup().unwrap().queue_pairs().count(), 0);
    // A peer that asks is told.
    world.mads.clear();
    let offer = Hello { kind: Kind::Offer, ..world.honest() };
    world.say(0, |mad| offer.emit(mad));
    let told: Vec<_> = world.mads.iter().filter_map(|(_, received)| Hello::parse(&received.mad).ok()).collect();
    assert_eq!(told.iter().map(|hello| hello.readiness).collect::<Vec<_>>(), [Readiness::None]);
    world.mads.clear();
    assert_runs_unprotected(&mut world, ProtectError::Peer);
}

#[test]
fn a_port_that_went_down_while_the_ends_met_is_left_as_soon_as_they_have() {
    let mut world = World::new(true);
    world.host.set_port(Side::Default, false);
    world.carry();
    world.answer_hello();
    assert!(world.host.is_protected(world.qpns[0]));
    assert_eq!(world.host.machine(world.qpns[0]).unwrap().phase(), Phase::Moving);
    // One that is up again by then is not.
    let mut world = World::new(true);
    world.host.set_port(Side::Default, false);
    world.host.set_port(Side::Default, true);
    world.carry();
    world.answer_hello();
    assert_eq!(world.host.machine(world.qpns[0]).unwrap().phase(), Phase::Default);
}

#[test]
fn a_stranger_learns_nothing_and_is_not_believed() {
    let mut world = World::new(true);
    let honest = world.honest();
    let own = world.liar[0].port().addresses.clone();
    let stranger = Hello { kind: Kind::Offer, ..honest };
    world.mads.clear();
    // From another address, from the backup's, and from a queue pair that is not the connection's.
    world.liar[0].set_addresses(vec![IpAddr::from([10, 0, 0, 77])]);
    world.say(0, |mad| stranger.emit(mad));
    world.say(0, |mad| honest.emit(mad));
    world.liar[0].set_addresses(own);
    world.say(1, |mad| honest.emit(mad));
    let another = Hello { sender_qpn: softnic_wire::Qpn::new(honest.sender_qpn.value() ^ 1), ..honest };
    world.say(0, |mad| another.emit(mad));
    assert_eq!(world.notices, []);
    assert!(!world.host.is_protected(world.qpns[0]));
    let told: Vec<_> = world.mads.iter().filter_map(|(_, received)| Hello::parse(&received.mad).ok()).collect();
    assert!(told.iter().all(|hello| hello.kind == Kind::Offer || hello.nonce == [0; 16] && hello.backup.is_none()));
    // The peer itself is.
    world.answer_hello();
    assert!(world.host.is_protected(world.qpns[0]));
}
