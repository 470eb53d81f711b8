//! The receiving half: the packets that have arrived, those that wait for an earlier one, and when the wait is given up.
//!
//! Two blocks are tracked in each sequence of PSNs: the current one and the next one, because the network may deliver a repair packet a
//! little late. When a third block starts, or a repair packet of the second arrives, the first block is given up.

use softnic_wire::opcode::Opcode;
use softnic_wire::{Instant, Psn, bth};

use super::block::Block;
use super::buffers::{Body, Buffers, Place, Pool};
use super::recovery::{self, Repair};
use super::{Code, REPAIR_TIMEOUT, Stream, digest_of, psn_of};
use crate::planted::{Bug, planted};
use crate::qp::ExpectedPsns;
use crate::qp::{PayloadMode, earlier};
use crate::shim::{ReceivedFrame, ShimAction, ShimResources};

/// The range of PSNs within which waiting packets are told apart: more than two blocks.
const SPAN: usize = 512;

/// One sequence of PSNs.
struct Track {
    front: Block,
    back: Block,
    /// The ring positions of waiting packets, indexed by the low bits of the PSN.
    waiting: Box<[Place; SPAN]>,
    count: u16,
    /// A packet that the queue pair gets early, so that it detects the loss.
    alarm: Place,
    /// A block could not be repaired: nothing is tracked until the missing packets are sent again. The last packet since then.
    lost: Option<Psn>,
    /// The newest packet that has arrived.
    newest: Psn,
    deadline: Option<Instant>,
}

impl Track {
    fn new(code: Code) -> Track {
        Track {
            front: Block::new(code),
            back: Block::new(code),
            waiting: Box::new([Place::NONE; SPAN]),
            count: 0,
            alarm: Place::NONE,
            lost: None,
            newest: Psn::new(0),
            deadline: None,
        }
    }

    /// The ring position of a packet.
    #[inline]
    fn waits(&mut self, psn: Psn) -> &mut Place {
        &mut self.waiting[psn.value() as usize % SPAN]
    }

    /// Whether the packet is the next one of its block, none is missing, and more packets follow in the block.
    #[inline]
    fn goes_on_with(&self, psn: Psn, opcode: Opcode) -> bool {
        self.count == 0
            && self.lost.is_none()
            && !self.back.is_active()
            && self.front.goes_on_with(psn)
            && !opcode.begins_message()
    }

    /// Removes complete blocks.
    #[inline]
    fn advance(&mut self, buffers: &mut Buffers) {
        while self.front.is_complete() {
            self.front.end(&mut buffers.decoding);
            if self.back.is_active() {
                std::mem::swap(&mut self.front, &mut self.back);
            }
        }
    }

    /// Gives up the missing packets. The queue pair gets the first waiting packet, from `from` on, and therefore requests the missing ones;
    /// all later packets will be sent again.
    fn give_up(&mut self, from: Psn, resources: &mut ShimResources<'_>) {
        resources.counters.lowar_failed_blocks += 1;
        for i in 0..SPAN as u32 {
            let place = *self.waits(from.add(i));
            if resources.pools.lowar.ring.get(place).is_some() {
                *self.waits(from.add(i)) = Place::NONE;
                self.alarm = place;
                break;
            }
        }
        self.forget(&mut resources.pools.lowar);
        self.lost = Some(self.newest);
    }

    /// Drops the waiting packets and the blocks.
    fn forget(&mut self, buffers: &mut Buffers) {
        if self.count > 0 {
            for place in self.waiting.iter_mut() {
                let place = std::mem::take(place);
                if !planted(Bug::LowarRingKept) {
                    buffers.ring.clear(place);
                }
            }
        }
        self.end_blocks(buffers);
        (self.count, self.deadline) = (0, None);
    }

    fn end_blocks(&mut self, buffers: &mut Buffers) {
        self.front.end(&mut buffers.decoding);
        self.back.end(&mut buffers.decoding);
    }

    /// Holds a packet until its turn; returns `false` if there is no room for it.
    fn keep(&mut self, psn: Psn, frame: &[u8], resources: &mut ShimResources<'_>) -> bool {
        if resources.pools.lowar.ring.get(*self.waits(psn)).is_some() {
            return true;
        }
        let Some((place, room, overran)) = resources.pools.lowar.ring.put(frame.len()) else { return false };
        room.copy_from_slice(frame);
        resources.counters.lowar_ring_overruns += u64::from(overran);
        self.note_kept(psn, place, &mut resources.pools.lowar);
        true
    }

    /// A packet waits. If it arrived before its block was restarted, and is now recovered, it waited already.
    fn note_kept(&mut self, psn: Psn, place: Place, buffers: &mut Buffers) {
        let before = std::mem::replace(self.waits(psn), place);
        self.count += u16::from(before == Place::NONE);
        buffers.ring.clear(before);
    }
}

/// The receiving half.
pub(super) struct Decoder {
    /// The code of the blocks that start from now on, as announced by the peer.
    code: Code,
    mtu: usize,
    payload: PayloadMode,
    tracks: [Track; 2],
}

