//! `softnic sim`: one host keeps a number of work requests outstanding to the other until all are done.

mod ending;
mod hosts;
mod options;
mod recording;
mod reliable;
mod sdr;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hosts::{Hosts, pair_of};
use options::check;
pub use options::{Backup, Cc, Op, Options, Outage, SimError, UNITS};
pub(crate) use options::{Unsupported, unsupported};
pub use sdr::SdrOptions;
use softnic_fault_injector::random::Random;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::{Completion, Data, Datagram, RecvWr, SendFlags, SendWr, Sge, Status};
use softnic_nic::{AddressAttr, Buffer};
use softnic_trace::Trace;
use softnic_wire::{Qpn, grh};

use crate::Time;
use crate::bounded::Messages;
use crate::delivery::{UnderWay, same_bytes};
use crate::pair::{A, B, Network, QKEY};
use crate::report::{CompletionTimes, Delivered, Report};

/// Where the payload of a run may lie on each side, at most; with larger windows messages share slots.
const MAX_BUFFER: u64 = 8 << 20;
/// The stream of random numbers that the secret of authenticated runs is drawn from.
const SECRET: u64 = 1000;
const ADDRESS: [u64; 2] = [0x10_0000_0000, 0x20_0000_0000];
/// Where bitmaps begin, on either side: behind all payload.
const BITMAPS: u64 = 0x30_0000_0000;

/// One connection of the workload.
struct Flow {
    qpns: [Qpn; 2],
    keys: [u32; 2],
    base: [u64; 2],
    buffers: Option<[Arc<Buffer>; 2]>,
    posted: u64,
    outstanding: u32,
    /// When each outstanding work request was posted, by its number modulo the depth.
    posted_at: Vec<u64>,
    receives: u64,
    /// Where datagrams go.
    to: Option<Datagram>,
    /// What was sent and has not arrived, where nobody acknowledges it.
    under_way: UnderWay,
    /// Messages of best effort.
    messages: Option<Messages>,
}

/// Events between two looks at who runs it, where that is not to be slow.
const NOW_AND_THEN: u64 = 1 << 16;

/// The state of a run.
struct Run<'a, 'p> {
    options: &'a Options,
    hosts: Hosts<'p>,
    /// Ports that go down or up, and when, the next one last.
    changes: Vec<(Time, usize, bool)>,
    flows: Vec<Flow>,
    slots: u64,
    /// Bytes from a slot to the next on each side.
    stride: [u64; 2],
    /// Bytes of network header in front of what is received.
    header: usize,
    posted: u64,
    /// Work requests that completed at the requester.
    sent: u64,
    /// What came of messages of best effort.
    delivered: Delivered,
    /// The same for a reliable connection; without one, messages that arrived.
    done: u64,
    failed: u64,
    first_failure: Option<Status>,
    stalled: bool,
    interrupted: bool,
    times: CompletionTimes,
    last_completion: u64,
    /// When the first work request was posted: after the negotiation, where there is one.
    start: u64,
}

