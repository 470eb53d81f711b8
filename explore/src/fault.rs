//! A single fault: what befalls which thing of which process, its name, and its script.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

use softnic_fault_injector::calls::{Applied, AsyncEvent, CmEvent, TableKind, WcStatus};
use softnic_wire::Opcode;

use crate::actor::Cast;
use crate::thing::{Kind, Learned, Thing, cm_event};

/// Families of faults, as `--faults` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// A packet is lost.
    Loss,
    /// It comes twice.
    Duplicate,
    /// Others pass it.
    Reorder,
    /// It comes late.
    Delay,
    /// A bit of it is flipped.
    Corrupt,
    /// The link goes down.
    Down,
    /// Verbs fail or take long, completions fail or come late, objects and the device fail.
    Verbs,
    /// The same of the connection manager.
    Cm,
    /// Processes are killed, or stand still.
    Kill,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 9] = [
        Family::Loss,
        Family::Duplicate,
        Family::Reorder,
        Family::Delay,
        Family::Corrupt,
        Family::Down,
        Family::Verbs,
        Family::Cm,
        Family::Kill,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Family::Loss => "loss",
            Family::Duplicate => "dup",
            Family::Reorder => "reorder",
            Family::Delay => "delay",
            Family::Corrupt => "corrupt",
            Family::Down => "down",
            Family::Verbs => "verbs",
            Family::Cm => "cm",
            Family::Kill => "kill",
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }
}

/// What befalls a thing. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A packet is dropped.
    Drop,
    /// It is sent twice.
    Duplicate,
    /// A bit is flipped.
    Corrupt,
    /// So many packets pass it.
    Reorder(u32),
    /// It comes so much later.
    Delay(u32),
    /// A call fails with this errno.
    Errno(&'static str),
    /// It takes so much longer.
    Slow(u32),
    /// The process is killed before it.
    Kill,
    /// The process begins anew before it.
    Restart,
    /// The process stands still before it, for so long.
    Stop(u32),
    /// This event comes instead of what a call asked for; of REJECTED with this reason.
    Instead(CmEvent, u32),
    /// A completion has this status.
    Status(WcStatus),
    /// It comes so much later.
    Late(u32),
    /// So many completions of other queues pass it.
    Behind(u32),
    /// It finds its queue full.
    Overrun,
    /// An event of the connection manager comes so much later.
    EventLate(u32),
    /// An asynchronous event comes before a call.
    Async {
        /// The event.
        event: AsyncEvent,
        /// How long it lasts; 0 is for ever, or until nothing.
        lasts: u32,
        /// About which object of its kind, by order of making; 0 for none.
        object: u32,
    },
    /// An event of the connection manager that comes by itself does, before a call.
    CmHappens(CmEvent),
}

/// By its kind alone: names of events and statuses have no hash.
impl Hash for What {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
    }
}

/// Longer than this a link that is down is told to the program: connections give up.
const MENDED_MS: u32 = 200;

impl What {
    /// Whether RDMA or time mends it, so that a program must end as without it. Else the program is told of an error, and may fail.
    pub fn is_recoverable(self) -> bool {
        match self {
            What::Drop | What::Duplicate | What::Corrupt | What::Reorder(_) | What::Delay(_) => true,
            What::Slow(_) | What::Stop(_) | What::Late(_) | What::Behind(_) | What::EventLate(_) => true,
            What::Async { event: AsyncEvent::PortErr, lasts, .. } => (1..=MENDED_MS).contains(&lasts),
            What::Async { event: AsyncEvent::SrqLimitReached, .. } => true,
            What::Errno(_) | What::Kill | What::Restart | What::Instead(..) | What::Status(_) | What::Overrun => false,
            What::Async { .. } | What::CmHappens(_) => false,
        }
    }

    /// Its family, for a thing of this kind.
    pub fn family(self, kind: Kind) -> Family {
        let is_cm = matches!(kind, Kind::Call(verb) if verb.is_cm());
        match self {
            What::Drop => Family::Loss,
            What::Duplicate => Family::Duplicate,
            What::Reorder(_) => Family::Reorder,
            What::Delay(_) => Family::Delay,
            What::Corrupt => Family::Corrupt,
            What::Async { event: AsyncEvent::PortErr, .. } => Family::Down,
            What::Errno(_) | What::Slow(_) if is_cm => Family::Cm,
            What::Instead(..) | What::EventLate(_) | What::CmHappens(_) => Family::Cm,
            What::Kill | What::Restart | What::Stop(_) => Family::Kill,
            _ => Family::Verbs,
        }
    }

