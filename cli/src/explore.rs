//! `softnic explore`: a test of a verbs program, once with each single fault that could befall it.

mod bench;
mod campaign;
mod isolation;
mod junit;
mod learn;
mod processes;
mod progress;
mod replay;
mod results;
mod stacks;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::json;
use softnic_explore::candidates::candidates;
use softnic_explore::fault::Family;
use softnic_explore::journal::{Entry, Settings};
use softnic_explore::plan::Plan;
use softnic_fault_injector::units::parse_time;
use softnic_perf::say;

use crate::Common;
use crate::run::folder::Scratch;
use crate::run::{NOT_STARTED, writable};
use bench::{Bench, JudgeBy, is_in_memory};
use campaign::{Campaign, Finished};
use learn::{Lesson, learn_from};
use progress::{Progress, about, counted};
use results::{FAILURES, Results, word};

/// Run a test of a verbs program once with each single fault that could befall it, and say what it does wrong
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic explore --dev mem -- ./my_test                        # ten minutes of every kind of fault
  softnic explore -- sh -c './server & ./client localhost'      # several processes: each run has a network of its own
  softnic explore --faults loss,verbs --budget 1min -- ./my_test
  softnic explore --budget all --pairs --junit explore.xml -- ./my_test
  softnic explore --resume -- ./my_test                         # go on where it ended
  softnic explore --replay explore-results/failures/1           # the same failure again

The TEST is run without faults first, to learn which packets, calls, completions and events there are. Then each run has one fault:
a packet lost, a call that fails, a completion with an error, a process killed. A run fails by its exit code, by what it prints, when it
hangs or crashes, or by what softnic check finds; where the program is told of an error, it may end with another exit code.
docs/explore.md has all faults and outcomes. Exit code: 0, or 120 when there are failures; 125 when something here is wrong or the TEST
cannot be explored; 130 when it was interrupted.")]
pub(crate) struct Args {
    /// Kinds of faults, separated by commas: loss, dup, reorder, delay, corrupt, down, verbs, cm, kill [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    faults: Vec<String>,
    /// Only faults whose names fit this, in which * is anything, as in '* of reg_mr *'; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Two faults at a time as well, in the second half of the budget: first where the one brought about something new
    #[arg(long)]
    pairs: bool,
    /// How long it may take, as in 90s, 10min or 2h; what differs most is tried first. all: every single fault
    #[arg(long, value_name = "TIME", default_value = "10min")]
    budget: String,
    /// Who says what is wrong: exit, the exit code, a crash or a hang alone; or a command, which is run by sh after each run and says it by its
    /// exit code (SOFTNIC_EXPLORE_EXIT, _STDOUT, _STDERR, _FOLDER, _FAULT and _SORT tell it of the run)
    #[arg(long, value_name = "exit|COMMAND")]
    judge: Option<String>,
    /// A run that takes longer hangs [default: ten times the longest one without faults, at least 20s]
    #[arg(long, value_name = "TIME")]
    limit: Option<String>,
    /// How often the TEST is run without faults, to learn what is the same in every run
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    baseline: u16,
    /// Runs at a time [default: half of the cores; 1 where runs cannot have networks of their own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Leave out what softnic check would find
    #[arg(long)]
    no_check: bool,
    /// Runs keep the network of this host, for a TEST that needs more of it than localhost
    #[arg(long)]
    host_network: bool,
    /// Where results go: a folder that is not there yet, or is empty
    #[arg(long, value_name = "DIR", default_value = "explore-results")]
    out: PathBuf,
    /// Go on with the results in --out, of the same TEST
    #[arg(long)]
    resume: bool,
    /// Run the failure in DIR again, or all failures of the results in DIR, and say whether they fail as before
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "program", "pairs", "faults"])]
    replay: Option<PathBuf>,
    /// Write a report as JUnit XML, which CI servers show: a test for each fault
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// A device, as softnic run has it; may be given more than once. shm is a network of each run's own [default: shm]
    #[arg(long, short = 'd', value_name = "DEVICE")]
    dev: Vec<String>,
    /// The transport of RC queue pairs, as softnic run has it [default: rc]
    #[arg(long, value_name = "TRANSPORT")]
    transport: Option<String>,
    /// Congestion control, as softnic run has it
    #[arg(long, value_name = "CC")]
    cc: Option<String>,
    /// The TEST and what it is given, after --
    #[arg(required_unless_present = "replay", trailing_var_arg = true, value_name = "TEST")]
    program: Vec<OsString>,
}

