//! The control thread of a NIC with a backup: domains, regions and connections of the NIC get their shadows at the backup there, in the
//! background, so that no verb waits for it (SHIFT §4.2).
//!
//! Whatever needs the peer is not waited for here either: two ends meet in the engines, each connection by itself, and paths to peers are asked
//! for all at a time. So nothing in the list waits behind something that cannot be done yet (appendix B.1).

mod lookups;

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use softnic_cm::Route;
use softnic_nic::transports::Event;
use softnic_nic::{MrError, ReceivedMad};
use softnic_shift::{DualNic, Notice, ProtectError, Reason, Refusal, Request};
use softnic_wire::failover::Side;
use softnic_wire::{Path, Qpn};

use self::lookups::Lookups;

use super::company::Company;
use super::events::Events;
use super::manager_news::{ManagerNews, News};
use super::path::{Network, Surroundings, Wire};
use crate::background::{Background, Stop};
use crate::engine::Engine;
use crate::failover::kv::Kv;
use crate::failover::list::{Control, PAUSE, Shadow};
use crate::locked::lock;

/// How soon to look again for what could not be done: a path whose next hop has not answered, a key that another region has.
const LOOK: Duration = Duration::from_micros(500);
/// How long the thread looks by itself after there was something to do. Verbs come in rows, and none of them is to pay for waking it: it would
/// take the processor from whoever woke it, and the engine's lock.
const ATTENTIVE: Duration = Duration::from_millis(100);

/// What a NIC with a backup has beside its engines.
pub(crate) struct Failover {
    // The first to go: the thread ends before what it uses does.
    thread: Background,
    pub(crate) control: Arc<Control>,
    pub(crate) company: Option<Company>,
    network: Arc<Network>,
    /// What the connection manager hears.
    pub(crate) manager: Arc<ManagerNews>,
    _attendant: Option<Background>,
}

impl Failover {
    /// Starts the thread.
    pub(crate) fn start(
        control: Arc<Control>,
        engines: &[Arc<Engine>],
        events: &Arc<Events>,
        around: Surroundings,
        store: &Kv,
    ) -> io::Result<Failover> {
        let Surroundings { network, company, attendant: _attendant, .. } = around;
        let (network, manager) = (Arc::new(network), Arc::<ManagerNews>::default());
        let lookups = match store {
            Kv::Peer => None,
            Kv::Redis(url) => Some(Lookups::start(url, &control)?),
        };
        let held: Vec<RawFd> = lookups.iter().flat_map(Lookups::descriptors).collect();
        let service = Service {
            control: Arc::clone(&control),
            engines: engines.to_vec(),
            events: Arc::clone(events),
            network: Arc::clone(&network),
            manager: Arc::clone(&manager),
            paths: Vec::new(),
            lookups,
            said: HashSet::new(),
        };
        let fd = control.wake.as_fd().as_raw_fd();
        let thread = Background::start("softnic-backup", move |stop| service.run(stop))?.holding(fd);
        let thread = held.into_iter().fold(thread, Background::holding);
        Ok(Failover { thread, control, company, network, manager, _attendant })
    }

    /// The network that the backup is on.
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// The descriptors that it holds.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        [self.thread.descriptors(), &self.network.descriptors()].concat()
    }
}

/// A path that an engine waits for.
struct PathWanted {
    engine: Arc<Engine>,
    qpn: Qpn,
    peer: IpAddr,
}

/// The thread's own.
struct Service {
    control: Arc<Control>,
    engines: Vec<Arc<Engine>>,
    events: Arc<Events>,
    /// The backup's.
    network: Arc<Network>,
    manager: Arc<ManagerNews>,
    paths: Vec<PathWanted>,
    /// The store, where it is not the peer itself.
    lookups: Option<Lookups>,
    /// Why connections to a peer have no backup, as far as it was said.
    said: HashSet<(Option<IpAddr>, ProtectError)>,
}

impl Service {
    fn run(mut self, stop: &Stop) {
        let control = Arc::clone(&self.control);
        let mut attentive_until = Instant::now();
        while !stop.is_told() {
            let now = Instant::now();
            let attentive = now < attentive_until;
            if !attentive {
                // Before the look: what comes after it wakes.
                control.wake.prepare_sleep();
            }
            let any = self.replay(now);
            // Engines have other things to do than to be asked.
            let busy = self.control.asked.swap(false, Ordering::AcqRel) && self.attend();
            self.find_paths();
            if any || busy || !self.paths.is_empty() {
                attentive_until = now + ATTENTIVE;
            }
            if !busy {
                let wait = match (any, self.paths.is_empty()) {
                    (_, false) => Some(LOOK),
                    // Each look takes lines of memory from the verbs of a row: not before something is due.
                    (true, true) => Some(control.due_in(now).unwrap_or(PAUSE).max(LOOK)),
                    (false, true) => attentive.then_some(PAUSE),
                };
                stop.wait(&control.wake, wait);
            }
            control.wake.drain();
        }
    }

