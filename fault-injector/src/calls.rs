//! Faults of the calls that a program makes of verbs and of the connection manager, as data. Reading them is in `part` (of a SPEC) and
//! `tables` (of a script), deciding over calls in `decider`.

mod decider;
mod errno;
mod names;
mod part;
mod tables;
mod verb;

use std::time::Duration;

use crate::process::{ProcessName, ProcessPattern};
pub use decider::{CallDecider, CallSeen, CompletionSeen, Side};
pub use names::{AsyncEvent, CmEvent, WcStatus};
pub(crate) use part::{is_part, parse_part};
pub(crate) use tables::{TABLES, parse_tables};
pub use verb::{Failure, Verb};

/// Which queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpMatch {
    /// The one with this number.
    Number(u32),
    /// The how-manieth that the program made, from 1.
    Made(u32),
}

/// Which calls, or completions, a rule is for. What is `None` matches every one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Which {
    /// The queue pair.
    pub qp: Option<QpMatch>,
    /// The work request.
    pub wr_id: Option<u64>,
    /// The how-manieth that all of the above is true of, from 1.
    pub nth: Option<u64>,
    /// With this probability; `None` is always.
    pub chance: Option<f64>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAction {
    /// It is not made, and fails with this errno.
    Fail(i32),
    /// It takes so much longer.
    Delay(Duration),
    /// The process is killed before it is made.
    Kill,
    /// The process begins anew before it is made, once: the same program with the same arguments.
    Restart,
    /// The process is stopped before it is made, for so long.
    Stop(Duration),
    /// It is made by halves: it succeeds, and this event follows instead of what it asked for. The number is the event's status: the reason
    /// of a rejection, or a negative errno.
    Event(CmEvent, i32),
}

/// What happens to a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionAction {
    /// It has this status instead of success.
    Status(WcStatus, u32),
    /// It comes later by this.
    Late(Duration),
    /// It comes so many polls later.
    Polls(u32),
    /// So many completions of other queues pass it.
    Reorder(u32),
    /// It finds the completion queue full: it is lost, and the queue with it.
    Overrun,
}

/// When something happens that no call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// So long after the program's first call.
    At(Duration),
    /// Before this call, the how-manieth of its verb.
    Call(Verb, u64),
}

/// What happens by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// An asynchronous event, with what follows from it.
    Async {
        /// The event.
        event: AsyncEvent,
        /// Of events of the port: until the port is up again. For ever where there is none.
        lasts: Option<Duration>,
        /// Of events of an object: the how-manieth of its kind that the program made, from 1.
        object: u32,
    },
    /// An event of the connection manager, at every id with a device.
    Cm(CmEvent),
}

/// A rule, and how it is named to people: a part of a SPEC, or a table of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Named<R> {
    /// The name.
    pub name: String,
    /// Its place among the tables of its kind in a script, from 1; 0 for a part of a SPEC.
    pub number: u32,
    /// In which processes.
    pub process: Option<ProcessPattern>,
    /// The rule.
    pub rule: R,
}

impl<R> Named<R> {
    /// A rule of a SPEC: for all processes.
    pub(crate) fn new(name: String, rule: R) -> Named<R> {
        Named { name, number: 0, process: None, rule }
    }
}

/// Kinds of tables of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// `[[call]]`.
    Call,
    /// `[[completion]]`.
    Completion,
    /// `[[async]]`.
    Async,
    /// `[[cm]]`.
    Cm,
}

/// A rule that decided over something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Of which kind.
    pub kind: TableKind,
    /// Which of them, from 1; 0 for a part of a SPEC.
    pub number: u32,
}

/// Calls that something happens to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallRule {
    /// The verb.
    pub verb: Verb,
    /// Which of its calls.
    pub which: Which,
    /// What happens.
    pub action: CallAction,
}

/// Completions that something happens to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompletionRule {
    /// Of sends or of receives.
    pub side: Option<Side>,
    /// Which of them.
    pub which: Which,
    /// What happens.
    pub action: CompletionAction,
}

/// Events of the connection manager that come late.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LateRule {
    /// The event.
    pub event: CmEvent,
    /// Which of them; queue pairs and work requests are nothing that they have.
    pub which: Which,
    /// Later by this.
    pub delay: Duration,
}

/// Events that happen by themselves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HappeningRule {
    /// When.
    pub when: When,
    /// What.
    pub what: Happening,
}

/// All faults of calls. For each call, completion or event the first rule that is for it decides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallFaults {
    /// Of calls.
    pub calls: Vec<Named<CallRule>>,
    /// Of completions.
    pub completions: Vec<Named<CompletionRule>>,
    /// Of events of the connection manager.
    pub late: Vec<Named<LateRule>>,
    /// By themselves.
    pub happenings: Vec<Named<HappeningRule>>,
}

impl CallFaults {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// The name of one of them.
    pub fn first(&self) -> Option<&str> {
        let calls = self.calls.first().map(|r| &r.name);
        let completions = self.completions.first().map(|r| &r.name);
        let rest = self.late.first().map(|r| &r.name).or(self.happenings.first().map(|r| &r.name));
        calls.or(completions).or(rest).map(String::as_str)
    }

    /// What of it is for one process.
    pub fn for_process(mut self, process: &ProcessName) -> CallFaults {
        fn keep<R>(rules: &mut Vec<Named<R>>, process: &ProcessName) {
            rules.retain_mut(|named| named.process.take().is_none_or(|pattern| pattern.is_for(process)));
        }
        keep(&mut self.calls, process);
        keep(&mut self.completions, process);
        keep(&mut self.late, process);
        keep(&mut self.happenings, process);
        self
    }

    /// Whether any of it is for some processes alone.
    pub fn names_processes(&self) -> bool {
        fn any<R>(rules: &[Named<R>]) -> bool {
            rules.iter().any(|named| named.process.is_some())
        }
        any(&self.calls) || any(&self.completions) || any(&self.late) || any(&self.happenings)
    }

    /// These, and others behind them.
    pub(crate) fn extend(&mut self, more: CallFaults) {
        self.calls.extend(more.calls);
        self.completions.extend(more.completions);
        self.late.extend(more.late);
        self.happenings.extend(more.happenings);
    }
}