/// When there are failures.
const FAILURES_FOUND: u8 = 120;
/// As shells have it for SIGINT.
const INTERRUPTED: u8 = 130;
/// What the names of temporary folders begin with.
const SCRATCH: &str = "softnic-explore-";

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let result = match &args.replay {
        Some(folder) => replay::run(folder, args, common),
        None => explore(args, common),
    };
    match result {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(e) => {
            say!("softnic: {e}");
            Ok(ExitCode::from(NOT_STARTED))
        }
    }
}

fn explore(args: &Args, common: &Common) -> Result<u8, String> {
    let begin = Instant::now();
    // Everything is looked at before the TEST starts.
    let families = families(&args.faults)?;
    let budget = match args.budget.as_str() {
        "all" => None,
        text => Some(time("--budget", text)?),
    };
    let limit = args.limit.as_deref().map(|text| time("--limit", text)).transpose()?;
    let settings = settings(args, common)?;
    let junit = args.junit.as_deref().map(|file| writable("JUnit report", file)).transpose()?;
    let opened = match args.resume {
        true => Some(Results::resume(&args.out, &settings)?),
        false => {
            Results::check_new(&args.out)?;
            None
        }
    };
    let (bench, jobs) = bench(args, &settings)?;
    let mut progress = Progress::new();
    let Some(lesson) = learn_from(&bench, args.baseline.into(), limit, budget, &mut progress)? else {
        return Ok(INTERRUPTED);
    };
    let mut faults = candidates(&lesson.cast, &families);
    faults.retain(|fault| args.only.is_empty() || args.only.iter().any(|only| fits(only, &fault.name(&lesson.cast))));
    if faults.is_empty() {
        return Err("no fault of this kind could befall what is in every run (--faults, --only)".into());
    }
    let plan = Plan::new(&faults);
    let (results, journal) = match opened {
        Some((results, journal)) => (results, Some(journal)),
        None => (Results::create(&args.out, &settings)?, None),
    };
    tell_plan(&lesson, &plan, args, budget.map(|budget| budget.saturating_sub(begin.elapsed())), jobs, &mut progress);
    let end_of_singles = budget.map(|budget| {
        let left = budget.saturating_sub(begin.elapsed());
        Instant::now() + if args.pairs { left / 2 } else { left }
    });
    let campaign = Campaign {
        bench: &bench,
        lesson: &lesson,
        settings: &settings,
        plan: &plan,
        families: &families,
        pairs: args.pairs,
        jobs,
        failures: args.out.join(FAILURES),
        end: budget.map(|budget| begin + budget),
        end_of_singles,
    };
    let finished = campaign.run(results, journal, &mut progress)?;
    if let Some(file) = junit {
        let report = junit::of(&settings.test.join(" "), finished.entries.iter());
        fs::write(&file, report).map_err(|e| format!("cannot write the JUnit report {}: {e}", file.display()))?;
    }
    print(&finished, args, common, &plan);
    Ok(match (failures(&finished).count(), finished.was_interrupted) {
        (0, true) => INTERRUPTED,
        (0, false) => 0,
        _ => FAILURES_FOUND,
    })
}

fn families(names: &[String]) -> Result<Vec<Family>, String> {
    if names.is_empty() {
        return Ok(Family::ALL.to_vec());
    }
    let all: Vec<&str> = Family::ALL.iter().map(|family| family.name()).collect();
    let named = |name: &String| {
        Family::named(name).ok_or_else(|| format!("--faults: there is no `{name}`: it takes {}", all.join(", ")))
    };
    names.iter().map(named).collect()
}

