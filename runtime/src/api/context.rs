//! An opened NIC, and its protection domains.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use softnic_nic::transports::memory::{Bind, PdId};
use softnic_nic::transports::{Counters, Event};
use softnic_nic::{Layer, Nic, Port};
use softnic_shift::FailoverCounters;
use softnic_wire::Qpn;

use super::allowance::Allowance;
use super::company::Company;
use super::events::Events;
use super::failover::Failover;
use super::link_down::LinkDown;
use super::path::{Network, Surroundings};
use super::status;
use crate::background::Background;
use crate::engine::{Core, Engine, Watcher};
use crate::failover::list::{Control, Shadow};
use crate::locked::lock;
use crate::share::Limits;

/// How long a NIC that ends waits for frames that faults hold back.
const HELD_BACK: Duration = Duration::from_millis(500);

/// An opened NIC. Clones are the same NIC; it is closed when the last of them, and of all objects made from it, goes.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

pub(crate) struct Inner {
    // The first to go: their threads end before what they use does.
    failover: Option<Failover>,
    status: Option<Background>,
    _attendant: Option<Background>,
    _watchers: Vec<Watcher>,
    pub(super) engines: Vec<Arc<Engine>>,
    /// Whether threads of the program make progress when they poll.
    pub(super) inline: bool,
    pub(super) events: Arc<Events>,
    pub(super) network: Network,
    pub(super) company: Option<Company>,
    pub(super) queue_pairs: Arc<Allowance>,
    pub(super) regions: Arc<Allowance>,
    /// Held while something is done to all engines, so that all see the same order.
    order: Mutex<()>,
    next_engine: AtomicUsize,
    /// The queue pair through which each window of type 1, by its first key's upper bits, was bound last, and the queue pair's engine.
    binds: Mutex<HashMap<u32, (Qpn, usize)>>,
    description: String,
    /// What becomes of packets while the link is down.
    pub(super) link_down: LinkDown,
    /// The rate of its link, in bits a second.
    pub(super) rate: u64,
}

impl Inner {
    pub(super) fn new(
        engines: Vec<Arc<Engine>>,
        watchers: Vec<Watcher>,
        inline: bool,
        events: Arc<Events>,
        around: Surroundings,
        description: String,
        rate: u64,
    ) -> Inner {
        let (order, next_engine, binds) = (Mutex::new(()), AtomicUsize::new(0), Mutex::default());
        // A NIC works without it.
        let status = status::serve(&engines, &description).ok();
        let _watchers = watchers;
        let Surroundings { network, company, attendant: _attendant, failover, link_down } = around;
        let limits = company.as_ref().map(Company::limits).unwrap_or_default();
        Inner {
            failover,
            status,
            _attendant,
            _watchers,
            engines,
            inline,
            events,
            network,
            company,
            queue_pairs: Allowance::new(limits.queue_pairs),
            regions: Allowance::new(limits.regions),
            order,
            next_engine,
            binds,
            description,
            link_down,
            rate,
        }
    }

    /// Whoever sees to the backup, where there is one.
    pub(crate) fn control(&self) -> Option<&Arc<Control>> {
        self.failover.as_ref().map(|failover| &failover.control)
    }

    /// The backup's side of the NIC, where there is one.
    pub(crate) fn failover(&self) -> Option<&Failover> {
        self.failover.as_ref()
    }

    pub(crate) fn engines(&self) -> &[Arc<Engine>] {
        &self.engines
    }

