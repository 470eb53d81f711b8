//! Tables of a script that are about calls: `[[call]]`, `[[completion]]`, `[[async]]` and `[[cm]]`.

use std::time::Duration;

use toml::{Table, Value};

use super::decider::Side;
use super::errno::errno;
use super::part::{check_async, check_fails, instead, unknown_verb};
use super::verb::Verb;
use super::{
    AsyncEvent, CallAction, CallFaults, CallRule, CmEvent, CompletionAction, CompletionRule, Happening, HappeningRule,
    LateRule, Named, QpMatch, WcStatus, When, Which,
};
use crate::process::{PROCESS, ProcessPattern};
use crate::text::on_one_line;
use crate::units::{MAX_DELAY, parse_chance, parse_time};

/// The tables, each with its keys.
pub(crate) const TABLES: [(&str, &[&str]); 4] = [
    ("call", &["verb", "action", "errno", "delay", "event", "reason", "qp", "wr_id", "nth", "chance", "process"]),
    (
        "completion",
        &[
            "action",
            "status",
            "vendor_err",
            "delay",
            "polls",
            "behind",
            "queue",
            "qp",
            "wr_id",
            "nth",
            "chance",
            "process",
        ],
    ),
    ("async", &["event", "at", "verb", "nth", "lasts", "object", "process"]),
    ("cm", &["event", "delay", "at", "verb", "nth", "chance", "process"]),
];

/// Reads all tables of a script that are about calls, or says what is wrong, with the place.
pub(crate) fn parse_tables(script: &Table) -> Result<CallFaults, String> {
    let mut faults = CallFaults::default();
    for (kind, known) in TABLES {
        let no_list = || format!("each {kind} begins with a line [[{kind}]], in two brackets");
        let list = match script.get(kind) {
            None => continue,
            Some(Value::Array(list)) => list,
            Some(_) => return Err(no_list()),
        };
        for (i, value) in list.iter().enumerate() {
            let Value::Table(table) = value else { return Err(no_list()) };
            let name = format!("{kind} {}", i + 1);
            let keys = Keys { table };
            if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
                let has = known.join(", ");
                return Err(format!("{name}: there is no key '{}': a {kind} has {has}", on_one_line(key)));
            }
            let place = name;
            let at = |why: String| format!("{place}: {why}");
            let (name, number) = (format!("{kind} {} of the script", i + 1), i as u32 + 1);
            let process = keys.process().map_err(at)?;
            match kind {
                "call" => faults.calls.push(Named { name, number, process, rule: keys.call().map_err(at)? }),
                "completion" => {
                    faults.completions.push(Named { name, number, process, rule: keys.completion().map_err(at)? })
                }
                "async" => {
                    faults.happenings.push(Named { name, number, process, rule: keys.async_event().map_err(at)? })
                }
                _ => match keys.cm().map_err(at)? {
                    Cm::Late(rule) => faults.late.push(Named { name, number, process, rule }),
                    Cm::Happens(rule) => faults.happenings.push(Named { name, number, process, rule }),
                },
            }
        }
    }
    Ok(faults)
}

enum Cm {
    Late(LateRule),
    Happens(HappeningRule),
}

/// The keys of one table.
struct Keys<'a> {
    table: &'a Table,
}

fn refuse(key: &str, value: &Value, allowed: &str) -> String {
    let value = match value {
        Value::String(s) => format!("{s:?}"),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Boolean(b) => b.to_string(),
        other => format!("a TOML {}", other.type_str()),
    };
    format!("{key}: it cannot be {value}: write {allowed}")
}

