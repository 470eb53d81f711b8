//! Two NICs of a host as one Node: the default, which programs know, and the backup.

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

/// Room in queue pairs for work of our own: a probe or a notification, and the status behind it. The default's, where the program's work may
/// take all of it, has room again when some of that is done.
const OWN_SENDS: u32 = 4;

/// So many verbs of a row leave something to be done at the backup without asking for memory.
const ROW: usize = 16;

/// A region of the default NIC at the backup.
#[derive(Debug, Clone)]
struct ShadowRegion {
    addr: u64,
    len: u64,
    key: u32,
    /// Under which GIDs of the default the store has it.
    stored: Vec<Ipv6Addr>,
}

/// The second NIC, and what is known of connections. In this order: what every verb looks at is together, and not behind the NIC.
#[repr(C)]
struct Backup {
    by_qpn: QpnMap,
    connections: Vec<Option<Connection>>,
    /// What verbs have left to be done here.
    owed: Vec<Owed>,
    requests: VecDeque<Request>,
    notices: VecDeque<Notice>,
    manager_mads: manager::ManagerMads,
    events: VecDeque<Event>,
    /// Something happened that connections may have to know of.
    due: bool,
    /// Places of connections that are gone.
    free: Vec<usize>,
    agenda: Agenda,
    nic: Nic,
    config: Config,
    random: Box<dyn Generator>,
    /// Where everything at the backup completes: it is taken from there at once.
    send_cq: CqId,
    recv_cq: CqId,
    pds: HashMap<PdId, PdId>,
    regions: BTreeMap<u32, ShadowRegion>,
    /// The keys of the default, by those of the backup.
    default_keys: BTreeMap<u32, u32>,
    /// Regions of the default that the backup will never have.
    without_shadow: HashSet<u32>,
    /// Keys of peers' regions: at their backup.
    remote_keys: BTreeMap<(IpAddr, u32), u32>,
    by_backup: QpnMap,
    /// Connections whose work waits for a region to be registered at the backup.
    keyless: Vec<usize>,
    /// The name of receives of our own.
    own_wr_id: u64,
    /// Queue pairs that halted, and ports that changed.
    failures: Vec<(Side, Event)>,
    /// The port of each side is down.
    down: [bool; 2],
    /// The program was told that no port is left, and not yet that there is one again.
    told_down: bool,
    counters: FailoverCounters,
}

/// The default NIC, and a backup where there is one.
pub struct DualNic {
    /// The default: where programs have their objects.
    pub nic: Nic,
    backup: Option<Box<Backup>>,
}

impl DualNic {
    /// The wire port of the backup, behind that of the default.
    pub const BACKUP: usize = Nic::WIRE + 1;

    /// A NIC without a backup.
    pub fn single(nic: Nic) -> DualNic {
        DualNic { nic, backup: None }
    }

