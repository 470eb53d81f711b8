//! A bump in the wire: forwards every frame between two interfaces and does to them what a fault SPEC says.
//!
//! Both interfaces give all that they receive to AF_XDP sockets, whomever it is for: the kernel of this machine hears nothing of them as
//! long as the [`Bump`] lives. One thread moves the frames of both directions, copying each once. Faults are for RoCE packets unless
//! they are asked for everything; everything else passes them by.

mod checksum;
mod counters;
mod forwarder;
mod lane;
mod port;
mod promiscuous;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use softnic_fault_injector::{Spec, SpecError};

use crate::afxdp::AfXdpError;
use crate::api::status;
use crate::background::Background;
use crate::threads::spawn_own;
pub use counters::{Counters, Residence};
use forwarder::Forwarder;

/// The longest packets that it carries; an interface with a longer MTU is refused.
pub const MAX_MTU: usize = 9216;

/// Which frames to forward, and with which faults.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// One interface, of the calling thread's network namespace.
    pub a: String,
    /// The other.
    pub b: String,
    /// Faults of both directions.
    pub faults: Spec,
    /// Whether they are for all frames, and not for RoCE packets alone.
    pub all_traffic: bool,
    /// Decides everything that is random.
    pub seed: u64,
    /// Records what comes in, in both directions.
    pub pcap: Option<PathBuf>,
    /// The core to stay on.
    pub cpu: Option<usize>,
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
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] AfXdpError),
    /// An interface is down.
    #[error("{0} is down: `ip link set {0} up`")]
    Down(String),
    /// Frames may be longer than we carry.
    #[error("{interface} has an MTU of {mtu}, and this carries at most {max}: `ip link set {interface} mtu {max}`")]
    Mtu {
        /// Which.
        interface: String,
        /// Its MTU.
        mtu: usize,
        /// The longest that is possible: [`MAX_MTU`], or less where the kernel has no frames in several pieces (before Linux 6.6).
        max: usize,
    },
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
    /// An interface went away.
    #[error("the interface {0} is gone")]
    Gone(String),
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
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn show(&self, counters: [Counters; 2]) {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    }

    fn counters(&self) -> [Counters; 2] {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wire that is there as long as this lives.
pub struct Bump {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Summary, BumpError>>>,
    description: String,
    /// Answers `softnic counters`.
    _status: Option<Background>,
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
        options.faults.check_link()?;
        let core = match options.cpu {
            Some(cpu) => {
                let cores = core_affinity::get_core_ids().unwrap_or_default();
                Some(cores.into_iter().find(|core| core.id == cpu).ok_or(BumpError::Core(cpu))?)
            }
            None => None,
        };
        let shared = Arc::new(Shared::default());
        let forwarder = Forwarder::open(options, &shared)?;
        let description = format!("wire: {}", forwarder.description());
        let status = {
            let (shared, description) = (Arc::clone(&shared), description.clone());
            status::serve_line(move |nic| {
                let names = ["ab", "ba"].into_iter().zip(shared.counters());
                let counters = names.flat_map(|(way, c)| c.iter().map(move |(name, n)| (format!("{way}_{name}"), n)));
                status::line(nic, &description, counters)
            })
        };
        let thread = spawn_own("softnic-wire", move || {
            if let Some(core) = core {
                core_affinity::set_for_current(core);
            }
            forwarder.run()
        });
        let thread = thread.map_err(|error| BumpError::System { doing: "start a thread", error })?;
        Ok(Bump { shared, thread: Some(thread), description, _status: status.ok() })
    }

    /// Both interfaces, and how they are used.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The counters of a moment ago, from a to b and back.
    pub fn counters(&self) -> [Counters; 2] {
        self.shared.counters()
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
