//! An archive in the format that the kernel unpacks at boot: cpio, "newc".

use std::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

/// An archive as it grows.
#[derive(Default)]
pub(super) struct Cpio {
    bytes: Vec<u8>,
    inode: u32,
    names: BTreeSet<String>,
}

impl Cpio {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        self.inode += 1;
        let fields = [
            self.inode,
            mode,
            0, // root
            0,
            1, // links
            0, // 1970
            data.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad(4);
        self.bytes.extend(data);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    /// A folder with those above it.
    pub(super) fn folder(&mut self, name: &str) {
        for (end, _) in name.match_indices('/').chain([(name.len(), "")]) {
            if end > 0 {
                self.entry(&name[..end], DIRECTORY | 0o755, (0, 0), &[]);
            }
        }
    }

    fn parents(&mut self, name: &str) {
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.folder(folder);
        }
    }

    /// A file; whoever comes first under a name stays.
    pub(super) fn file(&mut self, name: &str, data: &[u8], executable: bool) {
        self.parents(name);
        self.entry(name, REGULAR | if executable { 0o755 } else { 0o644 }, (0, 0), data);
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, name: &str, to: &str) {
        self.parents(name);
        self.entry(name, LINK | 0o777, (0, 0), to.as_bytes());
    }

    /// A character device.
    pub(super) fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.parents(name);
        self.entry(name, CHARACTER | 0o600, (major, minor), &[]);
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.pad(512);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_byte_by_byte() {
        let mut a = Cpio::default();
        a.file("a/b", b"hello", true);
        a.file("a/b", b"another", false);
        let bytes = a.finish();
        let entry = |inode: u32, mode: u32, size: u32, name: &str| {
            let head = format!("070701{inode:08X}{mode:08X}{0:08X}{0:08X}{1:08X}{0:08X}{size:08X}", 0, 1);
            format!("{head}{0:08X}{0:08X}{0:08X}{0:08X}{1:08X}{0:08X}{name}\0", 0, name.len() + 1).into_bytes()
        };
        let pad = |mut e: Vec<u8>| {
            e.resize(e.len().next_multiple_of(4), 0);
            e
        };
        let folder = pad(entry(1, 0o040_755, 0, "a"));
        let file = [pad(entry(2, 0o100_755, 5, "a/b")), pad(b"hello".to_vec())].concat();
        let expected = [folder, file, pad(entry(3, 0, 0, "TRAILER!!!"))].concat();
        assert_eq!(bytes[..expected.len()], expected);
        assert_eq!((bytes.len() % 512, bytes[expected.len()..].iter().all(|&b| b == 0)), (0, true));
    }
}
