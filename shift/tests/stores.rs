//! Two ends that find each other in a store: what is written there, what counts of it, and what does not.

use std::time::Duration;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{SendOp, Status as WcStatus};
use softnic_nic::{Buffer, MrError};
use softnic_shift::{Lookup, Notice, ProtectError, Request, Store};
use softnic_wire::Qpn;
use softnic_wire::failover::{BackupQp, Entry, EntryValue, Object, Phase, RegionAnswer, connection_secret};
use softnic_wire::mad::Status as MadStatus;
use softnic_wire::mad::failover::{Hello, Proof, Readiness, RegionQuery, VERSION};
use softnic_wire::mad::vendor::Kind;

use crate::liar::{MS, NONCE, World};

const OURS: [u8; 16] = [7; 16];
const THEIRS: [u8; 16] = [9; 16];
const SECOND: Duration = Duration::from_secs(1);

fn world() -> World {
    World::with(true, Store::External { region_nonce: OURS })
}

/// The questions to the store since the last look.
fn gets(world: &mut World) -> Vec<Object> {
    let asked = std::mem::take(&mut world.requests).into_iter();
    asked.filter_map(|request| if let Request::Get { object, .. } = request { Some(object) } else { None }).collect()
}

fn peer_of(world: &World) -> Object {
    Object::QueuePair { gid: "::ffff:10.0.0.2".parse().unwrap(), qpn: world.qpns[1] }
}

/// The store answers with an entry of this nonce; whatever the host asks then is told.
fn find(world: &mut World, nonce: [u8; 16]) {
    let backup = world.honest().backup.unwrap();
    let entry = Entry { nonce, value: EntryValue::QueuePair(backup) };
    tell(world, Lookup::Found(entry));
}

fn tell(world: &mut World, found: Lookup) {
    let object = peer_of(world);
    world.host.set_entry(world.now, world.qpns[0], object, found);
    // A path is asked for, and then a proof sent.
    (0..2).for_each(|_| world.carry());
}

/// The last proof that the host sent.
fn proof_of(world: &World) -> Option<Proof> {
    world.mads.iter().rev().filter(|(side, _)| *side == 1).find_map(|(_, mad)| Proof::parse(&mad.mad).ok())
}

/// The liar's proof, as one that has this nonce signs it.
fn proof(world: &World, kind: Kind, nonce: [u8; 16]) -> Proof {
    let (theirs, ours) = (world.honest().backup.unwrap().qpn, world.hello.unwrap());
    Proof {
        transaction_id: 3,
        kind,
        version: VERSION,
        sender_qpn: theirs,
        receiver_qpn: ours.backup.unwrap().qpn,
        region_nonce: THEIRS,
        mac: [0; 16],
    }
    .sign(&connection_secret([nonce, ours.nonce]))
}

/// The peer's entry is found and proven.
fn met() -> World {
    let mut world = world();
    world.connect_backup();
    find(&mut world, NONCE);
    let proof = proof(&world, Kind::Answer(MadStatus::SUCCESS), NONCE);
    world.say(1, |mad| proof.emit(mad));
    assert!(world.host.is_protected(world.qpns[0]), "{:?}", world.notices);
    world
}

#[test]
fn the_store_gets_what_a_peer_has_to_know_and_is_asked_for_the_peers() {
    let mut world = world();
    assert!(world.mads.is_empty(), "the peer itself is not asked");
    let own = Object::QueuePair { gid: "::ffff:10.0.0.1".parse().unwrap(), qpn: world.qpns[0] };
    let puts: Vec<(Object, Entry)> = world.requests.iter().filter_map(put).collect();
    let [(region, about_region), (queue_pair, about_queue_pair)] = puts[..] else { panic!("{puts:?}") };
    assert!(matches!((region, about_region.value), (Object::Region { .. }, EntryValue::Region(_))));
    assert_eq!((queue_pair, about_region.nonce), (own, OURS));
    let EntryValue::QueuePair(BackupQp { gid, .. }) = about_queue_pair.value else { panic!() };
    assert_eq!(gid.to_canonical().to_string(), "10.1.0.1");
    assert_eq!(gets(&mut world), [peer_of(&world)]);
    world.host.destroy_qp(world.qpns[0]).unwrap();
    let Object::Region { rkey, .. } = region else { unreachable!() };
    world.host.forget_mr(rkey);
    world.carry();
    assert_eq!(world.requests, [Request::Delete { object: own }, Request::Delete { object: region }]);
}

