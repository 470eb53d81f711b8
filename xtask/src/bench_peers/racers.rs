//! Who races: the programs at both ends, and the one number that each run is about.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use softnic_conformance::programs::build_one;

use super::memif::Memif;
use super::pair::{End, Pair, SERVER};

/// Bytes of a message where bandwidth is measured, and of one where latency is.
const MESSAGE: &str = "65536";
const PING: &str = "64";
/// Messages that softnic has outstanding.
const DEPTH: &str = "16";
const PINGS: &str = "10000";
const UDP_PORT: &str = "18600";
const UCX_PORT: &str = "18601";
/// How long a server may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one run measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Race {
    Raw,
    Softnic,
    /// perftest on softnic, through the library for verbs programs.
    Perftest,
    Ucx,
    Udp,
    RawLatency,
    SoftnicLatency,
    /// The same as perftest goes about it.
    SoftnicLatencyWaiting,
    PerftestLatency,
    UcxLatency,
    UdpLatency,
    /// Over a memif from here on: DPDK's own program, with frames of an ordinary length and of 64 bytes.
    Testpmd,
    TestpmdSmall,
    MemifRaw,
    MemifRawSmall,
    MemifSoftnic,
    MemifRawLatency,
    MemifSoftnicLatency,
    /// On emulated PCI NICs from here on.
    IgbDpdk,
    IgbAfxdp,
    IgbRxe,
    IgbDpdkLatency,
    IgbAfxdpLatency,
    IgbRxeLatency,
}

impl Race {
    /// Those of the race over a veth pair.
    pub(super) const VETH: [Race; 11] = [
        Race::Raw,
        Race::Softnic,
        Race::Perftest,
        Race::Ucx,
        Race::Udp,
        Race::RawLatency,
        Race::SoftnicLatency,
        Race::SoftnicLatencyWaiting,
        Race::PerftestLatency,
        Race::UcxLatency,
        Race::UdpLatency,
    ];

    /// Those of the race over a memif, with what it is held against.
    pub(super) const DPDK: [Race; 11] = [
        Race::Raw,
        Race::Softnic,
        Race::Testpmd,
        Race::MemifRaw,
        Race::MemifSoftnic,
        Race::TestpmdSmall,
        Race::MemifRawSmall,
        Race::RawLatency,
        Race::SoftnicLatency,
        Race::MemifRawLatency,
        Race::MemifSoftnicLatency,
    ];

    /// Those of the race on emulated PCI NICs.
    pub(super) const IGB: [Race; 6] =
        [Race::IgbDpdk, Race::IgbAfxdp, Race::IgbRxe, Race::IgbDpdkLatency, Race::IgbAfxdpLatency, Race::IgbRxeLatency];

    /// Which command it is, for the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Race::Raw => "`softnic perf raw`",
            Race::Softnic => "`softnic perf write_bw`",
            Race::Perftest => "`softnic run -- ib_write_bw`",
            Race::Ucx => "`ucx_perftest -t ucp_put_bw`, TCP",
            Race::Udp => "UDP, sendmmsg and recvmmsg",
            Race::RawLatency => "`softnic perf raw_lat`",
            Race::SoftnicLatency => "`softnic perf write_lat`",
            Race::SoftnicLatencyWaiting => "`softnic perf write_lat --wait-completion`",
            Race::PerftestLatency => "`softnic run -- ib_write_lat`",
            Race::UcxLatency => "`ucx_perftest -t ucp_put_lat`, TCP",
            Race::UdpLatency => "UDP, polled",
            Race::Testpmd => "`dpdk-testpmd` over memif",
            Race::TestpmdSmall => "`dpdk-testpmd` over memif, 64 bytes",
            Race::MemifRaw => "`softnic perf raw` over memif",
            Race::MemifRawSmall => "`softnic perf raw` over memif, 64 bytes",
            Race::MemifSoftnic => "`softnic perf write_bw` over memif",
            Race::MemifRawLatency => "`softnic perf raw_lat` over memif",
            Race::MemifSoftnicLatency => "`softnic perf write_lat` over memif",
            Race::IgbDpdk => "`softnic perf write_bw`, DPDK on igb",
            Race::IgbAfxdp => "`softnic perf write_bw`, AF_XDP on igb",
            Race::IgbRxe => "`ib_write_bw`, Linux Soft-RoCE on igb",
            Race::IgbDpdkLatency => "`softnic perf write_lat`, DPDK on igb",
            Race::IgbAfxdpLatency => "`softnic perf write_lat`, AF_XDP on igb",
            Race::IgbRxeLatency => "`ib_write_lat`, Linux Soft-RoCE on igb",
        }
    }

    pub(super) fn is_latency(self) -> bool {
        match self {
            Race::Raw | Race::Softnic | Race::Perftest | Race::Ucx | Race::Udp => false,
            Race::Testpmd | Race::TestpmdSmall | Race::MemifRaw | Race::MemifRawSmall | Race::MemifSoftnic => false,
            Race::RawLatency | Race::SoftnicLatency | Race::SoftnicLatencyWaiting | Race::PerftestLatency => true,
            Race::UcxLatency | Race::UdpLatency | Race::MemifRawLatency | Race::MemifSoftnicLatency => true,
            Race::IgbDpdk | Race::IgbAfxdp | Race::IgbRxe => false,
            Race::IgbDpdkLatency | Race::IgbAfxdpLatency | Race::IgbRxeLatency => true,
        }
    }
}

