//! Where the tests run, and several of them at a time: each place has its own network namespaces and files, and one test at a time.

use std::sync::Mutex;
use std::time::Instant;

use super::report::{Report, Row};
use super::{
    Bench, Test, authenticated, by_name, described, flaws, host, killed, mpi, pair, recorded, rxe, seen, shared,
};
use super::{clean, summarised};
use crate::findings;
use crate::guest::{Error, catch_interrupts, interrupted};

/// What a test has for itself while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The folder with the C programs and what they print.
    C,
    /// The veth pair of two programs.
    Pair,
    Host,
    /// The interface that a daemon shares.
    Shared,
    Mpi,
    /// Nothing but a network in memory.
    Memory,
    /// The hosts of failover, where links go down at set times.
    Failover,
    /// The guest.
    Guest,
}

impl Test {
    fn place(&self) -> Place {
        match self {
            Test::C(_) => Place::C,
            Test::Pair(_) | Test::Killed(_) | Test::Recorded | Test::Authenticated(_) => Place::Pair,
            Test::Host(_) => Place::Host,
            Test::Shared(..) => Place::Shared,
            Test::Mpi(_) => Place::Mpi,
            Test::Summarised | Test::Described | Test::Seen => Place::Memory,
            Test::FailedOver(_) | Test::FailedOverByName(_) => Place::Failover,
            Test::Rxe(..) => Place::Guest,
        }
    }
}

/// Tests that wait, by their numbers, and the places in which one runs.
struct Turns<'a> {
    tests: &'a [Test],
    waiting: Vec<usize>,
    busy: Vec<Place>,
}

impl Turns<'_> {
    /// The first test whose place is free. Where there is none, all that wait are of places whose worker goes on with them: whoever asks is
    /// not needed any more.
    fn take(&mut self) -> Option<usize> {
        let at = self.waiting.iter().position(|&n| !self.busy.contains(&self.tests[n].place()))?;
        let n = self.waiting.remove(at);
        self.busy.push(self.tests[n].place());
        Some(n)
    }

    fn done(&mut self, n: usize) {
        let place = self.tests[n].place();
        self.busy.retain(|&busy| busy != place);
    }
}

/// What the places are made of, each when the first test asks for it.
struct Places<'a> {
    bench: &'a Bench,
    pair: Mutex<Lazy<pair::Pair>>,
    host: Mutex<Lazy<host::Host>>,
    shared: Mutex<Lazy<shared::Shared>>,
    mpi: Mutex<mpi::Mpi<'a>>,
    hosts: Mutex<Lazy<by_name::Hosts>>,
    peer: Mutex<Lazy<rxe::Peer>>,
}

