//! Two NICs of a host as one Node: the default NIC, which programs see, and the backup NIC.

mod access;
mod agenda;
mod attributes;
mod endings;
mod guards;
mod manager;
mod meeting;
mod node;
mod owed;
mod perform;
mod progress;
mod pump;
mod requests;
mod shadows;
mod store;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use softnic_nic::transports::memory::PdId;
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{Completion, CqId, Event, Transport};
use softnic_nic::{CqError, Generator, Nic, ObjectError, QpInit, QpKind};
use softnic_wire::failover::{RegionAnswer, Side};
use softnic_wire::{Instant, Path, Qpn};

use agenda::{Agenda, QpnMap, Standing};
use owed::Owed;

use crate::connection::{Connection, Guard, Stage};
use crate::counters::FailoverCounters;
use crate::machine::Machine;

pub use requests::{Config, Lookup, Notice, ProtectError, Request, Store};

/// Room in queue pairs for work of our own: a probe or a notification, followed by the status. At the default, the program's work may fill
/// the whole queue; room is free again when part of that work is complete.
const OWN_SENDS: u32 = 4;

/// Number of verb calls in a row whose deferred work at the backup fits without an allocation.
const ROW: usize = 16;

/// A region of the default NIC, as registered at the backup.
#[derive(Debug, Clone)]
struct ShadowRegion {
    addr: u64,
    len: u64,
    key: u32,
    /// The GIDs of the default under which the store has an entry for the region.
    stored: Vec<Ipv6Addr>,
}

/// The backup NIC and the state of all connections. Field order matters: the fields that every verb reads are adjacent, ahead of the NIC.
#[repr(C)]
struct Backup {
    by_qpn: QpnMap,
    connections: Vec<Option<Connection>>,
    /// Work that verbs have deferred to the backup.
    owed: Vec<Owed>,
    requests: VecDeque<Request>,
    notices: VecDeque<Notice>,
    manager_mads: manager::ManagerMads,
    events: VecDeque<Event>,
    /// An event may concern some connection.
    due: bool,
    /// Unused places in `connections`.
    free: Vec<usize>,
    agenda: Agenda,
    nic: Nic,
    config: Config,
    random: Box<dyn Generator>,
    /// The completion queues of all backup queue pairs. They are drained at once.
    send_cq: CqId,
    recv_cq: CqId,
    pds: HashMap<PdId, PdId>,
    regions: BTreeMap<u32, ShadowRegion>,
    /// The keys of the default, by key of the backup.
    default_keys: BTreeMap<u32, u32>,
    /// Regions of the default that the backup will never have.
    without_shadow: HashSet<u32>,
    /// Keys of peers' regions at the peers' backups.
    remote_keys: BTreeMap<(IpAddr, u32), u32>,
    by_backup: QpnMap,
    /// Connections whose work waits for a region to be registered at the backup.
    keyless: Vec<usize>,
    /// The `wr_id` of work of our own.
    own_wr_id: u64,
    /// Halted queue pairs and port changes that are not yet handled.
    failures: Vec<(Side, Event)>,
    /// For each side, whether its port is down.
    down: [bool; 2],
    /// The program has received a port error because both ports are down, and no port-active event since.
    told_down: bool,
    counters: FailoverCounters,
}

/// The default NIC, with or without a backup NIC.
pub struct DualNic {
    /// The default NIC, which holds the program's objects.
    pub nic: Nic,
    backup: Option<Box<Backup>>,
}

impl DualNic {
    /// The wire port of the backup, numbered after that of the default.
    pub const BACKUP: usize = Nic::WIRE + 1;

    /// A NIC without a backup.
    pub fn single(nic: Nic) -> DualNic {
        DualNic { nic, backup: None }
    }

    /// A NIC and its backup. `random` supplies nonces, PSNs and keys of control memory.
    pub fn new(mut nic: Nic, mut backup: Nic, config: Config, mut random: Box<dyn Generator>) -> DualNic {
        let (send_cq, recv_cq) = (backup.create_cq_unbounded(), backup.create_cq_unbounded());
        nic.take_mads(true);
        backup.take_cm_mads();
        let own_wr_id = u64::from(random.next_u32()) << 32 | u64::from(random.next_u32());
        // The program's completion queues are sized for the program's work alone.
        nic.set_own_work(own_wr_id);
        let backup = Backup {
            nic: backup,
            config,
            random,
            send_cq,
            recv_cq,
            pds: HashMap::new(),
            regions: BTreeMap::new(),
            default_keys: BTreeMap::new(),
            without_shadow: HashSet::new(),
            remote_keys: BTreeMap::new(),
            connections: Vec::new(),
            free: Vec::new(),
            by_qpn: QpnMap::default(),
            by_backup: QpnMap::default(),
            agenda: Agenda::default(),
            owed: Vec::with_capacity(ROW),
            keyless: Vec::new(),
            own_wr_id,
            due: false,
            failures: Vec::new(),
            down: [false; 2],
            told_down: false,
            requests: VecDeque::new(),
            notices: VecDeque::new(),
            manager_mads: manager::ManagerMads::default(),
            events: VecDeque::new(),
            counters: FailoverCounters::default(),
        };
        DualNic { nic, backup: Some(Box::new(backup)) }
    }

