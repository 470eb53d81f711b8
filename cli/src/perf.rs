//! `softnic perf`: bandwidth and latency in perftest's columns, in one process or between two.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use softnic_fault_injector::{Spec, units};
use softnic_perf::options::{duration_arg, mtu_arg};
use softnic_perf::session::{self, Setup};
use softnic_perf::{
    Amount, AskedIntervals, Intervals, MAX_DEPTH, MAX_QPS, Measured, Op, Plan, ReliablePlan, SdrPlan, Verb, columns,
    heading, print, say, stop, table, written,
};
use softnic_runtime::api::sdr::{Fallback, Scheme, Split};
use softnic_runtime::api::{self, BackupOptions, DeviceSpec, LinkDown, OpenOptions, Progress, Transport};
use softnic_wire::PathMtu;

use crate::Common;
use crate::backup::FailoverArgs;
use crate::metrics::{Endpoint, EndpointAddress, own_nics, page_of_nics};
use crate::run::given;
use crate::sdr::{SdrArgs, Spoken, check_alpha, check_fallback};

/// Measure bandwidth and latency, in this process or between two machines, in perftest's columns
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic perf                                         # a table of all transports, no set-up, no root
  softnic perf write_bw --size 64K --duration 5
  softnic perf send_lat --transport ud --size 64 --json
  softnic perf write_bw --transport sr --fault loss=1e-2
  softnic perf write_bw --transport lowar:32,1 --fault loss=1e-3
  softnic perf write_bw --cc dcqcn --fault rate=1Gbit,queue=500K,ecn=5K:200K:0.01
  softnic perf send_bw --transport xp --depth 8 --deadline 20ms --verify --fault loss=1e-2
  softnic perf write_bw --transport sdr --size 1M --chunk 16K --fault loss=1e-4
  softnic perf write_bw --transport sdr-ec:32,8 --size 1M --verify --fault loss=1e-2
  softnic perf write_bw --auth softnic.key
  softnic perf send_bw --backup mem --fault down=1s+1s --timeout 8 --duration 4
  softnic perf write_bw -a --verify --fault loss=1e-3
  softnic perf --server --dev afxdp:eth0               # there; serves one client, whatever it asks for
  softnic perf read_bw --connect 10.0.0.2 --dev afxdp:eth0