    /// What it is called in a table.
    pub fn row(self) -> &'static str {
        match self {
            What::Drop => "loss",
            What::Duplicate => "dup",
            What::Corrupt => "corrupt",
            What::Reorder(_) => "reorder",
            What::Delay(_) => "delay",
            What::Errno(_) => "errno",
            What::Slow(_) => "slow call",
            What::Kill => "kill",
            What::Restart => "restart",
            What::Stop(_) => "stop",
            What::Instead(..) => "refusal",
            What::Status(_) => "status",
            What::Late(_) => "late completion",
            What::Behind(_) => "reordered completion",
            What::Overrun => "overrun",
            What::EventLate(_) => "late event",
            What::Async { event: AsyncEvent::PortErr, lasts: 0, .. } => "down: for ever",
            What::Async { event: AsyncEvent::PortErr, .. } => "down",
            What::Async { .. } => "event",
            What::CmHappens(_) => "event",
        }
    }

    fn ends_process(self) -> bool {
        matches!(self, What::Kill | What::Restart)
    }
}

/// A fault of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The place of its process in the [`Cast`].
    pub actor: usize,
    /// What it befalls.
    pub at: Learned,
    /// What befalls it.
    pub what: What,
}

impl Fault {
    /// Its family.
    pub fn family(&self) -> Family {
        self.what.family(self.at.thing.kind())
    }

    /// Whether it ends a process: one that died by SIGKILL has not crashed, and what it printed is not what it prints else.
    pub fn kills(&self) -> bool {
        self.what.ends_process()
    }

    /// How much longer a run takes because of it, in milliseconds: that is no hang.
    pub fn takes_ms(&self) -> u32 {
        match self.what {
            What::Delay(ms) | What::Slow(ms) | What::Stop(ms) | What::Late(ms) | What::EventLate(ms) => ms,
            What::Async { lasts, .. } => lasts,
            _ => 0,
        }
    }

    /// Its name, the same in every run.
    pub fn name(&self, cast: &Cast) -> String {
        format!("{}: {}", cast.actors[self.actor].pattern, self)
    }

