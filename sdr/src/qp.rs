//! An SDR queue pair: its queue pairs, keys and sinks on a NIC, and the messages between the two ends (SDR-RDMA §3.2).

mod meeting;
mod progress;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use softnic_nic::transports::CqId;
use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::qp::Caps;
use softnic_nic::{Buffer, Nic, QpInit, QpKind};
use softnic_wire::sdr::SdrSettings;
use softnic_wire::{Instant, Path, Psn, Qpn};

use crate::Local;
use crate::attr::QpAttr;
use crate::bitmap::Bitmap;
use crate::branch::{Branch, Common, Link};
use crate::control;
use crate::counters::{Counters, Vitals};
use crate::error::SdrError;
use crate::info::{Contact, Generation, QpInfo};
use crate::receives::{Posting, Receives, RecvHandle};
use crate::sends::SendHandle;
use crate::turns::Turns;
use crate::watch::Watch;
use progress::Repeat;

/// Receives for control messages, and control messages that may wait to leave.
const CONTROLS: u32 = 16;

/// Bytes of the longest control message that there can be: a path MTU.
pub const LONGEST_CONTROL: usize = 4096;

/// What wakes the other engines that have channels of a queue pair.
type Wake = Box<dyn Fn() + Send>;

/// A queue pair of SDR.
pub struct SdrQp {
    attr: QpAttr,
    info: QpInfo,
    link: Option<Arc<Link>>,
    /// Where its control queue pair finds out about the peer: our port, the path, and the peer's number.
    meeting: Option<(u8, Path, Qpn)>,
    /// The channels that are at this engine: all of them, unless there are several.
    branch: Branch,
    receives: Receives,
    control_cq: CqId,
    control: Option<Qpn>,
    /// Where control messages come in, and behind that where those go out from that are none of the SDK's.
    room: Arc<Buffer>,
    room_key: Option<u32>,
    sequence: u32,
    others_sent: u64,
    /// There are receives that the peer was not told of, or asked for.
    cts_due: bool,
    /// Receives that all engines know: the peer may be told of these.
    announced: u64,
    told: u64,
    cts: Repeat,
    ask: Repeat,
    /// Of control messages.
    counters: Counters,
    /// What the NIC's own counters have of it.
    published: Counters,
    wake: Option<Wake>,
}

impl SdrQp {
    /// Makes a queue pair on a NIC, in a protection domain.
    pub fn create(nic: &mut Nic, pd: PdId, attr: &QpAttr) -> Result<SdrQp, SdrError> {
        SdrQp::create_among(nic, pd, attr, 1)
    }

    /// Makes a queue pair whose channels are at several engines of a NIC; this one is the first, and the others have branches
    /// ([`SdrQp::branch_out`]). There are no more than it has channels.
    pub fn create_among(nic: &mut Nic, pd: PdId, attr: &QpAttr, engines: u8) -> Result<SdrQp, SdrError> {
        attr.check()?;
        let nobody = Contact { qpn: Qpn::new(0), psn: Psn::new(0) };
        let generation = Generation { key: 0, channels: vec![nobody; attr.channels.into()] };
        let mut info = QpInfo {
            mtu: attr.mtu,
            split: attr.split,
            slots: attr.slots,
            slot_len: attr.slot_len(),
            max_message: attr.max_message,
            token: nic.draw(),
            control: nobody,
            scheme: SdrSettings::SDK,
            chunk_packets: 0,
            generations: vec![generation; attr.generations.into()],
        };
        let turns = Turns::new(attr.channels, engines, 0);
        let common = Arc::new(Common::new(turns.engines()));
        let branch = Branch::create(nic, pd, attr, turns, common, &mut info, None)?;
        let mut this = SdrQp {
            attr: *attr,
            info,
            link: None,
            meeting: None,
            branch,
            receives: Receives::new(attr),
            control_cq: nic.create_cq(2 * CONTROLS as usize),
            control: None,
            room: Buffer::new(0, 2 * CONTROLS as usize * attr.control_len as usize),
            room_key: None,
            sequence: 0,
            others_sent: 0,
            cts_due: false,
            announced: 0,
            told: 0,
            cts: Repeat::default(),
            ask: Repeat::default(),
            counters: Counters::default(),
            published: Counters::default(),
            wake: None,
        };
        match this.make_control(nic, pd) {
            Ok(()) => Ok(this),
            Err(error) => {
                this.destroy(nic);
                Err(error)
            }
        }
    }

