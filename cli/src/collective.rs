//! `softnic collective`: a collective of many ranks, again and again, in virtual time, in one process, or each rank in a process of its own.

mod report;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::losses::LossLog;
use softnic_collectives::member::MemberSettings;
use softnic_collectives::on_device::{self, Process};
use softnic_collectives::run::Options;
use softnic_collectives::simulated;
use softnic_collectives::timeouts::TimeoutSettings;
use softnic_collectives::uc::is_bounded;
use softnic_fault_injector::{Spec, units};
use softnic_perf::options::mtu_arg;
use softnic_perf::stop;
use softnic_runtime::api::{DeviceSpec, OpenOptions};
use softnic_sim::topology::{Kind, Link, Topology};
use softnic_sim::{Cc, Transport, UNITS};
use softnic_transports::qp::PayloadMode;
use softnic_wire::PathMtu;

use crate::Common;

/// Path MTU where no interface has one.
const USUAL_MTU: PathMtu = PathMtu::B1024;
/// The most ranks of the default network.
const MAX_RANKS: usize = 256;
/// The most ranks of one process in real time.
const MAX_LOCAL: usize = 64;

/// Run a collective of many ranks, in virtual time, in this process, or one rank of it on a device: how long it takes, and over xp what does not come in time
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic collective allreduce --ranks 8 --size 20MB --algo ring --transport rc --rate 25Gbit --payload none --iters 3
  softnic collective allreduce --ranks 8 --size 2MB --transport xp --rate 25Gbit --fault loss=1e-3 --json
  softnic collective broadcast --root 2 --ranks 5 --size 1M --algo tree --type bf16
  softnic collective allgather --ranks 4 --transport xp --fault loss=0.01 --losses run.losses
  softnic collective allgather --ranks 4 --transport rc --replay run.losses
  softnic collective allreduce --dev mem --ranks 4 --transport sr --iters 100
  softnic collective allreduce --dev afxdp:eth0 --rank 0 --peers 10.0.0.1,10.0.0.2 --size 16M --transport xp
  softnic collective reducescatter --topology network.toml --ranks 4 --algo bcube

