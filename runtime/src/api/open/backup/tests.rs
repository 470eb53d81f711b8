//! Two NICs with backups, on wires in memory that are cut and mended.

mod by_name;
mod endings;
mod meetings;
mod moves;
mod regions;
mod stores;
mod unprotected;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Completion, Data, Event, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_nic::{Port, QpAttr, QpKind};
use softnic_wire::{PathMtu, Psn, TxFrame};

use super::super::{MEMORY_RATE, Neighbourhood, OwnAddresses, Progress, link_mtu_of};
use super::*;
use crate::MemoryWire;
use crate::api::{CompletionQueue, Connection, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair};
use crate::io::{MAX_FRAME, PacketIo};

mod many;

const LIMIT: Duration = Duration::from_secs(120);
const SIZE: usize = 6000;
const PLACES: u64 = 32;
const A: usize = 0;
const B: usize = 1;

/// What becomes of the frames of a wire's end.
const WHOLE: u8 = 0;
const LOSES: u8 = 1;
const FAILS: u8 = 2;

#[derive(Clone, Default)]
struct Switch(Arc<AtomicU8>);

impl Switch {
    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Release);
    }

    fn state(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }
}

/// An end of a wire that loses what is sent, or fails, as its switch says.
struct Cut(MemoryWire, Switch);

impl PacketIo for Cut {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        match self.1.state() {
            FAILS => Err(io::Error::other("cut")),
            _ => self.0.receive(limit, take),
        }
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        let mut nowhere = [0; MAX_FRAME];
        match self.1.state() {
            FAILS => Err(io::Error::other("cut")),
            LOSES => Ok((0..limit).take_while(|_| next(&mut TxFrame::new(&mut nowhere))).count()),
            _ => self.0.transmit(limit, next),
        }
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.wait(timeout)
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        self.0.readiness()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.0.prepare_sleep()
    }

    fn lost(&self) -> u64 {
        self.0.lost()
    }

    fn max_frame(&self) -> usize {
        self.0.max_frame()
    }
}

/// A queue pair with what it needs, connected to the other host's.
struct End {
    pd: ProtectionDomain,
    cqs: [CompletionQueue; 2],
    qp: QueuePair,
    memory: MemoryRegion,
}

/// Two hosts; of each wire, the default's and the backups', the switches of both ends.
struct World {
    contexts: [Context; 2],
    switches: [[Switch; 2]; 2],
    lines: Arc<Mutex<Vec<String>>>,
    /// How often connections retry.
    retries: u8,
}

fn parts(ios: Vec<Io>, own: OwnAddresses) -> Parts {
    let port = Port { mac: own.mac, addresses: own.addresses, mtu: PathMtu::B1024 };
    let (neighbourhood, link_mtu) = (Neighbourhood::Own(None), link_mtu_of(ios[0].max_frame()));
    let (company, own_stack, description) = (None, None, "wire".into());
    Parts { ios, port, neighbourhood, company, description, rate: MEMORY_RATE, link_mtu, own_stack }
}

impl World {
    /// Two hosts with so many engines, and backups where they are asked for.
    fn new(progress: Progress, engines: usize, backups: [bool; 2]) -> World {
        World::with(progress, engines, backups, Default::default(), |_| {})
    }

    /// The same, with these stores.
    fn with_stores(progress: Progress, engines: usize, backups: [bool; 2], stores: [Kv; 2]) -> World {
        World::with(progress, engines, backups, stores, |_| {})
    }

    /// The same, with these stores, and something else about the ports of the backups.
    fn with(
        progress: Progress,
        engines: usize,
        backups: [bool; 2],
        stores: [Kv; 2],
        change: impl Fn(&mut Port),
    ) -> World {
        let switches: [[Switch; 2]; 2] = Default::default();
        let [defaults, others] = switches.clone().map(|ends| {
            let mut ios: [Vec<Io>; 2] = Default::default();
            for _ in 0..engines {
                let (a, b) = MemoryWire::pair().unwrap();
                ios[A].push(Box::new(Cut(a, ends[A].clone())));
                ios[B].push(Box::new(Cut(b, ends[B].clone())));
            }
            ios
        });
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut host = 0;
        let contexts = defaults.into_iter().zip(others).map(|(default, other)| {
            let (said, asked, store) = (Arc::clone(&lines), backups[host], stores[host].clone());
            host += 1;
            let soon = Duration::from_millis(5);
            let backup = BackupOptions {
                times: Times { probe: soon, fence: soon, ..Times::default() },
                store,
                on_change: Some(LineSink::new(move |line| said.lock().unwrap().push(line.into()))),
                ..BackupOptions::new(DeviceSpec::Mem)
            };
            let options =
                OpenOptions { progress: Some(progress), backup: asked.then_some(backup), ..OpenOptions::default() };
            let own = [OwnAddresses::of_host(host as u8), OwnAddresses::of_backup(host as u8)];
            let [own, of_backup] = own;
            let backup = asked.then(|| {
                let mut parts = parts(other, of_backup);
                change(&mut parts.port);
                parts
            });
            parts(default, own).open(backup, &options).unwrap()
        });
        let contexts: Vec<Context> = contexts.collect();
        World { contexts: contexts.try_into().unwrap(), switches, lines, retries: 2 }
    }