#[test]
fn a_region_that_is_registered_anew_keeps_its_key_at_the_backup_and_the_store_gets_what_it_is_now() {
    let mut world = world();
    let [(object, before), _] = world.requests.iter().filter_map(put).collect::<Vec<_>>()[..] else { panic!() };
    let (EntryValue::Region(before), Object::Region { rkey, .. }) = (before.value, object) else { panic!() };
    // It is of a domain that the backup has not got yet.
    let (pd, buffer) = (world.host.nic.alloc_pd(), Buffer::new(0x7000_0000, 100));
    world.host.nic.rereg_mr(rkey, Some(pd), Some(&buffer), None).unwrap();
    world.requests.clear();
    assert_eq!(world.host.renew_mr(rkey, pd, Some(&buffer), Access::LOCAL_WRITE, None), Ok(before.backup_rkey));
    world.carry();
    let after = RegionAnswer { addr: 0x7000_0000, len: 100, ..before };
    let entry = Entry { nonce: OURS, value: EntryValue::Region(after) };
    assert_eq!(world.requests.last(), Some(&Request::Put { object, entry }));
    // One that the backup has not got is for whoever makes it there.
    world.host.forget_mr(rkey);
    assert_eq!(world.host.renew_mr(rkey, pd, Some(&buffer), Access::NONE, None), Err(MrError::NoSuchMr));
}

fn put(request: &Request) -> Option<(Object, Entry)> {
    if let Request::Put { object, entry } = *request { Some((object, entry)) } else { None }
}

#[test]
fn an_entry_counts_when_the_peer_has_proven_that_it_wrote_it() {
    let mut world = world();
    world.connect_backup();
    find(&mut world, NONCE);
    assert!(!world.host.is_protected(world.qpns[0]));
    let shown = proof_of(&world).expect("a proof");
    assert_eq!((shown.kind, shown.region_nonce), (Kind::Offer, OURS));
    assert!(shown.is_right(&connection_secret([world.hello.unwrap().nonce, NONCE])));
    // Its own words, and those of an answer that somebody else signed, are none of the peer's.
    let echo = Proof { sender_qpn: shown.receiver_qpn, receiver_qpn: shown.sender_qpn, ..shown };
    let forged = proof(&world, Kind::Answer(MadStatus::SUCCESS), [1; 16]);
    for wrong in [Proof { kind: Kind::Answer(MadStatus::SUCCESS), ..echo }, forged] {
        world.say(1, |mad| wrong.emit(mad));
    }
    let right = proof(&world, Kind::Answer(MadStatus::SUCCESS), NONCE);
    // By the default path nothing is proven about the backup.
    world.say(0, |mad| right.emit(mad));
    assert!(!world.host.is_protected(world.qpns[0]));
    world.say(1, |mad| right.emit(mad));
    assert!(world.host.is_protected(world.qpns[0]));
    assert!(matches!(world.notices[..], [Notice::Protected(..)]));
    // A peer that has lost our answer asks again, and gets it.
    world.mads.clear();
    let offer = proof(&world, Kind::Offer, NONCE);
    world.say(1, |mad| offer.emit(mad));
    assert!(proof_of(&world).is_some_and(|proof| proof.kind == Kind::Answer(MadStatus::SUCCESS)));
}

#[test]
fn an_entry_of_an_earlier_run_is_dropped_and_the_store_asked_again() {
    let mut world = world();
    gets(&mut world);
    // Nobody has its nonce any more: the peer that is there says nothing to it.
    find(&mut world, [0x0b; 16]);
    world.pass(10 * SECOND);
    let unproven = Notice::Unprotected(world.qpns[0], ProtectError::Unproven);
    assert_eq!(world.notices, [unproven]);
    assert_eq!(gets(&mut world), [peer_of(&world)]);
    // The program goes on meanwhile.
    world.liar_receives();
    world.post(1, SendOp::Send);
    world.pass(MS);
    assert_eq!(world.completions().iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), [(1, WcStatus::Success)]);
    // The same entry, and then a proof of the peer that has read ours: the entry is dropped at once.
    find(&mut world, [0x0b; 16]);
    let offer = proof(&world, Kind::Offer, NONCE);
    world.say(1, |mad| offer.emit(mad));
    world.pass(SECOND);
    assert_eq!(gets(&mut world), [peer_of(&world)]);
    world.connect_backup();
    find(&mut world, NONCE);
    world.say(1, |mad| offer.emit(mad));
    assert!(world.host.is_protected(world.qpns[0]));
    assert_eq!(world.notices.len(), 2, "{:?}", world.notices);
}

#[test]
fn a_store_that_knows_nothing_of_the_peer_is_asked_ever_more_seldom_and_never_given_up() {
    let mut world = world();
    let mut asked = gets(&mut world).len();
    tell(&mut world, Lookup::Absent);
    for _ in 0..400 {
        world.pass(SECOND);
        let again = gets(&mut world).len();
        asked += again;
        (0..again).for_each(|_| tell(&mut world, Lookup::Absent));
    }
    assert!((20..40).contains(&asked), "{asked} questions");
    let absent = Notice::Unprotected(world.qpns[0], ProtectError::Absent);
    assert!(!world.notices.is_empty() && world.notices.iter().all(|notice| *notice == absent));
    // The peer has come, and read our entry: the store is asked soon.
    let offer = proof(&world, Kind::Offer, NONCE);
    world.say(1, |mad| offer.emit(mad));
    world.pass(10 * MS);
    assert_eq!(gets(&mut world).len(), 1);
}

