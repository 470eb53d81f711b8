//! The loop that moves frames: polled while there are any, asleep when there are none.

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock, SystemTime};

use rustix::event::{PollFd, PollFlags};
use softnic_fault_injector::Direction;
use softnic_pcaps::{LinkType, PcapWriter, Timestamp};
use softnic_wire::Instant;

use super::counters::Counters;
use super::lane::Lane;
use super::{BumpError, Faults, Options, Shared, Summary};
use crate::capture_file;
use crate::io::{PacketIo, sleep_on};
use crate::port::{HEADERS, Port, RETRY, Rest, WAKE_EARLY};

/// Frames moved before the other direction has its turn.
const BATCH: usize = 32;
/// How often counters are shown, and the interfaces are looked at.
const SHOW: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_secs(1);

/// Everything that moves frames, in one thread: a direction's faults are one stream, and frames keep their order.
pub(super) struct Forwarder {
    ports: [Port; 2],
    /// Of the receive queues of each.
    times: [Vec<QueueTimes>; 2],
    lanes: [Lane; 2],
    recorder: Option<Recorder>,
    readiness: Vec<OwnedFd>,
    shared: Arc<Shared>,
    start: Clock,
    shown: Clock,
    looked: Clock,
    seed: u64,
    /// How often the faults were changed.
    changes: u64,
}

/// When frames of a receive queue came.
#[derive(Debug, Clone, Copy, Default)]
struct QueueTimes {
    /// When it was seen empty, if nothing but work came after that: whatever is in it now came later.
    empty_at: Option<Clock>,
    /// Frames of the current batch that go on at once, and since when the oldest of them may have been there.
    batch: Option<(Clock, u64)>,
}

/// The capture: what came in, in both directions.
struct Recorder {
    writer: PcapWriter<BufWriter<File>>,
    path: PathBuf,
    /// The time of day at the loop's origin.
    epoch: u64,
    failure: Option<io::Error>,
}

impl Recorder {
    fn new(path: PathBuf) -> Result<Recorder, BumpError> {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let writer =
            capture_file::create(&path).and_then(|file| PcapWriter::new(BufWriter::new(file), LinkType::Ethernet));
        // A disk that is full is better told of before frames pass.
        match writer.and_then(|mut writer| writer.flush().map(|()| writer)) {
            Ok(writer) => Ok(Recorder { writer, path, epoch, failure: None }),
            Err(error) => Err(BumpError::Capture { path, error }),
        }
    }

    fn write(&mut self, now: Instant, frame: &[u8]) {
        if self.failure.is_none() {
            let time = Timestamp::from_nanos((self.epoch + now.as_nanos()).into());
            self.failure = self.writer.write(time, frame, frame.len() as u32).err();
        }
    }

    fn check(&mut self) -> Result<(), BumpError> {
        match self.failure.take() {
            Some(error) => Err(BumpError::Capture { path: self.path.clone(), error }),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<(), BumpError> {
        self.failure = self.failure.or(self.writer.flush().err());
        self.check()
    }
}

impl Forwarder {
    /// Opens both interfaces.
    pub(super) fn open(options: &Options, shared: &Arc<Shared>) -> Result<Forwarder, BumpError> {
        let ports = [Port::open(&options.a)?, Port::open(&options.b)?];
        let recorder = options.pcap.clone().map(Recorder::new).transpose()?;
        // What is longer than one of the MTUs does not get as far as to be held.
        let longest = ports[0].device.mtu.min(ports[1].device.mtu) + HEADERS;
        let lane = |direction, stream| {
            let seed = seed_of(options.seed, stream, 0);
            Lane::new(&options.faults.spec, direction, seed, options.all_traffic, longest)
        };
        let failed = |error| BumpError::System { doing: "get a descriptor to wait for frames with", error };
        let mut readiness = ports[0].readiness().map_err(failed)?;
        readiness.extend(ports[1].readiness().map_err(failed)?);
        let start = Clock::now();
        let times = ports.each_ref().map(|port| vec![QueueTimes::default(); port.queues.len()]);
        Ok(Forwarder {
            ports,
            times,
            lanes: [lane(Direction::Ab, 0), lane(Direction::Ba, 1)],
            recorder,
            readiness,
            shared: Arc::clone(shared),
            start,
            shown: start,
            looked: start,
            seed: options.seed,
            changes: 0,
        })
    }

    /// Both interfaces and how they are used.
    pub(super) fn description(&self) -> String {
        let [a, b] = &self.ports;
        format!("{} <-> {}", a.description(), b.description())
    }

    /// Moves frames until it is told to stop.
    pub(super) fn run(mut self) -> Result<Summary, BumpError> {
        let mut idle_since: Option<Clock> = None;
        let ended = loop {
            if self.shared.is_stopped() {
                break Ok(());
            }
            let now = Clock::now();
            if let Some(faults) = self.shared.take_change() {
                self.change(now, &faults);
            }
            match self.turn(now) {
                Err(e) => break Err(e),
                Ok(true) => idle_since = None,
                Ok(false) => {
                    let idle = now - *idle_since.get_or_insert(now);
                    let due = self.due_in(now);
                    match Rest::after(idle, due) {
                        Rest::No => {}
                        Rest::Yield => std::thread::yield_now(),
                        Rest::Sleep(limit) => self.sleep(limit),
                    }
                }
            }
        };
        self.show();
        let summary = Summary {
            elapsed: self.start.elapsed(),
            counters: self.counters(),
            residence: [self.lanes[0].residence(), self.lanes[1].residence()],
            applied: self.applied(),
        };
        let recorded = self.recorder.take().map_or(Ok(()), Recorder::finish);
        ended.and(recorded).map(|()| summary)
    }

    /// One turn: both directions, and what is to be done now and then. Says whether there was anything to move.
    fn turn(&mut self, now: Clock) -> Result<bool, BumpError> {
        let [a, b] = &mut self.ports;
        let [a_times, b_times] = &mut self.times;
        let [ab, ba] = &mut self.lanes;
        let time = Instant::ZERO + (now - self.start);
        let moved = forward(ab, (a, a_times), b, &mut self.recorder, now, time)
            .and_then(|there| Ok(there | forward(ba, (b, b_times), a, &mut self.recorder, now, time)?));
        let moved = match moved {
            Ok(moved) => moved,
            Err(error) => {
                // An interface that is gone fails in one way or another.
                self.ports.iter_mut().try_for_each(Port::look)?;
                return Err(BumpError::Io(error));
            }
        };
        if now - self.shown >= SHOW {
            self.show();
            self.shown = now;
        }
        if now - self.looked >= LOOK {
            self.ports.iter_mut().try_for_each(Port::look)?;
            self.recorder.as_mut().map_or(Ok(()), Recorder::check)?;
            self.looked = now;
        }
        Ok(moved)
    }

    fn change(&mut self, now: Clock, Faults { spec, .. }: &Faults) {
        self.changes += 1;
        let time = Instant::ZERO + (now - self.start);
        for (stream, direction) in [(0, Direction::Ab), (1, Direction::Ba)] {
            let seed = seed_of(self.seed, stream, self.changes);
            self.lanes[stream as usize].set_faults(time, spec, direction, seed);
        }
    }

    /// After what time there is something to do although nothing comes in.
    fn due_in(&mut self, now: Clock) -> Duration {
        let time = Instant::ZERO + (now - self.start);
        let due = self.lanes.iter().filter_map(Lane::next_due).map(|at| at.saturating_since(time)).min();
        let stuck = self.ports.iter_mut().any(|port| port.queues[0].is_stuck());
        due.unwrap_or(SHOW).min(if stuck { WAKE_EARLY + RETRY } else { SHOW })
    }

    fn sleep(&mut self, limit: Duration) {
        // Whoever calls this looks at everything. A socket whose interface is gone is ready at once and for ever.
        let fds = sleep_on(self.readiness.iter().map(|fd| PollFd::new(fd, PollFlags::IN)), limit);
        let broken =
            fds.iter().flatten().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL));
        if broken {
            self.looked = self.start;
            std::thread::sleep(RETRY);
        }
        self.times.iter_mut().flatten().for_each(|times| times.empty_at = None);
    }

