//! `softnic experiment`: a paper's evaluation again, in virtual time.

mod bulk;
mod burst;
mod codes;
mod device;
mod fairness;
mod fct;
mod goodput;
pub mod grid;
mod optinic;
mod outcome;
mod output;
mod overhead;
mod paper;
mod plot;
mod pool;
mod race;
mod sdr;
mod shift;
mod small;
mod stats;
mod theory;
mod wire;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use softnic_fault_injector::units;
use softnic_perf::stop;
use softnic_runtime::api::DeviceSpec;
use softnic_sim::{Options, Report};
use softnic_transports::Transport;
use softnic_transports::lowar::Code;

use device::{EndArgs, Ends};
use outcome::Outcome;
use output::Destination;

/// Make a paper's measurements again, in virtual time: tables, CSV, SVG, and the paper's own figures beside ours
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic experiment                                       # which there are
  softnic experiment lowar-goodput --quick                 # seconds; without --quick minutes
  softnic experiment lowar-goodput --out results
  softnic experiment lowar-fct --transports rc,sr,lowar:32,1,lowar:64,8 --seeds 10
  softnic experiment lowar-burst --json | jq -c 'select(.transport == \"rc\")'
  softnic experiment optinic-size --quick                  # collectives over rc, sr, lowar and xp
  softnic experiment optinic-cct --rtt 10ms,40ms --quick    # 4 ranks far apart
  softnic experiment cc-fairness --quick                   # dcqcn, swift, eqds: rates of flows over time
  softnic experiment lowar-goodput --dev mem               # in real time, at 200 Mbit/s
  softnic experiment sdr-throughput --quick                # SDR-RDMA beside rc and uc, in real time
  softnic experiment --server --dev afxdp:eth0             # the other end of a real wire
  softnic experiment lowar-goodput --dev afxdp:eth0 --connect 192.0.2.7

