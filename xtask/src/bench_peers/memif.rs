//! The same over a memif of DPDK's: softnic with that feature, and testpmd, DPDK's own program, which writes no payload.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::pair::{End, Pair};

/// How long a process of testpmd takes to begin, beside the time that it is measured for.
const BEGIN: Duration = Duration::from_secs(2);
/// What an RC WRITE packet has around its payload, without the FCS: Ethernet, IPv4, UDP, BTH, RETH, ICRC.
const HEADERS: usize = 14 + 20 + 8 + 12 + 16 + 4;

/// The folder of the sockets; gone when it is dropped.
pub(super) struct Memif(PathBuf);

impl Memif {
    pub(super) fn new() -> Result<Memif, String> {
        let folder = std::env::temp_dir().join(format!("softnic-race-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Memif(folder))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// softnic's device at an end: on a subnet of its own, so that the two meet by the veth pair.
    pub(super) fn device(&self, end: End) -> String {
        let (role, address) = role(end);
        format!("dpdk:net_memif0,role={role},socket={},ip={address}/24", self.path("softnic"))
    }

    /// What testpmd carries of frames with so many bytes of payload, in Gbit/s of it.
    pub(super) fn testpmd(&self, pair: &Pair, payload: usize, seconds: f64) -> Result<f64, String> {
        let _ = fs::remove_file(self.path("testpmd"));
        let printed = self.path("printed");
        let out = File::create(&printed).map_err(|e| format!("{printed}: {e}"))?;
        let length = format!("--txpkts={}", payload + HEADERS);
        let receiver = self.start(pair, End::Server, &["--forward-mode=rxonly"], Stdio::from(out))?;
        std::thread::sleep(BEGIN);
        let sender = self.start(pair, End::Client, &["--forward-mode=txonly", &length], Stdio::null())?;
        std::thread::sleep(BEGIN + Duration::from_secs_f64(seconds.max(1.0)));
        drop((sender, receiver));
        let text = fs::read_to_string(&printed).unwrap_or_default();
        let frames = most_received(&text).ok_or_else(|| format!("testpmd received nothing: {}", last_line(&text)))?;
        Ok(frames * (payload * 8) as f64 / 1e9)
    }

    fn start(&self, pair: &Pair, end: End, how: &[&str], out: Stdio) -> Result<Process, String> {
        let (role, _) = role(end);
        let cores = format!("--lcores=0@{core},1@{core}", core = end.core());
        let device =
            format!("--vdev=net_memif0,role={role},socket={},bsize=8192,socket-abstract=no", self.path("testpmd"));
        let prefix = format!("--file-prefix=softnic-{role}");
        let eal = ["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--no-shconf", &prefix, &cores, &device];
        // The length of frames is checked against that of buffers where it stands.
        let first = ["--mbuf-size=8448", "--total-num-mbufs=16384"];
        let rest = ["--stats-period=1", "--auto-start", "--no-mlockall"];
        let words = [&["dpdk-testpmd"], &eal[..], &["--"], &first, how, &rest].concat();
        let started = pair.command(end, &words).stdout(out).stderr(Stdio::null()).spawn();
        started.map(Process).map_err(|e| format!("dpdk-testpmd: {e}"))
    }
}

impl Drop for Memif {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that runs until nobody needs it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The receiver listens.
fn role(end: End) -> (&'static str, &'static str) {
    match end {
        End::Server => ("server", "10.78.0.2"),
        End::Client => ("client", "10.78.0.1"),
    }
}

/// Frames a second in the best of the seconds that testpmd printed: in some of them nobody sent, or not all the time.
fn most_received(text: &str) -> Option<f64> {
    let rates = text.lines().filter_map(|line| line.trim().strip_prefix("Rx-pps:"));
    let rates = rates.filter_map(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    rates.filter(|&rate| rate > 0.0).reduce(f64::max)
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_testpmd_is_its_best_second() {
        let second = |rate| format!("  Throughput (since last show)\n  Rx-pps:  {rate}  Rx-bps:  77\n  Tx-pps: 9\n");
        let text = [second("0"), second("4546653"), second("1200")].concat();
        assert_eq!(most_received(&text), Some(4_546_653.0));
        assert_eq!(most_received(&second("0")), None);
    }
}
