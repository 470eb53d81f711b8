//! A swarm of worlds of reliable messages over SDR: any scheme, with any room for numbers and parity, in any network; and whether memory is
//! exactly as sent, each message is over once, nothing is touched when it is, and all complete once faults stop, or end in the timeout.
//!
//! Both hosts send and receive. Each message has memory of its own; where no receive is posted it has a colour that no message has, so
//! whatever is placed there is seen. What was sent is overwritten by its sender as soon as it is over.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::{Buffer, Nic};
use softnic_sdr::reliable::{Outcome, ReliableCounters, ReliableError, ReliableQp};
use softnic_sdr::{Local, SdrError};
use softnic_sim::LinkConfig;
use softnic_sim::pair::{Pair, PairConfig};
use softnic_wire::Instant;

use world::{Stop, World, one_of};

/// What a seed came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// Messages that were received whole.
    pub received: u64,
    /// Messages that ended in the timeout, at either end.
    pub timed_out: u64,
    /// Chunks that were sent again.
    pub repeated: u64,
    /// Chunks that were computed.
    pub recovered: u64,
    /// Messages that parity did not repair.
    pub fallbacks: u64,
    /// Further rows of parity that were sent.
    pub rows: u64,
    /// Submessages for whose parity there was no memory.
    pub unprotected: u64,
}

const BASE: u64 = 0x40_0000;
/// Memory where no receive is.
const COLOUR: u8 = 0xa5;
/// What a sender writes over a message that is over.
const OVER: u8 = 0x3c;
/// Bytes between messages.
const GAP: usize = 64;
/// Steps between looks at everything.
const LOOK: u64 = 500;
/// No world takes more.
const MAX_STEPS: u64 = 4_000_000;

/// A message, and what became of it.
struct Message {
    len: usize,
    /// Where it lies, at both ends.
    at: usize,
    /// Its receive is posted and not over.
    open: bool,
    /// What both ends were told.
    written: Option<Result<(), ReliableError>>,
    received: Option<Result<(), ReliableError>>,
}

impl Message {
    /// The byte at a place, which is not the colour.
    fn byte(&self, i: usize) -> u8 {
        let byte = (self.at * 31 + i * 7 + i / 256) as u8;
        if byte == COLOUR { 1 } else { byte }
    }
}

/// What goes from one host to the other.
struct Flow {
    messages: Vec<Message>,
    /// Sends and receives that were posted.
    sends: usize,
    receives: usize,
}

impl Flow {
    fn written(&self) -> usize {
        self.messages.iter().filter(|m| m.written.is_some()).count()
    }
}

/// The world while it runs.
struct Run<'w> {
    world: &'w World,
    pair: Pair<'static>,
    memory: [Arc<Buffer>; 2],
    keys: [u32; 2],
    /// Outcomes that wait, at each host.
    waiting: [Arc<AtomicUsize>; 2],
    /// By the host that they are from.
    flows: [Flow; 2],
    stopped: Option<usize>,
    /// A host that vanished says nothing of its memory.
    vanished: Option<usize>,
    ended: Ended,
}