    fn set(&self, wire: usize, state: u8) {
        self.switches[wire].iter().for_each(|switch| switch.set(state));
    }

    /// Two connected queue pairs.
    fn connect(&self) -> [End; 2] {
        self.connect_as(false, rights())
    }

    /// Two connected queue pairs, with these rights of their peers, of which B's is not made ready to send if it only answers.
    fn connect_as(&self, answers: bool, access: Access) -> [End; 2] {
        let ends = self.ends(access);
        self.join(&ends, answers, access);
        ends
    }

    /// Two queue pairs that are not connected.
    fn ends(&self, access: Access) -> [End; 2] {
        [A, B].map(|host| self.end(host, access))
    }

    /// Connects them to each other.
    fn join(&self, ends: &[End; 2], answers: bool, access: Access) {
        self.connect_end(B, ends, answers, access);
        self.connect_end(A, ends, false, access);
    }

    /// A queue pair of a host that is not connected yet, with these rights of its peer.
    fn end(&self, host: usize, access: Access) -> End {
        let context = &self.contexts[host];
        let pd = context.alloc_pd();
        let cqs = [context.create_cq(256).unwrap(), context.create_cq(256).unwrap()];
        let options = QpOptions { recv_cq: cqs[1].clone(), ..QpOptions::new(QpKind::Rc, &cqs[0]) };
        let qp = pd.create_qp(&options).unwrap();
        qp.init(access).unwrap();
        let memory = pd.alloc_mr(SIZE * PLACES as usize, rights()).unwrap();
        End { pd, cqs, qp, memory }
    }

    /// Connects the queue pair of a host with the other one's; if it only answers, it is not made ready to send.
    fn connect_end(&self, host: usize, ends: &[End; 2], answers: bool, access: Access) {
        let (own, other) = (&ends[host], &ends[1 - host]);
        let peer = self.contexts[1 - host].addresses()[0];
        let path = self.contexts[host].path_to(peer, own.qp.qpn().value()).unwrap();
        let usual = Connection::new(path, other.qp.qpn(), Psn::new(7), Psn::new(7));
        let connection = Connection { timeout: 15, retry_cnt: self.retries, access, ..usual };
        match answers {
            true => own.qp.modify(&self.attributes(host, &connection)[1]).unwrap(),
            false => own.qp.connect(&connection).unwrap(),
        }
    }

    /// The attributes of the steps to a connected queue pair.
    fn attributes(&self, host: usize, connection: &Connection) -> [QpAttr; 3] {
        let path = connection.path.attr.path(&self.contexts[host].port()).unwrap();
        connection.settings(path).attributes(QpKind::Rc)
    }

    /// Waits until so many connections have backups.
    fn await_protection(&self, count: u64) {
        let protected = |context: &Context| context.failover_counters().is_some_and(|c| c.protected >= count);
        self.until("protection", || self.contexts.iter().all(protected));
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + LIMIT;
        while !done() {
            self.contexts.iter().for_each(|context| _ = context.progress());
            std::thread::yield_now();
            assert!(Instant::now() < end, "{what}: {:?} {:?}", self.counters(), self.lines.lock().unwrap());
        }
    }

    fn counters(&self) -> [[u64; 4]; 2] {
        [A, B].map(|host| {
            let counters = self.contexts[host].failover_counters().unwrap_or_default();
            [counters.protected, counters.failovers, counters.failbacks, counters.refused]
        })
    }

    fn moved(&self, host: usize) -> (u64, u64) {
        let [_, failovers, failbacks, _] = self.counters()[host];
        (failovers, failbacks)
    }

    fn events(&self, host: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.contexts[host].poll_event()).collect()
    }
}

/// What a program does all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Send,
    Write,
    Read,
}

/// A program that has always some work requests outstanding, and one that takes what comes; both look at the data.
struct Flow<'w> {
    world: &'w World,
    ends: [End; 2],
    work: Work,
    posted: u64,
    done: u64,
    recvs: u64,
    received: u64,
}

