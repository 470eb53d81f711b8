//! Scripts as people write them, in TOML; `docs/faults.md` describes the format.

use std::time::Duration;

use softnic_wire::{Opcode, Psn, Qpn};
use toml::{Table, Value};

use super::{Action, Direction, Event, PsnMatch, QpnMatch, Script};
use crate::calls::{TABLES, parse_tables};
use crate::process::{PROCESS, ProcessPattern};
use crate::text::on_one_line;
use crate::units::{MAX_DELAY, parse_time};

/// Why a script was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// It is not TOML.
    #[error("line {line}: {why}")]
    Toml {
        /// From 1.
        line: usize,
        /// What the parser says.
        why: String,
    },
    /// Something beside the events.
    #[error("there is no '{}' in a script: it consists of [[event]], [[call]], [[completion]], [[async]] and [[cm]]", on_one_line(.0))]
    UnknownTable(String),
    /// `event` is something else than a list of tables.
    #[error("each event begins with a line [[event]], in two brackets")]
    NoList,
    /// Nothing in it.
    #[error("it has no [[event]]")]
    Empty,
    /// A key that no event has.
    #[error(
        "event {event}: there is no key '{}': an event has action, direction, opcode, qpn, psn, iteration, nth, bit, behind, \
         delay, process, device",
        on_one_line(.key)
    )]
    UnknownKey {
        /// From 1.
        event: usize,
        /// The key.
        key: String,
    },
    /// What is wrong with a table about calls.
    #[error("{0}")]
    Call(String),
    /// A value that the key does not take, or a key that is missing or does not go with the others.
    #[error("event {event}: {key}: {why}")]
    Key {
        /// From 1.
        event: usize,
        /// The key.
        key: &'static str,
        /// What it takes.
        why: String,
    },
}

const KEYS: [&str; 12] =
    ["action", "direction", "opcode", "qpn", "psn", "iteration", "nth", "bit", "behind", "delay", "process", "device"];
/// Frames that a held one may wait for: the same limit as that of `reorder` in a SPEC.
const MAX_BEHIND: u32 = 1000;
/// No program has more devices.
const MAX_DEVICE: u32 = 255;

impl Script {
    /// Reads a script.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let table: Table = text.parse().map_err(|e: toml::de::Error| ScriptError::Toml {
            line: 1 + e.span().map_or(0, |s| text.bytes().take(s.start).filter(|b| *b == b'\n').count()),
            why: e.message().replace('\n', ", "),
        })?;
        let is_known = |key: &str| key == "event" || TABLES.iter().any(|(kind, _)| *kind == key);
        if let Some(other) = table.keys().find(|key| !is_known(key)) {
            return Err(ScriptError::UnknownTable(other.clone()));
        }
        let calls = parse_tables(&table).map_err(ScriptError::Call)?;
        let list = match table.get("event") {
            None => &Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(ScriptError::NoList),
        };
        if list.is_empty() && calls.is_empty() {
            return Err(ScriptError::Empty);
        }
        let events = list.iter().enumerate().map(|(i, v)| match v {
            Value::Table(table) => Keys { event: i + 1, table }.event(),
            _ => Err(ScriptError::NoList),
        });
        Ok(Script { events: events.collect::<Result<_, _>>()?, calls })
    }
}

/// The keys of one event.
struct Keys<'a> {
    event: usize,
    table: &'a Table,
}

