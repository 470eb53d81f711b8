//! The program that uses the victims: it posts work, moves them between states, and makes and destroys what they use.

use softnic_nic::transports::congestion::Fixed;
use softnic_nic::transports::memory::{Access, Bind};
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Data, Datagram, RecvWr, SendFlags, SendOp, SendWr};
use softnic_nic::{AddressAttr, Nic, Notify, QpAttr, QpKind, WindowType};
use softnic_wire::{MacAddr, Node, Qpn};

use super::{FIRST_SELECTIVE, Fuzz, RECEIVES, VICTIMS, Victim, WRITABLE, group};
use crate::common::*;

/// The longest receive.
const MAX_RECEIVE: usize = 900;
/// Windows that are used at a time.
const MAX_WINDOWS: usize = 16;

impl Fuzz {
    fn modify(&mut self, v: usize, attr: &QpAttr) -> bool {
        self.w.hosts[B].nic.modify_qp(self.victims[v].qpn, attr).is_ok()
    }

    /// From RESET to a state by chance, mostly to RTS. The peer is one that only frames at random speak for, by the number
    /// of the victim; or the victim itself.
    pub(super) fn reconnect(&mut self, v: usize) {
        let Victim { kind, looped, shared, qpn, .. } = self.victims[v];
        assert!(self.modify(v, &to_state(QpState::Reset)));
        if kind == QpKind::Rc && shared {
            let pace = Fixed::new(10_000_000_000, 2000);
            self.w.hosts[B].nic.set_congestion_control(qpn, Some(Box::new(pace))).unwrap();
        }
        let victim = &mut self.victims[v];
        victim.sends.clear();
        victim.receives.clear();
        (victim.psn, victim.sent, victim.open, victim.used, victim.message) = (0, -1, None, 0, 0);
        let o = Options { kind, ..self.w.options };
        let (ip, mac) = address(if looped { B } else { A });
        let path = self.w.hosts[B].nic.path_to(ip, mac, 5).unwrap();
        let dest = if looped { qpn } else { Qpn::new(0x1000 + v as u32) };
        let steps = [init_attr(&o), rtr_attr(&o, path, dest), rts_attr(&o)];
        let n = if self.chance(60) { 3 } else { self.below(4) as usize };
        // The peer speaks what the victim offers too, mostly, and says so before or after the victim is ready to hear it.
        let offers = self.chance(80).then(|| self.below(4) as usize);
        for (i, attr) in steps[..n].iter().enumerate() {
            if offers == Some(i) {
                self.offer(v);
            }
            assert!(self.modify(v, attr));
        }
        if offers == Some(3) {
            self.offer(v);
        }
    }

    fn offer(&mut self, v: usize) {
        if v >= FIRST_SELECTIVE && !self.victims[v].looped {
            let mut frame = self.offer_frame(v);
            self.w.hosts[B].nic.handle_frame(self.w.now, Nic::WIRE, &mut frame);
        }
    }

    /// Moves a victim between the states that it has.
    pub(super) fn shake(&mut self, v: usize) {
        use QpState::*;
        match (self.state(v), self.below(10)) {
            (ReadyToSend, 0..2) => {
                self.modify(v, &QpAttr { sqd_notify: Some(true), ..to_state(SendQueueDrain) });
            }
            (SendQueueDrain | SendQueueError, 0..2) => {
                self.modify(v, &to_state(ReadyToSend));
            }
            (SendQueueDrain, 2) => {
                self.modify(v, &to_state(SendQueueDrain));
            }
            (ReadyToReceive | Init | Reset | Error, 0..2) => self.reconnect(v),
            (_, 8) if self.chance(40) => self.reconnect(v),
            (_, 9) if self.chance(20) => {
                self.modify(v, &to_state(Error));
            }
            _ => {}
        }
    }

    /// What a program does beside its work; the wire, too, comes and goes.
    pub(super) fn administrate(&mut self, v: usize) {
        match self.below(7) {
            0 => {
                let (srq, limit) = (self.w.hosts[B].srq.unwrap(), self.below(5));
                self.w.hosts[B].nic.set_srq_limit(srq, limit).unwrap();
            }
            1 => {
                let up = self.chance(90);
                self.w.hosts[B].nic.set_link(up);
            }
            2 => {
                if let Some(window) = self.windows.pop_front() {
                    // One that was never bound under this key has another still.
                    let _ = self.w.hosts[B].nic.dealloc_mw(window);
                }
            }
            3 => {
                // Whose completions would be in the queue still.
                self.collect();
                self.w.hosts[B].nic.destroy_qp(self.victims[v].qpn).unwrap();
                self.victims[v].qpn = self.make(v);
                self.reconnect(v);
            }
            4 => {
                let Host { nic, send_cq, recv_cq, .. } = &mut self.w.hosts[B];
                let cq = if self.numbers.chance(50) { *send_cq } else { *recv_cq };
                let what = if self.numbers.chance(50) { Notify::Next } else { Notify::Solicited };
                nic.req_notify_cq(cq, what).unwrap();
                self.armed.insert(cq);
            }
            _ => self.w.hosts[B].nic.set_link(true),
        }
    }

