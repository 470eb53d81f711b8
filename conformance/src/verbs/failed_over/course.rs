//! The course of a scenario: the program begins, has a backup, meets the trouble, goes on, returns. Each step waits for the one before.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::hosts::{BACKUP, DEVICE, Hosts, inside};
use super::scenario::{Expected, Scenario, Trouble, Whose};
use crate::guest::{Error, interrupted};
use crate::verbs::Bench;
use crate::verbs::ends::{End, OnSoftnic, told};
use crate::verbs::judge::{self, Ended};
use crate::verbs::killed;

/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(40);
/// How long a program may take to end by itself, on a machine that has much else to do.
const END: Duration = Duration::from_secs(240);
/// Between two looks.
const NAP: Duration = Duration::from_millis(10);
/// How long a path is away under a program that ends by itself.
const AWAY: Duration = Duration::from_secs(2);
/// Rows that a program that runs without end prints in each part of the course: the first of them belongs to two.
const ROWS: usize = 2;

/// What the library says.
const LEFT: &str = "goes on by its backup";
const BACK: &str = "is back from its backup";
/// What it says of an interface that was deleted, with the error that the kernel gives.
const GONE: &str = "softnic: the NIC is gone";
const NAMES: [&str; 2] = ["server", "client"];

/// Runs a scenario; what it says of rates.
pub(super) fn run(scenario: &Scenario, bench: &Bench) -> Result<String, Error> {
    let hosts = Hosts::new(bench, scenario.trouble.middle(), scenario.backups, scenario.mutual)?;
    let mut course = Course { scenario, bench, hosts, launchers: [None; 2], ended: [None, None] };
    let done = course.take();
    // Whichever of them runs; what they print when they are ended counts for nothing.
    let texts = course.texts();
    let stopped = course.hosts.ends.each_mut().map(End::stop);
    let ends: Vec<Ended> = (0..2)
        .map(|n| course.ended[n].take().unwrap_or_else(|| Ended { code: None, text: texts[n].clone() }))
        .collect();
    let shown = [("server", &ends[0]), ("client", &ends[1])];
    if bench.verbose {
        println!("{}", told("", &shown));
    }
    stopped.into_iter().try_for_each(|end| end.map(drop))?;
    done.map_err(|why| match why {
        Error::Failed(why) => Error::Failed(told(&why, &shown)),
        other => other,
    })
}

struct Course<'a> {
    scenario: &'a Scenario,
    bench: &'a Bench,
    hosts: Hosts,
    /// The processes of `softnic run`.
    launchers: [Option<u32>; 2],
    ended: [Option<Ended>; 2],
}

