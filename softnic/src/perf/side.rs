//! One end of a run: its NIC with memory and queue pairs, and what it knows of the other end.

use std::collections::BTreeMap;
use std::net::IpAddr;

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::wr::{Data, Datagram};
use softnic_nic::transports::{Completion, Counters, PostError, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_runtime::api::{
    self, AddressHandle, CompletionQueue, Connection, Context, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
};
use softnic_wire::{PathMtu, Psn, Qpn};

use super::control::{Control, Hello, QpInfo, VERSION};
use super::plan::{GRH, Plan, Transport, Verb};
use super::stop;

/// The key that datagrams carry.
const QKEY: u32 = 0x1851_5000;
/// Marks the work request of a receive.
const RECEIVE: u64 = 1 << 63;
const QP_SHIFT: u32 = 40;

/// One end of a run.
pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) plan: Plan,
    pub(crate) mr: MemoryRegion,
    pub(crate) qps: Vec<QueuePair>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    peer: Option<Peer>,
    psns: Vec<u32>,
    before: (Counters, u64),
}

/// What is known of the other end.
struct Peer {
    memory: u64,
    rkey: u32,
    /// Where datagrams of each queue pair go.
    datagrams: Vec<Datagram>,
    _handle: Option<AddressHandle>,
}

/// What a completion was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) qp: usize,
    /// The number of the message; of a receive: its slot.
    pub(crate) number: u64,
    pub(crate) received: bool,
    pub(crate) imm: Option<u32>,
    pub(crate) bytes: u32,
}