    /// The tables of a script that make it happen, behind a line with its name.
    pub fn script(&self, cast: &Cast) -> String {
        let mut out = format!("# {}\n", one_line(&self.name(cast)));
        let (nth, overall) = (self.nth(), self.at.overall);
        let mut key = |line: fmt::Arguments<'_>| {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{line}");
        };
        let time = |ms: u32| format!("\"{ms}ms\"");
        key(format_args!("[[{}]]", self.table()));
        key(format_args!("process = {}", quoted(&cast.actors[self.actor].pattern)));
        if let Some(action) = self.action() {
            key(format_args!("action = \"{action}\""));
        }
        match self.what {
            What::Corrupt => key(format_args!("bit = {}", self.bit())),
            What::Reorder(behind) | What::Behind(behind) => key(format_args!("behind = {behind}")),
            What::Errno(errno) => key(format_args!("errno = \"{errno}\"")),
            What::Delay(ms) | What::Slow(ms) | What::Stop(ms) | What::Late(ms) | What::EventLate(ms) => {
                key(format_args!("delay = {}", time(ms)));
            }
            What::Instead(event, reason) => {
                key(format_args!("event = \"{}\"", event.name()));
                if event == CmEvent::Rejected {
                    key(format_args!("reason = {reason}"));
                }
            }
            What::Status(status) => key(format_args!("status = \"{}\"", status.name())),
            What::Async { event, lasts, object } => {
                key(format_args!("event = \"{}\"", event.name()));
                if lasts > 0 {
                    key(format_args!("lasts = {}", time(lasts)));
                }
                if object > 0 {
                    key(format_args!("object = {object}"));
                }
            }
            What::CmHappens(event) => key(format_args!("event = \"{}\"", event.name())),
            What::Drop | What::Duplicate | What::Kill | What::Restart | What::Overrun => {}
        }
        let by_itself = matches!(self.what, What::Async { .. } | What::CmHappens(_));
        match self.at.thing {
            Thing::Call { verb, .. } if by_itself => {
                key(format_args!("verb = \"{}\"\nnth = {overall}", verb.name()));
            }
            Thing::Call { verb, qp, .. } => {
                key(format_args!("verb = \"{}\"", verb.name()));
                if qp > 0 {
                    key(format_args!("qp = \"#{qp}\""));
                }
                key(format_args!("nth = {nth}"));
            }
            Thing::Completion { is_send, qp, .. } => {
                key(format_args!("queue = \"{}\"", if is_send { "send" } else { "recv" }));
                if qp > 0 {
                    key(format_args!("qp = \"#{qp}\""));
                }
                key(format_args!("nth = {nth}"));
            }
            Thing::CmEvent { event, .. } => {
                let name = cm_event(event).map_or("", CmEvent::name);
                key(format_args!("event = \"{name}\"\nnth = {nth}"));
            }
            Thing::Packet { device, destination, opcode, psn, iteration } => {
                key(format_args!("device = {device}"));
                match Opcode(opcode).to_string() {
                    unknown if unknown.starts_with("UNKNOWN") => key(format_args!("opcode = {opcode:#x}")),
                    name => key(format_args!("opcode = \"{name}\"")),
                }
                match destination {
                    0 => key(format_args!("qpn = 1")),
                    n => key(format_args!("qpn = \"#{n}\"")),
                }
                key(format_args!("psn = \"+{psn}\"\niteration = {iteration}"));
            }
        }
        out
    }

    fn nth(&self) -> u32 {
        match self.at.thing {
            Thing::Call { nth, .. } | Thing::Completion { nth, .. } | Thing::CmEvent { nth, .. } => nth,
            Thing::Packet { .. } => 0,
        }
    }

    /// The first bit of the ICRC: whoever checks it finds the packet wrong.
    fn bit(&self) -> u32 {
        u32::from(self.at.len.saturating_sub(4)) * 8
    }

    /// What the library notes when it is the table with this number of its kind, and decides; `None` for packets.
    pub(crate) fn applied(&self, number: u32) -> Option<Applied> {
        let kind = match self.table() {
            "async" => TableKind::Async,
            "call" => TableKind::Call,
            "completion" => TableKind::Completion,
            "cm" => TableKind::Cm,
            _ => return None,
        };
        Some(Applied { kind, number })
    }

    /// Its table in a script.
    pub(crate) fn table(&self) -> &'static str {
        match (self.what, self.at.thing) {
            (What::Async { .. }, _) => "async",
            (What::CmHappens(_) | What::EventLate(_), _) => "cm",
            (_, Thing::Call { .. }) => "call",
            (_, Thing::Completion { .. }) => "completion",
            (_, Thing::CmEvent { .. }) => "cm",
            (_, Thing::Packet { .. }) => "event",
        }
    }

    fn action(&self) -> Option<&'static str> {
        Some(match self.what {
            What::Drop => "drop",
            What::Duplicate => "duplicate",
            What::Corrupt => "corrupt",
            What::Reorder(_) | What::Behind(_) => "reorder",
            What::Delay(_) | What::Slow(_) => "delay",
            What::Errno(_) => "fail",
            What::Kill => "kill",
            What::Restart => "restart",
            What::Stop(_) => "stop",
            What::Instead(..) => "event",
            What::Status(_) => "status",
            What::Late(_) => "late",
            What::Overrun => "overrun",
            What::EventLate(_) | What::Async { .. } | What::CmHappens(_) => return None,
        })
    }
}

/// Milliseconds, as people say them.
fn time(ms: u32) -> String {
    match ms % 1000 {
        0 => format!("{} s", ms / 1000),
        _ => format!("{ms} ms"),
    }
}

