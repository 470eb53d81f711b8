//! `SOFTNIC_SEEN`: a record of this process's actions, in a memory-mapped file, so that neither a crash nor SIGKILL loses any of it.
//!
//! `softnic_explore::record` has the format. A record is written without a lock and without allocation: a thread takes the next slot and
//! writes the words of the record there, the first word last. Threads wait for each other only when the file must grow. The child of a fork
//! has its own file. Nothing here runs if the variable is not set.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use softnic_explore::record::{COUNT_AT, EXTENSION, HEADER, MOST, Process, RECORD, Record, Seen, header};
use softnic_runtime::api::PacketName;
use softnic_runtime::api::call_faults::{Applied, Verb};

use crate::environment::seen;
use crate::fork;
use crate::identity;
use crate::message::warn;
use crate::per_process::PerProcess;

/// Number of records by which the file grows: half a mebibyte.
const STEP: u64 = 1 << 14;

/// The folder, if records are requested.
fn wanted() -> Option<&'static PathBuf> {
    static WANTED: OnceLock<Option<PathBuf>> = OnceLock::new();
    // The program may change its working directory.
    WANTED.get_or_init(|| seen().map(|path| std::path::absolute(&path).unwrap_or(path))).as_ref()
}

/// Whether this process is recorded.
pub(crate) fn is_wanted() -> bool {
    wanted().is_some()
}

/// The recorder of a process.
#[derive(Default)]
struct OfProcess {
    recorder: OnceLock<Option<Recorder>>,
    has_polled: AtomicBool,
}

static OF_PROCESS: PerProcess<OfProcess> = PerProcess::new();

/// Records an action.
fn record(seen: Seen) {
    let Some(folder) = wanted() else { return };
    let begin = || {
        fork::watch();
        let recorder = Recorder::begin(folder);
        recorder.inspect_err(|e| warn(format_args!("cannot record in {}: {e}", folder.display()))).ok()
    };
    if let Some(recorder) = OF_PROCESS.get().recorder.get_or_init(begin) {
        recorder.add(seen);
    }
}

/// The program calls a verb, for this queue pair by its place in the order of creation.
pub(crate) fn call(verb: Verb, qp: u32, wr_ids: &[u64]) {
    // The number of empty polls differs in every run.
    if verb == Verb::PollCq && OF_PROCESS.get().has_polled.swap(true, Ordering::Relaxed) {
        return;
    }
    let work_requests = wr_ids.len().min(u16::MAX.into()) as u16;
    record(Seen::Call { verb, qp, wr_id: wr_ids.first().copied().unwrap_or(0), work_requests });
}

/// Records anything but a call or a packet.
pub(crate) fn other(seen: Seen) {
    record(seen);
}

/// A rule of the script was applied.
pub(crate) fn applied(applied: Applied) {
    record(Seen::Applied(applied));
}

/// A device sends a packet.
pub(crate) fn packet(device: usize, name: PacketName, len: usize) {
    record(Seen::Packet {
        device: device as u8,
        destination: name.destination,
        opcode: name.opcode.0,
        psn: name.psn,
        iteration: name.iteration.min(u16::MAX.into()) as u16,
        len: len.min(u16::MAX.into()) as u16,
    });
}

/// A file that is mapped up to its maximum length.
struct Recorder {
    base: NonNull<c_void>,
    path: PathBuf,
    /// The time of its first record.
    started: Instant,
    /// Number of records for which the file has room.
    room: AtomicU64,
    /// Whether the file cannot grow; locked by the thread that extends it.
    growing: Mutex<bool>,
}

// SAFETY: the memory is a mapping that is never removed, and is written only by atomics.
unsafe impl Send for Recorder {}
// SAFETY: as for `Send` above.
unsafe impl Sync for Recorder {}

