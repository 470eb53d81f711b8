//! Captures that the simulator makes on the spot: what our NICs say to each other, with losses and everything that follows.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use softnic_sim::{Op, Options};
use softnic_wire::PathMtu;

/// Runs a few transfers, writes their captures into `folder` and names them.
pub(super) fn write(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let short = Options { rtt: Duration::from_micros(20), depth: 8, count: 40, ..Options::default() };
    let lossy = |p: &str| format!("loss={p}").parse().map_err(|e| format!("{e}"));
    let runs = [
        ("sim_write", Options { size: 10_001, ..short.clone() }),
        ("sim_send", Options { op: Op::Send, size: 5_003, mtu: PathMtu::B4096, ..short.clone() }),
        ("sim_write_lossy", Options { size: 20_002, faults: lossy("0.02")?, qps: 3, ..short.clone() }),
        // The last packet carries one byte.
        ("sim_write_tail", Options { size: 4097, mtu: PathMtu::B4096, count: 200, ..short.clone() }),
        ("sim_write_tiny", Options { size: 1, count: 200, ..short.clone() }),
        ("sim_read_lossy", Options { op: Op::Read, size: 5_003, faults: lossy("0.03")?, qps: 2, ..short.clone() }),
        ("sim_atomic_lossy", Options { op: Op::Atomic, size: 8, faults: lossy("0.05")?, ..short.clone() }),
        ("sim_send_lossy", Options { op: Op::Send, size: 1, mtu: PathMtu::B256, faults: lossy("0.05")?, ..short }),
    ];
    runs.into_iter()
        .map(|(name, options)| {
            let path = folder.join(format!("{name}.pcap"));
            let file = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let mut out = BufWriter::new(file);
            let report = softnic_sim::run(&options, Some(&mut out), &mut |_| {}).map_err(|e| format!("{name}: {e}"))?;
            out.flush().map_err(|e| format!("{}: {e}", path.display()))?;
            if report.completed != options.count {
                return Err(format!("{name}: {} of {} work requests completed", report.completed, options.count));
            }
            Ok(path)
        })
        .collect()
}