impl<'w> Flow<'w> {
    fn new(world: &'w World, work: Work) -> Flow<'w> {
        Flow::between(world, world.connect(), work)
    }

    fn between(world: &'w World, ends: [End; 2], work: Work) -> Flow<'w> {
        Flow { world, ends, work, posted: 0, done: 0, recvs: 0, received: 0 }
    }

    fn place(n: u64) -> usize {
        (n % PLACES) as usize * SIZE
    }

    fn check(memory: &MemoryRegion, n: u64) {
        let mut bytes = [0; SIZE];
        memory.read_at(Flow::place(n), &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == n as u8), "message {n}");
    }

    /// Goes on for one round.
    fn step(&mut self) {
        let [a, b] = &self.ends;
        while self.work == Work::Send && self.recvs < self.received + 16 {
            let sges = [b.memory.sge(Flow::place(self.recvs), SIZE)];
            b.qp.post_recv(&RecvWr { wr_id: self.recvs, sges: &sges, best_effort: None }).unwrap();
            self.recvs += 1;
        }
        while self.posted < self.done + 8 {
            let at = Flow::place(self.posted);
            let (remote_addr, rkey) = (b.memory.addr() + at as u64, b.memory.rkey());
            let (source, op) = match self.work {
                Work::Send => (&a.memory, SendOp::Send),
                Work::Write => (&a.memory, SendOp::Write { remote_addr, rkey }),
                Work::Read => (&b.memory, SendOp::Read { remote_addr, rkey }),
            };
            source.write_at(at, &[self.posted as u8; SIZE]);
            post(a, self.posted, op, &a.memory, at);
            self.posted += 1;
        }
        while let Some(done) = a.cqs[0].poll_one().unwrap() {
            let expected = (self.done, Status::Success, a.qp.qpn());
            assert_eq!((done.wr_id, done.status, done.qpn), expected, "{:?}", self.world.lines.lock().unwrap());
            match self.work {
                Work::Send => {}
                Work::Write => Flow::check(&b.memory, self.done),
                Work::Read => Flow::check(&a.memory, self.done),
            }
            self.done += 1;
        }
        // A target of WRITEs and READs never looks at anything.
        while self.work == Work::Send
            && let Some(done) = b.cqs[1].poll_one().unwrap()
        {
            let expected = (self.received, Status::Success, b.qp.qpn());
            assert_eq!((done.wr_id, done.status, done.qpn), expected, "{:?}", self.world.lines.lock().unwrap());
            Flow::check(&b.memory, self.received);
            self.received += 1;
        }
    }

    /// Posts some more without a look at what is done; all completions that are still to come.
    fn last(&mut self) -> Vec<Completion> {
        let [a, b] = &self.ends;
        for _ in 0..8 {
            let at = Flow::place(self.posted);
            let (remote_addr, rkey) = (b.memory.addr() + at as u64, b.memory.rkey());
            post(a, self.posted, SendOp::Write { remote_addr, rkey }, &a.memory, at);
            self.posted += 1;
        }
        let all = completions(self.world, &a.cqs[0], (self.posted - self.done) as usize);
        let order: Vec<u64> = all.iter().map(|done| done.wr_id).collect();
        assert_eq!(order, (self.done..self.posted).collect::<Vec<_>>());
        all
    }

    /// Goes on until something is so.
    fn until(&mut self, what: &str, mut is: impl FnMut(&Flow<'_>) -> bool) {
        let end = Instant::now() + LIMIT;
        while !is(self) {
            self.step();
            let (world, done, posted) = (self.world, self.done, self.posted);
            let lines = world.lines.lock().unwrap();
            assert!(Instant::now() < end, "{what}: {done} of {posted}, {:?} {lines:?}", world.counters());
        }
    }

    fn more(&mut self, count: u64) {
        let goal = self.done + count;
        self.until("more", |flow| flow.done >= goal);
    }
}

fn post(end: &End, wr_id: u64, op: SendOp, memory: &MemoryRegion, at: usize) {
    let sges = [memory.sge(at, SIZE)];
    let (data, flags) = (Data::Gather(&sges[..]), SendFlags::default());
    end.qp.post_send(&SendWr { wr_id, op, data, flags, best_effort: None, to: None }).unwrap();
}

/// The next completions of a queue.
fn completions(world: &World, cq: &CompletionQueue, count: usize) -> Vec<Completion> {
    let mut all = Vec::new();
    world.until("completions", || {
        all.extend(cq.poll_one().unwrap());
        all.len() >= count
    });
    all
}

fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE
}