impl Keys<'_> {
    fn event(&self) -> Result<Event, ScriptError> {
        if let Some(key) = self.table.keys().find(|k| !KEYS.contains(&k.as_str())) {
            return Err(ScriptError::UnknownKey { event: self.event, key: key.clone() });
        }
        Ok(Event {
            action: self.action()?,
            process: self.process()?,
            device: self.number("device", 0..=MAX_DEVICE)?,
            direction: self.direction()?,
            opcode: self.opcode()?,
            qpn: self.qpn()?,
            psn: self.psn()?,
            iteration: self.number("iteration", 1..=u32::MAX)?,
            nth: self.number("nth", 1..=u32::MAX)?,
        })
    }

    fn action(&self) -> Result<Action, ScriptError> {
        let allowed = "\"drop\", \"duplicate\", \"corrupt\", \"reorder\", \"ecn\" or \"delay\"";
        let bit = self.number("bit", 0..=u32::MAX)?;
        let behind = self.number("behind", 1..=MAX_BEHIND)?;
        let delay = self.delay()?;
        let action = match self.table.get("action") {
            None => return Err(self.error("action", format!("it must be there: {allowed}"))),
            Some(v) => match v.as_str() {
                Some("drop") => Action::Drop,
                Some("duplicate") => Action::Duplicate,
                Some("corrupt") => Action::Corrupt { bit },
                Some("reorder") => {
                    let missing = || self.error("behind", "\"reorder\" needs it: behind how many later packets".into());
                    Action::Reorder { behind: behind.ok_or_else(missing)? }
                }
                Some("ecn") => Action::Mark,
                Some("delay") => {
                    let missing = || self.error("delay", "\"delay\" needs it: a time, e.g. \"5ms\"".into());
                    Action::Delay(delay.ok_or_else(missing)?)
                }
                _ => return Err(self.refuse("action", v, allowed)),
            },
        };
        if bit.is_some() && !matches!(action, Action::Corrupt { .. }) {
            return Err(self.error("bit", "it goes with action = \"corrupt\" only".into()));
        }
        if behind.is_some() && !matches!(action, Action::Reorder { .. }) {
            return Err(self.error("behind", "it goes with action = \"reorder\" only".into()));
        }
        if delay.is_some() && !matches!(action, Action::Delay(_)) {
            return Err(self.error("delay", "it goes with action = \"delay\" only".into()));
        }
        Ok(action)
    }

    fn process(&self) -> Result<Option<ProcessPattern>, ScriptError> {
        let Some(v) = self.table.get("process") else { return Ok(None) };
        let found = v.as_str().and_then(ProcessPattern::parse);
        found.map(Some).ok_or_else(|| self.refuse("process", v, PROCESS))
    }

    fn delay(&self) -> Result<Option<Duration>, ScriptError> {
        let Some(v) = self.table.get("delay") else { return Ok(None) };
        let found = v.as_str().and_then(|s| parse_time(s).ok()).filter(|t| *t <= MAX_DELAY);
        found.map(Some).ok_or_else(|| self.refuse("delay", v, "a time of at most 1000s, e.g. \"5ms\""))
    }

    fn direction(&self) -> Result<Option<Direction>, ScriptError> {
        let Some(v) = self.table.get("direction") else { return Ok(None) };
        match v.as_str() {
            Some("ab") => Ok(Some(Direction::Ab)),
            Some("ba") => Ok(Some(Direction::Ba)),
            _ => Err(self.refuse("direction", v, "\"ab\" or \"ba\"; left out, it is both")),
        }
    }

    fn opcode(&self) -> Result<Option<Opcode>, ScriptError> {
        let Some(v) = self.table.get("opcode") else { return Ok(None) };
        let found = match v {
            Value::String(name) => Opcode::from_name(name),
            Value::Integer(n) => u8::try_from(*n).ok().map(Opcode),
            _ => None,
        };
        let allowed = "a name as softnic inspect prints it, e.g. \"RC_SEND_ONLY\", or a number from 0 to 0xff";
        found.map(Some).ok_or_else(|| self.refuse("opcode", v, allowed))
    }

    fn qpn(&self) -> Result<Option<QpnMatch>, ScriptError> {
        let Some(v) = self.table.get("qpn") else { return Ok(None) };
        let found = match v {
            Value::Integer(n) => within(*n, 0..=0xff_ffff).map(|n| QpnMatch::Exactly(Qpn::new(n))),
            Value::String(s) => counted(s, '#').filter(|n| *n > 0).map(QpnMatch::Seen),
            _ => None,
        };
        let allowed = "a number from 0 to 0xffffff, or \"#1\" for the first one seen in this direction";
        found.map(Some).ok_or_else(|| self.refuse("qpn", v, allowed))
    }

    fn psn(&self) -> Result<Option<PsnMatch>, ScriptError> {
        let Some(v) = self.table.get("psn") else { return Ok(None) };
        let found = match v {
            Value::Integer(n) => within(*n, 0..=0xff_ffff).map(|n| PsnMatch::Exactly(Psn::new(n))),
            Value::String(s) => counted(s, '+').filter(|n| *n < Psn::SPACE).map(PsnMatch::AfterFirst),
            _ => None,
        };
        let allowed = "a number from 0 to 0xffffff, or \"+2\" for two behind the first one seen for this queue pair";
        found.map(Some).ok_or_else(|| self.refuse("psn", v, allowed))
    }

    fn number(&self, key: &'static str, range: std::ops::RangeInclusive<u32>) -> Result<Option<u32>, ScriptError> {
        let Some(v) = self.table.get(key) else { return Ok(None) };
        let allowed = || match (*range.start(), *range.end()) {
            (least, u32::MAX) => format!("a whole number, at least {least}"),
            (least, most) => format!("a whole number from {least} to {most}"),
        };
        let found = v.as_integer().and_then(|n| within(n, range.clone()));
        found.map(Some).ok_or_else(|| self.refuse(key, v, &allowed()))
    }

    fn error(&self, key: &'static str, why: String) -> ScriptError {
        ScriptError::Key { event: self.event, key, why }
    }

    fn refuse(&self, key: &'static str, value: &Value, allowed: &str) -> ScriptError {
        let value = match value {
            Value::String(s) => format!("{s:?}"),
            Value::Integer(n) => n.to_string(),
            Value::Float(x) => x.to_string(),
            Value::Boolean(b) => b.to_string(),
            other => format!("a TOML {}", other.type_str()),
        };
        self.error(key, format!("it cannot be {value}: write {allowed}"))
    }
}