The table goes to stdout, NAME.csv (all figures), NAME-paper.csv (the paper's and ours), NAME.svg and NAME.json (for softnic plot) to
the folder of --out. With --quick they are NAME-quick.csv and so on, and no goals are judged. The same options and seed give the
same files, byte for byte, however many cores there are. Ctrl-C ends early, with what is done so far, in NAME-interrupted.csv and so on.")]
pub struct Args {
    /// Which; without it, a list
    #[arg(value_parser = experiment_arg, value_name = "NAME")]
    name: Option<&'static Experiment>,
    /// Folder for CSV, SVG and JSON, made where it is not there
    #[arg(long, default_value = "experiment-results", value_name = "DIR")]
    out: PathBuf,
    /// PNG as well as SVG
    #[arg(long)]
    png: bool,
    /// Runs of each point, with seeds from --seed on [default: 5, of optinic-size 2; with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Fewer points and shorter runs: seconds
    #[arg(long)]
    quick: bool,
    #[arg(long, value_name = "TRANSPORT,…", value_parser = transports_arg, help = transports_help())]
    transports: Option<Transports>,
    /// For optinic-cct: 4 ranks instead, each in a place of its own, with these round trips between them, e.g. 1ms,10ms,40ms
    #[arg(long, value_name = "T,…", value_delimiter = ',', value_parser = units::parse_time)]
    rtt: Vec<Duration>,
    /// Simulations at a time [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Measure in real time instead, between two NICs, with the round trip and the loss emulated: mem or shm (both ends in this process),
    /// afxdp:INTERFACE, or dgram:OURS,PEERS,ip=ADDR/LEN[,mac=M]. For lowar-goodput, and without emulation for those of sdr, which are always in
    /// real time [of these: mem]
    #[arg(long, short = 'd', value_name = "DEVICE", conflicts_with = "threads", help_heading = "In real time")]
    dev: Option<DeviceSpec>,
    /// Engines to try, with commas between, for sdr-scaling [default: 1, 2, 4, …, as many as there are cores]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=16), help_heading = "In real time")]
    engines: Vec<u8>,
    #[command(flatten)]
    ends: EndArgs,
    /// Rate of the emulated link on a device, at most 800Mbit
    #[arg(long, requires = "dev", default_value = "200Mbit", value_parser = units::parse_rate, help_heading = "In real time")]
    rate: u64,
}

impl Args {
    /// The device and its other end, where there is one.
    fn ends(&self, experiment: &Experiment) -> Result<Option<Ends>, String> {
        let Some(device) = &self.dev else { return Ok(None) };
        let time = match experiment.run {
            Run::Simulated(_) | Run::Exact(_) => Some("is for virtual time"),
            Run::Computed(_) => Some("needs no device"),
            Run::InTurns(_) => Some("is for wires in memory"),
            Run::Both(..) | Run::Measured(_) => None,
        };
        if let Some(time) = time {
            let others = EXPERIMENTS.iter().filter(|e| matches!(e.run, Run::Both(..) | Run::Measured(_)));
            let others = others.map(|e| e.name).collect::<Vec<_>>().join(", ");
            return Err(format!("{} {time}: on a device there are {others}", experiment.name));
        }
        let ends = Ends::new(device, &self.ends)?;
        if self.rate > wire::MAX_RATE {
            return Err(
                "--rate is at most 800Mbit: with a round trip of 40 ms a device's fault injector keeps no more frames"
                    .into(),
            );
        }
        Ok(Some(ends))
    }
}

/// How an experiment is made.
#[derive(Debug)]
enum Run {
    /// In virtual time.
    Simulated(fn(&Setting) -> Result<Outcome, String>),
    /// In virtual time, where nothing is drawn: one seed is all.
    Exact(fn(&Setting) -> Result<Outcome, String>),
    /// In virtual time, or in real time on a device, over an emulated link of this rate.
    Both(fn(&Setting) -> Result<Outcome, String>, fn(&Setting, &Ends, u64) -> Result<Outcome, String>),
    /// In real time, without any NIC.
    Computed(fn(&Setting) -> Result<Outcome, String>),
    /// In real time, by a program that is run in turns with a backup and without, on wires in memory.
    InTurns(fn(&Setting) -> Result<Outcome, String>),
    /// In real time, on a device or on a wire in memory.
    Measured(fn(&Setting, &Ends) -> Result<Outcome, String>),
}

/// One of a paper's measurements.
#[derive(Debug)]
pub(crate) struct Experiment {
    name: &'static str,
    about: &'static str,
    run: Run,
}

const EXPERIMENTS: [Experiment; 20] = [
    Experiment {
        name: "lowar-goodput",
        about: "goodput by loss, round trip and connections (LoWAR, figures 3a and 9)",
        run: Run::Both(goodput::run, wire::run),
    },
    Experiment {
        name: "lowar-fct",
        about: "completion times of flows of 1 MB by loss: mean and 99th percentile (LoWAR, figure 10)",
        run: Run::Simulated(fct::run),
    },
    Experiment {
        name: "lowar-burst",
        about: "goodput by the length of bursts of loss (LoWAR, figure 11)",
        run: Run::Simulated(burst::run),
    },
    Experiment {
        name: "lowar-small",
        about: "goodput of small messages at 0.1 % loss beside that without (LoWAR, figure 12)",
        run: Run::Simulated(small::run),
    },
    Experiment {
        name: "lowar-overhead",
        about: "latency that repair packets and recovering add on a local network (LoWAR, figure 13)",
        run: Run::Simulated(overhead::run),
    },
    Experiment {
        name: "cc-fairness",
        about: "2 to 16 flows through one bottleneck by each congestion control: rates, queue, fairness; an incast (DCQCN)",
        run: Run::Simulated(fairness::run),
    },
    Experiment {
        name: "sdr-throughput",
        about: "Gbit/s by the size of messages beside rc and uc, in real time (SDR-RDMA, figure 14)",
        run: Run::Measured(sdr::throughput),
    },
    Experiment {
        name: "sdr-chunk",
        about: "packets a second by the length of chunks, in real time, and how often a chunk is lost (SDR-RDMA, figure 15)",
        run: Run::Measured(sdr::chunk),
    },
    Experiment {
        name: "sdr-scaling",
        about: "packets a second by the number of engines, in real time (SDR-RDMA, figure 16)",
        run: Run::Measured(sdr::scaling),
    },
    Experiment {
        name: "sdr-ec-vs-xor",
        about: "what erasure codes cost the CPU, and the loss from which they fall back (SDR-RDMA, figure 11)",
        run: Run::Computed(codes::run),
    },
    Experiment {
        name: "shift-throughput",
        about: "goodput over time while a NIC or a switch port fails, with a backup and without (SHIFT, figure 5)",
        run: Run::Exact(shift::throughput),
    },
    Experiment {
        name: "shift-fallback",
        about: "time from the first failed completion to the first good one by the backup (SHIFT, figure 6b)",
        run: Run::Exact(shift::fallback),
    },
    Experiment {
        name: "shift-verbs",
        about: "what a backup adds to the time of each verb, in real time (SHIFT, figure 7)",
        run: Run::InTurns(shift::verbs),
    },
    Experiment {
        name: "shift-latency",
        about: "latency of short WRITEs: plain, with a backup, beside idle queue pairs, in real time (SHIFT, table 2)",
        run: Run::InTurns(shift::latency),
    },
    Experiment {
        name: "shift-memory",
        about: "memory that the backup of a connection takes (SHIFT, section 4.2)",
        run: Run::InTurns(shift::memory),
    },
    Experiment {
        name: "shift-training",
        about: "progress of a training job whose NIC fails, in five settings (SHIFT, figure 8)",
        run: Run::Exact(shift::training),
    },
    Experiment {
        name: "optinic-size",
        about: "collectives of 20 to 80 MB by 8 ranks over each transport, beside background traffic (OptiNIC, figure 5)",
        run: Run::Simulated(optinic::size),
    },
    Experiment {
        name: "optinic-cct",
        about: "collectives of 8 to 64 ranks on leaves and spines, or far apart: mean and 99th percentile (OptiNIC, figure 6)",
        run: Run::Simulated(optinic::cct),
    },
    Experiment {
        name: "optinic-timeout",
        about: "budgets of collectives as they follow load and losses, and time against bytes lost (OptiNIC, section 3.1.2)",
        run: Run::Simulated(optinic::timeout),
    },
    Experiment {
        name: "optinic-state",
        about: "bytes of a queue pair, queue pairs in 4 MB, ranks (OptiNIC, table 4)",
        run: Run::Exact(optinic::state),
    },
];

fn experiment_arg(s: &str) -> Result<&'static Experiment, String> {
    let names = || EXPERIMENTS.iter().map(|e| e.name).collect::<Vec<_>>().join(", ");
    EXPERIMENTS
        .iter()
        .find(|e| e.name == s)
        .ok_or_else(|| format!("there is no experiment '{s}': choose one of {}", names()))
}

