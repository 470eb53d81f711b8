//! Opening a NIC: which device, who runs it, what goes wrong on its wire.

mod attend;
mod backup;
mod dpdk;
mod follow;
mod memory;
mod own;
mod shown;
mod spec;
mod surround;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use softnic_fault_injector::{Spec, SpecError};
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::{Nic, NicConfig, Owner, Port};
use softnic_shift::DualNic;
use softnic_trace::{Level, Log, Trace};
use softnic_wire::ethernet::{self, MAX_TAGS};
use softnic_wire::{MacAddr, PathMtu};

pub(super) use follow::keep;

use shown::{begin_trace, record};

pub use backup::{BackupOptions, MUTUAL, mutual_backups, parse_backup, parse_failover, parse_kv, parse_probe};
pub use spec::{DeviceSpec, DeviceSpecError, OwnAddresses};

use super::company::Company;
use super::context::{Context, Inner};
use super::events::{EventSink, Events};
use super::failover::Failover;
use super::link_down::LinkDown;
use crate::afxdp::{self, AfXdp, AfXdpError, Device};
use crate::dpdk::DpdkError;
use crate::driver::{Driver, DriverPort};
use crate::engine::{Engine, Io, Mode, Watcher};
use crate::failover::list::{Control, LineSink};
use crate::host_network::{HostNetwork, HostNetworkError};
use crate::io::{GroupFilter, Line, PacketIo};
use crate::neighbours::{Links, Neighbours};
use crate::random::Generator;
use crate::remedy::remedy;
use crate::sent::PacketSink;
use crate::share::{Seat, ShareError, served_here};
use crate::shm::{Shm, ShmError, ShmSpec};
use crate::stack::Stack;
use crate::steering::Steering;
use crate::{Dgram, DgramError, Faulty, OsRandom};

/// Who makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The program's threads while they poll. The NIC's own thread watches, and takes over when none of them does.
    Inline,
    /// A thread of the NIC's own for each engine, which polls: for machines with cores to spare.
    Dedicated,
}

/// How a NIC is opened; the default suits most programs.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Who makes progress; by default threads of the NIC's own where there are cores enough for them and the program.
    pub progress: Option<Progress>,
    /// The cores that the NIC's own threads are pinned to, in turn; none by default.
    pub cpus: Vec<usize>,
    /// Faults on the wire, for what this side sends, and after `rx.` for what it receives.
    pub fault: Option<Spec>,
    /// Decides about the faults.
    pub seed: u64,
    /// A file that all frames are recorded to, as pcap. Further engines record to further files: FILE.1, FILE.2, …
    pub pcap: Option<PathBuf>,
    /// A file that all that happens to the queue pairs is written to, as qlog.
    pub trace: Option<PathBuf>,
    /// How much of it is said on stderr, in lines for people; by default nothing.
    pub log: Option<Level>,
    /// The device's queues that are used; by default all, and of a wire in memory one. Frames that come in by others stay with the kernel.
    pub queues: Option<u32>,
    /// What becomes of packets while the device's link is down.
    pub link_down: LinkDown,
    /// The second NIC, by which connections go on when this one fails.
    pub backup: Option<BackupOptions>,
    /// Who is told, in lines for people, what is wrong on the network; stderr where there is nobody.
    pub on_notice: Option<LineSink>,
    /// Who is told of every packet that is sent, before faults decide over it; not of those of a backup.
    pub on_packet: Option<PacketSink>,
    /// Who is told of every event at once; without it events wait for [`Context::poll_event`].
    pub on_event: Option<EventSink>,
}