impl Decoder {
    pub(super) fn new(code: Code, mtu: usize, payload: PayloadMode) -> Decoder {
        let tracks = [Track::new(code), Track::new(code)];
        Decoder { code, mtu, payload, tracks }
    }

    /// Sets the code of the peer's next blocks.
    pub(super) fn set_code(&mut self, code: Code) {
        self.code = code;
    }

    pub(super) fn reset(&mut self, resources: ShimResources<'_>) {
        for track in &mut self.tracks {
            track.forget(&mut resources.pools.lowar);
            track.front.reset(&mut resources.pools.lowar.decoding);
            if !planted(Bug::LowarUnitsKept) {
                track.back.reset(&mut resources.pools.lowar.decoding);
            }
            resources.pools.lowar.ring.clear(std::mem::take(&mut track.alarm));
            track.lost = None;
        }
    }

    /// Handles a data packet.
    #[inline]
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        opcode: Opcode,
        stream: Stream,
        awaited: Option<Psn>,
        resources: ShimResources<'_>,
    ) -> ShimAction {
        let bytes = received.frame.get(received.bth..received.end.min(received.frame.len())).unwrap_or_default();
        let (Some(head), Some(awaited)) = (bytes.first_chunk::<{ bth::LEN }>(), awaited) else {
            return ShimAction::Deliver;
        };
        let psn = psn_of(head);
        let tail = *bytes.last_chunk().unwrap_or(&[0; 4]);
        let digest = digest_of(head, tail, self.payload);
        let body = Body { parts: (bytes, &[]), wire_len: received.end - received.bth, digest };
        let track = &mut self.tracks[stream as usize];
        if psn == awaited && track.goes_on_with(psn, opcode) {
            track.front.add_next(&body, opcode.ends_message(), &mut resources.pools.lowar.decoding);
            return ShimAction::Deliver;
        }
        self.on_other_data(now, received, &body, (opcode, psn), stream, awaited, resources)
    }

    /// Handles a data packet that is not simply the next one of its block.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)] // all of these were parsed already
    fn on_other_data(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        body: &Body<'_>,
        (opcode, psn): (Opcode, Psn),
        stream: Stream,
        awaited: Psn,
        mut resources: ShimResources<'_>,
    ) -> ShimAction {
        let track = &mut self.tracks[stream as usize];
        let early = psn.distance(awaited);
        // The packet is a repetition: the queue pair handles it.
        if early < 0 {
            return ShimAction::Deliver;
        }
        let begins = opcode.begins_message();
        if let Some(last) = track.lost {
            // The missing packets are sent again if this is the awaited one, or if the PSN has gone back to just after it.
            let again = early == 0 || (!psn.is_after(last) && early < i32::from(self.code.r()));
            if !again {
                track.lost = Some(psn);
                return ShimAction::Deliver;
            }
            track.lost = None;
            track.newest = psn;
        }
        if early == 0 && begins && track.front.is_active() && track.front.base != psn {
            // A READ that is answered again from here on.
            track.end_blocks(&mut resources.pools.lowar);
        }
        if !track.front.is_active() {
            track.front.begin(awaited, self.code, &mut resources.pools.lowar.decoding);
        }
        if planted(Bug::LowarSwallowed) && track.front.base != psn && psn.is_before(track.newest) {
            return ShimAction::Hold;
        }
        if psn.is_after(track.newest) || early == 0 {
            track.newest = psn;
        }
        let Some((block, offset)) = choose(track, psn, begins, self.code, &mut resources.pools.lowar.decoding) else {
            track.give_up(awaited, &mut resources);
            return ShimAction::DeliverAndPoll;
        };
        block.add(offset, body, opcode.ends_message(), &mut resources.pools.lowar.decoding);
        if early == 0 {
            if track.count > 0 {
                track.deadline = Some(now + REPAIR_TIMEOUT);
            }
            track.advance(&mut resources.pools.lowar);
            return ShimAction::DeliverAndPoll;
        }
        // An earlier packet is missing. If that packet cannot be recovered, there is no wait for it.
        if !track.front.is_sound() || !track.keep(psn, received.frame, &mut resources) {
            track.give_up(awaited, &mut resources);
            return ShimAction::DeliverAndPoll;
        }
        resources.counters.lowar_held_packets += 1;
        track.deadline = Some(now + REPAIR_TIMEOUT);
        ShimAction::Hold
    }

    /// Handles a repair packet.
    pub(super) fn on_repair(
        &mut self,
        now: Instant,
        repair: &Repair<'_>,
        stream: Stream,
        awaited: Option<Psn>,
        mut resources: ShimResources<'_>,
    ) {
        if !fits(repair) {
            resources.counters.lowar_rejected += 1;
            return;
        }
        self.code = repair.code;
        let Some(awaited) = awaited else { return };
        let track = &mut self.tracks[stream as usize];
        let (base, n) = (repair.base, u32::from(repair.header.n));
        if !base.add(n).is_after(awaited) {
            // All packets of the block have arrived. If the block has another start than assumed here, this decoder is wrong: the next
            // block starts here.
            if base.add(n) == awaited && track.front.is_active() && track.front.base != awaited && track.count == 0 {
                track.end_blocks(&mut resources.pools.lowar);
            }
            return;
        }
        if base == awaited && (track.lost.is_some() || !track.front.is_active()) {
            // No packet of the block arrived, or none since it was given up. The repair packet alone can only help a message of few
            // packets.
            if n > u32::from(repair.code.c()) {
                return;
            }
            track.lost = None;
            track.front.begin(awaited, self.code, &mut resources.pools.lowar.decoding);
        }
        if track.lost.is_some() || !track.front.is_active() {
            return;
        }
        if base != track.front.base {
            // Repair packets arrive in the order of their blocks.
            if base.is_after(track.front.base) && track.count > 0 {
                track.give_up(awaited, &mut resources);
            }
            return;
        }
        let block = &mut track.front;
        if block.code != repair.code || !block.learn_len(repair.header.n) {
            resources.counters.lowar_rejected += 1;
            return;
        }
        let Some((offset, alone)) = block.missing(repair.header.isn) else { return };
        if !alone || !block.is_sound() {
            track.give_up(awaited, &mut resources);
            return;
        }
        let context = recovery::Context { mtu: self.mtu, payload: self.payload };
        match recovery::recover(repair, block.unit(repair.header.isn), offset, &context, &mut resources.pools.lowar) {
            Ok((place, overran)) => {
                block.mark(offset);
                resources.counters.lowar_recovered_packets += 1;
                resources.counters.lowar_ring_overruns += u64::from(overran);
                track.note_kept(base.add(offset), place, &mut resources.pools.lowar);
                track.deadline = Some(now + REPAIR_TIMEOUT);
                track.advance(&mut resources.pools.lowar);
            }
            Err(recovery::NotRecovered) => resources.counters.lowar_rejected += 1,
        }
    }

    /// The next packet whose turn it is.
    pub(super) fn poll_deliver(
        &mut self,
        expected: ExpectedPsns,
        out: &mut [u8],
        mut resources: ShimResources<'_>,
    ) -> Option<usize> {
        for stream in [Stream::Requests, Stream::Responses] {
            let track = &mut self.tracks[stream as usize];
            if track.count == 0 && track.alarm == Place::NONE {
                continue;
            }
            let mut place = std::mem::take(&mut track.alarm);
            if place == Place::NONE {
                let Some(psn) = stream.expected(expected) else { continue };
                place = std::mem::take(track.waits(psn));
                if place == Place::NONE {
                    continue;
                }
                track.count -= 1;
                if track.count == 0 {
                    track.deadline = None;
                }
                if resources.pools.lowar.ring.get(place).is_none() {
                    // Overrun by other packets: treated as lost.
                    track.give_up(psn, &mut resources);
                    place = std::mem::take(&mut track.alarm);
                }
            }
            let ring = &mut resources.pools.lowar.ring;
            let Some(frame) = ring.get(place) else { continue };
            let len = frame.len().min(out.len());
            out[..len].copy_from_slice(&frame[..len]);
            ring.clear(place);
            return Some(len);
        }
        None
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let [a, b] = &self.tracks;
        earlier(a.deadline, b.deadline)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, mut resources: ShimResources<'_>) {
        for track in &mut self.tracks {
            if track.deadline.is_some_and(|at| at <= now) {
                let from = track.front.base;
                track.give_up(from, &mut resources);
            }
        }
    }
}