Without --topology all ranks are on one switch. One rank a process: the same command for each, with a --rank of its own. Over xp and uc a collective has a budget, which follows what the group needed before, from a
warm-up over rc on: docs/collectives.md tells how, and what the JSON has. The same options and seed give the same run.")]
pub(crate) struct Args {
    /// allreduce, reducescatter, allgather, alltoall, broadcast or barrier
    #[arg(value_name = "OP")]
    operation: Operation,
    /// How many ranks [default: 8; of a --topology: all of its hosts]
    #[arg(long, value_name = "N", help_heading = "What is called")]
    ranks: Option<usize>,
    /// Bytes of each rank's buffer: allgather and alltoall have a block of each rank in it
    #[arg(long, default_value = "1M", value_parser = units::parse_size, help_heading = "What is called")]
    size: u64,
    /// Who sends to whom: ring (every operation), tree (two trees: allreduce, broadcast), bcube (every operation)
    #[arg(long, default_value = "ring", value_name = "ring|tree|bcube", help_heading = "What is called")]
    algo: Algorithm,
    /// Elements: f32, f16, bf16 or i32
    #[arg(long = "type", default_value = "f32", value_name = "TYPE", help_heading = "What is called")]
    element: Element,
    /// What becomes of them: sum, min or max
    #[arg(long, default_value = "sum", value_name = "sum|min|max", help_heading = "What is called")]
    reduce: Reduction,
    /// The rank whose buffer a broadcast sends
    #[arg(long, default_value_t = 0, value_name = "RANK", help_heading = "What is called")]
    root: usize,
    /// How often
    #[arg(long, default_value = "20", value_parser = units::parse_count, help_heading = "What is called")]
    iters: u64,
    /// Time between two of them
    #[arg(long, default_value = "0s", value_name = "T", value_parser = units::parse_time, help_heading = "What is called")]
    pause: Duration,
    #[arg(long, default_value = "rc", value_parser = transport_arg, help = transport_help(), help_heading = "How it is sent")]
    transport: Transport,
    /// Congestion control of the data, as softnic sim has it [default: none; on a device window]
    #[arg(long, value_parser = cc_arg, value_name = "none|window|dcqcn|swift|eqds|fixed:RATE", help_heading = "How it is sent")]
    cc: Option<Cc>,
    /// Local ACK timeout of the data: 4.096 µs · 2^N [default: the smallest of at least 4 of the longest round trips]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31), help_heading = "How it is sent")]
    timeout: Option<u8>,
    /// Blocks that each packet of xp has a part of, a power of two
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = stride_arg, help_heading = "How it is sent")]
    stride: u16,
    /// Over xp and uc a budget that is always the same, instead of one that follows what was needed
    #[arg(long, value_name = "T", value_parser = units::parse_time, help_heading = "Budgets of xp and uc")]
    budget: Option<Duration>,
    /// How much of each update is new [default: 0.2]
    #[arg(long, value_name = "X", value_parser = part_arg, help_heading = "Budgets of xp and uc")]
    alpha: Option<f64>,
    /// The part by which the first budget is longer than the warm-up [default: 0.25]
    #[arg(long, value_name = "X", value_parser = number_arg, help_heading = "Budgets of xp and uc")]
    gamma: Option<f64>,
    /// What is added to the first budget; no budget is shorter [default: 50us]
    #[arg(long, value_name = "T", value_parser = units::parse_time, help_heading = "Budgets of xp and uc")]
    delta: Option<Duration>,
    /// The part by which an update is longer than what the median of the ranks needed
    #[arg(long, value_name = "X", value_parser = number_arg, help = margin_help(), help_heading = "Budgets of xp and uc")]
    margin: Option<f64>,
    /// What a rank proposes counts as no further from the budget than by this factor [default: 8]
    #[arg(long, value_name = "X", value_parser = bound_arg, help_heading = "Budgets of xp and uc")]
    bound: Option<f64>,
    /// How long a rank is waited for of which nothing is heard
    #[arg(long, default_value = "10s", value_name = "T", value_parser = units::parse_time, help_heading = "Budgets of xp and uc")]
    patience: Duration,
    /// Write what did not come: collective, rank, step and ranges
    #[arg(long, value_name = "FILE", help_heading = "Losses")]
    losses: Option<String>,
    /// Lose what such a file says, whatever the transport, beside what the network loses
    #[arg(long, value_name = "FILE", help_heading = "Losses")]
    replay: Option<String>,
    /// Run it in real time: mem is all ranks in this process, on two NICs with a wire in memory between them; any other device of softnic
    /// perf (afxdp:IF, shm, dgram:…, dpdk:…, shared:IF) is one rank a process, with --rank and --peers
    #[arg(long, value_name = "DEVICE", value_parser = dev_arg, conflicts_with_all = ["topology", "rate", "delay", "queue", "payload"], help_heading = "The network")]
    dev: Option<DeviceSpec>,
    /// Which rank this process is, from 0
    #[arg(long, value_name = "I", requires_all = ["dev", "peers"], help_heading = "The network")]
    rank: Option<usize>,
    /// Where all ranks listen (TCP), in the order of ranks: HOST or HOST:PORT, with commas between them [default port: 18517]
    #[arg(long, value_name = "LIST", requires_all = ["dev", "rank"], help_heading = "The network")]
    peers: Option<String>,
    /// The network, as softnic sim takes it; without flows and groups
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "delay", "queue", "mtu", "fault", "payload"], help_heading = "The network")]
    topology: Option<String>,
    /// Line rate, everything on the wire counted
    #[arg(long, default_value = "10Gbit", value_parser = units::parse_rate, help_heading = "The network")]
    rate: u64,
    /// Of each link, one way
    #[arg(long, default_value = "1us", value_name = "T", value_parser = units::parse_time, help_heading = "The network")]
    delay: Duration,
    /// Before each port of the switch
    #[arg(long, default_value = "1M", value_name = "SIZE", value_parser = units::parse_size, help_heading = "The network")]
    queue: u64,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: 1024, and of one rank a process that of its interface; all ranks have the same]
    #[arg(long, value_parser = mtu_arg, help_heading = "The network")]
    mtu: Option<PathMtu>,
    /// What goes wrong on every link, as softnic sim has it; ab. is from a rank to the switch
    #[arg(long, default_value = "", value_name = "SPEC", hide_default_value = true, help_heading = "The network")]
    fault: Spec,
    /// Whether frames carry their payload: with none nothing is computed, in a fraction of the time
    #[arg(long, default_value = "real", value_name = "real|none", value_parser = payload_arg, help_heading = "The network")]
    payload: PayloadMode,
}

