//! A store that both ends reach in place of the peer's own word (SHIFT §4.2): our entries in it, the peer's, and the proof that the peer
//! wrote them.
//!
//! Whoever can write to the store can write anything under a key, and entries of an earlier run stay there for a while. So the two backups
//! show each other that they know both nonces, by [`Proof`]s, before a connection counts as protected.

use std::net::Ipv6Addr;
use std::time::Duration;

use softnic_nic::transports::qp::QpState;
use softnic_nic::{Nic, QpAttr, ReceivedMad};
use softnic_wire::failover::{Entry, EntryValue, Object, RegionAnswer, Side};
use softnic_wire::mad::failover::{Proof, VERSION};
use softnic_wire::mad::vendor::Kind;
use softnic_wire::mad::{MAD_LEN, Status as MadStatus};
use softnic_wire::{Instant, Qpn};

use super::meeting::{backup_of, introduce, mapped};
use super::{Backup, DualNic, Lookup, Notice, ProtectError, Request, Store};
use crate::connection::{Guard, Stage, parts};

/// How soon the store is asked again for an entry that was not there, or not the peer's; each time after twice as long, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// So many lookups that found nothing, five seconds, are told of. They go on.
const QUIET: u32 = 10;
/// How long the first proof waits for the peer's; each further one waits twice as long.
const PROOF_WAIT: Duration = Duration::from_millis(20);
/// Proofs without the peer's, five seconds, after which its entry is none of its own.
const PROOFS: u32 = 8;
/// Entries that were found to be another's before that is told of.
const STALE: u32 = 3;

impl DualNic {
    /// What the store has, as [`Request::Get`] asked for it.
    pub fn set_entry(&mut self, now: Instant, qpn: Qpn, object: Object, found: Lookup) {
        let Some(backup) = &mut self.backup else { return };
        backup.catch_up(&mut self.nic);
        let Some(&at) = backup.by_qpn.get(&qpn) else { return };
        match object {
            Object::QueuePair { .. } => backup.take_backup(now, at, object, found),
            Object::Region { rkey, .. } => backup.take_region(now, at, rkey, found),
        }
    }

    /// The store can be asked again: whoever waits does so now.
    pub fn ask_store_again(&mut self, now: Instant) {
        let Some(backup) = &mut self.backup else { return };
        for at in 0..backup.connections.len() {
            if let Some((_, guard)) = parts(&mut backup.connections, at)
                && guard.stage == Stage::Meeting
            {
                (guard.ask_at, guard.asked) = (Some(now), 0);
                backup.mark(at);
            }
        }
    }
}

impl Backup {
    /// A connection has its backup: where there is a store it gets to know, and is asked for the peer's.
    pub(super) fn begin_to_meet(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        if self.config.store == Store::Peer {
            return;
        }
        let Backup { nic: backup, connections, requests, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        let (Some(path), Some(backup)) = (guard.attr.path, backup_of(guard, &backup.port().addresses)) else { return };
        let object = Object::QueuePair { gid: mapped(path.addresses.src()), qpn: plain.qpn };
        guard.stored = Some(object);
        let entry = Entry { nonce: guard.nonce, value: EntryValue::QueuePair(backup) };
        requests.push_back(Request::Put { object, entry });
        self.meet(nic, now, at);
    }

    /// Asks for the entry of the peer's queue pair. Each question is answered, so there is no time to ask again before.
    pub(super) fn ask_store(&mut self, at: usize) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        guard.ask_at = None;
        let object = peer_object(guard);
        self.requests.extend(object.map(|object| Request::Get { qpn: plain.qpn, object }));
    }

