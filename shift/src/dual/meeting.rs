//! Both ends of a connection exchange the data of their backups, and query each other's keys, by MADs between their QP1s. Ends with a store
//! look there first (`store`).

use std::net::IpAddr;
use std::time::Duration;

use softnic_nic::transports::qp::QpState;
use softnic_nic::{Nic, QpAttr, ReceivedMad};
use softnic_wire::failover::{BackupQp, Object, Side, connection_secret};
use softnic_wire::mad::failover::{
    FAILOVER_HELLO, FAILOVER_PROOF, FAILOVER_REGION, Hello, Mode, Readiness, RegionQuery, VERSION,
};
use softnic_wire::mad::vendor::Kind;
use softnic_wire::mad::{self, MAD_LEN, Status as MadStatus};
use softnic_wire::{Instant, Path, Qpn};

use super::agenda::QpnMap;
use super::perform::settings_of;
use super::{Backup, Notice, ProtectError, Request, Store};
use crate::connection::{Guard, Plain, Stage, parts};

/// How long the first query waits for an answer. Each further query waits twice as long, up to the longest wait.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Unanswered queries after which the peer counts as having no backup.
const SILENCE: u32 = 12;
/// How long a query for a key waits for an answer.
const KEY_WAIT: Duration = Duration::from_millis(20);

impl Backup {
    /// Queries the peer or the store, if the time has come.
    pub(super) fn meet(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        let Some(guard) = self.guard(at) else { return };
        if guard.ask_at.is_none_or(|at| now < at) {
            return;
        }
        match (guard.stage, self.config.store) {
            (Stage::Meeting, Store::Peer) => self.ask_peer(nic, now, at),
            (Stage::Meeting, Store::External { .. }) => self.ask_store(at),
            (Stage::Proving, _) => self.prove(now, at),
            _ => {}
        }
    }

    fn ask_peer(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        let gid = self.nic.port().addresses.clone();
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        let Some(path) = guard.attr.path else { return };
        if guard.asked == SILENCE {
            return self.unprotect(at, ProtectError::Peer);
        }
        let mut mad = [0; MAD_LEN];
        hello(plain, guard, &gid, Kind::Offer, u64::from(plain.qpn.value())).emit(&mut mad);
        nic.post_mad(Nic::WIRE, &path, &mad);
        guard.ask_at = Some(now + (FIRST_WAIT * 2u32.saturating_pow(guard.asked)).min(LONGEST_WAIT));
        guard.asked += 1;
    }

    /// Handles a MAD for software that reached QP1 of a local NIC: a failover MAD, or at the backup a MAD of the connection manager.
    pub(super) fn handle_mad(&mut self, nic: &mut Nic, now: Instant, side: Side, received: &ReceivedMad) {
        if self.manager_mads.take(received) {
            return;
        }
        let Ok(header) = mad::Repr::parse(&received.mad) else { return };
        if header.method == mad::Method::GET_RESP && header.status != MadStatus::SUCCESS {
            // The peer does not support this MAD class. The transaction id ends with the local queue pair number.
            let qpn = Qpn::new(header.transaction_id as u32 & 0x00ff_ffff);
            if self.config.store == Store::Peer
                && let Some(&at) = self.by_qpn.get(&qpn)
                && self.is_peer(at, side, received.src)
                && self.guard(at).is_some_and(|guard| guard.stage == Stage::Meeting)
            {
                self.unprotect(at, ProtectError::Peer);
            }
            return;
        }
        match header.attribute_id {
            FAILOVER_HELLO => self.handle_hello(nic, received),
            FAILOVER_REGION => self.handle_region(nic, now, side, received),
            FAILOVER_PROOF => self.handle_proof(nic, now, side, received),
            _ => {}
        }
    }

    /// Whether an address is that of a connection's peer at a side.
    pub(super) fn is_peer(&self, at: usize, side: Side, src: IpAddr) -> bool {
        let Some(guard) = self.guard(at) else { return false };
        match side {
            Side::Default => guard.attr.path.is_some_and(|path| path.addresses.dst() == src),
            Side::Backup => guard.peer.is_some_and(|peer| address_of(&peer) == src),
        }
    }

