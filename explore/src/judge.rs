//! What became of a run, against the runs without faults.

use std::collections::{BTreeMap, BTreeSet};

use softnic_fault_injector::calls::Verb;

use crate::actor::Cast;
use crate::fault::{Fault, What};
use crate::output::Expected;
use crate::record::{File, Seen};
use crate::thing::{Thing, is_poll, things};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// As without faults.
    Same,
    /// Told of an error, the program ended by itself with another exit code.
    Reported,
    /// It ended with another exit code, though the fault is mended.
    ExitCode,
    /// It ended as without faults, and printed something else.
    Output,
    /// A process ended by a signal.
    Crash,
    /// It did not end in time, or left processes that did not.
    Hang,
    /// `softnic check` finds what no run without faults has.
    Check,
    /// Told of an error by a completion or by a post, the program did as if there were none.
    Ignored,
    /// What the user's command says is wrong.
    Judged,
    /// What the fault is for did not come.
    NotMet,
}

impl Outcome {
    /// All of them, in the order of a table.
    pub const ALL: [Outcome; 10] = [
        Outcome::Same,
        Outcome::Reported,
        Outcome::ExitCode,
        Outcome::Output,
        Outcome::Crash,
        Outcome::Hang,
        Outcome::Check,
        Outcome::Ignored,
        Outcome::Judged,
        Outcome::NotMet,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Same => "same",
            Outcome::Reported => "reported",
            Outcome::ExitCode => "exit code",
            Outcome::Output => "output",
            Outcome::Crash => "crash",
            Outcome::Hang => "hang",
            Outcome::Check => "check",
            Outcome::Ignored => "ignored",
            Outcome::Judged => "judged",
            Outcome::NotMet => "not met",
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| outcome.name() == name)
    }

    /// Whether the program is wrong.
    pub fn fails(self) -> bool {
        !matches!(self, Outcome::Same | Outcome::Reported | Outcome::NotMet)
    }
}

/// What `softnic check` found: errors, and whatever is less.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Whether it is misuse on any NIC.
    pub is_error: bool,
    /// Its kind and place.
    pub what: String,
}

/// What is known of a run that ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The exit code, 128 and a signal as shells have it; `None` where it did not end in time.
    pub exit: Option<i32>,
    /// Processes that did not end in time.
    pub left: usize,
    /// What it printed on stdout.
    pub stdout: String,
    /// What it printed on stderr, as far as it tells of a process that crashed.
    pub crashed: Option<String>,
    /// What `softnic check` found.
    pub findings: BTreeSet<Finding>,
    /// Calls of all processes, those that poll and wait left out.
    pub calls: BTreeMap<Verb, usize>,
    /// Whether a completion or a post told of an error.
    pub was_told: bool,
    /// Whether what the faults are for came.
    pub met: bool,
}

/// Who says what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// Everything that is known here.
    Usual,
    /// The exit code alone.
    Exit,
    /// The user's command, whether it says that all is well.
    Command(bool),
}

/// What runs without faults were like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    /// Their exit code.
    pub exit: i32,
    /// What they printed.
    pub output: Expected,
    /// What `softnic check` found in any of them.
    pub findings: BTreeSet<Finding>,
    /// What they called, where that is the same in all.
    pub calls: Option<BTreeMap<Verb, usize>>,
}

/// Signals that end a program that does what it should not, by their numbers on Linux.
const CRASHES: [(i32, &str); 8] = [
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (31, "SIGSYS"),
];

/// The signal that ended a program with this exit code, if it is such a one.
pub fn crash_of(exit: i32) -> Option<&'static str> {
    CRASHES.iter().find(|(signal, _)| 128 + signal == exit).map(|(_, name)| *name)
}

/// What lines on stderr say where a shell, a runtime or a sanitizer tells of the end of a process.
const TOLD_CRASHES: [&str; 9] = [
    "Segmentation fault",
    "Bus error",
    "Illegal instruction",
    "Floating point exception",
    "(core dumped)",
    "ERROR: AddressSanitizer",
    "ERROR: ThreadSanitizer",
    "stack smashing detected",
    "terminate called",
];

/// The line of stderr that tells of a crash.
pub fn told_crash(stderr: &str) -> Option<&str> {
    stderr.lines().find(|line| TOLD_CRASHES.iter().any(|told| line.contains(told)))
}

