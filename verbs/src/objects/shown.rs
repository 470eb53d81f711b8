//! The files for observing a device: its capture and its trace.

use std::path::{Path, PathBuf};

use crate::fork::Generation;
use crate::identity::is_restarted;

/// The file of a device in this process: in a folder, one for each device, `PID-softnic0.pcap`. The child of a fork must not truncate its
/// parent's file, so it uses `FILE.PID`. A process restarted by a fault must not truncate its earlier file, so it uses `PID.2`.
pub(super) fn file_of(wanted: &Path, device: usize, extension: &str) -> PathBuf {
    let (pid, is_restarted) = (std::process::id(), is_restarted());
    let process = if is_restarted { format!("{pid}.2") } else { pid.to_string() };
    file_in(wanted, device, extension, Generation::current().is_child() || is_restarted, &process)
}

fn file_in(wanted: &Path, device: usize, extension: &str, is_another: bool, process: &str) -> PathBuf {
    if wanted.is_dir() {
        return wanted.join(format!("{process}-softnic{device}.{extension}"));
    }
    let mut name = wanted.as_os_str().to_owned();
    if is_another {
        name.push(format!(".{process}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_folder_each_process_and_device_has_a_file() {
        let folder = std::env::temp_dir();
        assert_eq!(file_in(&folder, 1, "pcap", false, "7"), folder.join("7-softnic1.pcap"));
        assert_eq!(file_in(&folder, 0, "qlog", true, "8.2"), folder.join("8.2-softnic0.qlog"));
        let file = folder.join("no-such-folder.pcap");
        assert_eq!(file_in(&file, 1, "pcap", false, "7"), file);
        assert_eq!(file_in(&file, 1, "pcap", true, "8"), folder.join("no-such-folder.pcap.8"));
    }
}
