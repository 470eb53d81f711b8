//! A DPDK device: found, opened with its queues, and closed.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use softnic_wire::MacAddr;

use super::eal::{self, Memory};
use super::error::DpdkError;
use super::pci;
use super::queue::Queue;
use super::spec::DpdkSpec;
use super::sys::{self, Pool, Port, PortInfo, PortSetup};
use crate::afxdp::Device;
use crate::io::{GroupFilter, Line, MAX_FRAME};

/// Ring slots of a queue in each direction, if the driver has as many.
const SLOTS: u16 = 1024;
/// Buffers of a queue beyond those in its rings: in per-thread caches, and in use.
const FURTHER: u32 = 2048;
/// How long to wait for the other end of a link: the server of a memif, and a NIC's carrier, which comes up seconds after the start.
const PATIENCE: Duration = Duration::from_secs(3);
const CARRIER: Duration = Duration::from_secs(6);
/// How often to check for it, and how often a memif that lost its server reconnects.
const LOOK: Duration = Duration::from_millis(20);
const AGAIN: Duration = Duration::from_millis(200);
/// Length of an Ethernet header with a tag, which an MTU does not include.
const HEADERS: usize = 18;

/// A DPDK device.
#[derive(Debug)]
pub(crate) struct Dpdk {
    pub(super) port: Port,
    pub(super) pools: Vec<Pool>,
    /// Whether queues have interrupts.
    interrupts: bool,
    info: PortInfo,
    memory: Memory,
    pub(super) max_frame: usize,
}

impl Dpdk {
    /// Opens a device with its queues.
    pub(crate) fn open(spec: &DpdkSpec, queues: u32) -> Result<(Arc<Dpdk>, Vec<Queue>), DpdkError> {
        if let Some(address) = spec.pci() {
            pci::check(address, spec.force)?;
        }
        let needed = MAX_FRAME;
        check_buffers(spec, needed)?;
        check_options(spec)?;
        let memory = eal::start(spec, queues)?;
        sys::enter_thread();
        if let Some(socket) = spec.listens_at() {
            free_socket(spec, socket)?;
        }
        let device = spec.to_string();
        let failed = |error| DpdkError::Attach { device: device.clone(), error };
        let port = Port::attach(&defaults(spec, needed, queues)).map_err(failed)?;
        let opened = Dpdk::configure(spec, port, memory, queues);
        let device = opened?;
        let count = device.pools.len() as u16;
        let device = Arc::new(device);
        let queues = (0..count).map(|n| Queue::new(&device, n).map_err(failed)).collect::<Result<_, _>>()?;
        Ok((device, queues))
    }

    fn configure(spec: &DpdkSpec, port: Port, memory: Memory, wanted: u32) -> Result<Dpdk, DpdkError> {
        let failed = |error| DpdkError::Attach { device: spec.to_string(), error };
        let close = |port: &Port| {
            let _ = port.close(spec.is_memif());
        };
        let info = port.info().inspect_err(|_| close(&port)).map_err(failed)?;
        if wanted > u32::from(info.max_queues) {
            close(&port);
            return Err(DpdkError::Queues { device: spec.to_string(), theirs: info.max_queues, wanted });
        }
        let queues = wanted as u16;
        let (mtu, max_frame) = frames_of(spec, &info);
        let room = room_of(&info.driver());
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let count = u32::from(SLOTS) * 2 + FURTHER;
        let pool = |_| Pool::new(&format!("softnic-{}", POOLS.fetch_add(1, Ordering::Relaxed)), count, room);
        let pools =
            (0..queues).map(pool).collect::<Result<Vec<_>, _>>().inspect_err(|_| close(&port)).map_err(failed)?;
        // vfio has an eventfd for each queue; uio has one for the whole device, which DPDK reads.
        let mut interrupts =
            spec.pci().is_some_and(|address| pci::kernel_driver(address).as_deref() == Some("vfio-pci"));
        let setup = PortSetup { queues, rx_slots: SLOTS, tx_slots: SLOTS, mtu, interrupts: u8::from(interrupts) };
        let start = Instant::now();
        let mut opened = port.open(&setup, &pools);
        while opened.is_err() && spec.memif_socket(false).is_some() && start.elapsed() < PATIENCE {
            std::thread::sleep(AGAIN);
            opened = port.open(&setup, &pools);
        }
        if opened.is_err() && interrupts {
            // Some drivers have no interrupts.
            interrupts = false;
            opened = port.open(&PortSetup { interrupts: 0, ..setup }, &pools);
        }
        opened.inspect_err(|_| close(&port)).map_err(|error| match spec.memif_socket(false) {
            Some(socket) => DpdkError::NoServer { device: spec.to_string(), socket: socket.into(), error },
            None => failed(error),
        })?;
        interrupts &= port.interrupt_fd(0).is_some();
        // Until `take_groups` names the groups.
        let _ = port.take_all_multicast();
        let patience = match () {
            () if info.is_pci() => CARRIER,
            () if spec.memif_socket(false).is_some() => PATIENCE,
            // Its peer may connect at any time.
            () => Duration::ZERO,
        };
        let start = Instant::now();
        while !port.is_up() && start.elapsed() < patience {
            std::thread::sleep(LOOK);
        }
        let info = port.info().unwrap_or(info);
        Ok(Dpdk { port, pools, interrupts, info, memory, max_frame })
    }