/// What a program may do about faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// RDMA or time mends all of them: the program must end as without them.
    pub is_recoverable: bool,
    /// They end a process before its time.
    pub kills: bool,
    /// They have a post fail.
    pub fails_post: bool,
}

impl Sort {
    /// Of these faults together.
    pub fn of(faults: &[Fault]) -> Sort {
        let posts = |fault: &Fault| {
            let is_post = matches!(fault.at.thing, Thing::Call { verb, .. } if verb.has_work_request());
            is_post && matches!(fault.what, What::Errno(_))
        };
        Sort {
            is_recoverable: faults.iter().all(|fault| fault.what.is_recoverable()),
            kills: faults.iter().any(Fault::kills),
            fails_post: faults.iter().any(posts),
        }
    }
}

/// The outcome of a run with faults of this sort, and in a few words why it fails.
pub fn judge(baseline: &Baseline, sort: Sort, facts: &Facts, by: Judge) -> (Outcome, Option<String>) {
    let Sort { is_recoverable, kills, .. } = sort;
    let Some(exit) = facts.exit else {
        return (Outcome::Hang, Some("it does not end in time".into()));
    };
    let signal = crash_of(exit).filter(|signal| (exit != baseline.exit) && !(kills && *signal == "SIGKILL"));
    if let Some(signal) = signal {
        return (Outcome::Crash, Some(signal.into()));
    }
    if by == Judge::Usual
        && let Some(line) = &facts.crashed
    {
        return (Outcome::Crash, Some(line.clone()));
    }
    if facts.left > 0 {
        let processes = if facts.left == 1 { "process" } else { "processes" };
        return (Outcome::Hang, Some(format!("it leaves {} {processes} that do not end", facts.left)));
    }
    if !facts.met {
        return (Outcome::NotMet, None);
    }
    let differs = exit != baseline.exit;
    match by {
        Judge::Command(true) | Judge::Exit if !differs => return (Outcome::Same, None),
        Judge::Command(true) => return (Outcome::Reported, None),
        Judge::Command(false) => return (Outcome::Judged, Some(format!("the judge says so; exit code {exit}"))),
        Judge::Exit => return (Outcome::ExitCode, Some(format!("exit code {exit}"))),
        Judge::Usual => {}
    }
    if differs && is_recoverable {
        return (Outcome::ExitCode, Some(format!("exit code {exit} instead of {}", baseline.exit)));
    }
    // A process that ends before its time prints less, and one that begins anew prints it twice.
    if !differs
        && !kills
        && let Err(why) = baseline.output.compare(&facts.stdout)
    {
        return (Outcome::Output, Some(why));
    }
    // Who gives up because of an error may leave things as they are: that is no more than a warning.
    let counts = |finding: &&Finding| finding.is_error || is_recoverable || !differs;
    let new = facts.findings.difference(&baseline.findings).find(counts);
    if let Some(finding) = new {
        return (Outcome::Check, Some(finding.what.clone()));
    }
    if differs {
        return (Outcome::Reported, None);
    }
    if facts.was_told && !is_recoverable && baseline.calls.as_ref() == Some(&facts.calls) {
        let why = "an error was told, and the program made the calls that it makes without one, and succeeded";
        return (Outcome::Ignored, Some(why.into()));
    }
    (Outcome::Same, None)
}

/// The calls of all processes, those left out of which more or fewer are made as time goes.
pub fn calls(files: &[File]) -> BTreeMap<Verb, usize> {
    let mut calls = BTreeMap::new();
    for record in files.iter().flat_map(|file| &file.records) {
        if let Seen::Call { verb, .. } = record.seen
            && !waits(verb)
        {
            *calls.entry(verb).or_default() += 1;
        }
    }
    calls
}

fn waits(verb: Verb) -> bool {
    is_poll(verb)
        || matches!(verb, Verb::ReqNotifyCq | Verb::GetCqEvent | Verb::AckCqEvents)
        || matches!(verb, Verb::GetAsyncEvent | Verb::AckAsyncEvent | Verb::QueryQp | Verb::QueryPort)
}

