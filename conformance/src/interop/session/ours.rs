//! Our end of a scenario.

use std::net::IpAddr;
use std::time::Duration;

use softnic_nic::transports::memory::Bind;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::{Caps, QpState};
use softnic_nic::transports::{Completion, Data, Datagram, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, Transport};
use softnic_nic::{AddressAttr, Nic, QpAttr, QpInit, QpKind, WindowType, next_key};
use softnic_wire::{MacAddr, Psn, Qpn};

use super::{BindAt, End, QKEY, RecvAt, SendAt, Session, io, refused};
use crate::guest::Error;
use crate::interop::setup::{Done, Queue, RD_ATOMIC, Setup, Side};

impl Session {
    pub(super) fn open_ours(&mut self) -> Result<End, Error> {
        let setup = self.setup;
        if let Some(attr) = &setup.sdr {
            return self.open_sdr(attr);
        }
        let nic = &mut self.driver.node;
        let caps = Caps { max_send_wr: 256, max_recv_wr: 256, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        if setup.has_srq(Side::Softnic) {
            self.srq = Some(nic.create_srq(self.pd, 64, 1).map_err(refused)?);
        }
        let [send_cq, recv_cq] = self.cqs;
        let usual = QpInit::new(setup.service, self.pd, send_cq, recv_cq, caps);
        let transport = if setup.offers_sr { Transport::SR } else { usual.transport };
        let init = QpInit { sig_all: true, srq: self.srq, transport, ..usual };
        let qpns = (0..setup.qps).map(|_| nic.create_qp(&init).map(Qpn::value).map_err(refused));
        let qpns = qpns.collect::<Result<_, _>>()?;
        let key = nic.reg_mr(self.pd, &self.buffer, setup.access(Side::Softnic).1).map_err(refused)?;
        Ok(End { qpns, psns: vec![setup.psn; setup.qps], addr: self.buffer.addr(), key })
    }

    pub(super) fn connect_ours(&mut self, ours: &End, theirs: &End, peer: IpAddr, mac: MacAddr) -> Result<(), Error> {
        let Setup { service, ipv6, mtu, psn, min_rnr_timer, timeout, retry_cnt, rnr_retry, .. } = self.setup;
        let access = self.setup.access(Side::Softnic).0;
        let nic = &mut self.driver.node;
        let to = |state| QpAttr { state: Some(state), ..QpAttr::default() };
        for (&qpn, &dest_qp) in ours.qpns.iter().zip(&theirs.qpns) {
            let mut init = QpAttr { pkey_index: Some(0), port: Some(1), ..to(QpState::Init) };
            let mut rtr = to(QpState::ReadyToReceive);
            let mut rts = QpAttr { sq_psn: Some(Psn::new(psn)), ..to(QpState::ReadyToSend) };
            if service == QpKind::Ud {
                init.qkey = Some(QKEY);
                let way = AddressAttr::new(peer, mac, usize::from(ipv6), qpn);
                self.ah = Some(nic.create_ah(self.pd, &way).map_err(refused)?);
            } else {
                init.access = Some(access);
                (rtr.path, rtr.mtu) = (nic.path_to(peer, mac, qpn), Some(mtu));
                (rtr.dest_qp, rtr.rq_psn) = (Some(Qpn::new(dest_qp)), Some(Psn::new(psn)));
            }
            if service == QpKind::Rc {
                (rtr.max_dest_rd_atomic, rtr.min_rnr_timer) = (Some(RD_ATOMIC), Some(min_rnr_timer));
                (rts.timeout, rts.retry_cnt, rts.rnr_retry) = (Some(timeout), Some(retry_cnt), Some(rnr_retry));
                rts.max_rd_atomic = Some(RD_ATOMIC);
            }
            for attr in [init, rtr, rts] {
                nic.modify_qp(Qpn::new(qpn), &attr).map_err(refused)?;
            }
        }
        Ok(())
    }

    /// What our first queue pair speaks, where it offered Selective Repeat.
    pub(in crate::interop) fn choice(&self) -> Option<Choice> {
        self.driver.node.choice(Qpn::new(*self.ours.as_ref()?.qpns.first()?))
    }

    pub(super) fn close_ours(&mut self) -> Result<(), Error> {
        let Some(end) = self.ours.take() else { return Ok(()) };
        let is_sdr = self.close_sdr();
        let nic = &mut self.driver.node;
        for &qpn in end.qpns.iter().filter(|_| !is_sdr) {
            nic.destroy_qp(Qpn::new(qpn)).map_err(refused)?;
        }
        if let Some(window) = self.window.take() {
            nic.dealloc_mw(window).map_err(refused)?;
        }
        nic.dereg_mr(end.key).map_err(refused)?;
        if let Some(ah) = self.ah.take() {
            nic.destroy_ah(ah).map_err(refused)?;
        }
        if let Some(srq) = self.srq.take() {
            nic.destroy_srq(srq).map_err(refused)?;
        }
        // What completed and was not looked at is not the next scenario's.
        for cq in self.cqs {
            while nic.poll_cq(cq).map_err(refused)?.is_some() {}
        }
        Ok(())
    }

    fn sge(&self, offset: usize, len: usize) -> Result<Sge, Error> {
        let ours = self.end(Side::Softnic)?;
        Ok(Sge { addr: ours.addr + offset as u64, len: len as u32, lkey: ours.key })
    }

    pub(super) fn recv_ours(&mut self, recv: &RecvAt) -> Result<(), Error> {
        let sges = [self.sge(recv.offset, recv.len)?];
        let qpn = Qpn::new(self.end(Side::Softnic)?.qpns[recv.qp]);
        let wr = RecvWr { wr_id: recv.wr_id, sges: &sges, best_effort: None };
        let nic = &mut self.driver.node;
        let posted = match self.srq {
            Some(srq) => nic.post_srq_recv(srq, &wr),
            None => nic.post_recv(qpn, &wr),
        };
        posted.map_err(refused)
    }

    pub(super) fn send_ours(&mut self, send: &SendAt) -> Result<(), Error> {
        let &SendAt { qp, wr_id, op, offset, len } = send;
        let sges = [self.sge(offset, len)?];
        let sges = if matches!(op, SendOp::LocalInv { .. } | SendOp::BindWindow(_)) { &[] } else { &sges[..] };
        let qpn = Qpn::new(self.end(Side::Softnic)?.qpns[qp]);
        let dest_qp = Qpn::new(self.theirs.as_ref().map_or(0, |t| t.qpns[qp]));
        let to = self.ah.map(|ah| Datagram { ah, dest_qp, qkey: QKEY });
        let wr = SendWr { wr_id, op, data: Data::Gather(sges), flags: SendFlags::default(), best_effort: None, to };
        let now = self.driver.now();
        self.driver.node.post_send(now, qpn, &wr).map_err(refused)
    }

    pub(super) fn bind_ours(&mut self, at: &BindAt) -> Result<u32, Error> {
        let &BindAt { qp, wr_id, offset, len, access, zero_based } = at;
        let window = self.driver.node.alloc_mw(self.pd, WindowType::Type2B).map_err(refused)?;
        self.window = Some(window);
        let rkey = next_key(window);
        let ours = self.end(Side::Softnic)?;
        let (lkey, addr) = (ours.key, ours.addr + offset as u64);
        let bind = Bind { window, rkey, lkey, addr, len: len as u64, access, zero_based };
        self.send_ours(&SendAt { qp, wr_id, op: SendOp::BindWindow(bind), offset: 0, len: 0 })?;
        Ok(rkey)
    }

    pub(super) fn poll_ours(&mut self, queue: Queue, count: usize, limit: Duration) -> Result<Vec<Done>, Error> {
        let cq = self.cqs[usize::from(queue == Queue::Recv)];
        let mut found = Vec::new();
        let mut broken = None;
        let enough = |nic: &mut Nic| {
            while found.len() < count {
                match nic.poll_cq(cq) {
                    Ok(Some(c)) => found.push(done(c)),
                    Ok(None) => return false,
                    Err(e) => {
                        broken = Some(e);
                        return true;
                    }
                }
            }
            true
        };
        self.driver.run_until(limit, enough).map_err(io)?;
        broken.map_or(Ok(found), |e| Err(refused(e)))
    }
}

fn done(c: Completion) -> Done {
    Done {
        wr_id: c.wr_id,
        status: c.status,
        opcode: (c.status == Status::Success).then_some(c.opcode),
        len: c.byte_len,
        imm: c.imm,
        invalidated: c.invalidated,
        src_qp: c.src_qp.map(Qpn::value),
    }
}