#[test]
fn a_store_that_cannot_be_asked_is_no_news_of_the_peer_and_asked_when_it_is_back() {
    let mut world = world();
    gets(&mut world);
    tell(&mut world, Lookup::Unavailable);
    for _ in 0..100 {
        world.pass(SECOND);
        (0..gets(&mut world).len()).for_each(|_| tell(&mut world, Lookup::Unavailable));
    }
    assert_eq!(world.notices, []);
    world.host.ask_store_again(world.now);
    world.carry();
    assert_eq!(gets(&mut world), [peer_of(&world)]);
    // Answers for another connection, and two at once, do no harm.
    let other = Object::QueuePair { gid: "::1".parse().unwrap(), qpn: Qpn::new(5) };
    world.host.set_entry(world.now, world.qpns[0], other, Lookup::Absent);
    find(&mut world, NONCE);
    find(&mut world, [1; 16]);
    tell(&mut world, Lookup::Absent);
    world.connect_backup();
    let offer = proof(&world, Kind::Offer, NONCE);
    world.say(1, |mad| offer.emit(mad));
    assert!(world.host.is_protected(world.qpns[0]));
}

#[test]
fn a_peer_that_asks_by_mads_is_told_that_there_is_no_backup_for_it() {
    let mut world = world();
    let hello = Hello { kind: Kind::Offer, ..world.honest() };
    world.say(0, |mad| hello.emit(mad));
    let answers = world.mads.iter().filter_map(|(_, mad)| Hello::parse(&mad.mad).ok());
    assert_eq!(answers.map(|hello| hello.readiness).collect::<Vec<_>>(), [Readiness::None]);
}

/// In Fallback with a WRITE, whose key was asked for at the store.
fn wants_a_key() -> World {
    let mut world = met();
    world.cut[0] = true;
    let write = SendOp::Write { remote_addr: world.memory[1].addr(), rkey: world.liar_keys()[0] };
    world.post(1, write);
    world.pass(5 * MS);
    world.mads.clear();
    gets(&mut world);
    world.write_status(&world.status());
    assert_eq!(world.host.machine(world.qpns[0]).unwrap().phase(), Phase::Fallback);
    world
}

fn region_of(world: &World) -> Object {
    Object::Region { gid: "::ffff:10.0.0.2".parse().unwrap(), rkey: world.liar_keys()[0] }
}

fn entry_of_region(world: &World, nonce: [u8; 16], backup_rkey: u32) -> Entry {
    let region = RegionAnswer { addr: world.memory[1].addr(), len: 4096, backup_rkey };
    Entry { nonce, value: EntryValue::Region(region) }
}

#[test]
fn keys_are_looked_up_in_the_store() {
    let mut world = wants_a_key();
    assert_eq!(gets(&mut world), [region_of(&world)]);
    let entry = entry_of_region(&world, THEIRS, world.liar_keys()[1]);
    world.host.set_entry(world.now, world.qpns[0], region_of(&world), Lookup::Found(entry));
    world.pass(2 * MS);
    assert_eq!(world.completions().iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), [(1, WcStatus::Success)]);
    assert!(world.mads.is_empty(), "the peer was not asked");
}

#[test]
fn the_peer_is_asked_for_a_key_that_the_store_has_not_or_of_another_run_or_does_not_tell() {
    for found in [Some(true), Some(false), None] {
        let mut world = wants_a_key();
        let entry = entry_of_region(&world, NONCE, 0xdead_beef);
        let lookup = found.map(|other| if other { Lookup::Found(entry) } else { Lookup::Absent });
        match lookup {
            Some(lookup) => world.host.set_entry(world.now, world.qpns[0], region_of(&world), lookup),
            None => world.pass(30 * MS),
        }
        world.pass(MS);
        let query = world.mads.iter().find_map(|(side, mad)| RegionQuery::parse(&mad.mad).ok().filter(|_| *side == 1));
        let query = query.expect("a question to the peer");
        let answer = RegionAnswer { addr: world.memory[1].addr(), len: 4096, backup_rkey: world.liar_keys()[1] };
        let (sender_qpn, receiver_qpn) = (query.receiver_qpn, query.sender_qpn);
        let kind = Kind::Answer(MadStatus::SUCCESS);
        let reply = RegionQuery { kind, sender_qpn, receiver_qpn, answer: Some(answer), ..query };
        world.say(1, |mad| reply.emit(mad));
        world.pass(2 * MS);
        let all: Vec<_> = world.completions().iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(all, [(1, WcStatus::Success)], "{found:?}");
    }
}

#[test]
fn two_ends_that_read_entries_of_earlier_runs_say_so_and_meet_when_they_read_the_right_ones() {
    let mut world = world();
    let offer = proof(&world, Kind::Offer, NONCE);
    for _ in 0..6 {
        // Each drops what it has read when the other shows that it knows something else.
        find(&mut world, [0x0b; 16]);
        world.say(1, |mad| offer.emit(mad));
        world.pass(SECOND);
    }
    let unproven = Notice::Unprotected(world.qpns[0], ProtectError::Unproven);
    assert!(!world.notices.is_empty() && world.notices.iter().all(|notice| *notice == unproven));
    world.connect_backup();
    find(&mut world, NONCE);
    world.say(1, |mad| offer.emit(mad));
    assert!(world.host.is_protected(world.qpns[0]));
}