Latency is half the round trip for write, send and raw, the whole for read and atomic. What uc and ud send counts when it
arrives. raw sends frames as long as RC WRITE packets with --size bytes, without any protocol: the limit to compare with.")]
pub(crate) struct Args {
    /// What to measure; without it, a table of all transports on a wire in memory
    #[arg(value_enum)]
    op: Option<Op>,
    #[arg(long, help = transport_help(), help_heading = "What is sent")]
    transport: Option<Spoken>,
    /// Bytes of a message [default: 64K; latency: 64; a datagram fills the MTU (on a device 1024); raw: 1024; an atomic has 8]
    #[arg(long, short = 's', value_parser = size_arg, help_heading = "What is sent")]
    size: Option<u32>,
    /// All powers of two from 2 bytes to 8M (raw and ud: to the MTU)
    #[arg(long, short = 'a', conflicts_with = "size", help_heading = "What is sent")]
    all_sizes: bool,
    /// Messages of each size [default: 5000, or as many as are 1G, at least 100; latency: 1000; raw: 200000]
    #[arg(long, short = 'n', value_name = "N", value_parser = iters_arg, help_heading = "What is sent")]
    iters: Option<u64>,
    /// How long each size is sent instead: seconds, or a time as in 500ms
    #[arg(long, short = 'D', value_name = "TIME", conflicts_with = "iters", value_parser = duration_arg, help_heading = "What is sent")]
    duration: Option<Duration>,
    /// A line for each interval of this length: seconds, or a time; 0 for none. With --json an array of them [default: 1 second where --duration is
    /// longer]
    #[arg(long, short = 'i', value_name = "TIME", value_parser = interval_arg, help_heading = "What is sent")]
    interval: Option<Duration>,
    /// Queue pairs [default: 1]
    #[arg(long, short = 'q', value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_QPS)), help_heading = "What is sent")]
    qps: Option<u32>,
    /// Work requests outstanding on each queue pair [default: 128]; messages of sdr in flight [default: 16]
    #[arg(long, short = 't', value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEPTH)), help_heading = "What is sent")]
    depth: Option<u32>,
    /// Time that each message of xp has from when it is posted: it ends then, with what has come; at a receiver from its first packet on,
    /// unless the transport says another active=T
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
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the longest that both devices bear; with lowar, whose repair packets need 120
    /// bytes more, and with --auth the longest with which all packets fit]
    #[arg(long, short = 'm', value_parser = |s: &str| mtu_arg(s).map(PathMtu::bytes), help_heading = "What is sent")]
    mtu: Option<u32>,
    /// The device: mem (both ends in this process), shm or shm:NAME (processes of this host), shared:INTERFACE (that `softnic share` serves), afxdp:INTERFACE[,mode=zero-copy|copy|auto][,queues=N][,chunks=N], or dgram:OURS,PEERS,ip=ADDR/LEN[,mac=M]
    #[arg(long, short = 'd', default_value = "mem", value_name = "DEVICE", help_heading = "Devices")]
    dev: DeviceSpec,
    /// A second device, by which connections of rc, sr and lowar go on when the first one fails, or its network, and from which they return
    /// (SHIFT). Of mem: mem. Both ends need one. A WRITE may be carried out twice
    #[arg(long, value_name = "DEVICE", help_heading = "Failover")]
    backup: Option<String>,
    #[command(flatten)]
    failover: FailoverArgs,
    /// Queues of the device that are used, each with an engine of its own [default: all; of mem 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Devices")]
    queues: Option<u32>,
    /// Wait for one client at the TCP port and serve it. What is given here must be what the client asks for
    #[arg(long, conflicts_with = "connect", help_heading = "Devices")]
    server: bool,
    /// Be the client of the server at this address (of the kernel, over which both ends find each other)
    #[arg(long, value_name = "ADDR", help_heading = "Devices")]
    connect: Option<String>,
    /// TCP port of the server
    #[arg(long, default_value_t = 18515, value_name = "N", help_heading = "Devices")]
    port: u16,
    /// What goes wrong on the wire: on mem in both directions, on a device for what this side sends (rx. before a key: receives);
    /// keys as `softnic sim` has them
    #[arg(long, value_name = "SPEC", help_heading = "Faults, data and captures")]
    fault: Option<Spec>,
    /// Compare the data: every message of send, read and atomic, of write the last one in each place of memory (up to 512)
    #[arg(long, help_heading = "Faults, data and captures")]
    verify: bool,
    /// Record this side's frames as a pcap file (on mem the client's)
    #[arg(long, value_name = "FILE", help_heading = "Faults, data and captures")]
    pcap: Option<PathBuf>,
    /// Write all that happens to this side's queue pairs as a trace (qlog; on mem the client's)
    #[arg(long, value_name = "FILE", help_heading = "Faults, data and captures")]
    trace: Option<PathBuf>,
    /// Serve counters for Prometheus at http://ADDR/metrics while it runs: a port of this machine alone, as in 9400, or ADDRESS:PORT
    #[arg(long, value_name = "ADDR", help_heading = "Faults, data and captures")]
    metrics: Option<EndpointAddress>,
    /// What decides how fast connections send, at both ends: window, no more outstanding than a receiver in software has room for; none;
    /// dcqcn, with settings as in dcqcn:ai=5Mbit,timer=300us; swift, by round trips, as in swift:base=1ms;
    /// eqds, by credit of the receiver, for rc, sr and xp, as in eqds:spec=64K; or a rate and, if you like, bytes in flight, as in fixed:2Gbit:256K
    /// [default: window]
    #[arg(long, value_parser = cc_arg, value_name = "window|none|dcqcn|swift|eqds|fixed:RATE", help_heading = "Tuning")]
    cc: Option<String>,
    /// Authenticate every packet by the secret in FILE, 16 to 4096 bytes that nobody but the owner may read: rc, sr and lowar. Both ends need it
    #[arg(long, value_name = "FILE", help_heading = "Tuning")]
    auth: Option<PathBuf>,
    /// Local ACK timeout: 4.096 µs · 2^N, 0 for none [default: 14, 67 ms]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31), help_heading = "Tuning")]
    timeout: Option<u8>,
    /// Retries after timeouts and sequence NAKs [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=7), help_heading = "Tuning")]
    retry: Option<u8>,
    /// Traffic class of what both ends send: 4 · DSCP, as in 104 for DSCP 26; its lower two bits, ECN, are the NIC's own [default: 0]
    #[arg(long, value_name = "N", help_heading = "Tuning")]
    tclass: Option<u8>,
    /// In a ping-pong, wait for the completion of one's own message before the peer's is looked for, as ib_write_lat does
    #[arg(long, help_heading = "Tuning")]
    wait_completion: bool,
    /// Cores to pin to, as in 0,1: with inline progress the threads of the run (on mem client, server), else the NIC's own
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = crate::cores::one, help_heading = "Tuning")]
    cpu: Vec<usize>,
    /// Who moves frames: the threads that poll, or threads of the NIC's own [default: by the number of cores; on mem inline]
    #[arg(long, value_enum, help_heading = "Tuning")]
    progress: Option<ProgressArg>,
}

