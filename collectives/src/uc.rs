//! Best effort over UC of the standard (OptiNIC §3.3): which fragments a message has, which of them came, and how many may be under way.
//!
//! Nothing here posts anything or knows a clock: [`crate::endpoint`] does and hands in the time. Each fragment is one WRITE with immediate
//! of at most a path MTU; the fragments of all messages from a rank to another in one collective are numbered in a row from 0.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use softnic_transports::Transport;
use softnic_wire::{Instant, PathMtu};

use crate::fabric::Window;
use crate::plan::Plan;

/// The most fragments and bytes to another rank of which nothing was heard.
const MOST_FRAGMENTS: u32 = 64;
const MOST_BYTES: u32 = 128 << 10;
/// How long nothing need be heard before all that is under way counts as lost: twice the round trip and this, at first only this.
const SILENCE: Duration = Duration::from_millis(1);
const MARGIN: Duration = Duration::from_micros(50);

/// Bits of an immediate that say which fragment; those above say which collective.
const NUMBER_BITS: u32 = 28;
const MOST_NUMBERS: u64 = 1 << NUMBER_BITS;

/// Whether messages have deadlines, kept by the transport or, over UC, by this crate.
pub fn is_bounded(transport: Transport) -> bool {
    transport.is_bounded() || transport == Transport::Uc
}

/// Fragments to another rank of which nothing was heard, at most.
pub fn window(mtu: PathMtu) -> u32 {
    (MOST_BYTES / mtu.bytes()).min(MOST_FRAGMENTS)
}

/// The immediate of a fragment: the low 28 bits are its number among all from this rank to the other in the collective, the high 4 bits
/// which collective it is, from 0, modulo 16.
pub fn immediate(collective: u32, number: u32) -> u32 {
    collective << NUMBER_BITS | number
}

/// The collective modulo 16, and the number, of an immediate.
pub fn of_immediate(imm: u32) -> (u32, u32) {
    (imm >> NUMBER_BITS, imm & (MOST_NUMBERS - 1) as u32)
}

/// Where a message of the present collective stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has posted it.
    Planned,
    /// It is under way, and its key is good.
    Open,
    /// It has ended, and its key is good for nothing.
    Closed,
}

/// A message that comes in.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) step: u32,
    pub(crate) len: u32,
    first: u32,
    fragments: u32,
    came: u32,
    /// Where its bits begin, in bytes.
    bits: usize,
    pub(crate) window: Window,
    deadline: Option<Instant>,
    stage: Stage,
}

/// A message that goes out.
#[derive(Debug)]
struct Outgoing {
    step: u32,
    at: u64,
    len: u32,
    first: u32,
    /// Fragments, or those that were handed out before the deadline.
    fragments: u32,
    next: u32,
    window: Option<Window>,
    deadline: Option<Instant>,
    posted: bool,
    /// The position in the send queue behind its last fragment.
    behind: u64,
}

/// Fragments to be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Burst {
    /// Where they are in the buffer.
    pub(crate) at: Range<u64>,
    /// Where they go.
    pub(crate) window: Window,
    /// The number of the first one.
    pub(crate) number: u32,
}

/// What fragments to another rank and from it have come to.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) incoming: Vec<Incoming>,
    outgoing: Vec<Outgoing>,
    /// The message that is handed out next, and the oldest that has not left.
    cursor: usize,
    oldest: usize,
    /// Fragments of which nothing was heard, and when they left.
    under_way: VecDeque<(u32, Instant)>,
    progress: Instant,
    round_trip: Option<Duration>,
    /// Work requests that were posted, and that are known to be done.
    pub(crate) posted: u64,
    pub(crate) done: u64,
    /// Whether receives are posted.
    pub(crate) armed: bool,
}

/// What a fragment that came is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// The last one that its message lacked; the place of the message in its lane.
    Last(usize),
    /// Another one.
    Another,
}

impl Lane {
    fn begin(&mut self, plan: &Plan, peer: usize, mtu: PathMtu, bits: &mut usize) -> bool {
        (self.cursor, self.oldest) = (0, 0);
        self.under_way.clear();
        self.incoming.clear();
        self.outgoing.clear();
        let mut first = 0u64;
        for &step in plan.receives_from(peer) {
            let len = plan.steps[step as usize].len;
            let fragments = mtu.packets(len);
            let message = Incoming {
                step,
                len,
                first: first as u32,
                fragments,
                came: 0,
                bits: *bits,
                window: Window { addr: 0, key: 0 },
                deadline: None,
                stage: Stage::Planned,
            };
            self.incoming.push(message);
            *bits += fragments.div_ceil(8) as usize;
            first += u64::from(fragments);
        }
        let mut sent = 0u64;
        for &index in plan.sends_to(peer) {
            let step = &plan.steps[index as usize];
            let fragments = mtu.packets(step.len);
            let message = Outgoing {
                step: index,
                at: step.at,
                len: step.len,
                first: sent as u32,
                fragments,
                next: 0,
                window: None,
                deadline: None,
                posted: false,
                behind: 0,
            };
            self.outgoing.push(message);
            sent += u64::from(fragments);
        }
        first.max(sent) <= MOST_NUMBERS
    }

