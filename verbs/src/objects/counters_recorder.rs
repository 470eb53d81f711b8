//! The counters of the process's NICs in files, which the parent can read after the process has ended.
//!
//! A file contains one line of JSON: `device`, `pid`, `description`, `counters`. It is written when the NIC is closed, when the process
//! exits, and every [`PERIOD`] in between, so that a killed process loses at most the last period.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use softnic_runtime::api::{self, spawn_own};

/// Maximum age of the counters of a killed process.
const PERIOD: Duration = Duration::from_millis(100);

/// Writes the files while this value lives.
pub(crate) struct CountersRecorder {
    files: Arc<Mutex<Vec<CountersFile>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct CountersFile {
    file: File,
    device: String,
    nic: api::Context,
}

impl CountersRecorder {
    /// Starts with the NICs of these devices.
    pub(crate) fn start(
        folder: &Path,
        nics: impl Iterator<Item = (String, api::Context)>,
    ) -> io::Result<CountersRecorder> {
        let made =
            |(device, nic): (String, api::Context)| Ok(CountersFile { file: new_file(folder, &device)?, device, nic });
        let files = Arc::new(Mutex::new(nics.map(made).collect::<io::Result<Vec<_>>>()?));
        let (stop, stopped) = mpsc::channel();
        let ours = Arc::clone(&files);
        let thread = spawn_own("softnic-counts", move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                write(&ours);
            }
        })?;
        let recorder = CountersRecorder { files, stop: Some(stop), thread: Some(thread) };
        recorder.write();
        Ok(recorder)
    }

    /// Writes the current counters.
    pub(crate) fn write(&self) {
        write(&self.files);
    }
}

impl Drop for CountersRecorder {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported by the thread itself.
            let _ = thread.join();
        }
        self.write();
    }
}

/// The name includes the time: a process can open a device more than once, and its number can be reused.
fn new_file(folder: &Path, device: &str) -> io::Result<File> {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let name = format!("{}-{time}-{device}", std::process::id());
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(name))
}

fn write(files: &Mutex<Vec<CountersFile>>) {
    for CountersFile { file, device, nic } in files.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let line = line(device, nic);
        // In one call: a reader, or a kill of the process, leaves either the previous line or the new one. Counters only grow, and so does
        // the line. An error is ignored, because a full disk has no room for a message either.
        let _ = file.write_at(line.as_bytes(), 0);
    }
}

fn line(device: &str, nic: &api::Context) -> String {
    // Descriptions contain names of interfaces and sockets, which may contain any character.
    let description: String =
        nic.description().chars().filter(|c| !c.is_control() && !['"', '\\'].contains(c)).collect();
    let mut line = format!(
        "{{\"device\":\"{device}\",\"pid\":{},\"description\":\"{description}\",\"counters\":{{",
        std::process::id()
    );
    let failover = nic.failover_counters();
    let of_failover = failover.iter().flat_map(api::FailoverCounters::iter);
    for (name, count) in nic.counters().iter().chain(of_failover) {
        let _ = write!(line, "\"{name}\":{count},");
    }
    let _ = writeln!(line, "\"lost_frames\":{}}}}}", nic.lost_frames());
    line
}

#[cfg(test)]
mod tests {
    use softnic_runtime::api::{Context, OpenOptions, Progress};

    use super::*;

    #[test]
    fn the_counters_of_a_nic_are_in_its_file_from_its_opening_until_after_its_end() {
        let folder = std::env::temp_dir().join(format!("softnic-counters-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let options = OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() };
        let nics = Context::open_pair([&options, &options]).unwrap();
        let named = ["softnic0", "softnic1"].map(String::from).into_iter().zip(nics);
        let recorder = CountersRecorder::start(&folder, named).unwrap();
        let texts = || {
            let files = std::fs::read_dir(&folder).unwrap();
            let mut texts: Vec<String> = files.map(|f| std::fs::read_to_string(f.unwrap().path()).unwrap()).collect();
            texts.sort();
            texts
        };
        let before = texts();
        for (text, device) in before.iter().zip(["softnic0", "softnic1"]) {
            let begin = format!("{{\"device\":\"{device}\",\"pid\":{},\"description\":\"mem, end", std::process::id());
            assert!(text.starts_with(&begin) && text.ends_with("\"lost_frames\":0}}\n"), "{text}");
            assert!(text.contains("\"counters\":{\"sent_pkts\":0,"), "{text}");
        }
        drop(recorder);
        assert_eq!((texts(), before.len()), (before, 2));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