/// The programs that were built here.
pub(super) struct Programs {
    softnic: PathBuf,
    udp: PathBuf,
    /// Where DPDK takes part.
    memif: Option<Memif>,
}

impl Programs {
    /// Builds them as they are packaged.
    pub(super) fn build() -> Result<Programs, String> {
        let udp = ["build", "--profile", "dist", "--locked", "-p", "softnic-benches", "--example", "udp_race"];
        // The library lies beside softnic.
        let both = ["build", "--profile", "dist", "--locked", "-p", "softnic", "-p", "softnic-verbs"];
        Ok(Programs { softnic: build_one("softnic", &both)?, udp: build_one("udp_race", &udp)?, memif: None })
    }

    /// The same for the race over a memif: softnic alone, with DPDK.
    pub(super) fn with_dpdk() -> Result<Programs, String> {
        let softnic = ["build", "--profile", "dist", "--locked", "-p", "softnic", "--features", "dpdk"];
        let memif = Some(Memif::new()?);
        Ok(Programs { softnic: build_one("softnic", &softnic)?, udp: PathBuf::new(), memif })
    }

    /// The program softnic.
    pub(super) fn softnic(&self) -> &Path {
        &self.softnic
    }

    /// All that race.
    pub(super) fn races(&self) -> &'static [Race] {
        if self.memif.is_some() { &Race::DPDK } else { &Race::VETH }
    }

    /// One run: Gbit/s of payload, or microseconds.
    pub(super) fn run(&self, race: Race, pair: &Pair, seconds: f64) -> Result<f64, String> {
        let (path_mtu, payload) = if pair.mtu < 4200 { ("1024", 1024) } else { ("4096", 4096) };
        let duration = format!("{seconds}s");
        let raw = ["raw", "--size", path_mtu, "--duration", &duration];
        let small = ["raw", "--size", PING, "--duration", &duration];
        let write = ["write_bw", "--size", MESSAGE, "--mtu", path_mtu, "--depth", DEPTH, "--duration", &duration];
        let raw_ping = ["raw_lat", "--size", PING, "--iters", PINGS];
        let ping = ["write_lat", "--size", PING, "--iters", PINGS];
        match race {
            Race::Raw => self.over_veth(pair, &raw),
            Race::Softnic => self.over_veth(pair, &write),
            Race::RawLatency => self.over_veth(pair, &raw_ping),
            Race::SoftnicLatency => self.over_veth(pair, &ping),
            Race::SoftnicLatencyWaiting => {
                self.over_veth(pair, &["write_lat", "--wait-completion", "--size", PING, "--iters", PINGS])
            }
            Race::Testpmd => self.memif()?.testpmd(pair, payload, seconds),
            Race::TestpmdSmall => self.memif()?.testpmd(pair, 64, seconds),
            Race::MemifRaw => self.over_memif(pair, &raw),
            Race::MemifRawSmall => self.over_memif(pair, &small),
            Race::MemifSoftnic => self.over_memif(pair, &write),
            Race::MemifRawLatency => self.over_memif(pair, &raw_ping),
            Race::MemifSoftnicLatency => self.over_memif(pair, &ping),
            Race::Perftest => {
                // It knows whole seconds only: about as many messages as the others send.
                let count = (seconds * 20_000.0).max(500.0) as u32;
                let words = ["ib_write_bw", "-s", MESSAGE, "-m", path_mtu, "-t", DEPTH, "-n", &count.to_string()];
                // MB of 2^20 bytes a second, on average.
                Ok(self.perftest(pair, &words, 3)? * 1_048_576.0 * 8.0 / 1e9)
            }
            Race::PerftestLatency => self.perftest(pair, &["ib_write_lat", "-s", PING, "-n", PINGS], 4),
            Race::Udp => self.udp(pair, "count", &["bandwidth", path_mtu, &seconds.to_string()], "gbps"),
            Race::UdpLatency => self.udp(pair, "echo", &["latency", PING, PINGS], "us"),
            Race::Ucx => {
                // It knows no duration: about as many messages as the others send.
                let count = (seconds * 12_000.0).max(500.0) as u32;
                let mib = ucx(pair, "ucp_put_bw", MESSAGE, &count.to_string())?.overall_mib;
                Ok(mib * 1_048_576.0 * 8.0 / 1e9)
            }
            Race::UcxLatency => Ok(ucx(pair, "ucp_put_lat", PING, PINGS)?.median_us),
            Race::IgbDpdk
            | Race::IgbAfxdp
            | Race::IgbRxe
            | Race::IgbDpdkLatency
            | Race::IgbAfxdpLatency
            | Race::IgbRxeLatency => Err("it races in the guest".into()),
        }
    }

    fn memif(&self) -> Result<&Memif, String> {
        self.memif.as_ref().ok_or_else(|| "built without DPDK".into())
    }

    fn over_veth(&self, pair: &Pair, what: &[&str]) -> Result<f64, String> {
        self.perf(pair, what, |end| format!("afxdp:{}", end.interface()))
    }

    fn over_memif(&self, pair: &Pair, what: &[&str]) -> Result<f64, String> {
        let memif = self.memif()?;
        self.perf(pair, what, |end| memif.device(end))
    }

    fn perf(&self, pair: &Pair, what: &[&str], device: impl Fn(End) -> String) -> Result<f64, String> {
        let program = self.softnic.to_string_lossy();
        let mut server = pair.command(End::Server, &[&program, "perf", "--server", "--dev", &device(End::Server)]);
        let server = Server::start(server.stdout(Stdio::null()).stderr(Stdio::piped()), "waiting")?;
        let device = device(End::Client);
        let words = [&[&program, "perf"], what, &["--connect", SERVER, "--dev", &device, "--json"]].concat();
        let line = output(&mut pair.command(End::Client, &words))?;
        server.end()?;
        number(&line, &["/bw_avg_gbps", "/lat_us/typical"])
    }

    /// A number of perftest's only line of figures, by its column.
    fn perftest(&self, pair: &Pair, words: &[&str], column: usize) -> Result<f64, String> {
        let program = self.softnic.to_string_lossy();
        let command = |end: End, server: &[&str]| {
            let device = format!("afxdp:{}", end.interface());
            pair.command(end, &[&[&program, "run", "--dev", &device, "--"], words, server].concat())
        };
        let mut server = command(End::Server, &[]);
        let server = Server::start(server.stdout(Stdio::null()).stderr(Stdio::null()), "")?;
        let text = output_again(|| command(End::Client, &[SERVER]))?;
        server.end()?;
        perftest_line(&text, column).ok_or_else(|| format!("{} said nothing that is known: {text}", words[0]))
    }

    fn udp(&self, pair: &Pair, serve: &str, what: &[&str], key: &str) -> Result<f64, String> {
        let program = self.udp.to_string_lossy();
        let mut server = pair.command(End::Server, &[&program, serve, UDP_PORT]);
        let server = Server::start(server.stdout(Stdio::piped()), "ready")?;
        let to = format!("{SERVER}:{UDP_PORT}");
        let words = [&[&program, what[0], &to], &what[1..]].concat();
        let line = output(&mut pair.command(End::Client, &words))?;
        server.end()?;
        number(&line, &[&format!("/{key}")])
    }
}