    /// Work for a victim, in whatever state it is; some of it cannot be carried out.
    pub(super) fn post(&mut self, v: usize) {
        let Victim { qpn, kind, shared, .. } = self.victims[v];
        let id = self.next_id;
        self.next_id += 1;
        let at = RECEIVES.start + self.below((RECEIVES.len() - MAX_RECEIVE) as u32) as usize;
        let len = self.below(MAX_RECEIVE as u32) as usize;
        // In one piece, or in two.
        let cut = if self.chance(20) { self.below(len as u32 + 1) as usize } else { len };
        let sges = [self.w.sge(B, at, cut), self.w.sge(B, at + cut, len - cut)];
        let promises = self.promises(v);
        let best_effort = promises.as_ref();
        let receive = RecvWr { wr_id: id, sges: &sges[..1 + usize::from(cut < len)], best_effort };
        if shared {
            let srq = self.w.hosts[B].srq.unwrap();
            if self.w.hosts[B].nic.post_srq_recv(srq, &receive).is_ok() {
                self.shared.insert(id);
            }
        } else if self.w.hosts[B].nic.post_recv(qpn, &receive).is_ok() {
            self.victims[v].receives.push_back(id);
        }
        let to = matches!(kind, QpKind::Ud | QpKind::Gsi).then(|| self.destination());
        let (remote_addr, rkey) = self.target(900);
        let op = match self.below(12) {
            0 => SendOp::Read { remote_addr, rkey },
            1 => SendOp::FetchAdd { remote_addr: remote_addr & !7, rkey, add: 1 },
            2 => SendOp::Write { remote_addr, rkey },
            3 => SendOp::WriteImm { remote_addr, rkey, imm: 1 },
            4 => self.bind(),
            5 => SendOp::SendInv { rkey },
            7 => SendOp::SendImm { imm: 2 },
            8 => SendOp::CompareSwap { remote_addr: remote_addr & !7, rkey, compare: 0, swap: 3 },
            6 if self.chance(10) => SendOp::LocalInv { rkey },
            _ => SendOp::Send,
        };
        let len = match op {
            SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => 8,
            _ => self.below(700),
        };
        // Out of, and for READs into, the part that may be written.
        let cut = if self.chance(20) { self.below(len + 1) } else { len };
        let at = WRITABLE.start;
        let mut sges = [self.w.sge(B, at, cut as usize), self.w.sge(B, at + 1000, (len - cut) as usize)];
        if self.chance(2) {
            sges[0].lkey ^= 0x100;
        }
        let signaled = self.chance(50);
        let flags = SendFlags { signaled, solicited: self.chance(20), fence: self.chance(20) };
        // Now and then more than may be inline.
        let data = match self.below(10) {
            0 => Data::Inline(&[7; 40][..self.below(41) as usize]),
            _ => Data::Gather(&sges[..1 + usize::from(cut < len)]),
        };
        let promises = self.promises(v);
        let wr = SendWr { wr_id: id, op, data, flags, best_effort: promises.as_ref(), to };
        if self.w.hosts[B].nic.post_send(self.w.now, qpn, &wr).is_ok() {
            self.victims[v].sends.push_back((id, signaled));
        }
    }

    /// A peer, the NIC itself, a group; sometimes gone again before the datagram leaves.
    fn destination(&mut self) -> Datagram {
        let (peer, pd) = (self.below(3), self.w.hosts[B].pd);
        let dgid = if peer == 2 { group() } else { address(peer as usize).0 };
        let attr = AddressAttr::new(dgid, MacAddr([2; 6]), 0, 3);
        let ah = self.w.hosts[B].nic.create_ah(pd, &attr).unwrap();
        if self.chance(5) {
            self.w.hosts[B].nic.destroy_ah(ah).unwrap();
        }
        let v = self.below(VICTIMS.len() as u32) as usize;
        Datagram { ah, dest_qp: if peer == 2 { Qpn::MULTICAST } else { self.victims[v].qpn }, qkey: QKEY }
    }

    /// A window over the part that may be written; one in ten cannot be bound.
    fn bind(&mut self) -> SendOp {
        let kind = if self.chance(50) { WindowType::Type1 } else { WindowType::Type2B };
        let Host { nic, pd, buffer, key, .. } = &mut self.w.hosts[B];
        let window = nic.alloc_mw(*pd, kind).unwrap();
        let (addr, rkey) = (buffer.addr() + WRITABLE.start as u64, softnic_nic::next_key(window));
        let lkey = *key;
        self.windows.push_back(rkey);
        if self.windows.len() > MAX_WINDOWS {
            self.windows.pop_front();
        }
        let lkey = if self.chance(10) { 0 } else { lkey };
        let (access, zero_based) = (Access::REMOTE, self.chance(20));
        SendOp::BindWindow(Bind { window, rkey, lkey, addr, len: 1000, access, zero_based })
    }
}