    fn counters(&self) -> [Counters; 2] {
        let [a, b] = &self.ports;
        [(0, a, b), (1, b, a)].map(|(lane, from, to)| {
            let here = self.lanes[lane].counters();
            let (came, left) = (from.dropped(), to.dropped());
            let unsegmented = here.unsegmented + came.too_long;
            Counters { rx_missed: came.missed, unsegmented, tx_refused: left.refused, ..here }
        })
    }

    fn show(&mut self) {
        let counters = self.counters();
        self.shared.show(counters);
    }

    /// For how many packets each event of the script was.
    fn applied(&self) -> Vec<u64> {
        let mut all = Vec::new();
        for (place, n) in self.lanes.iter().flat_map(Lane::applied) {
            if all.len() <= place {
                all.resize(place + 1, 0);
            }
            all[place] += n;
        }
        all
    }
}

/// The seed of a direction, after so many changes of its faults.
fn seed_of(seed: u64, stream: u64, changes: u64) -> u64 {
    seed.wrapping_mul(2).wrapping_add(stream).wrapping_add(changes << 40)
}

/// Moves frames of one direction: those that were held back and are due, then a batch of those that came in.
fn forward(
    lane: &mut Lane,
    (from, times): (&mut Port, &mut [QueueTimes]),
    to: &mut Port,
    recorder: &mut Option<Recorder>,
    now: Clock,
    time: Instant,
) -> io::Result<bool> {
    let mtus = [from.mtu, to.mtu];
    let out = &mut to.queues[0];
    let room = out.room(BATCH);
    let mut put = 0;
    let release = |lane: &mut Lane, put: &mut usize, out: &mut crate::afxdp::AfXdp| {
        while *put < room {
            let Some(frame) = lane.poll(time) else { break };
            let len = frame.len();
            if out.put(frame) {
                lane.sent(len);
            }
            *put += 1;
        }
    };
    release(lane, &mut put, out);
    let mut came = 0;
    for (queue, times) in from.queues.iter_mut().zip(times.iter_mut()) {
        let limit = room - put;
        let mut at_once = 0;
        let taken = queue.receive(limit, &mut |frame| {
            let record = |frame: &[u8]| recorder.iter_mut().for_each(|recorder| recorder.write(time, frame));
            if lane.take(time, frame, mtus, record) && out.put(frame) {
                lane.sent(frame.len());
                at_once += 1;
            }
        })?;
        put += at_once;
        came += taken;
        times.batch = (at_once > 0).then(|| (times.empty_at.unwrap_or(now), at_once as u64));
        times.empty_at = (taken < limit).then_some(now);
    }
    // Copies and frames that waited for these.
    release(lane, &mut put, out);
    if put > 0 {
        out.publish();
        let end = Clock::now();
        for (since, frames) in times.iter_mut().filter_map(|times| times.batch.take()) {
            lane.stayed(frames, (end - since).as_nanos() as u64);
        }
    }
    if put > 0 || out.is_stuck() {
        out.flush()?;
    }
    Ok(put > 0 || came > 0)
}
