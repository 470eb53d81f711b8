//! Following a port with a stack of its own: its line, neighbours that move, and addresses that somebody else has.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::follow::{LOOK, peers, redirect_all, set_link};
use crate::api::events::Events;
use crate::api::link_down::LinkDown;
use crate::background::{Background, Stop};
use crate::engine::Engine;
use crate::failover::list::LineSink;
use crate::io::Line;
use crate::neighbours::Conflict;

/// How often the stack is told which neighbours are in use: RoCE packets pass by it.
const REFRESH: Duration = Duration::from_secs(5);
/// Addresses of which it is said that somebody else has them, once each.
const MAX_SAID: usize = 64;

/// A port, and what is known of it.
pub(super) struct Port {
    pub(super) engines: Vec<Arc<Engine>>,
    pub(super) events: Arc<Events>,
    pub(super) link_down: LinkDown,
    /// Its number at the engines.
    pub(super) number: usize,
    /// Who is told what people should know; stderr where there is nobody.
    pub(super) say: Option<LineSink>,
}

/// Starts the thread that follows a port, and its line if that must be asked.
pub(super) fn start(port: Port, mut line: Option<Box<dyn Line>>) -> io::Result<Background> {
    let up = line.as_mut().is_none_or(|line| line.look());
    if line.is_some() {
        port.set_link(up);
    }
    port.announce();
    let news = port.news();
    let follower = Follower { port, line, up, news, refresh: Instant::now() + REFRESH, said: BTreeSet::new() };
    Background::start("softnic-line", move |stop| follower.run(stop))
}

impl Port {
    fn set_link(&self, up: bool) {
        set_link(&self.engines, &self.events, self.link_down, self.number, up);
    }

    /// What is no RoCE comes to the first engine, and leaves there.
    fn first(&self) -> Option<&Arc<Engine>> {
        self.engines.first().filter(|engine| engine.failure().is_none())
    }

    /// Tells the others of its addresses: they may know older MAC addresses.
    fn announce(&self) {
        if let Some(engine) = self.first() {
            let mut core = engine.control();
            let now = core.driver.now();
            core.driver.stack(self.number).into_iter().for_each(|stack| stack.neighbours().announce(now));
            drop(core);
            engine.wake();
        }
    }

    fn news(&self) -> Arc<AtomicBool> {
        let stack =
            |engine: &Arc<Engine>| engine.control().driver.stack(self.number).map(|stack| Arc::clone(stack.news()));
        self.first().and_then(stack).unwrap_or_default()
    }

    /// Neighbours in use are asked now and then whether they are still there, by the stack.
    fn keep_fresh(&self) {
        let peers = peers(&self.engines, self.number);
        if let Some(engine) = self.first().filter(|_| !peers.is_empty()) {
            let mut core = engine.control();
            for peer in peers {
                // One that does not answer is asked for anew the next time.
                let _ = core.driver.mac_of_at(self.number, peer);
            }
            drop(core);
            engine.wake();
        }
    }

    /// Queue pairs learn of neighbours that moved; the conflicts of addresses.
    fn take_news(&self) -> Vec<Conflict> {
        let Some(engine) = self.first() else { return Vec::new() };
        let mut core = engine.control();
        let Some(stack) = core.driver.stack(self.number) else { return Vec::new() };
        let neighbours = stack.neighbours();
        let conflicts: Vec<_> = std::iter::from_fn(|| neighbours.poll_conflict()).collect();
        let moved: Vec<_> = std::iter::from_fn(|| neighbours.poll_moved()).collect();
        let links = neighbours.links().clone();
        drop(core);
        if !moved.is_empty() {
            let mac_of = |peer: IpAddr| {
                let next_hop = links.next_hop(peer).ok()?;
                moved.iter().find(|&&(neighbour, _)| neighbour == next_hop).map(|&(_, mac)| mac)
            };
            redirect_all(&self.engines, self.number, mac_of);
        }
        conflicts
    }
}

/// What the thread has.
struct Follower {
    port: Port,
    line: Option<Box<dyn Line>>,
    up: bool,
    news: Arc<AtomicBool>,
    refresh: Instant,
    said: BTreeSet<IpAddr>,
}

impl Follower {
    fn run(mut self, stop: &Stop) {
        while !stop.is_told() {
            self.look_at_line();
            if self.news.swap(false, Ordering::AcqRel) {
                let conflicts = self.port.take_news();
                conflicts.iter().for_each(|conflict| self.tell(conflict));
            }
            if Instant::now() >= self.refresh {
                self.port.keep_fresh();
                self.refresh = Instant::now() + REFRESH;
            }
            stop.wait_on(&[], Some(LOOK));
        }
    }

    fn look_at_line(&mut self) {
        let Some(line) = &mut self.line else { return };
        let up = line.look();
        if up != self.up {
            self.up = up;
            self.port.set_link(up);
            if up {
                self.port.announce();
            }
        }
    }

    /// Somebody else has an address of the port.
    fn tell(&mut self, conflict: &Conflict) {
        if self.said.len() >= MAX_SAID || !self.said.insert(conflict.address) {
            return;
        }
        let line = format!("{conflict}; packets to it may go there: give one of the two another address");
        match &self.port.say {
            Some(lines) => lines.say(&line),
            None => eprintln!("softnic: {line}"),
        }
    }
}

#[cfg(test)]
mod tests;
