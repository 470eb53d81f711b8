//! `softnic sim`: a transfer between two NICs in virtual time.

mod report;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use softnic_fault_injector::{Spec, units};
use softnic_perf::options::mtu_arg;
use softnic_perf::{say, stop};
use softnic_sim::{Backup, Cc, Fallback, Op, Options, Scheme, SdrOptions, SimError, Transport, UNITS};
use softnic_trace::{Log, Trace};
use softnic_transports::qp::PayloadMode;
use softnic_transports::sr;
use softnic_wire::PathMtu;

use crate::Common;
use crate::sdr::{SdrArgs, Spoken, check_alpha, check_fallback};

/// Run a transfer between two NICs in virtual time: exact, repeatable, no network needed
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic sim --size 1M --count 400 --depth 128 --rtt 40ms --fault loss=1e-4 --seed 7
  softnic sim --op send --size 4K --count 100000 --pcap run.pcap --json
  softnic sim --size 64K --count 2 --pcap - | softnic inspect -
  softnic sim --transport ud --size 512 --count 100000 --fault loss=0.01,reorder=0.001:3
  softnic sim --op read --size 8K --count 1 --fault @lost-response.toml --pcap run.pcap
  softnic sim --rate 400Gbit --rtt 25ms --mtu 4096 --size 1G --count 8 --payload none
  softnic sim --size 64K --depth 2 --rtt 100us --fault rate=5Gbit,queue=200K,ecn=50K:150K:0.1,ba.loss=0.01
  softnic sim --transport sdr --chunk 16K --rtt 25ms --fault loss=1e-3 --json
  softnic sim --auth --size 64K --fault loss=1e-3,dup=1e-3 --json
  softnic sim --cc dcqcn --qps 4 --depth 4 --rtt 20us --timeout 10 --fault ab.rate=5Gbit,ab.queue=2M,ab.ecn=5K:200K:0.01
  softnic sim --backup --probe 2ms --rtt 50us --size 64K --count 2000 --fault down=20ms+30ms
  softnic sim --topology docs/topologies/dumbbell.toml
  softnic sim --topology docs/topologies/dumbbell.toml --pcap run.pcapng --pcap-link s0-s1

A script names packets and what happens to them; docs/faults.md has all keys. lost-response.toml:
  [[event]]
  action = \"drop\"                            # or duplicate, corrupt, reorder, ecn, delay
  direction = \"ba\"                           # from the responder to the requester
  opcode = \"RC_RDMA_READ_RESPONSE_MIDDLE\"    # as softnic inspect prints it
  nth = 2                                    # the second of them

