//! The receiving half: what came, what waits for a packet before it, and when that is given up.
//!
//! Two blocks are followed in each sequence of PSNs: the one whose turn it is, and the one behind it, because a network may bring a repair
//! packet a little late. When a third one begins, or a repair of the second comes, the first is not repaired any more.

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

/// PSNs among which packets that wait are told apart: more than two blocks have.
const SPAN: usize = 512;

/// One sequence of PSNs.
struct Track {
    front: Block,
    back: Block,
    /// Where packets wait, by the low bits of their PSN.
    waiting: Box<[Place; SPAN]>,
    count: u16,
    /// A packet that the queue pair gets before its time, so that it notices the loss.
    alarm: Place,
    /// A block could not be repaired: nothing is followed until what is missing is sent again. The last packet since then.
    lost: Option<Psn>,
    /// The newest packet that came.
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

    /// The place of a packet.
    #[inline]
    fn waits(&mut self, psn: Psn) -> &mut Place {
        &mut self.waiting[psn.value() as usize % SPAN]
    }

    /// Whether the packet is the next one of its block, nothing is missing, and others follow in the block.
    #[inline]
    fn goes_on_with(&self, psn: Psn, opcode: Opcode) -> bool {
        self.count == 0
            && self.lost.is_none()
            && !self.back.is_active()
            && self.front.goes_on_with(psn)
            && !opcode.begins_message()
    }

    /// Blocks that are complete are done with.
    #[inline]
    fn advance(&mut self, buffers: &mut Buffers) {
        while self.front.is_complete() {
            self.front.end(&mut buffers.decoding);
            if self.back.is_active() {
                std::mem::swap(&mut self.front, &mut self.back);
            }
        }
    }

    /// What is missing will not be recovered. The queue pair gets the first packet that waits, from `from` on, which makes it ask for what is
    /// missing; all behind it will be sent again.
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

    /// Forgets what waits, and the blocks.
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

    /// Keeps a packet until its turn comes; `false` when there is no place for it.
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

    /// A packet waits. One that came before its block began anew, and is now recovered, waited already.
    fn note_kept(&mut self, psn: Psn, place: Place, buffers: &mut Buffers) {
        let before = std::mem::replace(self.waits(psn), place);
        self.count += u16::from(before == Place::NONE);
        buffers.ring.clear(before);
    }
}

/// The receiving half.
pub(super) struct Decoder {
    /// The code of the blocks that begin from now on, as the peer said.
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

    /// The peer's next blocks are of this kind.
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

    /// A data packet came.
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

    /// A data packet came that does not just go on with its block.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)] // all of it was read already
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
        // It came before: the queue pair knows what to do.
        if early < 0 {
            return ShimAction::Deliver;
        }
        let begins = opcode.begins_message();
        if let Some(last) = track.lost {
            // What is missing is sent again when it comes, or when the numbers go back to right behind it.
            let again = early == 0 || (!psn.is_after(last) && early < i32::from(self.code.r()));
            if !again {
                track.lost = Some(psn);
                return ShimAction::Deliver;
            }
            track.lost = None;
            track.newest = psn;
        }
        if early == 0 && begins && track.front.is_active() && track.front.base != psn {
            // A READ that is answered anew from here on.
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
        // A packet before it is missing. If that cannot be recovered, it is not waited for.
        if !track.front.is_sound() || !track.keep(psn, received.frame, &mut resources) {
            track.give_up(awaited, &mut resources);
            return ShimAction::DeliverAndPoll;
        }
        resources.counters.lowar_held_packets += 1;
        track.deadline = Some(now + REPAIR_TIMEOUT);
        ShimAction::Hold
    }

    /// A repair packet came.
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
            // All of it came. If the block begins elsewhere than we think, we are wrong: the next one begins here.
            if base.add(n) == awaited && track.front.is_active() && track.front.base != awaited && track.count == 0 {
                track.end_blocks(&mut resources.pools.lowar);
            }
            return;
        }
        if base == awaited && (track.lost.is_some() || !track.front.is_active()) {
            // Nothing of the block came, or nothing since it was given up: alone, this is of use for a message of few packets.
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
            // Repair packets come in the order of their blocks.
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

    /// The next packet whose turn has come.
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
                    // Overrun by others: as if it were lost.
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

/// The block that a packet belongs to, and its place in it. `None`: it is of a third one.
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
        // The message goes on behind the block; or another one has begun, and the end of this one is missing.
        let base = match begins {
            true => psn,
            false => front.base.add(u32::from(front.len().unwrap_or(front.code.r()))),
        };
        // What is far ahead has no place to wait.
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

/// Whether the fields of a repair packet's header fit each other.
fn fits(repair: &Repair<'_>) -> bool {
    let (h, code) = (&repair.header, repair.code);
    (1..=code.r()).contains(&h.n) && (h.has_last || h.n == code.r()) && h.isn < code.c().min(h.n)
}
