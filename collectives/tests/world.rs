//! A group of ranks in memory: messages of each pair in their order, pairs in an order that the seed draws, and some bytes lost if asked for.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use softnic_collectives::call::Call;
use softnic_collectives::control::Control;
use softnic_collectives::fabric::{Fabric, FabricEvent, Refused, Region};
use softnic_collectives::member::{Member, MemberError, MemberSettings, Outcome, Progress};
use softnic_collectives::plan::{Plan, Step};
use softnic_wire::Instant;

/// A packet's worth of bytes: what is lost is lost in such pieces.
pub(crate) const PIECE: u32 = 64;
/// What memory has that nobody has written: it must not be seen.
pub(crate) const STALE: u8 = 0xa5;

/// A small generator.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n.max(1)
    }
}

enum Message {
    Control(Vec<u8>),
    Data(Vec<u8>),
}

#[derive(Default)]
struct Host {
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    events: VecDeque<FabricEvent>,
    words: VecDeque<Vec<u8>>,
    heard: Vec<u8>,
    /// For each rank, steps that were posted for its messages, in their order.
    receives: Vec<VecDeque<(u32, Step)>>,
    missing: Vec<(u32, Vec<Range<u32>>)>,
    woken_at: Option<Instant>,
    /// Of every message that was posted, its deadline.
    deadlines: Vec<(u32, Option<Instant>)>,
}

pub(crate) struct World {
    hosts: Vec<Host>,
    /// Messages from a rank to another.
    under_way: Vec<Vec<VecDeque<Message>>>,
    pub(crate) members: Vec<Member>,
    pub(crate) now: Instant,
    pub(crate) random: Random,
    /// One piece in so many is lost; 0 for none.
    pub(crate) loss: u64,
    /// What is said is changed on its way.
    pub(crate) tamper: Tamper,
    /// Ranks that do nothing.
    pub(crate) dead: Vec<usize>,
    /// By how much the clock of each rank is ahead.
    pub(crate) clocks: Vec<Duration>,
}

/// What becomes of the words of a rank.
type Tamper = Option<Box<dyn FnMut(usize, Control) -> Control>>;

struct View<'w> {
    rank: usize,
    host: &'w mut Host,
    under_way: &'w mut Vec<VecDeque<Message>>,
    now: Instant,
    tamper: &'w mut Tamper,
}

impl Fabric for View<'_> {
    fn now(&self) -> Instant {
        self.now
    }

    fn wake_at(&mut self, at: Instant) {
        self.host.woken_at = Some(at);
    }

    fn prepare(&mut self, plan: &Plan) -> Result<(), Refused> {
        assert!(self.host.receives.iter().all(VecDeque::is_empty), "nothing of an earlier plan is under way");
        self.host.scratch.clear();
        self.host.scratch.resize(plan.scratch as usize, STALE);
        self.host.deadlines.clear();
        Ok(())
    }

    fn post_receive(&mut self, index: u32, step: &Step, deadline: Option<Instant>) -> Result<(), Refused> {
        self.host.receives[step.peer].push_back((index, *step));
        self.host.deadlines.push((index, deadline));
        Ok(())
    }

    fn post_send(&mut self, index: u32, step: &Step, deadline: Option<Instant>) -> Result<(), Refused> {
        let range = step.at as usize..step.at as usize + step.len as usize;
        self.under_way[step.peer].push_back(Message::Data(self.host.buffer[range].to_vec()));
        self.host.events.push_back(FabricEvent::Sent { step: index });
        self.host.deadlines.push((index, deadline));
        Ok(())
    }

    fn tell(&mut self, peer: usize, message: &[u8]) -> Result<(), Refused> {
        assert!(peer != self.rank);
        let message = match (&mut self.tamper, Control::parse(message)) {
            (Some(tamper), Some(control)) => tamper(self.rank, control).emit().to_vec(),
            _ => message.to_vec(),
        };
        self.under_way[peer].push_back(Message::Control(message));
        Ok(())
    }

    fn poll(&mut self) -> Option<FabricEvent> {
        let event = self.host.events.pop_front()?;
        if let FabricEvent::Control { .. } = event {
            self.host.heard = self.host.words.pop_front().unwrap();
        }
        Some(event)
    }

    fn heard(&self) -> &[u8] {
        &self.host.heard
    }

    fn missing(&mut self, index: u32, _: &Step, tell: &mut dyn FnMut(Range<u32>)) {
        let place = self.host.missing.iter().position(|(step, _)| *step == index).unwrap();
        // In whatever order.
        self.host.missing.swap_remove(place).1.into_iter().rev().for_each(tell);
    }

    fn has_bytes(&self) -> bool {
        true
    }

    fn read(&self, region: Region, at: u64, into: &mut [u8]) {
        let memory = if region == Region::Buffer { &self.host.buffer } else { &self.host.scratch };
        into.copy_from_slice(&memory[at as usize..at as usize + into.len()]);
    }

    fn write(&mut self, region: Region, at: u64, bytes: &[u8]) {
        let memory = if region == Region::Buffer { &mut self.host.buffer } else { &mut self.host.scratch };
        memory[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }
}

