//! QP1: MADs in and out, each in a place of its own in registered memory.

use std::net::IpAddr;

use softnic_cm::Route;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{Completion, Data, QKEY_GSI, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_nic::{Connection, QpKind};
use softnic_wire::grh::{self, Grh};
use softnic_wire::mad::MAD_LEN;
use softnic_wire::{Qpn, bth};

use super::CmOpenError;
use crate::api::address_handle::AddressHandle;
use crate::api::completion_queue::CompletionQueue;
use crate::api::context::{Context, ProtectionDomain};
use crate::api::memory::MemoryRegion;
use crate::api::queue_pair::{QpOptions, QueuePair};

/// MADs that can wait to be looked at; more are lost, and come again.
const RECEIVES: usize = 4096;
/// MADs that can be under way at a time.
const SENDS: usize = 64;
/// Bytes of a receive: the network header and the MAD.
const ROOM: usize = grh::LEN + MAD_LEN;

/// QP1 and its memory.
pub(super) struct Gsi {
    qp: QueuePair,
    pub(super) cq: CompletionQueue,
    pub(super) pd: ProtectionDomain,
    memory: MemoryRegion,
    /// Places for MADs to send that are free, and the handles of the others: a datagram needs its own until it is sent.
    free: Vec<usize>,
    handles: Vec<Option<AddressHandle>>,
}

impl Gsi {
    pub(super) fn open(context: &Context) -> Result<Gsi, CmOpenError> {
        let pd = context.alloc_pd();
        let cq = context.create_cq(RECEIVES + SENDS)?;
        let caps = Caps {
            max_send_wr: SENDS as u32,
            max_recv_wr: RECEIVES as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let qp = pd.create_qp(&QpOptions { caps, ..QpOptions::new(QpKind::Gsi, &cq) })?;
        let memory = pd.alloc_mr(RECEIVES * ROOM + SENDS * MAD_LEN, Access::LOCAL_WRITE)?;
        let free = (0..SENDS).collect();
        let gsi = Gsi { qp, cq, pd, memory, free, handles: vec![None; SENDS] };
        gsi.begin().map_err(CmOpenError::Nic)?;
        Ok(gsi)
    }

    fn begin(&self) -> Result<(), String> {
        let steps = Connection::default().attributes(QpKind::Gsi);
        for (n, step) in steps.iter().enumerate() {
            self.qp.modify(step).map_err(|e| e.to_string())?;
            if n == 0 {
                (0..RECEIVES).for_each(|place| self.receive(place));
            }
        }
        Ok(())
    }

    fn receive(&self, place: usize) {
        let sges = [self.memory.sge(place * ROOM, ROOM)];
        // There is room: this place's receive has completed, or was never posted. A queue pair that failed takes none.
        let _ = self.qp.post_recv(&RecvWr { wr_id: place as u64, sges: &sges, best_effort: None });
    }

    /// Whether a MAD can be sent now.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether everything that was given to the NIC has left it.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == SENDS
    }

    /// Sends a MAD; there must be room.
    pub(super) fn send(&mut self, to: &AddressHandle, qpn: Qpn, mad: &[u8; MAD_LEN]) {
        let Some(place) = self.free.pop() else { return };
        let at = RECEIVES * ROOM + place * MAD_LEN;
        self.memory.write_at(at, mad);
        let sges = [self.memory.sge(at, MAD_LEN)];
        let wr = SendWr {
            wr_id: (RECEIVES + place) as u64,
            op: SendOp::Send,
            data: Data::Gather(&sges),
            flags: SendFlags { signaled: true, ..SendFlags::default() },
            best_effort: None,
            to: Some(to.to(qpn, QKEY_GSI)),
        };
        match self.qp.post_send(&wr) {
            Ok(()) => self.handles[place] = Some(to.clone()),
            // Lost, as on the wire.
            Err(_) => self.free.push(place),
        }
    }

    /// The MAD that a completion of the queue brought, if it is that of a receive.
    pub(super) fn complete(&mut self, done: &Completion) -> Option<(Route, [u8; MAD_LEN])> {
        let place = done.wr_id as usize;
        if place >= RECEIVES {
            self.handles[place - RECEIVES] = None;
            self.free.push(place - RECEIVES);
            return None;
        }
        let came = self.read(place, done);
        if done.status != Status::WrFlushErr {
            self.receive(place);
        }
        came
    }

    fn read(&self, place: usize, done: &Completion) -> Option<(Route, [u8; MAD_LEN])> {
        if done.status != Status::Success || done.byte_len as usize != ROOM {
            return None;
        }
        let (mut header, mut mad) = ([0; grh::LEN], [0; MAD_LEN]);
        self.memory.read_at(place * ROOM, &mut header);
        self.memory.read_at(place * ROOM + grh::LEN, &mut mad);
        let header = Grh::parse(&header).ok()?;
        // No station sends from a group's address.
        let mac = Some(done.src_mac).filter(|mac| mac.0[0] & 1 == 0)?;
        let (remote, local): (IpAddr, IpAddr) = header.addresses();
        let route = Route {
            qpn: done.src_qp?,
            pkey: bth::DEFAULT_PKEY,
            traffic_class: header.traffic_class(),
            mac: Some(mac),
            ..Route::new(local, remote)
        };
        Some((route, mad))
    }
}
