//! How long after its deadline a receive of XP ends to which nothing comes, by a program that polls and by one that sleeps.
//!
//! ```text
//! cargo run --release --example deadlines                                          both ends here, a wire in memory
//! cargo run --release --example deadlines -- --dev afxdp:eth0 --server             on one host
//! cargo run --release --example deadlines -- --dev afxdp:eth0 --connect 10.0.0.1   on the other
//! ```

mod common;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use common::{End, Result};
use softnic_nic::transports::xp::XpSettings;
use softnic_nic::transports::{Completion, RecvWr, Status, Transport};

/// Deadlines, unless `--count` says another number.
const COUNT: usize = 100_000;
/// Receives that are posted at a time, and how far their deadlines are apart.
const POSTED: u32 = 16;
const APART: Duration = Duration::from_micros(200);
const LEN: usize = 64;

/// Posts a receive; when it has to end.
fn post(end: &End, until: Instant) -> Result<Instant> {
    let sges = [end.mr.sge(0, LEN)];
    let limit = until.saturating_duration_since(Instant::now());
    end.qp.post_recv_within(&RecvWr { wr_id: 0, sges: &sges, best_effort: None }, limit)?;
    Ok(until)
}

/// The next completion, and when it was seen.
fn next(end: &End, sleeps: bool) -> Result<(Completion, Instant)> {
    loop {
        if let Some(done) = end.cq.poll_one()? {
            return Ok((done, Instant::now()));
        }
        if sleeps {
            end.cq.wait(Duration::from_secs(1))?;
        }
    }
}

/// How late each of `count` receives ended, in microseconds, the least first.
fn measure(end: &End, sleeps: bool, count: usize) -> Result<Vec<f64>> {
    let start = Instant::now();
    let mut posted: VecDeque<Instant> = (1..=POSTED).map(|n| post(end, start + APART * n)).collect::<Result<_>>()?;
    let mut late = Vec::with_capacity(count);
    while let Some(until) = posted.pop_front() {
        let (done, seen) = next(end, sleeps)?;
        if done.status != Status::Success || done.partial.is_none() || seen < until {
            return Err(format!("{done:?} {:?} before its deadline", until.saturating_duration_since(seen)).into());
        }
        late.push((seen - until).as_nanos() as f64 / 1e3);
        if late.len() + posted.len() < count {
            // After a pause of this thread the deadlines behind it would all be over.
            let last = posted.back().copied().unwrap_or(seen).max(seen);
            posted.push_back(post(end, last + APART)?);
        }
    }
    late.sort_by(f64::total_cmp);
    Ok(late)
}

fn client(mut end: End, count: usize) -> Result<String> {
    let mut lines = Vec::new();
    for (who, sleeps) in [("polls", false), ("sleeps", true)] {
        let late = measure(&end, sleeps, count)?;
        let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
        lines.push(format!(
            "{count} deadlines, the program {who}: late by {:.1} us median, {:.1} p99, {:.1} p99.9, {:.1} max",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        ));
    }
    end.tell("done")?;
    Ok(lines.join("\n"))
}

pub(crate) fn run(args: &[String]) -> Result<String> {
    let count = args.iter().position(|a| a == "--count").and_then(|at| args.get(at + 1));
    let count = count.map_or(Ok(COUNT), |text| text.parse())?;
    let server = |mut end: End| end.ask().map(drop);
    common::run_over(Transport::Xp(XpSettings::DEFAULT), args, LEN, server, |end| client(end, count))
}

#[allow(clippy::print_stdout)]
fn main() -> Result<()> {
    println!("{}", run(&std::env::args().collect::<Vec<_>>())?);
    Ok(())
}