    /// A NIC and its backup. Nonces, PSNs and keys of control memory come from `random`.
    pub fn new(mut nic: Nic, mut backup: Nic, config: Config, mut random: Box<dyn Generator>) -> DualNic {
        let (send_cq, recv_cq) = (backup.create_cq_unbounded(), backup.create_cq_unbounded());
        nic.take_mads(true);
        backup.take_cm_mads();
        let own_wr_id = u64::from(random.next_u32()) << 32 | u64::from(random.next_u32());
        // The program's completion queues have room for its own work alone.
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

    /// The backup, if there is one.
    pub fn backup(&mut self) -> Option<&mut Nic> {
        let backup = self.backup.as_mut()?;
        backup.catch_up(&mut self.nic);
        // Its link may be about to change.
        backup.due = true;
        Some(&mut backup.nic)
    }

    /// The port of a side is down, or up again, although its NIC goes on sending: frames are lost behind it. [`Nic::set_link`] is for a port
    /// whose frames wait.
    pub fn set_port(&mut self, side: Side, up: bool) {
        if let Some(backup) = &mut self.backup {
            backup.take_event(side, if up { Event::PortActive } else { Event::PortErr });
        }
    }

    /// Whether something may happen to a connection that no frame and no timer tells of: it may have waited for what was just done.
    pub fn is_unsettled(&self) -> bool {
        self.backup.as_ref().is_some_and(|backup| backup.agenda.any_unsettled())
    }

    /// How often a connection was looked at so far: what failover costs beside the packets themselves.
    #[doc(hidden)]
    pub fn looks(&self) -> u64 {
        self.backup.as_ref().map_or(0, |backup| backup.agenda.looks)
    }

    /// How many sends of a connection are kept by value at present.
    #[doc(hidden)]
    pub fn kept_sends(&self, qpn: Qpn) -> usize {
        let guard = self.backup.as_ref().and_then(|backup| backup.guard(*backup.by_qpn.get(&qpn)?));
        guard.map_or(0, |guard| guard.queue.len() + guard.at_backup.len())
    }

    /// What failover did so far.
    pub fn failover_counters(&self) -> Option<&FailoverCounters> {
        self.backup.as_ref().map(|backup| &backup.counters)
    }

    /// Whether [`DualNic::poll_request`], [`DualNic::poll_notice`] or [`DualNic::poll_manager_mad`] has something.
    #[inline]
    pub fn has_requests(&self) -> bool {
        self.backup.as_ref().is_some_and(|backup| {
            !(backup.requests.is_empty() && backup.notices.is_empty() && backup.manager_mads.is_empty())
        })
    }

    /// Something that the Node needs to know.
    pub fn poll_request(&mut self) -> Option<Request> {
        // What is gone leaves entries in a store.
        self.catch_up();
        self.backup.as_mut()?.requests.pop_front()
    }

    /// Something that happened to a connection.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.backup.as_mut()?.notices.pop_front()
    }

    /// The next event for the program: those of the default NIC, without what failover takes care of.
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

    /// The oldest completion of a queue of the default NIC. What became of work of our own is not told.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId) -> Result<Option<Completion>, CqError> {
        self.nic.poll_cq(cq)
    }

    /// Makes a queue pair of the default NIC. One that can be protected counts its messages from now on.
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

    /// Destroys a queue pair of the default NIC, and the one at the backup.
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

    /// A connected queue pair gets one at the backup, and the peer is asked for its own.
    ///
    /// # Errors
    /// Why it has none. It works as ever.
    pub fn protect(&mut self, now: Instant, qpn: Qpn) -> Result<(), ProtectError> {
        let backup = self.backup.as_mut().ok_or(ProtectError::NoBackup)?;
        backup.catch_up(&mut self.nic);
        let at = *backup.by_qpn.get(&qpn).ok_or(ProtectError::Kind)?;
        let (_, attr) = self.nic.query_qp(qpn).ok_or(ProtectError::State)?;
        let gave_up = backup.connections[at].as_ref().is_some_and(|connection| connection.gave_up);
        if backup.guard(at).is_some() || gave_up {
            // Since it was ready to receive.
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

    /// The way to the peer's backup, as [`DualNic::poll_request`] asked for it; without one there is no protection.
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

    /// Where the sends of a connection are, and why; `None` where it has no backup.
    pub fn machine(&self, qpn: Qpn) -> Option<&Machine> {
        let backup = self.backup.as_ref()?;
        backup.guard(*backup.by_qpn.get(&qpn)?).map(|guard| &guard.machine)
    }
}

impl Backup {
    fn guard(&self, at: usize) -> Option<&Guard> {
        self.connections.get(at)?.as_ref()?.guard.as_deref()
    }

    /// A region of the default as the backup knows it, for a peer that asks.
    fn region(&self, rkey: u32) -> Option<RegionAnswer> {
        let ShadowRegion { addr, len, key, .. } = *self.regions.get(&rkey)?;
        Some(RegionAnswer { addr, len, backup_rkey: key })
    }

    /// A connection is to be looked at before the next frame leaves.
    fn mark(&mut self, at: usize) {
        self.agenda.mark(at);
        self.due = true;
    }

    /// Something was done to a connection: when it is looked at follows from how it stands now.
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
