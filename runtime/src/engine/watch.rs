//! An engine's own thread. It either runs the engine all the time, or watches and takes over when no program makes progress.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use softnic_sync::takeover::Sleep;

use super::priority::Priority;
use super::{Core, Engine};
use crate::io::sleep_on;
use crate::threads::spawn_own;

/// How long the engine may go without progress before the watching thread takes over.
const PATIENCE: Duration = Duration::from_micros(200);
/// How long a running thread looks for work before it sleeps.
const BUSY: Duration = Duration::from_micros(50);
/// How long a thread with a core of its own, asked to run all the time, looks for work before it sleeps.
const DEDICATED_BUSY: Duration = Duration::from_millis(20);
/// How long a watching thread looks for work without yielding its core, because a program may already have seen the incoming data in its
/// memory.
const SPIN: Duration = Duration::from_micros(2);
/// Number of busy rounds that a watching thread makes in the real-time class before it leaves that class.
const RAISED_ROUNDS: u32 = 16;
/// Number of naps after which the recorded frames are written out.
const NAPS_TO_FLUSH: u32 = 64;
/// How often a thread yields its core to a thread that waits for the engine, before it sleeps instead.
const YIELDS: u32 = 16;
/// How long a thread sleeps at a time to free the engine or, in the real-time class, the core for a waiting thread.
const GIVE_WAY: Duration = Duration::from_micros(20);
/// How soon to look again where no notification arrives when room becomes free.
pub(super) const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Which thread runs an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The program threads while they poll; the engine's own thread takes over when no program polls.
    Inline,
    /// The engine's own thread.
    Dedicated,
}