The same options and seed give the same run, event for event: compare the digests.")]
pub(crate) struct Args {
    #[arg(long, default_value = "rc", help = transport_help(), help_heading = "What is sent")]
    transport: Spoken,
    /// What the work requests do; uc has write and send, ud send, xp no atomic [default: write; with ud: send]
    #[arg(long, value_enum, help_heading = "What is sent")]
    op: Option<OpArg>,
    /// Bytes of each work request [default: 1M; a datagram fills the MTU; an atomic is always of 8]
    #[arg(long, value_parser = size_arg, help_heading = "What is sent")]
    size: Option<u32>,
    /// Work requests in all, shared evenly among the queue pairs
    #[arg(long, default_value = "100", value_parser = units::parse_count, help_heading = "What is sent")]
    count: u64,
    /// Work requests outstanding on each queue pair
    #[arg(long, default_value_t = 16, help_heading = "What is sent")]
    depth: u32,
    /// Queue pairs
    #[arg(long, default_value_t = 1, help_heading = "What is sent")]
    qps: u32,
    /// Time that each message has from when it is posted: xp completes it then, with what has come
    #[arg(long, value_name = "T", value_parser = units::parse_time, help_heading = "What is sent")]
    deadline: Option<Duration>,
    /// Blocks that each packet of xp has a part of, a power of two: a lost packet costs each of them a little
    #[arg(long, value_name = "S", default_value_t = 1, help_heading = "What is sent")]
    stride: u16,
    #[command(flatten)]
    sdr: SdrArgs,
    /// What queues may add to a round trip, as a part of it: a chunk of sdr-sr is sent again after RTT + A · RTT [default: 2]
    #[arg(long, value_name = "A", help_heading = "What is sent")]
    alpha: Option<f64>,
    /// What the receiver of sdr-ec or sdr-xor asks for where parity did not repair all: missing (chunks), submessages (all their chunks), or
    /// rows (further ones of parity, of sdr-ec alone) [default: missing]
    #[arg(long, value_name = "WHAT", help_heading = "What is sent")]
    fallback: Option<Fallback>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(long, default_value = "1024", value_parser = mtu_arg, help_heading = "What is sent")]
    mtu: PathMtu,
    /// Line rate, everything on the wire counted
    #[arg(long, default_value = "10Gbit", value_parser = units::parse_rate, help_heading = "The link")]
    rate: u64,
    /// Round-trip time, half of it each way
    #[arg(long, default_value = "1ms", value_parser = units::parse_time, help_heading = "The link")]
    rtt: Duration,
    /// What goes wrong on the link, in both directions independently, separated by commas: loss=P, burst=P:P:LEN, dup=P,
    /// corrupt=P, reorder=P:N (held until N later frames have passed), delay=T, jitter=T, rate=R, queue=SIZE, ecn=MIN:MAX:P,
    /// down=FROM+FOR, stall=FROM+FOR (held, and let go at the end), @FILE (a script of targeted events). ab. or ba.
    /// before a key: from the requester, or to it, alone
    #[arg(long, default_value = "", value_name = "SPEC", hide_default_value = true, help_heading = "The link")]
    fault: Faults,
    /// Each host has a second NIC, with a link of its own like the first: connections of rc, sr and lowar go on by it when the first one
    /// fails, and return (SHIFT)
    #[arg(long, help_heading = "The link")]
    backup: bool,
    /// What goes wrong on the link of the second NICs, as --fault has it
    #[arg(
        long,
        default_value = "",
        value_name = "SPEC",
        hide_default_value = true,
        requires = "backup",
        help_heading = "The link"
    )]
    backup_fault: Faults,
    /// Time between two probes of the first link, while the second is used [default: 100ms]
    #[arg(long, value_name = "T", value_parser = units::parse_time, requires = "backup", help_heading = "The link")]
    probe: Option<Duration>,
    /// Run the flows of a network of hosts and switches instead, as a TOML file describes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["transport", "cc", "op", "size", "count", "depth", "qps", "mtu",
        "rate", "rtt", "timeout", "chunk", "channels", "generations", "split", "alpha", "fallback", "retry", "fault", "backup", "backup_fault", "probe", "payload", "auth", "deadline", "stride"], help_heading = "Networks and captures")]
    topology: Option<String>,
    /// Write every frame that leaves a NIC to a capture, with - to stdout, and then the results to stderr; of a --topology, every frame of every link, as pcapng with an interface
    /// for each link
    #[arg(long, value_name = "FILE", help_heading = "Networks and captures")]
    pcap: Option<String>,
    /// Write all that happens to the queue pairs of both hosts as a trace (qlog): packets, losses and why, windows, states
    #[arg(long, value_name = "FILE", conflicts_with = "topology", help_heading = "Networks and captures")]
    trace: Option<PathBuf>,
    /// Capture one link of the --topology alone, named by its two ends, as in h0-s0
    #[arg(long, value_name = "LINK", requires_all = ["pcap", "topology"], help_heading = "Networks and captures")]
    pcap_link: Option<String>,
    /// What decides how much and how fast each queue pair sends: none; window, no more outstanding than a
    /// receiver in software has room for; dcqcn, with settings as in dcqcn:ai=5Mbit,timer=300us (ai, hai,
    /// timer, alpha-timer, bytes, g, f, floor, burst); swift, by round trips, with settings as in swift:base=50us; eqds,
    /// by credit of the receiver, for rc, sr and xp, as in eqds:spec=64K; or a rate on the wire and, if you like, bytes of payload in flight, as in
    /// fixed:2Gbit or fixed:2Gbit:256K
    #[arg(long, default_value = "none", value_parser = cc_arg, value_name = "none|window|dcqcn|swift|eqds|fixed:RATE", help_heading = "Tuning")]
    cc: Cc,
    /// Authenticate every packet of rc, sr or lowar, by a secret that is drawn from the seed
    #[arg(long, help_heading = "Tuning")]
    auth: bool,
    /// Local ACK timeout: 4.096 µs · 2^N, 0 for none [default: the smallest of at least 4 round trips]
    #[arg(long, value_name = "N", help_heading = "Tuning")]
    timeout: Option<u8>,
    /// Retries after timeouts and sequence NAKs
    #[arg(long, default_value_t = 7, value_name = "N", help_heading = "Tuning")]
    retry: u8,
    /// Whether frames carry their payload: with none, far less memory and time; data is not checked then
    #[arg(long, default_value = "real", value_enum, help_heading = "Tuning")]
    payload: PayloadArg,
}

