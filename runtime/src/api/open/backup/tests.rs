//! Two NICs with backups, on wires in memory that are cut and mended.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
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

    fn wait(&mut self, timeout: Duration, also: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.0.wait(timeout, also)
    }

    fn readiness(&self) -> io::Result<OwnedFd> {
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
}

fn parts(ios: Vec<Io>, own: OwnAddresses) -> Parts {
    let port = Port { mac: own.mac, addresses: own.addresses, mtu: PathMtu::B1024 };
    let (neighbourhood, link_mtu) = (Neighbourhood::Own, link_mtu_of(ios[0].max_frame()));
    Parts { ios, port, neighbourhood, company: None, description: "wire".into(), rate: MEMORY_RATE, link_mtu }
}

impl World {
    /// Two hosts with so many engines, and backups where they are asked for.
    fn new(progress: Progress, engines: usize, backups: [bool; 2]) -> World {
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
            let (said, asked) = (Arc::clone(&lines), backups[host]);
            host += 1;
            let soon = Duration::from_millis(5);
            let backup = BackupOptions {
                times: Times { probe: soon, fence: soon, ..Times::default() },
                on_change: Some(LineSink::new(move |line| said.lock().unwrap().push(line.into()))),
                ..BackupOptions::new(DeviceSpec::Mem)
            };
            let options =
                OpenOptions { progress: Some(progress), backup: asked.then_some(backup), ..OpenOptions::default() };
            let own = [OwnAddresses::of_host(host as u8), OwnAddresses::of_backup(host as u8)];
            let [own, of_backup] = own;
            let backup = asked.then(|| parts(other, of_backup));
            parts(default, own).open(backup, &options).unwrap()
        });
        let contexts: Vec<Context> = contexts.collect();
        World { contexts: contexts.try_into().unwrap(), switches, lines }
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
        let ends = [A, B].map(|host| {
            let context = &self.contexts[host];
            let pd = context.alloc_pd();
            let cqs = [context.create_cq(256).unwrap(), context.create_cq(256).unwrap()];
            let options = QpOptions { recv_cq: cqs[1].clone(), ..QpOptions::new(QpKind::Rc, &cqs[0]) };
            let qp = pd.create_qp(&options).unwrap();
            qp.init(access).unwrap();
            let memory = pd.alloc_mr(SIZE * PLACES as usize, rights()).unwrap();
            End { pd, cqs, qp, memory }
        });
        for host in [B, A] {
            let (own, other) = (&ends[host], &ends[1 - host]);
            let peer = self.contexts[1 - host].addresses()[0];
            let path = self.contexts[host].path_to(peer, own.qp.qpn().value()).unwrap();
            let usual = Connection::new(path, other.qp.qpn(), Psn::new(7), Psn::new(7));
            let connection = Connection { timeout: 15, retry_cnt: 2, access, ..usual };
            match answers && host == B {
                true => own.qp.modify(&self.attributes(host, &connection)[1]).unwrap(),
                false => own.qp.connect(&connection).unwrap(),
            }
        }
        ends
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

fn goes_on_and_returns(work: Work, progress: Progress, engines: usize) {
    let world = World::new(progress, engines, [true, true]);
    let mut flow = Flow::new(&world, work);
    world.await_protection(1);
    flow.more(100);
    world.set(0, LOSES);
    flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
    flow.more(100);
    assert_eq!(flow.ends[A].qp.state(), QpState::ReadyToSend);
    world.set(0, WHOLE);
    flow.until("return", |flow| flow.world.moved(A).1 >= 1);
    flow.more(100);
    let own = flow.ends[A].qp.qpn();
    let mut events = Vec::new();
    world.until("events", || {
        events.extend(world.events(A));
        events.len() >= 2
    });
    assert!(events.iter().all(|&event| event == Event::PathMig(own)), "{events:?}");
    for line in ["goes on by its backup", "is back from its backup"] {
        world.until(line, || world.lines.lock().unwrap().iter().any(|said| said.contains(line)));
    }
}

#[test]
fn sends_go_on_by_the_backup_and_return() {
    goes_on_and_returns(Work::Send, Progress::Inline, 1);
    goes_on_and_returns(Work::Send, Progress::Dedicated, 1);
}

#[test]
fn writes_to_a_target_that_never_polls_go_on_by_the_backup_and_return() {
    goes_on_and_returns(Work::Write, Progress::Inline, 1);
}

#[test]
fn reads_from_a_target_that_never_polls_go_on_by_the_backup_and_return() {
    goes_on_and_returns(Work::Read, Progress::Inline, 1);
}

