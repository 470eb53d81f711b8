//! Messages in fragments over UC (OptiNIC §3.3): WRITEs with immediate out, completions in, a key for each message, and deadlines.
//!
//! A key is a registration of the memory, made when a message is expected and deregistered, at once and not by a work request, when it is
//! whole or its time is over: whatever comes then is refused by the NIC. A window bound by a work request has its turn only when the send
//! queue gets to it, which may be after the deadline that it is there for.

use super::*;
use crate::fabric::Window;
use crate::uc::{Burst, Came, Incoming, window};

/// Every so many work requests complete visibly, so that room in the queue comes back.
const SIGNALED: u64 = 16;
/// Completions that are looked at before the clock is.
const AT_ONCE: usize = 256;

/// Room in the queues of a queue pair that carries fragments: those to the other rank, and feedback for those from it.
pub(super) fn caps(mtu: PathMtu) -> Caps {
    let window = window(mtu);
    Caps { max_send_wr: 4 * window, max_recv_wr: 4 * window, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 }
}

impl<V: Verbs> VerbsFabric<'_, V> {
    /// Whether messages go in fragments now.
    pub(super) fn fragments(&self) -> bool {
        self.end.fragments.is_some() && !self.end.warming_up
    }

    pub(super) fn begin_fragments(&mut self, plan: &Plan) -> Result<(), Refused> {
        let mtu = self.end.config.mtu;
        let Some(fragments) = &mut self.end.fragments else { return Ok(()) };
        if !fragments.begin(plan, mtu) {
            return Err(Refused(
                "a rank sends another more than 2^28 fragments, which is more than can be numbered".into(),
            ));
        }
        for peer in 0..plan.ranks {
            let Some(qpn) = self.end.links[peer].data else { continue };
            let Some(lane) = self.end.fragments.as_mut().and_then(|f| f.lanes.get_mut(peer)) else { continue };
            if !std::mem::replace(&mut lane.armed, true) {
                for _ in 0..caps(mtu).max_recv_wr {
                    self.arm(peer, qpn).map_err(|e| refused("a receive", peer, e))?;
                }
            }
        }
        Ok(())
    }

    /// A receive for a fragment or for feedback: neither has bytes for it.
    fn arm(&mut self, peer: usize, qpn: Qpn) -> Result<(), PostError> {
        let wr = RecvWr { wr_id: wr_id(Work::Fragment, peer, 0), sges: &[], best_effort: None };
        let now = self.now();
        self.verbs.post_receive(now, qpn, &wr)
    }

    pub(super) fn expect_fragments(
        &mut self,
        index: u32,
        step: &Step,
        deadline: Option<Instant>,
    ) -> Result<(), Refused> {
        let (memory, at) = match step.act {
            Act::Place | Act::Send => (&self.end.buffer, step.at),
            Act::Copy | Act::Reduce => (&self.end.scratch, step.scratch),
        };
        let key = self.verbs.open_key(memory)?;
        let window = Window { addr: memory.base + at, key };
        if let Some(fragments) = &mut self.end.fragments {
            fragments.lanes[step.peer].expect(index, window, deadline);
            fragments.look_by(deadline);
        }
        Ok(())
    }

    pub(super) fn send_fragments(&mut self, index: u32, step: &Step, deadline: Option<Instant>) -> Result<(), Refused> {
        if let Some(fragments) = &mut self.end.fragments {
            fragments.lanes[step.peer].post(index, deadline);
            fragments.look_by(deadline);
        }
        self.pump(step.peer)
    }

    /// Sends to a rank what may leave now.
    pub(super) fn pump(&mut self, peer: usize) -> Result<(), Refused> {
        let mtu = self.end.config.mtu;
        let Some(qpn) = self.end.links[peer].data else { return Ok(()) };
        let now = self.now();
        loop {
            let Some(fragments) = &mut self.end.fragments else { return Ok(()) };
            let lane = &mut fragments.lanes[peer];
            // Half of the queue is for feedback.
            let room = u64::from(caps(mtu).max_send_wr / 2).saturating_sub(lane.posted - lane.done) as u32;
            let Some(burst) = lane.burst(now, room, mtu) else { break };
            let silence = fragments.silence(peer);
            fragments.look_by(silence);
            self.send(peer, qpn, &burst)?;
        }
        let Some(fragments) = &mut self.end.fragments else { return Ok(()) };
        while let Some(step) = fragments.lanes[peer].left() {
            self.end.events.push_back(FabricEvent::Sent { step });
        }
        Ok(())
    }

    /// Posts fragments. The last of them completes visibly: until then the buffer may not change.
    fn send(&mut self, peer: usize, qpn: Qpn, burst: &Burst) -> Result<(), Refused> {
        let mtu = u64::from(self.end.config.mtu.bytes());
        let (mut at, mut number) = (burst.at.start, burst.number);
        loop {
            let len = (burst.at.end - at).min(mtu);
            let is_last = at + len == burst.at.end;
            let remote_addr = burst.window.addr.wrapping_add(at - burst.at.start);
            let sges = [self.end.buffer.sge(at, len as u32)];
            let imm = self.end.fragments.as_ref().map_or(0, |fragments| fragments.immediate(number));
            let op = SendOp::WriteImm { remote_addr, rkey: burst.window.key, imm };
            let data = if len > 0 { Data::Gather(&sges) } else { Data::Gather(&[]) };
            self.post_fragment(peer, qpn, op, data, is_last)?;
            if is_last {
                return Ok(());
            }
            (at, number) = (at + len, number + 1);
        }
    }

    fn post_fragment(
        &mut self,
        peer: usize,
        qpn: Qpn,
        op: SendOp,
        data: Data<'_>,
        is_last: bool,
    ) -> Result<(), Refused> {
        let Some(fragments) = &mut self.end.fragments else { return Ok(()) };
        let lane = &mut fragments.lanes[peer];
        lane.posted += 1;
        let wr = SendWr {
            wr_id: wr_id(Work::Fragment, peer, lane.posted as u32),
            op,
            data,
            flags: SendFlags { signaled: is_last || lane.posted.is_multiple_of(SIGNALED), ..SendFlags::default() },
            best_effort: None,
            to: None,
        };
        let now = self.now();
        self.verbs.post_send(now, qpn, &wr).map_err(|e| refused("a fragment", peer, e))
    }

    /// A work request for fragments or feedback is done.
    pub(super) fn fragment(&mut self, peer: usize, index: u32, c: &Completion) -> Result<(), Refused> {
        let now = self.now();
        let (Some(fragments), Some(qpn)) = (&mut self.end.fragments, self.end.links[peer].data) else { return Ok(()) };
        if !matches!(c.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm) {
            let lane = &mut fragments.lanes[peer];
            lane.done += u64::from(index.wrapping_sub(lane.done as u32));
            return self.pump(peer);
        }
        let mtu = self.end.config.mtu;
        let imm = c.imm.unwrap_or(u32::MAX);
        if c.opcode == WcOpcode::RecvWriteImm {
            let came = fragments.came(peer, imm, c.byte_len, mtu);
            let lane = &fragments.lanes[peer];
            // Feedback that finds no room is as good as lost.
            let has_room = lane.posted - lane.done < u64::from(caps(mtu).max_send_wr);
            if came.is_some() && has_room {
                self.post_fragment(peer, qpn, SendOp::SendImm { imm }, Data::Gather(&[]), false)?;
            }
            if let Some(Came::Last(place)) = came {
                self.end_message(peer, place, true);
            }
        } else {
            fragments.heard(peer, now, imm);
            self.pump(peer)?;
        }
        self.arm(peer, qpn).map_err(|e| refused("a receive", peer, e))
    }

    /// A message is whole, or its time is over: its key goes, so that memory does not change any more, and only then it is told.
    fn end_message(&mut self, peer: usize, place: usize, whole: bool) {
        let Some(fragments) = &mut self.end.fragments else { return };
        let lane = &mut fragments.lanes[peer];
        let Some(key) = lane.close(place) else { return };
        let Incoming { step, len, .. } = lane.incoming[place];
        self.verbs.close_key(key);
        self.end.events.push_back(FabricEvent::Received { step, whole, len });
    }

    /// Ends what is due; the rank to which nothing can be sent, and why.
    pub(super) fn end_overdue(&mut self) -> Result<(), (usize, Refused)> {
        let now = self.now();
        let is_due = |f: &Fragments| f.due.is_some_and(|due| due <= now);
        if !self.end.fragments.as_ref().is_some_and(is_due) {
            return Ok(());
        }
        for peer in 0..self.end.links.len() {
            while let Some(place) = self.end.fragments.as_ref().and_then(|f| f.lanes[peer].overdue(now)) {
                self.end_message(peer, place, false);
            }
            if let Some(fragments) = &mut self.end.fragments {
                fragments.expire(peer, now);
            }
            self.pump(peer).map_err(|why| (peer, why))?;
        }
        if let Some(fragments) = &mut self.end.fragments {
            fragments.look_again();
        }
        Ok(())
    }

    /// What happened to fragments.
    pub(super) fn poll_fragments(&mut self) -> Option<FabricEvent> {
        for _ in 0..AT_ONCE {
            if let Some(event) = self.end.events.pop_front() {
                return Some(event);
            }
            let Some(completion) = self.verbs.poll() else { break };
            if let Some(event) = self.handle(completion) {
                return Some(event);
            }
        }
        if let Err((peer, Refused(why))) = self.end_overdue() {
            return Some(FabricEvent::Failed { peer, why });
        }
        self.end.events.pop_front()
    }
}
