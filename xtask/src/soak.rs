//! `cargo xtask soak`: the swarm of the simulator over very many seeds, on all cores; and whether it finds bugs that are planted.

mod failures;
mod self_test;
mod worker;

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use softnic_conformance::project;

use failures::Failures;
use worker::{Worker, one_line};

pub(crate) use self_test::run_short;

/// Seeds of a soak that names no number of them.
const SEEDS: u64 = 10_000;
/// Seeds that a worker runs before it makes room for a new one.
const CHUNK: u64 = 250;
/// Failures that are shown; the file has all of them.
const SHOWN: u64 = 20;
/// Where there is no bar to look at, a line comes this often.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many seeds [default: 10000]; with --self-test the most that each bug is given [default: 3000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "FIRST", default_value_t = 0)]
    seed: u64,
    /// Processes at a time [default: one for each core]
    #[arg(long, value_name = "J")]
    jobs: Option<NonZeroUsize>,
    /// Where the seeds that fail are written, each with the command that runs it again [default: target/soak-failures.txt]
    #[arg(long, value_name = "FILE", conflicts_with = "self_test")]
    failures: Option<PathBuf>,
    /// Plant known bugs, one at a time, and see that each is found
    #[arg(long)]
    self_test: bool,
    /// Only this bug; may be given several times
    #[arg(long, value_name = "NAME", requires = "self_test")]
    bug: Vec<String>,
}

/// Somebody pressed Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

fn jobs(asked: Option<NonZeroUsize>) -> usize {
    asked.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// Runs it; the error is the line that says what failed.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    // Who is told twice to stop is told by the system the second time.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    if options.self_test {
        return self_test::run(options);
    }
    let (first, seeds) = (options.seed, options.seeds.unwrap_or(SEEDS));
    let end = first.checked_add(seeds).ok_or("there are not so many seeds from there on: seeds have 64 bits")?;
    let file = options.failures.clone().unwrap_or_else(|| project::root().join("target/soak-failures.txt"));
    let mut failures = Failures::create(&file, first, end)?;
    let worker = Worker::build(false)?;
    let begin = Instant::now();
    let jobs = jobs(options.jobs);
    let done = soak(&worker, first..end, jobs, &mut failures)?;
    let took = begin.elapsed().as_secs_f64();
    let rate = done.seeds as f64 / took.max(1e-9);
    let Done { seeds: ran, failed, messages } = done;
    let summary = format!(
        "{ran} of {seeds} seeds from {first} on in {took:.1} s ({rate:.0} a second, {jobs} at a time): {failed} failed, {messages} \
         messages completed"
    );
    failures.end(&summary)?;
    println!("{summary}");
    match (failed, stopped()) {
        (0, false) => Ok(()),
        (0, true) => Err("stopped".into()),
        _ => Err(format!("{failed} seeds failed: see {}", file.display())),
    }
}

/// What has been done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Done {
    seeds: u64,
    failed: u64,
    messages: u64,
}

/// Runs all seeds of a range, in chunks that the workers take in turn.
fn soak(worker: &Worker, range: std::ops::Range<u64>, jobs: usize, failures: &mut Failures) -> Result<Done, String> {
    let bar = progress(range.end - range.start);
    let next = AtomicU64::new(0);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (tell, next, range) = (tell.clone(), &next, &range);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed).saturating_mul(CHUNK);
                    let left = (range.end - range.start).saturating_sub(at).min(CHUNK);
                    if left == 0 || stopped() {
                        return;
                    }
                    let each = |seed, outcome| {
                        let _ = tell.send(Ok((seed, outcome)));
                        !stopped()
                    };
                    if let Err(why) = worker.run(range.start + at, left, None, each) {
                        let _ = tell.send(Err(why));
                        return;
                    }
                }
            });
        }
        drop(tell);
        let (mut done, mut last_line) = (Done::default(), Instant::now());
        for told in told {
            let told: (u64, worker::Outcome) = told.inspect_err(|_| STOP.store(true, Ordering::Relaxed))?;
            done.seeds += 1;
            match told {
                (_, Ok(messages)) => done.messages += messages,
                (seed, Err(why)) => {
                    done.failed += 1;
                    failures.add(seed, &why)?;
                    if done.failed <= SHOWN {
                        bar.suspend(|| println!("seed {seed}: {}", one_line(&why, 160)));
                    }
                    bar.set_message(format!("{} FAILED", done.failed));
                }
            }
            bar.inc(1);
            if bar.is_hidden() && last_line.elapsed() > LINE_EVERY {
                last_line = Instant::now();
                println!("{} of {} seeds, {} failed", done.seeds, range.end - range.start, done.failed);
            }
        }
        bar.finish_and_clear();
        Ok(done)
    })
}

fn progress(seeds: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec:0}, {eta} left, {msg}");
    let bar = ProgressBar::new(seeds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message("none failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_run_once_and_failures_are_written_down() {
        let folder = std::env::temp_dir().join(format!("softnic-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("failures.txt");
        let worker = Worker::script(
            "for s in $(seq $1 $(($1 + $2 - 1))); do [ $s = 300 ] && { echo oops >&2; exit 134; }; echo passed $s 2; done",
        );
        let mut failures = Failures::create(&file, 10, 1010).unwrap();
        let done = soak(&worker, 10..1010, 3, &mut failures).unwrap();
        assert_eq!(done, Done { seeds: 1000, failed: 1, messages: 2 * 999 });
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let line = text.lines().find(|l| l.starts_with("300\t")).unwrap();
        assert!(line.contains("oops") && line.contains("SOFTNIC_SEED=300 cargo test"), "{line}");
    }
}