    /// The backup NIC, if there is one.
    pub fn backup(&mut self) -> Option<&mut Nic> {
        let backup = self.backup.as_mut()?;
        backup.catch_up(&mut self.nic);
        // The caller may change the link.
        backup.due = true;
        Some(&mut backup.nic)
    }

    /// Reports the port of a side as down or up while its NIC continues to send: frames are lost beyond the NIC. [`Nic::set_link`] is for a
    /// port that holds its frames back.
    pub fn set_port(&mut self, side: Side, up: bool) {
        if let Some(backup) = &mut self.backup {
            backup.take_event(side, if up { Event::PortActive } else { Event::PortErr });
        }
    }

    /// Whether a connection may change without a frame or a timer. Such a connection may have waited for the caller's last action.
    pub fn is_unsettled(&self) -> bool {
        self.backup.as_ref().is_some_and(|backup| backup.agenda.any_unsettled())
    }

    /// How often a connection was checked so far: the cost of failover beyond the packets themselves.
    #[doc(hidden)]
    pub fn looks(&self) -> u64 {
        self.backup.as_ref().map_or(0, |backup| backup.agenda.looks)
    }

    /// The number of sends of a connection that are currently kept by value.
    #[doc(hidden)]
    pub fn kept_sends(&self, qpn: Qpn) -> usize {
        let guard = self.backup.as_ref().and_then(|backup| backup.guard(*backup.by_qpn.get(&qpn)?));
        guard.map_or(0, |guard| guard.queue.len() + guard.at_backup.len())
    }

    /// The failover counters; `None` without a backup.
    pub fn failover_counters(&self) -> Option<&FailoverCounters> {
        self.backup.as_ref().map(|backup| &backup.counters)
    }

    /// Whether [`DualNic::poll_request`], [`DualNic::poll_notice`] or [`DualNic::poll_manager_mad`] would return an item.
    #[inline]
    pub fn has_requests(&self) -> bool {
        self.backup.as_ref().is_some_and(|backup| {
            !(backup.requests.is_empty() && backup.notices.is_empty() && backup.manager_mads.is_empty())
        })
    }

    /// The next request to the driver of the Node.
    pub fn poll_request(&mut self) -> Option<Request> {
        // Deferred removals may add requests to delete store entries.
        self.catch_up();
        self.backup.as_mut()?.requests.pop_front()
    }

