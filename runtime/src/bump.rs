//! A bump in the wire: forwards every frame between two interfaces and does to them what a fault SPEC says.
//!
//! Both interfaces give all that they receive to AF_XDP sockets, whomever it is for: the kernel of this machine hears nothing of them as
//! long as the [`Bump`] lives. One thread moves the frames of both directions, copying each once. Faults are for RoCE packets unless
//! they are asked for everything; everything else passes them by.

mod control;
mod counters;
mod forwarder;
mod lane;

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use softnic_fault_injector::{Spec, SpecError};

use crate::api::status;
use crate::background::Background;
use crate::locked::lock;
use crate::port::PortError;
use crate::threads::{Core, spawn_own};
pub use control::{RunningWire, WireError};
pub use counters::{Counters, Residence};
use forwarder::Forwarder;

/// Which frames to forward, and with which faults.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// One interface, of the calling thread's network namespace.
    pub a: String,
    /// The other.
    pub b: String,
    /// Faults of both directions.
    pub faults: Faults,
    /// Whether they are for all frames, and not for RoCE packets alone.
    pub all_traffic: bool,
    /// Decides everything that is random.
    pub seed: u64,
    /// Records what comes in, in both directions.
    pub pcap: Option<PathBuf>,
    /// The core to stay on.
    pub cpu: Option<usize>,
}

/// Faults, and how they were written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    /// For who asks.
    pub text: String,
    /// What it means.
    pub spec: Spec,
}

impl FromStr for Faults {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Faults, SpecError> {
        Ok(Faults { text: text.into(), spec: text.parse()? })
    }
}

/// Why there is no wire, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum BumpError {
    /// Both ends are the same.
    #[error("a wire has two ends: a and b are both {0}")]
    Same(String),
    /// The SPEC is not for a link.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// An interface cannot be used, or is gone.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no such core.
    #[error("there is no core {0} to stay on, or this process may not use it")]
    Core(usize),
    /// The capture cannot be written.
    #[error("cannot write the capture {}: {error}", .path.display())]
    Capture {
        /// Its name.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Frames cannot be moved any more.
    #[error("packet IO failed: {0}")]
    Io(io::Error),
    /// The system refused something else.
    #[error("cannot {doing}: {error}")]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

/// The counters of a wire; the first of two is from a to b.
#[derive(Debug, Clone)]
pub struct Summary {
    /// How long it was there.
    pub elapsed: Duration,
    /// The counters.
    pub counters: [Counters; 2],
    /// How long frames stayed.
    pub residence: [Residence; 2],
    /// For how many packets each event of the script was, in the order of the script.
    pub applied: Vec<u64>,
}

/// State shared by the thread and its owner.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    counters: Mutex<[Counters; 2]>,
    /// The faults as they are, or will be in a moment.
    faults: Mutex<Faults>,
    /// Whether they are not in force yet.
    changed: AtomicBool,
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn faults(&self) -> Faults {
        lock(&self.faults).clone()
    }

    fn set_faults(&self, faults: Faults) {
        *lock(&self.faults) = faults;
        self.changed.store(true, Ordering::Release);
    }

    /// Other faults, if there are any since the last call.
    fn take_change(&self) -> Option<Faults> {
        // One look at a word of memory in each turn of the loop that moves frames.
        if !self.changed.load(Ordering::Relaxed) || !self.changed.swap(false, Ordering::AcqRel) {
            return None;
        }
        Some(self.faults())
    }

    fn show(&self, counters: [Counters; 2]) {
        *lock(&self.counters) = counters;
    }

    fn counters(&self) -> [Counters; 2] {
        *lock(&self.counters)
    }
}

/// A wire that is there as long as this lives.
pub struct Bump {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Summary, BumpError>>>,
    description: String,
    /// Answers `softnic counters`.
    _status: Option<Background>,
    /// Takes other faults.
    _control: Option<Background>,
}

impl Bump {
    /// Opens both interfaces and begins to forward.
    ///
    /// # Errors
    /// When an interface cannot be used; each says what to do.
    pub fn start(options: &Options) -> Result<Bump, BumpError> {
        if options.a == options.b {
            return Err(BumpError::Same(options.a.clone()));
        }
        options.faults.spec.check_link()?;
        let core = options.cpu.map(|cpu| Core::find(cpu).ok_or(BumpError::Core(cpu))).transpose()?;
        let shared = Arc::new(Shared::default());
        shared.set_faults(options.faults.clone());
        shared.take_change();
        let forwarder = Forwarder::open(options, &shared)?;
        let description = format!("wire: {}", forwarder.description());
        let status = {
            let (shared, description) = (Arc::clone(&shared), description.clone());
            let ends = [options.a.clone(), options.b.clone()];
            status::serve_line(move |nic| {
                let names = ["ab", "ba"].into_iter().zip(shared.counters());
                let counters = names.flat_map(|(way, c)| c.iter().map(move |(name, n)| (format!("{way}_{name}"), n)));
                let [a, b] = &ends;
                let own = [("a", a.as_str()), ("b", b), ("fault", &shared.faults().text)];
                status::line(nic, &description, &own, counters)
            })
        };
        let control = control::serve(&shared).ok();
        let thread = spawn_own("softnic-wire", move || {
            core.into_iter().for_each(Core::stay);
            forwarder.run()
        });
        let thread = thread.map_err(|error| BumpError::System { doing: "start a thread", error })?;
        Ok(Bump { shared, thread: Some(thread), description, _status: status.ok(), _control: control })
    }

    /// Both interfaces, and how they are used.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The counters of a moment ago, from a to b and back.
    pub fn counters(&self) -> [Counters; 2] {
        self.shared.counters()
    }

    /// The faults in force, as they were written.
    pub fn faults(&self) -> String {
        self.shared.faults().text
    }

    /// What [`Bump::counters`] says, for another thread.
    pub fn watch(&self) -> impl Fn() -> [Counters; 2] + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.counters()
    }

    /// Whether it still forwards; if not, [`Bump::stop`] says why.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it. Frames that are held back are lost.
    ///
    /// # Errors
    /// When it ended before, by itself: an interface is gone, or the capture could not be written.
    pub fn stop(mut self) -> Result<Summary, BumpError> {
        self.shared.stop.store(true, Ordering::Release);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("it is joined here alone"),
        }
    }
}

impl Drop for Bump {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It panicked, and said so itself.
            let _ = thread.join();
        }
    }
}