fn dev_arg(s: &str) -> Result<DeviceSpec, String> {
    s.parse::<DeviceSpec>().map_err(|e| e.to_string())
}

fn takes(transport: Transport) -> bool {
    transport.is_reliable() || is_bounded(transport)
}

fn transport_help() -> String {
    format!(
        "The transport of the data; uc is cut into WRITEs of a packet, with deadlines in software:\n{}",
        Transport::help(takes)
    )
}

fn margin_help() -> String {
    let margin = TimeoutSettings::default().margin;
    format!(
        "The part by which an update is longer than what the median of the ranks needed; the paper has 0 [default: {margin}]"
    )
}

fn transport_arg(s: &str) -> Result<Transport, String> {
    let transport: Transport = s.parse().map_err(|e| format!("{e}"))?;
    if takes(transport) { Ok(transport) } else { Err(format!("a collective goes by {}", Transport::choices(takes))) }
}

fn cc_arg(s: &str) -> Result<Cc, String> {
    Cc::parse(s, &UNITS).map_err(|e| e.to_string())
}

fn stride_arg(s: &str) -> Result<u16, String> {
    match s.parse::<u16>() {
        Ok(n) if n.is_power_of_two() && n <= 2048 => Ok(n),
        _ => Err("a stride is a power of two up to 2048".into()),
    }
}

fn number_arg(s: &str) -> Result<f64, String> {
    let number = s.parse::<f64>().ok().filter(|x| (0.0..=1000.0).contains(x));
    number.ok_or_else(|| "it is a number from 0 to 1000".into())
}

fn part_arg(s: &str) -> Result<f64, String> {
    let part = s.parse::<f64>().ok().filter(|x| *x > 0.0 && *x <= 1.0);
    part.ok_or_else(|| "it is a number above 0 and at most 1".into())
}

fn bound_arg(s: &str) -> Result<f64, String> {
    let bound = s.parse::<f64>().ok().filter(|x| (1.0..=1e6).contains(x));
    bound.ok_or_else(|| "it is a number from 1 to 1000000".into())
}

fn payload_arg(s: &str) -> Result<PayloadMode, String> {
    match s {
        "real" => Ok(PayloadMode::Real),
        "none" => Ok(PayloadMode::Elided),
        _ => Err("it is real or none".into()),
    }
}

impl Args {
    /// The network, and how many ranks are on it.
    fn network(&self) -> Result<(Topology, usize), String> {
        if let Some(file) = &self.topology {
            let topology = Topology::of_network(&crate::topology::read(file)?).map_err(|e| format!("{file}: {e}"))?;
            if topology.work().next().is_some() {
                return Err(format!("{file}: flow: beside a collective there is none: take the flows and groups out"));
            }
            let (hosts, ranks) = (topology.hosts.len(), self.ranks.unwrap_or(topology.hosts.len()));
            return match ranks {
                1.. if ranks <= hosts => Ok((topology, ranks)),
                _ => Err(format!("--ranks {ranks}: {file} has {hosts} hosts")),
            };
        }
        let ranks = self.ranks.unwrap_or(8);
        if !(1..=MAX_RANKS).contains(&ranks) {
            return Err(format!("--ranks {ranks}: it is a number from 1 to {MAX_RANKS}"));
        }
        // A switch has two hosts at least.
        let mut topology = Topology::new(Kind::Star { hosts: ranks.max(2) });
        let link = |(a, b)| Link { a, b, rate: self.rate, delay: self.delay, faults: self.fault.clone() };
        topology.links = topology.kind.links().into_iter().map(link).collect();
        topology.policy.limit = self.queue;
        topology.mtu = self.mtu.unwrap_or(USUAL_MTU);
        topology.payload = self.payload;
        Ok((topology, ranks))
    }

