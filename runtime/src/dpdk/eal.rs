//! DPDK's environment (EAL), which starts once a process: its memory, and its log.

use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::error::DpdkError;
use super::pci::{check_available, check_huge_pages, check_limit, is_behind_iommu};
use super::spec::DpdkSpec;
use super::sys;
use crate::locked::lock;

/// Variable with further arguments for EAL.
const WORDS: &str = "SOFTNIC_DPDK_EAL";
/// Variable that makes DPDK log to stderr.
const VERBOSE: &str = "SOFTNIC_DPDK_LOG";
/// Memory sizes in MiB. Without huge pages they are upper bounds: a page is allocated when it is used. The buffers of a queue take 22.
const LEAST_MEMORY: u32 = 512;
const OF_EAL: u32 = 128;
const HUGE_OF_EAL: u32 = 16;
const MEMORY_OF_QUEUE: u32 = 24;

/// The kind of memory for buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// Ordinary pages: for virtual devices, and PCI devices behind an IOMMU.
    Ordinary,
    /// Huge pages: for PCI devices that use physical addresses.
    Huge,
}

impl Memory {
    /// The kind of memory that a device needs.
    fn for_device(spec: &DpdkSpec) -> Memory {
        match spec.pci() {
            Some(address) if !is_behind_iommu(address) => Memory::Huge,
            _ => Memory::Ordinary,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Memory::Ordinary => "no huge pages",
            Memory::Huge => "huge pages",
        }
    }
}

/// Starts DPDK for a device with this number of queues, unless DPDK runs already.
pub(super) fn start(spec: &DpdkSpec, queues: u32) -> Result<Memory, DpdkError> {
    static STARTED: Mutex<Option<Result<Memory, String>>> = Mutex::new(None);
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    let memory = Memory::for_device(spec);
    // A forked child has the memory of its parent's DPDK, but none of its threads.
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
        // EAL cannot be started twice.
        Some(Err(why)) => Err(DpdkError::Start(why.clone())),
        None => {
            PROCESS.store(std::process::id(), Ordering::Relaxed);
            let needed = mib_of(spec, queues);
            match memory {
                Memory::Huge => check_huge_pages(&spec.to_string(), needed - OF_EAL + HUGE_OF_EAL)?,
                Memory::Ordinary if spec.pci().is_some() => {
                    check_limit(&spec.to_string(), needed)?;
                    check_available(&spec.to_string(), needed, queues)?;
                }
                Memory::Ordinary => {}
            }
            let words = words(memory, needed);
            let verbose = env::var_os(VERBOSE).is_some();
            // EAL pins its caller to a core, and threads that the caller starts inherit this. So EAL starts on a thread of its own, which ends.
            let thread =
                std::thread::Builder::new().name("softnic-dpdk".into()).spawn(move || sys::start(&words, verbose));
            let result =
                thread.and_then(|thread| thread.join().unwrap_or_else(|_| Err(std::io::Error::other("it panicked"))));
            let result = result.map(|()| memory).map_err(|error| error.to_string());
            started.insert(result).clone().map_err(DpdkError::Start)
        }
    }
}

/// MiB of memory without huge pages. All memory that a NIC behind an IOMMU may access is locked, used or not.
fn mib_of(spec: &DpdkSpec, queues: u32) -> u32 {
    let needed = OF_EAL + MEMORY_OF_QUEUE * queues;
    if spec.pci().is_some() { needed } else { needed.max(LEAST_MEMORY) }
}

/// EAL's command line.
fn words(memory: Memory, mib: u32) -> Vec<String> {
    let mut words: Vec<String> = ["softnic", "--no-telemetry", "--no-shconf"].map(Into::into).into();
    // EAL must not take devices that were not requested: on the PCI bus only those named later.
    words.extend(["--allow", "ffff:1f:1f.7"].map(Into::into));
    words.push(format!("--lcores=0@({})", cores()));
    match memory {
        Memory::Ordinary => {
            words.extend(["--no-huge", "--iova-mode=va", "-m"].map(Into::into));
            words.push(mib.to_string());
        }
        Memory::Huge => words.extend(["--in-memory", "--iova-mode=pa"].map(Into::into)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_memory_for_each_queue_however_their_number_was_said() {
        let mib = |device: &str, queues| mib_of(&device.parse().unwrap(), queues);
        assert_eq!(mib("0000:01:00.0,ip=10.0.0.1/24", 4), OF_EAL + 4 * MEMORY_OF_QUEUE);
        assert_eq!(mib("net_null0,ip=10.0.0.1/24", 4), LEAST_MEMORY);
        assert_eq!(mib("net_null0,ip=10.0.0.1/24", 64), OF_EAL + 64 * MEMORY_OF_QUEUE);
    }
}
