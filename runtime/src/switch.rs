//! A switch on real interfaces: each port takes in every frame of one, and one thread moves the frames of all of them.
//!
//! [`WireSwitch`] lives as long as the value; [`Handle`] asks it things and gives it groups from other threads. What is
//! asked never holds up frames for longer than a look at some hundred groups.

mod handle;
mod recorder;
mod report;
mod resolver;
mod seat;
mod serialiser;
mod worker;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use softnic_fault_injector::Policy;
use softnic_switch::group::{GroupError, GroupSpec};
use softnic_switch::{NextHop, Prefix};
use softnic_wire::MacAddr;

use crate::api::status;
use crate::background::Background;
use crate::port::PortError;
use crate::threads::{Core, spawn_own};
use handle::Shared;
pub use handle::{CommandError, Handle};
pub use report::{PortReport, Report};
use worker::Worker;

/// Ports of a switch.
pub const MAX_PORTS: usize = 64;

/// What a switch is made of.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Its ports, which have numbers in this order.
    pub ports: Vec<PortOptions>,
    /// Frames to this address are routed, all others switched; that of the first port's interface where none is said.
    pub mac: Option<MacAddr>,
    /// Its own addresses, each with the length of its subnet's prefix: it answers for them, asks from them, and reaches
    /// these subnets.
    pub addresses: Vec<Prefix>,
    /// Ways to other subnets.
    pub routes: Vec<(Prefix, Vec<NextHop>)>,
    /// MAC addresses and the ports that lead to them; others are learned.
    pub macs: Vec<(MacAddr, usize)>,
    /// Groups that are there from the beginning.
    pub groups: Vec<GroupSpec>,
    /// Decides marks, and which of several next hops a flow takes.
    pub seed: u64,
    /// Records what comes in and what leaves, as pcapng.
    pub pcap: Option<PathBuf>,
    /// The core to stay on.
    pub cpu: Option<usize>,
}

/// A port.
#[derive(Debug, Clone)]
pub struct PortOptions {
    /// The interface, of the calling thread's network namespace.
    pub interface: String,
    /// How its queue is run.
    pub policy: Policy,
    /// Bits a second that leave; as many as the interface takes where none is said.
    pub rate: Option<u64>,
}

impl PortOptions {
    /// With a queue of 1 MiB that does not mark, and no rate.
    pub fn new(interface: impl Into<String>) -> PortOptions {
        PortOptions { interface: interface.into(), policy: Policy { limit: 1 << 20, red: None }, rate: None }
    }
}

/// Why there is no switch, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// Nobody to forward to.
    #[error("a switch has at least one port")]
    NoPorts,
    /// More than there may be.
    #[error("a switch has at most {MAX_PORTS} ports, this one {0}")]
    TooManyPorts(usize),
    /// An interface is one port.
    #[error("two ports have the interface {0}")]
    SameInterface(String),
    /// It is nobody's.
    #[error("{0} is no MAC address of one interface: the first byte is odd, or all are 0")]
    Mac(MacAddr),
    /// An interface cannot be used.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A group makes no sense.
    #[error("group {number}: {error}")]
    Group {
        /// From 1.
        number: usize,
        /// Why.
        error: GroupError,
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
    /// The system refused something else.
    #[error("cannot {doing}: {error}")]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl Options {
    /// Whether the numbers make sense: interfaces are looked at later.
    fn check(&self) -> Result<(), SwitchError> {
        match self.ports.len() {
            0 => return Err(SwitchError::NoPorts),
            n if n > MAX_PORTS => return Err(SwitchError::TooManyPorts(n)),
            _ => {}
        }
        for (i, port) in self.ports.iter().enumerate() {
            if self.ports[..i].iter().any(|other| other.interface == port.interface) {
                return Err(SwitchError::SameInterface(port.interface.clone()));
            }
        }
        match self.mac {
            Some(mac) if mac.0[0] & 1 == 1 || mac == MacAddr::default() => Err(SwitchError::Mac(mac)),
            _ => Ok(()),
        }
    }

    /// Its own addresses alone.
    fn own(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(|prefix| prefix.addr)
    }
}

/// A switch that is there as long as this lives.
pub struct WireSwitch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Report, SwitchError>>>,
    description: String,
    /// Answers `softnic counters`.
    _status: Option<Background>,
}

impl WireSwitch {
    /// Opens all interfaces and begins to forward.
    ///
    /// # Errors
    /// When an interface cannot be used, or a group makes no sense; each says what to do.
    pub fn start(options: &Options) -> Result<WireSwitch, SwitchError> {
        options.check()?;
        let core = options.cpu.map(|cpu| Core::find(cpu).ok_or(SwitchError::Core(cpu))).transpose()?;
        let shared = Shared::new().map_err(|error| SwitchError::System { doing: "get a descriptor", error })?;
        let shared = Arc::new(shared);
        let worker = Worker::open(options, &shared)?;
        let description = format!("switch: {}", worker.description());
        let status = {
            let (handle, description) = (Handle(Arc::clone(&shared)), description.clone());
            let names: Vec<&str> = options.ports.iter().map(|port| port.interface.as_str()).collect();
            let names = names.join(" ");
            status::serve_line(move |nic| {
                status::line(nic, &description, &[("switch", &names)], handle.report().counters().into_iter())
            })
        };
        let thread = spawn_own("softnic-switch", move || {
            core.into_iter().for_each(Core::stay);
            worker.run()
        });
        let thread = thread.map_err(|error| SwitchError::System { doing: "start a thread", error })?;
        Ok(WireSwitch { shared, thread: Some(thread), description, _status: status.ok() })
    }

    /// All interfaces, and how they are used.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// For whoever asks it things, in any thread.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Whether it still forwards; if not, [`WireSwitch::stop`] says why.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it. Frames in queues are lost.
    ///
    /// # Errors
    /// When it ended before, by itself: the capture could not be written.
    pub fn stop(mut self) -> Result<Report, SwitchError> {
        self.shared.stop();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("it is joined here alone"),
        }
    }
}

impl Drop for WireSwitch {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // It panicked, and said so itself.
            let _ = thread.join();
        }
    }
}
