//! The thread of a switch: frames in, frames out, what others ask for, and asleep when there is nothing to do.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use rustix::event::{PollFd, PollFlags};
use softnic_switch::{NextHop, Switch, SwitchConfig};
use softnic_wire::Instant;

use super::handle::{Command, PAGE, Shared};
use super::recorder::Recorder;
use super::report::Report;
use super::resolver::Resolver;
use super::seat::{Seat, Way};
use super::{Options, SwitchError};
use crate::io::sleep_on;
use crate::neighbours::link_local;
use crate::port::{HEADERS, Port, RETRY, Rest, WAKE_EARLY};
use crate::random::{Generator, OsRandom};

/// How often counters are shown, and the interfaces are looked at.
const SHOW: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_secs(1);
/// Groups that are shown while it runs.
const SHOWN_GROUPS: usize = 64;
/// Frames that wait before a port, at most: one that is slow, or down, has no more of the memory than its share, which is taken as frames come.
const FRAMES_OF_PORT: usize = 1 << 14;

/// Everything that moves frames.
pub(super) struct Worker {
    switch: Switch,
    seats: Vec<Seat>,
    resolver: Resolver,
    recorder: Option<Recorder>,
    readiness: Vec<OwnedFd>,
    shared: Arc<Shared>,
    start: Clock,
    shown: Clock,
    looked: Clock,
}