/// Runs the world of a seed to its end.
///
/// # Errors
/// What does not hold, and the world.
pub fn run_seed(seed: u64) -> Result<Ended, String> {
    let world = World::new(seed);
    Run::new(&world).and_then(Run::run).map_err(|what| format!("reliable: {what}; seed {seed}: {world:?}"))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl<'w> Run<'w> {
    fn new(world: &'w World) -> Result<Run<'w>, String> {
        let mut pair = Pair::new(PairConfig {
            transport: softnic_nic::transports::Transport::Uc,
            link: LinkConfig { rate: 10_000_000_000, delay: world.rtt / 2, faults: world.faults.clone() },
            payload: PayloadMode::Real,
            mtu: world.attr.qp.mtu,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 1,
            caps: Caps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 },
            limit_flight: false,
            cq_capacity: 16,
            seed: world.seed,
            first_psn: None,
        });
        let mut room = 0;
        let flows = [0, 1].map(|from: usize| {
            let message = |&len: &usize| {
                let at = room;
                room += len + GAP;
                Message { len, at, open: false, written: None, received: None }
            };
            Flow { messages: world.lengths[from].iter().map(message).collect(), sends: 0, receives: 0 }
        });
        let memory = [(), ()].map(|()| Buffer::new(BASE, room));
        memory.iter().for_each(|buffer| buffer.write_at(0, &vec![COLOUR; room]));
        let (mut keys, mut made) = ([0; 2], Vec::new());
        for host in 0..2 {
            let pd = pair.sides[host].pd;
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            keys[host] = pair.nic(host).reg_mr(pd, &memory[host], access).map_err(text)?;
            made.push(ReliableQp::create(pair.nic(host), pd, &world.attr).map_err(text)?);
        }
        let infos: Vec<Vec<u8>> = made.iter_mut().map(|qp| qp.qp().info().encode()).collect();
        let waiting = [made[0].waiting(), made[1].waiting()];
        for (host, mut qp) in made.into_iter().enumerate() {
            let (ip, mac) = (pair.network.address(1 - host).0, pair.network.next_hop(host, 1 - host));
            let path = pair.nic(host).path_to(ip, mac, 3).ok_or("no path")?;
            qp.qp().connect(pair.nic(host), 1, &path, &infos[1 - host]).map_err(text)?;
            pair.nic(host).set_layer(Some(Box::new(qp)));
        }
        let ended = Ended::default();
        Ok(Run { world, pair, memory, keys, waiting, flows, stopped: None, vanished: None, ended })
    }

    fn with<R>(
        &mut self,
        host: usize,
        talk: impl FnOnce(Instant, &mut ReliableQp, &mut Nic) -> R,
    ) -> Result<R, SdrError> {
        let now = self.pair.sim.now().instant();
        let done = self.pair.nic(host).with_layer(|layer, nic| {
            let qp = layer.as_any_mut().downcast_mut::<ReliableQp>().ok_or(SdrError::NoSuchQp)?;
            Ok(talk(now, qp, nic))
        });
        self.pair.touch(host);
        done.unwrap_or(Err(SdrError::NoSuchQp))
    }

    fn run(mut self) -> Result<Ended, String> {
        let mut r = Random::stream(self.world.seed, 8300);
        let begin = self.pair.sim.now();
        let (mut next, mut faulty) = (begin, true);
        for step in 0..MAX_STEPS {
            let now = self.pair.sim.now();
            if faulty && now >= begin.after(self.world.faulty_for) {
                faulty = false;
                self.pair.sim.set_faults_enabled(false);
            }
            if now >= next {
                let host = r.below(2) as usize;
                for _ in 0..1 + r.below(4) {
                    if r.chance(0.5) { self.send(host)? } else { self.receive(host)? }
                }
                if self.is_over() {
                    return self.finish();
                }
                let any_left = self.flows.iter().any(|flow| flow.sends.min(flow.receives) < flow.messages.len());
                if any_left && !self.is_waiting() {
                    // Rarely when they wait for room.
                    let pause = self.world.rtt.as_nanos() as u64 * one_of(&mut r, &[1, 1, 8]) / 8;
                    next = now.after(Duration::from_nanos(1 + r.below(pause)));
                    self.pair.sim.wake_at(next, host);
                }
            }
            (0..2).try_for_each(|host| self.take_outcomes(host))?;
            self.stop();
            if step % LOOK == 0 {
                self.check()?;
            }
            if self.pair.sim.step().is_none() {
                return match self.is_over() || self.is_waiting() {
                    true => self.finish(),
                    false => Err("liveness: nothing more happens".into()),
                };
            }
        }
        Err("liveness: it did not end".into())
    }

    fn is_running(&self, host: usize) -> bool {
        self.stopped != Some(host)
    }

    fn local(&self, host: usize, at: usize, len: usize) -> Local {
        Local { key: self.keys[host], addr: BASE + at as u64, len: len as u64 }
    }

    /// Sends the next message of a host.
    fn send(&mut self, host: usize) -> Result<(), String> {
        let flow = &self.flows[host];
        let n = flow.sends;
        let Some(message) = flow.messages.get(n).filter(|_| self.is_running(host)) else { return Ok(()) };
        if n - flow.written() >= self.world.window {
            return Ok(());
        }
        let bytes: Vec<u8> = (0..message.len).map(|i| message.byte(i)).collect();
        self.memory[host].write_at(message.at, &bytes);
        let memory = self.local(host, message.at, message.len);
        match self.with(host, |now, qp, nic| qp.write(now, nic, memory)).map_err(text)? {
            Ok(id) if id == n as u64 => self.flows[host].sends += 1,
            Ok(id) => return Err(format!("send {n} has number {id}")),
            Err(SdrError::Ended) if self.stopped.is_some() => {}
            Err(other) => return Err(other.to_string()),
        }
        Ok(())
    }

    /// Posts the next receive of a host.
    fn receive(&mut self, host: usize) -> Result<(), String> {
        let flow = &self.flows[1 - host];
        let n = flow.receives;
        let Some(message) = flow.messages.get(n).filter(|_| self.is_running(host)) else { return Ok(()) };
        let memory = self.local(host, message.at, message.len);
        match self.with(host, |now, qp, nic| qp.receive(now, nic, memory)).map_err(text)? {
            Ok(id) if id == n as u64 => {
                let flow = &mut self.flows[1 - host];
                (flow.receives, flow.messages[n].open) = (n + 1, true);
            }
            Ok(id) => return Err(format!("receive {n} has number {id}")),
            Err(SdrError::Full(_)) => {}
            Err(SdrError::Ended) if self.stopped.is_some() => {}
            Err(other) => return Err(other.to_string()),
        }
        Ok(())
    }

    /// Takes what a host is told, those that were received first: they were before the peer heard of it.
    fn take_outcomes(&mut self, host: usize) -> Result<(), String> {
        while self.waiting[host].load(Ordering::Relaxed) > 0 && self.vanished != Some(host) {
            let Some(outcome) = self.with(host, |_, qp, _| qp.poll()).map_err(text)? else { break };
            match outcome {
                Outcome::Written { id, outcome } => self.on_written(host, id as usize, outcome)?,
                Outcome::Received { id, outcome } => self.on_received(host, id as usize, outcome)?,
            }
        }
        Ok(())
    }

    /// A message may end in the timeout when a host has stopped, and in nothing else ever.
    fn judge(&mut self, what: &str, n: usize, outcome: Result<(), ReliableError>) -> Result<(), String> {
        match outcome {
            Ok(()) => Ok(()),
            Err(ReliableError::Timeout) if self.stopped.is_some() => {
                self.ended.timed_out += 1;
                Ok(())
            }
            Err(error) => Err(format!("liveness: message {n} was not {what}: {error}")),
        }
    }

    fn on_written(&mut self, host: usize, n: usize, outcome: Result<(), ReliableError>) -> Result<(), String> {
        if n >= self.flows[host].sends || self.flows[host].messages[n].written.replace(outcome).is_some() {
            return Err(format!("message {n} from {host} was written twice, or never posted"));
        }
        self.judge("written", n, outcome)?;
        let message = &self.flows[host].messages[n];
        // Where the peer was not told of it yet, all of it is there.
        if outcome.is_ok() && message.received.is_none() && self.vanished.is_none() {
            if !message.open || self.bytes_of(host, n) != self.expected(host, n) {
                return Err(format!("safety: message {n} from {host} was written, and is not there"));
            }
        } else if outcome.is_ok() && message.received.is_some_and(|received| received.is_err()) {
            return Err(format!("safety: message {n} from {host} was written, and its receive failed"));
        }
        let Message { at, len, .. } = self.flows[host].messages[n];
        self.memory[host].write_at(at, &vec![OVER; len]);
        Ok(())
    }

    fn on_received(&mut self, host: usize, n: usize, outcome: Result<(), ReliableError>) -> Result<(), String> {
        let flow = &mut self.flows[1 - host];
        if n >= flow.receives || flow.messages[n].received.replace(outcome).is_some() {
            return Err(format!("message {n} to {host} was received twice, or never posted"));
        }
        self.judge("received", n, outcome)?;
        if outcome.is_ok() {
            self.ended.received += 1;
            if self.bytes_of(1 - host, n) != self.expected(1 - host, n) {
                return Err(format!("safety: message {n} to {host} was received, and is not what was sent"));
            }
        }
        let message = &mut self.flows[1 - host].messages[n];
        message.open = false;
        self.memory[host].write_at(message.at, &vec![COLOUR; message.len]);
        Ok(())
    }

    /// What a message should be at the peer, with the gap behind it, and what is there.
    fn expected(&self, from: usize, n: usize) -> Vec<u8> {
        let message = &self.flows[from].messages[n];
        (0..message.len).map(|i| message.byte(i)).chain([COLOUR; GAP]).collect()
    }

    fn bytes_of(&self, from: usize, n: usize) -> Vec<u8> {
        let Message { at, len, .. } = self.flows[from].messages[n];
        let mut found = vec![0; len + GAP];
        self.memory[1 - from].read_at(at, &mut found);
        found
    }

    /// Lets a host stop, when it is to.
    fn stop(&mut self) {
        let Some((host, after, how)) = self.world.stops else { return };
        if self.stopped.is_some() || self.flows[1 - host].written() < after {
            return;
        }
        self.stopped = Some(host);
        match how {
            Stop::Ends => _ = self.with(host, |now, qp, nic| qp.fail(now, nic, ReliableError::Timeout)),
            Stop::Vanishes => {
                self.vanished = Some(host);
                self.pair.nic(host).set_layer(None);
            }
        }
    }

    /// Whether everything that can end has: of a host whose peer stopped all that it posted, and it posts until it is told.
    fn is_over(&mut self) -> bool {
        (0..2).all(|host| {
            let (out, back) = (&self.flows[host], &self.flows[1 - host]);
            let (sends, receives) = match self.stopped {
                None => (out.messages.len(), back.messages.len()),
                Some(_) => (out.sends, back.receives),
            };
            let over = out.messages[..sends].iter().all(|m| m.written.is_some())
                && back.messages[..receives].iter().all(|m| m.received.is_some());
            let has_failed = self.with(host, |_, qp, _| qp.failure().is_some());
            self.vanished == Some(host) || over && (self.stopped.is_none() || has_failed == Ok(true))
        })
    }

    /// Whether the host that is left waits for messages that never began: all that it sent got there before its peer stopped.
    fn is_waiting(&self) -> bool {
        self.stopped.is_some_and(|host| self.flows[1 - host].messages.iter().all(|m| m.written == Some(Ok(()))))
    }

    /// The hosts that did not vanish.
    fn present(&self) -> impl Iterator<Item = usize> + use<> {
        let vanished = self.vanished;
        (0..2).filter(move |&host| vanished != Some(host))
    }

    /// Memory has what was sent, and no other byte.
    fn check(&mut self) -> Result<(), String> {
        for from in (0..2).filter(|&from| self.vanished != Some(1 - from)) {
            for n in 0..self.flows[from].messages.len() {
                let (found, open) = (self.bytes_of(from, n), self.flows[from].messages[n].open);
                if !open && found.iter().any(|&byte| byte != COLOUR) {
                    return Err(format!("safety: memory without a receive was touched, of message {n} from {from}"));
                }
                let expected = if open { self.expected(from, n) } else { Vec::new() };
                if found.iter().zip(&expected).any(|(found, expected)| found != expected && *found != COLOUR) {
                    return Err(format!("safety: message {n} from {from} has bytes that are not its own"));
                }
            }
        }
        for host in self.present() {
            let (counters, rejected) =
                self.with(host, |_, qp, nic| (qp.counters(), qp.qp().counters(nic).rejected)).map_err(text)?;
            // Parity for which there is no memory has a receive of no bytes.
            if counters.rejected > 0 || rejected > 0 && counters.unprotected == 0 {
                return Err(format!("an honest peer was not believed: {rejected} packets, {counters:?}"));
            }
        }
        Ok(())
    }

    /// What is late changes nothing.
    fn finish(mut self) -> Result<Ended, String> {
        let until = self.pair.sim.now().after(self.world.rtt * 50);
        while self.pair.sim.now() < until && self.pair.sim.step().is_some() {}
        (0..2).try_for_each(|host| self.take_outcomes(host))?;
        self.check()?;
        for host in self.present() {
            let ReliableCounters { chunks_repeated, chunks_recovered, fallbacks, rows_asked_for, unprotected, .. } =
                self.with(host, |_, qp, _| qp.counters()).map_err(text)?;
            self.ended.repeated += chunks_repeated;
            self.ended.recovered += chunks_recovered;
            self.ended.fallbacks += fallbacks;
            self.ended.rows += rows_asked_for;
            self.ended.unprotected += unprotected;
        }
        Ok(self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that once failed, all of schemes with parity. 241, 405, 886: a sender whose last blocks were acknowledged before its first were
    /// known to be complete was never done. 2283, 2454: a chunk of a block that is complete was sent for ever, for nobody said so, and a later
    /// block that was lost never.
    const KEPT: [u64; 5] = [241, 405, 886, 2283, 2454];

    #[test]
    fn worlds_of_reliable_messages_keep_their_promises() {
        let mut all = Ended::default();
        let (seeds, enough) = crate::seeds(200);
        for seed in KEPT.into_iter().chain(seeds) {
            let one = run_seed(seed).unwrap_or_else(|what| panic!("{what}"));
            all.received += one.received;
            all.timed_out += one.timed_out;
            all.repeated += one.repeated;
            all.recovered += one.recovered;
            all.fallbacks += one.fallbacks;
            all.rows += one.rows;
            all.unprotected += one.unprotected;
        }
        if !enough {
            return;
        }
        assert!(all.received > 1000 && all.timed_out > 50 && all.unprotected > 100, "{all:?}");
        assert!(all.repeated > 1000 && all.recovered > 300 && all.fallbacks > 100 && all.rows > 20, "{all:?}");
    }
}