/// Whether a name fits a pattern with `*` for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let behind = name.strip_prefix(first);
    behind.is_some_and(|behind| {
        let mut ends = behind.char_indices().map(|(at, _)| at).chain([behind.len()]);
        ends.any(|at| fits(rest, &behind[at..]))
    })
}

fn time(option: &str, text: &str) -> Result<Duration, String> {
    let hours = text.strip_suffix('h').and_then(|hours| hours.parse::<f64>().ok()).filter(|h| (0.0..1e6).contains(h));
    let time = match hours {
        Some(hours) => Ok(Duration::from_secs_f64(hours * 3600.0)),
        None => parse_time(text).map_err(|e| format!("{option}: {e}")),
    }?;
    if time.is_zero() { Err(format!("{option}: it cannot be 0")) } else { Ok(time) }
}

/// What a run is made with, for the journal: runs with other settings cannot be compared.
fn settings(args: &Args, common: &Common) -> Result<Settings, String> {
    let test = args.program.iter().map(|text| word(text)).collect::<Result<_, _>>()?;
    let folder = std::env::current_dir().map_err(|e| format!("cannot tell where this is: {e}"))?;
    let devices = if args.dev.is_empty() { vec!["shm".to_owned()] } else { args.dev.clone() };
    let mut options: Vec<(String, String)> = devices.into_iter().map(|dev| ("--dev".into(), dev)).collect();
    let mut option = |name: &str, value: Option<&String>| {
        options.extend(value.map(|value| (name.to_owned(), value.clone())));
    };
    option("--transport", args.transport.as_ref());
    option("--cc", args.cc.as_ref());
    option("--seed", Some(&common.seed.to_string()));
    option("--judge", args.judge.as_ref());
    option("--no-check", args.no_check.then(String::new).as_ref());
    option("--host-network", args.host_network.then(String::new).as_ref());
    Ok(Settings { test, folder: word(folder.as_os_str())?, options })
}

/// Whether Ctrl-C was pressed, from now on.
fn interrupted() -> Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let begin = || {
        let flag = Arc::new(AtomicBool::new(false));
        let handler = Arc::clone(&flag);
        // Without a handler Ctrl-C ends this process at once; what is written stays.
        let _ = ctrlc::set_handler(move || handler.store(true, Ordering::Relaxed));
        flag
    };
    Arc::clone(FLAG.get_or_init(begin))
}

