//! A swarm of worlds of SDR-RDMA: any messages in any network, and whether a set bit means right bytes, nothing is touched after a receive
//! was completed, messages land in the order of their receives, and what is sent again until it is there gets there.
//!
//! Both hosts send and receive. Memory that is in nobody's hands has a colour that no message has: whatever is placed there is seen. A
//! receive is completed early only when all of its message has left, for packets that are later than all generations look like others.

use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::{Buffer, Nic};
use softnic_sdr::{Local, QpAttr, QpId, RecvHandle, Sdr, SdrError, SdrQp, SendHandle, Split};
use softnic_sim::pair::{Pair, PairConfig};
use softnic_sim::{LinkConfig, Time};
use softnic_wire::{Instant, PathMtu};
use std::sync::Arc;

/// What a seed came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ended {
    /// Messages that came whole.
    pub whole: u64,
    /// Those whose receive was completed before.
    pub early: u64,
    /// Late packets.
    pub late: u64,
    /// Packets that came twice.
    pub duplicates: u64,
}

/// A world, as its seed says.
#[derive(Debug, Clone)]
struct World {
    seed: u64,
    attr: QpAttr,
    faults: Spec,
    rtt: Duration,
    messages: u64,
}

const ROOM: usize = 4 << 20;
const BASE: u64 = 0x40_0000;
/// Memory where no message is.
const COLOUR: u8 = 0xa5;
/// Steps between looks at everything.
const LOOK: u64 = 200;
/// How often something is done after the last message was drafted.
const LAST_TURNS: u64 = 40;
/// No world takes more.
const MAX_STEPS: u64 = 4_000_000;

impl World {
    fn new(seed: u64) -> World {
        let mut r = Random::stream(seed, 8000);
        let mut pick = |of: &[&str]| of[r.below(of.len() as u64) as usize].to_owned();
        let split = pick(&["1+27+4", "2+26+4", "2+28+2", "3+24+5", "2+30+0", "10+18+4"]);
        let faults = pick(&["", "loss=0.05", "loss=0.3", "dup=0.1", "loss=0.03,dup=0.05,jitter=20us", "corrupt=0.05"]);
        let split: Split = split.parse().unwrap_or(Split::PAPER);
        let mtu = [PathMtu::B256, PathMtu::B1024][r.below(2) as usize];
        let screened = r.chance(0.5);
        let attr = QpAttr {
            max_message: 20 * u64::from(mtu.bytes()),
            chunk: (1 + r.below(3)) as u32 * mtu.bytes(),
            split,
            slots: split.messages().min(1 + r.below(4)) as u32,
            // A slot has the same generation again after as many messages, each of which waits for a CTS: longer than any packet takes.
            generations: 3 + r.below(3) as u8,
            channels: 1 + r.below(4) as u8,
            mtu,
            key_per_generation: !screened || r.chance(0.5),
            screened,
            send_depth: 4 + r.below(60) as u32,
            ..QpAttr::default()
        };
        let rtt = Duration::from_micros([200, 200, 1000][r.below(3) as usize]);
        World { seed, attr, faults: faults.parse().unwrap_or_default(), rtt, messages: 20 + r.below(60) }
    }
}

/// A message of a flow, and its receive.
struct Message {
    len: usize,
    /// Where it lies, at both ends.
    at: usize,
    imm: Option<u32>,
    stream: bool,
    send: Option<SendHandle>,
    receive: Option<RecvHandle>,
    completed: bool,
    ended: bool,
    /// When its receive was completed, if something was missing then.
    ended_early: Option<Time>,
}

/// What goes from one host to the other.
struct Flow {
    from: usize,
    messages: Vec<Message>,
}

impl Message {
    /// The byte at a place, which is not the colour.
    fn byte(&self, i: usize) -> u8 {
        let byte = (self.at * 31 + i * 7 + i / 256) as u8;
        if byte == COLOUR { 1 } else { byte }
    }
}

/// The world while it runs.
struct Run<'w> {
    world: &'w World,
    pair: Pair<'static>,
    qps: [QpId; 2],
    memory: [Arc<Buffer>; 2],
    keys: [u32; 2],
    flows: [Flow; 2],
    ended: Ended,
}

