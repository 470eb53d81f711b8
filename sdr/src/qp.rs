//! An SDR queue pair: its queue pairs, keys and sinks on a NIC, and the messages between the two ends (SDR-RDMA §3.2).

mod progress;

use std::sync::Arc;

use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{CqId, RecvWr, Sge};
use softnic_nic::{Buffer, Connection, Nic, QpInit, QpKind};
use softnic_wire::{Instant, Path, Psn, Qpn};

use crate::Local;
use crate::arrivals::Arrivals;
use crate::attr::QpAttr;
use crate::bitmap::Bitmap;
use crate::control;
use crate::counters::{Counters, Vitals};
use crate::error::SdrError;
use crate::info::{Contact, Generation, QpInfo};
use crate::receives::{Receives, RecvHandle};
use crate::sends::{SendHandle, Sends};
use progress::{Left, Repeat};

/// Receives for control messages, and control messages that may wait to leave.
const CONTROLS: u32 = 16;

/// A queue pair of SDR.
pub struct SdrQp {
    attr: QpAttr,
    info: QpInfo,
    peer: Option<QpInfo>,
    /// The sink of what comes, of what has left, and the queue of control messages.
    cqs: Vec<CqId>,
    qps: Vec<Vec<Qpn>>,
    receives: Receives,
    sends: Sends,
    left: Vec<u64>,
    control: Option<Qpn>,
    /// Where control messages come in.
    room: Arc<Buffer>,
    room_key: Option<u32>,
    sequence: u32,
    /// There are receives that the peer was not told of, or asked for.
    cts_due: bool,
    told: u64,
    cts: Repeat,
    ask: Repeat,
    counters: Counters,
    /// What the NIC's own counters have of it.
    published: Counters,
    /// Why sending stopped, if it did.
    failed: Option<SdrError>,
}

const DATA: usize = 0;
const LEFT: usize = 1;
const CONTROL: usize = 2;

impl SdrQp {
    /// Makes a queue pair on a NIC, in a protection domain.
    pub fn create(nic: &mut Nic, pd: PdId, attr: &QpAttr) -> Result<SdrQp, SdrError> {
        attr.check()?;
        let contact = |qpn| Contact { qpn, psn: Psn::new(0) };
        let info = QpInfo {
            mtu: attr.mtu,
            split: attr.split,
            slots: attr.slots,
            slot_len: attr.slot_len(),
            max_message: attr.max_message,
            token: nic.draw(),
            control: contact(Qpn::new(0)),
            generations: Vec::new(),
        };
        let mut this = SdrQp {
            attr: *attr,
            info,
            peer: None,
            cqs: Vec::new(),
            qps: Vec::new(),
            receives: Receives::new(attr),
            sends: Sends::default(),
            left: Vec::new(),
            control: None,
            room: Buffer::new(0, CONTROLS as usize * control::LEN),
            room_key: None,
            sequence: 0,
            cts_due: false,
            told: 0,
            cts: Repeat::default(),
            ask: Repeat::default(),
            counters: Counters::default(),
            published: Counters::default(),
            failed: None,
        };
        match this.make(nic, pd) {
            Ok(()) => Ok(this),
            Err(error) => {
                this.destroy(nic);
                Err(error)
            }
        }
    }

