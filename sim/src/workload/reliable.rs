//! Reliable messages over SDR: each is done when the receiver has said that all of it is there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_nic::transports::Status;
use softnic_sdr::reliable::{Outcome, ReliableAttr, ReliableQp, Scheme, Shortfall};
use softnic_sdr::{Local, SdrError};
use softnic_trace::Trace;
use softnic_wire::Instant;

use super::options::{Options, SimError, check};
use super::sdr::{Hosts, SdrOptions, attr_of};
use super::{ADDRESS, NOW_AND_THEN, recording};
use crate::pair::{A, B};
use crate::report::{CompletionTimes, Reliability, Report};

/// How long a message may take: virtual time costs nothing, and a run that stands still is told by that.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Receives for each message that may be in flight.
const AHEAD: u32 = 2;

struct Run<'a, 'p> {
    options: &'a Options,
    hosts: Hosts<'p>,
    chunk: u32,
    shortfall: Option<Shortfall>,
    /// Messages that are not done, at their sender: each with the time at which it was posted.
    posted_at: BTreeMap<u64, u64>,
    posted: u64,
    receives: u64,
    done: u64,
    failed: u64,
    last: u64,
    stalled: bool,
    times: CompletionTimes,
}

/// Runs to the end, or until `go_on` says no.
pub(super) fn run(
    options: &Options,
    scheme: Scheme,
    capture: Option<&mut dyn io::Write>,
    trace: Option<&Trace>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Report, SimError> {
    check(options)?;
    let written = RefCell::new(Ok(()));
    let mut run = Run::new(options, scheme)?;
    recording::begin(&mut run.hosts.pair.sim, capture, trace, &written)?;
    let outcome = run.drive(&mut |done| go_on(done) && written.borrow().is_ok());
    let report = outcome.map(|interrupted| run.report(interrupted));
    drop(run);
    written.into_inner().map_err(SimError::Capture)?;
    report
}

impl<'a> Run<'a, '_> {
    fn new(o: &'a Options, scheme: Scheme) -> Result<Run<'a, 'static>, SimError> {
        // Receives are posted ahead of messages: then nobody waits for a CTS.
        let qp = attr_of(&Options { depth: o.depth.saturating_mul(AHEAD), ..o.clone() }, Some(scheme))?;
        let SdrOptions { alpha, fallback, .. } = o.sdr.unwrap_or_default();
        let rtt = o.longest_round_trip().max(Duration::from_micros(1));
        let attr = ReliableAttr { qp, scheme, alpha, fallback, timeout: TIMEOUT, ..ReliableAttr::default() };
        let attr = attr.sized_for(o.rate, rtt);
        let mut hosts = Hosts::new(o)?;
        let mut made = Vec::new();
        for host in [A, B] {
            let (pd, nic) = (hosts.pair.sides[host].pd, hosts.pair.sim.nic(host));
            made.push(ReliableQp::create(nic, pd, &attr)?);
        }
        let infos = [A, B].map(|host| made[host].qp().info().encode());
        for (host, mut qp) in made.into_iter().enumerate() {
            let path = hosts.path(host)?;
            let nic = hosts.pair.sim.nic(host);
            qp.qp().connect(nic, 1, &path, &infos[1 - host])?;
            nic.set_layer(Some(Box::new(qp)));
        }
        Ok(Run {
            options: o,
            hosts,
            chunk: qp.chunk,
            shortfall: attr.shortfall(),
            posted_at: BTreeMap::new(),
            posted: 0,
            receives: 0,
            done: 0,
            failed: 0,
            last: 0,
            stalled: false,
            times: CompletionTimes::default(),
        })
    }

    /// To the end; whether somebody ended it before.
    fn drive(&mut self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<bool, SimError> {
        self.post()?;
        let mut events = 0u64;
        while self.done + self.failed < self.options.count {
            if self.hosts.pair.sim.step().is_none() {
                self.stalled = true;
                return Ok(false);
            }
            if self.look()? {
                self.post()?;
            }
            events += 1;
            if events.is_multiple_of(NOW_AND_THEN) && !go_on(self.done) {
                return Ok(true);
            }
        }
        go_on(self.done);
        Ok(false)
    }

    /// Lets a call work on the connection of a host.
    fn with<R>(
        &mut self,
        host: usize,
        call: impl FnOnce(Instant, &mut ReliableQp, &mut Nic) -> Result<R, SdrError>,
    ) -> Result<R, SimError> {
        let now = self.now();
        let done = self.hosts.pair.sim.nic(host).with_layer(|layer, nic| {
            let qp = layer.as_any_mut().downcast_mut::<ReliableQp>().ok_or(SdrError::NoSuchQp)?;
            call(now, qp, nic)
        });
        Ok(done.unwrap_or(Err(SdrError::NoSuchQp))?)
    }

    fn now(&self) -> Instant {
        self.hosts.pair.sim.now().instant()
    }

    fn memory(&self, host: usize, number: u64) -> Local {
        let (key, len) = (self.hosts.keys[host], u64::from(self.options.size));
        Local { key, addr: ADDRESS[host] + number % self.hosts.slots * len, len }
    }

    /// Posts as many messages as may be in flight: a place of memory serves again when the oldest message is done.
    fn post(&mut self) -> Result<(), SimError> {
        let depth = u64::from(self.options.depth);
        let oldest = self.posted_at.first_key_value().map_or(self.posted, |(&id, _)| id);
        while self.receives < self.options.count.min(oldest + depth * u64::from(AHEAD)) {
            let memory = self.memory(B, self.receives);
            match self.with(B, |now, qp, nic| qp.receive(now, nic, memory)) {
                // The oldest is not over at the receiver, or its slot would be free.
                Err(SimError::Sdr(SdrError::Full(_))) => break,
                posted => posted?,
            };
            self.receives += 1;
            self.hosts.pair.touch(B);
        }
        while self.posted < self.options.count.min(oldest + depth) {
            let memory = self.memory(A, self.posted);
            let id = self.with(A, |now, qp, nic| qp.write(now, nic, memory))?;
            self.posted_at.insert(id, self.now().as_nanos());
            self.posted += 1;
            self.hosts.pair.touch(A);
        }
        Ok(())
    }

    /// Takes what is over; whether anything was.
    fn look(&mut self) -> Result<bool, SimError> {
        let mut any = false;
        while let Some(outcome) = self.with(B, |_, qp, _| Ok(qp.poll()))? {
            if let Outcome::Received { id, outcome: Ok(()) } = outcome {
                self.compare(id)?;
            }
            any = true;
        }
        while let Some(outcome) = self.with(A, |_, qp, _| Ok(qp.poll()))? {
            let Outcome::Written { id, outcome } = outcome else { continue };
            let now = self.now().as_nanos();
            if let Some(posted_at) = self.posted_at.remove(&id) {
                self.times.record(now - posted_at);
            }
            match outcome {
                Ok(()) => self.done += 1,
                Err(_) => self.failed += 1,
            }
            self.hosts.pair.sim.record(id ^ now << 20);
            (self.last, any) = (now, true);
        }
        Ok(any)
    }

    /// What came is what was sent, where no other message is in the same place by now.
    fn compare(&self, id: u64) -> Result<(), SimError> {
        if self.hosts.slots < u64::from(self.options.depth) {
            return Ok(());
        }
        let slot = id % self.hosts.slots;
        let (at, len) = ((slot * u64::from(self.options.size)) as usize, self.options.size as usize);
        match self.hosts.same(at, len) {
            true => Ok(()),
            false => Err(SimError::Data { qp: 0, slot: slot as usize }),
        }
    }

    fn report(&mut self, interrupted: bool) -> Report {
        let (o, seconds) = (self.options, self.last as f64 / 1e9);
        let per_second = |bits: f64| if seconds > 0.0 { bits / seconds } else { 0.0 };
        let links = self.hosts.pair.links.map(|l| self.hosts.pair.sim.link_stats(l));
        let [requester, responder] = [A, B].map(|host| *self.hosts.pair.sim.nic(host).counters());
        let mut applied_events = vec![0; o.faults.script.events.len()];
        self.hosts.pair.sim.count_applied(&self.hosts.pair.links, &mut applied_events);
        let [sent, told] = [A, B].map(|host| self.with(host, |_, qp, _| Ok(qp.counters())).unwrap_or_default());
        Report {
            goodput_gbps: per_second(self.done as f64 * f64::from(o.size) * 8.0) / 1e9,
            link_utilization: per_second(links[A].wire_bytes as f64 * 8.0) / o.rate as f64,
            completion_times: self.times.clone(),
            completed: self.done,
            delivered: None,
            chunks: None,
            reliability: Some(Reliability {
                chunk: self.chunk,
                chunks_repeated: sent.chunks_repeated,
                acks_sent: told.acks_sent,
                nacks_sent: told.nacks_sent,
                timeouts: sent.timeouts,
                parity_packets: sent.parity_packets,
                rows_asked_for: sent.rows_asked_for,
                recovered_packets: told.packets_recovered,
                fallbacks: told.fallbacks,
                failed_submessages: told.failed_submessages,
                unprotected: sent.unprotected + told.unprotected,
                shortfall: self.shortfall,
            }),
            failed: self.failed,
            stalled: self.stalled,
            interrupted,
            first_failure: (self.failed > 0).then_some(Status::RetryExcErr),
            tx_packets: requester.sent_requests,
            retransmitted_packets: sent.packets_repeated,
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