    /// To be held while the same is done to all engines.
    pub(crate) fn mirrored(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// All engines at once, for what must be the same at all of them at the same time.
    pub(crate) fn control_all(&self, _order: &MutexGuard<'_, ()>) -> Vec<MutexGuard<'_, Core>> {
        // Whoever waits for one engine while it has another has the order: so nobody waits in a circle.
        self.engines.iter().map(|engine| engine.control()).collect()
    }

    /// A window of type 1 is bound by a work request that was just posted to `owner`: queue pairs of other engines may be used through the
    /// window, too, so it is bound there.
    pub(crate) fn bind_elsewhere(&self, owner: &Arc<Engine>, qpn: Qpn, pd: PdId, bind: &Bind) {
        if self.engines.len() == 1 {
            return;
        }
        let _order = self.mirrored();
        for (at, engine) in self.engines.iter().enumerate() {
            if Arc::ptr_eq(engine, owner) {
                lock(&self.binds).insert(bind.window >> 8, (qpn, at));
            } else {
                // What is wrong with it is said by the completion.
                let _ = engine.control().nic().bind_mw_as(qpn, pd, bind);
            }
        }
    }

    /// A work request of this queue pair that was to bind a window failed, or was flushed: other engines, where the window is bound already,
    /// have it as it was.
    #[cold]
    pub(crate) fn undo_binds(&self, qpn: Qpn) {
        let _order = self.mirrored();
        let binds = lock(&self.binds).clone();
        for (place, (_, owner)) in binds.into_iter().filter(|&(_, (by, _))| by == qpn) {
            let Some(binding) = self.engines[owner].control().nic().window_binding(place << 8) else { continue };
            for (_, engine) in self.engines.iter().enumerate().filter(|&(at, _)| at != owner) {
                engine.control().nic().set_window_binding(place << 8, binding);
            }
        }
    }

    /// The engine for a new object, each in its turn.
    pub(crate) fn pick_engine(&self) -> &Arc<Engine> {
        let next = self.next_engine.fetch_add(1, Ordering::Relaxed);
        &self.engines[next % self.engines.len()]
    }

    /// Makes progress where that is for the program's threads to do.
    #[inline]
    pub(crate) fn progress(&self) -> bool {
        // Of a NIC that runs by itself a program only takes what is there.
        if !self.inline {
            return true;
        }
        let mut busy = false;
        for engine in &self.engines {
            busy |= engine.try_progress();
        }
        busy
    }

    /// The NIC's own threads make progress as long as the result lives.
    pub(crate) fn programs_sleep(self: &Arc<Inner>) -> Running {
        for engine in &self.engines {
            engine.program_sleeps();
        }
        Running(Arc::clone(self))
    }
}

/// As long as it lives the NIC's own threads make progress, as they do for programs that sleep.
pub struct Running(Arc<Inner>);

impl Drop for Running {
    fn drop(&mut self) {
        for engine in &self.0.engines {
            engine.program_awake();
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

impl Context {
    pub(super) fn from_inner(inner: Inner) -> Context {
        Context(Arc::new(inner))
    }

    /// What whoever shares its port allows it; nothing is limited where nobody does.
    pub fn limits(&self) -> Limits {
        self.company().map(Company::limits).unwrap_or_default()
    }

    /// The other processes behind its port.
    pub(in crate::api) fn company(&self) -> Option<&Company> {
        self.inner().company.as_ref()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// Makes progress once: frames out, frames in, timers. Only for programs that neither poll a completion queue nor wait; says whether
    /// there was anything to do.
    #[inline]
    pub fn progress(&self) -> bool {
        self.0.progress()
    }

    /// Puts software on the NIC that runs in the engines, with the NIC of each: it takes completions from sinks and posts work by the
    /// numbers of queue pairs. `layer` makes the one of each engine, by its number, or none. A layer must not wait for anything, and makes
    /// no objects that all engines have: domains, memory, completion queues, address handles are the program's to make.
    pub fn set_layers(&self, mut layer: impl FnMut(usize) -> Option<Box<dyn Layer>>) {
        for (i, engine) in self.0.engines.iter().enumerate() {
            let layer = layer(i);
            engine.control().nic().set_layer(layer);
            engine.wake();
        }
    }

    /// Lets the program talk to the layer of an engine, with the engine to itself; `None` where there is none.
    pub fn with_layer<R>(&self, engine: usize, talk: impl FnOnce(&mut dyn Layer, &mut Nic) -> R) -> Option<R> {
        let engine = self.0.engines.get(engine)?;
        let result = engine.control().nic().with_layer(talk);
        // A thread that only watches whether the program makes progress need not look.
        engine.wake_sleeper();
        result
    }

    /// The NIC's own threads make progress from now on, until the result is dropped: for programs that wait for completions by poll(2) of
    /// their own, and for those that let a peer work on their memory while they sleep.
    pub fn hold_progress(&self) -> Running {
        self.0.programs_sleep()
    }

    /// Writes out what was recorded so far, if frames are recorded. This happens by itself whenever there is nothing to do for a while.
    ///
    /// # Errors
    /// When the capture cannot be written, for which the NIC stops.
    pub fn flush_capture(&self) -> io::Result<()> {
        for engine in &self.0.engines {
            engine.flush_recording(&mut engine.control());
            if let Some(why) = engine.failure() {
                return Err(io::Error::other(why.to_string()));
            }
        }
        Ok(())
    }

    /// The descriptors that the NIC holds for itself: sockets (AF_XDP, datagrams, netlink), the map and the link of the XDP program, eventfds of
    /// its threads, the socket where it answers for its counters. A program that forks closes them in the child, which otherwise
    /// keeps the device's queues busy after the NIC is gone. Not among them are those of completion queues and channels, of
    /// multicast groups, and of captures.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all: Vec<RawFd> = self.0.engines.iter().flat_map(|engine| engine.descriptors()).collect();
        all.push(self.0.events.as_fd().as_raw_fd());
        all.extend(self.0.network.descriptors());
        all.extend(self.0.failover.iter().flat_map(|failover| failover.descriptors()));
        all.extend(self.0.status.iter().flat_map(|status| status.descriptors()));
        // Queues of one device share some.
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Sends what is owed to peers, for a program that is about to end without destroying its queue pairs. Where it shares a port with others,
    /// nobody finds it any more.
    pub fn settle(&self) {
        for engine in &self.0.engines {
            engine.settle(&mut engine.control(), None);
        }
        // A wire that delays frames delivers them although their sender has ended.
        let end = Instant::now() + HELD_BACK;
        for engine in &self.0.engines {
            while let Some(due) = engine.leaves_in().filter(|&due| Instant::now() + due < end) {
                std::thread::sleep(due);
                engine.settle(&mut engine.control(), None);
            }
        }
        if let Some(company) = self.company() {
            company.leave();
        }
        if let Some(company) = self.0.failover.as_ref().and_then(|failover| failover.company.as_ref()) {
            company.leave();
        }
    }

    /// The backend in one line of text: device, mode.
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// How many engines it has: one for each queue of its device.
    pub fn engines(&self) -> usize {
        self.0.engines.len()
    }

    /// Whether the wire is there, be it the backup's.
    pub fn is_up(&self) -> bool {
        self.0.engines.iter().all(|engine| engine.control().is_up())
    }

    /// Its place on the network, as of now.
    pub fn port(&self) -> Port {
        self.0.engines[0].control().nic().port().clone()
    }

    /// The longest IP packet that its link carries: LoWAR needs more than the path MTU ([`super::Transport::Lowar`]).
    pub fn link_mtu(&self) -> Option<u32> {
        self.0.engines[0].control().nic().link_mtu()
    }

    /// Its addresses: the GID table.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.port().addresses
    }

    /// The addresses of its backup; none where there is no backup.
    pub fn backup_addresses(&self) -> Vec<IpAddr> {
        let mut core = self.0.engines[0].control();
        core.dual().backup().map(|nic| nic.port().addresses.clone()).unwrap_or_default()
    }

    /// What its failover did so far; `None` where there is no backup.
    pub fn failover_counters(&self) -> Option<FailoverCounters> {
        let mut sum = None;
        for engine in &self.0.engines {
            if let Some(counters) = engine.control().dual().failover_counters() {
                sum.get_or_insert_with(FailoverCounters::default).add(counters);
            }
        }
        sum
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for engine in &self.0.engines {
            sum.add(engine.control().nic().counters());
        }
        sum
    }

    /// Frames that its packet IO lost, as far as it knows.
    pub fn lost_frames(&self) -> u64 {
        self.0.engines.iter().map(|engine| engine.control().driver.ios().map(|io| io.lost()).sum::<u64>()).sum()
    }

    /// Why its packet IO stopped, if it did: then nothing is sent or received any more.
    pub fn failure(&self) -> Option<String> {
        self.0.engines.iter().find_map(|engine| engine.failure()).map(String::from)
    }

    /// The next thing that happened beside all completions.
    pub fn poll_event(&self) -> Option<Event> {
        self.0.events.poll()
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> ProtectionDomain {
        let _order = self.0.mirrored();
        let ids: Vec<PdId> = self.0.engines.iter().map(|engine| engine.control().nic().alloc_pd()).collect();
        debug_assert!(ids.iter().all(|&id| id == ids[0]));
        if let Some(control) = self.0.control() {
            // Nobody is woken: the domain is of use when something is in it, which is recorded behind it.
            lock(&control.list).shadows.push(Shadow::Pd(ids[0]));
        }
        ProtectionDomain(Arc::new(Domain { context: Arc::clone(&self.0), id: ids[0] }))
    }
}

/// Readable while [`Context::poll_event`] has something.
impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.events.as_fd()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.0.description).finish()
    }
}

/// A protection domain: queue pairs reach only memory of their own. Clones are the same domain.
#[derive(Clone)]
pub struct ProtectionDomain(Arc<Domain>);

struct Domain {
    context: Arc<Inner>,
    id: PdId,
}

impl Drop for Domain {
    fn drop(&mut self) {
        let _order = self.context.mirrored();
        for engine in &self.context.engines {
            let mut core = engine.control();
            // All that is in it keeps it alive, so nothing is.
            let _ = core.nic().dealloc_pd(self.id);
            core.dual().forget_pd(self.id);
            core.pass_requests();
        }
        if let Some(control) = self.context.control() {
            lock(&control.list).shadows.retain(|shadow| !matches!(shadow, Shadow::Pd(pd) if *pd == self.id));
        }
    }
}

impl ProtectionDomain {
    /// The NIC that it is of.
    pub fn context(&self) -> Context {
        Context(Arc::clone(&self.0.context))
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0.context
    }

    pub(crate) fn id(&self) -> PdId {
        self.0.id
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProtectionDomain").field(&self.0.id.0).finish()
    }
}