    fn make(&mut self, nic: &mut Nic, pd: PdId) -> Result<(), SdrError> {
        let attr = self.attr;
        self.cqs.push(nic.create_cq_sink(Box::new(Arrivals::new(&attr))));
        self.cqs.push(nic.create_cq_sink(Box::<Left>::default()));
        self.cqs.push(nic.create_cq(2 * CONTROLS as usize));
        let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let shared = !attr.key_per_generation || planted(Bug::SdrSharedKey);
        let keys = if shared { 1 } else { attr.generations };
        for _ in 0..keys {
            let key = nic.alloc_indirect_key(pd, attr.slot_len(), attr.slots, writes)?;
            self.receives.keys.push(key);
        }
        let draw = |nic: &mut Nic| Psn::new(nic.draw() & 0x00ff_ffff);
        for g in 0..attr.generations {
            let key = self.receives.keys[usize::from(g) % self.receives.keys.len()];
            self.info.generations.push(Generation { key, channels: Vec::new() });
            self.qps.push(Vec::new());
            for _ in 0..attr.channels {
                let max_send_wr = attr.send_depth;
                let caps = Caps { max_send_wr, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline: 0 };
                let qpn = nic.create_qp(&QpInit::new(QpKind::Uc, pd, self.cqs[LEFT], self.cqs[DATA], caps))?;
                self.qps[usize::from(g)].push(qpn);
                self.info.generations[usize::from(g)].channels.push(Contact { qpn, psn: draw(nic) });
                if let Some(arrivals) = arrivals(nic, self.cqs[DATA]) {
                    arrivals.add_queue_pair(qpn, g, key);
                }
            }
        }
        let room_key = nic.reg_mr(pd, &self.room, Access::LOCAL_WRITE)?;
        self.room_key = Some(room_key);
        let (wrs, max_inline) = (CONTROLS, control::LEN as u32);
        let caps = Caps { max_send_wr: wrs, max_recv_wr: wrs, max_send_sge: 1, max_recv_sge: 1, max_inline };
        let cq = self.cqs[CONTROL];
        let qpn = nic.create_qp(&QpInit::new(QpKind::Uc, pd, cq, cq, caps))?;
        (self.control, self.info.control) = (Some(qpn), Contact { qpn, psn: draw(nic) });
        Ok(())
    }

    /// Gives back all that it has of the NIC. What was posted is over: no byte of it is touched any more.
    pub fn destroy(mut self: SdrQp, nic: &mut Nic) {
        self.publish(nic);
        for qpn in self.qps.drain(..).flatten().chain(self.control.take()) {
            let _ = nic.destroy_qp(qpn);
        }
        for key in self.receives.keys.drain(..) {
            let _ = nic.dealloc_indirect_key(key);
        }
        if let Some(key) = self.room_key.take() {
            let _ = nic.dereg_mr(key);
        }
        for cq in self.cqs.drain(..) {
            let _ = nic.destroy_cq(cq);
        }
    }

    /// What the peer must be told.
    pub fn info(&self) -> &QpInfo {
        &self.info
    }

    /// Its attributes.
    pub fn attr(&self) -> &QpAttr {
        &self.attr
    }

    /// Its completion queues on the NIC.
    pub fn completion_queues(&self) -> &[CqId] {
        &self.cqs
    }

    /// What it counted.
    pub fn counters(&self, nic: &mut Nic) -> Counters {
        let came = arrivals(nic, self.cqs[DATA]).map(|arrivals| arrivals.counters).unwrap_or_default();
        let Counters { cts_sent, cts_repeated, asks_sent, rejected, .. } = self.counters;
        Counters { cts_sent, cts_repeated, asks_sent, rejected: came.rejected + rejected, ..came }
    }

    /// How far it is.
    pub fn vitals(&self) -> Vitals {
        Vitals { posted: self.receives.posted, started: self.sends.started, cleared: self.sends.cleared }
    }

    /// Why sending stopped, if it did: memory that may not be read, or a queue pair that is gone.
    pub fn failure(&self) -> Option<SdrError> {
        self.failed
    }

    /// Connects it with the queue pair that `info` is about, by `path` from our port of this number.
    pub fn connect(&mut self, nic: &mut Nic, port: u8, path: &Path, info: &[u8]) -> Result<(), SdrError> {
        if self.peer.is_some() {
            return Err(SdrError::Connected);
        }
        let peer = QpInfo::decode(info)?;
        let differs = |what, theirs: u64, ours: u64| match theirs == ours {
            true => Ok(()),
            false => Err(SdrError::Differs(what, theirs, ours)),
        };
        differs("path MTU", peer.mtu.bytes().into(), self.attr.mtu.bytes().into())?;
        differs("number of generations", peer.generations.len() as u64, self.attr.generations.into())?;
        let channels = peer.generations[0].channels.len();
        differs("number of channels", channels as u64, self.attr.channels.into())?;
        let connect = |nic: &mut Nic, ours: &Contact, theirs: &Contact, channel: u16| {
            // Each channel has a source port of its own, so that each may take another way.
            let src_port = 0xc000 | path.src_port.wrapping_add(channel) & 0x3fff;
            nic.connect(
                ours.qpn,
                &Connection {
                    port,
                    path: Some(Path { src_port, ..*path }),
                    dest_qp: theirs.qpn,
                    mtu: self.attr.mtu,
                    sq_psn: ours.psn,
                    rq_psn: theirs.psn,
                    access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
                    ..Connection::default()
                },
            )
        };
        for (ours, theirs) in self.info.generations.iter().zip(&peer.generations) {
            for (c, (ours, theirs)) in ours.channels.iter().zip(&theirs.channels).enumerate() {
                connect(nic, ours, theirs, c as u16)?;
            }
        }
        connect(nic, &self.info.control, &peer.control, 0)?;
        for i in 0..CONTROLS {
            self.post_room(nic, i.into())?;
        }
        self.peer = Some(peer);
        Ok(())
    }

