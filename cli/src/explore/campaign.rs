//! Runs with faults, several at a time: by the plan, until the budget is spent, and each failure again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use softnic_explore::fault::{Family, Fault};
use softnic_explore::journal::{Entry, Journal, Settings};
use softnic_explore::judge::{Outcome, Sort, judge, met, was_told};
use softnic_explore::pairs;
use softnic_explore::plan::Plan;
use softnic_explore::table::{Table, row_of};

use super::bench::{Bench, Order, Run, STACKS};
use super::learn::Lesson;
use super::progress::{Progress, about};
use super::results::{Failure, Results, keep};
use super::stacks;

/// How often a failure is run again.
const AGAIN: usize = 2;
/// When the TEST always leaves processes, they are given so long.
const LEAVING: Duration = Duration::from_millis(300);
/// Before the place of a hang.
const IN_PLACE: &str = ": it is in ";
/// So many second faults wait at most for their turn.
const MOST_FOLLOW_UPS: usize = 10_000;
const TICK: Duration = Duration::from_millis(200);

/// What is to be done.
pub(super) struct Campaign<'a> {
    pub(super) bench: &'a Bench,
    pub(super) lesson: &'a Lesson,
    pub(super) settings: &'a Settings,
    pub(super) plan: &'a Plan,
    pub(super) families: &'a [Family],
    pub(super) pairs: bool,
    pub(super) jobs: usize,
    /// Where failures are kept.
    pub(super) failures: PathBuf,
    /// When no more runs begin, and when no more of single faults do.
    pub(super) end: Option<Instant>,
    pub(super) end_of_singles: Option<Instant>,
}

/// What came of it.
pub(super) struct Finished {
    pub(super) table: Table,
    /// In the order in which they ended.
    pub(super) entries: Vec<Entry>,
    pub(super) was_interrupted: bool,
    /// Single faults that there was no time for.
    pub(super) not_run: usize,
}

/// Work for a thread.
enum Job {
    First(Vec<Fault>),
    Again { faults: Vec<Fault>, run: Box<Run>, entry: Box<Entry>, number: usize },
}

/// What a thread has done.
enum Done {
    First(Vec<Fault>, Option<Box<Run>>),
    Again(Entry),
}

/// What is known while it goes on.
struct State {
    results: Results,
    table: Table,
    entries: Vec<Entry>,
    journal: Option<Journal>,
    /// Failures to be run again.
    again: VecDeque<Job>,
    next: usize,
    follow_ups: VecDeque<(Fault, Fault)>,
    /// Kinds of failures, with the folder of the first of each.
    kinds: HashMap<String, usize>,
    failed_alone: BTreeSet<String>,
    ran: usize,
    spent: Duration,
    failures: usize,
}