#[test]
fn a_target_that_is_never_ready_to_send_has_a_backup_and_may_become_ready_later() {
    let all = [(Work::Send, Access::NONE), (Work::Write, Access::REMOTE_WRITE), (Work::Read, Access::REMOTE_READ)];
    for (work, access) in all {
        let world = World::new(Progress::Inline, 1, [true, true]);
        let mut flow = Flow::between(&world, world.connect_as(true, access), work);
        world.await_protection(1);
        flow.more(50);
        for round in 1..=2 {
            world.set(0, LOSES);
            flow.until("fallback", |flow| flow.world.moved(A).0 >= round);
            flow.more(50);
            assert_eq!(flow.ends[B].qp.state(), QpState::ReadyToReceive);
            world.set(0, WHOLE);
            flow.until("return", |flow| flow.world.moved(A).1 >= round);
            flow.more(50);
            assert_eq!(flow.ends[B].qp.state(), QpState::ReadyToReceive);
        }
        let peer = world.contexts[A].addresses()[0];
        let (a, b) = (&flow.ends[A], &flow.ends[B]);
        let path = world.contexts[B].path_to(peer, b.qp.qpn().value()).unwrap();
        let connection = Connection::new(path, a.qp.qpn(), Psn::new(7), Psn::new(7));
        b.qp.modify(&world.attributes(B, &connection)[2]).unwrap();
        assert_eq!(b.qp.state(), QpState::ReadyToSend);
        a.qp.post_recv(&RecvWr { wr_id: 0, sges: &[a.memory.sge(0, SIZE)], best_effort: None }).unwrap();
        post(b, 99, SendOp::Send, &b.memory, 0);
        let done = completions(&world, &b.cqs[0], 1)[0];
        assert_eq!((done.wr_id, done.status), (99, Status::Success));
    }
}

#[test]
fn every_engine_has_its_backup() {
    let world = World::new(Progress::Inline, 2, [true, true]);
    let mut flows = [Work::Send, Work::Write, Work::Read].map(|work| Flow::new(&world, work));
    // Each host has an engine with two of the three.
    world.await_protection(3);
    flows.iter_mut().for_each(|flow| flow.more(50));
    world.set(0, LOSES);
    flows.iter_mut().for_each(|flow| flow.more(50));
    assert!(world.moved(A).0 >= 3, "{:?}", world.counters());
    world.set(0, WHOLE);
    flows.iter_mut().for_each(|flow| flow.more(50));
}

#[test]
fn a_backend_that_fails_for_good_is_no_reason_to_end_before_the_backup_fails() {
    let world = World::new(Progress::Inline, 1, [true, true]);
    let mut flow = Flow::new(&world, Work::Send);
    world.await_protection(1);
    flow.more(50);
    world.switches[0][A].set(FAILS);
    flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
    flow.more(50);
    assert_eq!(world.contexts[A].failure(), None);
    assert!(world.contexts[A].is_up());
    let events = world.events(A);
    assert!(!events.contains(&Event::PortErr), "{events:?}");
    world.until("the line", || world.lines.lock().unwrap().iter().any(|line| line.contains("is gone")));
    world.switches[1][A].set(FAILS);
    world.until("the end", || world.contexts[A].failure().is_some());
    assert_eq!(flow.last().last().map(|done| done.status), Some(Status::WrFlushErr));
    assert_eq!(flow.ends[A].qp.state(), QpState::Error);
    assert!(world.contexts[A].failure().is_some() && !world.contexts[A].is_up());
    assert!(world.events(A).contains(&Event::PortErr));
}

#[test]
fn work_ends_in_errors_in_order_and_once_when_both_wires_are_cut() {
    let world = World::new(Progress::Inline, 1, [true, true]);
    let mut flow = Flow::new(&world, Work::Write);
    world.await_protection(1);
    flow.more(50);
    world.set(0, LOSES);
    world.set(1, LOSES);
    let all = flow.last();
    let (posted, a) = (flow.posted, &flow.ends[A]);
    let failed: Vec<Status> = all.iter().map(|done| done.status).filter(|&s| s != Status::Success).collect();
    assert_eq!(failed.first(), Some(&Status::RetryExcErr), "{failed:?}");
    assert!(failed[1..].iter().all(|&status| status == Status::WrFlushErr), "{failed:?}");
    assert_eq!(a.qp.state(), QpState::Error);
    // What is posted afterwards is flushed, too.
    post(a, posted, SendOp::Send, &a.memory, 0);
    let last = completions(&world, &a.cqs[0], 1)[0];
    assert_eq!((last.wr_id, last.status), (posted, Status::WrFlushErr));
    world.until("the event", || world.events(A).contains(&Event::PathMigErr(a.qp.qpn())));
}

#[test]
fn a_queue_pair_is_destroyed_in_the_middle_of_a_failure() {
    for wait in [false, true] {
        let world = World::new(Progress::Inline, 1, [true, true]);
        let mut flow = Flow::new(&world, Work::Send);
        world.await_protection(1);
        flow.more(20);
        world.set(0, LOSES);
        if wait {
            flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
        }
        let [a, b] = flow.ends;
        drop(a);
        // The other one's next send finds nobody.
        post(&b, 1, SendOp::Send, &b.memory, 0);
        let ended = completions(&world, &b.cqs[0], 1)[0];
        assert_eq!((ended.wr_id, ended.status), (1, Status::RetryExcErr));
        drop(b);
        world.set(0, WHOLE);
        // New ones work as ever.
        Flow::new(&world, Work::Write).more(20);
    }
}