impl Keys<'_> {
    /// A key that may be left out.
    fn get<T>(&self, key: &str, allowed: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>, String> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| refuse(key, value, allowed))
    }

    fn must<T>(key: &str, found: Option<T>, why: &str) -> Result<T, String> {
        found.ok_or_else(|| format!("{key}: {why}"))
    }

    /// Keys that the action does not take.
    fn only(&self, action: &str, keys: &[&str], taken: &[&str]) -> Result<(), String> {
        match keys.iter().find(|key| self.table.contains_key(**key) && !taken.contains(*key)) {
            Some(key) => Err(format!("{key}: it does not go with action = {action:?}")),
            None => Ok(()),
        }
    }

    fn process(&self) -> Result<Option<ProcessPattern>, String> {
        self.get("process", PROCESS, |v| v.as_str().and_then(ProcessPattern::parse))
    }

    fn verb(&self) -> Result<Option<Verb>, String> {
        let Some(value) = self.table.get("verb") else { return Ok(None) };
        let Some(name) = value.as_str() else { return Err(refuse("verb", value, "the name of a call")) };
        Verb::from_name(name).map(Some).ok_or_else(|| format!("verb: {}", on_one_line(&unknown_verb(name))))
    }

    fn time(&self, key: &str) -> Result<Option<Duration>, String> {
        self.get(key, "a time of at most 1000s, e.g. \"5ms\"", |v| {
            v.as_str().and_then(|s| parse_time(s).ok()).filter(|t| *t <= MAX_DELAY)
        })
    }

    fn number(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>, String> {
        let allowed = match most {
            u64::MAX => format!("a whole number, at least {least}"),
            most => format!("a whole number from {least} to {most}"),
        };
        self.get(key, &allowed, |v| {
            v.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| (least..=most).contains(n))
        })
    }

    fn which(&self) -> Result<Which, String> {
        let qp =
            self.get(
                "qp",
                "a number from 0 to 0xffffff, or \"#1\" for the first that the program made",
                |v| match v {
                    Value::Integer(n) => u32::try_from(*n).ok().filter(|n| *n <= 0xff_ffff).map(QpMatch::Number),
                    Value::String(s) => {
                        let digits = s.strip_prefix('#').filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?;
                        digits.parse().ok().filter(|n| *n > 0).map(QpMatch::Made)
                    }
                    _ => None,
                },
            )?;
        // TOML's numbers have a sign; work requests of more bits are written as text.
        let wr_id = self.get("wr_id", "a number, or one in quotes, e.g. \"0xffffffffffffffff\"", |v| match v {
            Value::Integer(n) => u64::try_from(*n).ok(),
            Value::String(s) => match s.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => s.parse().ok(),
            },
            _ => None,
        })?;
        let chance = self.get("chance", "a probability from 0 to 1, e.g. 1e-3 or \"0.1%\"", |v| match v {
            Value::Float(p) => Some(*p).filter(|p| (0.0..=1.0).contains(p)),
            Value::Integer(n) => Some(*n as f64).filter(|p| (0.0..=1.0).contains(p)),
            Value::String(s) => parse_chance(s).ok(),
            _ => None,
        })?;
        Ok(Which { qp, wr_id, nth: self.number("nth", 1, u64::MAX)?, chance })
    }

    fn action(&self, allowed: &str) -> Result<&str, String> {
        let value = self.table.get("action").ok_or_else(|| format!("action: it must be there: {allowed}"))?;
        value.as_str().ok_or_else(|| refuse("action", value, allowed))
    }

    fn call(&self) -> Result<CallRule, String> {
        const OWN: [&str; 4] = ["errno", "delay", "event", "reason"];
        let allowed = "\"fail\", \"delay\", \"kill\", \"restart\", \"stop\" or \"event\"";
        let action = self.action(allowed)?;
        let verb = Self::must("verb", self.verb()?, "it must be there: the name of a call, e.g. \"post_send\"")?;
        let which = self.which()?;
        if which.qp.is_some() && !verb.has_queue_pair() {
            return Err(format!("qp: {} is not about a queue pair", verb.name()));
        }
        if which.wr_id.is_some() && !verb.has_work_request() {
            return Err(format!("wr_id: {} posts no work requests", verb.name()));
        }
        let delay = self.time("delay")?;
        let only = |taken: &[&str]| self.only(action, &OWN, taken);
        let action = match action {
            "fail" => {
                only(&["errno"])?;
                let e = self.get("errno", "the name of an errno, e.g. \"ENOMEM\"", |v| v.as_str().and_then(errno))?;
                let e = Self::must("errno", e, "\"fail\" needs it: the name of an errno, e.g. \"ENOMEM\"")?;
                CallAction::Fail(check_fails(verb, e).map_err(|why| format!("errno: {why}"))?)
            }
            "delay" => {
                only(&["delay"])?;
                CallAction::Delay(Self::must("delay", delay, "\"delay\" needs it: a time, e.g. \"5ms\"")?)
            }
            "kill" => {
                only(&[])?;
                CallAction::Kill
            }
            "restart" => {
                only(&[])?;
                CallAction::Restart
            }
            "stop" => {
                only(&["delay"])?;
                CallAction::Stop(Self::must("delay", delay, "\"stop\" needs it: for how long, e.g. \"2s\"")?)
            }
            "event" => {
                only(&["event", "reason"])?;
                let event = self.get("event", &CmEvent::names(), |v| v.as_str().and_then(CmEvent::from_name))?;
                let event = Self::must("event", event, "\"event\" needs it: what comes instead, e.g. \"REJECTED\"")?;
                let status = instead(event, verb).map_err(|why| format!("event: {why}"))?;
                match (event, self.number("reason", 1, 0xffff)?) {
                    (CmEvent::Rejected, reason) => {
                        let reason =
                            Self::must("reason", reason, "\"REJECTED\" needs it: why, as a REJ says it, e.g. 28")?;
                        CallAction::Event(event, reason as i32)
                    }
                    (_, Some(_)) => return Err("reason: it goes with event = \"REJECTED\" only".into()),
                    (_, None) => CallAction::Event(event, status),
                }
            }
            _ => return Err(refuse("action", &self.table["action"], allowed)),
        };
        Ok(CallRule { verb, which, action })
    }

    fn completion(&self) -> Result<CompletionRule, String> {
        const OWN: [&str; 5] = ["status", "vendor_err", "delay", "polls", "behind"];
        let allowed = "\"status\", \"late\", \"reorder\" or \"overrun\"";
        let action = self.action(allowed)?;
        let (which, delay) = (self.which()?, self.time("delay")?);
        let side = self.get("queue", "\"send\" or \"recv\"; left out, it is both", |v| match v.as_str() {
            Some("send") => Some(Side::Send),
            Some("recv") => Some(Side::Recv),
            _ => None,
        })?;
        let only = |taken: &[&str]| self.only(action, &OWN, taken);
        let action = match action {
            "status" => {
                only(&["status", "vendor_err"])?;
                let read = |v: &Value| v.as_str().and_then(WcStatus::from_name);
                let status = self.get("status", &format!("one of {}", WcStatus::names()), read)?;
                let status = Self::must("status", status, "\"status\" needs it, e.g. \"RETRY_EXC_ERR\"")?;
                if side == Some(Side::Recv) && !status.occurs().1 {
                    return Err(format!("status: no receive completes with {}", status.name()));
                }
                CompletionAction::Status(status, self.number("vendor_err", 0, u32::MAX.into())?.unwrap_or(0) as u32)
            }
            "late" => {
                only(&["delay", "polls"])?;
                match (delay, self.number("polls", 1, 1000)?) {
                    (Some(delay), None) => CompletionAction::Late(delay),
                    (None, Some(polls)) => CompletionAction::Polls(polls as u32),
                    (Some(_), Some(_)) => return Err("polls: it is late by a time or by polls, not by both".into()),
                    (None, None) => return Err("delay: \"late\" needs it, or polls: by how many".into()),
                }
            }
            "reorder" => {
                only(&["behind"])?;
                let behind = self.number("behind", 1, 1000)?;
                let why = "\"reorder\" needs it: behind how many completions of other queues";
                CompletionAction::Reorder(Self::must("behind", behind, why)? as u32)
            }
            "overrun" => {
                only(&[])?;
                CompletionAction::Overrun
            }
            _ => return Err(refuse("action", &self.table["action"], allowed)),
        };
        Ok(CompletionRule { side, which, action })
    }

    /// The time of what happens by itself.
    fn when(&self) -> Result<When, String> {
        match (self.time("at")?, self.verb()?, self.number("nth", 1, u64::MAX)?) {
            (Some(at), None, None) => Ok(When::At(at)),
            (None, Some(verb), nth) => Ok(When::Call(verb, nth.unwrap_or(1))),
            (None, None, _) => Err("at: it must be there, or verb and nth: when it happens".into()),
            (Some(_), ..) => Err("at: it happens at a time or before a call, not both".into()),
        }
    }

    fn async_event(&self) -> Result<HappeningRule, String> {
        let allowed = format!("one of {}", AsyncEvent::names());
        let event = self.get("event", &allowed, |v| v.as_str().and_then(AsyncEvent::from_name))?;
        let event = Self::must("event", event, &format!("it must be there: {allowed}"))?;
        let lasts = self.time("lasts")?;
        let object = self.number("object", 1, u32::MAX.into())?.map(|n| n as u32);
        check_async(event, lasts, object).map_err(|why| format!("event: {why}"))?;
        let what = Happening::Async { event, lasts, object: object.unwrap_or(1) };
        Ok(HappeningRule { when: self.when()?, what })
    }

    fn cm(&self) -> Result<Cm, String> {
        let allowed = format!("one of {}", CmEvent::names());
        let event = self.get("event", &allowed, |v| v.as_str().and_then(CmEvent::from_name))?;
        let event = Self::must("event", event, &format!("it must be there: {allowed}"))?;
        if event.is_by_itself() {
            if let Some(key) = ["delay", "chance"].iter().find(|key| self.table.contains_key(**key)) {
                return Err(format!("{key}: {} comes by itself: say when, by at or by verb and nth", event.name()));
            }
            return Ok(Cm::Happens(HappeningRule { when: self.when()?, what: Happening::Cm(event) }));
        }
        if let Some(key) = ["at", "verb"].iter().find(|key| self.table.contains_key(**key)) {
            return Err(format!(
                "{key}: {} comes when the connection manager has it, and may come late: write delay",
                event.name()
            ));
        }
        let delay = Self::must("delay", self.time("delay")?, "it must be there: by how much later the event comes")?;
        Ok(Cm::Late(LateRule { event, which: self.which()?, delay }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessName;
    use crate::script::Script;

    fn parse(text: &str) -> CallFaults {
        Script::parse(text).unwrap().calls
    }

    #[test]
    fn every_table_is_read() {
        let faults = parse(
            r##"
            [[call]]
            verb = "post_send"
            action = "fail"
            errno = "ENOMEM"
            qp = "#2"
            wr_id = "0xffffffffffffffff"
            nth = 3
            chance = "50%"

            [[call]]
            verb = "rdma_connect"
            action = "event"
            event = "REJECTED"
            reason = 28

            [[completion]]
            action = "status"
            status = "RETRY_EXC_ERR"
            vendor_err = 0x81
            queue = "send"
            qp = 0x11
            wr_id = 7

            [[completion]]
            action = "late"
            polls = 3
            chance = 1e-3
            process = "client"

            [[async]]
            event = "PORT_ERR"
            verb = "post_send"
            nth = 100
            lasts = "2s"

            [[cm]]
            event = "TIMEWAIT_EXIT"
            delay = "2s"

            [[cm]]
            event = "DEVICE_REMOVAL"
            at = "5s"
            "##,
        );
        let which = Which { qp: Some(QpMatch::Made(2)), wr_id: Some(u64::MAX), nth: Some(3), chance: Some(0.5) };
        assert_eq!(faults.calls[0].rule, CallRule { verb: Verb::PostSend, which, action: CallAction::Fail(12) });
        assert_eq!(faults.calls[1].rule.action, CallAction::Event(CmEvent::Rejected, 28));
        let first = faults.completions[0].rule;
        assert_eq!(first.action, CompletionAction::Status(WcStatus::RetryExcErr, 0x81));
        assert_eq!((first.side, first.which.qp), (Some(Side::Send), Some(QpMatch::Number(0x11))));
        assert_eq!(faults.completions[1].rule.action, CompletionAction::Polls(3));
        let names: Vec<&str> = faults.happenings.iter().map(|named| named.name.as_str()).collect();
        assert_eq!(names, ["async 1 of the script", "cm 2 of the script"]);
        assert_eq!(faults.happenings[0].rule.when, When::Call(Verb::PostSend, 100));
        assert_eq!(faults.happenings[1].rule.when, When::At(Duration::from_secs(5)));
        assert_eq!(faults.late[0].rule.delay, Duration::from_secs(2));
        assert!(faults.names_processes());
        let of = |label: &str| faults.clone().for_process(&ProcessName { label: label.into(), ordinal: 1 });
        assert_eq!((of("client").completions.len(), of("server").completions.len()), (2, 1));
        assert!(!of("client").names_processes() && of("server").calls == faults.calls);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_that_names_the_place() {
        let said = |text: &str| Script::parse(text).unwrap_err().to_string();
        for (kind, keys, line) in [
            ("call", "", r#"call 1: action: it must be there: "fail", "delay", "kill", "restart", "stop" or "event""#),
            ("call", "action = \"fail\"", "call 1: verb: it must be there"),
            ("call", "action = \"lose\"\nverb = \"post_send\"", r#"call 1: action: it cannot be "lose": write "fail""#),
            (
                "call",
                "verb = \"ibv_reg_mr\"\naction = \"kill\"",
                "call 1: verb: verbs are named without ibv_: write reg_mr",
            ),
            ("call", "verb = 3\naction = \"kill\"", "call 1: verb: it cannot be 3"),
            ("call", "verb = \"reg_mr\"\naction = \"fail\"", r#"call 1: errno: "fail" needs it"#),
            ("call", "verb = \"reg_mr\"\naction = \"fail\"\nerrno = \"EX\"", r#"call 1: errno: it cannot be "EX""#),
            (
                "call",
                "verb = \"reg_mr\"\naction = \"kill\"\nerrno = \"EIO\"",
                r#"call 1: errno: it does not go with action = "kill""#,
            ),
            ("call", "verb = \"reg_mr\"\naction = \"kill\"\nqp = 3", "call 1: qp: reg_mr is not about a queue pair"),
            ("call", "verb = \"modify_qp\"\naction = \"kill\"\nwr_id = 3", "call 1: wr_id: modify_qp posts no work"),
            ("call", "verb = \"post_send\"\naction = \"kill\"\nqp = \"#0\"", "call 1: qp: it cannot be \"#0\""),
            ("call", "verb = \"post_send\"\naction = \"kill\"\nchance = 2", "call 1: chance: it cannot be 2"),
            ("call", "verb = \"post_send\"\naction = \"stop\"", r#"call 1: delay: "stop" needs it"#),
            (
                "call",
                "verb = \"rdma_connect\"\naction = \"event\"\nevent = \"REJECTED\"",
                "call 1: reason: \"REJECTED\" needs it",
            ),
            (
                "call",
                "verb = \"rdma_connect\"\naction = \"event\"\nevent = \"ESTABLISHED\"",
                "call 1: event: ESTABLISHED is no failure",
            ),
            ("call", "verb = \"post_send\"\nfoo = 1", "call 1: there is no key 'foo': a call has verb, action"),
            ("completion", "action = \"status\"", r#"completion 1: status: "status" needs it"#),
            (
                "completion",
                "action = \"status\"\nstatus = \"SUCCESS\"",
                r#"completion 1: status: it cannot be "SUCCESS": write one of LOC_LEN_ERR"#,
            ),
            (
                "completion",
                "action = \"status\"\nstatus = \"RETRY_EXC_ERR\"\nqueue = \"recv\"",
                "completion 1: status: no receive completes with RETRY_EXC_ERR",
            ),
            ("completion", "action = \"late\"", "completion 1: delay: \"late\" needs it"),
            (
                "completion",
                "action = \"late\"\ndelay = \"1s\"\npolls = 3",
                "completion 1: polls: it is late by a time or",
            ),
            ("completion", "action = \"reorder\"", "completion 1: behind: \"reorder\" needs it"),
            ("completion", "action = \"overrun\"\nqueue = \"both\"", "completion 1: queue: it cannot be \"both\""),
            ("async", "", "async 1: event: it must be there: one of CQ_ERR"),
            ("async", "event = \"PORT_ERR\"", "async 1: at: it must be there, or verb and nth"),
            (
                "async",
                "event = \"PORT_ERR\"\nat = \"1s\"\nverb = \"post_send\"",
                "async 1: at: it happens at a time or before",
            ),
            ("async", "event = \"CQ_ERR\"\nat = \"1s\"\nlasts = \"1s\"", "async 1: event: CQ_ERR has no end"),
            ("cm", "event = \"ADDR_CHANGE\"\ndelay = \"1s\"", "cm 1: delay: ADDR_CHANGE comes by itself"),
            (
                "cm",
                "event = \"ESTABLISHED\"\nat = \"1s\"",
                "cm 1: at: ESTABLISHED comes when the connection manager has it",
            ),
            ("cm", "event = \"ESTABLISHED\"", "cm 1: delay: it must be there"),
            ("cm", "event = \"ESTABLISHED\"\nprocess = \"\"", "cm 1: process: it cannot be \"\": write a program"),
            ("call", "process = [1]", "call 1: process: it cannot be a TOML array: write a program"),
        ] {
            let e = said(&format!("[[{kind}]]\n{keys}"));
            assert!(e.starts_with(line) && e.lines().count() == 1, "{keys}: {e}");
        }
        assert_eq!(said("[call]\nverb = 1"), "each call begins with a line [[call]], in two brackets");
    }
}
