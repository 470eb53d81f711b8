//! `cargo xtask shift --fallbacks N` and `--cost`: how long connections take to go on, and what a backup costs that is not needed.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::hosts::{BACKUP, DEVICE, Hosts};
use super::scenario::Middle;
use crate::guest::{Error, catch_interrupts, interrupted};
use crate::verbs::Bench;
use crate::verbs::ends::{self, End, OnSoftnic, told};
use crate::verbs::judge::{self, Ended};
use crate::verbs::tools::{Case, Prints, case};

/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(60);
/// What `softnic perf` does while its path fails, with the usual ACK timeout: of shorter ones more run out at the backup, too, on a busy machine.
/// What is measured begins when the retries at the default are used up. A run that ends in errors ends the measurement.
const FALLBACK: &str = "send_bw --size 4K --duration 3 --verify --json --fault down=1s+1h";
/// What a backup must not make slower, by `softnic perf` and by perftest: short turns, because what the machine does changes from second to second.
const COST: &str = "write_bw --size 64K --duration 1 --interval 0 --json";
const PERFTEST: Case = case("ib_write_bw", "-s 65536 -D 1", Prints::OneRow, false);
/// What the goal is for fallbacks, and for rates with a backup in parts of those without.
const MOST: Duration = Duration::from_millis(10);
const LEAST: f64 = 0.99;

/// One fallback of a connection of its own after the other: the distribution of what they took.
pub(super) fn fallbacks(bench: &Bench, count: usize) -> Result<(), Error> {
    catch_interrupts();
    let mut hosts = Hosts::new(bench, Middle::Cable, [true; 2], false)?;
    let mut took = Vec::new();
    for n in 1..=count {
        let report = perf(&mut hosts, bench, FALLBACK)?;
        let failover = &report["failover"];
        match (failover["failovers"].as_u64(), failover["fallback_us"]["max"].as_f64()) {
            (Some(1), Some(us)) => took.push(us),
            _ => {
                return Err(Error::Failed(format!(
                    "fallback {n}: not one failover of a protected connection: {report}"
                )));
            }
        }
        if bench.verbose {
            println!("shift: {n}/{count} {failover}");
        }
    }
    took.sort_by(f64::total_cmp);
    let at = |part: f64| took[((took.len() - 1) as f64 * part).round() as usize];
    println!(
        "shift: {count} fallbacks over AF_XDP, from the failure to the next completion: \
         p50 {:.0} us, p99 {:.0} us, max {:.0} us; every message came, and was compared",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    match at(0.5) < MOST.as_micros() as f64 {
        true => Ok(()),
        false => Err(Error::Failed(format!("half of all fallbacks take longer than {MOST:?}"))),
    }
}

/// Rates with a backup that is not needed, and without one, in turns: without, with, with, without, and the next round the other way round, so
/// that what changes slowly weighs on both alike.
pub(super) fn cost(bench: &Bench, rounds: usize) -> Result<(), Error> {
    catch_interrupts();
    let mut ratios = [const { Vec::new() }; 2];
    for round in 1..=rounds {
        // Sums of two turns: of each program, without and with.
        let mut sums = [[0f64; 2]; 2];
        for with in [false, true, true, false].map(|with| with ^ (round % 2 == 0)) {
            let mut hosts = Hosts::new(bench, Middle::Cable, [with; 2], false)?;
            let report = perf(&mut hosts, bench, COST)?;
            let of_perf = report["bw_avg_gbps"].as_f64().unwrap_or(0.0);
            let [server, client] = &mut hosts.ends;
            ends::run(&PERFTEST, server, client, LIMIT)?;
            let of_perftest = judge::rows(&client.text()).first().map_or(0.0, |row| row[3]);
            for (sums, rate) in sums.iter_mut().zip([of_perf, of_perftest]) {
                sums[usize::from(with)] += rate;
            }
            if bench.verbose {
                println!("shift: round {round}, backup {with}: {of_perf:.2} Gbit/s, {of_perftest:.1} MB/s");
            }
        }
        for (ratios, [without, with]) in ratios.iter_mut().zip(sums) {
            ratios.push(with / without);
        }
    }
    let mut missed = Vec::new();
    for (name, ratios) in ["softnic perf write_bw", "ib_write_bw"].into_iter().zip(ratios) {
        let (mean, error) = mean_of_ratios(&ratios);
        let verdict = match () {
            () if mean - 2.0 * error >= LEAST => "shown",
            () if mean + 2.0 * error < LEAST => "missed",
            () => "neither shown nor refuted: more rounds tell",
        };
        println!(
            "shift: {name} with a backup / without: {mean:.3}, standard error {error:.3}, {rounds} rounds; at least {LEAST}: {verdict}"
        );
        if verdict == "missed" {
            missed.push(format!("{name} {mean:.3}"));
        }
    }
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(format!("a backup costs more than it may ({LEAST}): {}", missed.join(", ")))),
    }
}

/// The geometric mean, and its standard error: infinite of a single one.
fn mean_of_ratios(ratios: &[f64]) -> (f64, f64) {
    let n = ratios.len() as f64;
    let mean = ratios.iter().map(|r| r.ln()).sum::<f64>() / n;
    let squares: f64 = ratios.iter().map(|r| (r.ln() - mean).powi(2)).sum();
    let error = if n > 1.0 { (squares / (n - 1.0) / n).sqrt() } else { f64::INFINITY };
    (mean.exp(), mean.exp() * error)
}

/// A run of `softnic perf` between the hosts; the JSON of its client.
fn perf(hosts: &mut Hosts, bench: &Bench, what: &str) -> Result<Value, Error> {
    let [server, client] = &mut hosts.ends;
    let words = |end: &OnSoftnic, rest: &[&str]| -> Vec<String> {
        let device = format!("afxdp:{DEVICE}");
        let backup = if end.backup.is_some() { format!("--backup afxdp:{BACKUP}") } else { String::new() };
        let all = format!("{} perf --dev {device} {backup} {}", bench.softnic.display(), rest.join(" "));
        all.split_whitespace().map(str::to_owned).collect()
    };
    let command = words(server, &["--server"]);
    server.spawn_plain(&command)?;
    let begin = Instant::now();
    while !server.listens(&PERFTEST)? {
        if begin.elapsed() > LIMIT || interrupted() {
            return Err(Error::Failed("`softnic perf --server` does not begin".into()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let command = words(client, &["--connect", server.address(), what]);
    client.spawn_plain(&command)?;
    let of_client = client.wait(LIMIT)?;
    let of_server = if of_client.code == Some(0) { server.wait(LIMIT)? } else { server.stop()? };
    let report = |ended: &Ended| ended.text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
    match (of_client.code, of_server.code, report(&of_client)) {
        (Some(0), Some(0), Some(report)) => Ok(report),
        _ => Err(Error::Failed(told("`softnic perf` fails", &[("server", &of_server), ("client", &of_client)]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_that_differ_more_have_a_larger_error_and_one_alone_says_nothing() {
        let (mean, error) = mean_of_ratios(&[0.5, 2.0]);
        assert!((mean - 1.0).abs() < 1e-12 && (error - 2f64.ln()).abs() < 1e-12, "{mean} {error}");
        let (mean, error) = mean_of_ratios(&[0.99; 9]);
        assert!((mean - 0.99).abs() < 1e-12 && error < 1e-12, "{mean} {error}");
        assert_eq!(mean_of_ratios(&[0.7]).1, f64::INFINITY);
    }
}