/// Runs the world of a seed to its end.
///
/// # Errors
/// What does not hold, and the world.
pub fn run_seed(seed: u64) -> Result<Ended, String> {
    let world = World::new(seed);
    Run::new(&world).and_then(Run::run).map_err(|what| format!("sdr: {what}; seed {seed}: {world:?}"))
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
            mtu: world.attr.mtu,
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
        let memory = [(), ()].map(|()| Buffer::new(BASE, ROOM));
        memory.iter().for_each(|buffer| buffer.write_at(0, &vec![COLOUR; ROOM]));
        let (mut keys, mut made) = ([0; 2], Vec::new());
        for host in 0..2 {
            let pd = pair.sides[host].pd;
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            keys[host] = pair.nic(host).reg_mr(pd, &memory[host], access).map_err(text)?;
            made.push(SdrQp::create(pair.nic(host), pd, &world.attr).map_err(text)?);
        }
        let infos: Vec<Vec<u8>> = made.iter().map(|qp| qp.info().encode()).collect();
        let mut qps = [QpId(0); 2];
        for (host, mut qp) in made.into_iter().enumerate() {
            let (ip, mac) = (pair.network.address(1 - host).0, pair.network.next_hop(host, 1 - host));
            let path = pair.nic(host).path_to(ip, mac, 3).ok_or("no path")?;
            qp.connect(pair.nic(host), 1, &path, &infos[1 - host]).map_err(text)?;
            let mut sdr = Sdr::default();
            qps[host] = sdr.add(qp);
            pair.nic(host).set_layer(Some(Box::new(sdr)));
        }
        let flows = [0, 1].map(|from| Flow { from, messages: Vec::new() });
        Ok(Run { world, pair, qps, memory, keys, flows, ended: Ended::default() })
    }

    fn with<R>(
        &mut self,
        host: usize,
        talk: impl FnOnce(Instant, &mut SdrQp, &mut Nic) -> Result<R, SdrError>,
    ) -> Result<R, SdrError> {
        let (now, id) = (self.pair.sim.now().instant(), self.qps[host]);
        let done = self.pair.nic(host).with_layer(|layer, nic| {
            let sdr = layer.as_any_mut().downcast_mut::<Sdr>().ok_or(SdrError::NoSuchQp)?;
            talk(now, sdr.qp(id)?, nic)
        });
        self.pair.touch(host);
        done.unwrap_or(Err(SdrError::NoSuchQp))
    }

    fn run(mut self) -> Result<Ended, String> {
        let mut r = Random::stream(self.world.seed, 8100);
        let (mut next, mut left) = (self.pair.sim.now(), self.world.messages);
        let mut turns = 0;
        for step in 0..MAX_STEPS {
            if self.pair.sim.now() >= next {
                turns += u64::from(left == 0);
                if turns > LAST_TURNS {
                    return self.finish();
                }
                let flow = r.below(2) as usize;
                for _ in 0..1 + r.below(6) {
                    self.act(flow, &mut left, &mut r)?;
                }
                next = self.pair.sim.now().after(Duration::from_nanos(r.below(60_000)));
                self.pair.sim.wake_at(next, flow);
            }
            if step % LOOK == 0 {
                self.check()?;
            }
            self.pair.sim.step();
        }
        Err("liveness: it did not end".into())
    }

    /// One of the things that programs do, if it can be done now.
    fn act(&mut self, flow: usize, left: &mut u64, r: &mut Random) -> Result<(), String> {
        match r.below(8) {
            0 | 1 if *left > 0 => {
                *left -= 1;
                self.draft(flow, r);
            }
            0..4 => self.post_receive(flow)?,
            4 | 5 => self.start_send(flow)?,
            6 => self.send_missing(flow, Some(&mut *r))?,
            _ => self.complete(flow, r)?,
        }
        Ok(())
    }

    /// The next message of a flow, in memory of its own.
    fn draft(&mut self, flow: usize, r: &mut Random) {
        let longest = self.world.attr.max_message as usize;
        let len = if r.chance(0.1) { 0 } else { 1 + r.below(longest as u64) as usize };
        let number = self.flows[0].messages.len() + self.flows[1].messages.len();
        let at = number * (longest + 64);
        let imm = (self.world.attr.split.pieces() > 0 && r.chance(0.5)).then(|| r.next_u32());
        let stream = r.chance(0.7);
        let (send, receive, completed, ended) = (None, None, false, false);
        let message = Message { len, at, imm, stream, send, receive, completed, ended, ended_early: None };
        let bytes: Vec<u8> = (0..len).map(|i| message.byte(i)).collect();
        let from = self.flows[flow].from;
        self.memory[from].write_at(at, &bytes);
        self.flows[flow].messages.push(message);
    }

    fn local(&self, host: usize, at: usize, len: usize) -> Local {
        Local { key: self.keys[host], addr: BASE + at as u64, len: len as u64 }
    }

    fn post_receive(&mut self, flow: usize) -> Result<(), String> {
        let to = 1 - self.flows[flow].from;
        let Some(n) = self.flows[flow].messages.iter().position(|m| m.receive.is_none()) else { return Ok(()) };
        if self.may_meet_late_packets(flow, n) {
            return Ok(());
        }
        let Message { at, len, .. } = self.flows[flow].messages[n];
        let memory = self.local(to, at, len);
        match self.with(to, |now, qp, nic| qp.recv_post(now, nic, memory)) {
            Ok(handle) if handle.number() == n as u64 => self.flows[flow].messages[n].receive = Some(handle),
            Ok(handle) => return Err(format!("receive {n} has number {}", handle.number())),
            Err(SdrError::Full(_)) => {}
            Err(other) => return Err(other.to_string()),
        }
        Ok(())
    }

    /// Whether packets of the message that had this one's slot and generation before may still arrive. They would be taken for this one's
    /// (docs/sdr.md): programs must not complete receives early faster than that.
    fn may_meet_late_packets(&self, flow: usize, n: usize) -> bool {
        let attr = &self.world.attr;
        let same = n.checked_sub(usize::from(attr.generations) * attr.slots as usize);
        let ended_early = same.and_then(|same| self.flows[flow].messages[same].ended_early);
        ended_early.is_some_and(|at| self.pair.sim.now() < at.after(2 * self.world.rtt))
    }

    fn start_send(&mut self, flow: usize) -> Result<(), String> {
        let from = self.flows[flow].from;
        let Some(n) = self.flows[flow].messages.iter().position(|m| m.send.is_none()) else { return Ok(()) };
        let Message { at, len, imm, stream, .. } = self.flows[flow].messages[n];
        let memory = self.local(from, at, len);
        let handle = self.with(from, |now, qp, nic| match stream {
            true => qp.send_stream_start(now, nic, len as u64, imm),
            false => qp.send_post(now, nic, memory, imm),
        });
        let handle = handle.map_err(text)?;
        if handle.number() != n as u64 {
            return Err(format!("send {n} has number {}", handle.number()));
        }
        self.flows[flow].messages[n].send = Some(handle);
        Ok(())
    }

    /// The chunks of a receive that are missing; `None` where it is not posted.
    fn missing(&mut self, flow: usize, n: usize) -> Result<Option<Vec<u32>>, String> {
        let message = &self.flows[flow].messages[n];
        let (Some(handle), false) = (message.receive, message.completed) else { return Ok(None) };
        let to = 1 - self.flows[flow].from;
        let missing = self.with(to, |_, qp, _| Ok(qp.recv_bitmap_get(handle)?.missing().collect()));
        missing.map(Some).map_err(text)
    }

    /// Sends again what is missing of streams: some of it, or all.
    fn send_missing(&mut self, flow: usize, mut some: Option<&mut Random>) -> Result<(), String> {
        let (from, chunk) = (self.flows[flow].from, self.world.attr.chunk as usize);
        for n in 0..self.flows[flow].messages.len() {
            let Message { stream, send: Some(handle), ended: false, at, len, .. } = self.flows[flow].messages[n] else {
                continue;
            };
            if !stream {
                continue;
            }
            for c in self.missing(flow, n)?.unwrap_or_default() {
                if some.as_mut().is_some_and(|r| r.chance(0.6)) {
                    continue;
                }
                let offset = c as usize * chunk;
                let part = self.local(from, at + offset, chunk.min(len - offset));
                self.with(from, |now, qp, nic| qp.send_stream_continue(now, nic, handle, offset as u64, part))
                    .map_err(text)?;
            }
        }
        Ok(())
    }

    /// Completes a receive that is whole, or now and then one that is not but whose message has left.
    fn complete(&mut self, flow: usize, r: &mut Random) -> Result<(), String> {
        for n in 0..self.flows[flow].messages.len() {
            let Some(missing) = self.missing(flow, n)? else { continue };
            let whole = missing.is_empty();
            let Some(send) = self.flows[flow].messages[n].send else { continue };
            let (from, stream) = (self.flows[flow].from, self.flows[flow].messages[n].stream);
            let has_left = self
                .with(from, |_, qp, _| if stream { qp.send_stream_poll(send) } else { qp.send_poll(send) })
                .map_err(text)?;
            if has_left && (whole || r.chance(0.2)) {
                self.end(flow, n, whole)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, flow: usize, n: usize, whole: bool) -> Result<(), String> {
        let from = self.flows[flow].from;
        let Message { send, receive: Some(receive), stream, at, len, .. } = self.flows[flow].messages[n] else {
            return Ok(());
        };
        self.check_message(flow, n)?;
        if let (true, Some(send)) = (stream, send) {
            self.with(from, |_, qp, _| qp.send_stream_end(send)).map_err(text)?;
        }
        self.with(1 - from, |_, qp, nic| qp.recv_complete(nic, receive)).map_err(text)?;
        self.memory[1 - from].write_at(at, &vec![COLOUR; len]);
        let now = self.pair.sim.now();
        let message = &mut self.flows[flow].messages[n];
        (message.completed, message.ended) = (true, true);
        message.ended_early = (!whole).then_some(now);
        self.ended.whole += u64::from(whole);
        self.ended.early += u64::from(!whole);
        Ok(())
    }

    /// Whether what a receive says and has is right.
    fn check_message(&mut self, flow: usize, n: usize) -> Result<(), String> {
        let (to, chunk) = (1 - self.flows[flow].from, self.world.attr.chunk as usize);
        let message = &self.flows[flow].messages[n];
        let Message { at, len, imm, .. } = *message;
        let mut found = vec![0; len + 64];
        self.memory[to].read_at(at, &mut found);
        if found[len..].iter().any(|&byte| byte != COLOUR) {
            return Err(format!("message {n}: bytes behind its receive were touched"));
        }
        let Some(handle) = message.receive.filter(|_| !message.completed) else {
            let untouched = found.iter().all(|&byte| byte == COLOUR);
            return if untouched { Ok(()) } else { Err(format!("message {n}: memory without a receive was touched")) };
        };
        let expected: Vec<u8> = (0..len).map(|i| message.byte(i)).collect();
        let (set, told) = self
            .with(to, |_, qp, _| {
                let bitmap = qp.recv_bitmap_get(handle)?;
                Ok(((0..bitmap.chunks()).filter(|&c| bitmap.is_set(c)).collect::<Vec<_>>(), bitmap.imm()))
            })
            .map_err(text)?;
        // Of what is not said to be there some may be, and nothing else.
        if found.iter().zip(&expected).any(|(found, expected)| found != expected && *found != COLOUR) {
            return Err(format!("message {n}: bytes of another one were placed"));
        }
        for c in set {
            let range = c as usize * chunk..len.min((c as usize + 1) * chunk);
            if found[range.clone()] != expected[range] {
                return Err(format!("message {n}: chunk {c} is said to be there and is not"));
            }
        }
        match told {
            Some(told) if told != imm.unwrap_or(0) => {
                Err(format!("message {n}: its immediate is {told:x}, not {imm:x?}"))
            }
            _ => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        for flow in 0..2 {
            (0..self.flows[flow].messages.len()).try_for_each(|n| self.check_message(flow, n))?;
        }
        for host in 0..2 {
            let cleared = self.with(host, |_, qp, _| Ok(qp.vitals().cleared)).map_err(text)?;
            let posted = self.with(1 - host, |_, qp, _| Ok(qp.vitals().posted)).map_err(text)?;
            if cleared > posted {
                return Err(format!("{cleared} receives are said to be posted, and {posted} are"));
            }
            let counters = self.with(host, |_, qp, nic| Ok(qp.counters(nic))).map_err(text)?;
            if counters.rejected > 0 {
                return Err(format!("an honest peer was not believed: {counters:?}"));
            }
            if let Some(error) = self.with(host, |_, qp, _| Ok(qp.failure())).map_err(text)? {
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    /// Long enough for all that is on its way, and for questions: a sender that waits for a receive asks for ever.
    fn pass_time(&mut self) {
        let until = self.pair.sim.now().after(Duration::from_millis(300));
        while self.pair.sim.now() < until && self.pair.sim.step().is_some() {}
    }

    /// Faults stop: what is sent until it is there gets there.
    fn finish(mut self) -> Result<Ended, String> {
        self.pair.sim.set_faults_enabled(false);
        for round in 0.. {
            if self.flows.iter().all(|flow| flow.messages.iter().all(|m| m.completed)) {
                break;
            }
            if round > 3 * self.world.messages {
                return Err("liveness: messages that are sent again and again do not fill".into());
            }
            for flow in 0..2 {
                for _ in 0..self.world.attr.slots {
                    self.post_receive(flow)?;
                    self.start_send(flow)?;
                }
                self.send_missing(flow, None)?;
            }
            self.pass_time();
            self.check()?;
            for flow in 0..2 {
                for n in 0..self.flows[flow].messages.len() {
                    let Some(missing) = self.missing(flow, n)? else { continue };
                    let Message { stream, send, .. } = self.flows[flow].messages[n];
                    // What was sent once is what it is.
                    if send.is_some() && (missing.is_empty() || !stream) {
                        self.end(flow, n, missing.is_empty())?;
                    }
                }
            }
        }
        self.pass_time();
        self.check()?;
        for host in 0..2 {
            let counters = self.with(host, |_, qp, nic| Ok(qp.counters(nic))).map_err(text)?;
            self.ended.late += counters.late();
            self.ended.duplicates += counters.duplicates;
        }
        Ok(self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_of_sdr_keep_their_promises() {
        let mut all = Ended::default();
        let (seeds, enough) = crate::seeds(150);
        for seed in seeds {
            let one = run_seed(seed).unwrap_or_else(|what| panic!("{what}"));
            all.whole += one.whole;
            all.early += one.early;
            all.late += one.late;
            all.duplicates += one.duplicates;
        }
        if !enough {
            return;
        }
        assert!(all.whole > 3000 && all.early > 300 && all.late > 300 && all.duplicates > 300, "{all:?}");
    }
}