/// What happens to what, without the process.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thing = self.at.thing;
        // Events that come by themselves count the calls of all queue pairs.
        let moment = || match thing {
            Thing::Call { verb, .. } => format!("{} {}", verb.name(), self.at.overall),
            other => other.to_string(),
        };
        match self.what {
            What::Drop => write!(f, "loss of {thing}"),
            What::Duplicate => write!(f, "duplicate of {thing}"),
            What::Corrupt => write!(f, "corruption of {thing}"),
            What::Reorder(n) => write!(f, "{thing} behind {n} later packet{}", if n == 1 { "" } else { "s" }),
            What::Delay(ms) | What::Late(ms) | What::EventLate(ms) => write!(f, "{thing} late by {}", time(ms)),
            What::Errno(errno) => write!(f, "{errno} of {thing}"),
            What::Slow(ms) => write!(f, "{} more for {thing}", time(ms)),
            What::Kill => write!(f, "killed before {thing}"),
            What::Restart => write!(f, "started anew before {thing}"),
            What::Stop(ms) => write!(f, "stopped for {} before {thing}", time(ms)),
            What::Instead(CmEvent::Rejected, reason) => write!(f, "REJECTED ({reason}) instead of {thing}"),
            What::Instead(event, _) => write!(f, "{} instead of {thing}", event.name()),
            What::Status(status) => write!(f, "{} of {thing}", status.name()),
            What::Behind(n) => write!(f, "{thing} behind {n} of other queues"),
            What::Overrun => write!(f, "{thing} finds the queue full"),
            What::Async { event: AsyncEvent::PortErr, lasts: 0, .. } => {
                write!(f, "link down for ever before {}", moment())
            }
            What::Async { event: AsyncEvent::PortErr, lasts, .. } => {
                write!(f, "link down for {} before {}", time(lasts), moment())
            }
            What::Async { event, object, .. } => {
                f.write_str(event.name())?;
                match event {
                    AsyncEvent::QpFatal => write!(f, " of queue pair #{object}")?,
                    AsyncEvent::CqErr => write!(f, " of completion queue #{object}")?,
                    AsyncEvent::SrqErr | AsyncEvent::SrqLimitReached => {
                        write!(f, " of shared receive queue #{object}")?
                    }
                    _ => {}
                }
                write!(f, " before {}", moment())
            }
            What::CmHappens(event) => write!(f, "{} before {}", event.name(), moment()),
        }
    }
}

/// Text in a comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Text as TOML has it.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::learn;
    use crate::thing::tests::{call, done, file, packet};
    use softnic_fault_injector::calls::{Side, Verb};

    #[test]
    fn a_fault_is_named_and_its_script_names_the_thing() {
        let seen = [call(Verb::PostSend, 1), done(Side::Send, 1, 0), packet(0x06, 12, 1)];
        let cast = learn(&[vec![file("./x \"a\" b", 1, &seen)]]);
        let of = |at: usize, what| Fault { actor: 0, at: cast.actors[0].things[at], what };
        let lost = of(2, What::Drop);
        assert_eq!(lost.name(&cast), "./x \"a\" b: loss of RC_RDMA_WRITE_FIRST psn +12 to queue pair #1");
        let expected = "# ./x \"a\" b: loss of RC_RDMA_WRITE_FIRST psn +12 to queue pair #1
[[event]]
process = \"./x \\\"a\\\" b\"
action = \"drop\"
device = 0
opcode = \"RC_RDMA_WRITE_FIRST\"
qpn = \"#1\"
psn = \"+12\"
iteration = 1
";
        assert_eq!(lost.script(&cast), expected);
        let corrupt = of(2, What::Corrupt).script(&cast);
        assert_eq!((lost.takes_ms(), of(0, What::Stop(2000)).takes_ms()), (0, 2000));
        assert!(corrupt.contains("bit = 768\n"), "the ICRC of 100 bytes: {corrupt}");
        let killed = of(0, What::Kill);
        assert_eq!(killed.to_string(), "killed before post_send 1 of queue pair #1");
        assert!(killed.script(&cast).ends_with("action = \"kill\"\nverb = \"post_send\"\nqp = \"#1\"\nnth = 1\n"));
        let down = of(0, What::Async { event: AsyncEvent::PortErr, lasts: 200, object: 0 });
        assert_eq!(down.to_string(), "link down for 200 ms before post_send 1");
        let text = down.script(&cast);
        assert!(text.ends_with("event = \"PORT_ERR\"\nlasts = \"200ms\"\nverb = \"post_send\"\nnth = 1\n"), "{text}");
        let status = of(1, What::Status(WcStatus::RetryExcErr));
        assert_eq!(status.to_string(), "RETRY_EXC_ERR of completion 1 of sends of queue pair #1");
        assert_eq!((down.family(), status.family(), lost.family()), (Family::Down, Family::Verbs, Family::Loss));
        assert_eq!((down.what.is_recoverable(), status.what.is_recoverable()), (true, false));
    }
}
