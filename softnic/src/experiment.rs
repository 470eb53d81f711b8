//! `softnic experiment`: a paper's evaluation again, in virtual time.

mod burst;
mod chart;
mod fct;
mod goodput;
mod outcome;
mod output;
mod overhead;
mod paper;
mod pool;
mod race;
mod small;
mod stats;
mod transport;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;
use softnic_sim::{Options, Report};

use crate::Common;
use crate::perf::stop;
use outcome::Outcome;
use transport::{Transport, Transports};

/// Make a paper's measurements again, in virtual time: tables, CSV, SVG, and the paper's own figures beside ours
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic experiment                                       # which there are
  softnic experiment lowar-goodput --quick                 # seconds; without --quick minutes
  softnic experiment lowar-goodput --out results
  softnic experiment lowar-fct --transports rc,sr,lowar:32,1,lowar:64,8 --seeds 10
  softnic experiment lowar-burst --json | jq -c 'select(.transport == \"rc\")'

The table goes to stdout, NAME.csv (all figures), NAME-paper.csv (the paper's and ours) and NAME.svg to the folder of --out. The same
options and seed give the same files, byte for byte, however many cores there are. Ctrl-C ends early, with what is done so far.")]
pub(crate) struct Args {
    /// Which; without it, a list
    #[arg(value_parser = experiment_arg, value_name = "NAME")]
    name: Option<&'static Experiment>,
    /// Folder for CSV and SVG, made where it is not there
    #[arg(long, default_value = "experiment-results", value_name = "DIR")]
    out: PathBuf,
    /// Runs of each point, with seeds from --seed on [default: 5; with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Fewer points and shorter runs: seconds
    #[arg(long)]
    quick: bool,
    /// What to race, with commas between [default: as in the paper]
    #[arg(long, value_name = "rc|sr|lowar:R,C,…")]
    transports: Option<Transports>,
    /// Simulations at a time [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// One of a paper's measurements.
#[derive(Debug)]
pub(crate) struct Experiment {
    name: &'static str,
    about: &'static str,
    run: fn(&Setting) -> Result<Outcome, String>,
}

const EXPERIMENTS: [Experiment; 5] = [
    Experiment {
        name: "lowar-goodput",
        about: "goodput by loss, round trip and connections (LoWAR, figures 3a and 9)",
        run: goodput::run,
    },
    Experiment {
        name: "lowar-fct",
        about: "completion times of flows of 1 MB by loss: mean and 99th percentile (LoWAR, figure 10)",
        run: fct::run,
    },
    Experiment {
        name: "lowar-burst",
        about: "goodput by the length of bursts of loss (LoWAR, figure 11)",
        run: burst::run,
    },
    Experiment {
        name: "lowar-small",
        about: "goodput of small messages at 0.1 % loss beside that without (LoWAR, figure 12)",
        run: small::run,
    },
    Experiment {
        name: "lowar-overhead",
        about: "latency that repair packets and recovering add on a local network (LoWAR, figure 13)",
        run: overhead::run,
    },
];

fn experiment_arg(s: &str) -> Result<&'static Experiment, String> {
    let names = || EXPERIMENTS.iter().map(|e| e.name).collect::<Vec<_>>().join(", ");
    EXPERIMENTS
        .iter()
        .find(|e| e.name == s)
        .ok_or_else(|| format!("there is no experiment '{s}': choose one of {}", names()))
}

/// What an experiment is told.
struct Setting {
    name: &'static str,
    first_seed: u64,
    seeds: Option<u64>,
    quick: bool,
    transports: Option<Vec<Transport>>,
    threads: usize,
}

impl Setting {
    fn seeds(&self) -> Vec<u64> {
        let count = self.seeds.unwrap_or(if self.quick { 1 } else { 5 });
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

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let Some(experiment) = args.name else { return written(list(common.json)).map(|()| ExitCode::SUCCESS) };
    output::prepare(&args.out)?;
    stop::install();
    let cores = || std::thread::available_parallelism().map_or(1, Into::into);
    let setting = Setting {
        name: experiment.name,
        first_seed: common.seed,
        seeds: args.seeds,
        quick: args.quick,
        transports: args.transports.as_ref().map(|t| t.0.clone()),
        threads: args.threads.map_or_else(cores, usize::from),
    };
    let began = Instant::now();
    let outcome = (experiment.run)(&setting)?;
    let files = output::write_files(&args.out, experiment.name, &outcome)?;
    written(match common.json {
        true => output::print_json(experiment.name, &outcome, &files),
        false => output::print_text(&outcome),
    })?;
    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    eprintln!(
        "{} runs in {:.1} s, {} at a time; written: {}",
        outcome.runs,
        began.elapsed().as_secs_f64(),
        setting.threads,
        names.join(", ")
    );
    if outcome.runs < outcome.of {
        eprintln!("softnic: interrupted: the figures are of {} of {} runs", outcome.runs, outcome.of);
        return Ok(ExitCode::from(stop::EXIT_CODE));
    }
    Ok(ExitCode::SUCCESS)
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