#[test]
fn a_region_is_used_right_behind_its_registration_while_the_backup_is_used() {
    let world = World::new(Progress::Inline, 1, [true, true]);
    let mut flow = Flow::new(&world, Work::Write);
    world.await_protection(1);
    flow.more(20);
    world.set(0, LOSES);
    flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
    let all = flow.posted;
    flow.until("the rest", |flow| flow.done >= all);
    let [a, b] = &flow.ends;
    // What the program has outstanding goes first.
    let left = (flow.posted - flow.done) as usize;
    completions(&world, &a.cqs[0], left);
    for n in 0..10u8 {
        let (from, to) = (a.pd.alloc_mr(SIZE, rights()).unwrap(), b.pd.alloc_mr(SIZE, rights()).unwrap());
        from.write_at(0, &[n; SIZE]);
        post(a, n.into(), SendOp::Write { remote_addr: to.addr(), rkey: to.rkey() }, &from, 0);
        let done = completions(&world, &a.cqs[0], 1)[0];
        assert_eq!((done.wr_id, done.status), (n.into(), Status::Success));
        let mut bytes = [0; SIZE];
        to.read_at(0, &mut bytes);
        assert_eq!(bytes, [n; SIZE]);
    }
}

#[test]
fn a_region_that_is_deregistered_is_refused_by_the_backup() {
    let world = World::new(Progress::Inline, 1, [true, true]);
    let mut flow = Flow::new(&world, Work::Write);
    world.await_protection(1);
    flow.more(20);
    world.set(0, LOSES);
    flow.until("fallback", |flow| flow.world.moved(A).0 >= 1);
    let [a, b] = &flow.ends;
    let left = (flow.posted - flow.done) as usize;
    completions(&world, &a.cqs[0], left);
    let to = b.pd.alloc_mr(SIZE, rights()).unwrap();
    let op = SendOp::Write { remote_addr: to.addr(), rkey: to.rkey() };
    post(a, 1, op, &a.memory, 0);
    assert_eq!(completions(&world, &a.cqs[0], 1)[0].status, Status::Success);
    to.deregister().unwrap();
    post(a, 2, op, &a.memory, 0);
    let refused = completions(&world, &a.cqs[0], 1)[0];
    assert_eq!((refused.wr_id, refused.status), (2, Status::RemAccessErr));
}

#[test]
fn a_peer_without_a_backup_is_named_once_and_connections_to_it_end_as_ever() {
    let world = World::new(Progress::Inline, 1, [true, false]);
    let mut flows = [Flow::new(&world, Work::Write), Flow::new(&world, Work::Write)];
    let named = || world.lines.lock().unwrap().iter().filter(|line| line.contains("the peer has no backup")).count();
    world.until("the line", || named() > 0);
    flows.iter_mut().for_each(|flow| flow.more(20));
    assert_eq!(named(), 1, "{:?}", world.lines.lock().unwrap());
    world.set(0, LOSES);
    let all = flows[0].last();
    let failed = all.iter().map(|done| done.status).find(|&status| status != Status::Success);
    assert_eq!(failed, Some(Status::RetryExcErr));
    assert_eq!(world.counters()[A], [0; 4]);
}

#[test]
fn the_same_device_is_no_backup() {
    let device: DeviceSpec = "shm:failover-test".parse().unwrap();
    let same = |device: &DeviceSpec, backup: &str| {
        let backup = Some(BackupOptions::new(backup.parse().unwrap()));
        let parts = parts(vec![Box::new(MemoryWire::pair().unwrap().0)], OwnAddresses::of_host(1));
        parts.backup(device, &OpenOptions { backup, ..OpenOptions::default() })
    };
    assert!(matches!(same(&device, "shm:failover-test"), Err(OpenError::OwnBackup(_))));
    let device: DeviceSpec = "afxdp:eth7".parse().unwrap();
    for backup in ["afxdp:eth7", "eth7", "shared:eth7"] {
        assert!(matches!(same(&device, backup), Err(OpenError::OwnBackup(name)) if name == "afxdp:eth7"), "{backup}");
    }
}

#[test]
fn two_nics_of_a_process_have_backups_on_another_wire_in_memory() {
    let options = OpenOptions { backup: Some(BackupOptions::new(DeviceSpec::Mem)), ..OpenOptions::default() };
    let [a, b] = Context::open_pair([&options, &options]).unwrap();
    assert_eq!(a.backup_addresses()[0], std::net::IpAddr::from([10, 0, 1, 1]));
    assert_eq!(b.backup_addresses()[0], std::net::IpAddr::from([10, 0, 1, 2]));
    let other = OpenOptions { backup: Some(BackupOptions::new("shm:x".parse().unwrap())), ..OpenOptions::default() };
    assert!(matches!(Context::open_pair([&other, &options]), Err(OpenError::MemBackup(_))));
    let [a, b] = Context::open_pair([&options, &OpenOptions::default()]).unwrap();
    assert!(a.failover_counters().is_some() && b.failover_counters().is_none());
    assert!(b.backup_addresses().is_empty());
}

fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE
}
