//! A swarm of worlds in which the NICs, links and ports of two hosts fail, in any way and at any time, while programs write, read, send and
//! notify each other.
//!
//! What must hold: the programs see no error and no sign of it all; work completes once and in order; data is there when its notification
//! is, and what a program has taken and overwritten is not written again; once faults stop, all completes. Where both ways fail at a
//! time, errors are told, in order and once.

mod world;

use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{Completion, Data, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, WcOpcode};
use softnic_shift::Notice;
use softnic_sim::dual_pair::{DualPair, DualPairConfig};
use softnic_sim::pair::{A, B};
use softnic_sim::{LinkConfig, Time};
use softnic_wire::Qpn;

use world::{Kind, Work, World};

/// What a seed came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// Work requests that completed well.
    pub completed: u64,
    /// Times that connections went to their backup, and came back.
    pub failovers: u64,
    /// See above.
    pub failbacks: u64,
    /// Sends that were sent again, and that were not because the peer had them.
    pub resubmitted: u64,
    /// See above.
    pub skipped: u64,
    /// Connections that ended in errors because both ways had failed.
    pub failed: u64,
    /// Hash of the run.
    pub digest: u64,
}

const MAX_STEPS: u64 = 2_000_000;
/// The longest that a world may take in its own time.
const LIMIT: Duration = Duration::from_secs(20);
const BASES: [u64; 2] = [0x10_0000_0000, 0x20_0000_0000];

/// One end of a connection.
struct End {
    qpn: Qpn,
    works: Vec<Work>,
    /// Where the data of each work request lies: its source here, and its place at the peer (a READ's the other way round).
    local: Vec<usize>,
    remote: Vec<usize>,
    posted: usize,
    /// Work requests before this one are done, as far as completions tell.
    done: usize,
    /// Notifications of the peer's that came, and receives that were posted.
    heard: usize,
    receives: usize,
    /// Where the first receive lies.
    recv_at: usize,
    /// The connection ended in an error.
    over: bool,
}

struct Run<'w> {
    world: &'w World,
    pair: DualPair<'static>,
    random: Random,
    /// Of each host: what is sent and read, what the peer writes and what receives take, both with room for every work request.
    sources: [Arc<Buffer>; 2],
    targets: [Arc<Buffer>; 2],
    keys: [[u32; 2]; 2],
    ends: Vec<[End; 2]>,
    /// Bytes at targets that a program has taken, and the value that it left there.
    taken: [Vec<(usize, usize)>; 2],
    next_post: [Time; 2],
    ended: Ended,
}

