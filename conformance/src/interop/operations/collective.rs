//! A step of an AllGather over UC (OptiNIC §3.3) between a rank of ours and rxe, which knows nothing of softnic: receives, and a memory
//! window for the operation, are all that it takes. What another rank would say to ours, the scenario has rxe say.
//!
//! With rxe as the requester it is the other way round: rxe writes the fragments, as our rank would, and ours is the receiver.

use std::time::{Duration, Instant};

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::endpoint::{Endpoint, EndpointConfig, VerbsFabric};
use softnic_collectives::fabric::{Fabric, FabricEvent, Window};
use softnic_collectives::plan::Plan;
use softnic_collectives::uc::{immediate, window};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{SendOp, Status, Transport, WcOpcode};
use softnic_wire::Qpn;

use super::{FROM, LIMIT, MARGIN, TO, UNTOUCHED, ends, expect_data, expect_done, fail, pattern};
use crate::guest::Error;
use crate::interop::session::{BindAt, RecvAt, SendAt, Session};
use crate::interop::setup::{Done, Queue, Side};

/// Receives that a queue pair of rxe has room for.
const RECEIVES: u32 = 64;
/// Its work requests beside receives.
const BIND: u64 = 1000;
/// How long is looked for packets that must not come.
const QUIET: Duration = Duration::from_millis(100);

pub(super) fn all_gather(s: &mut Session) -> Result<(), Error> {
    match ends(s).0 {
        Side::Softnic => sending(s),
        Side::Rxe => receiving(s),
    }
}

/// Bytes of a block: more fragments than may be under way where the memory of the scenario has room for as many, and a short one at the end.
fn block(s: &Session) -> u64 {
    let mtu = u64::from(s.setup.mtu.bytes());
    // rxe has room for 64 work requests.
    let whole = match (s.small, s.setup.requester) {
        (true, _) => 2,
        (false, Side::Rxe) => 10,
        (false, Side::Softnic) => (100 << 10) / mtu,
    };
    whole.min(u64::from(window(s.setup.mtu)) + 5) * mtu + 4
}

/// An AllGather of two ranks: each has one of two blocks.
fn plan(s: &Session, rank: usize) -> Result<Plan, Error> {
    let call = Call {
        operation: Operation::AllGather,
        algorithm: Algorithm::Ring,
        element: Element::I32,
        reduction: Reduction::Sum,
        bytes: 2 * block(s),
    };
    Plan::new(&call, 2, rank, true).map_err(|e| Error::Failed(e.to_string()))
}

/// Our rank, and the queue pair of the scenario is its queue pair for data.
struct Rank {
    end: Endpoint,
    plan: Plan,
    peer: usize,
}

impl Rank {
    fn new(s: &mut Session, rank: usize) -> Result<Rank, Error> {
        let plan = plan(s, rank)?;
        let (mtu, qpn) = (s.setup.mtu, Qpn::new(s.qpns(Side::Softnic)?[0]));
        let config = EndpointConfig { transport: Transport::Uc, mtu, stride: 1, lane: 1, group: 0 };
        let (nic, [place, _], _) = s.places();
        let end = Endpoint::new(&mut place.verbs(nic), config, 2, plan.call.bytes);
        let mut end = end.map_err(|e| Error::Failed(e.to_string()))?;
        end.set_data(1 - rank, qpn, None);
        Ok(Rank { end, plan, peer: 1 - rank })
    }

    /// Looks at one of its completion queues, of sends or of receives.
    fn at<R>(
        &mut self,
        s: &mut Session,
        queue: Queue,
        what: impl FnOnce(&mut dyn FnMut() -> Option<FabricEvent>) -> R,
    ) -> R {
        let (nic, places, now) = s.places();
        let place = places[usize::from(queue == Queue::Recv)];
        let mut fabric = VerbsFabric::new(place.verbs(nic), &mut self.end, now);
        what(&mut || fabric.poll())
    }

    /// What happens to it within a time.
    fn run(&mut self, s: &mut Session, time: Duration, enough: usize) -> Result<Vec<FabricEvent>, Error> {
        let (mut events, begin) = (Vec::new(), Instant::now());
        while events.len() < enough && begin.elapsed() < time {
            for queue in [Queue::Recv, Queue::Send] {
                self.at(s, queue, |poll| events.extend(std::iter::from_fn(poll)));
            }
            s.pause(Duration::from_millis(1))?;
        }
        Ok(events)
    }

