//! Discovery by a store that both ends can reach, in place of MADs to the peer (SHIFT §4.2): local entries, the peer's entries, and the proof
//! that the peer wrote the latter.
//!
//! Every writer of the store can write any value under a key, and entries of an earlier run stay for a while. Therefore a connection counts
//! as protected only after the two backups have shown each other, by [`Proof`]s, that they know both nonces.

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

/// Wait before the next lookup of an entry that was absent or not the peer's. The wait doubles each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Number of lookups without a result, about five seconds, after which a notice is given. The lookups continue.
const QUIET: u32 = 10;
/// How long the first proof waits for the peer's. Each further proof waits twice as long.
const PROOF_WAIT: Duration = Duration::from_millis(20);
/// Number of unanswered proofs, about five seconds, after which the entry counts as not written by the peer.
const PROOFS: u32 = 8;
/// Number of entries of others that are dropped before a notice is given.
const STALE: u32 = 3;

impl DualNic {
    /// The result of a lookup that was requested by [`Request::Get`].
    pub fn set_entry(&mut self, now: Instant, qpn: Qpn, object: Object, found: Lookup) {
        let Some(backup) = &mut self.backup else { return };
        backup.catch_up(&mut self.nic);
        let Some(&at) = backup.by_qpn.get(&qpn) else { return };
        match object {
            Object::QueuePair { .. } => backup.take_backup(now, at, object, found),
            Object::Region { rkey, .. } => backup.take_region(now, at, rkey, found),
        }
    }

    /// The store is reachable again: all waiting lookups are repeated now.
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
    /// Starts the setup of the backup. With a store, publishes the local backup and looks up the peer's.
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

    /// Looks up the entry of the peer's queue pair. Each lookup is answered, so no timer repeats it.
    pub(super) fn ask_store(&mut self, at: usize) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        guard.ask_at = None;
        let object = peer_object(guard);
        self.requests.extend(object.map(|object| Request::Get { qpn: plain.qpn, object }));
    }

    /// Handles the result of the lookup of the peer's queue pair.
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

    /// The backups are connected: each now proves that it wrote its entry.
    pub(super) fn begin_to_prove(&mut self, now: Instant, at: usize) {
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        (guard.stage, guard.asked) = (Stage::Proving, 0);
        self.prove(now, at);
        self.mark(at);
    }

    /// Proves to the peer that this end wrote its entry, and requests the peer's proof.
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

    /// Handles a proof, valid or not, that its sender wrote the entry of the peer's queue pair.
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
            // The peer has read the local entry, so its own entry exists: look it up soon.
            Stage::Meeting if proof.kind == Kind::Offer => {
                let soon = now + FIRST_WAIT;
                guard.ask_at = guard.ask_at.map(|at| at.min(soon));
                self.mark(at);
            }
            // The entry that was read may be that of the peer's previous run; then there is a newer one.
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

    /// Drops the peer's entry as useless, and repeats the lookup, after a longer wait each time.
    pub(super) fn drop_entry(&mut self, now: Instant, at: usize, why: Option<ProtectError>) {
        let Backup { nic: backup, connections, notices, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        (guard.stage, guard.peer, guard.path, guard.region_nonce) = (Stage::Meeting, None, None, None);
        guard.ask_at = Some(now + grown(FIRST_WAIT, guard.dropped));
        (guard.asked, guard.dropped) = (0, guard.dropped + 1);
        // The queue pair was connected to a host that is not the peer.
        let _ = backup.modify_qp(guard.backup, &QpAttr { state: Some(QpState::Reset), ..QpAttr::default() });
        notices.extend(why.map(|why| Notice::Unprotected(plain.qpn, why)));
        self.mark(at);
    }

    /// Publishes a region's key at the backup, if there is a store, under each GID of the default. Returns these GIDs.
    pub(super) fn put_region(&mut self, nic: &Nic, rkey: u32, region: RegionAnswer) -> Vec<Ipv6Addr> {
        let Store::External { region_nonce: nonce } = self.config.store else { return Vec::new() };
        let gids: Vec<Ipv6Addr> = nic.port().addresses.iter().map(|&address| mapped(address)).collect();
        let entry = Entry { nonce, value: EntryValue::Region(region) };
        let objects = gids.iter().map(|&gid| Object::Region { gid, rkey });
        self.requests.extend(objects.map(|object| Request::Put { object, entry }));
        gids
    }

    /// Handles the result of the lookup of a region of the peer's. If the entry is of no use, the peer itself is queried.
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
        // The check runs with all others, after completions have been delivered.
        self.mark(at);
    }

    /// Forgets the peer's keys, because the connection has changed its side: the peer may have reregistered regions meanwhile.
    pub(super) fn forget_keys(&mut self, at: usize) {
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        guard.looked_up = None;
        if let Some(peer) = guard.attr.path.map(|path| path.addresses.dst()) {
            self.remote_keys.retain(|(of, _), _| *of != peer);
        }
    }
}

/// The store key of the entry of the peer's queue pair.
fn peer_object(guard: &Guard) -> Option<Object> {
    let gid = mapped(guard.attr.path?.addresses.dst());
    Some(Object::QueuePair { gid, qpn: guard.attr.dest_qp? })
}

/// A wait that doubles each time, up to the longest.
fn grown(first: Duration, times: u32) -> Duration {
    first.saturating_mul(2u32.saturating_pow(times)).min(LONGEST_WAIT)
}