    fn make_control(&mut self, nic: &mut Nic, pd: PdId) -> Result<(), SdrError> {
        self.room_key = Some(nic.reg_mr(pd, &self.room, Access::LOCAL_WRITE)?);
        let (wrs, max_inline) = (CONTROLS, control::LEN as u32);
        let caps = Caps { max_send_wr: wrs, max_recv_wr: wrs, max_send_sge: 1, max_recv_sge: 1, max_inline };
        let usual = QpInit::new(QpKind::Uc, pd, self.control_cq, self.control_cq, caps);
        let qpn = nic.create_qp(&QpInit { never_elided: true, ..usual })?;
        (self.control, self.info.control) = (Some(qpn), Contact { qpn, psn: Psn::new(nic.draw() & 0x00ff_ffff) });
        Ok(())
    }

    /// Makes the channels of another engine, the one of this number. Before the queue pair is connected, and before anybody is told its
    /// information.
    pub fn branch_out(&mut self, nic: &mut Nic, pd: PdId, engine: u8) -> Result<Branch, SdrError> {
        let (turns, common) = (self.branch.turns.of_engine(engine), Arc::clone(&self.branch.common));
        Branch::create(nic, pd, &self.attr, turns, common, &mut self.info, Some(&self.branch.keys))
    }

    /// Whether messages have left, for whoever looks without the engines.
    pub fn watch(&self) -> Arc<Watch> {
        Arc::clone(&self.branch.common.watch)
    }

    /// What is called when other engines have something to do that came to this one.
    pub fn set_wake(&mut self, wake: impl Fn() + Send + 'static) {
        self.wake = Some(Box::new(wake));
    }

    /// The channels that are at this engine.
    pub fn branch_mut(&mut self) -> &mut Branch {
        &mut self.branch
    }

    /// Gives back all that it has of the NIC. What was posted is over: no byte of it is touched any more.
    pub fn destroy(mut self: SdrQp, nic: &mut Nic) {
        self.publish(nic);
        self.branch.destroy(nic);
        if let Some(qpn) = self.control.take() {
            let _ = nic.destroy_qp(qpn);
        }
        if let Some(key) = self.room_key.take() {
            let _ = nic.dereg_mr(key);
        }
        let _ = nic.destroy_cq(self.control_cq);
    }

    /// What the peer must be told.
    pub fn info(&self) -> &QpInfo {
        &self.info
    }

    /// Says what makes its messages reliable, before anybody is told its information: the peer must have the same.
    pub(crate) fn set_scheme(&mut self, scheme: SdrSettings) {
        let chunk = self.attr.chunk / self.attr.mtu.bytes();
        (self.info.scheme, self.info.chunk_packets) = (scheme, chunk.min(u16::MAX.into()) as u16);
    }

    /// Its attributes.
    pub fn attr(&self) -> &QpAttr {
        &self.attr
    }

    /// Its completion queues on the NIC, in the order in which they were made: those of the branch, and that of control messages.
    pub fn completion_queues(&self) -> [CqId; 3] {
        let [data, left] = self.branch.completion_queues();
        [data, left, self.control_cq]
    }

    /// What it counted, without what other engines did.
    pub fn counters(&self, nic: &mut Nic) -> Counters {
        let mut all = self.counters;
        all.add(&self.branch.counters(nic));
        all
    }

    /// How far it is.
    pub fn vitals(&self) -> Vitals {
        Vitals { posted: self.receives.posted, started: self.branch.sends.started, cleared: self.cleared() }
    }

    /// One more than the number of the newest message of which something came.
    pub fn seen(&self) -> u64 {
        self.branch.common.seen.load(Ordering::Relaxed)
    }