    fn handle_hello(&mut self, nic: &mut Nic, received: &ReceivedMad) {
        let Ok(theirs) = Hello::parse(&received.mad) else { return };
        let gid = self.nic.port().addresses.clone();
        // An end that uses a store has no data for the peer here. It answers at once, so that the peer need not wait.
        let at = self.by_qpn.get(&theirs.receiver_qpn).copied().filter(|_| self.config.store == Store::Peer);
        let known = at.filter(|&at| self.is_peer(at, Side::Default, received.src));
        let place = |at: usize| self.connections.get(at)?.as_ref();
        let may_come = at.and_then(place).is_some_and(|connection| !connection.refused);
        if theirs.kind == Kind::Offer {
            let answer = match known.and_then(|at| parts(&mut self.connections, at)) {
                Some((plain, guard)) => {
                    let kind = Kind::Answer(MadStatus::SUCCESS);
                    hello(plain, guard, &gid, kind, theirs.transaction_id)
                }
                // The connection is not protected, for now or for good: often this end cannot tell which.
                None => Hello {
                    kind: Kind::Answer(MadStatus::SUCCESS),
                    sender_qpn: theirs.receiver_qpn,
                    receiver_qpn: theirs.sender_qpn,
                    readiness: if may_come { Readiness::NotYet } else { Readiness::None },
                    nonce: [0; 16],
                    backup: None,
                    ..theirs
                },
            };
            let mut mad = [0; MAD_LEN];
            answer.emit(&mut mad);
            if let Some(path) = nic.path_to(received.src, received.src_mac, theirs.receiver_qpn.value()) {
                nic.post_mad(Nic::WIRE, &path, &mad);
            }
        }
        let Some(at) = known else { return };
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        let fits = guard.attr.dest_qp == Some(theirs.sender_qpn);
        if guard.stage != Stage::Meeting || !fits {
            return;
        }
        match (theirs.mode, theirs.readiness, theirs.backup) {
            (Mode::Other(_), ..) => self.unprotect(at, ProtectError::Mode),
            (_, Readiness::None, _) => self.unprotect(at, ProtectError::Peer),
            // The peer is alive: the queries continue for as long as the peer needs.
            (_, Readiness::NotYet, _) | (_, _, None) => guard.asked = guard.asked.min(SILENCE / 2),
            // A local address is not the peer's: traffic to it would come back to this NIC.
            (.., Some(peer)) if gid.contains(&address_of(&peer)) => self.unprotect(at, ProtectError::Peer),
            (Mode::Shift, Readiness::Ready, Some(peer)) => {
                self.requests.push_back(introduce(plain, guard, peer, theirs.nonce));
            }
        }
    }

    /// Sets the path to the peer's backup; `None` if there is none.
    pub(super) fn set_path(&mut self, nic: &mut Nic, now: Instant, at: usize, path: Option<Path>) {
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        if guard.stage != Stage::NoPath {
            return;
        }
        guard.path = path;
        let failed = match path {
            None => Some(ProtectError::NoPath),
            Some(_) => (!self.connect_backup(at)).then_some(ProtectError::Resources),
        };
        match (failed, self.config.store) {
            (None, Store::Peer) => self.set_ready(nic, now, at),
            (None, Store::External { .. }) => self.begin_to_prove(now, at),
            (Some(why), Store::Peer) => self.unprotect(at, why),
            // The entry may be that of another host.
            (Some(why), Store::External { .. }) => self.drop_entry(now, at, Some(why)),
        }
    }