/// The line of figures that `ucx_perftest -f` ends with.
struct UcxLine {
    median_us: f64,
    overall_mib: f64,
}

fn ucx(pair: &Pair, test: &str, bytes: &str, count: &str) -> Result<UcxLine, String> {
    let env = |end: End| ["env".to_string(), "UCX_TLS=tcp".into(), format!("UCX_NET_DEVICES={}", end.interface())];
    let command = |end: End, words: &[&str]| {
        let env = env(end);
        let all: Vec<&str> = env.iter().map(String::as_str).chain(words.iter().copied()).collect();
        pair.command(end, &all)
    };
    let mut server = command(End::Server, &["ucx_perftest", "-p", UCX_PORT]);
    // Nothing tells when it listens; a client that comes too early is refused, and comes again.
    let server = Server::start(server.stdout(Stdio::null()).stderr(Stdio::null()), "")?;
    let words = ["ucx_perftest", SERVER, "-p", UCX_PORT, "-t", test, "-s", bytes, "-n", count, "-w", "100", "-f"];
    let text = output_again(|| command(End::Client, &words))?;
    server.end()?;
    ucx_line(&text).ok_or_else(|| format!("ucx_perftest said nothing that is known: {text}"))
}

/// Iterations, then microseconds (median, average, overall), MB/s (average, overall), messages a second.
fn ucx_line(text: &str) -> Option<UcxLine> {
    let numbers = text
        .lines()
        .rev()
        .map(|line| -> Option<Vec<f64>> { line.split_whitespace().map(|word| word.parse().ok()).collect() });
    let numbers = numbers.flatten().find(|numbers| numbers.len() == 8)?;
    Some(UcxLine { median_us: numbers[1], overall_mib: numbers[5] })
}