    /// The next notice about a connection.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.backup.as_mut()?.notices.pop_front()
    }

    /// The next event for the program: the events of the default NIC, except those that failover handles.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let any = self.nic.has_news() || self.backup.as_ref().is_some_and(|backup| !backup.events.is_empty());
        if any { self.next_event() } else { None }
    }

    fn next_event(&mut self) -> Option<Event> {
        let Some(backup) = &mut self.backup else { return self.nic.poll_event() };
        while let Some(event) = self.nic.poll_event() {
            backup.take_event(Side::Default, event);
        }
        backup.events.pop_front()
    }

    /// The oldest completion of a queue of the default NIC. Completions of work of our own are not reported.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId) -> Result<Option<Completion>, CqError> {
        self.nic.poll_cq(cq)
    }

    /// Creates a queue pair at the default NIC. A queue pair that can be protected counts its messages from now on.
    ///
    /// # Errors
    /// As [`Nic::create_qp`].
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, ObjectError> {
        let Some(backup) = self.backup.as_mut().filter(|_| init.kind() == QpKind::Rc && init.srq.is_none()) else {
            return self.nic.create_qp(init);
        };
        let caps = Caps { max_send_wr: init.caps.max_send_wr.max(OWN_SENDS), ..init.caps };
        let qpn = self.nic.create_qp(&QpInit { caps, sig_all: false, halt_on_retry_exceeded: true, ..*init })?;
        let at = backup.free.pop().unwrap_or(backup.connections.len());
        let connection = Some(Connection::new(qpn, init));
        match backup.connections.get_mut(at) {
            Some(place) => *place = connection,
            None => backup.connections.push(connection),
        }
        backup.by_qpn.insert(qpn, at);
        Ok(qpn)
    }

    /// Destroys a queue pair of the default NIC and its counterpart at the backup.
    ///
    /// # Errors
    /// As [`Nic::destroy_qp`].
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ObjectError> {
        self.nic.destroy_qp(qpn)?;
        if let Some(backup) = &mut self.backup
            && let Some(at) = backup.by_qpn.remove(&qpn)
        {
            if let Some(guard) = backup.connections[at].take().and_then(|connection| connection.guard) {
                backup.leave_guard(&mut self.nic, at, guard);
            }
            backup.free.push(at);
        }
        Ok(())
    }

    /// Starts to protect a connected queue pair: creates its counterpart at the backup, and asks the peer for its own.
    ///
    /// # Errors
    /// Why the connection cannot be protected. The queue pair continues to work without a backup.
    pub fn protect(&mut self, now: Instant, qpn: Qpn) -> Result<(), ProtectError> {
        let backup = self.backup.as_mut().ok_or(ProtectError::NoBackup)?;
        backup.catch_up(&mut self.nic);
        let at = *backup.by_qpn.get(&qpn).ok_or(ProtectError::Kind)?;
        let (_, attr) = self.nic.query_qp(qpn).ok_or(ProtectError::State)?;
        let gave_up = backup.connections[at].as_ref().is_some_and(|connection| connection.gave_up);
        if backup.guard(at).is_some() || gave_up {
            // Protection started when the queue pair became ready to receive.
            return Ok(());
        }
        let receives_only = match self.nic.qp_state(qpn) {
            Some(QpState::ReadyToReceive) => true,
            Some(QpState::ReadyToSend) => false,
            _ => return Err(ProtectError::State),
        };
        let made = backup.make_guard(&mut self.nic, at, &attr, now);
        let Some(connection) = &mut backup.connections[at] else { return Err(ProtectError::Kind) };
        connection.refused = made.is_err();
        connection.guard = Some(Box::new(Guard { receives_only, ..made? }));
        backup.begin_to_meet(&mut self.nic, now, at);
        backup.note(at);
        backup.mark(at);
        Ok(())
    }

    /// Answers a path request of [`DualNic::poll_request`] with the path to the peer's backup. Without a path the connection is not protected.
    pub fn set_backup_path(&mut self, now: Instant, qpn: Qpn, path: Option<Path>) {
        let DualNic { nic, backup: Some(backup) } = self else { return };
        backup.catch_up(nic);
        if let Some(&at) = backup.by_qpn.get(&qpn) {
            backup.set_path(nic, now, at, path);
        }
    }

    /// Whether a connection has a backup at both ends.
    pub fn is_protected(&self, qpn: Qpn) -> bool {
        let Some(backup) = &self.backup else { return false };
        backup.by_qpn.get(&qpn).is_some_and(|&at| backup.guard(at).is_some_and(|guard| guard.stage == Stage::Ready))
    }

    /// The state machine of a connection: which side its sends use, and why; `None` if the connection has no backup.
    pub fn machine(&self, qpn: Qpn) -> Option<&Machine> {
        let backup = self.backup.as_ref()?;
        backup.guard(*backup.by_qpn.get(&qpn)?).map(|guard| &guard.machine)
    }
}

impl Backup {
    fn guard(&self, at: usize) -> Option<&Guard> {
        self.connections.get(at)?.as_ref()?.guard.as_deref()
    }

    /// A region of the default, as registered at the backup, for a peer that asks.
    fn region(&self, rkey: u32) -> Option<RegionAnswer> {
        let ShadowRegion { addr, len, key, .. } = *self.regions.get(&rkey)?;
        Some(RegionAnswer { addr, len, backup_rkey: key })
    }

    /// Schedules a connection to be checked before the next frame leaves.
    fn mark(&mut self, at: usize) {
        self.agenda.mark(at);
        self.due = true;
    }

    /// Updates when a connection is to be checked, after its state may have changed.
    fn note(&mut self, at: usize) {
        let standing = match self.connections.get(at) {
            Some(Some(Connection { plain, guard: Some(guard), .. })) => Standing {
                unsettled: guard.is_unsettled(),
                wary: guard.recv_moved,
                holds_frames: matches!(plain.init.transport, Transport::Lowar(_)),
                timeout: guard.poll_timeout(),
            },
            _ => Standing::default(),
        };
        self.agenda.note(at, standing);
        if let Some(Some(connection)) = self.connections.get_mut(at) {
            connection.calm = connection.guard.as_ref().is_none_or(|guard| guard.is_calm());
        }
    }
}
