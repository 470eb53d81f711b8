//! Runs of SDR-RDMA, as the paper measures it (§5.4.1): the client keeps messages in flight, the server polls the bitmap of each and answers when
//! all chunks are there.
//!
//! Nothing is sent again: a message that lost something is ended by the server, with the chunks that came. Answers go by an RC queue pair
//! beside the SDR one: a WRITE of how many messages are over into a word of the client's memory. By the same way the client says how many
//! have left where it gets no answer: of a message that is lost as a whole the server sees nothing.

mod client;
mod server;
mod sink;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Completion, Data, SendFlags, SendOp, SendWr};
use softnic_runtime::api::sdr::{SdrContext, SdrQueuePair};
use softnic_runtime::api::{Context, MemoryRegion, PeerPath, Transport};

use super::control::{Control, Hello};
use super::meeting::{cannot_meet, meet};
use super::plan::{Plan, SdrPlan};
use super::side::Side;

pub(crate) use client::run;

pub(crate) use server::serve;
pub use sink::sink_rate;

/// Answers that may be outstanding.
const ANSWERS: u32 = 16;
/// Where numbers of messages lie, at both ends: those that are over, as the server says, and those that have left, as the client says where no
/// answer comes.
const OVER_AT: usize = 0;
const LEFT_AT: usize = 8;

/// What came of the messages of a size, those before that do not count included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chunks {
    /// Chunks of all messages.
    pub chunks: u64,
    /// Those of them that did not come whole before their message was ended.
    pub chunks_missing: u64,
    /// Bytes of all messages.
    pub bytes: u64,
    /// Bytes of the chunks that are missing.
    pub bytes_missing: u64,
    /// Packets of messages that were over.
    pub late_packets: u64,
    /// Control messages that told the sender of receives.
    pub cts_sent: u64,
    /// What `recv_complete` and `recv_post` took together: the median, for a thread that is put to sleep in between says nothing of them.
    pub repost_ns: u64,
}

impl Chunks {
    /// The part of all bytes that came.
    pub(crate) fn share(&self) -> f64 {
        match self.bytes {
            0 => 0.0,
            all => (all - self.bytes_missing.min(all)) as f64 / all as f64,
        }
    }
}

/// One end of a run.
pub(crate) struct End {
    /// The queue pair for answers, and its memory.
    side: Side,
    sdr: SdrContext,
    plan: Plan,
    path: Option<PeerPath>,
    /// The memory of the peer's numbers.
    numbers_at: (u64, u32),
    memory: MemoryRegion,
}

impl End {
    pub(crate) fn new(context: Context, plan: &Plan, seed: u64) -> Result<End, String> {
        let sdr = SdrContext::new(&context).map_err(|e| e.to_string())?;
        let answers = Plan {
            transport: Transport::Rc,
            sdr: None,
            sizes: vec![64],
            depth: ANSWERS,
            verify: false,
            ..plan.clone()
        };
        let side = Side::new(context, &answers, seed, None)?;
        let len = plan.memory().and_then(|bytes| usize::try_from(bytes / 2).ok());
        let len = len.ok_or("the messages need more memory than there is")?;
        let memory = sdr.pd().alloc_mr(len, Access::LOCAL_WRITE | Access::REMOTE);
        let memory = memory.map_err(|e| format!("cannot make a memory region: {e}"))?;
        Ok(End { side, sdr, plan: plan.clone(), path: None, numbers_at: (0, 0), memory })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.side.context
    }

    /// The plan, with what was agreed.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the peer must know.
    pub(crate) fn hello(&self, address: IpAddr) -> Hello {
        Hello { plan: self.plan.clone(), ..self.side.hello(address) }
    }

    /// Connects to the peer, for answers; SDR queue pairs are made for each size.
    pub(crate) fn connect(&mut self, peer: &Hello) -> Result<(), String> {
        self.side.connect(peer)?;
        self.plan.mtu = self.side.plan.mtu;
        self.plan.check()?;
        let mut path = self.context().path_to(peer.address, 0).map_err(|e| e.to_string())?;
        path.attr.traffic_class = self.plan.tclass;
        (self.path, self.numbers_at) = (Some(path), (peer.memory, peer.rkey));
        Ok(())
    }

    fn queue_pair(&self, size: u32) -> Result<SdrQueuePair, String> {
        let attr = self.plan.sdr.unwrap_or_default().attr(size, self.plan.outstanding(), self.plan.path_mtu())?;
        self.sdr.create_qp(&attr).map_err(|e| format!("cannot make an SDR queue pair: {e}"))
    }

    /// Tells the peer of our queue pair, and connects it with the peer's.
    fn meet(&self, qp: &SdrQueuePair, control: &mut Control) -> Result<(), String> {
        let Some(path) = &self.path else { return Err("not connected".into()) };
        meet(qp, path, control, self.context())?.map_err(cannot_meet)
    }

    /// Forgets the numbers of the size before.
    fn clear_numbers(&self) {
        [OVER_AT, LEFT_AT].into_iter().for_each(|at| self.side.mr.write_at(at, &[0; 8]));
    }

    /// Tells the peer a number.
    fn tell(&self, at: usize, number: u64) -> Result<(), String> {
        let (memory, rkey) = self.numbers_at;
        // A WRITE that is sent again says what holds by then.
        self.side.mr.write_at(at, &number.to_le_bytes());
        let sges = [self.side.mr.sge(at, 8)];
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Write { remote_addr: memory.wrapping_add(at as u64), rkey },
            data: Data::Gather(&sges),
            flags: SendFlags::default(),
            best_effort: None,
            to: None,
        };
        self.side.qps[0].post_send(&wr).map_err(|e| format!("cannot tell the peer how far this is: {e}"))
    }

    /// The number that the peer told last.
    fn told(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        self.side.mr.read_at(at, &mut word);
        u64::from_le_bytes(word)
    }

    /// Takes the completions of what was told; how many.
    fn take_completions(&self, room: &mut Vec<Completion>) -> Result<u32, String> {
        self.side.poll(room)?;
        room.iter().try_for_each(|completion| self.side.finished(completion).map(drop))?;
        Ok(room.len() as u32)
    }

    /// Where a message is in memory.
    fn at(&self, number: u64) -> usize {
        number as usize % self.plan.slots() * self.plan.slot_len()
    }
}

/// How a run is called in a heading.
pub(crate) fn described(plan: &SdrPlan) -> String {
    let [message, packet, user] = plan.split;
    let SdrPlan { chunk, channels, generations, .. } = plan;
    let plural = if *channels == 1 { "channel" } else { "channels" };
    format!("sdr, chunks of {chunk}, {channels} {plural}, {generations} generations, split {message}+{packet}+{user}")
}
