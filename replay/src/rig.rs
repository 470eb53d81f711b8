//! A NIC with one queue pair that was made with the numbers of a capture, driven by hand.

use std::net::IpAddr;
use std::sync::Arc;

use softnic_nic::transports::memory::{Access, Bind, PdId};
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{CqId, Data, Datagram, RecvWr, SendFlags, SendOp, SendWr, Sge, Transport};
use softnic_nic::{AddressAttr, Buffer, Connection, Nic, NicConfig, Port, QpInit, QpKind, WindowType, next_key};
use softnic_wire::aeth::Syndrome;
use softnic_wire::{Addresses, Instant, MacAddr, Node, Opcode, Path, PathMtu, Psn, Qpn, RocePacket, TxFrame};

use crate::capture::Packet;
use crate::flows::Flow;
use crate::side::Side;

/// The shortest there is: when the capture shows that the peer's timer ran out, ours has too.
const TIMEOUT: u8 = 1;
const MAX_FRAME: usize = 4096 + 256;

/// What a queue pair is rebuilt with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) kind: QpKind,
    /// The transport, where it is not the standard's.
    pub(crate) transport: Option<Transport>,
    pub(crate) own: IpAddr,
    pub(crate) own_qp: Qpn,
    pub(crate) peer: IpAddr,
    pub(crate) peer_qp: Qpn,
    pub(crate) mtu: PathMtu,
    pub(crate) psn: Psn,
    pub(crate) rnr_timer: u8,
    pub(crate) access: Access,
    pub(crate) work_requests: u32,
    pub(crate) qkey: u32,
}

impl Setup {
    /// A requester of RC whose first packet has this PSN.
    pub(crate) fn requester(flow: &Flow, first: i64, work_requests: usize) -> Setup {
        Setup {
            kind: QpKind::Rc,
            transport: None,
            own: flow.requester,
            own_qp: flow.requester_qp.unwrap_or(Qpn::new(2)),
            peer: flow.responder,
            peer_qp: flow.responder_qp,
            mtu: flow.mtu,
            psn: Psn::new(first as u32),
            rnr_timer: 0,
            access: Access::REMOTE,
            work_requests: work_requests as u32,
            qkey: 0,
        }
    }

    /// A responder of RC that expects this PSN first, with the RNR timer that its answers have.
    pub(crate) fn responder(flow: &Flow, first: i64, packets: &[Packet], side: &Side) -> Setup {
        let timer = flow.answers.iter().find_map(|a| match packets[a.at].ext.aeth?.syndrome {
            Syndrome::RnrNak(timer) => Some(timer.0),
            _ => None,
        });
        let by_side = side.qp(flow.responder, flow.responder_qp);
        Setup {
            kind: QpKind::Rc,
            transport: None,
            own: flow.responder,
            own_qp: flow.responder_qp,
            peer: flow.requester,
            peer_qp: flow.requester_qp.unwrap_or(Qpn::new(2)),
            mtu: flow.mtu,
            psn: Psn::new(first as u32),
            rnr_timer: timer.unwrap_or(0),
            access: by_side.and_then(|s| s.access()).unwrap_or(Access::REMOTE),
            work_requests: 16,
            qkey: 0,
        }
    }
}

/// A packet that our NIC sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) packet: RocePacket,
    frame: Vec<u8>,
}

impl Sent {
    pub(crate) fn payload(&self) -> &[u8] {
        self.frame.get(self.packet.payload.clone()).unwrap_or_default()
    }
}

pub(crate) struct Rig {
    pub(crate) nic: Nic,
    pd: PdId,
    cq: CqId,
    pub(crate) qpn: Qpn,
    now: Instant,
    /// A region of all addresses: receives and READs go there where nobody looks at them.
    nowhere: u32,
    buffer: Vec<u8>,
}