    /// A message is expected; its place in the lane.
    pub(crate) fn expect(&mut self, step: u32, window: Window, deadline: Option<Instant>) {
        if let Some(message) = self.incoming.iter_mut().find(|message| message.step == step) {
            (message.window, message.deadline, message.stage) = (window, deadline, Stage::Open);
        }
    }

    /// Ends a message; the key that it had.
    pub(crate) fn close(&mut self, place: usize) -> Option<u32> {
        let message = self.incoming.get_mut(place).filter(|message| message.stage == Stage::Open)?;
        message.stage = Stage::Closed;
        Some(message.window.key)
    }

    /// A message whose time is over.
    pub(crate) fn overdue(&self, now: Instant) -> Option<usize> {
        let is_over = |m: &Incoming| m.stage == Stage::Open && m.deadline.is_some_and(|deadline| deadline <= now);
        self.incoming.iter().position(is_over)
    }

    /// A fragment of `len` bytes came.
    fn came(&mut self, number: u32, len: u32, mtu: PathMtu, bits: &mut [u8]) -> Came {
        let place = self.incoming.partition_point(|message| message.first <= number).wrapping_sub(1);
        let Some(message) = self.incoming.get_mut(place) else { return Came::Another };
        let index = number - message.first;
        // What is not as long as it should be is not what it says.
        let wanted = message.len.saturating_sub(index.saturating_mul(mtu.bytes())).min(mtu.bytes());
        if message.stage != Stage::Open || index >= message.fragments || len != wanted {
            return Came::Another;
        }
        let (byte, bit) = (message.bits + index as usize / 8, 1 << (index % 8));
        if bits[byte] & bit != 0 {
            return Came::Another;
        }
        bits[byte] |= bit;
        message.came += 1;
        if message.came == message.fragments { Came::Last(place) } else { Came::Another }
    }

    /// A message may leave as soon as its key is there.
    pub(crate) fn post(&mut self, step: u32, deadline: Option<Instant>) {
        if let Some(message) = self.outgoing.iter_mut().find(|message| message.step == step) {
            (message.deadline, message.posted) = (deadline, true);
        }
    }

    /// The other rank takes a message here; whether it is one.
    pub(crate) fn learn(&mut self, place: usize, window: Window) -> bool {
        let Some(message) = self.outgoing.get_mut(place) else { return false };
        // The first word counts.
        message.window.get_or_insert(window);
        true
    }

    /// What may leave now, with room in the send queue for `room` fragments.
    pub(crate) fn burst(&mut self, now: Instant, room: u32, mtu: PathMtu) -> Option<Burst> {
        loop {
            let message = self.outgoing.get_mut(self.cursor).filter(|message| message.posted)?;
            if message.deadline.is_some_and(|deadline| deadline <= now) {
                message.fragments = message.next;
                self.cursor += 1;
                continue;
            }
            let Window { addr, key } = message.window?;
            let room = room.min(window(mtu).saturating_sub(self.under_way.len() as u32));
            let count = room.min(message.fragments - message.next);
            if count == 0 {
                return None;
            }
            let number = message.first + message.next;
            let from = message.next * mtu.bytes();
            message.next += count;
            let to = message.len.min(message.next.saturating_mul(mtu.bytes()));
            message.behind = self.posted + u64::from(count);
            if message.next == message.fragments {
                self.cursor += 1;
            }
            if self.under_way.is_empty() {
                self.progress = now;
            }
            self.under_way.extend((number..number + count).map(|number| (number, now)));
            let at = message.at + u64::from(from)..message.at + u64::from(to);
            return Some(Burst { at, window: Window { addr: addr.wrapping_add(u64::from(from)), key }, number });
        }
    }

    /// The step of a message of which nothing is left to leave; said once.
    pub(crate) fn left(&mut self) -> Option<u32> {
        if self.oldest == self.cursor {
            return None;
        }
        let message = self.outgoing.get(self.oldest)?;
        if message.behind > self.done {
            return None;
        }
        self.oldest += 1;
        Some(message.step)
    }