    /// What the store has of the peer's queue pair.
    fn take_backup(&mut self, now: Instant, at: usize, object: Object, found: Lookup) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        if guard.stage != Stage::Meeting || peer_object(guard) != Some(object) {
            return;
        }
        match found {
            Lookup::Found(Entry { nonce, value: EntryValue::QueuePair(peer) }) => {
                self.requests.push_back(introduce(plain, guard, peer, nonce));
            }
            found => {
                guard.ask_at = Some(now + grown(FIRST_WAIT, guard.asked));
                if found != Lookup::Unavailable && guard.asked >= QUIET {
                    self.notices.push_back(Notice::Unprotected(plain.qpn, ProtectError::Absent));
                }
                guard.asked += 1;
                self.mark(at);
            }
        }
    }

    /// The backups are connected: each has to show that it wrote its entry.
    pub(super) fn begin_to_prove(&mut self, now: Instant, at: usize) {
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        (guard.stage, guard.asked) = (Stage::Proving, 0);
        self.prove(now, at);
        self.mark(at);
    }

    /// Shows the peer that we wrote our entry, and asks it for the same.
    pub(super) fn prove(&mut self, now: Instant, at: usize) {
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        if guard.asked == PROOFS {
            return self.drop_entry(now, at, Some(ProtectError::Unproven));
        }
        guard.ask_at = Some(now + grown(PROOF_WAIT, guard.asked));
        guard.asked += 1;
        let transaction_id = u64::from(guard.backup.value());
        self.send_proof(at, Kind::Offer, transaction_id);
    }

    fn send_proof(&mut self, at: usize, kind: Kind, transaction_id: u64) {
        let Backup { nic: backup, connections, config, .. } = self;
        let (Store::External { region_nonce }, Some((_, guard))) = (config.store, parts(connections, at)) else {
            return;
        };
        let (Some(path), Some(peer)) = (guard.path, guard.peer) else { return };
        let (version, sender_qpn, receiver_qpn) = (VERSION, guard.backup, peer.qpn);
        let proof = Proof { transaction_id, kind, version, sender_qpn, receiver_qpn, region_nonce, mac: [0; 16] };
        let mut mad = [0; MAD_LEN];
        proof.sign(&guard.secrets[0]).emit(&mut mad);
        backup.post_mad(Nic::WIRE, &path, &mad);
    }

    /// Somebody shows that it wrote the entry of the peer's queue pair, or does not.
    pub(super) fn handle_proof(&mut self, nic: &mut Nic, now: Instant, side: Side, received: &ReceivedMad) {
        let Ok(proof) = Proof::parse(&received.mad) else { return };
        if self.config.store == Store::Peer || side != Side::Backup {
            return;
        }
        let Some(&at) = self.by_backup.get(&proof.receiver_qpn) else { return };
        let is_peer = self.is_peer(at, side, received.src);
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        let named = guard.peer.is_some_and(|peer| peer.qpn == proof.sender_qpn);
        let right = is_peer && named && proof.is_right(&guard.secrets[1]);
        match guard.stage {
            // The peer has read our entry, so its own is there: it is asked for soon.
            Stage::Meeting if proof.kind == Kind::Offer => {
                let soon = now + FIRST_WAIT;
                guard.ask_at = guard.ask_at.map(|at| at.min(soon));
                self.mark(at);
            }
            // What we have read may be the entry of its earlier life, and then there is a newer one.
            Stage::Proving if is_peer && !right && proof.kind == Kind::Offer => {
                let why = (guard.dropped >= STALE).then_some(ProtectError::Unproven);
                self.drop_entry(now, at, why);
            }
            Stage::Proving | Stage::Ready if right => {
                guard.region_nonce = Some(proof.region_nonce);
                let proving = guard.stage == Stage::Proving;
                if proof.kind == Kind::Offer {
                    self.send_proof(at, Kind::Answer(MadStatus::SUCCESS), proof.transaction_id);
                }
                if proving {
                    self.set_ready(nic, now, at);
                }
            }
            _ => {}
        }
    }

    /// The peer's entry is of no use: the store is asked again, later each time.
    pub(super) fn drop_entry(&mut self, now: Instant, at: usize, why: Option<ProtectError>) {
        let Backup { nic: backup, connections, notices, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        (guard.stage, guard.peer, guard.path, guard.region_nonce) = (Stage::Meeting, None, None, None);
        guard.ask_at = Some(now + grown(FIRST_WAIT, guard.dropped));
        (guard.asked, guard.dropped) = (0, guard.dropped + 1);
        // Whoever it was connected to was not the peer.
        let _ = backup.modify_qp(guard.backup, &QpAttr { state: Some(QpState::Reset), ..QpAttr::default() });
        notices.extend(why.map(|why| Notice::Unprotected(plain.qpn, why)));
        self.mark(at);
    }

    /// A region has a key at the backup: where there is a store it gets to know, under each GID of the default; those.
    pub(super) fn put_region(&mut self, nic: &Nic, rkey: u32, region: RegionAnswer) -> Vec<Ipv6Addr> {
        let Store::External { region_nonce: nonce } = self.config.store else { return Vec::new() };
        let gids: Vec<Ipv6Addr> = nic.port().addresses.iter().map(|&address| mapped(address)).collect();
        let entry = Entry { nonce, value: EntryValue::Region(region) };
        let objects = gids.iter().map(|&gid| Object::Region { gid, rkey });
        self.requests.extend(objects.map(|object| Request::Put { object, entry }));
        gids
    }

    /// What the store has of a region of the peer's. Where that is of no use the peer itself is asked.
    fn take_region(&mut self, now: Instant, at: usize, rkey: u32, found: Lookup) {
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        if guard.wanted.is_none_or(|(wanted, _)| wanted != rkey) {
            return;
        }
        let peer = guard.attr.path.map(|path| path.addresses.dst());
        match (found, peer) {
            (Lookup::Found(Entry { nonce, value: EntryValue::Region(region) }), Some(peer))
                if guard.region_nonce == Some(nonce) =>
            {
                guard.wanted = None;
                self.remote_keys.insert((peer, rkey), region.backup_rkey);
            }
            _ => guard.wanted = Some((rkey, now)),
        }
        // Behind what completed: it is looked at with everything else.
        self.mark(at);
    }

    /// A connection has changed its side: the peer may have registered regions anew since its keys were asked for.
    pub(super) fn forget_keys(&mut self, at: usize) {
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        guard.looked_up = None;
        if let Some(peer) = guard.attr.path.map(|path| path.addresses.dst()) {
            self.remote_keys.retain(|(of, _), _| *of != peer);
        }
    }
}

/// What the entry of the peer's queue pair is about.
fn peer_object(guard: &Guard) -> Option<Object> {
    let gid = mapped(guard.attr.path?.addresses.dst());
    Some(Object::QueuePair { gid, qpn: guard.attr.dest_qp? })
}

/// A wait that doubles each time.
fn grown(first: Duration, times: u32) -> Duration {
    first.saturating_mul(2u32.saturating_pow(times)).min(LONGEST_WAIT)
}
