//! Log lines: the same events, for people, as they happen, on stderr.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::event::Event;

/// How much is said. Each level says what those before it say, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A queue pair is lost: retries have run out, or it is in the error state.
    Error,
    /// What costs time: losses, RNR NAKs, dropped packets, the standard spoken where an extension was asked for.
    Warn,
    /// The life of a queue pair: states, its peer, what was negotiated.
    Info,
    /// Work, windows and rates, order, congestion, recovery.
    Debug,
    /// Every packet.
    Trace,
}

/// What `SOFTNIC_LOG` says: a level, or nothing at all.
///
/// # Errors
/// When it is neither.
pub fn parse_level(text: &str) -> Result<Option<Level>, LevelError> {
    match text.to_ascii_lowercase().as_str() {
        "off" => Ok(None),
        level => level.parse().map(Some),
    }
}

/// No level of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelError(String);

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no level of the log: write off, error, warn, info, debug or trace", self.0)
    }
}

impl std::error::Error for LevelError {}

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Level, LevelError> {
        let named = |level: &Level| level.name().trim_start().eq_ignore_ascii_case(text);
        let all = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
        all.into_iter().find(named).ok_or_else(|| LevelError(text.into()))
    }
}

impl Level {
    /// As it stands in a line: all are equally wide.
    fn name(self) -> &'static str {
        match self {
            Level::Error => "ERROR",
            Level::Warn => " WARN",
            Level::Info => " INFO",
            Level::Debug => "DEBUG",
            Level::Trace => "TRACE",
        }
    }

    fn of(event: &Event) -> Level {
        match event {
            Event::RetriesExhausted { .. } => Level::Error,
            Event::StateUpdated { new: Some(new), .. } if new == "ERR" => Level::Error,
            Event::Negotiated { outcome } if outcome.starts_with("standard") => Level::Warn,
            Event::PacketDropped { .. }
            | Event::LossDetected { .. }
            | Event::ReceiverNotReady {}
            | Event::RecoveryFailed { .. } => Level::Warn,
            Event::StateUpdated { .. } | Event::Connected { .. } | Event::Negotiated { .. } => Level::Info,
            Event::WorkPosted { .. }
            | Event::WorkCompleted { .. }
            | Event::ReceivesPosted { .. }
            | Event::ReceivesCompleted { .. }
            | Event::OutOfOrder { .. }
            | Event::Recovered { .. }
            | Event::Congestion { .. }
            | Event::MetricsUpdated { .. } => Level::Debug,
            Event::PacketSent(_) | Event::PacketReceived(_) => Level::Trace,
        }
    }
}

/// Writes the events up to a level, a line each.
pub struct Log {
    level: Level,
    name: String,
    out: Box<dyn Write + Send>,
}

impl Log {
    /// Lines to `out`; each begins with the name of whose they are.
    pub fn new(level: Level, name: impl Into<String>, out: Box<dyn Write + Send>) -> Log {
        Log { level, name: name.into(), out }
    }

    /// Lines to stderr.
    pub fn to_stderr(level: Level, name: impl Into<String>) -> Log {
        Log::new(level, name, Box::new(Stderr))
    }

    /// That a line cannot be written changes nothing: the program that is watched is somebody else's.
    pub(crate) fn write(&mut self, nanos: u64, group: &str, event: &Event) {
        let level = Level::of(event);
        if level > self.level {
            return;
        }
        let mut line = format!("{} {} {}", Utc(nanos), level.name(), self.name);
        if !group.is_empty() {
            line += &format!(" {group}");
        }
        line += &format!(": {}", event.name().trim_start_matches("roce:"));
        if let Ok(Fields(fields)) = serde_json::to_string(event).and_then(|text| serde_json::from_str(&text)) {
            for (name, value) in fields {
                line += &match value {
                    Value::String(text) if text.contains(' ') => format!(" {name}=\"{text}\""),
                    Value::String(text) => format!(" {name}={text}"),
                    other => format!(" {name}={other}"),
                };
            }
        }
        line.push('\n');
        let _ = self.out.write_all(line.as_bytes());
    }
}

/// The fields of an event, in the order that it has them.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(Fields(Vec::new()))
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of an event")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Fields, A::Error> {
        while let Some(field) = fields.next_entry()? {
            self.0.push(field);
        }
        Ok(self)
    }
}

/// Without the lock of the standard library, which a thread of the parent may have held when this process was forked.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stderr(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A time in nanoseconds since 1970, as RFC 3339 writes it, to the microsecond.
struct Utc(u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000_000, self.0 / 1000 % 1_000_000);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Eras of 400 years, which begin in March, so that leap days are at the end of a year.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let year = era * 400 + year + carry;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        let all = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399_999_999_999, "2000-02-28T23:59:59.999999Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000Z"),
            (951_868_800_000_001_000, "2000-03-01T00:00:00.000001Z"),
            (1_735_689_599_000_000_000, "2024-12-31T23:59:59.000000Z"),
            (1_735_689_600_000_000_000, "2025-01-01T00:00:00.000000Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000Z"),
        ];
        for (nanos, text) in all {
            assert_eq!(Utc(nanos).to_string(), text);
        }
    }

    #[test]
    fn a_level_is_named_in_any_case_and_off_is_none() {
        assert_eq!(parse_level("WARN"), Ok(Some(Level::Warn)));
        assert_eq!(parse_level("trace"), Ok(Some(Level::Trace)));
        assert_eq!(parse_level("Off"), Ok(None));
        let words = parse_level("loud").unwrap_err().to_string();
        assert_eq!(words, "`loud` is no level of the log: write off, error, warn, info, debug or trace");
    }
}