/// A SPEC, and the words that it was given in.
#[derive(Debug, Clone)]
struct Faults {
    spec: Spec,
    text: String,
}

impl std::str::FromStr for Faults {
    type Err = <Spec as std::str::FromStr>::Err;

    fn from_str(s: &str) -> Result<Faults, Self::Err> {
        Ok(Faults { spec: s.parse()?, text: s.to_owned() })
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum OpArg {
    Write,
    Send,
    Read,
    Atomic,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PayloadArg {
    Real,
    None,
}

fn transport_help() -> String {
    format!(
        "The transport of both ends:\n{}\nNobody acknowledges what uc and ud send: what completes there is what arrives, and each message \
         carries its number as immediate data, by which the receiver knows it",
        Spoken::help_with_schemes()
    )
}

fn size_arg(s: &str) -> Result<u32, String> {
    match units::parse_size(s)? {
        n if n <= 1 << 31 => Ok(n as u32),
        _ => Err(format!("'{s}' is more than a message can be: 2G")),
    }
}

fn cc_arg(s: &str) -> Result<Cc, String> {
    Cc::parse(s, &UNITS).map_err(|e| e.to_string())
}

impl Args {
    /// What the queue pairs of sdr are made with.
    fn sdr_options(&self, scheme: Option<Scheme>) -> SdrOptions {
        let (usual, SdrArgs { chunk, channels, generations, split }) = (SdrOptions::default(), self.sdr);
        SdrOptions {
            chunk,
            channels: channels.unwrap_or(usual.channels),
            generations: generations.unwrap_or(usual.generations),
            split: split.unwrap_or(usual.split),
            scheme,
            alpha: self.alpha.unwrap_or(usual.alpha),
            fallback: self.fallback.unwrap_or_default(),
        }
    }

    fn options(&self, seed: u64) -> Options {
        let (transport, sdr) = match self.transport {
            Spoken::Transport(transport) => (transport, None),
            Spoken::Sdr => (Transport::Uc, Some(self.sdr_options(None))),
            Spoken::Reliable(scheme) => (Transport::Uc, Some(self.sdr_options(Some(scheme)))),
        };
        let datagrams = !transport.kind().is_connected();
        let op = match self.op {
            None if datagrams => Op::Send,
            None | Some(OpArg::Write) => Op::Write,
            Some(OpArg::Send) => Op::Send,
            Some(OpArg::Read) => Op::Read,
            Some(OpArg::Atomic) => Op::Atomic,
        };
        Options {
            transport,
            cc: self.cc,
            op,
            size: self.size.unwrap_or(match op {
                Op::Atomic => 8,
                _ if datagrams => self.mtu.bytes(),
                _ => 1 << 20,
            }),
            count: self.count,
            depth: self.depth,
            qps: self.qps,
            mtu: self.mtu,
            rate: self.rate,
            rtt: self.rtt,
            timeout: self.timeout,
            retry: self.retry,
            faults: self.fault.spec.clone(),
            payload: match self.payload {
                PayloadArg::Real => PayloadMode::Real,
                PayloadArg::None => PayloadMode::Elided,
            },
            deadline: self.deadline,
            stride: self.stride,
            sdr,
            auth: self.auth,
            backup: self.backup.then(|| Backup {
                faults: self.backup_fault.spec.clone(),
                probe: self.probe.unwrap_or(Backup::default().probe),
            }),
            outages: Vec::new(),
            seed,
        }
    }
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    args.sdr.check(Some(args.transport))?;
    check_alpha(args.alpha, args.transport)?;
    check_fallback(args.fallback, args.transport)?;
    if let Some(file) = &args.topology {
        let capture = args.pcap.as_deref().map(|path| (path, args.pcap_link.as_deref()));
        return crate::topology::run(file, capture, common);
    }
    let options = args.options(common.seed);
    let bar = progress_bar(options.count);
    stop::install();
    let mut tell = |done| {
        bar.set_position(done);
        !stop::requested()
    };
    // With the capture on stdout, the results go to stderr.
    let piped = args.pcap.as_deref() == Some("-");
    let log = crate::log_level()?.map(|level| Log::to_stderr(level, "sim"));
    let trace = Trace::join(args.trace.as_deref().map(begin_trace).transpose()?, log);
    let report = match &args.pcap {
        None => softnic_sim::run_traced(&options, None, trace.as_ref(), &mut tell),
        Some(path) => {
            let file: Box<dyn Write> = match piped {
                true => Box::new(io::stdout()),
                false => Box::new(File::create(path).map_err(|e| format!("cannot write the capture {path}: {e}"))?),
            };
            let mut out = BufWriter::with_capacity(1 << 20, file);
            softnic_sim::run_traced(&options, Some(&mut out), trace.as_ref(), &mut tell)
                .and_then(|r| out.flush().map(|()| r).map_err(SimError::Capture))
        }
    };
    bar.finish_and_clear();
    if let (Some(path), Some(trace)) = (&args.trace, &trace) {
        trace.flush().map_err(|e| format!("cannot write the trace {}: {e}", path.display()))?;
    }
    let report = report.map_err(|e| match (e, &args.pcap) {
        (SimError::Capture(e), Some(path)) => format!("cannot write the capture {path}: {e}"),
        (e, _) => e.to_string(),
    })?;
    let mut out: Box<dyn Write> = if piped { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
    let printed = match common.json {
        true => report::print_json(&mut out, args, &options, &report),
        false => report::print_table(&mut out, args, &options, &report),
    };
    match printed {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(format!("cannot write the output: {e}")),
        _ => {}
    }
    if report.interrupted {
        return Ok(ExitCode::from(stop::EXIT_CODE));
    }
    explain_window(&options);
    // A script that did nothing is more often a mistake than not.
    tell_idle_events("the script", &report.applied_events);
    if let Some(failover) = &report.failover {
        tell_idle_events("the backups' script", &failover.applied_events);
        let unprotected = u64::from(options.qps) - failover.counters.protected;
        if unprotected > 0 {
            say!("softnic: {unprotected} of {} queue pairs did not meet their backups: they ran without", options.qps);
        }
    }
    match report.first_failure {
        None if report.stalled => Err(format!(
            "nothing more happens, with {} of {} work requests done: something was lost, and nobody waits for it",
            report.completed, options.count
        )),
        None => Ok(ExitCode::SUCCESS),
        Some(status) => {
            Err(format!("{} of {} work requests failed, the first with: {status}", report.failed, options.count))
        }
    }
}

fn tell_idle_events(script: &str, applied: &[u64]) {
    for (i, _) in applied.iter().enumerate().filter(|(_, n)| **n == 0) {
        say!("softnic: event {} of {script} was for no packet of this run", i + 1);
    }
}

fn begin_trace(path: &Path) -> Result<Trace, String> {
    let begun = File::create(path).and_then(|file| Trace::begin(Box::new(BufWriter::new(file)), "softnic sim", false));
    begun.map_err(|e| format!("cannot write the trace {}: {e}", path.display()))
}

/// Says which window of Selective Repeat fills the link, where the default window does not.
fn explain_window(options: &Options) {
    let most = sr::most_in_flight(sr::DEFAULT_WINDOW);
    if options.transport != Transport::SR || !options.is_limited_by(most) {
        return;
    }
    let (holds, wide) = (options.bandwidth_delay(), options.clone().over_wide_sr().transport);
    let fills = holds <= u128::from(sr::most_in_flight(sr::MAX_WINDOW));
    let does = if fills { "fills the link" } else { "comes closest" };
    say!(
        "softnic: the default window of sr has at most {most} packets in flight, and a round trip of this link holds {holds}: \
         --transport {wide} {does}"
    );
}

pub(crate) fn progress_bar(count: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} work requests, {eta} left");
    ProgressBar::new(count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
