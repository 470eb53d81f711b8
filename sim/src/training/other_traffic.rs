//! WRITEs of somebody else between two backup NICs, as many as fit: `ib_write_bw` beside a job.

use std::sync::Arc;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, QpKind};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, Connection, ModifyError, Nic, QpInit};
use softnic_wire::{PathMtu, Psn, Qpn};

use crate::SimError;
use crate::dual_pair::{DualPair, address};
use crate::pair::{A, B};

/// Bytes of a message, and how many are outstanding.
const SIZE: u32 = 64 << 10;
const DEPTH: u64 = 8;

pub(super) struct OtherTraffic {
    from: usize,
    qpn: Qpn,
    cq: CqId,
    buffer: Arc<Buffer>,
    lkey: u32,
    remote: (u64, u32),
    outstanding: u64,
}

fn backup<'p>(pair: &'p mut DualPair<'_>, host: usize) -> Result<&'p mut Nic, SimError> {
    pair.host(host).backup().ok_or(SimError::Options("other traffic is on backups"))
}

impl OtherTraffic {
    /// Connects queue pairs of the two backups, and begins to send by that of `from`.
    pub(super) fn start(pair: &mut DualPair<'_>, from: usize) -> Result<OtherTraffic, SimError> {
        let mut ends = Vec::new();
        for host in [A, B] {
            let nic = backup(pair, host)?;
            let (pd, cq) = (nic.alloc_pd(), nic.create_cq(2 * DEPTH as usize));
            let buffer = Buffer::new(0x4000_0000 * (1 + host as u64), SIZE as usize);
            let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
            let caps =
                Caps { max_send_wr: DEPTH as u32, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
            let qpn = nic.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, caps));
            ends.push((qpn.map_err(|_| ModifyError::NoSuchQp)?, cq, buffer, key));
        }
        for host in [A, B] {
            let (qpn, dest_qp) = (ends[host].0, ends[1 - host].0);
            let (ip, mac) = address(1 - host, true);
            let nic = backup(pair, host)?;
            let path = nic.path_to(ip, mac, qpn.value());
            let (mtu, zero) = (PathMtu::B4096, Psn::new(0));
            let usual = Connection { dest_qp, mtu, sq_psn: zero, rq_psn: zero, timeout: 14, ..Connection::default() };
            nic.connect(qpn, &Connection { path, ..usual })?;
        }
        let (_, _, theirs, rkey) = &ends[1 - from];
        let remote = (theirs.addr(), *rkey);
        let (qpn, cq, buffer, lkey) = ends.swap_remove(from);
        let mut traffic = OtherTraffic { from, qpn, cq, buffer, lkey, remote, outstanding: 0 };
        traffic.advance(pair, from)?;
        pair.sim.touch(from);
        Ok(traffic)
    }

    /// As many messages as there may be.
    pub(super) fn advance(&mut self, pair: &mut DualPair<'_>, host: usize) -> Result<(), SimError> {
        if host != self.from {
            return Ok(());
        }
        let now = pair.sim.now().instant();
        let nic = backup(pair, host)?;
        while let Ok(Some(completion)) = nic.poll_cq(self.cq) {
            if completion.status != Status::Success {
                return Err(SimError::Options("the other traffic failed"));
            }
            self.outstanding -= 1;
        }
        while self.outstanding < DEPTH {
            let sges = [Sge { addr: self.buffer.addr(), len: SIZE, lkey: self.lkey }];
            let op = SendOp::Write { remote_addr: self.remote.0, rkey: self.remote.1 };
            let flags = SendFlags { signaled: true, ..SendFlags::default() };
            let wr = SendWr { wr_id: 0, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
            nic.post_send(now, self.qpn, &wr).map_err(|_| SimError::Options("the other traffic is not taken"))?;
            self.outstanding += 1;
        }
        Ok(())
    }
}
