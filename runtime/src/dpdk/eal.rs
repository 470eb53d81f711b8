//! DPDK's environment, which starts once a process: how its memory is had, and where its words go.

use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::error::DpdkError;
use super::spec::DpdkSpec;
use super::sys;
use crate::locked::lock;

/// Further words for EAL.
const WORDS: &str = "SOFTNIC_DPDK_EAL";
/// With it DPDK says on stderr what it has to say.
const VERBOSE: &str = "SOFTNIC_DPDK_LOG";
/// MiB without huge pages: so many may be used, and are had only when they are. A queue's buffers are 22.
const LEAST_MEMORY: u32 = 512;
const MEMORY_OF_QUEUE: u32 = 24;

/// Where buffers lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// Ordinary pages: virtual devices, and PCI devices behind an IOMMU.
    Ordinary,
    /// Huge pages: PCI devices that know physical addresses only.
    Huge,
}

impl Memory {
    /// What a device needs.
    fn for_device(spec: &DpdkSpec) -> Memory {
        match spec.pci().and_then(kernel_driver).as_deref() {
            Some("vfio-pci") | None => Memory::Ordinary,
            Some(_) => Memory::Huge,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Memory::Ordinary => "no huge pages",
            Memory::Huge => "huge pages",
        }
    }
}

/// The kernel's driver of a PCI device.
pub(super) fn kernel_driver(address: &str) -> Option<String> {
    let link = std::fs::read_link(format!("/sys/bus/pci/devices/{address}/driver")).ok()?;
    Some(link.file_name()?.to_str()?.into())
}

/// Starts DPDK for a device, if it does not run yet.
pub(super) fn start(spec: &DpdkSpec) -> Result<Memory, DpdkError> {
    static STARTED: Mutex<Option<Result<Memory, String>>> = Mutex::new(None);
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    let memory = Memory::for_device(spec);
    // The child of a fork has the memory of its parent's DPDK, and none of its threads.
    let process = PROCESS.load(Ordering::Relaxed);
    if process != 0 && process != std::process::id() {
        return Err(DpdkError::Forked(spec.to_string()));
    }
    let mut started = lock(&STARTED);
    match &*started {
        Some(Ok(other)) if memory == Memory::Huge && *other != memory => {
            Err(DpdkError::Started { device: spec.to_string(), needs: memory.name() })
        }
        Some(Ok(other)) => Ok(*other),
        // It cannot be tried twice.
        Some(Err(why)) => Err(DpdkError::Start(why.clone())),
        None => {
            PROCESS.store(std::process::id(), Ordering::Relaxed);
            let words = words(memory, LEAST_MEMORY.max(128 + MEMORY_OF_QUEUE * spec.queues.unwrap_or(1)));
            let verbose = env::var_os(VERBOSE).is_some();
            // EAL pins its caller to a core, and what that starts inherits it: so it gets a thread of its own, which ends.
            let thread =
                std::thread::Builder::new().name("softnic-dpdk".into()).spawn(move || sys::start(&words, verbose));
            let result =
                thread.and_then(|thread| thread.join().unwrap_or_else(|_| Err(std::io::Error::other("it panicked"))));
            let result = result.map(|()| memory).map_err(|error| error.to_string());
            started.insert(result).clone().map_err(DpdkError::Start)
        }
    }
}

/// EAL's command line.
fn words(memory: Memory, mib: u32) -> Vec<String> {
    let mut words: Vec<String> = ["softnic", "--no-telemetry", "--no-shconf"].map(Into::into).into();
    // No device is taken that was not asked for: of the PCI bus only what is named later.
    words.extend(["--allow", "ffff:1f:1f.7"].map(Into::into));
    words.push(format!("--lcores=0@({})", cores()));
    match memory {
        Memory::Ordinary => {
            words.extend(["--no-huge", "--iova-mode=va", "-m"].map(Into::into));
            words.push(mib.to_string());
        }
        Memory::Huge => words.push("--in-memory".into()),
    }
    let further = env::var(WORDS).unwrap_or_default();
    words.extend(further.split_whitespace().map(Into::into));
    words
}

/// The cores that the process may run on.
fn cores() -> String {
    let all = core_affinity::get_core_ids().unwrap_or_default();
    let ids: Vec<String> = all.iter().map(|core| core.id.to_string()).collect();
    if ids.is_empty() { "0".into() } else { ids.join(",") }
}