fn locked<T, R>(mutex: &Mutex<T>, work: impl FnOnce(&mut T) -> R) -> R {
    // A test that panicked has said so.
    work(&mut mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

impl<'a> Places<'a> {
    fn new(bench: &'a Bench) -> Places<'a> {
        Places {
            bench,
            pair: Mutex::default(),
            host: Mutex::default(),
            shared: Mutex::default(),
            mpi: Mutex::new(mpi::Mpi::new(bench)),
            hosts: Mutex::default(),
            peer: Mutex::default(),
        }
    }

    fn with_pair(&self, run: impl FnOnce(&mut pair::Pair) -> Result<(), Error>) -> Result<(), Error> {
        locked(&self.pair, |pair| pair.with(|| pair::Pair::new(self.bench), run))
    }

    fn run(&self, test: &Test) -> Result<(), Error> {
        let bench = self.bench;
        match test {
            Test::C(test) => test.run(bench),
            Test::Pair(case) => self.with_pair(|pair| pair.run(case)),
            Test::Host(case) => locked(&self.host, |host| host.with(|| host::Host::new(bench), |host| host.run(case))),
            Test::Shared(case, client) => locked(&self.shared, |shared| {
                shared.with(|| shared::Shared::new(bench), |shared| shared.run(case, *client))
            }),
            Test::Mpi(test) => locked(&self.mpi, |mpi| mpi.run(*test)),
            Test::Killed(victim) => self.with_pair(|pair| killed::run(*victim, pair)),
            Test::Recorded => self.with_pair(|pair| recorded::run(bench, pair)),
            Test::Summarised => summarised::run(bench),
            Test::Described => described::run(bench),
            Test::Seen => seen::run(bench),
            Test::Authenticated(client) => self.with_pair(|pair| authenticated::run(*client, bench, pair)),
            Test::FailedOver(scenario) => scenario.run(bench),
            Test::FailedOverByName(scenario) => locked(&self.hosts, |hosts| {
                hosts.with(|| by_name::Hosts::new(bench), |hosts| hosts.run(bench, *scenario))
            }),
            Test::Rxe(case, softnic) => {
                locked(&self.peer, |peer| peer.with(|| rxe::Peer::boot(bench), |peer| peer.run(case, *softnic)))
            }
        }
    }
}

/// Runs tests, so many at a time: most of their time they wait.
pub(super) fn run_tests(tests: &[Test], bench: &Bench, jobs: usize) -> Result<Report, Error> {
    catch_interrupts();
    let places = Places::new(bench);
    let rows = Mutex::new((0..tests.len()).map(|_| None).collect::<Vec<Option<Row>>>());
    // Links that go down do so at set times: nothing else runs meanwhile.
    let all = 0..tests.len();
    let (by_time, others): (Vec<_>, Vec<_>) = all.partition(|&n| tests[n].place() == Place::Failover);
    for (waiting, jobs) in [(others, jobs), (by_time, 1)] {
        let turns = Mutex::new(Turns { tests, waiting, busy: vec![] });
        let work = || {
            while let Some(n) = locked(&turns, Turns::take) {
                if interrupted() {
                    break;
                }
                let row = run_one(&places, n, tests);
                locked(&rows, |rows| rows[n] = Some(row));
                locked(&turns, |turns| turns.done(n));
            }
        };
        std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    }
    let mut report = Report::default();
    locked(&rows, |rows| rows.drain(..).flatten().for_each(|row| report.add(row)));
    if interrupted() {
        println!("\n{}", report.text());
        return Err(Error::Failed("interrupted".into()));
    }
    report.kernel = locked(&places.peer, |peer| peer.kernel());
    drop(places);
    clean(&bench.temporary())?;
    Ok(report)
}

fn run_one(places: &Places<'_>, n: usize, tests: &[Test]) -> Row {
    let (begin, test, number) = (Instant::now(), &tests[n], n + 1);
    let mut verdict = places.run(test);
    for _ in 1..flaws::TRIES {
        let Some(flaw) = verdict.as_ref().err().and_then(|e| flaws::shown_by(&e.to_string())) else { break };
        println!("verbs: {number:3}/{} {} once more: {flaw}", tests.len(), test.name());
        verdict = places.run(test);
    }
    if let Some(folder) = &places.bench.findings {
        let found = findings::judge(folder, &test.name());
        verdict = verdict.and(found);
    }
    let row = Row { name: test.name(), verdict: verdict.into(), took: begin.elapsed() };
    println!("verbs: {number:3}/{} {}", tests.len(), row.line());
    row
}

/// Something that is made once, when it is needed, or a reason why it cannot be.
pub(super) struct Lazy<T> {
    made: Option<Result<T, Skip>>,
}

impl<T> Default for Lazy<T> {
    fn default() -> Lazy<T> {
        Lazy { made: None }
    }
}

/// Why everything that needs it has no result.
#[derive(Debug, Clone)]
enum Skip {
    LeftOut(String),
    Failed(String),
}

impl<T> Lazy<T> {
    pub(super) fn with(
        &mut self,
        make: impl FnOnce() -> Result<T, Error>,
        run: impl FnOnce(&mut T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let made = self.made.get_or_insert_with(|| {
            make().map_err(|e| match e {
                Error::Missing(why) => Skip::LeftOut(why),
                e => Skip::Failed(e.to_string()),
            })
        });
        match made {
            Ok(made) => run(made),
            Err(Skip::LeftOut(why)) => Err(Error::Missing(why.clone())),
            Err(Skip::Failed(why)) => Err(Error::Failed(why.clone())),
        }
    }
}

impl Lazy<rxe::Peer> {
    /// The guest's kernel, where there is a guest.
    fn kernel(&self) -> Option<String> {
        Some(self.made.as_ref()?.as_ref().ok()?.kernel.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_one_place_run_one_by_one_and_all_have_their_turn() {
        let tests: Vec<Test> = Test::all().unwrap().into_iter().filter(Test::is_short).collect();
        let mut turns = Turns { tests: &tests, waiting: (0..tests.len()).collect(), busy: vec![] };
        let (mut under_way, mut done) = (vec![], 0);
        // Three workers, of which the one that began first ends first.
        loop {
            while under_way.len() < 3 {
                let Some(n) = turns.take() else { break };
                let place = tests[n].place();
                assert!(under_way.iter().all(|&other: &usize| tests[other].place() != place), "{}", tests[n].name());
                under_way.push(n);
            }
            if under_way.is_empty() {
                break;
            }
            turns.done(under_way.remove(0));
            done += 1;
        }
        assert_eq!(done, tests.len());
    }
}