/// Runs to the end. `progress` is told now and then how many work requests are done; `capture` gets every
/// frame as a pcap file; give it a buffer, and flush it afterwards.
pub fn run(
    options: &Options,
    capture: Option<&mut dyn io::Write>,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, SimError> {
    let mut go_on = |done| {
        progress(done);
        true
    };
    run_traced(options, capture, None, &mut go_on)
}

/// The same, and all that happens at both hosts is in the trace: its queue pairs are those of `a`, which sends requests, and of `b`. `go_on` is told how many work
/// requests are done, and says whether to go on: the report of a run that did not is of what was done until then.
pub fn run_traced(
    options: &Options,
    capture: Option<&mut dyn io::Write>,
    trace: Option<&Trace>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Report, SimError> {
    match options.sdr {
        Some(SdrOptions { scheme: Some(scheme), .. }) => return reliable::run(options, scheme, capture, trace, go_on),
        Some(_) => return sdr::run(options, capture, trace, go_on),
        None => {}
    }
    check(options)?;
    let written = std::cell::RefCell::new(Ok(()));
    let mut run = Run::new(options)?;
    recording::begin(run.hosts.sim(), capture, trace, &written)?;
    let outcome = run.drive(NOW_AND_THEN, &mut |at| go_on(at.completed + at.failed) && written.borrow().is_ok());
    let report = outcome.and_then(|()| run.report());
    drop(run);
    written.into_inner().map_err(SimError::Capture)?;
    report
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Work requests that completed well at the requester.
    pub completed: u64,
    /// Those that ended otherwise.
    pub failed: u64,
    /// Virtual time since the first was posted.
    pub elapsed: Duration,
    /// Virtual time since the run began: before that, queue pairs negotiate, and meet their backups.
    pub now: Duration,
}

/// Runs as long as `go_on` says so, which is asked after every event.
pub fn run_timed(options: &Options, go_on: &mut dyn FnMut(Progress) -> bool) -> Result<Report, SimError> {
    check(options)?;
    let mut run = Run::new(options)?;
    run.drive(1, go_on)?;
    run.report()
}

impl<'a, 'p> Run<'a, 'p> {
    fn new(o: &'a Options) -> Result<Run<'a, 'p>, SimError> {
        let mut hosts = Hosts::new(o)?;
        let header = if !o.transport.kind().is_connected() { grh::LEN } else { 0 };
        let size = u64::from(o.size).max(1);
        let stride = [size, size + header as u64];
        let slots = (MAX_BUFFER / size / u64::from(o.qps)).clamp(1, u64::from(o.depth));
        let mut fill = Random::stream(o.seed, 4);
        let mut flows = Vec::with_capacity(o.qps as usize);
        for i in 0..u64::from(o.qps) {
            let base = [A, B].map(|host| ADDRESS[host] + i * slots * stride[host]);
            let real = o.payload == PayloadMode::Real;
            let buffers = real.then(|| [A, B].map(|h| Buffer::new(base[h], (slots * stride[h]) as usize)));
            match (&buffers, o.op) {
                (Some([from, _]), Op::Write | Op::Send) | (Some([_, from]), Op::Read) => fill_randomly(from, &mut fill),
                _ => {}
            }
            let mut keys = [0; 2];
            for host in [A, B] {
                let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
                let access = Access::LOCAL_WRITE | remote;
                keys[host] = match &buffers {
                    Some(b) => hosts.reg_mr(host, &b[host], access)?,
                    None => {
                        let pd = hosts.side(host).pd;
                        hosts.sim().nic(host).alloc_null_mr(pd, access)?
                    }
                };
            }
            let qpns = hosts.connect()?;
            for host in [A, B].into_iter().filter(|_| o.cc != Cc::None) {
                // Only connections take one, and that was checked.
                let _ = hosts.sim().nic(host).set_congestion_control(qpns[host], o.cc.make(o.rate, Duration::ZERO));
            }
            let to = if !o.transport.kind().is_connected() {
                let (ip, mac) = Network::default().address(B);
                let attr = AddressAttr::new(ip, mac, 0, qpns[A].value());
                let pd = hosts.side(A).pd;
                let ah = hosts.sim().nic(A).create_ah(pd, &attr)?;
                Some(Datagram { ah, dest_qp: qpns[B], qkey: QKEY })
            } else {
                None
            };
            let messages = o.transport.is_bounded().then(|| {
                let (host, slots) = if o.op == Op::Read { (A, o.depth) } else { (B, o.receives()) };
                let register = |bitmaps: &Arc<Buffer>| hosts.reg_mr(host, bitmaps, Access::LOCAL_WRITE);
                Messages::new(o.bounds(), slots, |bytes| BITMAPS + i * bytes, register)
            });
            let messages = messages.transpose()?;
            flows.push(Flow {
                qpns,
                keys,
                base,
                buffers,
                posted: 0,
                outstanding: 0,
                posted_at: vec![0; o.depth as usize],
                receives: 0,
                to,
                under_way: UnderWay::default(),
                messages,
            });
        }
        Ok(Run {
            options: o,
            hosts,
            changes: o.port_changes(),
            flows,
            slots,
            stride,
            header,
            posted: 0,
            sent: 0,
            delivered: Delivered::default(),
            done: 0,
            failed: 0,
            first_failure: None,
            stalled: false,
            interrupted: false,
            times: CompletionTimes::default(),
            last_completion: 0,
            start: 0,
        })
    }

    /// To the end, or until `go_on` says no, which is asked after so many events each.
    fn drive(&mut self, each: u64, go_on: &mut dyn FnMut(Progress) -> bool) -> Result<(), SimError> {
        let total = self.options.count;
        for i in 0..self.flows.len() {
            // With a deadline, a receive is posted when its message is.
            let ahead = if self.options.deadline.is_some() { 0 } else { self.options.depth * 2 };
            (0..ahead).for_each(|_| self.post_receive(i));
        }
        let connections: Vec<[Qpn; 2]> = self.flows.iter().map(|flow| flow.qpns).collect();
        self.hosts.meet(self.options, &connections);
        self.start = self.hosts.now().as_nanos();
        for &(at, host, _) in &self.changes {
            self.hosts.sim().wake_at(at, host);
        }
        self.post_sends();
        let mut events = 0u64;
        // Without acknowledgements nobody knows what will still come, so all that is on the way is awaited.
        while !self.is_reliable() || self.done + self.failed < total {
            let Some(node) = self.hosts.step() else {
                self.stalled = self.sent + self.failed < total;
                break;
            };
            self.change_ports();
            if node == A {
                self.collect_sends()?;
            } else {
                self.collect_receives()?;
            }
            events += 1;
            if events.is_multiple_of(each) && !go_on(self.progress()) {
                self.interrupted = true;
                return Ok(());
            }
        }
        go_on(self.progress());
        Ok(())
    }

    fn progress(&self) -> Progress {
        let now = self.hosts.now().as_nanos();
        Progress {
            completed: self.sent,
            failed: self.failed,
            elapsed: Duration::from_nanos(now - self.start),
            now: Duration::from_nanos(now),
        }
    }

    /// Ports go down and up when it is time.
    fn change_ports(&mut self) {
        while let Some((_, host, up)) = self.changes.pop_if(|(at, ..)| *at <= self.hosts.sim().now()) {
            self.hosts.sim().nic(host).set_link(up);
            self.hosts.sim().touch(host);
        }
    }

    fn is_reliable(&self) -> bool {
        self.options.transport.is_reliable()
    }

    /// Tops up every queue pair, in turn, so that they share the count evenly.
    fn post_sends(&mut self) {
        let mut any = true;
        while any && self.posted < self.options.count {
            any = false;
            for i in 0..self.flows.len() {
                if self.posted < self.options.count && self.flows[i].outstanding < self.options.depth {
                    any |= self.post_send(i);
                }
            }
        }
        self.hosts.sim().touch(A);
    }

    fn post_send(&mut self, i: usize) -> bool {
        let (size, now) = (self.options.size, self.hosts.now());
        let reliable = self.is_reliable();
        if self.options.deadline.is_some() {
            self.post_receive(i);
        }
        let flow = &mut self.flows[i];
        let is_read = self.options.op == Op::Read;
        let work = flow.messages.as_ref().map(|m| m.work(now, is_read));
        let offset = flow.posted % self.slots * u64::from(size);
        let sges = [Sge { addr: flow.base[A] + offset, len: size, lkey: flow.keys[A] }];
        let (remote_addr, rkey) = (flow.base[B] + offset, flow.keys[B]);
        let wr = SendWr {
            wr_id: ((i as u64) << 40) | (flow.posted % u64::from(self.options.depth)),
            op: self.options.op.request(reliable, remote_addr, rkey, flow.posted),
            data: Data::Gather(&sges),
            flags: SendFlags { signaled: true, solicited: false, fence: false },
            best_effort: work.as_ref(),
            to: flow.to,
        };
        if self.hosts.post_send(A, flow.qpns[A], &wr).is_err() {
            return false;
        }
        let at = (flow.posted % u64::from(self.options.depth)) as usize;
        flow.posted_at[at] = now.as_nanos();
        match &mut flow.messages {
            Some(messages) => {
                messages.on_send(now.as_nanos());
                if is_read {
                    messages.on_receive();
                }
            }
            None if !reliable => flow.under_way.post(now.as_nanos()),
            None => {}
        }
        flow.posted += 1;
        flow.outstanding += 1;
        self.posted += 1;
        true
    }

    fn post_receive(&mut self, i: usize) {
        if !self.options.op.uses_receives(self.is_reliable()) {
            return;
        }
        let now = self.hosts.now();
        let len = self.options.size + self.header as u32;
        let flow = &mut self.flows[i];
        let slot = flow.receives % self.slots;
        let addr = flow.base[B] + slot * self.stride[B];
        flow.receives += 1;
        // What a WRITE brings goes elsewhere.
        let sges = [Sge { addr, len, lkey: flow.keys[B] }];
        let sges = if self.options.op == Op::Write { &[] } else { &sges[..] };
        let work = flow.messages.as_ref().map(|m| m.work(now, true));
        let wr = RecvWr { wr_id: ((i as u64) << 40) | slot, sges, best_effort: work.as_ref() };
        let qpn = flow.qpns[B];
        // The queue holds as many as are ever posted; on a queue pair in error they are flushed.
        let _ = self.hosts.post_recv(B, qpn, &wr);
        if let Some(messages) = &mut flow.messages {
            messages.on_receive();
        }
    }

    /// Takes completions and posts as many again, until there are none: on a queue pair in error each post ends at once.
    fn collect_sends(&mut self) -> Result<(), SimError> {
        let cq = self.hosts.side(A).send_cq;
        let now = self.hosts.now().as_nanos();
        while let Ok(Some(first)) = self.hosts.poll_cq(A, cq) {
            self.count_send(first, now)?;
            while let Ok(Some(c)) = self.hosts.poll_cq(A, cq) {
                self.count_send(c, now)?;
            }
            if self.posted < self.options.count {
                self.post_sends();
            }
        }
        Ok(())
    }

    fn count_send(&mut self, c: Completion, now: u64) -> Result<(), SimError> {
        self.hosts.sim().record(c.wr_id ^ (now << 20) ^ ((c.status as u64) << 60));
        let flow = &mut self.flows[(c.wr_id >> 40) as usize];
        flow.outstanding -= 1;
        if c.status == Status::Success {
            self.sent += 1;
            if !self.options.transport.is_reliable() && self.options.op != Op::Read {
                return Ok(()); // done when it arrives
            }
            if flow.messages.is_some() {
                return self.end_message(c);
            }
            self.done += 1;
            self.last_completion = now;
            self.times.record(now - flow.posted_at[(c.wr_id & 0xff_ffff_ffff) as usize]);
        } else {
            self.failed += 1;
            self.last_completion = now;
            self.first_failure.get_or_insert(c.status);
        }
        Ok(())
    }

    fn collect_receives(&mut self) -> Result<(), SimError> {
        let cq = self.hosts.side(B).recv_cq;
        while let Ok(Some(c)) = self.hosts.poll_cq(B, cq) {
            if !self.is_reliable() {
                self.count_delivery(c)?;
            }
            if c.status == Status::Success && self.options.deadline.is_none() {
                self.post_receive((c.wr_id >> 40) as usize);
            }
        }
        Ok(())
    }

    /// A receive of the second host completed: a message arrived that nobody acknowledges.
    fn count_delivery(&mut self, c: Completion) -> Result<(), SimError> {
        let (qp, slot) = ((c.wr_id >> 40) as usize, c.wr_id & 0xff_ffff_ffff);
        let now = self.hosts.now().as_nanos();
        self.hosts.sim().record(c.wr_id ^ (now << 20) ^ ((c.status as u64) << 60));
        if c.status != Status::Success {
            return Ok(());
        }
        if self.flows[qp].messages.is_some() {
            return self.end_message(c);
        }
        let flow = &mut self.flows[qp];
        let Some((number, posted_at)) = c.imm.and_then(|imm| flow.under_way.arrive(imm)) else { return Ok(()) };
        self.done += 1;
        self.last_completion = now;
        self.times.record(now - posted_at);
        let from = number % self.slots;
        let to = if self.options.op == Op::Write { from } else { slot };
        let at = [(from * self.stride[A]) as usize, (to * self.stride[B]) as usize + self.header];
        match &flow.buffers {
            // What lies in a slot of the sender never changes.
            Some(b) if !same_bytes(b.each_ref(), at[A], at[B], self.options.size as usize) => {
                Err(SimError::Data { qp, slot: from as usize })
            }
            _ => Ok(()),
        }
    }

    /// A message of best effort ended, at the side that gets its bytes.
    fn end_message(&mut self, c: Completion) -> Result<(), SimError> {
        let (qp, now) = ((c.wr_id >> 40) as usize, self.hosts.now().as_nanos());
        let flow = &mut self.flows[qp];
        let ended = flow.messages.as_mut().and_then(|m| m.end(&c, &mut self.delivered));
        let Some((number, posted_at)) = ended else { return Ok(()) };
        self.done += 1;
        self.last_completion = now;
        self.times.record(now - posted_at);
        // All of a message lies in one slot, on both sides.
        let at = [A, B].map(|h| (number % self.slots * self.stride[h]) as usize);
        let buffers = flow.buffers.as_ref().map(|b| b.each_ref());
        match flow.messages.as_mut().is_none_or(|m| m.is_right(number, &c, buffers, at)) {
            true => Ok(()),
            false => Err(SimError::Data { qp, slot: (number % self.slots) as usize }),
        }
    }
}

fn fill_randomly(buffer: &Buffer, random: &mut Random) {
    let mut block = [0u8; 4096];
    let mut at = 0;
    while at < buffer.len() {
        let n = block.len().min(buffer.len() - at);
        for word in block.as_chunks_mut::<8>().0 {
            // Five random bits a byte, all in 0x40 … 0x5f: tshark takes payload that begins like an Ethernet type for that
            // protocol, and calls the packet malformed.
            *word = random.next_u64().to_le_bytes().map(|b| 0x40 | (b & 0x1f));
        }
        buffer.write_at(at, &block[..n]);
        at += n;
    }
}