impl World {
    pub(crate) fn new(ranks: usize, seed: u64, settings: &MemberSettings) -> World {
        let host = || Host { receives: (0..ranks).map(|_| VecDeque::new()).collect(), ..Host::default() };
        World {
            hosts: (0..ranks).map(|_| host()).collect(),
            under_way: (0..ranks).map(|_| (0..ranks).map(|_| VecDeque::new()).collect()).collect(),
            members: (0..ranks).map(|rank| Member::new(rank, ranks, settings.clone())).collect(),
            now: Instant::ZERO,
            random: Random(seed),
            loss: 0,
            tamper: None,
            dead: Vec::new(),
            clocks: vec![Duration::ZERO; ranks],
        }
    }

    pub(crate) fn replaying(ranks: usize, seed: u64, log: softnic_collectives::losses::LossLog) -> World {
        let settings = MemberSettings { bounded: true, replay: Arc::new(log), ..MemberSettings::default() };
        World::new(ranks, seed, &settings)
    }

    fn with<T>(&mut self, rank: usize, of: impl FnOnce(&mut Member, &mut View<'_>) -> T) -> T {
        let mut view = View {
            rank,
            host: &mut self.hosts[rank],
            under_way: &mut self.under_way[rank],
            now: self.now + self.clocks[rank],
            tamper: &mut self.tamper,
        };
        of(&mut self.members[rank], &mut view)
    }

    /// Runs a collective; the outcome of each rank.
    pub(crate) fn run(&mut self, call: &Call, buffers: &mut [Vec<u8>]) -> Result<Vec<Outcome>, MemberError> {
        self.run_each(&vec![*call; buffers.len()], buffers, false)
    }

    pub(crate) fn run_each(
        &mut self,
        calls: &[Call],
        buffers: &mut [Vec<u8>],
        warm_up: bool,
    ) -> Result<Vec<Outcome>, MemberError> {
        let ranks = self.members.len();
        for rank in (0..ranks).filter(|rank| !self.dead.contains(rank)).collect::<Vec<_>>() {
            self.hosts[rank].buffer = buffers[rank].clone();
            self.with(rank, |member, view| match warm_up {
                true => member.warm_up(&calls[rank], view),
                false => member.start(&calls[rank], view),
            })?;
        }
        let mut outcomes: Vec<Option<Outcome>> = vec![None; ranks];
        loop {
            for rank in (0..ranks).filter(|rank| !self.dead.contains(rank)).collect::<Vec<_>>() {
                if let Progress::Done(outcome) = self.with(rank, |member, view| member.advance(view))? {
                    buffers[rank] = self.hosts[rank].buffer.clone();
                    outcomes[rank] = Some(outcome);
                }
            }
            if outcomes.iter().all(Option::is_some) {
                return Ok(outcomes.into_iter().flatten().collect());
            }
            if !self.deliver() {
                // Nothing is under way: time goes on.
                let all = self.hosts.iter().zip(&self.clocks);
                let wakes =
                    all.filter_map(|(host, ahead)| Some(Instant::ZERO + (host.woken_at? - (Instant::ZERO + *ahead))));
                let next = wakes.max();
                self.now = next.expect("everybody waits for ever").max(self.now + Duration::from_nanos(1));
            }
        }
    }

    /// Delivers a message of some pair; whether there was any.
    fn deliver(&mut self) -> bool {
        let ranks = self.members.len();
        let start = self.random.below((ranks * ranks) as u64) as usize;
        for pair in (0..ranks * ranks).map(|i| (start + i) % (ranks * ranks)) {
            let (from, to) = (pair / ranks, pair % ranks);
            if self.dead.contains(&to) {
                continue;
            }
            let Some(message) = self.under_way[from][to].pop_front() else { continue };
            self.now = self.now + Duration::from_micros(1);
            let host = &mut self.hosts[to];
            match message {
                Message::Control(words) => {
                    host.events.push_back(FabricEvent::Control { peer: from, len: words.len() });
                    host.words.push_back(words);
                }
                Message::Data(bytes) => {
                    let (index, step) = host.receives[from].pop_front().expect("who sends was told that it may");
                    assert_eq!(bytes.len(), step.len as usize, "what is sent is what is expected");
                    let (memory, at) = match step.act {
                        softnic_collectives::plan::Act::Place => (&mut host.buffer, step.at),
                        _ => (&mut host.scratch, step.scratch),
                    };
                    let mut missing = Vec::new();
                    for start in (0..step.len).step_by(PIECE as usize) {
                        let end = (start + PIECE).min(step.len);
                        if self.loss > 0 && self.random.below(self.loss) == 0 {
                            missing.push(start..end);
                            continue;
                        }
                        let place = at as usize + start as usize..at as usize + end as usize;
                        memory[place].copy_from_slice(&bytes[start as usize..end as usize]);
                    }
                    let whole = missing.is_empty();
                    if !whole {
                        host.missing.push((index, missing));
                    }
                    host.events.push_back(FabricEvent::Received { step: index, whole, len: bytes.len() as u32 });
                }
            }
            return true;
        }
        false
    }

    /// Deadlines of what a rank posted last, by step.
    pub(crate) fn deadlines(&self, rank: usize) -> &[(u32, Option<Instant>)] {
        &self.hosts[rank].deadlines
    }
}