    /// Begins a collective, and sends its block to where rxe said.
    fn begin(&mut self, s: &mut Session, data: &[u8], key: u32) -> Result<(), Error> {
        let step = self.plan.sends_to(self.peer)[0];
        let Some(buffer) = self.end.buffer() else { return fail("a rank without memory".into()) };
        buffer.write_at(self.plan.steps[step as usize].at as usize, data);
        let (nic, [place, _], now) = s.places();
        let mut fabric = VerbsFabric::new(place.verbs(nic), &mut self.end, now);
        let refused = |e: softnic_collectives::fabric::Refused| Error::Failed(e.to_string());
        fabric.prepare(&self.plan).map_err(refused)?;
        if !fabric.learn(self.peer, 0, Window { addr: 0, key }) {
            return fail("the step has no message".into());
        }
        fabric.post_send(step, &self.plan.steps[step as usize], Some(now + 2 * LIMIT)).map_err(refused)
    }
}

/// Our rank sends its block to rxe.
fn sending(s: &mut Session) -> Result<(), Error> {
    let mut rank = Rank::new(s, 0)?;
    let mtu = s.setup.mtu.bytes();
    let len = block(s) as usize;
    let fragments = s.setup.mtu.packets(len as u32);
    s.fill(Side::Rxe, TO - MARGIN, &vec![UNTOUCHED; len + 2 * MARGIN])?;
    let bind = BindAt { qp: 0, wr_id: BIND, offset: TO, len, access: Access::REMOTE_WRITE, zero_based: true };
    let key = s.bind(Side::Rxe, &bind)?;
    expect_done(s, Side::Rxe, BIND, Status::Success, WcOpcode::BindWindow)?;
    receives(s, 0, RECEIVES)?;
    let data = pattern(1, len);
    rank.begin(s, &data, key)?;

    // No more than the window leaves before rxe has said that something came.
    let first = fragments.min(window(s.setup.mtu));
    let came = take(s, first as usize, LIMIT)?;
    expect_fragments(&came, 1, 0, first, len as u32, mtu)?;
    if first < fragments {
        // Nobody looks at the rank meanwhile, whose timer would take silence for loss.
        s.pause(QUIET)?;
        if let [early, ..] = take(s, 1, Duration::ZERO)?[..] {
            return fail(format!("rxe has {early:?} before it gave any feedback"));
        }
        receives(s, u64::from(RECEIVES), fragments - first)?;
        for done in &came {
            feedback(s, done.imm.unwrap_or(0))?;
        }
        rank.run(s, QUIET, 1)?;
        let rest = take(s, (fragments - first) as usize, LIMIT)?;
        expect_fragments(&rest, 1, first, fragments - first, len as u32, mtu)?;
    }
    let events = rank.run(s, LIMIT, 1)?;
    // It may have been said while the rest was waited for.
    if events.iter().any(|event| !matches!(event, FabricEvent::Sent { .. })) {
        return fail(format!("our rank has {events:?}"));
    }
    expect_data(s, Side::Rxe, &data)?;

    // The step is over at rxe: it takes the key back. Our rank does not know, and sends other bytes by it.
    s.unbind_theirs(key)?;
    receives(s, 200, 2)?;
    rank.begin(s, &pattern(2, len), key)?;
    rank.run(s, QUIET, usize::MAX)?;
    // Behind them on the same queue pair comes what needs no key: it is the next that completes.
    s.send(Side::Softnic, 7, SendOp::SendImm { imm: 0x5eed }, FROM, 0)?;
    let next = take(s, 2, QUIET * 5)?;
    match next[..] {
        [done] if (done.opcode, done.imm, done.len) == (Some(WcOpcode::Recv), Some(0x5eed), 0) => {}
        _ => return fail(format!("rxe should receive nothing but the SEND behind the late WRITEs, and has {next:?}")),
    }
    expect_data(s, Side::Rxe, &data)
}