impl Campaign<'_> {
    /// Does it.
    pub(super) fn run(
        &self,
        results: Results,
        journal: Option<Journal>,
        progress: &mut Progress,
    ) -> Result<Finished, String> {
        let mut state = State {
            results,
            table: Table::default(),
            entries: Vec::new(),
            journal: None,
            again: VecDeque::new(),
            next: 0,
            follow_ups: VecDeque::new(),
            kinds: HashMap::new(),
            failed_alone: BTreeSet::new(),
            ran: 0,
            spent: Duration::ZERO,
            failures: 0,
        };
        self.plan.faults.iter().for_each(|fault| state.table.planned(&[*fault]));
        if let Some(journal) = &journal {
            for entry in journal.entries.values() {
                state.table.ran(&entry.family, entry.outcome);
                state.failures += usize::from(entry.outcome.fails());
                if entry.outcome.fails() {
                    state.failed_alone.insert(entry.fault.clone());
                }
                state.kinds.extend(entry.kind.clone().zip(entry.failure));
            }
            state.entries.extend(journal.entries.values().cloned());
        }
        state.journal = journal;
        let representatives = self.plan.representatives();
        let mut combinations = pairs::combinations(&representatives);
        let (jobs, job_queue) = mpsc::channel::<Job>();
        let (done, done_queue) = mpsc::channel::<Result<Done, String>>();
        let job_queue = Mutex::new(job_queue);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                let (job_queue, done) = (&job_queue, done.clone());
                scope.spawn(move || {
                    loop {
                        let job = job_queue.lock().unwrap_or_else(|e| e.into_inner()).recv();
                        let Ok(job) = job else { return };
                        if done.send(self.carry_out(job)).is_err() {
                            return;
                        }
                    }
                });
            }
            // Dropped at the end, so that the threads end.
            let jobs = jobs;
            let mut under_way = 0;
            let mut error = None;
            loop {
                while under_way < self.jobs && error.is_none() {
                    let Some(job) = self.next_job(&mut state, &mut combinations) else { break };
                    under_way += 1;
                    let _ = jobs.send(job);
                }
                if under_way == 0 {
                    break;
                }
                if let Ok(result) = done_queue.recv_timeout(TICK) {
                    under_way -= 1;
                    let noted = result.and_then(|done| self.note(&mut state, done, progress));
                    if let Err(e) = noted {
                        error.get_or_insert(e);
                        // What is under way is for nothing.
                        self.bench.interrupted.store(true, Ordering::Relaxed);
                    }
                }
                progress.tick(|| self.progress(&state));
            }
            progress.clear();
            error.map_or(Ok(()), Err)
        })?;
        // Failures that could not be run again are kept as they are.
        for job in std::mem::take(&mut state.again) {
            let done = self.carry_out(job)?;
            self.note(&mut state, done, progress)?;
        }
        let not_run = self.plan.faults.len().saturating_sub(self.done_singles(&state));
        Ok(Finished { table: state.table, entries: state.entries, was_interrupted: self.is_interrupted(), not_run })
    }

    fn is_interrupted(&self) -> bool {
        self.bench.interrupted.load(Ordering::Relaxed)
    }

    fn done_singles(&self, state: &State) -> usize {
        state.entries.iter().filter(|entry| entry.family != row_of(&[])).count()
    }

    /// What to do next: a failure again, a single fault, two faults.
    fn next_job(&self, state: &mut State, combinations: &mut dyn Iterator<Item = (Fault, Fault)>) -> Option<Job> {
        if self.is_interrupted() {
            return None;
        }
        if let Some(job) = state.again.pop_front() {
            return Some(job);
        }
        let now = Instant::now();
        while state.next < self.plan.faults.len() && self.end_of_singles.is_none_or(|end| now < end) {
            let fault = self.plan.faults[state.next];
            state.next += 1;
            if !state.is_known(&fault.name(&self.lesson.cast)) {
                return Some(Job::First(vec![fault]));
            }
        }
        if !self.pairs || self.end.is_some_and(|end| now >= end) {
            return None;
        }
        loop {
            let (first, second) = state.follow_ups.pop_front().or_else(|| combinations.next())?;
            let cast = &self.lesson.cast;
            let fails_alone = [&first, &second].iter().any(|fault| state.failed_alone.contains(&fault.name(cast)));
            let is_one_thing = (first.actor, first.at) == (second.actor, second.at);
            if !is_one_thing && !fails_alone && !state.is_known(&pairs::name(cast, &first, &second)) {
                return Some(Job::First(vec![first, second]));
            }
        }
    }

    fn name(&self, faults: &[Fault]) -> String {
        faults.iter().map(|fault| fault.name(&self.lesson.cast)).collect::<Vec<_>>().join(" + ")
    }

    fn script(&self, faults: &[Fault]) -> String {
        faults.iter().map(|fault| fault.script(&self.lesson.cast)).collect::<Vec<_>>().join("\n")
    }

    fn carry_out(&self, job: Job) -> Result<Done, String> {
        match job {
            Job::First(faults) => {
                let run = self.once(&faults, false)?;
                Ok(Done::First(faults, run.map(Box::new)))
            }
            Job::Again { faults, run, entry, number } => self.again(&faults, *run, *entry, number),
        }
    }

    /// The time of a run, and that which the faults take.
    fn limit(&self, faults: &[Fault]) -> Duration {
        self.lesson.limit + Duration::from_millis(faults.iter().map(|fault| u64::from(fault.takes_ms())).sum())
    }

    fn once(&self, faults: &[Fault], is_recorded: bool) -> Result<Option<Run>, String> {
        let (name, script) = (self.name(faults), self.script(faults));
        self.bench.run(Order {
            script: Some(&script),
            fault: &name,
            is_recoverable: Sort::of(faults).is_recoverable,
            is_recorded,
            limit: self.limit(faults),
            patience: self.lesson.leaves.then_some(LEAVING),
        })
    }

    /// A failure again, at last with captures and traces, and into its folder.
    fn again(&self, faults: &[Fault], run: Run, mut entry: Entry, number: usize) -> Result<Done, String> {
        let (mut kept, mut recorded) = (run, None);
        let (mut failed, mut of) = (1, 1);
        for round in 1..=AGAIN {
            let Some(run) = self.once(faults, round == AGAIN)? else { break };
            of += 1;
            let fails = self.judge(faults, &run).0.fails();
            failed += usize::from(fails);
            match (round == AGAIN, fails) {
                (true, _) => recorded = Some((run, fails)),
                (false, true) => kept = run,
                (false, false) => {}
            }
        }
        entry.times = Some((failed, of));
        let failure = Failure {
            entry: &entry,
            sort: Sort::of(faults),
            settings: self.settings,
            baseline: &self.lesson.baseline,
            limit_ms: self.limit(faults).as_millis() as u64,
            may_leave: self.lesson.leaves,
        };
        let folder = self.failures.join(number.to_string());
        let (run, captured) = match &recorded {
            Some((run, true)) => (run, Some(run)),
            Some((run, false)) => (&kept, Some(run)),
            None => (&kept, None),
        };
        keep(&folder, run, captured, &failure, &self.bench.softnic)?;
        Ok(Done::Again(entry))
    }

    /// What became of a run.
    fn judge(&self, faults: &[Fault], run: &Run) -> (Outcome, Option<String>) {
        let sort = Sort::of(faults);
        let mut facts = run.facts.clone();
        facts.met = met(&self.lesson.cast, faults, &run.files);
        facts.was_told = was_told(sort, &run.files);
        if self.lesson.leaves {
            facts.left = 0;
        }
        let (outcome, why) = judge(&self.lesson.baseline, sort, &facts, run.by);
        let place = fs::read_to_string(run.folder.0.join(STACKS)).ok().and_then(|text| stacks::place(&text));
        match (outcome, why, place) {
            (Outcome::Hang, Some(why), Some(place)) => (outcome, Some(format!("{why}{IN_PLACE}{place}"))),
            (_, why, _) => (outcome, why),
        }
    }

    /// Takes note of what was done.
    fn note(&self, state: &mut State, done: Done, progress: &mut Progress) -> Result<(), String> {
        match done {
            Done::First(_, None) => Ok(()),
            Done::First(faults, Some(run)) => self.note_run(state, faults, run, progress),
            Done::Again(entry) => {
                let (failed, of) = entry.times.unwrap_or((1, 1));
                let folder = self.failures.join(entry.failure.unwrap_or(0).to_string());
                let why = entry.why.as_deref().unwrap_or("");
                progress.say(&format!(
                    "{}: {}, {failed} of {of} times: {why} ({})",
                    entry.fault,
                    entry.outcome.name(),
                    folder.display()
                ));
                state.results.append(&entry)?;
                if let Some(old) = state.entries.iter_mut().find(|old| old.fault == entry.fault) {
                    *old = entry;
                }
                Ok(())
            }
        }
    }

    fn note_run(
        &self,
        state: &mut State,
        faults: Vec<Fault>,
        run: Box<Run>,
        progress: &mut Progress,
    ) -> Result<(), String> {
        let (outcome, why) = self.judge(&faults, &run);
        state.ran += 1;
        state.spent += run.took;
        let mut entry = Entry {
            fault: self.name(&faults),
            family: row_of(&faults),
            outcome,
            why,
            exit: run.facts.exit,
            ms: run.took.as_millis() as u64,
            failure: None,
            like: None,
            kind: None,
            times: None,
            script: outcome.fails().then(|| self.script(&faults)),
        };
        state.table.ran(&entry.family, outcome);
        if outcome.fails() {
            state.failures += 1;
            state.failed_alone.insert(entry.fault.clone());
            let kind = kind(&faults, &entry);
            match state.kinds.get(&kind) {
                Some(number) => entry.like = Some(*number),
                None => {
                    let number = state.results.number();
                    state.kinds.insert(kind.clone(), number);
                    (entry.failure, entry.kind) = (Some(number), Some(kind));
                    progress.say(&format!("{}: {}: run again", entry.fault, outcome.name()));
                    state.again.push_back(Job::Again { faults, run, entry: Box::new(entry.clone()), number });
                }
            }
        } else if self.pairs && faults.len() == 1 && outcome != Outcome::NotMet {
            let lesson = self.lesson;
            let more = pairs::follow_ups(&lesson.cast, faults[0], &run.files, &lesson.known, self.families);
            let room = MOST_FOLLOW_UPS.saturating_sub(state.follow_ups.len());
            state.follow_ups.extend(more.into_iter().take(room));
        }
        state.results.append(&entry)?;
        state.entries.push(entry);
        Ok(())
    }

    fn progress(&self, state: &State) -> String {
        let (done, all) = (self.done_singles(state), self.plan.faults.len());
        let each = state.spent.checked_div(state.ran as u32).unwrap_or(self.lesson.mean).max(Duration::from_millis(1));
        let rest = each * all.saturating_sub(done) as u32 / self.jobs as u32;
        let left = self.end.map_or(rest, |end| match self.pairs {
            true => end.saturating_duration_since(Instant::now()),
            false => rest.min(end.saturating_duration_since(Instant::now())),
        });
        format!(
            "{} runs, {done} of {all} single faults, {} failures, about {} left",
            state.ran,
            state.failures,
            about(left)
        )
    }
}

impl State {
    fn is_known(&self, name: &str) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.entries.contains_key(name))
    }
}

/// Failures that are alike, so that one of them is looked at: those that hang at one place; else by the kind of fault, of thing, and how it
/// failed.
fn kind(faults: &[Fault], entry: &Entry) -> String {
    let why: String = entry.why.iter().flat_map(|why| why.chars()).filter(|c| !c.is_ascii_digit()).collect();
    if entry.outcome == Outcome::Hang && why.contains(IN_PLACE) {
        return entry.why.clone().unwrap_or_default();
    }
    let fault = |fault: &Fault| format!("{} {} {:?}", fault.actor, fault.what.row(), fault.at.thing.kind());
    let faults: Vec<String> = faults.iter().map(fault).collect();
    format!("{} {why} {}", entry.outcome.name(), faults.join(" + "))
}
