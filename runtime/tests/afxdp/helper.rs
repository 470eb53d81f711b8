//! A process that opens a device and says what came of it.

use std::io::Read;

use softnic_runtime::afxdp::{AfXdp, Options};

use crate::process::{Process, say};

const VARIABLE: &str = "SOFTNIC_TEST_AFXDP_OPEN";

/// Starts it, by the words of `wrapper`; it says `opened with N chunks`, or the error.
pub(crate) fn open_elsewhere(wrapper: &str, interface: &str) -> Process {
    Process::start(wrapper, "helper::opens_a_device_when_told_to", VARIABLE, interface)
}

#[test]
#[ignore = "only as a process of its own that other tests start"]
fn opens_a_device_when_told_to() {
    let Ok(interface) = std::env::var(VARIABLE) else { return };
    let opened = AfXdp::open(&interface, &Options::default());
    let chunks = |queues: &Vec<AfXdp>| format!("opened with {} chunks", queues[0].rx_chunks());
    say(&opened.as_ref().map_or_else(ToString::to_string, chunks));
    // Until whoever started us ends it, or is gone.
    let _ = std::io::stdin().read(&mut [0]);
}
