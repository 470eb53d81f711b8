//! Our own end: a NIC of softnic on a link of the switch's, by the Rust API, served by a thread of its own.

use std::net::IpAddr;
use std::time::Instant;

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_runtime::api::{
    CompletionQueue, Connection, Context, DeviceSpec, MemoryRegion, OpenOptions, Progress, ProtectionDomain, QpOptions,
    QueuePair,
};
use softnic_wire::{PathMtu, Psn, Qpn};

use super::hosts::{Done, End, LIMIT, MEMORY, Op, PSN, Setup, Work};
use crate::guest::Error;

pub(super) struct Ours {
    context: Context,
    pd: ProtectionDomain,
    cqs: [CompletionQueue; 2],
    memory: MemoryRegion,
    qp: Option<QueuePair>,
}

fn refused(e: impl std::fmt::Display) -> Error {
    Error::Failed(format!("softnic: {e}"))
}

impl Ours {
    /// A NIC on an interface of the calling thread's namespace.
    pub(super) fn open(interface: &str) -> Result<Ours, Error> {
        let options = OpenOptions { progress: Some(Progress::Dedicated), ..OpenOptions::default() };
        let device = DeviceSpec::afxdp(interface);
        let context = Context::open(&device, &options).map_err(|e| Error::Missing(e.to_string()))?;
        let pd = context.alloc_pd();
        let cqs = [context.create_cq(256).map_err(refused)?, context.create_cq(256).map_err(refused)?];
        let memory = pd.alloc_mr(MEMORY, Access::LOCAL_WRITE | Access::REMOTE).map_err(refused)?;
        Ok(Ours { context, pd, cqs, memory, qp: None })
    }

    pub(super) fn open_end(&mut self) -> Result<End, Error> {
        let options = QpOptions { recv_cq: self.cqs[1].clone(), ..QpOptions::new(QpKind::Rc, &self.cqs[0]) };
        let qp = self.pd.create_qp(&options).map_err(refused)?;
        let qpn = qp.qpn().value();
        self.qp = Some(qp);
        Ok(End { qpn, addr: self.memory.addr(), rkey: self.memory.rkey() })
    }

    /// Destroys the queue pair; what it left in the queues goes with it.
    pub(super) fn close_end(&mut self) {
        self.qp = None;
        for cq in &self.cqs {
            while matches!(cq.poll_one(), Ok(Some(_))) {}
        }
    }

    fn qp(&self) -> Result<&QueuePair, Error> {
        self.qp.as_ref().ok_or_else(|| refused("there is no queue pair"))
    }

    pub(super) fn connect(&mut self, setup: &Setup, peer: IpAddr, qpn: u32) -> Result<(), Error> {
        let qp = self.qp()?;
        let path = self.context.path_to(peer, qp.qpn().value()).map_err(refused)?;
        let mtu = PathMtu::from_bytes(setup.mtu).ok_or_else(|| refused("no such path MTU"))?;
        let usual = Connection::new(path, Qpn::new(qpn), Psn::new(PSN), Psn::new(PSN));
        qp.connect(&Connection { mtu, timeout: setup.timeout, ..usual }).map_err(refused)
    }

    pub(super) fn fill(&self, offset: usize, bytes: &[u8]) {
        self.memory.write_at(offset, bytes);
    }

    pub(super) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_at(offset, &mut bytes);
        bytes
    }

    pub(super) fn recv(&self, wr_id: u64, offset: usize, len: usize) -> Result<(), Error> {
        self.qp()?
            .post_recv(&RecvWr { wr_id, sges: &[self.memory.sge(offset, len)], best_effort: None })
            .map_err(refused)
    }

    pub(super) fn send(&self, work: &Work) -> Result<(), Error> {
        let &Work { wr_id, imm, remote_addr, rkey, .. } = work;
        let op = match work.op {
            Op::Write => SendOp::Write { remote_addr, rkey },
            Op::WriteImm => SendOp::WriteImm { remote_addr, rkey, imm },
            Op::Send => SendOp::Send,
            Op::SendImm => SendOp::SendImm { imm },
        };
        let sge = [self.memory.sge(0, work.len)];
        let flags = SendFlags { signaled: true, ..SendFlags::default() };
        let wr = SendWr { wr_id, op, data: Data::Gather(&sge), flags, best_effort: None, to: None };
        self.qp()?.post_send(&wr).map_err(refused)
    }

    pub(super) fn done(&self, queue: usize) -> Result<Done, Error> {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            if let Some(c) = self.cqs[queue].poll_one().map_err(refused)? {
                return Ok(Done { wr_id: c.wr_id, status: number(c.status), imm: c.imm });
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        Err(refused("no completion"))
    }
}

/// As `enum ibv_wc_status` has it, as far as anything here ends so.
fn number(status: Status) -> u64 {
    match status {
        Status::Success => 0,
        Status::WrFlushErr => 5,
        Status::RemInvReqErr => 9,
        Status::RemAccessErr => 10,
        Status::RetryExcErr => 12,
        Status::RnrRetryExcErr => 13,
        _ => u64::MAX,
    }
}