    /// Does what is due of the list; whether there was anything in the list.
    fn replay(&mut self, now: Instant) -> bool {
        let (any, shadows, lines) = self.control.take(now);
        for line in lines {
            self.say(&line);
        }
        let left: Vec<Shadow> = shadows.into_iter().filter_map(|shadow| self.make(shadow)).collect();
        // Behind what was recorded meanwhile: of what is left nothing else depends on the order.
        lock(&self.control.list).shadows.extend(left);
        any
    }

    /// Makes a shadow; it comes back where that cannot be done yet.
    fn make(&mut self, shadow: Shadow) -> Option<Shadow> {
        match &shadow {
            Shadow::Pd(pd) => self.engines.iter().for_each(|engine| engine.control().dual().shadow_pd(*pd)),
            Shadow::Mr { key, pd, buffer, access, live } => {
                let made = self.make_region(*key, live, |node, shared| match buffer {
                    Some(buffer) => node.shadow_mr(*key, *pd, buffer, *access, shared),
                    None => node.shadow_null_mr(*key, *pd, *access, shared),
                });
                match made {
                    Ok(()) => {}
                    // At one engine the key belongs to something else: another one is drawn.
                    Err(MrError::NoKeys) => return Some(shadow),
                    Err(_) => self.refuse_region(*key, live),
                }
            }
            Shadow::Rest => {
                for engine in &self.engines {
                    let mut core = engine.control();
                    core.dual().catch_up();
                    core.pass_requests();
                }
            }
            Shadow::Protect { engine, qpn } => {
                let engine = self.engines.get(*engine)?;
                let mut core = engine.control();
                let now = core.driver.now();
                let done = core.dual().protect(now, *qpn);
                let peer = peer_of(core.dual(), *qpn);
                drop(core);
                match done {
                    Ok(()) => engine.wake(),
                    Err(why) => self.say_unprotected(peer, why),
                }
            }
        }
        None
    }

    /// Registers a region at the backup of each engine, under one key: the first one draws it.
    fn make_region(
        &self,
        default: u32,
        live: &AtomicBool,
        register: impl Fn(&mut DualNic, Option<u32>) -> Result<u32, MrError>,
    ) -> Result<(), MrError> {
        let mut shared = None;
        for engine in &self.engines {
            let mut core = engine.control();
            // Whoever takes it away has all engines: so it is not taken away as long as we have one.
            if !live.load(Ordering::Acquire) {
                return Ok(());
            }
            match register(core.dual(), shared) {
                Ok(key) => shared = Some(key),
                Err(why) => {
                    drop(core);
                    self.engines.iter().for_each(|engine| engine.control().dual().forget_mr(default));
                    return Err(if shared.is_some() { MrError::NoKeys } else { why });
                }
            }
            let awaited = core.dual().is_unsettled();
            drop(core);
            if awaited {
                engine.wake();
            }
        }
        Ok(())
    }

    /// The backup will not have a region: whoever waits for it learns of it.
    fn refuse_region(&self, default: u32, live: &AtomicBool) {
        for engine in &self.engines {
            let mut core = engine.control();
            if live.load(Ordering::Acquire) {
                core.dual().refuse_mr(default);
            }
            drop(core);
            engine.wake();
        }
    }

    /// Takes what the engines ask for and tell; whether there was anything.
    fn attend(&mut self) -> bool {
        let (mut notices, mut busy) = (Vec::new(), false);
        if let Some(lookups) = &mut self.lookups {
            let lines = lookups.tell(&self.engines);
            lines.iter().for_each(|line| self.say(line));
        }
        for (index, engine) in self.engines.iter().enumerate() {
            let mut core = engine.control();
            let node = core.dual();
            while let Some(request) = node.poll_request() {
                busy = true;
                match (request, &mut self.lookups) {
                    (Request::Path { qpn, peer }, _) => {
                        self.paths.push(PathWanted { engine: Arc::clone(engine), qpn, peer });
                    }
                    (request, Some(lookups)) => lookups.request(index, &request),
                    (_, None) => {}
                }
            }
            while let Some(notice) = node.poll_notice() {
                if let Some(news) = news_of(node, &notice) {
                    self.manager.leave(news);
                }
                let peer = peer_of(node, qpn_of(&notice));
                notices.push((notice, peer));
            }
            while let Some(ReceivedMad { src, dst, src_mac, mad, .. }) = node.poll_manager_mad() {
                let route = Route { mac: Some(src_mac), side: Side::Backup, ..Route::new(dst, src) };
                self.manager.leave(News::Came(route, Box::new(mad)));
                busy = true;
            }
        }
        busy |= !notices.is_empty();
        for (notice, peer) in notices {
            self.tell(notice, peer);
        }
        busy
    }