/// Messages of a run.
const MAX_ITERS: u64 = 1 << 36;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ProgressArg {
    Inline,
    Dedicated,
}

fn iters_arg(s: &str) -> Result<u64, String> {
    match units::parse_count(s)? {
        n @ 1..=MAX_ITERS => Ok(n),
        _ => Err(format!("a number from 1 to {MAX_ITERS}")),
    }
}

fn size_arg(s: &str) -> Result<u32, String> {
    match units::parse_size(s)? {
        n @ 1..=0x4000_0000 => Ok(n as u32),
        _ => Err("a message has between 1 byte and 1G".into()),
    }
}

fn transport_help() -> String {
    format!(
        "The transport of both ends [default: rc]:\n{}\nExtensions of the standard are negotiated: with a peer that has them not, rc is used. Of sdr there is \
         write_bw, of what is reliable on top of it write_bw and send_bw",
        Spoken::help_with_schemes()
    )
}

fn cc_arg(s: &str) -> Result<String, String> {
    api::parse_cc(s).map(|_| s.into()).map_err(|e| e.to_string())
}

fn interval_arg(s: &str) -> Result<Duration, String> {
    if s == "0" {
        return Ok(Duration::ZERO);
    }
    match duration_arg(s)? {
        time if time >= Duration::from_millis(10) => Ok(time),
        _ => Err("at least 10ms".into()),
    }
}