impl Recorder {
    /// Creates a file in a folder.
    fn begin(folder: &Path) -> io::Result<Recorder> {
        let name = identity::name();
        let pid = std::process::id();
        let (file, path) = create(folder, pid)?;
        file.write_all_at(&header(&Process { pid, label: name.label.clone(), ordinal: name.ordinal }), 0)?;
        let (protection, len) = (libc::PROT_READ | libc::PROT_WRITE, HEADER + MOST * RECORD);
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at any free address.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Recorder { base, path, started: Instant::now(), room: AtomicU64::new(0), growing: Mutex::new(false) })
    }

    /// A word of the file.
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at < HEADER + MOST * RECORD);
        // SAFETY: the word is inside the mapping, which starts at a page boundary; a caller that accesses a record has checked that the
        // file is long enough.
        unsafe { self.base.cast::<u8>().add(at).cast::<AtomicU64>().as_ref() }
    }

    fn add(&self, seen: Seen) {
        let at = self.started.elapsed().as_nanos() as u64;
        let place = self.word(COUNT_AT).fetch_add(1, Ordering::Relaxed);
        if place >= MOST as u64 || (place >= self.room.load(Ordering::Acquire) && !self.grow(place)) {
            return;
        }
        let [first, rest @ ..] = Record { at, seen }.words();
        let begin = HEADER + place as usize * RECORD;
        for (word, n) in rest.into_iter().zip(1..) {
            self.word(begin + 8 * n).store(word, Ordering::Relaxed);
        }
        self.word(begin).store(first, Ordering::Release);
    }

    /// Extends the file until it contains this slot. Disk space is allocated now, because a write to unallocated memory on a full disk ends
    /// the process.
    #[cold]
    fn grow(&self, place: u64) -> bool {
        let mut has_failed = self.growing.lock().unwrap_or_else(|p| p.into_inner());
        loop {
            let room = self.room.load(Ordering::Acquire);
            if place < room {
                return true;
            }
            if *has_failed {
                return false;
            }
            match grow(&self.path, room) {
                Ok(()) => self.room.store(room + STEP, Ordering::Release),
                Err(e) => {
                    *has_failed = true;
                    warn(format_args!("cannot record in {}: {e}", self.path.display()));
                }
            }
        }
    }
}

/// The file of a process; another name if an earlier program of the same process has left one.
fn create(folder: &Path, pid: u32) -> io::Result<(File, PathBuf)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    for n in 1.. {
        let path = folder.join(if n == 1 { format!("{pid}.{EXTENSION}") } else { format!("{pid}.{n}.{EXTENSION}") });
        match options.open(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            file => return Ok((file?, path)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Extends the file by one step. The file is opened every time, because a program may close descriptors that it does not know.
fn grow(path: &Path, room: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let (at, len) = (HEADER as u64 + room * RECORD as u64, STEP * RECORD as u64);
    // SAFETY: the descriptor is open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), at as libc::off_t, len as libc::off_t) } {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

#[cfg(test)]
mod tests {
    use softnic_explore::record::read;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("softnic-seen-{}-{name}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn threads_write_side_by_side_and_no_record_is_lost_or_torn() {
        let folder = scratch("threads");
        let recorder = Recorder::begin(&folder).unwrap();
        let each = STEP as u32; // so that the file is extended
        std::thread::scope(|scope| {
            for qp in 1..=4 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for number in 0..each {
                        recorder.add(Seen::Connected { qp, number, destination: number ^ qp });
                    }
                });
            }
        });
        let file = read(&std::fs::read(&recorder.path).unwrap()).unwrap();
        assert_eq!((file.records.len(), file.lost), (4 * each as usize, 0));
        let mut next = [0; 5];
        for record in file.records {
            let Seen::Connected { qp, number, destination } = record.seen else { panic!("{record:?}") };
            assert_eq!((number, destination), (next[qp as usize], number ^ qp), "each thread's are in their order");
            next[qp as usize] += 1;
        }
        assert_eq!((file.process.pid, file.process.ordinal), (std::process::id(), identity::name().ordinal));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_no_place_is_left_for_is_counted_and_a_program_behind_another_has_its_own_file() {
        let folder = scratch("full");
        let recorder = Recorder::begin(&folder).unwrap();
        recorder.add(Seen::CmEvent(1));
        recorder.word(COUNT_AT).store(MOST as u64 - 1, Ordering::Relaxed);
        (2..5).for_each(|event| recorder.add(Seen::CmEvent(event)));
        let file = read(&std::fs::read(&recorder.path).unwrap()).unwrap();
        let seen: Vec<_> = file.records.iter().map(|record| record.seen).collect();
        assert_eq!((seen, file.lost), (vec![Seen::CmEvent(1), Seen::CmEvent(2)], 2));
        let other = Recorder::begin(&folder).unwrap();
        assert_eq!(other.path, folder.join(format!("{}.2.seen", std::process::id())));
        assert_eq!(read(&std::fs::read(&other.path).unwrap()).unwrap().records, []);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_cannot_grow_keeps_what_it_has() {
        let folder = scratch("stuck");
        let recorder = Recorder::begin(&folder).unwrap();
        (0..STEP).for_each(|_| recorder.add(Seen::CmEvent(1)));
        let kept = folder.join("kept");
        std::fs::rename(&recorder.path, &kept).unwrap();
        (0..3).for_each(|_| recorder.add(Seen::CmEvent(2)));
        let file = read(&std::fs::read(&kept).unwrap()).unwrap();
        assert_eq!((file.records.len(), file.lost), (STEP as usize, 3));
        assert!(Recorder::begin(&folder.join("none")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
