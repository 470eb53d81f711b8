//! Messages over SDR: the receiver ends each when all its chunks are there, or when nothing more of it can come; what is missing is not sent again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::Time;
use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::{Buffer, Nic};
use softnic_sdr::reliable::{Fallback, ReliableAttr, Scheme};
use softnic_sdr::{Local, QpAttr, QpId, RecvHandle, Sdr, SdrQp, SendHandle, Split};
use softnic_trace::Trace;
use softnic_wire::{Instant, Path};

use super::options::{Op, Options, SimError, check};
use super::{ADDRESS, MAX_BUFFER, NOW_AND_THEN, fill_randomly, pair_of, recording};
use crate::delivery::same_bytes;
use crate::pair::{A, B, Pair};
use crate::report::{Chunks, CompletionTimes, Report};

/// How long nothing may leave before the run stands still: a thousand questions of a sender.
const PATIENCE: Duration = Duration::from_secs(128);

/// What the queue pairs of a run over SDR are made with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SdrOptions {
    /// Bytes that a bit of the bitmap stands for; `None` for 64 KiB, and for a packet where messages are reliable.
    pub chunk: Option<u32>,
    /// Queue pairs that the packets of a message go by in turn.
    pub channels: u8,
    /// How often numbers of messages come round before a late packet can be taken for a later message's.
    pub generations: u8,
    /// The division of immediates.
    pub split: Split,
    /// What makes messages reliable; without it the receiver ends each with what came.
    pub scheme: Option<Scheme>,
    /// What queues may add to a round trip, as a part of it.
    pub alpha: f64,
    /// What a receiver asks for where parity did not repair all.
    pub fallback: Fallback,
}

impl Default for SdrOptions {
    fn default() -> SdrOptions {
        let QpAttr { channels, generations, split, .. } = QpAttr::default();
        let alpha = ReliableAttr::default().alpha;
        SdrOptions { chunk: None, channels, generations, split, scheme: None, alpha, fallback: Fallback::default() }
    }
}

/// A message that was sent.
struct Sent {
    handle: SendHandle,
    posted_at: u64,
}

struct Run<'a, 'p> {
    options: &'a Options,
    attr: QpAttr,
    hosts: Hosts<'p>,
    qps: [QpId; 2],
    /// What lies where a message will.
    nothing: Vec<u8>,
    posted: u64,
    /// Messages that are not over, the oldest first.
    sends: VecDeque<Sent>,
    receives: VecDeque<RecvHandle>,
    /// When nothing more can come of those that have left, the oldest first.
    over_at: VecDeque<Time>,
    done: u64,
    last: u64,
    stalled: bool,
    chunks: Chunks,
    times: CompletionTimes,
}

/// Runs to the end, or until `go_on` says no.
pub(super) fn run(
    options: &Options,
    capture: Option<&mut dyn io::Write>,
    trace: Option<&Trace>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Report, SimError> {
    check(options)?;
    let written = RefCell::new(Ok(()));
    let mut run = Run::new(options)?;
    recording::begin(&mut run.hosts.pair.sim, capture, trace, &written)?;
    let outcome = run.drive(&mut |done| go_on(done) && written.borrow().is_ok());
    let report = outcome.map(|interrupted| run.report(interrupted));
    drop(run);
    written.into_inner().map_err(SimError::Capture)?;
    report
}

/// Two hosts with memory for messages.
pub(super) struct Hosts<'p> {
    pub(super) pair: Pair<'p>,
    pub(super) keys: [u32; 2],
    /// Memory that messages lie in; `None` where no payload is carried.
    pub(super) buffers: Option<[Arc<Buffer>; 2]>,
    /// Messages that have memory of their own.
    pub(super) slots: u64,
}