    /// Feedback: a fragment came, and with it the others before it are under way no more. Those that are lost give none.
    fn heard(&mut self, now: Instant, number: u32) {
        while let Some(&(front, sent)) = self.under_way.front()
            && front <= number
        {
            self.under_way.pop_front();
            self.progress = now;
            if front == number {
                let took = now.saturating_since(sent);
                self.round_trip = Some(self.round_trip.map_or(took, |usual| took.max(usual * 7 / 8 + took / 8)));
            }
        }
    }

    /// When all that is under way counts as lost.
    fn silence(&self) -> Option<Instant> {
        let silence = self.round_trip.map_or(SILENCE, |usual| usual * 2 + MARGIN);
        (!self.under_way.is_empty()).then(|| self.progress + silence)
    }

    fn next(&self) -> Option<Instant> {
        let incoming = self.incoming.iter().filter(|m| m.stage == Stage::Open).filter_map(|m| m.deadline);
        let waiting = self.outgoing[self.cursor.min(self.outgoing.len())..].iter().filter(|m| m.posted);
        incoming.chain(waiting.filter_map(|m| m.deadline)).chain(self.silence()).min()
    }
}

/// All fragments of a rank.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    pub(crate) lanes: Vec<Lane>,
    collectives: u32,
    /// A bit a fragment that came, the lowest of a byte first.
    bits: Vec<u8>,
    /// Nothing is due before.
    pub(crate) due: Option<Instant>,
}

impl Fragments {
    pub(crate) fn new(ranks: usize) -> Fragments {
        Fragments { lanes: (0..ranks).map(|_| Lane::default()).collect(), ..Fragments::default() }
    }

    /// A collective begins; whether its fragments can all be numbered.
    pub(crate) fn begin(&mut self, plan: &Plan, mtu: PathMtu) -> bool {
        self.collectives = self.collectives.wrapping_add(1);
        self.due = None;
        let mut bits = 0;
        let mut fit = true;
        for (peer, lane) in self.lanes.iter_mut().enumerate().take(plan.ranks) {
            fit &= lane.begin(plan, peer, mtu, &mut bits);
        }
        self.bits.clear();
        self.bits.resize(bits, 0);
        fit
    }

    /// The immediate of a fragment of the present collective.
    pub(crate) fn immediate(&self, number: u32) -> u32 {
        immediate(self.collectives, number)
    }

    fn number(&self, imm: u32) -> Option<u32> {
        let (collective, number) = of_immediate(imm);
        (collective == of_immediate(self.immediate(0)).0).then_some(number)
    }

    /// A fragment came from a rank; `None` where it is of another collective.
    pub(crate) fn came(&mut self, peer: usize, imm: u32, len: u32, mtu: PathMtu) -> Option<Came> {
        let number = self.number(imm)?;
        Some(self.lanes[peer].came(number, len, mtu, &mut self.bits))
    }

    /// Feedback came from a rank.
    pub(crate) fn heard(&mut self, peer: usize, now: Instant, imm: u32) {
        if let Some(number) = self.number(imm) {
            self.lanes[peer].heard(now, number);
        }
    }

    /// Something is due by then.
    pub(crate) fn look_by(&mut self, at: Option<Instant>) {
        self.due = match (self.due, at) {
            (Some(due), Some(at)) => Some(due.min(at)),
            (due, at) => due.or(at),
        };
    }

    /// What was under way to a rank for too long is lost.
    pub(crate) fn expire(&mut self, peer: usize, now: Instant) {
        if self.lanes[peer].silence().is_some_and(|silence| silence <= now) {
            self.lanes[peer].under_way.clear();
        }
    }

    /// When all that is under way to a rank is lost.
    pub(crate) fn silence(&self, peer: usize) -> Option<Instant> {
        self.lanes[peer].silence()
    }

    /// Looks for what is due next.
    pub(crate) fn look_again(&mut self) {
        self.due = self.lanes.iter().filter_map(Lane::next).min();
    }

    /// Where a message from a rank goes, while it is under way.
    pub(crate) fn window(&self, peer: usize, step: u32) -> Option<Window> {
        let message = self.lanes[peer].incoming.iter().find(|message| message.step == step)?;
        (message.stage == Stage::Open).then_some(message.window)
    }

    /// The bits of a message.
    pub(crate) fn bits(&self, peer: usize, step: u32) -> &[u8] {
        let message = self.lanes[peer].incoming.iter().find(|message| message.step == step);
        message.map_or(&[], |m| &self.bits[m.bits..m.bits + m.fragments.div_ceil(8) as usize])
    }
}