/// rxe sends its block to our rank, all but one fragment, and that one after the deadline.
fn receiving(s: &mut Session) -> Result<(), Error> {
    let mut rank = Rank::new(s, 1)?;
    let (mtu, len) = (s.setup.mtu.bytes(), block(s) as u32);
    let index = rank.plan.receives_from(0)[0];
    let step = rank.plan.steps[index as usize];
    let refused = |e: softnic_collectives::fabric::Refused| Error::Failed(e.to_string());
    let Some(buffer) = rank.end.buffer().cloned() else { return fail("a rank without memory".into()) };
    buffer.write_at(step.at as usize, &vec![UNTOUCHED; len as usize]);
    let (nic, [place, _], now) = s.places();
    let mut fabric = VerbsFabric::new(place.verbs(nic), &mut rank.end, now);
    fabric.prepare(&rank.plan).map_err(refused)?;
    fabric.post_receive(index, &step, Some(now + 5 * QUIET)).map_err(refused)?;
    let Some(Window { addr, key }) = fabric.window(index, &step) else { return fail("the step has no key".into()) };
    let data = pattern(3, len as usize);
    s.fill(Side::Rxe, FROM, &data)?;
    let write = |n: u32| {
        let op = SendOp::WriteImm { remote_addr: addr + u64::from(n * mtu), rkey: key, imm: immediate(1, n) };
        SendAt { qp: 0, wr_id: u64::from(n), op, offset: (n * mtu) as usize, len: (len - n * mtu).min(mtu) as usize }
    };
    let all: Vec<SendAt> = (0..len.div_ceil(mtu)).filter(|n| *n != 1).map(write).collect();
    s.send_all(Side::Rxe, &all)?;
    let events = rank.run(s, LIMIT, 1)?;
    if !matches!(events[..], [FabricEvent::Received { step, whole: false, .. }] if step == index) {
        return fail(format!("our rank should end its message in part, and has {events:?}"));
    }
    let mut missing = Vec::new();
    let (nic, [place, _], now) = s.places();
    VerbsFabric::new(place.verbs(nic), &mut rank.end, now).missing(index, &step, &mut |range| missing.push(range));
    if missing.len() != 1 || missing[0] != (mtu..2 * mtu) {
        return fail(format!("our rank should miss fragment 1, and misses {missing:?}"));
    }
    s.send_all(Side::Rxe, &[write(1)])?;
    rank.run(s, QUIET, 1)?;
    let mut found = vec![0; len as usize];
    buffer.read_at(step.at as usize, &mut found);
    let mut wanted = data;
    wanted[mtu as usize..2 * mtu as usize].fill(UNTOUCHED);
    match found == wanted {
        true => Ok(()),
        false => fail("our rank's memory is not what came before the deadline".into()),
    }
}

/// Receives at rxe, of no bytes that matter.
fn receives(s: &mut Session, first: u64, count: u32) -> Result<(), Error> {
    let one = |i: u64| RecvAt { qp: 0, wr_id: first + i, offset: 0, len: 4 };
    s.recv_all(Side::Rxe, &(0..u64::from(count)).map(one).collect::<Vec<_>>())
}

/// Receives of rxe that completed.
fn take(s: &mut Session, count: usize, limit: Duration) -> Result<Vec<Done>, Error> {
    s.poll(Side::Rxe, Queue::Recv, count, limit)
}

/// rxe says that a fragment came.
fn feedback(s: &mut Session, imm: u32) -> Result<(), Error> {
    s.send(Side::Rxe, BIND + 1, SendOp::SendImm { imm }, 0, 0)?;
    expect_done(s, Side::Rxe, BIND + 1, Status::Success, WcOpcode::Send)
}

/// These are the fragments from `first` on of a message, each once and in order.
fn expect_fragments(came: &[Done], collective: u32, first: u32, count: u32, len: u32, mtu: u32) -> Result<(), Error> {
    let wanted = (first..first + count).map(|n| (Some(immediate(collective, n)), (len - n * mtu).min(mtu)));
    let is_write = |done: &Done| done.opcode == Some(WcOpcode::RecvWriteImm);
    match came.iter().map(|done| (done.imm, done.len)).eq(wanted) && came.iter().all(is_write) {
        true => Ok(()),
        false => fail(format!("rxe should have fragments {first} to {}, and has {came:?}", first + count)),
    }
}
