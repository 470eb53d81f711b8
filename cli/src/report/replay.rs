//! What `softnic replay --json` printed, as a part of a report.

use serde::{Deserialize, Serialize};

/// Differences between a capture and what our NIC sends in its place.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Replay {
    /// The file that it was read from.
    #[serde(default)]
    name: String,
    /// Place of the capture that packet numbers are of.
    #[serde(default)]
    file: Option<usize>,
    verdict: String,
    packets: u64,
    differences: Vec<Difference>,
    allowed: Vec<Allowed>,
    undetermined: Vec<Undetermined>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Difference {
    packet: u64,
    role: String,
    ours: String,
    captured: String,
    why: String,
}

#[derive(Debug, Deserialize, Serialize)]
struct Allowed {
    packet: u64,
    what: String,
}

#[derive(Debug, Deserialize, Serialize)]
struct Undetermined {
    packet: u64,
    why: String,
}

/// Reads one; `file` is the place of the capture that stands before it.
pub(super) fn read(name: &str, text: &str, file: Option<usize>) -> Result<Replay, String> {
    let replay: Replay =
        serde_json::from_str(text).map_err(|e| format!("not what `softnic replay --json` prints: {e}"))?;
    Ok(Replay { name: name.into(), file, ..replay })
}