/// The block of a packet, and the packet's offset in it; `None` if the packet belongs to a third block.
#[inline]
fn choose<'t>(
    track: &'t mut Track,
    psn: Psn,
    begins: bool,
    code: Code,
    pool: &mut Pool,
) -> Option<(&'t mut Block, u32)> {
    let (front, back) = (&mut track.front, &mut track.back);
    let offset = front.offset(psn);
    if !back.is_active() {
        if front.takes(offset, begins) {
            return Some((front, offset));
        }
        // The message continues after the block; or another message has started, and the end of this one is missing.
        let base = match begins {
            true => psn,
            false => front.base.add(u32::from(front.len().unwrap_or(front.code.r()))),
        };
        // A packet far ahead has no room to wait.
        if !psn.is_before(base) && psn.forward_from(base) < u32::from(code.r()) && offset < SPAN as u32 {
            back.begin(base, code, pool);
            return Some((back, psn.forward_from(base)));
        }
        return None;
    }
    if psn.is_before(back.base) {
        return front.takes(offset, begins).then_some((front, offset));
    }
    let far = offset >= SPAN as u32;
    let offset = back.offset(psn);
    (!far && back.takes(offset, begins)).then_some((back, offset))
}

/// Whether the fields of a repair packet's header are consistent.
fn fits(repair: &Repair<'_>) -> bool {
    let (h, code) = (&repair.header, repair.code);
    (1..=code.r()).contains(&h.n) && (h.has_last || h.n == code.r()) && h.isn < code.c().min(h.n)
}