/// An alias because clap takes a `Vec` for an option that is given several times.
type Transports = Vec<Transport>;

fn transports_arg(s: &str) -> Result<Transports, String> {
    let transports = Transport::parse_list(s).map_err(|e| e.to_string())?;
    match transports.iter().find(|t| !t.is_reliable()) {
        Some(lossy) => Err(format!(
            "{lossy} is not reliable, and only reliable transports are raced: choose from {}",
            Transport::choices(Transport::is_reliable)
        )),
        None => Ok(transports),
    }
}

fn transports_help() -> String {
    format!(
        "What to race, with commas between [default: as in the paper]:\n{}\nHere sr without PACKETS has a window of four bandwidth-delay \
         products, which never limits it",
        Transport::help(Transport::is_reliable)
    )
}

/// LoWAR with these coding blocks.
const fn lowar(r: u8, c: u8) -> Transport {
    Transport::Lowar(Code::new(r, c).unwrap())
}

/// The run over this transport; Selective Repeat has a window that never limits it, unless another one was asked for.
fn over(transport: Transport, options: Options) -> Options {
    match transport {
        Transport::SR => options.over_wide_sr(),
        _ => Options { transport, ..options },
    }
}

/// What an experiment is told.
struct Setting {
    name: &'static str,
    first_seed: u64,
    seeds: Option<u64>,
    quick: bool,
    transports: Option<Vec<Transport>>,
    threads: usize,
    /// Numbers of engines to try, where the experiment is about them.
    engines: Option<Vec<u8>>,
    /// Round trips to try, where the experiment takes some.
    round_trips: Option<Vec<Duration>>,
}

impl Setting {
    fn seeds(&self) -> Vec<u64> {
        let usual = match (self.quick, self.name) {
            (true, _) => 1,
            // Each takes seven minutes of two cores.
            (false, "optinic-size") => 2,
            (false, _) => 5,
        };
        let count = self.seeds.unwrap_or(usual);
        (0..count).map(|i| self.first_seed.wrapping_add(i)).collect()
    }

    /// What the figures are means of, in words.
    fn means(&self) -> String {
        match self.seeds()[..] {
            [seed] => format!("seed {seed} alone"),
            [first, .., last] => format!("means of seeds {first} to {last}, ± the standard deviation of a seed"),
            [] => String::new(),
        }
    }

    /// Those asked for, or the ones of the paper.
    fn transports(&self, default: &[Transport]) -> Vec<Transport> {
        self.transports.clone().unwrap_or_else(|| default.into())
    }