/// The handle of an engine's own thread. Dropping it ends the thread.
pub(crate) struct Watcher {
    engine: Arc<Engine>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start(engine: &Arc<Engine>, mode: Mode, name: String, cpu: Option<usize>) -> io::Result<Watcher> {
        let watched = Arc::clone(engine);
        let body = move || {
            if let Some(cpu) = cpu {
                core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
            }
            match mode {
                Mode::Inline => watched.watch(),
                Mode::Dedicated => watched.run_alone(),
            }
        };
        let thread = spawn_own(name, body)?;
        Ok(Watcher { engine: Arc::clone(engine), thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.engine.stop.store(true, Ordering::Release);
        self.engine.wake.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Engine {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Watches the engine, and runs it while no program does and there is work.
    fn watch(&self) {
        let mut seen = self.takeover.rounds();
        let mut naps = 0u32;
        let mut priority = Priority::ordinary();
        priority.raise();
        while !self.stopped() {
            let rounds = self.takeover.rounds();
            if rounds != seen && !self.is_asked() {
                // A program makes progress. That program handles incoming frames, so this nap does not wait for frames.
                seen = rounds;
                self.nap(PATIENCE, false);
                naps = naps.wrapping_add(1);
                // A program that polls all the time does not write out the recording.
                if naps.is_multiple_of(NAPS_TO_FLUSH)
                    && let Some(mut core) = self.takeover.try_take()
                {
                    self.flush_recording(&mut core);
                }
                continue;
            }
            let (sleep, frames) = match self.run_while_busy(BUSY, Some(&mut priority)) {
                Some(sleep) => (sleep, true),
                // The engine is left to the programs that poll, as long as they continue.
                None => (PATIENCE, false),
            };
            seen = self.takeover.rounds();
            priority.raise();
            self.nap(sleep, frames);
        }
    }

    /// Runs the engine all the time, and sleeps after a long time without work.
    fn run_alone(&self) {
        while !self.stopped() {
            if let Some(sleep) = self.run_while_busy(DEDICATED_BUSY, None) {
                self.nap(sleep, true);
            }
        }
    }

    /// Whether a program sleeps until a completion comes.
    fn is_asked(&self) -> bool {
        self.sleeping_programs.load(Ordering::Acquire) > 0
    }

    /// Runs the engine until there has been no work for `patience`; returns how long to sleep. Returns `None` when the program polls by
    /// itself.
    ///
    /// `watching` is the priority of a watching thread, which runs the engine for a program that does not poll.
    fn run_while_busy(&self, patience: Duration, mut watching: Option<&mut Priority>) -> Option<Duration> {
        let alone = watching.is_none();
        let mut busy_rounds = 0u32;
        // In the real-time class no other thread gets this core, however often this thread yields. If the program that rings runs on the
        // same core, the program has to wait.
        let is_in_the_way = watching.as_ref().is_some_and(|priority| priority.is_raised()) && self.wake.was_from_here();
        let patience = if is_in_the_way { SPIN } else { patience };
        let mut core = self.control();
        self.takeover.begin();
        let mut idle_since: Option<Instant> = None;
        loop {
            if self.progress(&mut core) {
                idle_since = None;
                busy_rounds = busy_rounds.saturating_add(1);
                if busy_rounds == RAISED_ROUNDS
                    && let Some(priority) = &mut watching
                {
                    priority.lower();
                }
            } else {
                let idle = idle_since.get_or_insert_with(Instant::now).elapsed();
                if idle >= patience {
                    // The program may post more, or poll, which makes progress. So after work this thread sleeps briefly, and the program
                    // need not wake it at once.
                    let gives_way = is_in_the_way && busy_rounds > 0;
                    return Some(if gives_way { GIVE_WAY } else { self.may_sleep(&mut core) });
                }
                // The thread that this one waits for may be waiting for this very core. A program that polls by itself also needs the
                // engine to be free.
                if !alone && idle >= SPIN {
                    let rounds = self.takeover.rounds();
                    drop(core);
                    std::thread::yield_now();
                    if rounds != self.takeover.rounds() && !self.is_asked() {
                        return None;
                    }
                    core = self.takeover.take();
                } else if idle >= BUSY {
                    std::thread::yield_now();
                }
            }
            if self.stopped() || !alone && !self.is_asked() && self.takeover.is_tried() {
                return None;
            }
            if self.takeover.is_wanted() {
                drop(core);
                self.let_others();
                core = self.takeover.take();
            }
        }
    }

    /// Gives the engine to the threads that wait for it.
    fn let_others(&self) {
        for _ in 0..YIELDS {
            if !self.takeover.is_wanted() {
                return;
            }
            std::thread::yield_now();
        }
        // Yielding in the real-time class does not give the core to an ordinary thread: this thread must sleep.
        while self.takeover.is_wanted() {
            std::thread::sleep(GIVE_WAY);
        }
    }

    /// How long to sleep if there is no work at all; 0 if there is some.
    fn may_sleep(&self, core: &mut Core) -> Duration {
        self.flush_recording(core);
        let mut due = Duration::ZERO;
        let nothing_to_do = |core: &mut Core| {
            // A stop request before this point woke a thread that did not sleep yet, so the flag is checked here.
            let nothing = core.driver.prepare_sleep() && self.doorbells.is_empty() && !self.stopped();
            // Without a wire, timers have no effect.
            due = if self.failure.get().is_some() { None } else { core.due_in() }.unwrap_or(Duration::MAX);
            match core.driver.next_timeout() {
                _ if !nothing || due.is_zero() => Sleep::No,
                Some(at) => Sleep::Until(at.as_nanos()),
                None => Sleep::UntilWoken,
            }
        };
        if self.takeover.may_sleep(core, &self.wake, nothing_to_do) { due } else { Duration::ZERO }
    }

    /// Sleeps for at most `limit`, until the engine is woken or, with `frames`, until a frame arrives.
    fn nap(&self, limit: Duration, frames: bool) {
        if limit.is_zero() {
            return;
        }
        let wires = (frames && self.failure.get().is_none()).then(|| self.readiness.poll_fds());
        let fds = [PollFd::new(&self.wake, PollFlags::IN)].into_iter().chain(wires.into_iter().flatten());
        // The result is not needed: every caller looks for work afterwards.
        let _ = sleep_on(fds, limit);
        self.takeover.slept(&self.wake);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use softnic_nic::transports::qp::PayloadMode;
    use softnic_nic::{Nic, NicConfig, Owner, Port};
    use softnic_shift::DualNic;
    use softnic_wire::{MacAddr, PathMtu};

    use super::*;
    use crate::api::events::Events;
    use crate::driver::Driver;
    use crate::engine::Io;
    use crate::io::PacketIo;
    use crate::neighbours::Neighbours;
    use crate::{MemoryWire, OsRandom};

    /// Whether the engine's own thread was woken.
    fn is_woken(engine: &Engine) -> bool {
        let woken = sleep_on([PollFd::new(&engine.wake, PollFlags::IN)], Duration::ZERO).unwrap();
        woken[0].revents().contains(PollFlags::IN)
    }

    fn engine() -> (Engine, MemoryWire) {
        let (wire, peer) = MemoryWire::pair().unwrap();
        let addresses = vec![Ipv4Addr::new(10, 0, 0, 1).into()];
        let port = Port { mac: MacAddr([2; 6]), addresses, mtu: PathMtu::B1024 };
        let config = NicConfig { port: port.clone(), payload: PayloadMode::Real };
        let nic = Nic::new(config, Box::new(OsRandom::new().unwrap()));
        let driver = Driver::new(DualNic::single(nic), Box::new(wire) as Io, Neighbours::new(&port));
        (Engine::new(driver, Owner::default(), Arc::new(Events::new(None).unwrap()), None).unwrap(), peer)
    }

    /// The scheduling class of a thread, read from its folder in /proc.
    fn policy(thread: &std::path::Path) -> String {
        let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
        // The 41st field; the second is a name in parentheses.
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().into()
    }

    /// The scheduling class of an engine's own thread.
    fn policy_of(mode: Mode, name: &str) -> String {
        let watcher = Watcher::start(&Arc::new(engine().0), mode, name.into(), None).unwrap();
        // The thread's name and class are set before its first nap.
        while watcher.engine.takeover.sleeps_until() == 0 {
            std::thread::yield_now();
        }
        policy(&thread_named(name))
    }

    /// The folder in /proc of a thread of this process.
    fn thread_named(name: &str) -> std::path::PathBuf {
        let mut threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
        let is_it = |thread: &std::path::PathBuf| {
            std::fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        threads.find(is_it).unwrap()
    }

    #[test]
    fn a_thread_that_watches_runs_in_real_time_where_that_is_permitted() {
        let raised = std::thread::spawn(|| {
            Priority::ordinary().raise();
            policy("/proc/thread-self".as_ref())
        });
        assert_eq!(policy_of(Mode::Inline, "test-inline"), raised.join().unwrap());
        assert_eq!(policy_of(Mode::Dedicated, "test-dedicated"), "0", "it looks for work for long");
    }

    #[test]
    fn a_thread_that_took_over_leaves_real_time_while_work_does_not_end() {
        let (engine, mut wire) = engine();
        let engine = Arc::new(engine);
        let watcher = Watcher::start(&engine, Mode::Inline, "test-busy".into(), None).unwrap();
        let class = || policy(&thread_named("test-busy"));
        while engine.takeover.sleeps_until() == 0 {
            std::thread::yield_now();
        }
        let asleep = class();
        // These frames are addressed to no queue pair, but they are still work.
        let mut junk = |tx: &mut softnic_wire::TxFrame<'_>| tx.put_frame(&[0; 60]).is_ok();
        while class() != "0" {
            wire.transmit(32, &mut junk).unwrap();
        }
        // When the frames stop, the thread sleeps again as before.
        while class() != asleep {
            std::thread::yield_now();
        }
        drop(watcher);
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_for_a_timer_that_a_program_began_meanwhile() {
        let (engine, _wire) = engine();
        let peer = IpAddr::from([10, 0, 0, 2]);
        let mut core = engine.control();
        assert_eq!(engine.may_sleep(&mut core), Duration::MAX, "there is no timer");
        drop(core);
        engine.try_progress();
        assert!(!is_woken(&engine), "a round that began none");
        // The program thread: it starts a timer, and makes a round.
        engine.control().driver.mac_of(peer).unwrap();
        engine.try_progress();
        assert!(is_woken(&engine));
        // The thread looks for work, and sleeps until the timer ends.
        engine.nap(Duration::from_nanos(1), false);
        engine.wake.drain();
        let mut core = engine.control();
        assert!(engine.may_sleep(&mut core) <= Duration::from_secs(1));
        drop(core);
        engine.try_progress();
        assert!(!is_woken(&engine), "it wakes by itself in time");
    }

    #[test]
    fn a_thread_does_not_sleep_for_long_on_frames_that_wait_for_room() {
        let (engine, mut wire) = engine();
        let mut core = engine.control();
        let mut junk = |tx: &mut softnic_wire::TxFrame<'_>| tx.put_frame(&[0; 60]).is_ok();
        while core.driver.io_mut().transmit(1, &mut junk).unwrap() > 0 {}
        // The resolution starts a timer, and its request finds no room.
        core.driver.mac_of([10, 0, 0, 2].into()).unwrap();
        engine.progress(&mut core);
        assert_eq!(engine.may_sleep(&mut core), LOOK_AGAIN, "nobody tells that there is room");
        while wire.receive(1, &mut |_| ()).unwrap() > 0 {}
        core.driver.refresh();
        engine.progress(&mut core);
        assert!(engine.may_sleep(&mut core) > LOOK_AGAIN, "it has left");
    }
}