/// Whether a completion told a program of an error that is no end of its own making, or a post was to fail.
pub fn was_told(sort: Sort, files: &[File]) -> bool {
    const FLUSHED: u8 = 5;
    let failed = |seen: &Seen| matches!(seen, Seen::Completion { status, .. } if *status != 0 && *status != FLUSHED);
    sort.fails_post || files.iter().flat_map(|file| &file.records).any(|record| failed(&record.seen))
}

/// Whether what each fault is for came in a run: packets are seen above the faults, of all else the rules that decided are.
pub fn met(cast: &Cast, faults: &[Fault], files: &[File]) -> bool {
    let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
    let mut came = |fault: &Fault| {
        // Tables of a kind are counted through both faults' scripts.
        let number = numbers.entry(fault.table()).or_default();
        *number += 1;
        let actor = &cast.actors[fault.actor];
        let mut of_actor = files.iter().filter(|file| actor.is(&file.process.label, file.process.ordinal));
        of_actor.any(|file| match fault.applied(*number) {
            None => things(file).iter().any(|learned| learned.thing == fault.at.thing),
            Some(applied) => file.records.iter().any(|record| record.seen == Seen::Applied(applied)),
        })
    };
    // Each is counted, also behind one that did not come.
    faults.iter().filter(|fault| !came(fault)).count() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::learn;
    use crate::thing::tests::{call, done, file, packet};
    use softnic_fault_injector::calls::{Applied, Side, TableKind};

    fn fault(what: What) -> Fault {
        let cast = learn(&[vec![file("./x", 1, &[call(Verb::PostSend, 1)])]]);
        Fault { actor: 0, at: cast.actors[0].things[0], what }
    }

    fn baseline() -> Baseline {
        let output = Expected::Exact("ok\n".into());
        Baseline { exit: 0, output, findings: BTreeSet::new(), calls: Some(BTreeMap::from([(Verb::PostSend, 1)])) }
    }

    fn ended(exit: i32, stdout: &str) -> Facts {
        Facts { exit: Some(exit), stdout: stdout.into(), met: true, ..Facts::default() }
    }

    fn outcome(what: What, facts: &Facts) -> Outcome {
        judge(&baseline(), Sort::of(&[fault(what)]), facts, Judge::Usual).0
    }

    const TOLD: What = What::Errno("ENOMEM");
    const MENDED: What = What::Slow(100);

    #[test]
    fn faults_that_are_mended_must_not_be_seen_and_others_may_be_reported() {
        assert_eq!([outcome(MENDED, &ended(0, "ok\n")), outcome(TOLD, &ended(0, "ok\n"))], [Outcome::Same; 2]);
        assert_eq!(outcome(MENDED, &ended(1, "")), Outcome::ExitCode);
        assert_eq!(outcome(TOLD, &ended(1, "")), Outcome::Reported);
        assert_eq!([outcome(MENDED, &ended(0, "")), outcome(TOLD, &ended(0, ""))], [Outcome::Output; 2]);
        assert_eq!(outcome(TOLD, &Facts { met: false, ..ended(0, "ok\n") }), Outcome::NotMet);
    }

    #[test]
    fn what_a_process_prints_that_was_ended_is_not_compared() {
        for what in [What::Kill, What::Restart] {
            assert_eq!(outcome(what, &ended(0, "ok\nok\n")), Outcome::Same);
            assert_eq!(outcome(what, &ended(1, "")), Outcome::Reported);
        }
    }

    #[test]
    fn a_signal_is_a_crash_unless_it_is_the_fault() {
        assert_eq!(outcome(TOLD, &ended(139, "")), Outcome::Crash);
        assert_eq!(outcome(What::Kill, &ended(137, "")), Outcome::Reported);
        assert_eq!(outcome(What::Kill, &ended(134, "")), Outcome::Crash);
        assert_eq!(outcome(TOLD, &ended(137, "")), Outcome::Crash, "nobody here sent it");
        assert_eq!(outcome(TOLD, &ended(143, "")), Outcome::Reported, "SIGTERM is how tests end their servers");
        let stderr = "a.sh: line 1: 17 Segmentation fault (core dumped) ./x";
        let facts = Facts { crashed: told_crash(stderr).map(str::to_owned), ..ended(1, "") };
        assert_eq!(outcome(TOLD, &facts), Outcome::Crash);
        assert_eq!(told_crash("all is well\n"), None);
    }

    #[test]
    fn what_does_not_end_hangs_also_a_process_that_is_left() {
        assert_eq!(outcome(TOLD, &Facts { exit: None, ..ended(0, "") }), Outcome::Hang);
        let facts = Facts { left: 2, ..ended(0, "ok\n") };
        let (outcome, why) = judge(&baseline(), Sort::of(&[fault(TOLD)]), &facts, Judge::Usual);
        assert_eq!((outcome, why.as_deref()), (Outcome::Hang, Some("it leaves 2 processes that do not end")));
    }

    #[test]
    fn a_new_finding_fails_and_warnings_do_not_where_the_program_gave_up() {
        let with = |is_error, facts: Facts| {
            let finding = Finding { is_error, what: "leak at main".into() };
            Facts { findings: BTreeSet::from([finding]), ..facts }
        };
        assert_eq!(outcome(TOLD, &with(true, ended(1, ""))), Outcome::Check);
        assert_eq!(outcome(TOLD, &with(false, ended(1, ""))), Outcome::Reported);
        assert_eq!(outcome(MENDED, &with(false, ended(0, "ok\n"))), Outcome::Check);
        let mut known = baseline();
        known.findings = with(true, ended(0, "")).findings;
        let facts = with(true, ended(0, "ok\n"));
        assert_eq!(judge(&known, Sort::of(&[fault(MENDED)]), &facts, Judge::Usual).0, Outcome::Same);
    }

    #[test]
    fn who_is_told_of_an_error_and_does_nothing_else_ignores_it() {
        let told =
            |calls| Facts { was_told: true, calls: BTreeMap::from([(Verb::PostSend, calls)]), ..ended(0, "ok\n") };
        assert_eq!(outcome(TOLD, &told(1)), Outcome::Ignored);
        assert_eq!(outcome(TOLD, &told(2)), Outcome::Same, "it tried again");
        assert_eq!(outcome(MENDED, &told(1)), Outcome::Same);
        let cast = learn(&[vec![file("./x", 1, &[call(Verb::RegMr, 0), call(Verb::PostSend, 1)])]]);
        let of = |at: usize| Sort::of(&[Fault { actor: 0, at: cast.actors[0].things[at], what: TOLD }]);
        assert!(!was_told(of(0), &[]) && was_told(of(1), &[]));
        assert!(was_told(of(0), &[file("./x", 1, &[done(Side::Send, 1, 12)])]));
        assert!(!was_told(of(0), &[file("./x", 1, &[done(Side::Send, 1, 5)])]), "flushed by its own end");
    }

    #[test]
    fn other_judges_look_at_the_exit_code_or_are_asked() {
        let by = |by, exit| judge(&baseline(), Sort::of(&[fault(TOLD)]), &ended(exit, "?"), by).0;
        assert_eq!((by(Judge::Exit, 0), by(Judge::Exit, 3)), (Outcome::Same, Outcome::ExitCode));
        assert_eq!((by(Judge::Command(true), 3), by(Judge::Command(false), 0)), (Outcome::Reported, Outcome::Judged));
        assert_eq!(by(Judge::Command(true), 139), Outcome::Crash);
    }

    #[test]
    fn a_fault_is_met_where_its_packet_came_or_its_rule_decided() {
        let sent = packet(4, 0, 1);
        let cast = learn(&[vec![file("./x", 1, &[call(Verb::PostSend, 1), done(Side::Send, 1, 0), sent])]]);
        let of = |at: usize, what| Fault { actor: 0, at: cast.actors[0].things[at], what };
        let applied = |kind, number| Seen::Applied(Applied { kind, number });
        let (killed, late, lost) = (of(0, What::Kill), of(1, What::Late(50)), of(2, What::Drop));
        let seen = [file("./x", 1, &[applied(TableKind::Call, 1), sent])];
        assert!(met(&cast, &[killed], &seen) && met(&cast, &[lost, killed], &seen));
        assert!(!met(&cast, &[late], &seen) && !met(&cast, &[killed, of(0, TOLD)], &seen), "each table has its number");
        let both = [file("./x", 1, &[applied(TableKind::Call, 1), applied(TableKind::Call, 2)])];
        assert!(met(&cast, &[killed, of(0, TOLD)], &both) && !met(&cast, &[lost], &both));
        assert!(!met(&cast, &[killed], &[file("./y", 1, &[applied(TableKind::Call, 1)])]), "another process");
    }
}