/// Why a NIC was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device cannot carry frames.
    #[error(transparent)]
    AfXdp(#[from] AfXdpError),
    /// The kernel does not tell what is needed of the interface.
    #[error(transparent)]
    Host(#[from] HostNetworkError),
    /// The network in memory cannot be joined.
    #[error(transparent)]
    Shm(#[from] ShmError),
    /// A daemon has the interface.
    #[error("{0} is shared by `softnic share`: say shared:{0}, which needs no privileges")]
    IsShared(String),
    /// The interface is not shared with us.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The socket was not made.
    #[error(transparent)]
    Dgram(#[from] DgramError),
    /// The device is not DPDK's to drive.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// The faults are not for a device.
    #[error(transparent)]
    Fault(#[from] SpecError),
    /// The capture cannot be written.
    #[error("cannot write the capture {path}: {error}", path = .path.display())]
    Capture {
        /// Its name.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The trace cannot be written.
    #[error("cannot write the trace {path}: {error}", path = .path.display())]
    Trace {
        /// Its name.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A backend without an address of its own was not given one.
    #[error("`{0}` has no address of its own: add one, as in {0},ip=10.0.0.1/24")]
    NoAddress(String),
    /// Frames without a queue pair cannot be sent there.
    #[error(
        "`{0}` carries frames to the process that has their queue pair, and raw frames have none: take `mem`, or a device"
    )]
    NoRawFrames(String),
    /// The wire in memory has two ends, which are opened together.
    #[error("`mem` joins two NICs of one process and cannot be opened alone")]
    Mem,
    /// The backup is the same device.
    #[error("`{0}` cannot be its own backup: take another interface, which does not fail with it")]
    OwnBackup(String),
    /// Two NICs on a wire in memory have backups on another one.
    #[error("`mem` has its backup on `mem`, not on `{0}`")]
    MemBackup(String),
    /// Each queue has an engine, and each engine a backup.
    #[error(
        "`{backup}` has {theirs} queues and cannot back up one with {ours}: use as many of both (--queues), or `ethtool -L`"
    )]
    BackupQueues {
        /// The backup.
        backup: String,
        /// Queues of the device.
        ours: usize,
        /// Queues of the backup.
        theirs: usize,
    },
    /// The device is not what the options say.
    #[error(transparent)]
    Spec(#[from] DeviceSpecError),
    /// The system refused something that every process needs.
    #[error("the system refused a descriptor, a thread or random numbers: {0}{remedy}", remedy = remedy(.0))]
    System(#[from] io::Error),
    /// The interface cannot carry even the shortest path MTU.
    #[error("frames of at most {0} bytes are too short for a path MTU of 256: raise the interface's MTU")]
    TooShort(usize),
}

/// What a line carries in bits a second, where nobody knows it.
const USUAL_RATE: u64 = 10_000_000_000;
/// The same of a wire in memory.
const MEMORY_RATE: u64 = 100_000_000_000;

/// The MAC address of a network in memory, which all on it have: what the kernel's own loopback has is none for RoCE.
pub const SHM_MAC: MacAddr = MacAddr([2, 0, 127, 0, 0, 1]);

/// The longest payload that fits frames of `max_frame` bytes.
fn mtu_of(max_frame: usize) -> Option<PathMtu> {
    // Ethernet with a tag; the rest is what `path_mtu` deducts.
    crate::host_network::path_mtu(max_frame.saturating_sub(18) as u32)
}

/// The longest IP packet that fits frames of `max_frame` bytes: they have Ethernet, and two tags at most.
fn link_mtu_of(max_frame: usize) -> u32 {
    max_frame.saturating_sub(ethernet::LEN + MAX_TAGS * ethernet::TAG_LEN) as u32
}

/// What a NIC is put together from.
pub(super) struct Parts {
    pub(super) ios: Vec<Io>,
    pub(super) port: Port,
    pub(super) neighbourhood: Neighbourhood,
    /// The other processes behind the port.
    pub(super) company: Option<Company>,
    pub(super) description: String,
    /// Of the line, in bits a second.
    pub(super) rate: u64,
    /// The longest IP packet that it carries.
    pub(super) link_mtu: u32,
    /// Where the port has a stack of its own.
    pub(super) own_stack: Option<OwnStack>,
}

/// What a port's own stack is told of the network that it is on.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnStack {
    pub(super) links: Links,
    pub(super) vlan: Option<u16>,
    /// What lets multicast frames in, where somebody must tell it which.
    pub(super) filter: Option<Arc<dyn GroupFilter>>,
}

/// Who else is on the wire, and who knows the way to them.
pub(super) enum Neighbourhood {
    /// The kernel knows.
    Kernel(Box<HostNetwork>),
    /// There is nobody but processes behind the same addresses.
    Here,
    /// Nobody: the NIC asks. Of some the line may be down.
    Own(Option<Box<dyn Line>>),
}

impl Context {
    /// Opens a NIC on a device.
    ///
    /// # Errors
    /// When it is not there, or may not be used: the error says what to do.
    pub fn open(device: &DeviceSpec, options: &OpenOptions) -> Result<Context, OpenError> {
        let parts = Parts::of(device, options)?;
        let backup = parts.backup(device, options)?;
        parts.told(options).open(backup, options)
    }

    /// Two NICs of this process with a wire in memory between them. A SPEC of faults holds for both directions, as independent streams.
    ///
    /// # Errors
    /// When the system refuses a descriptor or a thread.
    pub fn open_pair(options: [&OpenOptions; 2]) -> Result<[Context; 2], OpenError> {
        let [a, b] = Parts::pair(options[0])?;
        let [of_a, of_b] = Parts::backups(options)?;
        Ok([a.told(options[0]).open(of_a, options[0])?, b.told(options[1]).open(of_b, options[1])?])
    }
}

impl Parts {
    /// A device, with its faults.
    pub(super) fn of(device: &DeviceSpec, options: &OpenOptions) -> Result<Parts, OpenError> {
        let parts = match device {
            DeviceSpec::Mem => return Err(OpenError::Mem),
            DeviceSpec::AfXdp { interface, mode, queues, chunks } => {
                let queues = device.queues_beside(*queues, options.queues)?;
                Parts::afxdp(interface, &afxdp::Options::for_device(*mode, queues, *chunks))?
            }
            DeviceSpec::Shared { interface } => Parts::shared(interface, options)?,
            DeviceSpec::Shm(spec) => Parts::shm(spec)?,
            DeviceSpec::Dpdk(spec) => {
                Parts::dpdk(spec, device.queues_beside(spec.queues, options.queues)?.unwrap_or(1))?
            }
            DeviceSpec::Dgram { spec, own } => {
                if own.addresses.is_empty() {
                    return Err(OpenError::NoAddress(device.to_string()));
                }
                let port = Port { mac: own.mac, addresses: own.addresses.clone(), mtu: PathMtu::B4096 };
                let io: Io = Box::new(Dgram::bind(spec)?);
                let (description, link_mtu) = (device.to_string(), link_mtu_of(io.max_frame()));
                Parts {
                    ios: vec![io],
                    port,
                    neighbourhood: Neighbourhood::Own(None),
                    company: None,
                    description,
                    rate: USUAL_RATE,
                    link_mtu,
                    // Everybody is on the link.
                    own_stack: Some(OwnStack::default()),
                }
            }
        };
        parts.with_faults(options)
    }

    fn shm(spec: &ShmSpec) -> Result<Parts, OpenError> {
        let shm = Shm::open(spec)?;
        let addresses = spec.addresses()?;
        let port = Port { mac: SHM_MAC, addresses, mtu: PathMtu::B4096 };
        let (neighbourhood, company) = (Neighbourhood::Here, Some(Company::Memory(Arc::clone(shm.directory()))));
        let (description, link_mtu) = (spec.to_string(), link_mtu_of(shm.max_frame()));
        let (ios, own_stack): (Vec<Io>, _) = (vec![Box::new(shm)], None);
        Ok(Parts { ios, port, neighbourhood, company, description, rate: MEMORY_RATE, link_mtu, own_stack })
    }

    fn afxdp(interface: &str, options: &afxdp::Options) -> Result<Parts, OpenError> {
        let mut host = HostNetwork::open(interface)?;
        let device = host.bottom().name.clone();
        let queues = AfXdp::open(&device, options).map_err(|error| match error {
            AfXdpError::ProgramAttached { .. } if served_here().contains(&device) => {
                OpenError::IsShared(device.clone())
            }
            other => other.into(),
        })?;
        // A link that was lost to our own program, and is back, is nothing that the program must hear of.
        host.forget_changes()?;
        Parts::over_queues(format!("afxdp:{interface}"), host, queues, None)
    }

    /// A place on an interface that a daemon shares.
    fn shared(interface: &str, options: &OpenOptions) -> Result<Parts, OpenError> {
        let host = HostNetwork::open(interface)?;
        let device = Arc::new(Device::find(interface)?);
        let (seat, handed) = Seat::take(interface, options.queues)?;
        let queue = |(n, handed)| AfXdp::handed(&device, n, handed);
        let queues = (0u32..).zip(handed).map(queue).collect::<Result<_, _>>()?;
        let company = Some(Company::Interface(Arc::new(seat)));
        Parts::over_queues(format!("shared:{interface}"), host, queues, company)
    }

    /// A NIC on the queues of an interface.
    fn over_queues(
        mut description: String,
        host: HostNetwork,
        queues: Vec<AfXdp>,
        company: Option<Company>,
    ) -> Result<Parts, OpenError> {
        let (mut ios, mut port) = (Vec::new(), host.port()?);
        if let Some(first) = queues.first() {
            let native = if first.native() { "native XDP" } else { "generic XDP" };
            let copies = if first.zero_copy() { "zero-copy" } else { "copy mode" };
            let plural = if queues.len() == 1 { "queue" } else { "queues" };
            let advice = first.zero_copy_advice().map(|what| format!("; for zero-copy: {what}")).unwrap_or_default();
            let chunks = first.chunks_advice().map(|what| format!("; {what}")).unwrap_or_default();
            description += &format!(" ({native}, {copies}, {} {plural}{advice}{chunks})", queues.len());
        }
        let rate = queues.first().and_then(|queue| queue.device().rate).unwrap_or(USUAL_RATE);
        let (of_interface, mut link_mtu) = (port.mtu, host.interface().mtu);
        let multi_buffer = queues.iter().all(AfXdp::multi_buffer);
        for queue in queues {
            let longest = queue.max_frame();
            port.mtu = port.mtu.min(mtu_of(longest).ok_or(OpenError::TooShort(longest))?);
            if longest < queue.device().mtu + ethernet::LEN {
                // Its memory bears less than its MTU.
                link_mtu = link_mtu.min(link_mtu_of(longest));
            }
            ios.push(Box::new(queue) as Io);
        }
        if port.mtu < of_interface && !multi_buffer {
            let (mtu, wanted) = (port.mtu.bytes(), of_interface.bytes());
            description += &format!(", path MTU {mtu} instead of {wanted}: for that AF_XDP needs Linux 6.6");
        }
        let neighbourhood = Neighbourhood::Kernel(Box::new(host));
        Ok(Parts { ios, port, neighbourhood, company, description, rate, link_mtu, own_stack: None })
    }

    /// A device's faults, each queue's own.
    fn with_faults(self, options: &OpenOptions) -> Result<Parts, OpenError> {
        let Some(spec) = &options.fault else { return Ok(self) };
        let faulty = |(i, io): (usize, Io)| {
            let io = Faulty::for_device(io, spec, options.seed.wrapping_add(i as u64))?;
            Ok::<Io, OpenError>(Box::new(io))
        };
        let ios = self.ios.into_iter().enumerate().map(faulty).collect::<Result<_, _>>()?;
        Ok(Parts { ios, ..self })
    }

    /// The stack beside the NIC of one engine. What is no RoCE comes to the first: the others answer nobody.
    fn stack(&self, index: usize) -> Result<Stack, OpenError> {
        let Some(own) = &self.own_stack else { return Ok(Neighbours::new(&self.port).into()) };
        if index > 0 {
            return Ok(Neighbours::answering(self.port.mac, Vec::new()).into());
        }
        let mut random = OsRandom::new()?;
        let seed = u64::from(random.next_u32()) << 32 | u64::from(random.next_u32());
        let neighbours = Neighbours::with_links(&self.port, own.links.clone());
        let stack = Stack::with_streams(neighbours, self.link_mtu as usize, seed);
        Ok(own.vlan.into_iter().fold(stack, Stack::in_vlan))
    }

    /// Splits off the backends.
    fn take_ios(&mut self, bits: u32) -> Result<Vec<Io>, OpenError> {
        Ok(Steering::among(std::mem::take(&mut self.ios), bits)?)
    }

    /// The NIC of one engine among `1 << bits`, and what its queue pairs' numbers say.
    fn nic(&self, index: u32, bits: u32) -> Result<(Nic, Owner), OpenError> {
        let config = NicConfig { port: self.port.clone(), payload: PayloadMode::Real };
        let mut nic = Nic::new(config, Box::new(OsRandom::new()?));
        nic.set_link_mtu(self.link_mtu);
        nic.set_link_rate(self.rate);
        let mut owner = Owner { index, bits };
        if let Some(company) = &self.company {
            nic.share_addresses();
            owner = company.me().owner(index, bits);
        }
        Ok((nic, owner))
    }

    fn open(mut self, mut backup: Option<Parts>, options: &OpenOptions) -> Result<Context, OpenError> {
        let (mut description, rate) = (self.description.clone(), self.rate);
        let events = Arc::new(Events::new(options.on_event.clone())?);
        let control = options
            .backup
            .as_ref()
            .filter(|_| backup.is_some())
            .map(|backup| Control::new(backup.on_change.clone()))
            .transpose()?;
        let count = self.ios.len();
        let bits = count.next_power_of_two().trailing_zeros();
        let mut engines = Vec::new();
        let trace = options.trace.as_deref().map(|path| begin_trace(path, &description)).transpose()?;
        let log = options.log.map(|level| Log::to_stderr(level, format!("softnic[{}]", std::process::id())));
        let trace = Trace::join(trace, log);
        let config = backup::config_of(options)?;
        let mut others = backup.as_mut().map(|backup| backup.take_ios(bits)).transpose()?.into_iter().flatten();
        for (index, io) in self.take_ios(bits)?.into_iter().enumerate() {
            let (nic, owner) = self.nic(index as u32, bits)?;
            let first = DriverPort { number: Nic::WIRE, io, stack: self.stack(index)? };
            let (node, further) = match (&backup, others.next()) {
                (Some(backup), Some(io)) => backup.behind((nic, io), index as u32, bits, config)?,
                _ => (DualNic::single(nic), Vec::new()),
            };
            let mut driver = Driver::with_ports(node, first, further, Some(Nic::LOOPBACK))?;
            if let Some(path) = &options.pcap {
                record(&mut driver, path, index)?;
            }
            if let Some(trace) = &trace {
                let epoch = driver.epoch();
                driver.watch(Box::new(trace.observer("", epoch)));
            }
            engines.push(Arc::new(Engine::new(driver, owner, Arc::clone(&events), control.clone())?));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The program has a thread, and so has its peer, which is often on the same machine.
        let enough = cores >= count + 2;
        let progress = options.progress.unwrap_or(if enough { Progress::Dedicated } else { Progress::Inline });
        let inline = progress == Progress::Inline;
        description += if inline { ", inline progress" } else { ", progress by its own threads" };
        let mode = if inline { Mode::Inline } else { Mode::Dedicated };
        let mut watchers = Vec::new();
        for (i, engine) in engines.iter().enumerate() {
            let cpu = (!options.cpus.is_empty()).then(|| options.cpus[i % options.cpus.len()]);
            watchers.push(Watcher::start(engine, mode, format!("softnic-{i}"), cpu)?);
        }
        let mut around = self.surround(&engines, &events, options, Nic::WIRE)?;
        if let (Some(backup), Some(control)) = (backup, control) {
            description += &format!(", backup {}", backup.description);
            let of_backup = backup.surround(&engines, &events, options, DualNic::BACKUP)?;
            let store = options.backup.as_ref().map(|backup| backup.store.clone()).unwrap_or_default();
            around.failover = Some(Failover::start(control, &engines, &events, of_backup, &store)?);
        }
        Ok(Context::from_inner(Inner::new(engines, watchers, inline, events, around, description, rate)))
    }
}

#[cfg(test)]
mod tests;
