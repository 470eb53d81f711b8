//! Runs the swarm over a range of seeds and says of each, in a line, how it went: what `cargo xtask soak` starts on every core.
//!
//! `swarm_worker FIRST COUNT [BUG]`. A seed that panics ends the process, and one that never ends is ended: who reads the lines
//! knows which seed was next. With `SOFTNIC_LOG=debug` (or another level) it logs on stderr what happens to queue pairs.
#![allow(clippy::print_stdout)] // what it prints is what it is for

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use softnic_swarm::{best_effort, collective, failover, multicast, reliable, run_seed_watched, sdr};
use softnic_trace::{Log, Trace, parse_level};

/// Far beyond what any seed takes, with debug assertions and on a busy machine.
const LONGEST: Duration = Duration::from_secs(120);

/// Seeds that are done.
static DONE: AtomicU64 = AtomicU64::new(0);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments.get(i).and_then(|s| s.parse::<u64>().ok());
    let (Some(first), Some(count)) = (number(0), number(1)) else {
        eprintln!("usage: swarm_worker FIRST COUNT [BUG]");
        std::process::exit(2);
    };
    if let Some(bug) = arguments.get(2)
        && let Err(why) = plant(bug)
    {
        eprintln!("{why}");
        std::process::exit(2);
    }
    let level = match std::env::var("SOFTNIC_LOG").map(|level| parse_level(&level)) {
        Ok(Ok(level)) => level,
        Ok(Err(why)) => {
            eprintln!("SOFTNIC_LOG: {why}");
            std::process::exit(2);
        }
        Err(_) => None,
    };
    let trace = Trace::join(None, level.map(|level| Log::to_stderr(level, "swarm")));
    std::thread::spawn(watch);
    // Who starts it can tell now a seed that ended the process from a process that never began.
    say("ready");
    for seed in first..first.saturating_add(count) {
        // A seed has seven worlds: of reliable connections and datagrams, of best effort, of SDR, of reliable messages
        // over it, of groups, of NICs that fail, and of collectives.
        let passed = run_seed_watched(seed, trace.as_ref()).map_err(|broken| broken.what().to_string());
        let messages = passed.and_then(|passed| {
            let (ended, sdr) = (best_effort::run_seed(seed)?, sdr::run_seed(seed)?);
            let (reliable, multicast) = (reliable::run_seed(seed)?, multicast::run_seed(seed)?);
            let moved = failover::run_seed(seed)?.completed + collective::run_seed(seed)?.completed;
            let sdr = sdr.whole + sdr.early;
            Ok(passed.messages + ended.completed + sdr + reliable.received + multicast.messages + moved)
        });
        match messages {
            Ok(messages) => say(&format!("passed {seed} {messages}")),
            Err(what) => say(&format!("broken {seed} {what}")),
        }
        DONE.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the process when it is gone who started it.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{}", line.replace('\n', " ")).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Ends the process when a seed takes too long.
fn watch() {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let done = DONE.load(Ordering::Relaxed);
        if done != seen {
            (seen, since) = (done, Instant::now());
        } else if since.elapsed() > LONGEST {
            eprintln!("liveness: it did not end within {} s", LONGEST.as_secs());
            std::process::exit(3);
        }
    }
}

#[cfg(feature = "planted-bugs")]
fn plant(name: &str) -> Result<(), String> {
    use softnic_nic::transports::planted;
    use softnic_switch::planted as of_switch;
    let (bug, other) = (
        planted::Bug::ALL.iter().find(|bug| bug.name() == name),
        of_switch::Bug::ALL.iter().find(|bug| bug.name() == name),
    );
    planted::plant(bug.copied());
    of_switch::plant(other.copied());
    if bug.is_none() && other.is_none() { Err(format!("there is no bug '{name}'")) } else { Ok(()) }
}

#[cfg(not(feature = "planted-bugs"))]
fn plant(_: &str) -> Result<(), String> {
    Err("built without the feature planted-bugs".into())
}
