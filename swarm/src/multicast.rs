//! A swarm of worlds with a group: one sender, receivers behind one, two or three levels of switches, any faults on any link.
//!
//! What must hold: when a work request completes, the memory of every receiver has it; the sender hears nothing before the last member has
//! said so, and that from its peer alone; receives complete once, in order, with what was sent; nobody gets frames who is no member; once
//! faults stop, all completes. In half of the worlds everything that the sender is told is compared with a model of the merge.

mod checks;
mod hosts;
mod messages;
mod model;
mod network;
mod watched;
mod world;

use std::cell::RefCell;
use std::rc::Rc;

use softnic_fault_injector::random::Random;
use softnic_nic::Connection;
use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_sim::{Simulator, Time};
use softnic_switch::Switch;
use softnic_switch::group::{Range, Target};
use softnic_wire::{Instant, Qpn, ethernet};

use hosts::{Host, make_host};
use messages::{GAP, Message, lay_out};
use network::{Group, Network, switch_mac};
use watched::Watched;
use world::{Ending, Kind, World};

/// What a seed came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// Messages that completed at the sender.
    pub messages: u64,
    /// Copies of packets that the sender's switch made.
    pub copies: u64,
    /// Answers of members, and what the sender was told.
    pub answers: u64,
    /// See above.
    pub told: u64,
    /// NAKs of members, of lost packets and of receives that were not there.
    pub naks: u64,
    /// See above.
    pub rnr: u64,
    /// Congestion notifications that the sender got.
    pub cnps: u64,
    /// Packets that the sender sent again.
    pub retransmitted: u64,
    /// Frames that links lost, and that found a queue of a switch full.
    pub lost: u64,
    /// See above.
    pub dropped: u64,
    /// Damaged packets, and what else a switch did not take.
    pub bad: u64,
    /// Messages that ended as they had to: badly.
    pub refused: u64,
    /// Hash of the run.
    pub digest: u64,
}

/// Bytes that a window of a SEND with invalidate is bound to; nobody writes there.
const WINDOW: usize = 8;
/// Steps between looks at all memory.
const LOOK: u64 = 2_000;
const MAX_STEPS: u64 = 3_000_000;
/// Marks work requests that bind windows.
const BINDING: u64 = 1 << 40;

struct Run<'w> {
    world: &'w World,
    sim: Simulator<'static>,
    random: Random,
    /// The sender first.
    hosts: Vec<Host>,
    messages: Vec<Message>,
    /// Messages that use up a receive, in order.
    receiving: Vec<usize>,
    posted: usize,
    completed: usize,
    /// The sender's switch, and all of them.
    switch: usize,
    switches: std::ops::Range<usize>,
    /// The end of the last message was a bad one.
    over: bool,
    misled: Rc<RefCell<Option<String>>>,
    ended: Ended,
}