impl Hosts<'_> {
    pub(super) fn new(o: &Options) -> Result<Hosts<'static>, SimError> {
        let mut pair = pair_of(o);
        let size = u64::from(o.size).max(1);
        let slots = (MAX_BUFFER / size).clamp(1, o.depth.into());
        let real = o.payload == PayloadMode::Real;
        let buffers = real.then(|| [A, B].map(|host| Buffer::new(ADDRESS[host], (slots * size) as usize)));
        if let Some([from, _]) = &buffers {
            fill_randomly(from, &mut Random::stream(o.seed, 4));
        }
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mut keys = [0; 2];
        for host in [A, B] {
            let (pd, nic) = (pair.sides[host].pd, pair.sim.nic(host));
            keys[host] = match &buffers {
                Some(buffers) => nic.reg_mr(pd, &buffers[host], access)?,
                None => nic.alloc_null_mr(pd, access)?,
            };
        }
        Ok(Hosts { pair, keys, buffers, slots })
    }

    /// Whether so many bytes at an offset are at the receiver what they are at the sender, where there are any.
    pub(super) fn same(&self, at: usize, len: usize) -> bool {
        self.buffers.as_ref().is_none_or(|buffers| same_bytes(buffers.each_ref(), at, at, len))
    }

    /// The way from one host to the other.
    pub(super) fn path(&mut self, host: usize) -> Result<Path, SimError> {
        let (ip, mac) = (self.pair.network.address(1 - host).0, self.pair.network.next_hop(host, 1 - host));
        let path = self.pair.sim.nic(host).path_to(ip, mac, 0);
        path.ok_or(SimError::Options("the two hosts have no way to each other"))
    }
}

/// What the queue pairs of a run are made with.
pub(super) fn attr_of(o: &Options, scheme: Option<Scheme>) -> Result<QpAttr, SimError> {
    let sdr = o.sdr.unwrap_or_default();
    let usual = if sdr.scheme.is_some() { o.mtu.bytes() } else { 64 << 10 };
    // With parity a message is many.
    let max_message = match scheme {
        Some(Scheme::Ec(_)) => 1,
        _ => o.size.max(1).into(),
    };
    let attr = QpAttr {
        max_message,
        chunk: sdr.chunk.unwrap_or(usual),
        split: sdr.split,
        slots: o.depth,
        generations: sdr.generations,
        channels: sdr.channels,
        mtu: o.mtu,
        ..QpAttr::default()
    };
    attr.check().map_err(|e| SimError::Sdr(e.into()))?;
    Ok(attr)
}

impl<'a, 'p> Run<'a, 'p> {
    fn new(o: &'a Options) -> Result<Run<'a, 'p>, SimError> {
        let attr = attr_of(o, None)?;
        let mut hosts = Hosts::new(o)?;
        let mut made = Vec::new();
        for host in [A, B] {
            let (pd, nic) = (hosts.pair.sides[host].pd, hosts.pair.sim.nic(host));
            made.push(SdrQp::create(nic, pd, &attr)?);
        }
        let infos = [A, B].map(|host| made[host].info().encode());
        let mut qps = [QpId(0); 2];
        for (host, mut qp) in made.into_iter().enumerate() {
            let path = hosts.path(host)?;
            let nic = hosts.pair.sim.nic(host);
            qp.connect(nic, 1, &path, &infos[1 - host])?;
            let mut sdr = Sdr::default();
            qps[host] = sdr.add(qp);
            nic.set_layer(Some(Box::new(sdr)));
        }
        Ok(Run {
            options: o,
            attr,
            nothing: if hosts.buffers.is_some() { vec![0; o.size as usize] } else { Vec::new() },
            hosts,
            qps,
            posted: 0,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            over_at: VecDeque::new(),
            done: 0,
            last: 0,
            stalled: false,
            chunks: Chunks::default(),
            times: CompletionTimes::default(),
        })
    }

