//! The fault SPEC of the command line, as data: `loss=1e-4,reorder=1e-3:3,@script.toml`. Reading it is in `parse`.

mod parse;

use std::time::Duration;

use crate::calls::CallFaults;
use crate::process::ProcessName;
use crate::red::{Policy, Red};
use crate::script::{Direction, Script, ScriptError};
use crate::text::on_one_line;
pub use parse::with_whole_names;

/// One fault, or one property of the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Each frame is lost with this probability, by itself.
    Loss(f64),
    /// Losses come in bursts.
    Burst {
        /// With this probability a frame is the first of a burst.
        enter: f64,
        /// Each frame of it is lost with this probability.
        loss: f64,
        /// Frames of a burst.
        len: BurstLen,
    },
    /// Each frame comes twice with this probability.
    Duplicate(f64),
    /// A bit of each frame is flipped with this probability.
    Corrupt(f64),
    /// Each frame is held with this probability until later ones have passed.
    Reorder {
        /// The probability.
        chance: f64,
        /// How many later ones.
        behind: u32,
    },
    /// Nothing passes for a while: what comes is lost.
    Down(Outage),
    /// Nothing passes for a while: what comes is held, and let go at its end.
    Stall(Outage),
    /// Every frame takes so much longer.
    Delay(Duration),
    /// Every frame takes longer by anything from nothing to this.
    Jitter(Duration),
    /// A bottleneck of so many bits a second, everything on the wire counted.
    Rate(u64),
    /// Its queue holds so many bytes.
    Queue(u64),
    /// Its queue marks.
    Ecn(Red),
}

/// How long a burst is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BurstLen {
    /// So many frames.
    Exactly(u32),
    /// So many on average: after each frame it ends with the same chance.
    Mean(f64),
}

/// When a link passes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// From then on.
    pub from: Duration,
    /// For so long.
    pub lasts: Duration,
    /// And again, from the beginning of one to that of the next.
    pub every: Option<Duration>,
}

impl Outage {
    /// The end of the outage at this time, if there is one; both count from the driver's origin. The first instant
    /// belongs to an outage, the last does not.
    pub fn end(&self, at: Duration) -> Option<Duration> {
        let since = at.checked_sub(self.from)?;
        let phase = match self.every {
            Some(every) if !every.is_zero() => Duration::from_nanos((since.as_nanos() % every.as_nanos()) as u64),
            _ => since,
        };
        self.lasts.checked_sub(phase).filter(|left| !left.is_zero()).map(|left| at.saturating_add(left))
    }
}

/// A list of faults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spec {
    /// For both directions of a link, or for what a device sends; in the order given.
    pub faults: Vec<Fault>,
    /// From a to b alone.
    pub ab: Vec<Fault>,
    /// From b to a alone.
    pub ba: Vec<Fault>,
    /// For what a device receives.
    pub rx: Vec<Fault>,
    /// Targeted events: those of all files, in the order given.
    pub script: Script,
    /// Of the calls of a program: those of the SPEC, and those of all files.
    pub calls: CallFaults,
}

/// What a link is like in one direction, chance aside.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shape {
    /// How much longer every frame takes.
    pub delay: Duration,
    /// How much longer it may take beyond that.
    pub jitter: Duration,
    /// The bottleneck's rate and how its queue is run.
    pub bottleneck: Option<(u64, Policy)>,
}

impl Shape {
    /// The longest that a frame may take because of it; a queue without a bound is left out.
    pub fn longest(&self) -> Duration {
        let queued = self.bottleneck.filter(|(_, p)| p.limit < u64::MAX).map_or(0, |(rate, policy)| {
            u64::try_from(u128::from(policy.limit) * 8_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
        });
        (self.delay + self.jitter).saturating_add(Duration::from_nanos(queued))
    }
}

impl Spec {
    /// The faults of one direction of a link: first those of both, then those of this one alone.
    pub fn of(&self, direction: Direction) -> impl Iterator<Item = Fault> + '_ {
        let own = match direction {
            Direction::Ab => &self.ab,
            Direction::Ba => &self.ba,
        };
        self.faults.iter().chain(own).copied()
    }

    /// What the link is like in one direction. Where a key is given for both directions and for this one, the latter counts.
    pub fn shape(&self, direction: Direction) -> Shape {
        let (mut shape, mut rate, mut limit, mut red) = (Shape::default(), None, u64::MAX, None);
        for fault in self.of(direction) {
            match fault {
                Fault::Delay(d) => shape.delay = d,
                Fault::Jitter(j) => shape.jitter = j,
                Fault::Rate(r) => rate = Some(r),
                Fault::Queue(bytes) => limit = bytes,
                Fault::Ecn(r) => red = Some(r),
                _ => {}
            }
        }
        shape.bottleneck = rate.map(|rate| (rate, Policy { limit, red }));
        shape
    }

    /// `Ok` when nothing in it is for the calls of a program.
    fn check_no_calls(&self) -> Result<(), SpecError> {
        self.calls.first().map_or(Ok(()), |name| Err(SpecError::NoProgram(name.into())))
    }

    /// `Ok` when no event is for some processes or devices of a program alone.
    pub fn check_no_places(&self) -> Result<(), SpecError> {
        let key = self.script.events.iter().find_map(|event| match (&event.process, event.device) {
            (Some(_), _) => Some("process"),
            (None, Some(_)) => Some("device"),
            (None, None) => None,
        });
        key.map_or(Ok(()), |key| Err(SpecError::NoPlaces(key)))
    }