    /// Does `work` for each of `jobs`, on all cores; `None` for what Ctrl-C came before.
    fn each<J, R>(
        &self,
        jobs: Vec<J>,
        work: impl Fn(&J) -> Result<R, String> + Send + Sync + 'static,
    ) -> Result<Vec<Option<R>>, String>
    where
        J: Send + Sync + 'static,
        R: Send + 'static,
    {
        pool::run(self.name, jobs, self.threads, work)
    }
}

/// A simulated transfer of which every work request must succeed.
fn simulate(options: &Options) -> Result<Report, String> {
    let report = softnic_sim::run(options, None, &mut |_| {}).map_err(|e| e.to_string())?;
    match report.first_failure {
        Some(status) => Err(format!("{} work requests failed, the first with: {status}", report.failed)),
        None if report.stalled => Err("a run stood still: something was lost, and nobody waited for it".into()),
        None => Ok(report),
    }
}

/// Makes the experiment, or says which there are.
pub fn run(args: &Args, seed: u64, json: bool) -> Result<ExitCode, String> {
    if let (true, Some(device)) = (args.ends.server, &args.dev) {
        return device::serve(device, args.ends.port, seed).map(|()| ExitCode::SUCCESS);
    }
    let Some(experiment) = args.name else { return written(list(json)).map(|()| ExitCode::SUCCESS) };
    let ends = args.ends(experiment)?;
    if !args.engines.is_empty() && experiment.name != "sdr-scaling" {
        return Err(format!("{} is not about engines: --engines is for sdr-scaling", experiment.name));
    }
    if !args.rtt.is_empty() && experiment.name != "optinic-cct" {
        return Err(format!("{} has round trips of its own: --rtt is for optinic-cct", experiment.name));
    }
    if let Some(rtt) =
        args.rtt.iter().find(|rtt| !(Duration::from_micros(10)..=Duration::from_millis(200)).contains(rtt))
    {
        return Err(format!("--rtt {rtt:?}: it is a time from 10us to 200ms"));
    }
    let is_exact = matches!(experiment.run, Run::Exact(_) | Run::InTurns(_));
    if is_exact && args.seeds.is_some_and(|seeds| seeds > 1) {
        return Err(format!("{} draws nothing, so all seeds are alike: leave --seeds out", experiment.name));
    }
    let destination = Destination { folder: &args.out, png: args.png, json };
    destination.prepare()?;
    stop::install();
    let cores = || std::thread::available_parallelism().map_or(1, Into::into);
    let setting = Setting {
        name: experiment.name,
        first_seed: seed,
        seeds: if is_exact { Some(1) } else { args.seeds },
        quick: args.quick,
        transports: args.transports.clone(),
        threads: args.threads.map_or_else(cores, usize::from),
        engines: (!args.engines.is_empty()).then(|| args.engines.clone()),
        round_trips: (!args.rtt.is_empty()).then(|| args.rtt.clone()),
    };
    let began = Instant::now();
    let outcome = match (&experiment.run, &ends) {
        (Run::Simulated(run) | Run::Exact(run) | Run::Both(run, _) | Run::Computed(run) | Run::InTurns(run), None) => {
            run(&setting)?
        }
        (Run::Both(_, run), Some(ends)) => run(&setting, ends, args.rate)?,
        (Run::Measured(run), None) => run(&setting, &Ends::in_memory())?,
        (Run::Measured(run), Some(ends)) => run(&setting, ends)?,
        (Run::Simulated(_) | Run::Exact(_) | Run::Computed(_) | Run::InTurns(_), Some(_)) => {
            return Err(format!("{} is for no device", experiment.name));
        }
    };
    let name = match (&ends, args.rtt.is_empty()) {
        (Some(_), _) => format!("{}-wire", experiment.name),
        (None, false) => format!("{}-rtt", experiment.name),
        (None, true) => experiment.name.into(),
    };
    let in_real_time = ends.is_some() || matches!(experiment.run, Run::Measured(_) | Run::InTurns(_));
    let at_a_time = if in_real_time { 1 } else { setting.threads };
    destination.take(&name, &setting, outcome, (began, at_a_time))
}

fn list(as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let width = EXPERIMENTS.iter().map(|e| e.name.len()).max().unwrap_or(0);
    for Experiment { name, about, .. } in &EXPERIMENTS {
        match as_json {
            true => writeln!(out, "{}", json!({ "name": name, "about": about }))?,
            false => writeln!(out, "{name:width$}  {about}")?,
        }
    }
    if !as_json {
        writeln!(out, "\nsoftnic experiment NAME runs one; --quick takes seconds, --help tells the rest")?;
    }
    Ok(())
}

/// Who closed the other end of a pipe has seen enough.
fn written(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(()),
    }
}