    /// To the end; whether somebody ended it before.
    fn drive(&mut self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<bool, SimError> {
        let ahead = self.options.count.min(self.options.depth.into());
        (0..ahead).try_for_each(|n| self.post_receive(n))?;
        self.post_sends()?;
        let (mut events, mut seen, mut seen_at) = (0u64, (0, 0), self.hosts.pair.sim.now());
        while self.done < self.options.count {
            // A sender that hears nothing asks for ever.
            let progress = (self.done, self.data_packets());
            if progress != seen {
                (seen, seen_at) = (progress, self.hosts.pair.sim.now());
            }
            let patience = PATIENCE.max(self.options.longest_round_trip() * 100);
            if self.hosts.pair.sim.now() > seen_at.after(patience) || self.hosts.pair.sim.step().is_none() {
                self.stalled = true;
                return Ok(false);
            }
            self.look_at_sends()?;
            self.look_at_receives()?;
            events += 1;
            if events.is_multiple_of(NOW_AND_THEN) && !go_on(self.done) {
                return Ok(true);
            }
        }
        go_on(self.done);
        Ok(false)
    }

    /// Packets of messages that left.
    fn data_packets(&mut self) -> u64 {
        let counters = self.hosts.pair.sim.nic(A).counters();
        counters.sent_requests - counters.sdr_asks_sent
    }

    /// Lets a call work on the queue pair of a host.
    fn with<R>(
        &mut self,
        host: usize,
        call: impl FnOnce(Instant, &mut SdrQp, &mut Nic) -> Result<R, softnic_sdr::SdrError>,
    ) -> Result<R, SimError> {
        let (now, id) = (self.hosts.pair.sim.now().instant(), self.qps[host]);
        let done = self.hosts.pair.sim.nic(host).with_layer(|layer, nic| {
            let sdr = layer.as_any_mut().downcast_mut::<Sdr>().ok_or(softnic_sdr::SdrError::NoSuchQp)?;
            call(now, sdr.qp(id)?, nic)
        });
        Ok(done.unwrap_or(Err(softnic_sdr::SdrError::NoSuchQp))?)
    }

    fn at(&self, number: u64) -> u64 {
        number % self.hosts.slots * u64::from(self.options.size)
    }

    fn memory(&self, host: usize, number: u64) -> Local {
        Local { key: self.hosts.keys[host], addr: ADDRESS[host] + self.at(number), len: self.options.size.into() }
    }

    fn post_receive(&mut self, number: u64) -> Result<(), SimError> {
        let memory = self.memory(B, number);
        // Lest bytes of an earlier message are taken for this one's, where no other message is in the same place now.
        if let (Some([_, to]), true) = (&self.hosts.buffers, self.hosts.slots == u64::from(self.options.depth)) {
            to.write_at(self.at(number) as usize, &self.nothing);
        }
        let handle = self.with(B, |now, qp, nic| qp.recv_post(now, nic, memory))?;
        self.receives.push_back(handle);
        self.hosts.pair.touch(B);
        Ok(())
    }

    fn post_sends(&mut self) -> Result<(), SimError> {
        while self.posted < self.options.count && self.posted - self.done < self.options.depth.into() {
            let memory = self.memory(A, self.posted);
            let handle = self.with(A, |now, qp, nic| qp.send_post(now, nic, memory, None))?;
            let posted_at = self.hosts.pair.sim.now().instant().as_nanos();
            self.sends.push_back(Sent { handle, posted_at });
            self.posted += 1;
        }
        self.hosts.pair.touch(A);
        Ok(())
    }

    /// Of a message that has left all has come, or is lost, after the longest round trip; what still comes then is late.
    fn look_at_sends(&mut self) -> Result<(), SimError> {
        while let Some(handle) = self.sends.get(self.over_at.len()).map(|sent| sent.handle) {
            if !self.with(A, |_, qp, _| qp.send_poll(handle))? {
                break;
            }
            let at = self.hosts.pair.sim.now().after(self.options.longest_round_trip());
            self.over_at.push_back(at);
            self.hosts.pair.sim.wake_at(at, B);
        }
        Ok(())
    }

    fn look_at_receives(&mut self) -> Result<(), SimError> {
        let before = self.done;
        while let (Some(&handle), false) = (self.receives.front(), self.sends.is_empty()) {
            let bitmap = self.with(B, |_, qp, _| qp.recv_bitmap_get(handle).cloned())?;
            // One that came before its sender knows that it left waits for that: in virtual time the two are one.
            let Some(&over_at) = self.over_at.front() else { break };
            if !bitmap.is_full() && self.hosts.pair.sim.now() < over_at {
                break;
            }
            self.end_first(handle, &bitmap)?;
        }
        if self.done > before { self.post_sends() } else { Ok(()) }
    }

    /// Ends the oldest receive, with the chunks that came, and posts another.
    fn end_first(&mut self, handle: RecvHandle, bitmap: &softnic_sdr::Bitmap) -> Result<(), SimError> {
        let (chunk, size, now) = (self.attr.chunk, self.options.size, self.hosts.pair.sim.now().instant().as_nanos());
        let (number, base) = (self.done, self.at(self.done) as usize);
        self.chunks.chunks += u64::from(bitmap.chunks());
        for n in 0..bitmap.chunks() {
            if !bitmap.is_set(n) {
                self.chunks.missing += 1;
                continue;
            }
            let from = n * chunk;
            let len = chunk.min(size - from) as usize;
            if !self.hosts.same(base + from as usize, len) {
                return Err(SimError::Data { qp: 0, slot: (number % self.hosts.slots) as usize });
            }
            self.chunks.bytes += len as u64;
        }
        self.with(B, |_, qp, nic| qp.recv_complete(nic, handle))?;
        self.receives.pop_front();
        self.over_at.pop_front();
        if let Some(sent) = self.sends.pop_front() {
            self.times.record(now - sent.posted_at);
        }
        self.hosts.pair.sim.record(number ^ now << 20 ^ u64::from(bitmap.count()) << 48);
        (self.done, self.last) = (self.done + 1, now);
        let next = number + self.options.depth as u64;
        if next < self.options.count { self.post_receive(next) } else { Ok(()) }
    }

    fn report(&mut self, interrupted: bool) -> Report {
        let (o, seconds) = (self.options, self.last as f64 / 1e9);
        let per_second = |bits: f64| if seconds > 0.0 { bits / seconds } else { 0.0 };
        let links = self.hosts.pair.links.map(|l| self.hosts.pair.sim.link_stats(l));
        let [requester, responder] = [A, B].map(|host| *self.hosts.pair.sim.nic(host).counters());
        let mut applied_events = vec![0; o.faults.script.events.len()];
        self.hosts.pair.sim.count_applied(&self.hosts.pair.links, &mut applied_events);
        let counted = self.with(B, |_, qp, nic| Ok(qp.counters(nic))).unwrap_or_default();
        let chunks = Chunks { late_packets: counted.late(), cts_sent: counted.cts_sent, ..self.chunks };
        Report {
            goodput_gbps: per_second(chunks.bytes as f64 * 8.0) / 1e9,
            link_utilization: per_second(links[A].wire_bytes as f64 * 8.0) / o.rate as f64,
            completion_times: self.times.clone(),
            completed: self.done,
            delivered: None,
            chunks: Some(chunks),
            reliability: None,
            failed: 0,
            stalled: self.stalled,
            interrupted,
            first_failure: None,
            tx_packets: requester.sent_requests,
            retransmitted_packets: 0,
            virtual_ms: self.last as f64 / 1e6,
            digest: self.hosts.pair.sim.digest(),
            requester,
            responder,
            applied_events,
            links,
            failover: None,
        }
    }
}

/// What a run over SDR cannot have.
pub(super) fn check_options(o: &Options) -> Option<&'static str> {
    o.sdr?;
    if o.op != Op::Write {
        return Some("sdr has messages that are written: leave --op out");
    }
    if o.qps != 1 {
        return Some("a run of sdr has one queue pair, of several channels: --channels instead of --qps");
    }
    (o.cc != super::Cc::None).then_some("sdr has no congestion control: leave --cc out")
}
