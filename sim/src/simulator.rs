//! The event loop: Nodes, links between them, and virtual time.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use softnic_fault_injector::{Direction, Fate};
use softnic_nic::Nic;
use softnic_shift::DualNic;
use softnic_trace::Observer;
use softnic_wire::TxFrame;

use crate::Time;
use crate::digest::Digest;
use crate::link::{End, Link, LinkConfig, LinkStats};
use crate::node::SimNode;
use crate::traced::Traced;
use softnic_fault_injector::frames::Frames;
use softnic_switch::Switch;

/// What happens at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The oldest frame on this link arrives.
    Arrive(usize),
    /// The serialiser of this link is free.
    Free(usize),
    /// The timer of this Node.
    Timer(usize),
    /// Somebody outside wants to see this Node.
    Wake(usize),
}

/// A frame as it leaves a Node.
#[derive(Debug, Clone, Copy)]
pub struct SentFrame<'f> {
    /// When.
    pub at: Time,
    /// The link, by the index that [`Simulator::add_link`] gave it.
    pub link: usize,
    /// The frame; fewer bytes than `wire_len` where the payload is elided.
    pub frame: &'f [u8],
    /// The frame's length on the wire.
    pub wire_len: usize,
    /// What the link's faults will do to the frame, before a bottleneck's queue decides.
    pub fate: Fate,
}

/// Is shown every frame that leaves, for captures and traces.
pub(crate) type Tap<'a> = Box<dyn FnMut(SentFrame<'_>) + 'a>;

/// Nodes and links in virtual time.
///
/// Each link has at most one live event of each kind, each Node at most one live timer: the queue stays as small as the
/// topology, however much is in flight. (A frame that overtakes the next to arrive, and a timer that moves forward, leave a
/// dead one behind until its time.)
pub struct Simulator<'a> {
    now: Time,
    nodes: Vec<Box<dyn SimNode>>,
    /// For each Node the links that leave it.
    exits: Vec<Vec<usize>>,
    timers: Vec<Option<Time>>,
    links: Vec<Link>,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    /// Breaks ties in the order in which events were made.
    sequence: u64,
    frames: Frames,
    digest: Digest,
    tap: Option<Tap<'a>>,
}