    /// Both ends have each other's data: the connection has a backup from now on.
    pub(super) fn set_ready(&mut self, nic: &mut Nic, now: Instant, at: usize) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        let Some(peer) = guard.peer else { return };
        (guard.stage, guard.ask_at) = (Stage::Ready, None);
        self.notices.push_back(Notice::Protected(plain.qpn, address_of(&peer)));
        self.counters.protected += 1;
        self.await_peer(at);
        self.check_port(nic, now, at);
        // A faster peer may have written its status already.
        self.look_at(nic, now, at);
    }

    /// Connects the queue pair at the backup, which has sent nothing yet, with the settings of the program's. Returns whether that succeeded.
    pub(super) fn connect_backup(&mut self, at: usize) -> bool {
        let Backup { nic: backup, connections, .. } = self;
        let Some((_, guard)) = parts(connections, at) else { return false };
        let Some(peer) = guard.peer else { return false };
        let mut settings = settings_of(&guard.attr);
        (settings.path, settings.dest_qp) = (guard.path, peer.qpn);
        (settings.sq_psn, settings.rq_psn) = (guard.backup_psn, peer.psn);
        settings.port = 1;
        let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
        backup.modify_qp(guard.backup, &reset).and_then(|()| backup.connect(guard.backup, &settings)).is_ok()
    }

    /// Leaves a connection without a backup.
    fn unprotect(&mut self, at: usize, why: ProtectError) {
        let Some((plain, guard)) = parts(&mut self.connections, at) else { return };
        (guard.stage, guard.ask_at) = (Stage::Unprotected, None);
        let qpn = plain.qpn;
        // The next check of the connection releases the resources at the backup.
        self.mark(at);
        self.notices.push_back(Notice::Unprotected(qpn, why));
    }

    /// Queries the peer for a key that a send waits for, if the time has come.
    pub(super) fn ask_for_key(&mut self, now: Instant, at: usize) {
        let Backup { nic: backup, connections, config, requests, .. } = self;
        let Some((plain, guard)) = parts(connections, at) else { return };
        if guard.machine.send_side() != Some(Side::Backup) {
            guard.wanted = None;
        }
        let (Some((rkey, when)), Some(path), Some(peer)) = (guard.wanted, guard.path, guard.peer) else { return };
        if now < when {
            return;
        }
        let receiver_qpn = peer.qpn;
        guard.wanted = Some((rkey, now + KEY_WAIT));
        // The store is asked first, once. The peer is asked if the store has no entry, or does not answer for `KEY_WAIT`.
        if matches!(config.store, Store::External { .. })
            && guard.looked_up != Some(rkey)
            && let Some(gid) = guard.attr.path.map(|path| mapped(path.addresses.dst()))
        {
            guard.looked_up = Some(rkey);
            requests.push_back(Request::Get { qpn: plain.qpn, object: Object::Region { gid, rkey } });
            return;
        }
        // MADs between the backups name the backups' queue pairs: steering at the backup knows no others.
        let (kind, sender_qpn) = (Kind::Offer, guard.backup);
        let transaction_id = u64::from(rkey) << 32 | u64::from(sender_qpn.value());
        let query = RegionQuery {
            transaction_id,
            kind,
            version: VERSION,
            sender_qpn,
            receiver_qpn,
            rkey,
            answer: None,
            pending: false,
        };
        let mut mad = [0; MAD_LEN];
        query.emit(&mut mad);
        backup.post_mad(Nic::WIRE, &path, &mad);
    }

    fn handle_region(&mut self, nic: &mut Nic, now: Instant, side: Side, received: &ReceivedMad) {
        let Ok(query) = RegionQuery::parse(&received.mad) else { return };
        // Each path has its own queue pairs. A peer that names those of the default is accepted as well.
        let named = |all: &QpnMap| all.get(&query.receiver_qpn).copied();
        let Some(at) = named(&self.by_backup).or(named(&self.by_qpn)) else { return };
        if !self.is_peer(at, side, received.src) {
            return;
        }
        if query.kind == Kind::Offer {
            let answer = self.region(query.rkey);
            // A region that the default has and the backup has not is being registered, unless the backup has refused it.
            let pending = answer.is_none() && nic.has_region(query.rkey) && !self.without_shadow.contains(&query.rkey);
            let (sender_qpn, receiver_qpn) = (query.receiver_qpn, query.sender_qpn);
            let kind = Kind::Answer(MadStatus::SUCCESS);
            let reply = RegionQuery { kind, sender_qpn, receiver_qpn, answer, pending, ..query };
            let mut mad = [0; MAD_LEN];
            reply.emit(&mut mad);
            let of = if side == Side::Default { nic } else { &mut self.nic };
            if let Some(path) = of.path_to(received.src, received.src_mac, sender_qpn.value()) {
                of.post_mad(Nic::WIRE, &path, &mad);
            }
            return;
        }
        let Some((_, guard)) = parts(&mut self.connections, at) else { return };
        if guard.wanted.is_none_or(|(rkey, _)| rkey != query.rkey) || query.pending {
            return;
        }
        guard.wanted = None;
        let peer = guard.attr.path.map(|path| path.addresses.dst());
        match (query.answer, peer) {
            (Some(region), Some(peer)) => {
                self.remote_keys.insert((peer, query.rkey), region.backup_rkey);
            }
            _ => guard.machine.fail(crate::machine::Refusal::Key),
        }
        self.look_at(nic, now, at);
    }
}

/// Takes over the peer's backup, as the peer or a store described it. Returns the request for the path to it.
pub(super) fn introduce(plain: &Plain, guard: &mut Guard, peer: BackupQp, nonce: [u8; 16]) -> Request {
    // One secret for each direction: a status that is reflected to its writer does not verify as the peer's.
    guard.secrets = [connection_secret([guard.nonce, nonce]), connection_secret([nonce, guard.nonce])];
    guard.peer = Some(peer);
    (guard.stage, guard.ask_at) = (Stage::NoPath, None);
    Request::Path { qpn: plain.qpn, peer: address_of(&peer) }
}

/// The local backup as the peer needs to know it, with the one of these addresses that fits the connection's IP version.
pub(super) fn backup_of(guard: &Guard, gids: &[IpAddr]) -> Option<BackupQp> {
    let own = guard.attr.path.map(|path| path.addresses.src());
    let gid = gids.iter().find(|gid| own.is_some_and(|own| own.is_ipv4() == gid.is_ipv4()));
    gid.zip(guard.attr.mtu).map(|(&gid, mtu)| BackupQp {
        gid: mapped(gid),
        qpn: guard.backup,
        psn: guard.backup_psn,
        mtu,
        control_addr: guard.control.addr(),
        control_keys: guard.control_keys,
    })
}

/// The local Hello MAD.
fn hello(plain: &Plain, guard: &Guard, gids: &[IpAddr], kind: Kind, transaction_id: u64) -> Hello {
    let unprotected = guard.stage == Stage::Unprotected;
    Hello {
        transaction_id,
        kind,
        version: VERSION,
        sender_qpn: plain.qpn,
        receiver_qpn: guard.attr.dest_qp.unwrap_or(Qpn::new(0)),
        mode: Mode::Shift,
        readiness: if unprotected { Readiness::None } else { Readiness::Ready },
        nonce: guard.nonce,
        backup: backup_of(guard, gids).filter(|_| !unprotected),
    }
}

pub(super) fn mapped(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn address_of(peer: &BackupQp) -> IpAddr {
    peer.gid.to_canonical()
}