    /// The device's MAC address.
    pub(crate) fn mac(&self) -> MacAddr {
        MacAddr(self.info.mac)
    }

    /// The link rate in bit/s, if the driver knows it.
    pub(crate) fn rate(&self) -> Option<u64> {
        Some(u64::from(self.info.speed) * 1_000_000).filter(|&rate| rate > 0)
    }

    pub(super) fn has_interrupts(&self) -> bool {
        self.interrupts
    }

    /// A description for the user.
    pub(crate) fn description(&self) -> String {
        let sleep = if self.interrupts { "interrupts" } else { "naps" };
        let (queues, plural) = (self.pools.len(), if self.pools.len() == 1 { "queue" } else { "queues" });
        format!("driver {}, {}, {queues} {plural}, {sleep}", self.info.driver(), self.memory.name())
    }
}

impl GroupFilter for Dpdk {
    fn take_groups(&self, groups: &[MacAddr]) {
        sys::enter_thread();
        let mut macs: Vec<[u8; 6]> = groups.iter().map(|mac| mac.0).collect();
        // A device without a filter, or with too short a one, receives all groups.
        let _ = self.port.take_groups(&mut macs);
    }
}

/// The link of a device.
pub(crate) struct DpdkLine {
    device: Arc<Dpdk>,
    /// The device listens, and no peer has connected yet. The link counts as up, because programs check their port before they wait for a peer.
    awaits_first: bool,
    /// The driver connects to its peer when the device is started, and does not reconnect.
    connects: bool,
    next_try: Instant,
}

impl DpdkLine {
    pub(crate) fn new(device: &Arc<Dpdk>, spec: &DpdkSpec) -> DpdkLine {
        let connects = spec.memif_socket(false).is_some();
        let awaits_first = spec.listens_at().is_some();
        DpdkLine { device: Arc::clone(device), awaits_first, connects, next_try: Instant::now() + AGAIN }
    }
}

impl Line for DpdkLine {
    fn look(&mut self) -> bool {
        let up = self.device.port.is_up();
        if !up && self.connects && Instant::now() >= self.next_try {
            sys::enter_thread();
            // The peer may be back.
            let _ = self.device.port.restart();
            self.next_try = Instant::now() + AGAIN;
        }
        self.awaits_first &= !up;
        up || self.awaits_first
    }
}

/// Removes the socket of a server that has ended, which would block the next server. A socket with a listener is an error here, before the
/// driver of vhost could fail on it: that driver would remove the socket.
fn free_socket(spec: &DpdkSpec, socket: &str) -> Result<(), DpdkError> {
    match UnixStream::connect(socket) {
        Ok(_) => Err(DpdkError::Taken { device: spec.to_string(), socket: socket.into() }),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = fs::remove_file(socket);
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        sys::enter_thread();
        // Every queue holds the device, so no queue is polled any more. Memory that a driver leaks is freed with the process.
        let _ = self.port.close(self.info.driver() == "net_memif");
    }
}