impl Side {
    /// Makes what the plan needs.
    pub(crate) fn new(context: Context, plan: &Plan, seed: u64) -> Result<Side, String> {
        agreed_mtu(plan.mtu, context.port().mtu, PathMtu::B4096.bytes())?;
        let made = |what: &'static str| move |e: String| format!("cannot make {what}: {e}");
        let pd = context.alloc_pd();
        let count = plan.qps as usize;
        let per_qp = plan.outstanding() as usize + plan.receives() as usize;
        let cq = context.create_cq(count * per_qp + 16).map_err(|e| e.to_string());
        let cq = cq.map_err(made("a completion queue"))?;
        let len = count * 2 * plan.slots() * plan.slot_len();
        let mr = pd.alloc_mr(len, Access::LOCAL_WRITE | Access::REMOTE).map_err(|e| e.to_string());
        let mr = mr.map_err(made("a memory region"))?;
        let mut options = QpOptions::new(plan.transport.kind(), &cq);
        if plan.transport == Transport::Sr {
            options.transport = api::Transport::Sr { window: plan.window };
        }
        if let Some(cc) = &plan.cc {
            options.cc = api::parse_cc(cc).map_err(|e| e.to_string())?;
        }
        options.caps.max_send_wr = plan.outstanding() as u32 + 1;
        options.caps.max_recv_wr = plan.receives();
        let qps = (0..count).map(|_| pd.create_qp(&options)).collect::<Result<Vec<_>, _>>();
        let qps = qps.map_err(|e| e.to_string()).map_err(made("a queue pair"))?;
        let psn = |q: u64| (seed.wrapping_add(q + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32;
        let psns = (0..count as u64).map(psn).collect();
        let before = (context.counters(), context.lost_frames());
        Ok(Side { context, plan: plan.clone(), mr, qps, cq, pd, peer: None, psns, before })
    }

    /// What the peer must know.
    pub(crate) fn hello(&self, address: IpAddr) -> Hello {
        let port = self.context.port();
        let info = |(qp, &psn): (&QueuePair, &u32)| QpInfo { qpn: qp.qpn().value(), psn };
        Hello {
            version: VERSION,
            plan: self.plan.clone(),
            address,
            mac: port.mac.0,
            max_mtu: port.mtu.bytes(),
            queue_pairs: self.qps.iter().zip(&self.psns).map(info).collect(),
            memory: self.mr.addr(),
            rkey: self.mr.rkey(),
        }
    }

    /// Connects to the peer, and posts receives where messages need them.
    pub(crate) fn connect(&mut self, peer: &Hello) -> Result<(), String> {
        if peer.queue_pairs.len() != self.qps.len() {
            return Err(format!("the peer has {} queue pairs, we {}", peer.queue_pairs.len(), self.qps.len()));
        }
        let mtu = agreed_mtu(self.plan.mtu, self.context.port().mtu, peer.max_mtu)?;
        self.plan.mtu = Some(mtu.bytes());
        // What a datagram may be long, both know only now.
        self.plan.check()?;
        let mut path = self.context.path_to(peer.address, 0).map_err(|e| e.to_string())?;
        path.attr.traffic_class = self.plan.tclass;
        if path.mtu < mtu {
            return Err(format!(
                "the way to {} bears an MTU of {} only: say --mtu {0}",
                peer.address,
                path.mtu.bytes()
            ));
        }
        let mut known = Peer { memory: peer.memory, rkey: peer.rkey, datagrams: Vec::new(), _handle: None };
        if self.plan.transport == Transport::Ud {
            let handle = self.pd.create_ah(&path).map_err(|e| e.to_string())?;
            known.datagrams = peer.queue_pairs.iter().map(|qp| handle.to(Qpn::new(qp.qpn), QKEY)).collect();
            known._handle = Some(handle);
        }
        for ((qp, theirs), &ours) in self.qps.iter().zip(&peer.queue_pairs).zip(&self.psns) {
            let done = match self.plan.transport.kind() {
                QpKind::Ud | QpKind::Gsi => qp.open_datagrams(QKEY),
                QpKind::Rc | QpKind::Uc => {
                    path.attr.entropy = qp.qpn().value();
                    let connection = Connection {
                        mtu,
                        timeout: self.plan.timeout,
                        retry_cnt: self.plan.retry,
                        ..Connection::new(path, Qpn::new(theirs.qpn), Psn::new(theirs.psn), Psn::new(ours))
                    };
                    qp.connect(&connection)
                }
            };
            done.map_err(|e| format!("cannot connect a queue pair: {e}"))?;
        }
        self.peer = Some(known);
        if self.plan.op.verb() == Verb::Send {
            for q in 0..self.qps.len() {
                for slot in 0..self.plan.receives() {
                    self.post_receive(q, u64::from(slot))?;
                }
            }
        }
        Ok(())
    }

    /// Waits until it is known what the queue pairs speak, where that is negotiated: what is measured does not wait for it.
    pub(crate) fn negotiate(&mut self) {
        if self.plan.transport != Transport::Sr {
            return;
        }
        let choice = |qp: &QueuePair| loop {
            match qp.choice() {
                Some(Choice::Waiting) if !stop::requested() => {
                    self.context.progress();
                    std::thread::yield_now();
                }
                choice => return choice == Some(Choice::Agreed),
            }
        };
        let (all, selective) = (self.qps.len(), self.qps.iter().filter(|qp| choice(qp)).count());
        self.plan.negotiated = Some(match selective {
            0 => "rc".into(),
            n if n == all => "sr".into(),
            n => format!("sr on {n} of {all} queue pairs, else rc"),
        });
    }

    /// Where messages that leave are in memory.
    pub(crate) fn out_at(&self, qp: usize, number: u64) -> usize {
        let slots = self.plan.slots();
        (qp * 2 * slots + number as usize % slots) * self.plan.slot_len()
    }

    /// Where messages that come are in memory.
    pub(crate) fn in_at(&self, qp: usize, number: u64) -> usize {
        self.out_at(qp, number) + self.plan.slots() * self.plan.slot_len()
    }

    /// Where the payload begins in a receive.
    pub(crate) fn header_len(&self) -> usize {
        if self.plan.transport == Transport::Ud { GRH } else { 0 }
    }

    /// Posts the receive of a slot.
    pub(crate) fn post_receive(&self, qp: usize, slot: u64) -> Result<(), String> {
        let sges = [self.mr.sge(self.in_at(qp, slot), self.plan.slot_len())];
        let wr_id = RECEIVE | (qp as u64) << QP_SHIFT | slot;
        self.qps[qp].post_recv(&RecvWr { wr_id, sges: &sges, deadline: None }).map_err(|e| posting(&e))
    }

    /// Writes the work request of a message; nobody looks at it before the doorbell.
    #[inline]
    pub(crate) fn write_message(&self, qp: usize, number: u64, size: u32) -> Result<(), String> {
        let Some(peer) = &self.peer else { return Err("not connected".into()) };
        let rkey = peer.rkey;
        let there = |offset: usize| peer.memory + offset as u64;
        let (op, local) = match self.plan.op.verb() {
            Verb::Write => {
                let remote_addr = there(self.in_at(qp, number));
                (SendOp::Write { remote_addr, rkey }, self.out_at(qp, number))
            }
            Verb::Read => {
                let remote_addr = there(self.out_at(qp, number));
                (SendOp::Read { remote_addr, rkey }, self.in_at(qp, number))
            }
            Verb::Atomic => {
                let remote_addr = there(self.in_at(qp, 0));
                (SendOp::FetchAdd { remote_addr, rkey, add: 1 }, self.in_at(qp, number))
            }
            // The number tells the receiver what the message must hold.
            Verb::Send if self.plan.verify => (SendOp::SendImm { imm: number as u32 }, self.out_at(qp, number)),
            Verb::Send | Verb::Raw => (SendOp::Send, self.out_at(qp, number)),
        };
        let sges = [self.mr.sge(local, size as usize)];
        let wr = SendWr {
            wr_id: (qp as u64) << QP_SHIFT | number,
            op,
            data: Data::Gather(&sges),
            flags: SendFlags::default(),
            deadline: None,
            to: peer.datagrams.get(qp).copied(),
        };
        self.qps[qp].write_send(&wr).map_err(|e| posting(&e))
    }

    /// Takes completions; makes progress where there are none.
    #[inline]
    pub(crate) fn poll(&self, batch: &mut Vec<Completion>) -> Result<(), String> {
        batch.clear();
        self.cq.poll(batch, 64).map_err(|e| e.to_string())?;
        Ok(())
    }

    /// What a completion was for, if it went well.
    #[inline]
    pub(crate) fn finished(&self, c: &Completion) -> Result<Finished, String> {
        let qp = (c.wr_id & !RECEIVE) >> QP_SHIFT;
        let number = c.wr_id & ((1 << QP_SHIFT) - 1);
        let received = c.wr_id & RECEIVE != 0;
        if c.status != Status::Success {
            return Err(self.failure(c, qp, number, received));
        }
        Ok(Finished { qp: qp as usize, number, received, imm: c.imm, bytes: c.byte_len })
    }

    #[cold]
    fn failure(&self, c: &Completion, qp: u64, number: u64, received: bool) -> String {
        let what = if received { "receive" } else { "work request" };
        let hint = match c.status {
            Status::RetryExcErr => {
                ": the peer does not answer (gone, or the wire loses too much for --timeout and --retry)"
            }
            Status::RnrRetryExcErr => ": the peer had no receive posted",
            _ => "",
        };
        let qpn = c.qpn.value();
        let wire = self.context.failure().map_or(String::new(), |f| format!("; the device failed: {f}"));
        format!("{what} {number} on queue pair {qp} ({qpn:#08x}) failed: {}{hint}{wire}", c.status)
    }

    /// Counters since the last call, those that are not 0.
    pub(crate) fn counters(&mut self) -> BTreeMap<String, u64> {
        let now = (self.context.counters(), self.context.lost_frames());
        let (before, lost) = std::mem::replace(&mut self.before, now);
        let differences = now.0.iter().zip(before.iter()).map(|((name, a), (_, b))| (name, a - b));
        let lost = ("lost_frames", now.1.saturating_sub(lost));
        differences.chain([lost]).filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_string(), n)).collect()
    }
}

fn posting(e: &PostError) -> String {
    format!("cannot post a work request: {e}")
}

/// The path MTU of both ends.
pub(crate) fn agreed_mtu(asked: Option<u32>, ours: PathMtu, theirs: u32) -> Result<PathMtu, String> {
    let longest = ours.bytes().min(theirs);
    let mtu = asked.unwrap_or(longest);
    if mtu > longest {
        let whose = if ours.bytes() < mtu { "our" } else { "the peer's" };
        return Err(format!(
            "{whose} device bears a path MTU of {longest} at most, not {mtu}: say --mtu {longest}, or raise the interface's MTU"
        ));
    }
    PathMtu::from_bytes(mtu).ok_or_else(|| format!("{mtu} is no path MTU"))
}

/// Waits for the peer's next line while the NIC goes on.
pub(crate) fn next_line(control: &mut Control, context: &Context) -> Result<super::control::Message, String> {
    control.receive(|| context.progress())
}