/// What a command printed on stdout.
fn output(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let output = command.stderr(Stdio::piped()).output().map_err(|e| format!("{shown}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{shown}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// The same of a client that is refused while its server is not ready.
fn output_again(mut command: impl FnMut() -> Command) -> Result<String, String> {
    let begin = Instant::now();
    loop {
        match output(&mut command()) {
            Ok(text) => return Ok(text),
            Err(why) if begin.elapsed() > PATIENCE => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The line of perftest that is all numbers.
fn perftest_line(text: &str, column: usize) -> Option<f64> {
    let numbers = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    text.lines().filter_map(numbers).find(|numbers| numbers.len() > column)?.get(column).copied()
}

/// The number at the first of these places in a line of JSON.
fn number(line: &str, places: &[&str]) -> Result<f64, String> {
    let json: Value = serde_json::from_str(line).map_err(|e| format!("{e} in {line}"))?;
    let found = places.iter().find_map(|place| json.pointer(place)?.as_f64());
    found.ok_or_else(|| format!("{} is not in {line}", places.join(" or ")))
}

/// A process that serves one client.
struct Server(Child);

impl Server {
    /// Starts it, and waits for a line with this sign on the stream that is piped, if one is.
    fn start(command: &mut Command, sign: &str) -> Result<Server, String> {
        let shown = format!("{command:?}");
        let mut server = Server(command.spawn().map_err(|e| format!("{shown}: {e}"))?);
        let stdout = server.0.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>);
        let stderr = server.0.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>);
        let Some(stream) = stdout.or(stderr) else { return Ok(server) };
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let mut said = String::new();
        for line in lines.by_ref() {
            if line.contains(sign) {
                // What it says later nobody needs, but somebody must take it.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(server);
            }
            said = line;
        }
        Err(format!("{shown}: {said}"))
    }

    /// It ends by itself when its client is done.
    fn end(mut self) -> Result<(), String> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Ok(Some(_)) = self.0.try_wait() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("a server does not end although its client did".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_ucx_are_found_below_its_frame() {
        let text = "+---+\n|  Test  | # iterations |\n+---+\n        20000   0.324   83.138   79.426   751.76   786.90   12028   12590\n";
        let line = ucx_line(text).unwrap();
        assert_eq!((line.median_us, line.overall_mib), (0.324, 786.9));
        assert!(ucx_line("nothing").is_none());
    }

    #[test]
    fn the_figures_of_perftest_are_found_between_its_lines() {
        let text =
            "-----\n #bytes #iterations BW peak BW average MsgRate\n 65536  1000  1884.04  785.19  0.012563\n-----\n";
        assert_eq!(perftest_line(text, 3), Some(785.19));
        assert_eq!(perftest_line("-----\n", 3), None);
    }

    #[test]
    fn a_number_is_taken_from_where_it_is() {
        assert_eq!(number(r#"{"lat_us":{"typical":2.5}}"#, &["/bw_avg_gbps", "/lat_us/typical"]), Ok(2.5));
        assert!(number(r#"{"a":1}"#, &["/b"]).is_err());
    }
}
