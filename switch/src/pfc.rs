//! Priority-based flow control (IEEE 802.1Qbb): what came in at a port and has not left is counted by priority, however many copies of it
//! wait, and the port's peer is paused before there is no room for more (MC-RDMA §IV-D).

use std::time::Duration;

use softnic_wire::pause::{self, PRIORITIES, QUANTUM_BITS};
use softnic_wire::{Instant, MacAddr};

/// The longest pause that a frame can ask for, in quanta.
const LONGEST: u16 = u16::MAX;

/// Flow control of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PfcConfig {
    /// Bytes of a priority that came in here: above this its sender is paused.
    pub xoff: u64,
    /// At or below this it may go on.
    pub xon: u64,
    /// Bytes above `xoff` for what comes until the pause is obeyed; what does not fit there is dropped.
    pub headroom: u64,
    /// Bits a second of the link: pauses are told in times of 512 of them.
    pub rate: u64,
}

/// What flow control did at a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PfcStats {
    /// Pause frames that left, those that end a pause among them.
    pub pauses_sent: u64,
    /// Pause frames that came.
    pub pauses_received: u64,
    /// The most bytes of a priority that came in here and had not left.
    pub max_held: u64,
    /// Frames that found no headroom.
    pub overflowed: u64,
}

/// What the other end of a link has paused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Paused {
    until: [Option<Instant>; PRIORITIES],
}

impl Paused {
    /// A pause frame came in at a link of this rate; whether it was one.
    pub fn hear(&mut self, now: Instant, frame: &[u8], rate: u64) -> bool {
        let Ok(pause) = pause::Repr::parse(frame) else { return false };
        for (until, quanta) in self.until.iter_mut().zip(pause.times) {
            match quanta {
                None => {}
                Some(0) => *until = None,
                Some(quanta) => *until = Some(now + pause_time(quanta, rate)),
            }
        }
        true
    }

    /// Whether a priority must wait.
    #[inline]
    pub fn is_paused(&self, now: Instant, priority: usize) -> bool {
        self.until.get(priority).is_some_and(|until| until.is_some_and(|until| now < until))
    }

    /// When the next pause ends by itself.
    pub fn next_end(&self) -> Option<Instant> {
        self.until.iter().flatten().min().copied()
    }

    /// Forgets pauses that are over.
    pub fn expire(&mut self, now: Instant) {
        self.until.iter_mut().filter(|until| until.is_some_and(|until| until <= now)).for_each(|until| *until = None);
    }
}