    fn post_room(&self, nic: &mut Nic, i: u64) -> Result<(), SdrError> {
        let (Some(lkey), Some(qpn)) = (self.room_key, self.control) else { return Ok(()) };
        let sge = Sge { addr: self.room.addr() + i * control::LEN as u64, len: control::LEN as u32, lkey };
        Ok(nic.post_recv(qpn, &RecvWr { wr_id: i, sges: &[sge], best_effort: None })?)
    }

    fn peer(&self) -> Result<&QpInfo, SdrError> {
        self.peer.as_ref().ok_or(SdrError::NotConnected)
    }

    // ---- sends ----

    /// Sends a message: all of it, once.
    pub fn send_post(
        &mut self,
        now: Instant,
        nic: &mut Nic,
        memory: Local,
        imm: Option<u32>,
    ) -> Result<SendHandle, SdrError> {
        let peer = self.peer.as_ref().ok_or(SdrError::NotConnected)?;
        let handle = self.sends.start(peer, memory.len, imm)?;
        self.sends.add(handle, peer, 0, memory)?;
        self.sends.add_pieces(handle, peer)?;
        self.sends.end(handle)?;
        self.progress_sends(now, nic);
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
        let peer = self.peer.as_ref().ok_or(SdrError::NotConnected)?;
        let handle = self.sends.start(peer, len, imm)?;
        self.sends.add_pieces(handle, peer)?;
        self.progress_sends(now, nic);
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
        let peer = self.peer.as_ref().ok_or(SdrError::NotConnected)?;
        self.sends.add(handle, peer, offset, memory)?;
        self.progress_sends(now, nic);
        Ok(())
    }

    /// No more parts of a message follow.
    pub fn send_stream_end(&mut self, handle: SendHandle) -> Result<(), SdrError> {
        self.sends.end(handle)
    }

    /// Whether all of a message has left, and its memory may be used for something else.
    pub fn send_poll(&mut self, handle: SendHandle) -> Result<bool, SdrError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.sends.is_done(handle),
        }
    }

    /// Whether all parts of a stream that were given so far have left.
    pub fn send_stream_poll(&mut self, handle: SendHandle) -> Result<bool, SdrError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.sends.is_idle(handle),
        }
    }

    // ---- receives ----

    /// Posts memory for the next message.
    pub fn recv_post(&mut self, now: Instant, nic: &mut Nic, memory: Local) -> Result<RecvHandle, SdrError> {
        let data = self.cqs[DATA];
        let handle = self.receives.post(&self.attr, memory, nic, |nic| arrivals(nic, data))?;
        self.cts_due = true;
        self.progress_control(now, nic);
        Ok(handle)
    }

    /// The bitmap of a receive.
    pub fn recv_bitmap_get(&self, handle: RecvHandle) -> Result<&Bitmap, SdrError> {
        self.receives.bitmap(handle)
    }

    /// The immediate of a receive; `None` until all of it is there.
    pub fn recv_imm_get(&self, handle: RecvHandle) -> Result<Option<u32>, SdrError> {
        Ok(self.receives.bitmap(handle)?.imm())
    }

    /// Completes a receive, whatever is missing: from now on nothing is written to its memory.
    pub fn recv_complete(&mut self, nic: &mut Nic, handle: RecvHandle) -> Result<(), SdrError> {
        let data = self.cqs[DATA];
        self.receives.complete(handle, nic, |nic| arrivals(nic, data))
    }
}

/// The sink of what comes.
fn arrivals(nic: &mut Nic, cq: CqId) -> Option<&mut Arrivals> {
    nic.sink_mut(cq)?.as_any_mut().downcast_mut()
}
