//! NICs and wires of the whole machine: those of other network namespaces are asked from within these, which root may do.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use softnic_runtime::api::RunningNic;

use super::status::Status;

/// The number of a file of a namespace is that of the namespace.
const OWN: &str = "/proc/self/ns/net";

/// All of one process, or of all.
pub(super) fn ask(pid: Option<u32>) -> Result<Vec<Status>, String> {
    let mut all = ask_here(0, pid)?;
    for (number, file) in others() {
        // Who may not enter it sees nothing of it.
        all.extend(within(&file, move || ask_here(number, pid)).and_then(Result::ok).unwrap_or_default());
    }
    Ok(all)
}

fn ask_here(namespace: u64, pid: Option<u32>) -> Result<Vec<Status>, String> {
    let all = RunningNic::all().map_err(|e| format!("cannot read which NICs run: {e}"))?;
    let wanted = all.into_iter().filter(|nic| pid.is_none_or(|pid| pid == nic.pid));
    // Others' answer nobody else, and some end while they are asked.
    let said = wanted.filter_map(|nic| serde_json::from_str(&nic.ask().ok()?).ok());
    Ok(said.filter_map(|said| Status::of(namespace, &said)).collect())
}

/// Does something in a namespace that a process is in, or here.
pub(super) fn enter<T: Send>(namespace: u64, work: impl FnOnce() -> T + Send) -> Option<T> {
    match namespace {
        0 => Some(work()),
        _ => within(&others().remove(&namespace)?, work),
    }
}

/// The namespaces of other processes, by their numbers.
fn others() -> BTreeMap<u64, File> {
    let mut found = BTreeMap::new();
    let Ok(own) = fs::metadata(OWN) else { return found };
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if !process.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let path = process.path().join("ns/net");
        // Processes end, and those of other users are closed to most.
        let Ok(number) = fs::metadata(&path).map(|file| file.ino()) else { continue };
        if number != own.ino() && !found.contains_key(&number) {
            found.extend(File::open(&path).ok().map(|file| (number, file)));
        }
    }
    found
}

/// Does something in a thread that is in a namespace; `None` if it may not be there.
fn within<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let entered = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
            Some(work())
        });
        entered.join().ok().flatten()
    })
}