/// What runs are made with, and how many go on at a time.
fn bench(args: &Args, settings: &Settings) -> Result<(Bench, usize), String> {
    let values = |wanted: &str| {
        let wanted = wanted.to_owned();
        settings.options.iter().filter(move |(name, _)| *name == wanted).map(|(_, value)| value.clone())
    };
    let devices: Vec<String> = values("--dev").collect();
    let run_options = ["--transport", "--cc", "--seed"]
        .into_iter()
        .flat_map(|name| values(name).flat_map(|value| [name.to_owned(), value]).collect::<Vec<_>>());
    let in_memory = devices.iter().all(|device| is_in_memory(device));
    let has = |name: &str| values(name).next().is_some();
    let own_network = in_memory && !has("--host-network") && isolation::has_own_networks();
    let judge = match values("--judge").next().as_deref() {
        None => JudgeBy::Usual,
        Some("exit") => JudgeBy::Exit,
        Some(command) => JudgeBy::Command(command.into()),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = match args.jobs {
        Some(jobs) => jobs.into(),
        None if own_network => (cores / 2).max(1),
        None => 1,
    };
    if in_memory && !own_network && !has("--host-network") && args.jobs.is_none() {
        say!("softnic: no networks of their own for runs here (it takes user namespaces): one run at a time (--jobs)");
    }
    let bench = Bench {
        softnic: std::env::current_exe().map_err(|e| format!("cannot tell where this program lies: {e}"))?,
        test: settings.test.iter().map(OsString::from).collect(),
        options: run_options.collect(),
        devices,
        own_network,
        checks: !has("--no-check"),
        judge,
        scratch: Scratch::new(SCRATCH)?,
        interrupted: interrupted(),
        count: AtomicUsize::new(1),
    };
    Ok((bench, jobs))
}

/// What there is to do, and how much of it there is time for.
fn tell_plan(lesson: &Lesson, plan: &Plan, args: &Args, left: Option<Duration>, jobs: usize, progress: &mut Progress) {
    let (all, classes, things) = (plan.faults.len(), plan.class_count, lesson.cast.things());
    let processes = counted(lesson.cast.actors.len(), "process", "processes");
    progress.say(&format!(
        "{} runs without faults, {} each: {processes}, {things} things that faults can be for",
        args.baseline,
        about(lesson.mean)
    ));
    let each = lesson.mean.max(Duration::from_millis(1)).as_secs_f64();
    let left = left.map(|left| if args.pairs { left / 2 } else { left });
    let fit = left.map_or(all, |left| (((left.as_secs_f64() * jobs as f64) / each) as usize).min(all));
    let time = Duration::from_secs_f64(each * all as f64 / jobs as f64);
    progress.say(&match fit == all {
        true => format!(
            "{} in {}, about {}, {jobs} at a time",
            counted(all, "single fault", "single faults"),
            counted(classes, "class", "classes"),
            about(time)
        ),
        false => format!(
            "about {fit} of {all} single faults fit, {} classes of {classes}; all take about {} (--budget), {jobs} at a time",
            plan.classes_of_first(fit),
            about(time)
        ),
    });
}

fn failures(finished: &Finished) -> impl Iterator<Item = &Entry> {
    finished.entries.iter().filter(|entry| entry.outcome.fails())
}

/// The table and the failures, or all of it as one object.
fn print(finished: &Finished, args: &Args, common: &Common, plan: &Plan) {
    let mut out = io::stdout().lock();
    let mut in_order: Vec<&Entry> = failures(finished).filter(|entry| entry.failure.is_some()).collect();
    in_order.sort_by_key(|entry| entry.failure);
    let like = |number: Option<usize>| failures(finished).filter(|entry| entry.like == number).count();
    if common.json {
        let failures: Vec<_> = failures(finished).map(Entry::json).collect();
        let object = json!({
            "runs": finished.entries.len(), "single_faults": plan.faults.len(), "classes": plan.class_count,
            "not_run": finished.not_run, "failures": failures, "interrupted": finished.was_interrupted, "out": args.out
        });
        let _ = writeln!(out, "{object}");
        return;
    }
    // Nobody may be there to read it.
    let _ = write!(out, "{}", finished.table.text());
    let folder = args.out.join(FAILURES);
    for entry in &in_order {
        let times = entry.times.map_or(String::new(), |(failed, of)| format!(", {failed} of {of} times"));
        let others = match like(entry.failure) {
            0 => String::new(),
            n => format!(" ({n} more like it)"),
        };
        let path = folder.join(entry.failure.unwrap_or(0).to_string());
        let _ = writeln!(
            out,
            "\n{}\n  {}{times}: {}{others}\n  {}",
            entry.fault,
            entry.outcome.name(),
            entry.why.as_deref().unwrap_or(""),
            path.display()
        );
    }
    let all = failures(finished).count();
    let ended = if finished.was_interrupted { "interrupted: " } else { "" };
    let _ = match all {
        0 => writeln!(out, "\n{ended}no failures"),
        n => {
            let (all, kinds) = (counted(n, "failure", "failures"), counted(in_order.len(), "kind", "kinds"));
            writeln!(out, "\n{ended}{all} of {kinds}; again: softnic explore --replay {}", args.out.display())
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns_with_anything_in_between() {
        assert!(fits("* of reg_mr *", "./x: ENOMEM of reg_mr 1") && fits("*", "") && fits("a*b*c", "abbc"));
        assert!(!fits("* of reg_mr", "./x: ENOMEM of reg_mr 1") && !fits("reg_mr", "x reg_mr"));
    }

    #[test]
    fn times_may_be_hours_and_are_never_0() {
        assert_eq!(time("--budget", "1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(time("--budget", "10min"), Ok(Duration::from_secs(600)));
        assert!(
            time("--budget", "0s").is_err() && time("--budget", "soon").is_err() && time("--budget", "-1h").is_err()
        );
    }
}
