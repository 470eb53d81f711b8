//! The part of an SDR queue pair that is at one engine of a NIC: its channels there, what they send and what comes by them.
//!
//! A NIC of one engine has one, which is part of the [`SdrQp`](crate::SdrQp). Of several engines each that has channels has a branch: all
//! branches are told of the same messages in the same order, and each sends and takes the packets of its own channels. What they share is the
//! bitmap of a receive and two numbers ([`Common`]).

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{Completion, CqId, Status};
use softnic_nic::{Connection, Nic, QpAttr as NicQpAttr, QpInit, QpKind, Sink, SlotTarget};
use softnic_wire::{Instant, Path, Psn, Qpn};

use crate::Local;
use crate::arrivals::Arrivals;
use crate::attr::QpAttr;
use crate::bitmap::{Bitmap, Pool};
use crate::counters::Counters;
use crate::error::SdrError;
use crate::info::{Contact, QpInfo};
use crate::receives::{Posting, RecvHandle, place};
use crate::sends::{SendHandle, Sends};
use crate::turns::Turns;
use crate::watch::Watch;

/// What the branches of a queue pair tell each other.
#[derive(Debug)]
pub(crate) struct Common {
    /// Receives that the peer has posted, as far as it is known. Where control messages come says so.
    pub(crate) cleared: AtomicU64,
    /// One more than the number of the newest message of which something came.
    pub(crate) seen: AtomicU64,
    /// What has left.
    pub(crate) watch: Arc<Watch>,
}

impl Common {
    /// Of so many branches.
    pub(crate) fn new(branches: usize) -> Common {
        Common { cleared: AtomicU64::new(0), seen: AtomicU64::new(0), watch: Arc::new(Watch::new(branches)) }
    }
}

/// What two ends know of each other: our information and the peer's, which fit together.
#[derive(Debug)]
pub struct Link {
    pub(crate) ours: QpInfo,
    pub(crate) peer: QpInfo,
}

/// The channels of an SDR queue pair that are at one engine.
pub struct Branch {
    attr: QpAttr,
    pub(crate) turns: Turns,
    /// The sink of what comes, and of what has left.
    data: CqId,
    left: CqId,
    /// Of each generation, the queue pairs that are here.
    qps: Vec<Vec<Qpn>>,
    /// The root key of each generation; one for all, where they share it.
    pub(crate) keys: Vec<u32>,
    link: Option<Arc<Link>>,
    pub(crate) sends: Sends,
    /// Numbers of sends that have left, for as long as they are looked at.
    gone: Vec<u64>,
    pub(crate) common: Arc<Common>,
    seen: u64,
    /// What the NIC's own counters have of it.
    published: Counters,
    /// Of no receive.
    nothing: Bitmap,
    /// Why sending stopped, if it did.
    failed: Option<SdrError>,
}

/// Sends that have left.
#[derive(Default)]
struct Left {
    numbers: Vec<u64>,
    /// How the first one ended that did not.
    failed: Option<Status>,
}