/// Rejects buffers shorter than a frame: the driver would split the frame, or lose it.
fn check_buffers(spec: &DpdkSpec, needed: usize) -> Result<(), DpdkError> {
    let option = match spec.virtual_driver() {
        Some("net_memif") => "bsize",
        Some("net_af_packet") => "framesz",
        _ => return Ok(()),
    };
    match spec.option(option).and_then(|value| value.parse::<usize>().ok()) {
        Some(value) if value < needed => {
            Err(DpdkError::ShortBuffer { device: spec.to_string(), option, least: needed })
        }
        _ => Ok(()),
    }
}

/// Rejects unknown options: the memif driver would ignore all options if it did not know one.
fn check_options(spec: &DpdkSpec) -> Result<(), DpdkError> {
    const KNOWN: [&str; 11] = [
        "bsize",
        "id",
        "mac",
        "owner-gid",
        "owner-uid",
        "role",
        "rsize",
        "secret",
        "socket",
        "socket-abstract",
        "zero-copy",
    ];
    let keys = spec.devargs.split(',').skip(1).map(|word| word.split('=').next().unwrap_or(word));
    match keys.filter(|_| spec.is_memif()).find(|key| !KNOWN.contains(key)) {
        Some(key) => {
            let known = format!("{}, and of softnic ip, gw, vlan, mtu, queues and tap", KNOWN.join(", "));
            Err(DpdkError::Option { device: spec.to_string(), option: key.into(), known })
        }
        None => Ok(()),
    }
}

/// The device arguments, completed with options that softnic needs and the user left out.
fn defaults(spec: &DpdkSpec, needed: usize, queues: u32) -> String {
    let mut words = spec.devargs.clone();
    let size = needed.next_power_of_two();
    let missing: &[(&str, String)] = match spec.virtual_driver() {
        Some("net_memif") => &[("bsize", size.to_string()), ("socket-abstract", "no".into())],
        Some("net_af_packet") => &[
            ("framesz", size.to_string()),
            ("blocksz", size.to_string()),
            ("framecnt", "512".into()),
            ("qpairs", queues.to_string()),
        ],
        Some("net_af_xdp") => &[("queue_count", queues.to_string())],
        Some("net_virtio_user") => &[("queues", queues.to_string())],
        Some("net_vhost") => &[("queues", queues.to_string())],
        _ => &[],
    };
    for (key, value) in missing.iter().filter(|(key, _)| spec.option(key).is_none()) {
        words += &format!(",{key}={value}");
    }
    words
}

/// The MTU to set, 0 for none, and the longest frame.
fn frames_of(spec: &DpdkSpec, info: &PortInfo) -> (u16, usize) {
    // Virtual drivers report lengths that they do not support, and have no MTU to set.
    let Some(driver) = spec.virtual_driver() else {
        let longest = if info.max_mtu == 0 { u16::MAX } else { info.max_mtu };
        let wanted = spec.mtu.unwrap_or((MAX_FRAME - HEADERS) as u16).min(longest);
        return (wanted, (usize::from(wanted) + HEADERS).min(MAX_FRAME));
    };
    let longest = match driver {
        // A chunk of 4096 bytes less the room that the kernel and DPDK reserve before and behind a frame.
        "net_af_xdp" => mtu_of_interface(spec, info).min(3500 - HEADERS) + HEADERS,
        "net_af_packet" => mtu_of_interface(spec, info) + HEADERS,
        "net_tap" => usize::from(info.mtu) + HEADERS,
        _ => MAX_FRAME,
    };
    let asked = spec.mtu.map_or(MAX_FRAME, |mtu| usize::from(mtu) + HEADERS);
    (0, longest.min(asked).min(MAX_FRAME))
}

/// The MTU of the underlying interface, which drivers on interfaces of the kernel do not query.
fn mtu_of_interface(spec: &DpdkSpec, info: &PortInfo) -> usize {
    let interface = spec.option("iface").and_then(|name| Device::find(name).ok());
    interface.map_or(usize::from(info.mtu), |interface| interface.mtu)
}

/// The size of a buffer: a frame must fit in one piece.
fn room_of(driver: &str) -> u16 {
    match driver {
        // The driver uses powers of two.
        "net_e1000_em" => 8192,
        // The size of a ring slot, `framesz`.
        "net_af_packet" => 8192,
        // A page, together with the room that DPDK reserves.
        "net_af_xdp" => 3712,
        // The other drivers count in KiB: a frame of 4170 bytes would not fit 4608.
        _ => 5120,
    }
}