    /// Answers those whose path is known, or will not be.
    fn find_paths(&mut self) {
        let wire = Wire { engines: &self.engines, network: &self.network, number: DualNic::BACKUP };
        self.paths.retain(|PathWanted { engine, qpn, peer }| {
            // From the address that the peer was told, the first of its IP version.
            let from = wire.port().and_then(|p| p.addresses.iter().position(|own| own.is_ipv4() == peer.is_ipv4()));
            let path: Option<Path> = match wire.ask_path(from, *peer, qpn.value()) {
                Ok(None) => return true,
                Ok(Some(path)) => wire.port().and_then(|port| path.attr.path(&port).ok()),
                Err(_) => None,
            };
            let mut core = engine.control();
            let now = core.driver.now();
            core.dual().set_backup_path(now, *qpn, path);
            drop(core);
            engine.wake();
            false
        });
    }

    /// Something happened to a connection.
    fn tell(&mut self, notice: Notice, peer: Option<IpAddr>) {
        let to = peer.map(|peer| format!(" to {peer}")).unwrap_or_default();
        match notice {
            Notice::Protected(..) => self.say_protected(peer),
            Notice::Unprotected(_, why) => self.say_unprotected(peer, why),
            Notice::Moved(qpn, side, why) => {
                let how = match (side, why) {
                    (Side::Default, _) => "is back from its backup",
                    (Side::Backup, Reason::Retries) => "goes on by its backup: a work request ran out of retries",
                    (Side::Backup, Reason::Port) => "goes on by its backup: the port is down",
                    (Side::Backup, Reason::Peer) => "goes on by its backup: the peer does",
                };
                self.say(&format!("queue pair {:#08x}{to} {how}", qpn.value()));
                self.events.push(Event::PathMig(qpn));
            }
            Notice::Failed(qpn, why) => {
                let why = match why {
                    Refusal::Unsafe => "work is outstanding that must not be carried out twice",
                    Refusal::BothSides => "neither the NIC nor its backup reaches the peer",
                    Refusal::Peer => "the peer has ended it",
                    Refusal::Silence => "the peer does not answer by the backup",
                    Refusal::Lie => "what the peer says of its receives cannot be right",
                    Refusal::Key => "a backup has no region for a key of a work request",
                };
                self.say(&format!("queue pair {:#08x}{to} ends: {why}", qpn.value()));
                self.events.push(Event::PathMigErr(qpn));
            }
        }
    }

    /// A connection has no backup: said once for each peer and reason, and of kinds that never have one once.
    fn say_unprotected(&mut self, peer: Option<IpAddr>, why: ProtectError) {
        let peer = peer.filter(|_| why != ProtectError::Kind);
        let expected = matches!(why, ProtectError::State | ProtectError::Loopback | ProtectError::NoBackup);
        if !expected && self.said.insert((peer, why)) {
            let to = peer.map(|peer| format!(" to {peer}")).unwrap_or_default();
            self.say(&format!("connections{to} without a backup: {why}"));
        }
    }

    /// A connection has a backup, after it was said that those to its peer have none as long as the store does not say the right thing.
    fn say_protected(&mut self, peer: Option<IpAddr>) {
        let waited = [ProtectError::Absent, ProtectError::Unproven].map(|why| self.said.remove(&(peer, why)));
        if let (true, Some(peer)) = (waited.contains(&true), peer) {
            self.say(&format!("connections to {peer} have a backup now"));
        }
    }

    fn say(&self, line: &str) {
        match &self.control.lines {
            Some(lines) => lines.say(line),
            None => eprintln!("softnic: {line}"),
        }
    }
}

/// The queue pair that a notice is about.
fn qpn_of(notice: &Notice) -> Qpn {
    match *notice {
        Notice::Protected(qpn, _) | Notice::Unprotected(qpn, _) => qpn,
        Notice::Moved(qpn, ..) | Notice::Failed(qpn, _) => qpn,
    }
}

/// What a notice is to the connection manager.
fn news_of(node: &DualNic, notice: &Notice) -> Option<News> {
    match *notice {
        Notice::Protected(qpn, _) => {
            let path = node.backup_path(qpn)?;
            let route = Route::new(path.addresses.src(), path.addresses.dst());
            Some(News::Proven(qpn, Route { mac: Some(path.dst_mac), side: Side::Backup, ..route }))
        }
        Notice::Moved(qpn, side, _) => Some(News::Moved(qpn, side)),
        Notice::Unprotected(..) | Notice::Failed(..) => None,
    }
}

/// The peer of a queue pair, if it is connected.
fn peer_of(node: &DualNic, qpn: Qpn) -> Option<IpAddr> {
    Some(node.query_qp(qpn)?.1.path?.addresses.dst())
}