/// Runs the world of a seed to its end.
///
/// # Errors
/// What does not hold, and the world.
pub fn run_seed(seed: u64) -> Result<Ended, String> {
    let world = World::new(seed);
    let ended = Run::new(&world).and_then(|mut run| run.run().map_err(|what| format!("{what} ({})", run.progress())));
    ended.map_err(|what| format!("multicast: {what}; seed {seed}: {world:?}"))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl<'w> Run<'w> {
    fn new(world: &'w World) -> Result<Run<'w>, String> {
        let mut random = Random::stream(world.seed, 8401);
        let r = &mut random;
        let (mut messages, room, mut ranges) = lay_out(world, r);
        let max_frame = world.mtu.bytes() as usize + 200;
        let mut sim = Simulator::new(max_frame);
        let mut hosts = Vec::new();
        for host in 0..world.receivers + 2 {
            let (nic, made) = make_host(world, host, room, &messages).map_err(|e| format!("host {host}: {e}"))?;
            sim.add_node(Box::new(nic));
            hosts.push(made);
        }
        let receivers = &hosts[1..=world.receivers];
        for range in &mut ranges {
            let at = range.targets[0].start;
            range.targets = receivers.iter().map(|h| Target { start: h.buffer.addr() + at, rkey: h.key }).collect();
        }
        if let (Some(Ending::WrongKey(receiver)), Some(last)) = (world.ending, ranges.last_mut()) {
            last.targets[receiver].rkey ^= 0x5500;
        }
        for (n, message) in messages.iter_mut().enumerate().filter(|(_, m)| m.kind == Kind::SendInv) {
            let (start, rkey) = (1 << 60 | (n as u64) << 32, r.next_u32());
            let target =
                |h: &Host| Target { start: h.buffer.addr() + message.at as u64, rkey: h.windows[n].unwrap_or(0) };
            ranges.push(Range { start, len: WINDOW as u64, rkey, targets: receivers.iter().map(target).collect() });
            message.rkey = rkey;
        }
        let mc_id = Qpn::new(0x70_0000 | r.next_u32() & 0xffff | 2);
        let qpns = receivers.iter().map(|h| h.qpn).collect();
        let group = Group { mc_id, sender: hosts[0].qpn, qpns, ranges };
        let first_switch = hosts.len();
        let ends = Network::new(world, &group, max_frame).build(&mut sim);
        let switches = first_switch
            ..first_switch
                + match world.between {
                    world::Between::Nothing { .. } => 1,
                    world::Between::Leaves { leaves, .. } => 1 + leaves,
                    world::Between::Spines { leaves, spines } => 1 + leaves + spines,
                };
        let misled = Rc::new(RefCell::new(None));
        if !world.damages() {
            let misled = misled.clone();
            sim.set_tap(Box::new(move |sent| {
                let (Some(host), Ok(header)) = (ends[sent.link], ethernet::Packet::new_checked(sent.frame)) else {
                    return;
                };
                if header.dst() != World::mac(host) {
                    let what = format!("safety: host {host} gets a frame for {:?}", header.dst());
                    misled.borrow_mut().get_or_insert(what);
                }
            }));
        }
        let receiving = (0..messages.len()).filter(|&n| messages[n].kind.uses_receive()).collect();
        let mut run = Run {
            world,
            sim,
            random,
            hosts,
            messages,
            receiving,
            posted: 0,
            completed: 0,
            switch: first_switch,
            switches,
            over: false,
            misled,
            ended: Ended::default(),
        };
        for host in 0..=world.receivers {
            run.connect(host, mc_id)?;
        }
        run.bind_windows()?;
        Ok(run)
    }

    fn connect(&mut self, host: usize, mc_id: Qpn) -> Result<(), String> {
        let world = self.world;
        let (peer, dest_qp) = if host == 0 { (1, mc_id) } else { (0, self.hosts[0].qpn) };
        let mac = match world.is_routed() {
            true => switch_mac(Network::switch_of(world, host)),
            false => World::mac(peer),
        };
        let qpn = self.hosts[host].qpn;
        let nic = self.sim.nic(host);
        let connection = Connection {
            path: nic.path_to(world.ip(peer), mac, qpn.value()),
            dest_qp,
            mtu: world.mtu,
            sq_psn: world.first_psn,
            rq_psn: world.first_psn,
            timeout: world.timeout,
            min_rnr_timer: world.min_rnr_timer,
            ..Connection::default()
        };
        nic.connect(qpn, &connection).map_err(text)
    }

    /// Binds a window at every receiver for each message that takes one away.
    fn bind_windows(&mut self) -> Result<(), String> {
        let now = self.sim.now().instant();
        for host in 1..=self.world.receivers {
            for n in 0..self.messages.len() {
                let Host { qpn, key, ref windows, ref buffer, cq, .. } = self.hosts[host];
                let Some(rkey) = windows[n] else { continue };
                let addr = buffer.addr() + self.messages[n].at as u64;
                let window = rkey & !0xff | rkey.wrapping_sub(1) & 0xff;
                let bind = Bind {
                    window,
                    rkey,
                    lkey: key,
                    addr,
                    len: WINDOW as u64,
                    access: Access::REMOTE_WRITE,
                    zero_based: false,
                };
                let flags = SendFlags { signaled: true, ..SendFlags::default() };
                let (op, data) = (SendOp::BindWindow(bind), Data::Gather(&[]));
                let wr = SendWr { wr_id: BINDING, op, data, flags, best_effort: None, to: None };
                self.sim.nic(host).post_send(now, qpn, &wr).map_err(text)?;
                self.sim.touch(host);
                let done = self.sim.nic(host).poll_cq(cq).map_err(text)?;
                if !done.is_some_and(|done| done.status == Status::Success && done.wr_id == BINDING) {
                    return Err(format!("a window was not bound: {done:?}"));
                }
            }
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        self.sim.now().instant()
    }

    fn run(&mut self) -> Result<Ended, String> {
        let (mut faulty, mut quiet) = (true, 0);
        for step in 0..MAX_STEPS {
            let hurry = quiet > 0;
            for host in 1..=self.world.receivers {
                self.take_received(host)?;
            }
            self.take_sent()?;
            self.watched()?;
            for host in 1..=self.world.receivers {
                self.post_receives(host, hurry)?;
            }
            self.post_sends()?;
            if faulty && self.sim.now() > Time::default().after(self.world.faults_until) {
                faulty = false;
                self.sim.set_faults_enabled(false);
            }
            if step % LOOK == 0 {
                self.check_memory(false)?;
            }
            quiet = if self.sim.step().is_some() { 0 } else { quiet + 1 };
            match quiet {
                0 => {}
                2.. if self.is_over() => return self.finish(),
                1..100 => {}
                _ => return Err("liveness: nothing more happens".into()),
            }
        }
        Err("liveness: it did not end".into())
    }

    fn progress(&self) -> String {
        let received: Vec<_> = self.hosts[1..=self.world.receivers].iter().map(|h| (h.posted, h.received)).collect();
        let Run { completed, posted, .. } = self;
        format!("at {} ps {completed} of {posted} posted completed, received {received:?}", self.sim.now().0)
    }

    fn is_over(&self) -> bool {
        let all = self.completed == self.messages.len();
        let received = |h: &Host| h.received == self.receiving.len();
        // Who gave up because a member fell silent does not know what the others have.
        let gave_up = self.ended.messages < self.good();
        all && (gave_up || self.hosts[1..=self.world.receivers].iter().all(received))
    }

    /// What the sender's switch and the links have seen.
    fn watched(&mut self) -> Result<(), String> {
        if let Some(what) = self.misled.borrow_mut().take() {
            return Err(what);
        }
        let watched = self.sim.node::<Watched>(self.switch).ok_or("no switch")?;
        watched.wrong.take().map_or(Ok(()), Err)
    }

    fn post_receives(&mut self, host: usize, hurry: bool) -> Result<(), String> {
        let (most, _) = self.world.receives[host - 1];
        loop {
            let Host { qpn, srq, ref buffer, key, posted, received, .. } = self.hosts[host];
            let Some(&n) = self.receiving.get(posted).filter(|_| posted - received < most) else { return Ok(()) };
            if self.world.lazy > 0.0 && !hurry && self.random.chance(self.world.lazy) {
                return Ok(());
            }
            let message = self.messages[n];
            // A receive of a WRITE with immediate has no memory of its own.
            let room = if message.kind == Kind::WriteImm { 0 } else { message.len + GAP / 2 };
            let sges = [Sge { addr: buffer.addr() + message.at as u64, len: room as u32, lkey: key }];
            let wr = RecvWr { wr_id: n as u64, sges: &sges[..usize::from(room > 0)], best_effort: None };
            let nic = self.sim.nic(host);
            match srq {
                Some(srq) => nic.post_srq_recv(srq, &wr).map_err(text)?,
                None => nic.post_recv(qpn, &wr).map_err(text)?,
            }
            self.hosts[host].posted += 1;
        }
    }

    fn post_sends(&mut self) -> Result<(), String> {
        while self.posted < self.messages.len() && self.posted - self.completed < self.world.depth && !self.over {
            let n = self.posted;
            let message = self.messages[n];
            let Message { va: remote_addr, rkey, .. } = message;
            let imm = message.imm();
            let is_last = n + 1 == self.messages.len();
            let op = match message.kind {
                Kind::Write if is_last && self.world.ending == Some(Ending::Read) => SendOp::Read { remote_addr, rkey },
                Kind::Send => SendOp::Send,
                Kind::SendImm => SendOp::SendImm { imm },
                Kind::SendInv => SendOp::SendInv { rkey },
                Kind::Write => SendOp::Write { remote_addr, rkey },
                Kind::WriteImm => SendOp::WriteImm { remote_addr, rkey, imm },
            };
            let now = self.now();
            let Host { qpn, ref buffer, key, .. } = self.hosts[0];
            buffer.write_at(message.at, &message.bytes());
            let sges = [Sge { addr: buffer.addr() + message.at as u64, len: message.len as u32, lkey: key }];
            let data = Data::Gather(&sges[..usize::from(message.len > 0)]);
            let flags = SendFlags { signaled: true, ..SendFlags::default() };
            let wr = SendWr { wr_id: n as u64, op, data, flags, best_effort: None, to: None };
            self.sim.nic(0).post_send(now, qpn, &wr).map_err(text)?;
            self.posted += 1;
            self.sim.touch(0);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Ended, String> {
        self.watched()?;
        self.check_memory(true)?;
        let now = self.now();
        let retransmitted = self.sim.nic(0).counters().retransmitted_packets;
        let watched = self.sim.node::<Watched>(self.switch).ok_or("no switch")?;
        if let Some(left) = watched.left() {
            return Err(left);
        }
        let (told, cnps) = (watched.told, watched.cnps);
        let counters = watched.switch.groups(now).next().ok_or("no group")?.counters;
        let mut dropped = 0;
        for node in self.switches.clone() {
            let switch = match self.sim.node::<Switch>(node) {
                Some(switch) => switch,
                None => &mut self.sim.node::<Watched>(node).ok_or("no switch")?.switch,
            };
            dropped += (0..switch.ports()).map(|port| switch.port_stats(port).dropped).sum::<u64>();
        }
        let lost = (0..self.sim.links()).map(|link| self.sim.link_stats(link).lost).sum();
        Ok(Ended {
            copies: counters.copies,
            answers: counters.acks_in,
            told,
            naks: counters.naks,
            rnr: counters.rnr,
            cnps,
            retransmitted,
            lost,
            dropped,
            bad: counters.bad,
            digest: self.sim.digest(),
            ..self.ended
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that once failed. 83, 1087, 1182, 4763, 7716, 14224, 18413: members that lost packets used up the sender's retries. 90, 135, 458: the limit of a
    /// member that had completed more than it had promised counted as the largest, not as the smallest. (Tests beside the merge hold the
    /// behaviours themselves: a seed makes another world when worlds get new properties.)
    const KEPT: [u64; 11] = [83, 1087, 1182, 4763, 7716, 14224, 18413, 90, 135, 458, 21_365];

    #[test]
    fn worlds_with_a_group_keep_their_promises() {
        let (seeds, enough) = crate::seeds(300);
        let (mut all, mut broken) = (Vec::new(), Vec::new());
        for seed in KEPT.into_iter().chain(seeds) {
            match run_seed(seed) {
                Ok(ended) => all.push(ended),
                Err(what) => broken.push((seed, what)),
            }
        }
        for (seed, what) in &broken {
            eprintln!("SEED {seed} {}", &what[..300.min(what.len())]);
        }
        let failed: Vec<_> = broken.iter().map(|(seed, _)| seed).collect();
        assert!(broken.is_empty(), "{} seeds failed: {failed:?}; {}", failed.len(), broken[0].1);
        if !enough {
            return;
        }
        let with = |what: &str, least: usize, f: fn(&Ended) -> bool| {
            let found = all.iter().filter(|ended| f(ended)).count();
            assert!(found >= least, "{found} worlds with {what}: too few");
        };
        with("packets sent again", 100, |e| e.retransmitted > 0);
        with("nothing sent again", 30, |e| e.retransmitted == 0);
        with("sequence NAKs", 80, |e| e.naks > 0);
        with("RNR NAKs", 40, |e| e.rnr > 0);
        with("frames lost", 100, |e| e.lost > 0);
        with("full queues", 10, |e| e.dropped > 0);
        with("congestion notifications", 20, |e| e.cnps > 0);
        with("damaged packets", 10, |e| e.bad > 0);
        with("a bad end", 15, |e| e.refused > 0);
        with("fewer answers told than came", 120, |e| e.told < e.answers);
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        for seed in 0..5 {
            assert_eq!(run_seed(seed), run_seed(seed));
        }
    }
}
