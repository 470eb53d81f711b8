//! Finds the process that uses a device, by the XDP program links that processes hold.

use std::fmt;
use std::path::Path;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process ID.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
}

impl Holder {
    /// The process in this network namespace that holds the link of an XDP program at the interface with this index. Only processes that
    /// this process may inspect are found.
    pub(super) fn of(ifindex: u32) -> Option<Holder> {
        let here = std::fs::read_link("/proc/thread-self/ns/net").ok()?;
        let pids = std::fs::read_dir("/proc").ok()?.flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find_map(|pid: u32| {
            let process = Path::new("/proc").join(pid.to_string());
            let there = std::fs::read_link(process.join("ns/net")).ok()?;
            if there != here && pid != std::process::id() {
                return None;
            }
            let descriptors = std::fs::read_dir(process.join("fdinfo")).ok()?.flatten();
            let mut texts = descriptors.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
            texts.find(|text| is_link_at(text, ifindex))?;
            let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
            // The process chooses its own name, and the name is printed to a terminal, so it is escaped.
            Some(Holder { pid, name: name.trim_end().escape_default().to_string() })
        })
    }
}

/// Whether the kernel's description of a descriptor is about an XDP program link at the interface.
fn is_link_at(text: &str, ifindex: u32) -> bool {
    let field = |name: &str| {
        let of_name = |line: &str| {
            line.split_once(':').filter(|&(key, _)| key == name).map(|(_, value)| value.trim().to_string())
        };
        text.lines().find_map(of_name)
    };
    field("link_type").as_deref() == Some("xdp") && field("ifindex").and_then(|n| n.parse().ok()) == Some(ifindex)
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_of_an_xdp_program_is_known_by_its_interface() {
        let text =
            "pos:\t0\nflags:\t02000000\nlink_type:\txdp\nlink_id:\t4\nprog_tag:\t3b185187f1855c4c\nifindex:\t7\n";
        assert!(is_link_at(text, 7) && !is_link_at(text, 8));
        assert!(!is_link_at(&text.replace("xdp", "netfilter"), 7) && !is_link_at("pos:\t0\n", 7));
    }
}
