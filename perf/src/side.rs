//! One end of a run: its NIC with memory and queue pairs, and what it knows of the other end.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{
    BestEffort, Completion, Counters, Data, Datagram, PostError, RecvWr, Secret, SendFlags, SendOp, SendWr, Sge, Status,
};
use softnic_runtime::api::{
    self, AddressHandle, CompletionQueue, Connection, Context, DeviceSpec, MemoryRegion, ProtectionDomain, QpOptions,
    QueuePair,
};
use softnic_wire::auth::{TRAILER_LEN, link_mtu};
use softnic_wire::mad::vendor::Extensions;
use softnic_wire::{PathMtu, Psn, Qpn};

use super::control::{Control, Hello, QpInfo, VERSION};
use super::plan::{GRH, Plan, Verb};
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
    /// Not all of the message came.
    pub(crate) partial: bool,
}

impl Side {
    /// Makes what the plan needs.
    pub(crate) fn new(context: Context, plan: &Plan, seed: u64, secret: Option<&Secret>) -> Result<Side, String> {
        agreed_mtu(plan.mtu, context.port().mtu, PathMtu::B4096.bytes())?;
        let made = |what: &'static str| move |e: String| format!("cannot make {what}: {e}");
        let pd = context.alloc_pd();
        let count = plan.qps as usize;
        let per_qp = plan.outstanding() as usize + plan.receives() as usize;
        let cq = context.create_cq(count * per_qp + 16).map_err(|e| e.to_string());
        let cq = cq.map_err(made("a completion queue"))?;
        let len = plan.memory().and_then(|bytes| usize::try_from(bytes).ok());
        let len = len.ok_or("the messages need more memory than there is")?;
        let mr = pd.alloc_mr(len, Access::LOCAL_WRITE | Access::REMOTE).map_err(|e| e.to_string());
        let mr = mr.map_err(made("a memory region"))?;
        let mut options = QpOptions::new(plan.transport.kind(), &cq);
        options.transport = plan.transport;
        options.auth = secret.filter(|_| plan.auth).cloned();
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
            link_mtu: self.context.link_mtu(),
            queue_pairs: self.qps.iter().zip(&self.psns).map(info).collect(),
            memory: self.mr.addr(),
            rkey: self.mr.rkey(),
            reliable: self.plan.reliable.is_some(),
        }
    }

    /// Connects to the peer, and posts receives where messages need them.
    pub(crate) fn connect(&mut self, peer: &Hello) -> Result<(), String> {
        if peer.queue_pairs.len() != self.qps.len() {
            return Err(format!("the peer has {} queue pairs, we {}", peer.queue_pairs.len(), self.qps.len()));
        }
        let ours = self.context.port().mtu;
        let longest = ours.bytes().min(peer.max_mtu);
        let links = [self.context.link_mtu(), peer.link_mtu];
        let needed = |mtu| self.needed_link_mtu(mtu, peer);
        let asked = self.plan.mtu.or_else(|| longest_that_fits(needed, longest, links));
        let mtu = agreed_mtu(asked, ours, peer.max_mtu)?;
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
        if !self.plan.transport.kind().is_connected() {
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
    pub(crate) fn negotiate(&mut self, device: &DeviceSpec, peer: &Hello) -> Result<(), String> {
        let is_standard = self.plan.transport.extension() == Extensions::NONE;
        let credit = self.plan.cc.as_deref().is_some_and(|cc| cc.starts_with("eqds"));
        if is_standard && !self.plan.auth && !credit {
            return Ok(());
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
        let (all, agreed) = (self.qps.len(), self.qps.iter().filter(|qp| choice(qp)).count());
        if self.plan.auth && self.qps.iter().any(|qp| qp.state() == QpState::Error) {
            return Err(format!("{} is refused: it has no key, or another one", peer.address));
        }
        if is_standard {
            return Ok(());
        }
        let wished = self.plan.transport.name();
        if agreed < all && self.plan.promises() {
            return Err(format!(
                "the peer does not speak {wished}, or a link is too short for it: nobody keeps --deadline, --stride and --verify"
            ));
        }
        self.plan.negotiated = Some(match agreed {
            0 => "rc".into(),
            n if n == all => wished.into(),
            n => format!("{wished} on {n} of {all} queue pairs, else rc"),
        });
        self.explain_link_mtu(device, peer);
        Ok(())
    }

    /// The MTU that a link must have for this path MTU, where packets are longer than those of the standard.
    fn needed_link_mtu(&self, mtu: u32, peer: &Hello) -> Option<u32> {
        let of_transport = self.plan.transport.link_mtu(mtu);
        match self.plan.auth {
            false => of_transport,
            true => Some(of_transport.map_or(0, |n| n + TRAILER_LEN as u32).max(link_mtu(mtu, peer.address.is_ipv6()))),
        }
    }

    /// Says which MTU to set where a link is too short for the packets of the transport.
    fn explain_link_mtu(&mut self, device: &DeviceSpec, peer: &Hello) {
        let Some(mtu) = self.plan.mtu else { return };
        let Some(needed) = self.needed_link_mtu(mtu, peer) else { return };
        let name = self.plan.transport.name();
        let short = |link: Option<u32>| link.is_some_and(|link| link < needed);
        let whose = match (short(self.context.link_mtu()), short(peer.link_mtu)) {
            (true, true) => "at both ends",
            (true, false) => "here",
            (false, true) => "at the peer",
            (false, false) => return,
        };
        self.plan.needs_link_mtu = Some(needed);
        let interface = match device {
            DeviceSpec::AfXdp { interface, .. } | DeviceSpec::Shared { interface } if whose != "at the peer" => {
                interface
            }
            _ => "INTERFACE",
        };
        say!(
            "softnic: with path MTU {mtu} {name} needs a link MTU of {needed} {whose}: `ip link set dev {interface} mtu {needed}`, or leave --mtu out; rc is used"
        );
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
        if self.plan.transport.kind().is_connected() { 0 } else { GRH }
    }

    /// Posts the receive of a slot.
    pub(crate) fn post_receive(&self, qp: usize, slot: u64) -> Result<(), String> {
        let at = self.in_at(qp, slot);
        let sges = [self.mr.sge(at, self.plan.room_len())];
        let wr_id = RECEIVE | (qp as u64) << QP_SHIFT | slot;
        let work = self.bitmap(at).map(|bitmap| BestEffort { bitmap: Some(bitmap), ..BestEffort::default() });
        self.qps[qp].post_recv(&RecvWr { wr_id, sges: &sges, best_effort: work.as_ref() }).map_err(|e| posting(&e))
    }

    /// Memory for a bit a packet of the message at this place, where those that came in part are compared.
    fn bitmap(&self, at: usize) -> Option<Sge> {
        let len = self.plan.bitmap_len();
        (len > 0).then(|| self.mr.sge(at + self.plan.room_len(), len))
    }

    /// Writes the work request of a message; nobody looks at it before the doorbell.
    #[inline]
    pub(crate) fn write_message(&self, qp: usize, number: u64, size: u32) -> Result<(), String> {
        let Some(peer) = &self.peer else { return Err("not connected".into()) };
        let rkey = peer.rkey;
        // Where the peer says that its memory is.
        let there = |offset: usize| peer.memory.wrapping_add(offset as u64);
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
            best_effort: None,
            to: peer.datagrams.get(qp).copied(),
        };
        if !self.plan.promises() {
            return self.qps[qp].write_send(&wr).map_err(|e| posting(&e));
        }
        let bitmap = if self.plan.op.verb() == Verb::Read { self.bitmap(local) } else { None };
        let work = BestEffort { deadline: None, stride: self.plan.stride, bitmap };
        let wr = SendWr { best_effort: Some(&work), ..wr };
        let posted = match self.plan.deadline_ns {
            Some(limit) => self.qps[qp].write_send_within(&wr, Duration::from_nanos(limit)),
            None => self.qps[qp].write_send(&wr),
        };
        posted.map_err(|e| posting(&e))
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
        Ok(Finished { qp: qp as usize, number, received, imm: c.imm, bytes: c.byte_len, partial: c.partial.is_some() })
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

    /// Request packets that its NIC sent again so far.
    pub(crate) fn sent_again(&self) -> u64 {
        self.context.counters().retransmitted_packets
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

/// The longest path MTU up to `longest` with which all packets fit the links, of those who say what theirs carry; `None` where packets are as
/// long as the standard's.
fn longest_that_fits(needed: impl Fn(u32) -> Option<u32>, longest: u32, links: [Option<u32>; 2]) -> Option<u32> {
    needed(longest)?;
    let fits = |mtu: u32| links.iter().flatten().all(|&link| needed(mtu).is_none_or(|needed| needed <= link));
    PathMtu::ALL.into_iter().rev().map(PathMtu::bytes).find(|&mtu| mtu <= longest && fits(mtu))
}

/// Waits for the peer's next line while the NIC goes on.
pub(crate) fn next_line(control: &mut Control, context: &Context) -> Result<super::control::Message, String> {
    control.receive(Some(context))
}

#[cfg(test)]
mod tests {
    use super::*;
    use softnic_runtime::api::Transport;

    #[test]
    fn with_lowar_the_path_mtu_leaves_room_for_repair_packets_on_both_links() {
        let lowar = |longest, links| longest_that_fits(|mtu| Transport::LOWAR.link_mtu(mtu), longest, links);
        assert_eq!(lowar(4096, [None, None]), Some(4096));
        assert_eq!(lowar(1024, [Some(1500), Some(9000)]), Some(1024));
        assert_eq!(lowar(4096, [Some(4200), Some(4200)]), Some(2048));
        assert_eq!(lowar(4096, [Some(4216), Some(9000)]), Some(4096));
        assert_eq!(lowar(1024, [Some(1500), Some(1143)]), Some(512));
        assert_eq!(lowar(256, [Some(375), None]), None);
    }

    #[test]
    fn transports_with_packets_of_the_standard_take_the_path_mtu_of_the_devices() {
        for transport in Transport::all().filter(|t| !["lowar", "xp"].contains(&t.name())) {
            assert_eq!(longest_that_fits(|mtu| transport.link_mtu(mtu), 4096, [Some(4200), None]), None, "{transport}");
        }
    }
}