impl Rig {
    /// A NIC whose queue pair has the number it had in the capture, connected and ready. `None` where that cannot be.
    pub(crate) fn new(s: &Setup) -> Option<Rig> {
        // The first number that is drawn is the queue pair's; those of keys need not be unpredictable here.
        let mut drawn = s.own_qp.value().wrapping_sub(1);
        let random = move || {
            drawn = drawn.wrapping_add(1);
            drawn
        };
        let port = Port { mac: MacAddr([2, 0, 0, 0, 0, 1]), addresses: vec![s.own], mtu: PathMtu::B4096 };
        let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
        let pd = nic.alloc_pd();
        let cq = nic.create_cq(1 << 16);
        let wrs = s.work_requests.clamp(16, softnic_nic::MAX_WR);
        // Messages that come out of order take receives ahead of the one that is due.
        let receives = if s.transport.is_some() { 4096 } else { 16 };
        let caps = Caps { max_send_wr: wrs, max_recv_wr: receives, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let standard = QpInit::new(s.kind, pd, cq, cq, caps);
        let transport = s.transport.unwrap_or(standard.transport);
        let qpn = nic.create_qp(&QpInit { transport, ..standard }).ok()?;
        if qpn != s.own_qp {
            return None;
        }
        let nowhere = nic.alloc_null_mr(pd, Access::LOCAL_WRITE).ok()?;
        let connection = Connection {
            port: 1,
            path: Some(nic.path_to(s.peer, MacAddr([2, 0, 0, 0, 0, 2]), 0)?),
            dest_qp: s.peer_qp,
            mtu: s.mtu,
            sq_psn: s.psn,
            rq_psn: s.psn,
            access: s.access,
            qkey: (s.kind == QpKind::Ud).then_some(s.qkey),
            timeout: TIMEOUT,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: s.rnr_timer & 31,
            max_rd_atomic: 255,
            max_dest_rd_atomic: 255,
        };
        nic.connect(qpn, &connection).ok()?;
        Some(Rig { nic, pd, cq, qpn, now: Instant::ZERO, nowhere, buffer: vec![0; MAX_FRAME] })
    }

    /// Whether the queue pair still works.
    pub(crate) fn is_alive(&self) -> bool {
        self.nic.qp_state(self.qpn).is_some_and(|s| s.sends())
    }

    /// The path of frames from the peer.
    pub(crate) fn path_from(&self, peer: IpAddr) -> Option<Path> {
        let own = self.nic.path_to(peer, MacAddr([2, 0, 0, 0, 0, 2]), 0)?;
        let addresses = match own.addresses {
            Addresses::V4 { src, dst } => Addresses::V4 { src: dst, dst: src },
            Addresses::V6 { src, dst } => Addresses::V6 { src: dst, dst: src },
        };
        Some(Path { src_mac: own.dst_mac, dst_mac: own.src_mac, addresses, ..own })
    }

    /// Goes forward to a time of the capture; never back.
    pub(crate) fn go_to(&mut self, nanos: u64) {
        self.now = self.now.max(Instant::from_nanos(nanos));
    }

    /// Registers memory of its own at an address, with a key of its own.
    pub(crate) fn register(&mut self, addr: u64, len: usize, access: Access) -> Option<(u32, Arc<Buffer>)> {
        let buffer = Buffer::new(addr, len);
        let key = self.nic.reg_mr(self.pd, &buffer, access | Access::LOCAL_WRITE | Access::MW_BIND).ok()?;
        Some((key, buffer))
    }

    /// A region of all addresses that forgets what is written.
    pub(crate) fn register_nowhere(&mut self, access: Access) -> Option<u32> {
        self.nic.alloc_null_mr(self.pd, access | Access::LOCAL_WRITE).ok()
    }

    /// A window of type 2 over a region, as a SEND with invalidate takes it away; its key.
    pub(crate) fn bind_window(&mut self, lkey: u32, addr: u64, len: u64, access: Access) -> Option<u32> {
        let window = self.nic.alloc_mw(self.pd, WindowType::Type2B).ok()?;
        let rkey = next_key(window);
        let op = SendOp::BindWindow(Bind { window, rkey, lkey, addr, len, access, zero_based: false });
        let wr =
            SendWr { wr_id: 0, op, data: Data::Gather(&[]), flags: SendFlags::default(), best_effort: None, to: None };
        self.nic.post_send(self.now, self.qpn, &wr).ok()?;
        // A local operation is carried out when the queue pair is asked for frames.
        self.poll();
        Some(rkey)
    }

    /// Posts a receive for `len` bytes.
    pub(crate) fn post_receive(&mut self, len: u32) {
        let sges = [Sge { addr: 0, len, lkey: self.nowhere }];
        let _ = self.nic.post_recv(self.qpn, &RecvWr { wr_id: 0, sges: &sges, best_effort: None });
    }

    /// Posts a send work request; `source` is where its bytes are, `None` for those that come from the peer.
    pub(crate) fn post_send(
        &mut self,
        op: SendOp,
        len: u32,
        source: Option<(u64, u32)>,
        solicited: bool,
        to: Option<Datagram>,
    ) -> bool {
        let (addr, lkey) = source.unwrap_or((0, self.nowhere));
        let sges = [Sge { addr, len, lkey }];
        let flags = SendFlags { signaled: false, solicited, fence: false };
        let wr = SendWr { wr_id: 0, op, data: Data::Gather(&sges), flags, best_effort: None, to };
        self.nic.post_send(self.now, self.qpn, &wr).is_ok()
    }

    /// An address for a datagram.
    pub(crate) fn address(&mut self, dst: IpAddr, dest_qp: Qpn, qkey: u32) -> Option<Datagram> {
        let attr = AddressAttr::new(dst, MacAddr([2, 0, 0, 0, 0, 2]), 0, 0);
        let ah = self.nic.create_ah(self.pd, &attr).ok()?;
        Some(Datagram { ah, dest_qp, qkey })
    }

    /// Hands a frame to the NIC.
    pub(crate) fn feed(&mut self, frame: &[u8]) {
        let mut frame = frame.to_vec();
        self.nic.handle_frame(self.now, Nic::WIRE, &mut frame);
        self.forget_completions();
    }

    /// The time of the ACK timer, or of an RNR wait, is over.
    pub(crate) fn time_out(&mut self) {
        self.nic.handle_timeout(self.now);
        self.forget_completions();
    }

    /// Goes on to where the NIC stops waiting.
    pub(crate) fn wait(&mut self) {
        if let Some(at) = self.nic.poll_timeout() {
            self.now = self.now.max(at);
        }
        self.time_out();
    }

    fn forget_completions(&mut self) {
        while let Ok(Some(_)) = self.nic.poll_cq(self.cq) {}
        while self.nic.poll_event().is_some() {}
    }

    /// The next frame that the NIC sends.
    pub(crate) fn poll(&mut self) -> Option<Sent> {
        loop {
            let mut tx = TxFrame::new(&mut self.buffer);
            if !self.nic.poll_transmit(self.now, Nic::WIRE, &mut tx) {
                self.forget_completions();
                return None;
            }
            let frame = tx.segments().0.to_vec();
            // Congestion notifications of the capture are skipped too: when they come is each NIC's own affair.
            if let Ok(packet) = RocePacket::parse(&frame)
                && packet.bth.opcode != Opcode::CNP
            {
                return Some(Sent { packet, frame });
            }
        }
    }

    /// All frames that the NIC sends now.
    pub(crate) fn drain(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.poll()).collect()
    }
}
