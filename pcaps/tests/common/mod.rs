//! What tests of whole captures share: where they lie, and their frames.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use softnic_pcaps::{LinkType, Reader, Timestamp};

/// A frame that outlives its reader.
#[derive(Debug, Clone)]
#[allow(dead_code)] // not every test looks at all of it
pub(crate) struct Owned {
    pub(crate) number: u64,
    pub(crate) time: Timestamp,
    pub(crate) data: Vec<u8>,
    pub(crate) original_len: u32,
}

/// The folder of our own captures.
pub(crate) fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The captures in a folder, in order of their names.
pub(crate) fn captures_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let all = entries.map(|e| e.unwrap().path());
    let mut files: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "pcap" || e == "pcapng")).collect();
    files.sort();
    files
}

/// All frames of a capture of Ethernet.
pub(crate) fn frames(path: &Path) -> Vec<Owned> {
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let mut out = Vec::new();
    while let Some(f) = reader.next_frame().unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
        assert_eq!(f.link, LinkType::Ethernet, "{}", path.display());
        out.push(Owned { number: f.number, time: f.time, data: f.data.to_vec(), original_len: f.original_len });
    }
    out
}