impl Args {
    fn plan(&self, op: Op) -> Result<Plan, String> {
        // A receive is posted long before its message comes: its own deadline would be over by then.
        let transport = match self.transport {
            Some(Spoken::Transport(transport)) => transport,
            Some(Spoken::Sdr | Spoken::Reliable(_)) | None => Transport::Rc,
        };
        let sdr = matches!(self.transport, Some(Spoken::Sdr)).then(|| self.sdr_plan());
        let reliable = match self.transport {
            Some(Spoken::Reliable(scheme)) => Some(self.reliable_plan(scheme)),
            _ => None,
        };
        let transport = match (transport, self.deadline) {
            (Transport::Xp(settings), Some(limit)) if settings.active().is_none() => {
                Transport::Xp(settings.with_active(limit))
            }
            (transport, _) => transport,
        };
        // What an Ethernet of 1500 bytes bears, where nobody knows better yet.
        let mtu =
            self.mtu.unwrap_or(if matches!(self.dev, DeviceSpec::Mem | DeviceSpec::Shm(_)) { 4096 } else { 1024 });
        let sizes = match self.all_sizes {
            true => Plan::all_sizes(op, transport, mtu),
            false => vec![self.size.unwrap_or_else(|| Plan::default_size(op, transport, mtu))],
        };
        let amount = match (self.iters, self.duration) {
            (Some(n), _) => Amount::Iterations(n),
            (None, Some(time)) => Amount::Seconds(time.as_secs_f64()),
            (None, None) => Amount::Usual,
        };
        let plan = Plan {
            op,
            transport,
            sdr,
            reliable,
            cc: self.cc.clone().filter(|cc| cc != "window"),
            auth: self.auth.is_some(),
            negotiated: None,
            needs_link_mtu: None,
            sizes,
            amount,
            qps: self.qps.unwrap_or(1),
            mtu: self.mtu,
            depth: self.depth.unwrap_or(if sdr.is_some() || reliable.is_some() { SdrPlan::DEPTH } else { 128 }),
            timeout: self.timeout.unwrap_or(14),
            retry: self.retry.unwrap_or(7),
            tclass: self.tclass.unwrap_or(0),
            verify: self.verify,
            wait_completion: self.wait_completion,
            deadline_ns: self.deadline.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)),
            stride: self.stride,
        };
        plan.check()?;
        Ok(plan)
    }

    /// What the queue pairs of sdr are made with.
    fn sdr_plan(&self) -> SdrPlan {
        let usual = SdrPlan::default();
        SdrPlan {
            chunk: self.sdr.chunk.unwrap_or(usual.chunk),
            channels: self.sdr.channels.unwrap_or(usual.channels),
            generations: self.sdr.generations.unwrap_or(usual.generations),
            split: self.sdr.split.map_or(usual.split, Split::bits),
        }
    }

    /// What the queue pairs of reliable messages are made with.
    fn reliable_plan(&self, scheme: Scheme) -> ReliablePlan {
        let usual = ReliablePlan::usual(scheme);
        ReliablePlan {
            scheme,
            chunk: self.sdr.chunk,
            channels: self.sdr.channels.unwrap_or(usual.channels),
            generations: self.sdr.generations.unwrap_or(usual.generations),
            split: self.sdr.split.map_or(usual.split, Split::bits),
            alpha: self.alpha.unwrap_or(usual.alpha),
            fallback: self.fallback.unwrap_or_default(),
        }
    }

    /// Whether a client asks for what was given here.
    fn agree(&self, plan: &Plan) -> Result<(), String> {
        let differ = |what: &str, ours: String, theirs: String| {
            Err(format!("the two ends do not agree: the server has {what} {ours}, the client {theirs}"))
        };
        if let Some(op) = self.op.filter(|&op| op != plan.op) {
            return differ("operation", op.name().into(), plan.op.name().into());
        }
        let theirs = plan.name();
        if let Some(t) = self.transport.filter(|t| t.name() != theirs) {
            return differ("transport", t.name().into(), theirs);
        }
        let plain = |cc: &Option<String>| cc.clone().unwrap_or("window".into());
        if self.cc.is_some() && plain(&self.cc) != plain(&plan.cc) {
            return differ("--cc", plain(&self.cc), plain(&plan.cc));
        }
        let has = |auth: bool| if auth { "a key file" } else { "none" };
        if self.auth.is_some() != plan.auth {
            return differ("--auth", has(self.auth.is_some()).into(), has(plan.auth).into());
        }
        if let Some(size) = self.size.filter(|&size| plan.sizes != [size]) {
            return differ("size", size.to_string(), format!("{:?}", plan.sizes));
        }
        for (what, ours, theirs) in [("qps", self.qps, Some(plan.qps)), ("mtu", self.mtu, plan.mtu)] {
            if let Some(ours) = ours.filter(|_| ours != theirs) {
                return differ(what, ours.to_string(), theirs.map_or("none in particular".into(), |n| n.to_string()));
            }
        }
        match self.verify && !plan.verify {
            true => differ("data", "to compare".into(), "none".into()),
            false => Ok(()),
        }
    }

    fn setup(&self, seed: u64, as_json: bool) -> Result<Setup, String> {
        let secret = self.auth.as_deref().map(api::read_key_file).transpose().map_err(|e| format!("--auth: {e}"))?;
        let progress = self.progress.map(|p| match p {
            ProgressArg::Inline => Progress::Inline,
            ProgressArg::Dedicated => Progress::Dedicated,
        });
        let own_threads = progress == Some(Progress::Dedicated);
        let (nic_cpus, cpus) =
            if own_threads { (self.cpu.clone(), Vec::new()) } else { (Vec::new(), self.cpu.clone()) };
        let options = OpenOptions {
            progress,
            cpus: nic_cpus,
            fault: self.fault.clone(),
            seed,
            pcap: self.pcap.clone(),
            trace: self.trace.clone(),
            log: crate::log_level()?,
            queues: self.queues,
            link_down: LinkDown::default(),
            backup: self.backup()?,
            on_notice: None,
            on_event: None,
            on_packet: None,
        };
        let intervals = AskedIntervals::Each { length: self.interval, as_json };
        Ok(Setup { device: self.dev.clone(), options, cpus, seed, secret, intervals })
    }

    /// The backup of the device.
    fn backup(&self) -> Result<Option<BackupOptions>, String> {
        let Some(device) = &self.backup else { return self.failover.check_unused().map(|()| None) };
        let kv = given(self.failover.kv.as_deref(), "SOFTNIC_KV")?;
        let backup = FailoverArgs { kv, ..self.failover.clone() }.options(device)?;
        backup.check(&self.dev).map_err(|e| format!("--backup: {e}"))?;
        match self.transport {
            None | Some(Spoken::Transport(Transport::Rc | Transport::Sr { .. } | Transport::Lowar(_))) => {}
            Some(other) => return Err(format!("--backup: rc, sr and lowar have one, {} has none", other.name())),
        }
        match self.op {
            Some(op) if op.verb() == Verb::Raw => Err("--backup: frames without protocol have none".into()),
            // One that comes twice may overwrite the answer that is looked for.
            Some(op @ Op::WriteLat) => Err(format!(
                "--backup: {} looks into memory for what a WRITE leaves there, and a WRITE may be carried out twice: take send_lat",
                op.name()
            )),
            _ => Ok(Some(backup)),
        }
    }

    /// What does not go together, beyond what clap can tell.
    fn check(&self) -> Result<(), String> {
        let mem = self.dev == DeviceSpec::Mem;
        let apart = self.server || self.connect.is_some();
        if mem && apart {
            return Err(
                "mem is inside one process: --server and --connect need --dev shm, afxdp:INTERFACE or dgram:OURS,PEERS"
                    .into(),
            );
        }
        if !mem && !apart {
            return Err(format!("{} has another end: say --server there and --connect ADDR here", self.dev));
        }
        if self.connect.is_some() && self.op.is_none() {
            return Err("say what to measure, as in softnic perf write_bw --connect ADDR".into());
        }
        if (self.pcap.is_some() || self.trace.is_some()) && self.op.is_some_and(|op| op.verb() == Verb::Raw) {
            return Err("raw frames pass by what records captures and traces: leave --pcap and --trace out".into());
        }
        let more = self.size.is_some() || self.all_sizes || self.iters.is_some() || self.qps.is_some() || self.verify;
        self.sdr.check(self.transport)?;
        let spoken = self.transport.unwrap_or(Spoken::Transport(Transport::Rc));
        check_alpha(self.alpha, spoken)?;
        check_fallback(self.fallback, spoken)?;
        let more = more || self.deadline.is_some() || self.stride != 1;
        let more = more
            || self.auth.is_some()
            || self.transport.is_some()
            || self.cc.is_some()
            || self.pcap.is_some()
            || self.trace.is_some()
            || self.fault.is_some()
            || self.backup.is_some()
            || self.queues.is_some();
        if !apart && self.op.is_none() && more {
            return Err("say what to measure, as in softnic perf write_bw --size 64K; without options, all is".into());
        }
        Ok(())
    }
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    args.check()?;
    let endpoint = args.metrics.as_ref().map(Endpoint::bind).transpose()?;
    stop::install();
    if let Some(endpoint) = endpoint {
        endpoint.serve(|| page_of_nics(&own_nics()))?;
    }
    let setup = args.setup(common.seed, common.json)?;
    let result = match args.op {
        _ if args.server => {
            let raw = args.op.is_some_and(|op| op.verb() == Verb::Raw);
            if let Some(op) = args.op {
                args.plan(op)?;
            }
            let announce = || say!("waiting for a client at TCP port {}", args.port);
            session::listen(&setup, raw, args.port, &announce, &|plan| args.agree(plan))
        }
        None => table::run(&Setup { intervals: AskedIntervals::Never, ..setup }, args.duration, common.json),
        Some(op) => {
            let plan = args.plan(op)?;
            // Lines of intervals stand between the heading and the columns of the figures.
            let late = matches!(setup.intervals.of(plan.amount), Intervals::Print(_));
            let print_columns = |plan: &Plan| written(writeln!(io::stdout(), "{}", columns(plan.op)));
            let begin = &mut |plan: &Plan, on: &str| {
                if common.json {
                    return Ok(());
                }
                written(writeln!(io::stdout(), "{}", heading(plan, on)))?;
                if late { Ok(()) } else { print_columns(plan) }
            };
            let tell = &mut |plan: &Plan, measured: &Measured, counters: &_| {
                if late {
                    print_columns(plan)?;
                }
                written(print(plan, measured, counters, common.json))
            };
            match &args.connect {
                None => session::in_memory(&setup, &plan, begin, tell),
                Some(host) => session::connect(&setup, &plan, host, args.port, Duration::ZERO, begin, tell),
            }
        }
    };
    match result {
        _ if stop::requested() => Ok(ExitCode::from(stop::EXIT_CODE)),
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => Err(e),
    }
}