    /// `Ok` when no event is for a device beyond the `count` that a program has.
    pub fn check_devices(&self, count: u32) -> Result<(), SpecError> {
        let beyond = self.script.events.iter().filter_map(|event| event.device).find(|device| *device >= count);
        beyond.map_or(Ok(()), |device| Err(SpecError::NoDevice { device, count }))
    }

    /// Whether any of it is for some processes alone.
    pub fn names_processes(&self) -> bool {
        self.script.events.iter().any(|event| event.process.is_some()) || self.calls.names_processes()
    }

    /// What of it is for one process of a program.
    pub fn for_process(self, process: &ProcessName) -> Spec {
        Spec { script: self.script.for_process(process), calls: self.calls.for_process(process), ..self }
    }

    /// For any process of a program: what is for some alone is for all.
    pub fn for_any_process(mut self) -> Spec {
        self.script.events.iter_mut().for_each(|event| event.process = None);
        self
    }

    /// What of it is for one device of a program, by its place.
    pub fn for_place(self, device: u32) -> Spec {
        Spec { script: self.script.for_device(device), ..self }
    }

    /// What of it is for a wire between two devices of a program, by the place of the first: that is a.
    pub fn for_wire_of(self, a: u32) -> Spec {
        Spec { script: self.script.for_wire_of(a), ..self }
    }

    /// `Ok` when it can be for the two directions of a link: `rx.` and faults of calls cannot.
    pub fn check_link(&self) -> Result<(), SpecError> {
        self.check_no_calls()?;
        self.check_no_places()?;
        if self.rx.is_empty() { Ok(()) } else { Err(SpecError::NotForLinks) }
    }

    /// What a device does to the frames that it sends, and to those that it receives: each a SPEC for [`Direction::Ab`]. Events
    /// of a script are for what is sent, those with `direction = "ba"` for what is received.
    pub fn for_device(&self) -> Result<[Spec; 2], SpecError> {
        self.check_no_calls()?;
        self.check_no_places()?;
        if !self.ab.is_empty() || !self.ba.is_empty() {
            return Err(SpecError::NotForDevices);
        }
        let (mut sent, mut received) = (Script::default(), Script::default());
        for event in &self.script.events {
            let way = if event.direction == Some(Direction::Ba) { &mut received } else { &mut sent };
            way.events.push(crate::script::Event { direction: None, ..event.clone() });
        }
        let spec = |faults: &Vec<Fault>, script| Spec { faults: faults.clone(), script, ..Spec::default() };
        Ok([spec(&self.faults, sent), spec(&self.rx, received)])
    }
}

/// Why a SPEC was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Something without `=`.
    #[error("'{}' is no fault: write KEY=VALUE, e.g. loss=1e-4, or @FILE for a script", on_one_line(.0))]
    NoValue(String),
    /// A key that no fault has.
    #[error(
        "there is no fault '{}'; this version knows loss=P, burst=P:P:LEN, dup=P, corrupt=P, reorder=P:N, delay=T, jitter=T, \
         rate=R, queue=SIZE, ecn=SIZE:SIZE:P, down=T+T, stall=T+T, verbs.CALL=WHAT, cm.CALL=WHAT, event.NAME=WHEN and @FILE",
        on_one_line(.0)
    )]
    UnknownKey(String),
    /// A value that the key does not take.
    #[error("'{}' is no value for {key}: {why}", on_one_line(.value))]
    BadValue {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        why: &'static str,
    },
    /// A property of the link that is there already.
    #[error("{0} is given twice: a link has one (ab. or ba. before it says which direction it is for)")]
    Twice(&'static str),
    /// A queue, but nothing that would let it fill.
    #[error("{key} needs the rate of the bottleneck that the queue is before, e.g. rate=5Gbit,{key}={example}")]
    NoRate {
        /// What was given.
        key: &'static str,
        /// A value of it.
        example: &'static str,
    },
    /// `rx.` where there is no device.
    #[error("rx. is for what a device receives: a link has two directions, ab. and ba.")]
    NotForLinks,
    /// `ab.` or `ba.` where there is a device.
    #[error("ab. and ba. are the directions of a link: a device has what it sends, and rx. for what it receives")]
    NotForDevices,
    /// A script with a direction before it.
    #[error("'{}': a script says in each event which direction it is for: write {} alone", on_one_line(.0), on_one_line(.1))]
    ScriptDirection(String, String),
    /// A fault of calls that makes no sense.
    #[error("'{}': {}", on_one_line(.part), on_one_line(.why))]
    Call {
        /// What was given.
        part: String,
        /// Why not.
        why: String,
    },
    /// A fault of calls where no program makes any.
    #[error("{} is for a program that uses verbs: give it to softnic run", on_one_line(.0))]
    NoProgram(String),
    /// An event of some processes or devices where there are none.
    #[error("{0} in an [[event]] says which process or device of a program it is for: give the script to softnic run")]
    NoPlaces(&'static str),
    /// An event of a device that is not there.
    #[error("device = {device} in an [[event]]: the program has {count}, counted from 0")]
    NoDevice {
        /// What was given.
        device: u32,
        /// How many there are.
        count: u32,
    },
    /// A script that cannot be read.
    #[error("{}: {why}", on_one_line(.file))]
    Unreadable {
        /// Its name.
        file: String,
        /// What the system says.
        why: String,
    },
    /// A script that is not understood.
    #[error("{}: {why}", on_one_line(.file))]
    Script {
        /// Its name.
        file: String,
        /// Where and why.
        why: ScriptError,
    },
}