fn within(n: i64, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    u32::try_from(n).ok().filter(|n| range.contains(n))
}

/// The number behind a mark.
fn counted(s: &str, mark: char) -> Option<u32> {
    // `parse` would take a sign of its own.
    s.strip_prefix(mark).filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let script = Script::parse(
            r##"
            [[event]]
            action = "drop"       # the second retransmission of the third packet
            direction = "ab"
            opcode = "RC_RDMA_WRITE_MIDDLE"
            qpn = "#1"
            psn = "+2"
            iteration = 3
            process = "server * #2"
            device = 1

            [[event]]
            action = "corrupt"
            direction = "ba"
            opcode = 0x0e
            qpn = 0x1234
            psn = 0xfffffe
            nth = 3
            bit = 400

            [[event]]
            action = "reorder"
            behind = 3

            [[event]]
            action = "ecn"

            [[event]]
            action = "delay"
            delay = "5ms"

            [[event]]
            action = "duplicate"
            "##,
        );
        let any = Event {
            action: Action::Duplicate,
            process: None,
            device: None,
            direction: None,
            opcode: None,
            qpn: None,
            psn: None,
            iteration: None,
            nth: None,
        };
        let first = Event {
            action: Action::Drop,
            process: ProcessPattern::parse("server * #2"),
            device: Some(1),
            direction: Some(Direction::Ab),
            opcode: Some(Opcode::RC_RDMA_WRITE_MIDDLE),
            qpn: Some(QpnMatch::Seen(1)),
            psn: Some(PsnMatch::AfterFirst(2)),
            iteration: Some(3),
            nth: None,
        };
        let second = Event {
            action: Action::Corrupt { bit: Some(400) },
            process: None,
            device: None,
            direction: Some(Direction::Ba),
            opcode: Some(Opcode(0x0e)),
            qpn: Some(QpnMatch::Exactly(Qpn::new(0x1234))),
            psn: Some(PsnMatch::Exactly(Psn::new(0xff_fffe))),
            iteration: None,
            nth: Some(3),
        };
        let with = |action| Event { action, ..any.clone() };
        let (third, fourth) = (with(Action::Reorder { behind: 3 }), with(Action::Mark));
        let fifth = with(Action::Delay(Duration::from_millis(5)));
        assert_eq!(script, Ok(Script { events: vec![first, second, third, fourth, fifth, any], ..Script::default() }));
    }

    #[test]
    fn whatever_is_typed_wrong_gets_one_line_and_never_a_panic() {
        let good = "[[event]]\naction = \"corrupt\" # why\nqpn = \"#1\"\npsn = 0xfffffe\nnth = 3\n";
        assert!(Script::parse(good).is_ok());
        let mut refused = 0;
        for at in 0..good.len() {
            for put in ["", "\n", "\"", "[", "=", "0", "é", "\0", "'''"] {
                let text = [&good[..at], put, &good[at + 1..]].concat();
                if let Err(e) = Script::parse(&text) {
                    refused += 1;
                    let said = e.to_string();
                    assert!(said.lines().count() == 1, "{text}\n{said}");
                }
            }
        }
        assert!(refused > 300, "{refused}");
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_that_names_the_place() {
        let said = |text: &str| Script::parse(text).unwrap_err().to_string();
        // A second event, so that the number says something.
        let with = |keys: &str| said(&format!("[[event]]\naction = \"drop\"\n[[event]]\n{keys}"));
        assert_eq!(
            with("nth = 1"),
            r#"event 2: action: it must be there: "drop", "duplicate", "corrupt", "reorder", "ecn" or "delay""#
        );
        for (keys, line) in [
            ("action = \"lose\"", r#"event 2: action: it cannot be "lose": write "drop", "duplicate""#),
            (
                "action = \"drop\"\nnht = 1",
                "event 2: there is no key 'nht': an event has action, direction, opcode, qpn",
            ),
            ("action = \"drop\"\nnth = 0", "event 2: nth: it cannot be 0: write a whole number, at least 1"),
            ("action = \"drop\"\nnth = \"3\"", r#"event 2: nth: it cannot be "3": write a whole number"#),
            ("action = \"drop\"\niteration = 1.5", "event 2: iteration: it cannot be 1.5: write a whole number"),
            ("action = \"drop\"\niteration = -1", "event 2: iteration: it cannot be -1"),
            ("action = \"drop\"\nbit = 4", r#"event 2: bit: it goes with action = "corrupt" only"#),
            ("action = \"drop\"\nbehind = 4", r#"event 2: behind: it goes with action = "reorder" only"#),
            ("action = \"corrupt\"\nbehind = 4", "event 2: behind: it goes with"),
            ("action = \"reorder\"", r#"event 2: behind: "reorder" needs it"#),
            ("action = \"ecn\"\ndelay = \"1ms\"", r#"event 2: delay: it goes with action = "delay" only"#),
            ("action = \"delay\"", r#"event 2: delay: "delay" needs it"#),
            ("action = \"delay\"\ndelay = 5", "event 2: delay: it cannot be 5: write a time of at most 1000s"),
            ("action = \"delay\"\ndelay = \"5\"", r#"event 2: delay: it cannot be "5": write a time"#),
            (
                "action = \"reorder\"\nbehind = 0",
                "event 2: behind: it cannot be 0: write a whole number from 1 to 1000",
            ),
            ("action = \"drop\"\ndirection = \"a\"", r#"event 2: direction: it cannot be "a": write "ab" or "ba""#),
            ("action = \"drop\"\nopcode = \"SEND\"", r#"event 2: opcode: it cannot be "SEND": write a name as"#),
            ("action = \"drop\"\nopcode = 256", "event 2: opcode: it cannot be 256"),
            ("action = \"drop\"\nopcode = [4]", "event 2: opcode: it cannot be a TOML array"),
            (
                "action = \"drop\"\nqpn = 0x1000000",
                "event 2: qpn: it cannot be 16777216: write a number from 0 to 0xffffff",
            ),
            ("action = \"drop\"\nqpn = \"#0\"", "event 2: qpn: it cannot be \"#0\""),
            ("action = \"drop\"\npsn = \"2\"", "event 2: psn: it cannot be \"2\": write a number"),
            ("action = \"drop\"\npsn = \"++2\"", "event 2: psn: it cannot be \"++2\""),
            ("action = \"drop\"\npsn = \"+16777216\"", "event 2: psn: it cannot be"),
            ("action = \"drop\"\nprocess = \"\"", r#"event 2: process: it cannot be "": write a program and its"#),
            ("action = \"drop\"\nprocess = 7", "event 2: process: it cannot be 7"),
            ("action = \"drop\"\nprocess = \"a #0\"", "event 2: process: it cannot be"),
            (
                "action = \"drop\"\ndevice = \"#1\"",
                "event 2: device: it cannot be \"#1\": write a whole number from 0 to 255",
            ),
        ] {
            let line_said = with(keys);
            assert!(line_said.starts_with(line) && line_said.lines().count() == 1, "{keys}: {line_said}");
        }
        assert_eq!(said(""), "it has no [[event]]");
        assert_eq!(said("event = []"), "it has no [[event]]");
        assert_eq!(said("[event]\naction = \"drop\""), "each event begins with a line [[event]], in two brackets");
        assert_eq!(said("event = [1]"), "each event begins with a line [[event]], in two brackets");
        assert!(said("seed = 3\n").starts_with("there is no 'seed' in a script"));
        for (text, line) in [("[[event]]\naction = drop", "line 2: "), ("[[event]]\nnth = 1\nnth = 2", "line 3: ")] {
            let e = said(text);
            assert!(e.starts_with(line) && e.lines().count() == 1, "{e}");
        }
    }
}