impl<'a> Simulator<'a> {
    /// Nothing yet; frames will be of at most `max_frame` bytes.
    pub fn new(max_frame: usize) -> Simulator<'a> {
        Simulator {
            now: Time::default(),
            nodes: Vec::new(),
            exits: Vec::new(),
            timers: Vec::new(),
            links: Vec::new(),
            queue: BinaryHeap::new(),
            sequence: 0,
            frames: Frames::new(max_frame),
            digest: Digest::default(),
            tap: None,
        }
    }

    /// Adds a Node and says its index.
    pub fn add_node(&mut self, node: Box<dyn SimNode>) -> usize {
        self.nodes.push(node);
        self.exits.push(Vec::new());
        self.timers.push(None);
        self.nodes.len() - 1
    }

    /// Adds one direction of a link and says its index. `direction` is what scripts call it.
    pub fn add_link(&mut self, from: End, to: End, config: &LinkConfig, direction: Direction, seed: u64) -> usize {
        self.links.push(Link::new(from, to, config, direction, seed));
        self.exits[from.node].push(self.links.len() - 1);
        self.links.len() - 1
    }

    /// Shows every frame that leaves, lost ones too, to `tap`.
    pub fn set_tap(&mut self, tap: Tap<'a>) {
        self.tap = Some(tap);
    }

    /// Has a host watched: the first of its NICs.
    pub fn watch(&mut self, host: usize, observer: Observer) {
        self.watch_nic(host, 0, observer);
    }

    /// Has a NIC of a host watched, by its place among those of the host.
    pub(crate) fn watch_nic(&mut self, host: usize, place: usize, observer: Observer) {
        let node = self.nodes.remove(host);
        self.nodes.insert(host, Box::new(Traced { host: node, place, observer }));
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.now
    }

    /// A Node, to look at or to give work to; `None` when it is of another type. Call [`Simulator::touch`] after giving it
    /// work.
    pub fn node<N: SimNode>(&mut self, index: usize) -> Option<&mut N> {
        let node: &mut dyn Any = &mut *self.nodes[index];
        node.downcast_mut()
    }

    /// The NIC of a host. Call [`Simulator::touch`] after giving it work.
    ///
    /// # Panics
    /// When that Node is no host: a mistake of who made the network.
    pub fn nic(&mut self, host: usize) -> &mut Nic {
        self.nodes[host].nic().unwrap_or_else(|| panic!("Node {host} is no host"))
    }

    /// A NIC of a host, by its place among those behind the host's port. Call [`Simulator::touch`] after giving it work.
    ///
    /// # Panics
    /// When there is no such NIC: a mistake of who made the network.
    pub fn nic_at(&mut self, host: usize, place: usize) -> &mut Nic {
        self.nodes[host].nic_at(place).unwrap_or_else(|| panic!("Node {host} has no NIC {place}"))
    }

    /// The host with a default NIC and a backup; `None` where the Node is none. Call [`Simulator::touch`] after giving it work.
    pub fn dual(&mut self, host: usize) -> Option<&mut DualNic> {
        self.nodes[host].dual()
    }

    /// The switch of a Node; `None` where it is none.
    pub(crate) fn switch(&mut self, node: usize) -> Option<&mut Switch> {
        self.nodes[node].switch()
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// What a link carried.
    pub fn link_stats(&self, link: usize) -> LinkStats {
        self.links[link].stats()
    }

    /// Adds for each event of the script of some links, by its place, of how many frames it has decided the fate.
    pub(crate) fn count_applied(&self, links: &[usize], counts: &mut [u64]) {
        for (place, n) in links.iter().flat_map(|&link| self.links[link].line.applied()) {
            counts[place] += n;
        }
    }

    /// Stops the faults of all links, or lets them begin again.
    pub fn set_faults_enabled(&mut self, enabled: bool) {
        for link in &mut self.links {
            link.line.set_enabled(enabled);
        }
    }

    /// Takes something else that happened into the digest.
    pub fn record(&mut self, word: u64) {
        self.digest.word(word);
    }

    /// The hash of everything that happened.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Something happened to a Node: sends what it has to send.
    pub fn touch(&mut self, node: usize) {
        let exits = self.exits[node].len();
        // Asked at one port, a Node may find that its next frame leaves by another: all are asked until none has any, twice.
        let mut idle = 0;
        while idle < 2 {
            idle += 1;
            for i in 0..exits {
                let link = self.exits[node][i];
                if !self.links[link].busy && self.pump(link) {
                    idle = 0;
                }
            }
            if exits == 1 {
                break;
            }
        }
        self.follow_timer(node);
    }

    /// Makes [`Simulator::step`] stop at this time, as if something had happened to the Node: to give it work then.
    pub fn wake_at(&mut self, at: Time, node: usize) {
        self.schedule(at.max(self.now), Event::Wake(node));
    }

    /// Goes to the next event; the Node that it happened to, or `None` when nothing more will happen.
    pub fn step(&mut self) -> Option<usize> {
        loop {
            let Reverse((at, _, event)) = self.queue.pop()?;
            debug_assert!(at >= self.now, "time runs forward");
            match event {
                Event::Free(link) => {
                    self.now = at;
                    self.links[link].finish();
                    let node = self.links[link].from.node;
                    self.touch(node);
                    return Some(node);
                }
                Event::Arrive(link) => {
                    if self.links[link].next_arrival != Some(at) {
                        continue; // an earlier one took its place
                    }
                    self.now = at;
                    return Some(self.arrive(link));
                }
                Event::Wake(node) => {
                    self.now = at;
                    return Some(node);
                }
                Event::Timer(node) => {
                    if self.timers[node] != Some(at) {
                        continue; // an earlier one took its place
                    }
                    self.now = at;
                    self.timers[node] = None;
                    self.digest.word(at.0 ^ (node as u64) << 60);
                    self.nodes[node].handle_timeout(at.instant());
                    self.touch(node);
                    return Some(node);
                }
            }
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, event)));
    }

    /// Asks the Node for a frame, now that the serialiser is idle; whether there was one.
    fn pump(&mut self, index: usize) -> bool {
        let from = self.links[index].from;
        let Some(room) = self.frames.begin() else { return false }; // as many as are asked for
        let mut tx = TxFrame::new(self.frames.room(room));
        if !self.nodes[from.node].poll_transmit(self.now.instant(), from.port, &mut tx) {
            self.frames.end(room, 0);
            return false;
        }
        let wire_len = tx.wire_len();
        let (frame, _) = tx.segments();
        let len = frame.len();
        self.digest.word(self.now.0);
        self.digest.word(wire_len as u64 ^ (index as u64) << 32);
        // All headers, and the end: in a whole frame that is its ICRC.
        self.digest.bytes(&frame[..len.min(96)]);
        self.digest.bytes(&frame[len.saturating_sub(8)..]);
        let link = &mut self.links[index];
        let mut fate = link.line.judge(self.now.instant(), frame);
        if let Some(tap) = &mut self.tap {
            tap(SentFrame { at: self.now, link: index, frame, wire_len, fate });
        }
        if matches!(fate, Fate::Corrupt(_)) && wire_len != len {
            // Without payload there is no ICRC to find the damage, so the receiver's verdict is anticipated.
            fate = Fate::Drop;
        }
        let left = self.now.after_ps(link.serialise(wire_len as u64));
        let frames = &mut self.frames;
        if let Some(frame) = frames.end(room, len) {
            let copy = if fate == Fate::Duplicate { frames.copy(frame) } else { None };
            link.line.carry(left, fate, wire_len as u64, frame, copy, |lost| frames.give_back(lost));
        }
        self.follow_arrivals(index);
        self.schedule(left, Event::Free(index));
        true
    }

    /// Delivers the next frame of a link.
    fn arrive(&mut self, index: usize) -> usize {
        let link = &mut self.links[index];
        let to = link.to;
        link.next_arrival = None;
        let Some((frame, change)) = link.line.poll(self.now) else { return to.node };
        let bytes = self.frames.bytes(frame);
        link.line.apply(change, bytes);
        self.digest.word(self.now.0 ^ (index as u64 + 1) << 56);
        self.nodes[to.node].handle_frame(self.now.instant(), to.port, bytes);
        self.frames.give_back(frame);
        self.follow_arrivals(index);
        self.touch(to.node);
        to.node
    }

    /// Makes sure that the link's next arrival is in the queue.
    #[inline]
    fn follow_arrivals(&mut self, index: usize) {
        let link = &mut self.links[index];
        let Some(at) = link.line.next_due() else { return };
        if link.next_arrival.is_none_or(|t| at < t) {
            link.next_arrival = Some(at);
            self.schedule(at, Event::Arrive(index));
        }
    }

    /// Makes sure that the Node's timer is in the queue.
    #[inline]
    fn follow_timer(&mut self, node: usize) {
        let Some(at) = self.nodes[node].poll_timeout() else { return };
        let at = Time::from_instant(at).max(self.now);
        if self.timers[node].is_none_or(|t| at < t) {
            self.timers[node] = Some(at);
            self.schedule(at, Event::Timer(node));
        }
    }
}
