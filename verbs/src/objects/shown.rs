//! The files that show what a device does: its capture and its trace.

use std::path::{Path, PathBuf};

use crate::fork::Generation;

/// The file of a device in this process: in a folder one for each, `PID-softnic0.pcap`. The child of a fork must not empty that of its parent:
/// it has `FILE.PID`.
pub(super) fn file_of(wanted: &Path, device: usize, extension: &str) -> PathBuf {
    file_in(wanted, device, extension, Generation::current().is_child(), std::process::id())
}

fn file_in(wanted: &Path, device: usize, extension: &str, is_child: bool, pid: u32) -> PathBuf {
    if wanted.is_dir() {
        return wanted.join(format!("{pid}-softnic{device}.{extension}"));
    }
    let mut name = wanted.as_os_str().to_owned();
    if is_child {
        name.push(format!(".{pid}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_folder_each_process_and_device_has_a_file() {
        let folder = std::env::temp_dir();
        assert_eq!(file_in(&folder, 1, "pcap", false, 7), folder.join("7-softnic1.pcap"));
        assert_eq!(file_in(&folder, 0, "qlog", true, 8), folder.join("8-softnic0.qlog"));
        let file = folder.join("no-such-folder.pcap");
        assert_eq!(file_in(&file, 1, "pcap", false, 7), file);
        assert_eq!(file_in(&file, 1, "pcap", true, 8), folder.join("no-such-folder.pcap.8"));
    }
}