    /// What control messages to the peer carry; `None` before it is known.
    pub fn peer_token(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.peer.token)
    }

    /// How many receives the peer can have posted, and how long its longest message is; `None` before it is known.
    pub fn peer_room(&self) -> Option<(u32, u64)> {
        self.link.as_ref().map(|link| (link.peer.slots, link.peer.max_message))
    }

    /// How many parts of a stream have left, each counted once for every channel that it goes by.
    pub fn send_stream_left(&mut self, handle: SendHandle) -> Result<u64, SdrError> {
        self.branch.sends.left(handle)
    }

    /// Receives that the peer has posted, as far as it is known.
    fn cleared(&self) -> u64 {
        self.branch.common.cleared.load(Ordering::Relaxed)
    }

    /// Why sending stopped, if it did: memory that may not be read, or a queue pair that is gone.
    pub fn failure(&self) -> Option<SdrError> {
        self.branch.failure()
    }

    // ---- sends: where there are several engines, each branch is told of them in the same order ----

    /// Sends a message: all of it, once.
    pub fn send_post(
        &mut self,
        now: Instant,
        nic: &mut Nic,
        memory: Local,
        imm: Option<u32>,
    ) -> Result<SendHandle, SdrError> {
        let handle = self.branch.send_post(now, nic, memory, imm)?;
        self.watch_sends(now);
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
        let handle = self.branch.send_stream_start(now, nic, len, imm)?;
        self.watch_sends(now);
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
        self.branch.send_stream_continue(now, nic, handle, offset, memory)?;
        self.watch_sends(now);
        Ok(())
    }

    /// No more parts of a message follow.
    pub fn send_stream_end(&mut self, handle: SendHandle) -> Result<(), SdrError> {
        self.branch.send_stream_end(handle)
    }

    /// Whether all of a message has left, and its memory may be used for something else.
    pub fn send_poll(&mut self, handle: SendHandle) -> Result<bool, SdrError> {
        self.branch.send_poll(handle)
    }

    /// Whether all parts of a stream that were given so far have left.
    pub fn send_stream_poll(&mut self, handle: SendHandle) -> Result<bool, SdrError> {
        self.branch.send_stream_poll(handle)
    }

    // ---- receives ----

    /// Posts memory for the next message.
    pub fn recv_post(&mut self, now: Instant, nic: &mut Nic, memory: Local) -> Result<RecvHandle, SdrError> {
        let posting = self.recv_prepare(nic, memory)?;
        self.recv_announce(now, nic);
        Ok(posting.handle())
    }

    /// Posts memory for the next message at this engine. The others are to follow ([`Branch::recv_post`]), and then the peer is told
    /// ([`SdrQp::recv_announce`]).
    pub fn recv_prepare(&mut self, nic: &mut Nic, memory: Local) -> Result<Posting, SdrError> {
        let posting = self.receives.next(&self.attr, &self.branch.turns, memory)?;
        match self.branch.recv_post(nic, &posting) {
            Ok(()) => Ok(posting),
            Err(error) => {
                self.receives.take_back(posting);
                Err(error)
            }
        }
    }

    /// Whether so many more receives can be posted.
    pub fn recv_has_room(&self, count: u32) -> bool {
        self.receives.has_room(count)
    }

    /// All engines know what is posted: the peer is told.
    pub fn recv_announce(&mut self, now: Instant, nic: &mut Nic) {
        (self.cts_due, self.announced) = (true, self.receives.posted);
        self.progress_control(now, nic);
    }

    /// A receive that was prepared, and that another engine could not take: it never was.
    pub fn recv_take_back(&mut self, nic: &mut Nic, posting: Posting) {
        // It was posted here, so it can be completed.
        let _ = self.branch.recv_complete(nic, posting.handle());
        self.receives.take_back(posting);
    }

    /// The bitmap of a receive.
    pub fn recv_bitmap_get(&self, handle: RecvHandle) -> Result<&Bitmap, SdrError> {
        self.receives.bitmap(handle)
    }

    /// The immediate of a receive; `None` until all of it is there.
    pub fn recv_imm_get(&self, handle: RecvHandle) -> Result<Option<u32>, SdrError> {
        Ok(self.receives.bitmap(handle)?.imm())
    }

    /// Completes a receive, whatever is missing: from now on nothing is written to its memory. Of several engines this is the last
    /// ([`Branch::recv_complete`]).
    pub fn recv_complete(&mut self, nic: &mut Nic, handle: RecvHandle) -> Result<(), SdrError> {
        self.receives.bitmap(handle)?;
        self.branch.recv_complete(nic, handle)?;
        self.receives.remove(handle);
        Ok(())
    }
}