    /// This rank, where each is a process of its own.
    fn process(&self, seed: u64) -> Result<Option<Process>, String> {
        let (device, rank, list) = match (&self.dev, self.rank, &self.peers) {
            (None, ..) | (Some(DeviceSpec::Mem), None, None) => return Ok(None),
            (Some(DeviceSpec::Mem), ..) => {
                return Err(
                    "--dev mem: all ranks are in this process, so there is no --rank and there are no --peers".into()
                );
            }
            (Some(device), Some(rank), Some(list)) => (device, rank, list),
            _ => {
                return Err(
                    "one rank a process: say which one with --rank, and where all of them are with --peers".into()
                );
            }
        };
        let peers = on_device::parse_peers(list).map_err(|e| format!("--peers: {e}"))?;
        if rank >= peers.len() {
            return Err(format!("--rank {rank}: --peers has {} ranks, from 0 on", peers.len()));
        }
        if self.ranks.is_some_and(|ranks| ranks != peers.len()) {
            return Err(format!("--ranks {}: --peers has {}", self.ranks.unwrap_or_default(), peers.len()));
        }
        let fault = (self.fault != Spec::default()).then(|| self.fault.clone());
        let open = OpenOptions { fault, seed, ..OpenOptions::default() };
        Ok(Some(Process { device: device.clone(), open, rank, peers, mtu: self.mtu }))
    }

    fn options(&self, ranks: usize, seed: u64) -> Result<Options, String> {
        let operation = match self.operation {
            Operation::Broadcast { .. } => Operation::Broadcast { root: self.root },
            other => other,
        };
        let call = Call {
            operation,
            algorithm: self.algo,
            element: self.element,
            reduction: self.reduce,
            bytes: if operation == Operation::Barrier { 0 } else { self.size },
        };
        call.check(ranks).map_err(|e| e.to_string())?;
        if self.stride != 1 && self.transport == Transport::Uc {
            return Err("--stride is for xp: the packets of uc are not strided".into());
        }
        let cc = self.cc.unwrap_or(if self.dev.is_some() { Cc::Window } else { Cc::None });
        if !cc.is_for(self.transport) {
            return Err(format!("--cc {} is not for {}", cc.name(), self.transport));
        }
        let usual = TimeoutSettings::default();
        let timeouts = TimeoutSettings {
            alpha: self.alpha.unwrap_or(usual.alpha),
            gamma: self.gamma.unwrap_or(usual.gamma),
            delta: self.delta.unwrap_or(usual.delta),
            margin: self.margin.unwrap_or(usual.margin),
            bound: self.bound.unwrap_or(usual.bound),
            ..usual
        };
        let replay = match &self.replay {
            None => LossLog::default(),
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
                text.parse().map_err(|e| format!("{file}: {e}"))?
            }
        };
        Ok(Options {
            call,
            ranks,
            transport: self.transport,
            stride: self.stride,
            cc,
            timeout: self.timeout,
            iterations: self.iters,
            pause: self.pause,
            member: MemberSettings {
                bounded: is_bounded(self.transport),
                fixed: self.budget,
                timeouts,
                patience: self.patience,
                replay: Arc::new(replay),
            },
            seed,
        })
    }
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let (topology, ranks) = args.network()?;
    if args.dev == Some(DeviceSpec::Mem) && ranks > MAX_LOCAL {
        return Err(format!("--ranks {ranks}: on mem it is a number from 1 to {MAX_LOCAL}"));
    }
    let process = args.process(common.seed)?;
    let options = args.options(process.as_ref().map_or(ranks, |process| process.peers.len()), common.seed)?;
    // A file that cannot be written is told before the run, not after it.
    let losses = args.losses.as_deref().map(|path| {
        std::fs::File::create(path).map(|file| (path, file)).map_err(|e| format!("cannot write the losses {path}: {e}"))
    });
    let losses = losses.transpose()?;
    let bar = progress_bar(options.iterations);
    stop::install();
    let go_on = |done| {
        bar.set_position(done);
        !stop::requested()
    };
    let report = match (&args.dev, &process) {
        (None, _) => simulated::run(&topology, &options, &go_on).map_err(|e| e.to_string()),
        (Some(_), Some(process)) => on_device::run_rank(&options, process, &go_on).map_err(|e| e.to_string()),
        (Some(_), None) => {
            let fault = (args.fault != Spec::default()).then(|| args.fault.clone());
            on_device::run(&options, fault, args.mtu.unwrap_or(USUAL_MTU), &go_on).map_err(|e| e.to_string())
        }
    };
    bar.finish_and_clear();
    let report = report?;
    if let Some((path, mut file)) = losses {
        write!(file, "{}", report.losses).map_err(|e| format!("cannot write the losses {path}: {e}"))?;
    }
    let printed = match common.json {
        true => report::print_json(&options, &report),
        false => report::print_table(&options, &report),
    };
    match printed {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ if report.interrupted => Ok(ExitCode::from(stop::EXIT_CODE)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn progress_bar(count: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} collectives, {eta} left");
    ProgressBar::new(count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