impl Course<'_> {
    fn take(&mut self) -> Result<String, Error> {
        self.begin()?;
        match self.scenario.expected {
            Expected::Unprotected(why) | Expected::Ends(why) => return self.without_backup(why),
            Expected::Returns | Expected::Stays | Expected::SurvivorEnds => {}
        }
        self.until("the connection has a backup at both ends", Self::is_protected)?;
        if let Trouble::Killed(whose, ms) = self.scenario.trouble {
            return self.with_a_kill(whose, Duration::from_millis(ms));
        }
        let begins = self.rows_more(2)?;
        let lasts = self.hosts.fail(self.scenario.trouble)?;
        self.until("both ends go on by the backup", |c| Ok(c.texts().iter().all(|text| text.contains(LEFT))))?;
        let left = self.rows().len();
        match self.scenario.is_endless() {
            true => drop(self.rows_more(ROWS)?),
            false if lasts => std::thread::sleep(AWAY),
            false => {}
        }
        let ends = self.rows().len();
        self.hosts.mend(self.scenario.trouble)?;
        if self.scenario.expected == Expected::Returns {
            self.until("the client is back from the backup", |c| Ok(c.texts()[1].contains(BACK)))?;
        }
        let back = self.rows().len();
        self.finish()?;
        let rows = self.rows();
        let parts = [("before", &rows[..begins]), ("by the backup", &rows[left..ends]), ("after", &rows[back..])];
        match self.scenario.is_endless() {
            true => rates(&parts).map_err(Error::Failed),
            false => Ok(String::new()),
        }
    }

    /// Starts the server, then its client.
    fn begin(&mut self) -> Result<(), Error> {
        self.start(0, None)?;
        self.until("the server begins", |c| c.hosts.ends[0].listens(&c.scenario.case))?;
        let address = self.hosts.ends[0].address().to_owned();
        self.start(1, Some(&address))
    }

    fn start(&mut self, n: usize, server: Option<&str>) -> Result<(), Error> {
        let case = &self.scenario.case;
        let fault = self.scenario.fault_of(n);
        let words = case.words("softnic0", 0, server);
        // Lines as they come, not when there are many.
        let words: Vec<String> = ["stdbuf".into(), "-oL".into()].into_iter().chain(words).collect();
        self.launchers[n] = Some(self.hosts.ends[n].spawn([case.transport, fault], &words)?);
        Ok(())
    }

    /// A peer has no backup: one line says so, and the program does as it does without.
    fn without_backup(&mut self, why: &'static str) -> Result<String, Error> {
        let with: Vec<usize> = (0..2).filter(|&n| self.scenario.backups[n]).collect();
        let said = |c: &mut Self| {
            let texts = c.texts();
            Ok(with.iter().all(|&n| texts[n].contains(why)))
        };
        self.until("the library says that there is no backup", said)?;
        self.rows_more(2)?;
        self.hosts.fail(self.scenario.trouble)?;
        if let Expected::Ends(_) = self.scenario.expected {
            let begin = Instant::now();
            while self.ended[1].is_none() {
                self.look()?;
                self.in_time(begin, "the client ends in an error")?;
            }
            let client = self.ended[1].as_ref().map(|ended| ended.check("client"));
            if let Some(Ok(())) = client {
                return Err(Error::Failed("the client ends as if all was well".into()));
            }
        } else {
            self.finish()?;
        }
        let texts = self.texts();
        for n in with {
            let count = texts[n].lines().filter(|line| line.contains(why)).count();
            if count != 1 {
                return Err(Error::Failed(format!("the {} says {count} times that {why}", NAMES[n])));
            }
        }
        match texts.iter().any(|text| text.contains(LEFT)) {
            true => Err(Error::Failed("a connection without a backup goes on by it".into())),
            false => Ok(String::new()),
        }
    }

    /// One end is killed in the middle of a failover: the other one ends, and of the first nothing is left.
    fn with_a_kill(&mut self, whose: Whose, after: Duration) -> Result<String, Error> {
        self.rows_more(1)?;
        let (victim, survivor) = (whose.index(), whose.other().index());
        let program = self.launchers[victim].and_then(killed::child_of);
        let Some(program) = program else { return Err(Error::Failed("`softnic run` has no child".into())) };
        self.hosts.fail(self.scenario.trouble)?;
        std::thread::sleep(after);
        let _ = Pid::from_raw(program as i32).map(|pid| kill_process(pid, Signal::KILL));
        let begin = Instant::now();
        while self.ended.iter().any(Option::is_none) {
            self.look()?;
            self.in_time(begin, &format!("the {} ends after its peer", NAMES[survivor]))?;
        }
        if self.texts()[survivor].contains("panicked") {
            return Err(Error::Failed(format!("the {} panics", NAMES[survivor])));
        }
        let left = || killed::left_behind(&self.hosts.spaces[victim], &[DEVICE, BACKUP], program);
        while let Some(left) = left()? {
            self.in_time(begin, &format!("nothing is left behind: {left}"))?;
        }
        Ok(String::new())
    }

    /// The end: by itself, or after some more rows.
    fn finish(&mut self) -> Result<(), Error> {
        if self.scenario.is_endless() {
            self.rows_more(ROWS)?;
            let texts = self.texts();
            for (text, name) in texts.into_iter().zip(NAMES) {
                let gone = |line: &&str| self.scenario.expected == Expected::Stays && line.starts_with(GONE);
                let text = text.lines().filter(|line| !gone(line)).collect::<Vec<_>>().join("\n");
                Ended { code: Some(0), text }.check(name).map_err(Error::Failed)?;
            }
        } else {
            let begin = Instant::now();
            while self.ended.iter().any(Option::is_none) {
                self.look()?;
                self.within(END, begin, "the program ends")?;
            }
            if let [Some(server), Some(client)] = &self.ended {
                judge::both(&self.scenario.case, server, client).map_err(Error::Failed)?;
            }
        }
        let stays = self.scenario.expected == Expected::Stays;
        match stays && self.texts().iter().any(|text| text.contains(BACK)) {
            true => Err(Error::Failed("the connection returns to an interface that is gone".into())),
            false => Ok(()),
        }
    }

    /// Waits until a program that runs without end has printed so many rows more, with something in each; how many there are.
    fn rows_more(&mut self, count: usize) -> Result<usize, Error> {
        if self.scenario.is_endless() {
            let goal = self.rows().len() + count;
            self.until("the client goes on", |c| Ok(c.rows().len() >= goal))?;
        }
        Ok(self.rows().len())
    }

    /// Waits for something; the end of a program is not what is waited for.
    fn until(&mut self, what: &str, mut is: impl FnMut(&mut Self) -> Result<bool, Error>) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            self.look()?;
            if is(self)? {
                return Ok(());
            }
            if let Some(n) = (0..2).find(|&n| self.ended[n].is_some()) {
                return Err(Error::Failed(format!("the {} ends before {what}", NAMES[n])));
            }
            self.in_time(begin, what)?;
        }
    }

    fn in_time(&self, begin: Instant, what: &str) -> Result<(), Error> {
        self.within(LIMIT, begin, what)
    }

    fn within(&self, limit: Duration, begin: Instant, what: &str) -> Result<(), Error> {
        std::thread::sleep(NAP);
        match begin.elapsed() > limit || interrupted() {
            true => Err(Error::Failed(format!("not so after {limit:?}: {what}"))),
            false => Ok(()),
        }
    }

    /// Sees whether a program has ended.
    fn look(&mut self) -> Result<(), Error> {
        for n in 0..2 {
            if self.ended[n].is_none() && self.hosts.ends[n].runs() {
                self.ended[n] = self.hosts.ends[n].ended()?;
            }
        }
        Ok(())
    }

    fn texts(&self) -> [String; 2] {
        self.hosts.ends.each_ref().map(OnSoftnic::text)
    }

    /// Rates that the client printed so far.
    fn rows(&self) -> Vec<f64> {
        judge::rows(&self.texts()[1]).iter().map(|row| row[3]).collect()
    }

    /// Whether all connections of both ends have a backup.
    fn is_protected(&mut self) -> Result<bool, Error> {
        let connections = self.scenario.connections();
        Ok(self.hosts.spaces.iter().all(|space| {
            let output = inside(space.name()).arg(&self.bench.softnic).args(["counters", "--json"]).output();
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            let nics = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            nics.filter_map(|nic| nic["counters"]["failover_protected"].as_u64()).any(|count| count >= connections)
        }))
    }
}

/// The rate of each part of the course; in none of them nothing moved.
fn rates(parts: &[(&str, &[f64])]) -> Result<String, String> {
    let mut said = Vec::new();
    for (name, rows) in parts {
        // The first row belongs to the part before, too.
        let rows = rows.get(1..).unwrap_or_default();
        let mean = rows.iter().sum::<f64>() / rows.len().max(1) as f64;
        if mean <= 0.0 {
            return Err(format!("nothing moves {name}"));
        }
        said.push(format!("{name} {mean:.1}"));
    }
    Ok(format!("MB/s: {}", said.join(", ")))
}