impl Sink for Left {
    fn on_completion(&mut self, completion: &Completion) {
        match completion.status {
            Status::Success => self.numbers.push(completion.wr_id),
            status => _ = self.failed.get_or_insert(status),
        }
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Branch {
    /// Makes the channels of this engine, and says each in `ours`. `keys` are the root keys as another engine drew them, if one did.
    pub(crate) fn create(
        nic: &mut Nic,
        pd: PdId,
        attr: &QpAttr,
        turns: Turns,
        common: Arc<Common>,
        ours: &mut QpInfo,
        keys: Option<&[u32]>,
    ) -> Result<Branch, SdrError> {
        let mut this = Branch {
            attr: *attr,
            turns,
            data: nic.create_cq_sink(Box::new(Arrivals::of(attr, turns))),
            left: nic.create_cq_sink(Box::<Left>::default()),
            qps: Vec::new(),
            keys: Vec::new(),
            link: None,
            sends: Sends::new(Arc::clone(&common.watch), turns.engine()),
            gone: Vec::new(),
            common,
            seen: 0,
            published: Counters::default(),
            nothing: Pool::default().take(0),
            failed: None,
        };
        match this.make(nic, pd, ours, keys) {
            Ok(()) => Ok(this),
            Err(error) => {
                this.destroy(nic);
                Err(error)
            }
        }
    }

    fn make(&mut self, nic: &mut Nic, pd: PdId, ours: &mut QpInfo, keys: Option<&[u32]>) -> Result<(), SdrError> {
        let attr = self.attr;
        let (slot_len, slots, writes) = (attr.slot_len(), attr.slots, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let shared = !attr.key_per_generation || planted(Bug::SdrSharedKey);
        for i in 0..if shared { 1 } else { usize::from(attr.generations) } {
            let key = match keys {
                None => nic.alloc_indirect_key(pd, slot_len, slots, writes)?,
                Some(keys) => nic.alloc_indirect_key_as(keys[i], pd, slot_len, slots, writes)?,
            };
            self.keys.push(key);
        }
        let max_send_wr = attr.send_depth;
        let caps = Caps { max_send_wr, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline: 0 };
        for g in 0..attr.generations {
            let key = self.key(g);
            self.qps.push(Vec::new());
            for channel in self.turns.channels() {
                let qpn = nic.create_qp(&QpInit::new(QpKind::Uc, pd, self.left, self.data, caps))?;
                self.qps[usize::from(g)].push(qpn);
                let contact = Contact { qpn, psn: Psn::new(nic.draw() & 0x00ff_ffff) };
                let said = &mut ours.generations[usize::from(g)];
                (said.key, said.channels[channel as usize]) = (key, contact);
                if let Some(arrivals) = self.arrivals(nic) {
                    arrivals.add_queue_pair(qpn, g, channel as u8, key);
                }
            }
        }
        Ok(())
    }

    /// Gives back all that it has of the NIC. What was posted is over: no byte of it is touched any more.
    pub fn destroy(mut self, nic: &mut Nic) {
        self.publish(nic);
        for qpn in self.qps.drain(..).flatten() {
            let _ = nic.destroy_qp(qpn);
        }
        for key in self.keys.drain(..) {
            let _ = nic.dealloc_indirect_key(key);
        }
        for cq in self.completion_queues() {
            let _ = nic.destroy_cq(cq);
        }
    }

    /// Its completion queues on the NIC.
    pub fn completion_queues(&self) -> [CqId; 2] {
        [self.data, self.left]
    }

    fn key(&self, generation: u8) -> u32 {
        self.keys[usize::from(generation) % self.keys.len()]
    }

    fn arrivals<'a>(&self, nic: &'a mut Nic) -> Option<&'a mut Arrivals> {
        nic.sink_mut(self.data)?.as_any_mut().downcast_mut()
    }

    /// Connects its channels, by `path` from our port of this number.
    pub fn connect(&mut self, nic: &mut Nic, port: u8, path: &Path, link: &Arc<Link>) -> Result<(), SdrError> {
        for (ours, theirs) in link.ours.generations.iter().zip(&link.peer.generations) {
            for channel in self.turns.channels() {
                let (ours, theirs) = (&ours.channels[channel as usize], &theirs.channels[channel as usize]);
                connect(nic, port, path, (ours, theirs), channel as u16, &self.attr)?;
            }
        }
        self.link = Some(Arc::clone(link));
        Ok(())
    }

    /// Ends all that it sends and receives: no packet leaves or is taken any more.
    pub fn fail(&mut self, nic: &mut Nic) {
        self.qps.iter().flatten().for_each(|&qpn| fail(nic, qpn));
        // Also what waits for a receive of the peer's, and was never posted.
        self.stop(SdrError::Send(Status::WrFlushErr));
    }

    /// Nothing more is sent.
    fn stop(&mut self, why: SdrError) {
        self.failed.get_or_insert(why);
        self.common.watch.failed.store(true, Ordering::Release);
    }

    /// What it counted.
    pub fn counters(&self, nic: &mut Nic) -> Counters {
        self.arrivals(nic).map(|arrivals| arrivals.counters).unwrap_or_default()
    }

    // ---- sends ----

    /// Sends the packets of a message that are for these channels: all of it, once.
    pub fn send_post(
        &mut self,
        now: Instant,
        nic: &mut Nic,
        memory: Local,
        imm: Option<u32>,
    ) -> Result<SendHandle, SdrError> {
        let link = self.link.as_ref().ok_or(SdrError::NotConnected)?;
        let handle = self.sends.start(&link.peer, memory.len, imm)?;
        self.sends.add(handle, &link.peer, 0, memory)?;
        self.sends.add_pieces(handle, &link.peer)?;
        self.sends.end(handle)?;
        self.pump(now, nic);
        Ok(handle)
    }

    /// Starts a message of `len` bytes, of which nothing is sent yet but its immediate.
    pub fn send_stream_start(
        &mut self,
        now: Instant,
        nic: &mut Nic,
        len: u64,
        imm: Option<u32>,
    ) -> Result<SendHandle, SdrError> {
        let link = self.link.as_ref().ok_or(SdrError::NotConnected)?;
        let handle = self.sends.start(&link.peer, len, imm)?;
        self.sends.add_pieces(handle, &link.peer)?;
        self.pump(now, nic);
        Ok(handle)
    }

    /// Sends a part of a message, from `offset` on: whole packets of it, whatever was sent of it before.
    pub fn send_stream_continue(
        &mut self,
        now: Instant,
        nic: &mut Nic,
        handle: SendHandle,
        offset: u64,
        memory: Local,
    ) -> Result<(), SdrError> {
        let link = self.link.as_ref().ok_or(SdrError::NotConnected)?;
        self.sends.add(handle, &link.peer, offset, memory)?;
        self.pump(now, nic);
        Ok(())
    }

    /// No more parts of a message follow.
    pub fn send_stream_end(&mut self, handle: SendHandle) -> Result<(), SdrError> {
        self.sends.end(handle)
    }

    /// Whether its packets of a message have left, and none follows.
    pub fn send_poll(&mut self, handle: SendHandle) -> Result<bool, SdrError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.sends.is_done(handle),
        }
    }

    /// Whether its packets of all parts of a stream that were given so far have left.
    pub fn send_stream_poll(&mut self, handle: SendHandle) -> Result<bool, SdrError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.sends.is_idle(handle),
        }
    }

    /// Why sending stopped, if it did.
    pub fn failure(&self) -> Option<SdrError> {
        self.failed
    }

    // ---- receives ----

    /// A receive is posted: packets that come to this engine find it.
    pub fn recv_post(&mut self, nic: &mut Nic, posting: &Posting) -> Result<(), SdrError> {
        let Local { key, addr, len } = posting.memory;
        nic.set_indirect_slot(self.key(posting.generation), posting.slot, Some(SlotTarget { key, addr, len }))?;
        if let Some(arrivals) = self.arrivals(nic) {
            arrivals.post(posting.slot, posting.generation, &posting.receive);
        }
        Ok(())
    }

    /// A receive that is posted is over: from now on this engine writes nothing to its memory, and sets no bit of it.
    pub fn recv_complete(&mut self, nic: &mut Nic, handle: RecvHandle) -> Result<(), SdrError> {
        let (slot, generation) = place(handle.0, self.attr.slots, self.attr.generations);
        if !planted(Bug::SdrSlotEmptiedLate) {
            nic.set_indirect_slot(self.key(generation), slot, None)?;
        }
        if let Some(arrivals) = self.arrivals(nic) {
            arrivals.complete(slot, &self.nothing);
        }
        Ok(())
    }

    // ---- what it does by itself ----

    /// Does what there is to do.
    pub fn progress(&mut self, now: Instant, nic: &mut Nic) {
        self.take_left(nic);
        self.pump(now, nic);
        self.publish(nic);
    }

    /// When [`Branch::progress`] wants to be called although nothing happens: at once, when what it waits for came to another engine.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let news = self.common.cleared.load(Ordering::Acquire) > self.sends.cleared;
        (news && self.sends.is_blocked()).then_some(Instant::ZERO)
    }

    pub(crate) fn take_left(&mut self, nic: &mut Nic) {
        let sink = nic.sink_mut(self.left).and_then(|sink| sink.as_any_mut().downcast_mut::<Left>());
        let Some(sink) = sink else { return };
        let failed = sink.failed.map(SdrError::Send);
        std::mem::swap(&mut self.gone, &mut sink.numbers);
        if let Some(why) = failed {
            self.stop(why);
        }
        self.gone.drain(..).for_each(|number| self.sends.on_sent(number));
    }

    /// Posts packets of messages whose receives are there.
    pub(crate) fn pump(&mut self, now: Instant, nic: &mut Nic) {
        let Some(link) = &self.link else { return };
        self.sends.cleared = self.common.cleared.load(Ordering::Acquire);
        if let Err(error) = self.sends.pump(now, nic, &self.qps, &self.turns, &link.peer) {
            self.stop(error);
        }
    }

    /// Adds what was counted since to the NIC's counters, and tells the other branches what has come.
    pub(crate) fn publish(&mut self, nic: &mut Nic) {
        let Some(arrivals) = self.arrivals(nic) else { return };
        let (now, seen) = (arrivals.counters, arrivals.seen);
        if seen > self.seen {
            self.seen = seen;
            self.common.seen.fetch_max(seen, Ordering::Relaxed);
        }
        if now == self.published {
            return;
        }
        let before = std::mem::replace(&mut self.published, now);
        now.add_since(&before, nic.counters_mut());
    }
}

/// Puts a queue pair into its error state.
pub(crate) fn fail(nic: &mut Nic, qpn: Qpn) {
    // From every state but RESET, in which it sends and takes nothing, there is a way to that.
    let _ = nic.modify_qp(qpn, &NicQpAttr { state: Some(QpState::Error), ..NicQpAttr::default() });
}

/// Connects one of our queue pairs with one of the peer's. Each channel has a source port of its own, so that each may take another way.
pub(crate) fn connect(
    nic: &mut Nic,
    port: u8,
    path: &Path,
    (ours, theirs): (&Contact, &Contact),
    channel: u16,
    attr: &QpAttr,
) -> Result<(), SdrError> {
    let src_port = 0xc000 | path.src_port.wrapping_add(channel) & 0x3fff;
    let connection = Connection {
        port,
        path: Some(Path { src_port, ..*path }),
        dest_qp: theirs.qpn,
        mtu: attr.mtu,
        sq_psn: ours.psn,
        rq_psn: theirs.psn,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        ..Connection::default()
    };
    Ok(nic.connect(ours.qpn, &connection)?)
}