fn pause_time(quanta: u16, rate: u64) -> Duration {
    let bits = u128::from(quanta) * u128::from(QUANTUM_BITS);
    let ns = (bits * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Says of a frame that waits whose it is: what it counts for, and its priority.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag {
    /// [`NO_TICKET`] where nothing is counted.
    ticket: u32,
    pub(crate) priority: u8,
}

/// A number, where an `Option` would be stored in pieces for each copy and loaded whole, which waits.
const NO_TICKET: u32 = u32::MAX;

/// A frame that came in, and how many copies of it wait.
#[derive(Debug, Clone, Copy)]
struct Ticket {
    port: usize,
    priority: u8,
    bytes: u64,
    copies: u32,
}

#[derive(Debug)]
struct PortPfc {
    config: PfcConfig,
    held: [u64; PRIORITIES],
    /// Priorities that the peer was told, or is to be told, to stop.
    off: [bool; PRIORITIES],
    /// Of which the peer is to be told.
    to_tell: [bool; PRIORITIES],
    /// When pauses must be told again, lest they end by themselves.
    again_at: Option<Instant>,
    paused: Paused,
    stats: PfcStats,
}

/// Flow control of a switch; without any port it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Pfc {
    ports: Vec<Option<PortPfc>>,
    tickets: Vec<Ticket>,
    free: Vec<u32>,
    current: Option<Tag>,
}

impl Pfc {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.ports.is_empty()
    }

    pub(crate) fn set(&mut self, port: usize, config: PfcConfig) {
        if self.ports.len() <= port {
            self.ports.resize_with(port + 1, || None);
        }
        let nothing = [false; PRIORITIES];
        let (paused, stats) = (Paused::default(), PfcStats::default());
        let held = [0; PRIORITIES];
        self.ports[port] =
            Some(PortPfc { config, held, off: nothing, to_tell: nothing, again_at: None, paused, stats });
    }

    fn port(&mut self, port: usize) -> Option<&mut PortPfc> {
        self.ports.get_mut(port)?.as_mut()
    }

    pub(crate) fn stats(&self, port: usize) -> PfcStats {
        self.ports.get(port).and_then(Option::as_ref).map_or_else(PfcStats::default, |p| p.stats)
    }

    /// A frame comes in; whether there is room for it. [`Pfc::end`] follows when all its copies wait.
    pub(crate) fn begin(&mut self, port: usize, frame: &[u8], bytes: usize) -> bool {
        let (priority, bytes) = (pause::priority(frame), bytes as u64);
        let Some(p) = self.port(port) else { return true };
        if p.held[priority] + bytes > p.config.xoff.saturating_add(p.config.headroom) {
            p.stats.overflowed += 1;
            return false;
        }
        p.held[priority] += bytes;
        p.stats.max_held = p.stats.max_held.max(p.held[priority]);
        if p.held[priority] > p.config.xoff && !p.off[priority] {
            (p.off[priority], p.to_tell[priority]) = (true, true);
        }
        let ticket = Ticket { port, priority: priority as u8, bytes, copies: 0 };
        let place = match self.free.pop() {
            Some(place) => {
                self.tickets[place as usize] = ticket;
                place
            }
            None => {
                self.tickets.push(ticket);
                self.tickets.len() as u32 - 1
            }
        };
        self.current = Some(Tag { ticket: place, priority: priority as u8 });
        true
    }

    /// A copy of the frame that came in waits.
    #[inline]
    pub(crate) fn tag(&mut self) -> Tag {
        let Some(tag) = self.current else { return Tag { ticket: NO_TICKET, priority: 0 } };
        self.tickets[tag.ticket as usize].copies += 1;
        tag
    }

    /// All copies of the frame that came in wait: without any, it is gone.
    pub(crate) fn end(&mut self) {
        if let Some(Tag { ticket, .. }) = self.current.take()
            && self.tickets[ticket as usize].copies == 0
        {
            self.release(ticket);
        }
    }

    /// A copy has left, or is dropped after all.
    #[inline]
    pub(crate) fn left(&mut self, tag: Tag) {
        if tag.ticket == NO_TICKET {
            return;
        }
        let copies = &mut self.tickets[tag.ticket as usize].copies;
        *copies -= 1;
        if *copies == 0 {
            self.release(tag.ticket);
        }
    }

    fn release(&mut self, place: u32) {
        let Ticket { port, priority, bytes, .. } = self.tickets[place as usize];
        self.free.push(place);
        let Some(p) = self.port(port) else { return };
        let priority = usize::from(priority);
        p.held[priority] -= bytes;
        if p.held[priority] <= p.config.xon && p.off[priority] {
            (p.off[priority], p.to_tell[priority]) = (false, true);
        }
    }

    /// A MAC control frame came in.
    pub(crate) fn hear(&mut self, now: Instant, port: usize, frame: &[u8]) {
        if let Some(p) = self.port(port) {
            p.stats.pauses_received += u64::from(p.paused.hear(now, frame, p.config.rate));
        }
    }

    /// The pause frame that a port has to send, before all else.
    pub(crate) fn pause_frame(&mut self, now: Instant, port: usize, src: MacAddr) -> Option<[u8; pause::LEN]> {
        let p = self.port(port).filter(|p| p.to_tell.contains(&true))?;
        let mut times = [None; PRIORITIES];
        let tell = std::mem::take(&mut p.to_tell).into_iter().zip(p.off);
        for (time, (told, off)) in times.iter_mut().zip(tell) {
            *time = told.then_some(if off { LONGEST } else { 0 });
        }
        if times.contains(&Some(LONGEST)) {
            let again = now + pause_time(LONGEST / 2, p.config.rate);
            p.again_at = Some(p.again_at.map_or(again, |at| at.min(again)));
        }
        p.stats.pauses_sent += 1;
        Some(pause::Repr { src, times }.emit())
    }

    /// Which priorities a port must not send now, a bit for each.
    #[inline]
    pub(crate) fn paused(&self, now: Instant, port: usize) -> u8 {
        let Some(Some(p)) = self.ports.get(port) else { return 0 };
        (0..PRIORITIES).fold(0, |mask, n| mask | u8::from(p.paused.is_paused(now, n)) << n)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let of_port = |p: &PortPfc| [p.again_at, p.paused.next_end()].into_iter().flatten().min();
        self.ports.iter().flatten().filter_map(of_port).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for p in self.ports.iter_mut().flatten() {
            p.paused.expire(now);
            if p.again_at.is_some_and(|at| at <= now) {
                p.again_at = None;
                p.to_tell.iter_mut().zip(p.off).for_each(|(tell, off)| *tell |= off);
            }
        }
    }
}