/// Runs the world of a seed to its end.
///
/// # Errors
/// What does not hold, and the world.
pub fn run_seed(seed: u64) -> Result<Ended, String> {
    let world = World::new(seed);
    let ended = Run::new(&world).and_then(|mut run| run.run().map_err(|what| format!("{what} ({})", run.progress())));
    let seen = World { programs: Vec::new(), ..world.clone() };
    ended.map_err(|what| format!("failover: {what}; seed {seed}: {seen:?}"))
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// The byte at a place of the memory that a host sends from.
fn byte(host: usize, at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(24 + host as u32 * 8) as u8
}

/// What a program leaves behind where it has taken data.
const TAKEN: u8 = 0xa5;

impl<'w> Run<'w> {
    fn new(world: &'w World) -> Result<Run<'w>, String> {
        let spec = |text: &str| if text.is_empty() { Ok(Default::default()) } else { text.parse().map_err(text_of) };
        let inline = 64;
        let mut pair = DualPair::new(DualPairConfig {
            transport: world.transport,
            link: LinkConfig { rate: 10_000_000_000, delay: world.delay, faults: spec(&world.faults)? },
            backup: Some(spec(&world.backup_faults)?),
            mtu: world.mtu,
            timeout: world.timeout,
            retry_cnt: world.retry,
            rnr_retry: 7,
            caps: Caps {
                max_send_wr: world.depth,
                max_recv_wr: world.receives as u32,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline: inline,
            },
            sig_all: world.sig_all,
            cq_capacity: 256,
            times: world.times,
            seed: world.seed,
        });
        // The ends meet before anything goes wrong.
        pair.sim.set_faults_enabled(false);
        let mut room = [0usize; 4];
        let mut take = |of: usize, len: usize| {
            room[of] += len + 8;
            room[of] - len - 8
        };
        let mut layout = Vec::new();
        for programs in &world.programs {
            layout.push([A, B].map(|host| {
                let works = &programs[host];
                // A READ's source is at the peer, its target here.
                let local = |work: &Work, take: &mut dyn FnMut(usize, usize) -> usize| match work.kind {
                    Kind::Read => (take(2 + host, work.len), take(1 - host, work.len)),
                    _ => (take(host, work.len), take(2 + 1 - host, work.len)),
                };
                let (local, remote): (Vec<_>, Vec<_>) = works.iter().map(|work| local(work, &mut take)).unzip();
                let peers = programs[1 - host].iter().filter(|work| work.kind.notifies());
                let longest = peers.clone().map(|work| work.len).max().unwrap_or(0);
                let recv_at = take(2 + host, peers.count() * (longest + 8));
                (local, remote, recv_at)
            }));
        }
        let sources = [A, B].map(|host| Buffer::new(BASES[host], room[host].max(1)));
        let targets = [A, B].map(|host| Buffer::new(BASES[host] + (1 << 32), room[2 + host].max(1)));
        for host in [A, B] {
            let bytes: Vec<u8> = (0..room[host]).map(|at| byte(host, at)).collect();
            sources[host].write_at(0, &bytes);
        }
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mut keys = [[0; 2]; 2];
        for host in [A, B] {
            keys[host][0] = pair.reg_mr(host, &sources[host], access).map_err(text)?;
            keys[host][1] = pair.reg_mr(host, &targets[host], access).map_err(text)?;
        }
        let mut ends = Vec::new();
        for (programs, layout) in world.programs.iter().zip(layout) {
            let qpns = pair.connect().map_err(text)?;
            if !pair.protect(qpns) {
                return Err("the ends do not meet".into());
            }
            let mut layout = layout.into_iter();
            ends.push([A, B].map(|host| {
                let (local, remote, recv_at) = layout.next().unwrap_or_default();
                End {
                    qpn: qpns[host],
                    works: programs[host].clone(),
                    local,
                    remote,
                    posted: 0,
                    done: 0,
                    heard: 0,
                    receives: 0,
                    recv_at,
                    over: false,
                }
            }));
        }
        Ok(Run {
            world,
            pair,
            random: Random::stream(world.seed, 8601),
            sources,
            targets,
            keys,
            ends,
            taken: [Vec::new(), Vec::new()],
            next_post: [Time::default(); 2],
            ended: Ended::default(),
        })
    }

    fn run(&mut self) -> Result<Ended, String> {
        let begin = self.pair.sim.now();
        let after = |span: Duration| Time(begin.0 + span.as_nanos() as u64 * 1000);
        for change in &self.world.ports {
            self.pair.sim.wake_at(after(change.at), change.host);
        }
        self.pair.sim.wake_at(after(self.world.faulty_for), A);
        let mut ports = self.world.ports.iter().peekable();
        let mut faulty = true;
        self.pair.sim.set_faults_enabled(true);
        for _ in 0..MAX_STEPS {
            let now = self.pair.sim.now();
            while let Some(change) = ports.next_if(|change| after(change.at) <= now) {
                self.pair.host(change.host).nic.set_link(change.up);
                self.pair.sim.touch(change.host);
            }
            if faulty && after(self.world.faulty_for) <= now {
                faulty = false;
                self.pair.sim.set_faults_enabled(false);
            }
            for host in [A, B] {
                self.take_completions(host)?;
                self.post(host)?;
            }
            if self.is_over() {
                return self.finish();
            }
            if now > after(LIMIT) {
                return Err("it takes too long".into());
            }
            let Some(node) = self.pair.sim.step() else { return Err("nothing happens any more".into()) };
            for notice in self.pair.attend(node) {
                self.on_notice(notice)?;
            }
        }
        Err("it does not end".into())
    }

    fn on_notice(&mut self, notice: Notice) -> Result<(), String> {
        if let Notice::Failed(qpn, why) = notice {
            self.ended.failed += 1;
            if !self.world.may_fail {
                return Err(format!("{qpn:?} failed: {why:?}"));
            }
        }
        Ok(())
    }

    /// Posts receives and sends as far as there is room.
    fn post(&mut self, host: usize) -> Result<(), String> {
        let now = self.pair.sim.now();
        let mut touched = false;
        for c in 0..self.ends.len() {
            touched |= self.post_receives(host, c)?;
            while self.next_post[host] <= now && self.post_send(host, c)? {
                touched = true;
                if !self.world.pause.is_zero() {
                    let pause = self.random.below(self.world.pause.as_nanos() as u64 + 1);
                    self.next_post[host] = Time(now.0 + pause * 1000);
                    self.pair.sim.wake_at(self.next_post[host], host);
                }
            }
        }
        if touched {
            self.pair.sim.touch(host);
        }
        Ok(())
    }

    fn post_receives(&mut self, host: usize, c: usize) -> Result<bool, String> {
        let peers = &self.ends[c][1 - host].works;
        let longest = peers.iter().filter(|work| work.kind.notifies()).map(|work| work.len).max().unwrap_or(0);
        let total = peers.iter().filter(|work| work.kind.notifies()).count();
        let mut any = false;
        loop {
            let end = &mut self.ends[c][host];
            if end.receives == total || end.receives >= end.heard + self.world.receives || end.over {
                return Ok(any);
            }
            let at = end.recv_at + end.receives * (longest + 8);
            // In two pieces, where that is possible.
            let half = longest / 2;
            let sge = |at: usize, len: usize| Sge {
                addr: self.targets[host].addr() + at as u64,
                len: len as u32,
                lkey: self.keys[host][1],
            };
            let sges = [sge(at, half), sge(at + half, longest - half)];
            let wr_id = (c << 32 | end.receives) as u64;
            let (qpn, wr) = (end.qpn, RecvWr { wr_id, sges: &sges, best_effort: None });
            match self.pair.host(host).post_recv(qpn, &wr) {
                Ok(()) => self.ends[c][host].receives += 1,
                Err(softnic_nic::transports::PostError::QueueFull) => return Ok(any),
                Err(error) => return Err(format!("a receive is refused: {error}")),
            }
            any = true;
        }
    }

    fn post_send(&mut self, host: usize, c: usize) -> Result<bool, String> {
        let end = &self.ends[c][host];
        let Some(&work) = end.works.get(end.posted) else { return Ok(false) };
        if end.posted - end.done >= self.world.depth as usize || end.over {
            return Ok(false);
        }
        let (local, remote) = (end.local[end.posted], end.remote[end.posted]);
        let (ours, theirs) = match work.kind {
            Kind::Read => (&self.targets[host], (&self.sources[1 - host], self.keys[1 - host][0])),
            _ => (&self.sources[host], (&self.targets[1 - host], self.keys[1 - host][1])),
        };
        let lkey = self.keys[host][usize::from(work.kind == Kind::Read)];
        let sges = [Sge { addr: ours.addr() + local as u64, len: work.len as u32, lkey }];
        let (remote_addr, rkey, imm) = (theirs.0.addr() + remote as u64, theirs.1, end.posted as u32);
        let op = match work.kind {
            Kind::Write => SendOp::Write { remote_addr, rkey },
            Kind::Read => SendOp::Read { remote_addr, rkey },
            Kind::Send => SendOp::Send,
            Kind::SendImm => SendOp::SendImm { imm },
            Kind::WriteImm => SendOp::WriteImm { remote_addr, rkey, imm },
        };
        let bytes: Vec<u8> = (local..local + work.len).map(|at| byte(host, at)).collect();
        let data = if work.inline { Data::Inline(&bytes) } else { Data::Gather(&sges) };
        let flags = SendFlags { signaled: work.signaled, solicited: false, fence: work.fence };
        let wr_id = (c << 32 | end.posted) as u64;
        let wr = SendWr { wr_id, op, data, flags, best_effort: None, to: None };
        let (qpn, now) = (end.qpn, self.pair.sim.now().instant());
        match self.pair.host(host).post_send(now, qpn, &wr) {
            Ok(()) => self.ends[c][host].posted += 1,
            Err(softnic_nic::transports::PostError::QueueFull) => return Ok(false),
            Err(error) => return Err(format!("a send is refused: {error}")),
        }
        Ok(true)
    }

    fn take_completions(&mut self, host: usize) -> Result<(), String> {
        let (send_cq, recv_cq) = (self.pair.sides[host].send_cq, self.pair.sides[host].recv_cq);
        while let Some(completion) = self.pair.host(host).poll_cq(send_cq).map_err(text)? {
            self.on_send(host, &completion)?;
        }
        while let Some(completion) = self.pair.host(host).poll_cq(recv_cq).map_err(text)? {
            self.on_recv(host, &completion)?;
        }
        Ok(())
    }

    /// The connection that a completion is of, and the number of the work request there.
    fn place(&self, host: usize, completion: &Completion) -> Result<(usize, usize), String> {
        let (c, n) = ((completion.wr_id >> 32) as usize, completion.wr_id as u32 as usize);
        match self.ends.get(c) {
            Some(ends) if ends[host].qpn == completion.qpn => Ok((c, n)),
            _ => Err(format!("a completion of another queue pair: {completion:?}")),
        }
    }

    fn on_send(&mut self, host: usize, completion: &Completion) -> Result<(), String> {
        let (c, n) = self.place(host, completion)?;
        let may_fail = self.world.may_fail;
        let sig_all = self.world.sig_all;
        let end = &mut self.ends[c][host];
        let next = match completion.status == Status::Success && !end.over {
            true => (end.done..end.posted).find(|&n| end.works[n].signaled || sig_all),
            // An error is told of the first that is not done, which may have been silent until then.
            false if end.over => Some(end.done),
            false => Some(n).filter(|&n| n >= end.done && !(end.done..n).any(|n| end.works[n].signaled || sig_all)),
        };
        if next != Some(n) || n >= end.posted {
            return Err(format!("send {n} of {c} completes, and not {next:?}: {completion:?}"));
        }
        end.done = n + 1;
        if completion.status != Status::Success {
            let first = !end.over;
            end.over = true;
            if !may_fail || first && completion.status == Status::Success {
                return Err(format!("send {n} of {c} ends badly: {completion:?}"));
            }
            return Ok(());
        }
        if end.over {
            return Err(format!("send {n} of {c} goes well behind an error"));
        }
        self.ended.completed += 1;
        let (work, local, remote) = (end.works[n], end.local[n], end.remote[n]);
        let expected = match work.kind {
            Kind::Write | Kind::WriteImm => WcOpcode::Write,
            Kind::Read => WcOpcode::Read,
            Kind::Send | Kind::SendImm => WcOpcode::Send,
        };
        if completion.opcode != expected {
            return Err(format!("send {n} of {c} has another opcode: {completion:?}"));
        }
        if work.kind == Kind::Read {
            self.check(host, local, work.len, remote, "a READ")?;
        }
        Ok(())
    }

    /// A notification: all data before it is there, and is taken.
    fn on_recv(&mut self, host: usize, completion: &Completion) -> Result<(), String> {
        let (c, n) = self.place(host, completion)?;
        let [a, b] = &self.ends[c];
        let (end, peer) = if host == A { (a, b) } else { (b, a) };
        if n != end.heard || n >= end.receives {
            return Err(format!("receive {n} of {c} completes, and not {}: {completion:?}", end.heard));
        }
        if completion.status != Status::Success {
            if !self.world.may_fail {
                return Err(format!("receive {n} of {c} ends badly: {completion:?}"));
            }
            let end = &mut self.ends[c][host];
            (end.heard, end.over) = (n + 1, true);
            return Ok(());
        }
        let notices = |works: &[Work]| -> Vec<usize> {
            works.iter().enumerate().filter(|(_, work)| work.kind.notifies()).map(|(i, _)| i).collect()
        };
        let all = notices(&peer.works);
        let Some(&at) = all.get(n) else { return Err(format!("receive {n} of {c}: nobody sent that")) };
        let first = n.checked_sub(1).map_or(0, |before| all[before] + 1);
        if at >= peer.posted {
            return Err(format!("receive {n} of {c}: it was not sent yet"));
        }
        let work = peer.works[at];
        let longest = all.iter().map(|&i| peer.works[i].len).max().unwrap_or(0);
        let imm = matches!(work.kind, Kind::SendImm | Kind::WriteImm).then_some(at as u32);
        let opcode = if work.kind == Kind::WriteImm { WcOpcode::RecvWriteImm } else { WcOpcode::Recv };
        if (completion.imm, completion.opcode, completion.byte_len as usize) != (imm, opcode, work.len) {
            return Err(format!("receive {n} of {c} is another one than {work:?}: {completion:?}"));
        }
        let mut places: Vec<(usize, usize, usize)> = (first..=at)
            .filter(|&i| matches!(peer.works[i].kind, Kind::Write | Kind::WriteImm))
            .map(|i| (peer.remote[i], peer.works[i].len, peer.local[i]))
            .collect();
        if opcode == WcOpcode::Recv {
            places.push((end.recv_at + n * (longest + 8), work.len, peer.local[at]));
        }
        for (target, len, source) in places {
            self.check(host, target, len, source, "data behind a notification")?;
            self.targets[host].write_at(target, &vec![TAKEN; len]);
            self.taken[host].push((target, len));
        }
        self.ends[c][host].heard += 1;
        Ok(())
    }

    /// Whether bytes at a host are those of the peer's memory.
    fn check(&self, host: usize, at: usize, len: usize, source: usize, what: &str) -> Result<(), String> {
        let mut bytes = vec![0; len];
        self.targets[host].read_at(at, &mut bytes);
        let wrong = (0..len).find(|&i| bytes[i] != byte(1 - host, source + i));
        wrong.map_or(Ok(()), |i| Err(format!("{what} at {host} is not there: byte {i} of {len} at {at}")))
    }

    fn is_over(&self) -> bool {
        self.ends.iter().all(|ends| {
            let over = ends[A].over || ends[B].over;
            [A, B].into_iter().all(|host| {
                let (end, peer) = (&ends[host], &ends[1 - host]);
                let notices = peer.works.iter().filter(|work| work.kind.notifies()).count();
                let all = end.done == end.works.len() && end.heard == notices;
                // Of work that is done and not signaled nobody is told, whatever follows.
                let told = |end: &End| {
                    end.works[end.done..end.posted].iter().all(|work| !work.signaled && !self.world.sig_all)
                };
                all || over && ends.iter().all(told)
            })
        })
    }

    fn finish(&mut self) -> Result<Ended, String> {
        // What still comes late does no harm.
        let end = Time(self.pair.sim.now().0 + 20_000_000_000);
        while self.pair.sim.now() < end {
            let Some(node) = self.pair.sim.step() else { break };
            self.pair.attend(node);
            for host in [A, B] {
                let cqs = [self.pair.sides[host].send_cq, self.pair.sides[host].recv_cq];
                for cq in cqs {
                    if let Some(completion) = self.pair.host(host).poll_cq(cq).map_err(text)?
                        && (completion.status == Status::Success || !self.world.may_fail)
                    {
                        return Err(format!("one more completion: {completion:?}"));
                    }
                }
            }
        }
        for host in [A, B] {
            for &(at, len) in &self.taken[host] {
                let mut bytes = vec![0; len];
                self.targets[host].read_at(at, &mut bytes);
                if bytes.iter().any(|&byte| byte != TAKEN) {
                    return Err(format!("{len} bytes at {at} of {host} were written again after they were taken"));
                }
            }
            if let Some(counters) = self.pair.host(host).failover_counters() {
                self.ended.failovers += counters.failovers;
                self.ended.failbacks += counters.failbacks;
                self.ended.resubmitted += counters.resubmitted;
                self.ended.skipped += counters.skipped;
            }
        }
        self.ended.digest = self.pair.sim.digest();
        Ok(self.ended)
    }

    fn progress(&mut self) -> String {
        let mut all = format!("at {:?}", self.pair.sim.now().instant());
        for c in 0..self.ends.len() {
            for host in [A, B] {
                let End { qpn, posted, done, heard, receives, .. } = self.ends[c][host];
                let total = self.ends[c][host].works.len();
                let nic = self.pair.host(host);
                let machine = nic.machine(qpn).map(|m| format!("{:?} {:?} {}", m.phase(), m.recv_on(), m.epoch()));
                all += &format!(
                    "; {c}{}: {done} of {posted} of {total}, {heard} of {receives}, {}",
                    ["a", "b"][host],
                    machine.unwrap_or_default()
                );
            }
        }
        all
    }
}

fn text_of(error: softnic_fault_injector::SpecError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as `SOFTNIC_SEEDS` says, from `SOFTNIC_FIRST_SEED` on.
    #[test]
    fn worlds_whose_nics_fail_go_on() {
        let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
        let first = number("SOFTNIC_FIRST_SEED").unwrap_or(0);
        let mut sum = Ended::default();
        let (mut bad, mut seeds) = (Vec::new(), 0);
        for seed in first..first + number("SOFTNIC_SEEDS").unwrap_or(300) {
            seeds += 1;
            match run_seed(seed) {
                Ok(ended) => {
                    sum.completed += ended.completed;
                    sum.failovers += ended.failovers;
                    sum.failbacks += ended.failbacks;
                    sum.resubmitted += ended.resubmitted;
                    sum.skipped += ended.skipped;
                    sum.failed += ended.failed;
                }
                Err(what) => bad.push(what),
            }
        }
        println!("{seeds} seeds: {sum:?}");
        assert!(
            bad.is_empty(),
            "{} of {seeds} failed\n{}",
            bad.len(),
            bad.iter().take(5).cloned().collect::<Vec<_>>().join("\n")
        );
        assert!(sum.failovers > 0 && sum.failbacks > 0 && sum.skipped > 0 && sum.resubmitted > 0);
    }

    #[test]
    fn a_world_is_the_same_each_time() {
        for seed in 0..5 {
            assert_eq!(run_seed(seed), run_seed(seed));
        }
    }
}