impl Worker {
    /// Opens all interfaces, and fills the tables.
    pub(super) fn open(options: &Options, shared: &Arc<Shared>) -> Result<Worker, SwitchError> {
        // What makes no sense is told before an interface is touched.
        for (i, spec) in options.groups.iter().enumerate() {
            spec.check().map_err(|error| SwitchError::Group { number: i + 1, error })?;
        }
        let seats = options.ports.iter().enumerate().map(|(i, port)| Seat::open(i, port));
        let seats = seats.collect::<Result<Vec<_>, _>>()?;
        let recorder = options.pcap.clone().map(|path| Recorder::new(path, &options.ports)).transpose()?;
        let ports = || seats.iter().filter_map(Seat::port);
        let longest = ports().map(|port| port.mtu).max().unwrap_or(0) + HEADERS;
        let mac = options.mac.or_else(|| ports().next().map(|port| port.device.mac)).unwrap_or_default();
        let mut switch = Switch::new(SwitchConfig {
            mac,
            max_frame: longest,
            max_frames: FRAMES_OF_PORT * seats.len(),
            elided: false,
            // Switches in a row must not all choose alike among equal routes.
            seed: options.seed ^ mac.0.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) << 16,
        });
        let mut random = OsRandom::new().map_err(|error| SwitchError::System { doing: "draw a number", error })?;
        switch.hide_hashes(u64::from(random.next_u32()) << 32 | u64::from(random.next_u32()));
        for port in &options.ports {
            let port = switch.add_port(port.policy);
            switch.set_most_frames(port, FRAMES_OF_PORT);
        }
        for &(mac, port) in &options.macs {
            switch.add_mac(mac, port);
        }
        for subnet in &options.addresses {
            switch.set_route(*subnet, vec![NextHop::Direct]);
        }
        for (prefix, next_hops) in &options.routes {
            switch.set_route(*prefix, next_hops.clone());
        }
        for (i, spec) in options.groups.iter().enumerate() {
            switch.add_group(spec.clone()).map_err(|error| SwitchError::Group { number: i + 1, error })?;
        }
        let mut own: Vec<_> = options.own().collect();
        if own.iter().any(|address| address.is_ipv6()) {
            own.push(link_local(mac).into());
        }
        let start = Clock::now();
        let mut worker = Worker {
            switch,
            seats,
            resolver: Resolver::new(mac, own),
            recorder,
            readiness: Vec::new(),
            shared: Arc::clone(shared),
            start,
            shown: start,
            looked: start,
        };
        worker.find_readiness();
        worker.shared.show(worker.report(SHOWN_GROUPS));
        Ok(worker)
    }

    /// All interfaces and how they are used.
    pub(super) fn description(&self) -> String {
        self.seats.iter().filter_map(Seat::port).map(Port::description).collect::<Vec<_>>().join(", ")
    }

    /// Moves frames until it is told to stop.
    pub(super) fn run(mut self) -> Result<Report, SwitchError> {
        let mut idle_since: Option<Clock> = None;
        let ended = loop {
            if self.shared.is_stopped() {
                break Ok(());
            }
            let now = Clock::now();
            let moved = self.turn(now);
            if let Err(e) = self.chores(now) {
                break Err(e);
            }
            if moved {
                idle_since = None;
                continue;
            }
            let idle = now - *idle_since.get_or_insert(now);
            match Rest::after(idle, self.due_in(now)) {
                Rest::No => {}
                Rest::Yield => std::thread::yield_now(),
                Rest::Sleep(limit) => self.sleep(limit),
            }
        };
        let report = self.report(usize::MAX);
        self.shared.show(report.clone());
        let recorded = self.recorder.take().map_or(Ok(()), Recorder::finish);
        ended.and(recorded).map(|()| report)
    }

    fn time(&self, now: Clock) -> Instant {
        Instant::ZERO + (now - self.start)
    }

    /// One turn: a batch from each port, and what then waits before each. Says whether there was anything to move.
    fn turn(&mut self, now: Clock) -> bool {
        let time = self.time(now);
        let Worker { switch, seats, resolver, recorder, .. } = self;
        let mut way = Way { now: time, switch, resolver, recorder };
        let (mut moved, mut failed) = (false, None);
        for (i, seat) in seats.iter_mut().enumerate() {
            seat.rest(time, way.switch);
            match seat.receive(&mut way) {
                Ok(frames) => moved |= frames > 0,
                Err(error) => failed = Some((i, error)),
            }
        }
        moved |= way.resolver.turn(time, way.switch);
        for (i, seat) in seats.iter_mut().enumerate() {
            match seat.transmit(&mut way) {
                Ok(frames) => moved |= frames > 0,
                Err(error) => failed = Some((i, error)),
            }
        }
        // If there are several, the others fail again.
        if let Some((i, error)) = failed {
            self.shared.notice(self.seats[i].fail(&error));
            self.find_readiness();
        }
        moved
    }

    /// What is to be done now and then.
    fn chores(&mut self, now: Clock) -> Result<(), SwitchError> {
        if self.shared.is_asked()
            && let Some(command) = self.shared.take_command()
        {
            self.obey(now, command);
        }
        if now - self.shown >= SHOW {
            self.shared.show(self.report(SHOWN_GROUPS));
            self.shown = now;
        }
        if now - self.looked >= LOOK {
            let notices: Vec<String> = self.seats.iter_mut().filter_map(Seat::look).collect();
            if !notices.is_empty() {
                self.find_readiness();
            }
            notices.into_iter().for_each(|notice| self.shared.notice(notice));
            self.recorder.as_mut().map_or(Ok(()), Recorder::check)?;
            self.looked = now;
        }
        Ok(())
    }

    /// Whoever asked may not wait any more.
    fn obey(&mut self, now: Clock, command: Command) {
        match command {
            Command::Add(spec, answer) => {
                let _ = answer.try_send(self.switch.add_group(*spec));
            }
            Command::Remove(sender, mc_id, answer) => {
                let _ = answer.try_send(self.switch.remove_group(sender, mc_id));
            }
            Command::Groups(from, answer) => {
                let _ = answer.try_send(self.switch.groups_page(self.time(now), from, PAGE));
            }
        }
    }

    /// After what time there is something to do although nothing comes in.
    fn due_in(&mut self, now: Clock) -> Duration {
        let time = self.time(now);
        let (mut due, mut stuck) = (self.resolver.next(), false);
        for seat in &mut self.seats {
            // What is due there finds no room: it is tried again, and not at once.
            let is_stuck = seat.is_stuck();
            stuck |= is_stuck;
            due = due.into_iter().chain(seat.due(&self.switch).filter(|_| !is_stuck)).min();
        }
        let due = due.map_or(SHOW, |at| at.saturating_since(time));
        due.min(if stuck { WAKE_EARLY + RETRY } else { SHOW })
    }

    fn sleep(&mut self, limit: Duration) {
        self.shared.wake.prepare_sleep();
        if self.shared.is_asked() || self.shared.is_stopped() {
            return;
        }
        let ports = self.readiness.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
        // Whoever calls this looks at everything. A socket whose interface is gone is ready at once and for ever.
        let fds = sleep_on(ports.chain([PollFd::new(&self.shared.wake, PollFlags::IN)]), limit);
        let broken =
            fds.iter().flatten().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL));
        if broken {
            self.looked = self.start;
            std::thread::sleep(RETRY);
        }
        self.shared.wake.drain();
    }

    /// Descriptors that can be read from when frames have come in. Where the system has none left, frames wait for the
    /// next look.
    fn find_readiness(&mut self) {
        let ports = self.seats.iter().filter_map(Seat::port);
        self.readiness = ports.flat_map(|port| port.readiness().unwrap_or_default()).collect();
    }

    fn report(&self, groups: usize) -> Report {
        let elapsed = self.start.elapsed();
        Report {
            elapsed,
            ports: self.seats.iter().map(|seat| seat.report(&self.switch)).collect(),
            counters: self.switch.counters(),
            fill: self.switch.fill(),
            neighbours: self.resolver.known(),
            groups: self.switch.groups(Instant::ZERO + elapsed).take(groups).collect(),
        }
    }
}
