//! Interval lines of a run, in the manner of iperf3: what was transferred in each second.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::plan::Amount;

/// What becomes of intervals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Intervals {
    /// None are measured.
    #[default]
    None,
    /// A line of text for each, as soon as it is over.
    Print(Duration),
    /// They are kept, for the JSON object of the run.
    Keep(Duration),
}

/// Which intervals were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedIntervals {
    /// None, whatever the run is.
    Never,
    /// Of this length, or of a second where a run has a duration that is longer.
    Each {
        /// 0 for none.
        length: Option<Duration>,
        /// Whether the run prints JSON.
        as_json: bool,
    },
}

impl AskedIntervals {
    /// Those of a run of this length.
    pub fn of(self, amount: Amount) -> Intervals {
        let AskedIntervals::Each { length, as_json } = self else { return Intervals::None };
        let usual = matches!(amount, Amount::Seconds(s) if s > 1.0).then_some(Duration::from_secs(1));
        match length.or(usual).filter(|length| !length.is_zero()) {
            None => Intervals::None,
            Some(length) if as_json => Intervals::Keep(length),
            Some(length) => Intervals::Print(length),
        }
    }
}

impl Intervals {
    fn length(self) -> Option<Duration> {
        match self {
            Intervals::None => None,
            Intervals::Print(every) | Intervals::Keep(every) => Some(every),
        }
    }
}

/// What was transferred between two moments of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// Since the run began.
    begin: Duration,
    end: Duration,
    messages: u64,
    bytes: u64,
    /// Packets that this end sent again.
    sent_again: u64,
}

const COLUMNS: &str = "    interval [s]    transferred     Gbit/s    messages/s    sent again";

impl Interval {
    fn gbps(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds()
    }

    fn seconds(&self) -> f64 {
        (self.end - self.begin).as_secs_f64().max(1e-9)
    }

    fn line(&self) -> String {
        format!(
            "  {:>6.2} - {:>6.2} {:>13} {:>10.3} {:>13.0} {:>13}",
            self.begin.as_secs_f64(),
            self.end.as_secs_f64(),
            amount(self.bytes),
            self.gbps(),
            self.messages as f64 / self.seconds(),
            self.sent_again
        )
    }

    /// The fields are a contract.
    pub(crate) fn json(&self) -> Value {
        json!({
            "begin": self.begin.as_secs_f64(),
            "end": self.end.as_secs_f64(),
            "messages": self.messages,
            "bytes": self.bytes,
            "gbps": self.gbps(),
            "sent_again": self.sent_again,
        })
    }
}

fn amount(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|&(unit, _)| bytes >= unit) {
        Some((unit, name)) => format!("{:.2} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} B"),
    }
}

/// Measures the intervals of one size.
pub(crate) struct Meter {
    intervals: Intervals,
    size: u32,
    start: Instant,
    /// When the interval that runs began, and is over.
    begin: Instant,
    due: Option<Instant>,
    messages: u64,
    sent_again: u64,
    over: Vec<Interval>,
}

impl Meter {
    /// Begins. `sent_again` is the counter of the NIC.
    pub(crate) fn new(intervals: Intervals, size: u32, now: Instant, sent_again: u64) -> Meter {
        let due = intervals.length().map(|every| now + every);
        Meter { intervals, size, start: now, begin: now, due, messages: 0, sent_again, over: Vec::new() }
    }

    /// Whether an interval is over.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// The time, where an interval is over. Only where intervals are measured is the clock looked at: a message may take less time than that.
    #[inline]
    pub(crate) fn is_due_now(&self) -> Option<Instant> {
        let due = self.due?;
        let now = Instant::now();
        (now >= due).then_some(now)
    }

    /// An interval is over, after so many messages since the beginning.
    #[cold]
    pub(crate) fn close(&mut self, now: Instant, messages: u64, sent_again: u64) {
        let interval = Interval {
            begin: self.begin - self.start,
            end: now - self.start,
            messages: messages - self.messages,
            bytes: (messages - self.messages) * u64::from(self.size),
            sent_again: sent_again - self.sent_again,
        };
        (self.begin, self.messages, self.sent_again) = (now, messages, sent_again);
        // A loop that was held up skips intervals instead of having many at once.
        if let (Some(every), Some(due)) = (self.intervals.length(), &mut self.due) {
            while *due <= now {
                *due += every;
            }
        }
        if let Intervals::Print(_) = self.intervals {
            let columns = if self.over.is_empty() { format!("{COLUMNS}\n") } else { String::new() };
            // Whoever reads the output may go.
            let _ = writeln!(io::stdout(), "{columns}{}", interval.line());
        }
        self.over.push(interval);
    }

    /// The run is over: what came since the last interval is one of its own.
    pub(crate) fn finish(mut self, now: Instant, messages: u64, sent_again: u64) -> Vec<Interval> {
        if self.due.is_some() && messages > self.messages {
            self.close(now, messages, sent_again);
        }
        self.over
    }
}

/// The intervals of a server, which prints nothing else: a line of JSON where that was asked for.
pub(crate) fn tell_of_server(op: &str, size: u32, all: Vec<Interval>, intervals: Intervals) {
    if let Intervals::Keep(_) = intervals {
        let all: Vec<Value> = all.iter().map(Interval::json).collect();
        // Whoever reads the output may go.
        let _ = writeln!(io::stdout(), "{}", json!({ "op": op, "bytes": size, "intervals": all }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up_to_the_run_and_a_held_up_loop_skips_some() {
        let (second, start) = (Duration::from_secs(1), Instant::now());
        let mut meter = Meter::new(Intervals::Keep(second), 1000, start, 7);
        assert!(!meter.is_due(start + second / 2));
        meter.close(start + second, 10, 7);
        assert!(!meter.is_due(start + second * 3 / 2) && meter.is_due(start + second * 2));
        meter.close(start + second * 7 / 2, 60, 9);
        assert!(!meter.is_due(start + second * 39 / 10) && meter.is_due(start + second * 4));
        let all = meter.finish(start + second * 15 / 4, 61, 9);
        let sums = all.iter().fold((0, 0, 0), |s, i| (s.0 + i.messages, s.1 + i.bytes, s.2 + i.sent_again));
        assert_eq!((all.len(), sums), (3, (61, 61_000, 2)));
        assert_eq!((all[1].begin, all[1].end), (second, second * 7 / 2));
        assert!((all[1].gbps() - 50.0 * 8e3 * 1e-9 / 2.5).abs() < 1e-12);
        let none = Meter::new(Intervals::None, 1, start, 0);
        assert!(
            none.is_due_now().is_none()
                && !none.is_due(start + second * 100)
                && none.finish(start + second, 5, 0).is_empty()
        );
    }

    #[test]
    fn lines_fit_their_columns_and_a_terminal() {
        let second = Duration::from_secs(1);
        let interval =
            |bytes, messages| Interval { begin: second, end: second * 2, messages, bytes, sent_again: 1_234_567_890 };
        for line in [interval(0, 0).line(), interval(25 << 30, 1 << 24).line()] {
            assert_eq!(line.len(), COLUMNS.len(), "{line}");
            assert!(line.len() <= 80);
        }
        assert_eq!(
            interval(3 << 29, 3).line(),
            "    1.00 -   2.00      1.50 GiB     12.885             3    1234567890"
        );
    }

    #[test]
    fn a_run_of_more_than_a_second_has_intervals_of_a_second() {
        let asked = |length: Option<f64>, as_json, amount| {
            AskedIntervals::Each { length: length.map(Duration::from_secs_f64), as_json }.of(amount)
        };
        let (second, long) = (Duration::from_secs(1), Amount::Seconds(5.0));
        assert_eq!(asked(None, false, long), Intervals::Print(second));
        assert_eq!(asked(None, true, long), Intervals::Keep(second));
        assert_eq!(asked(None, false, Amount::Seconds(1.0)), Intervals::None);
        assert_eq!(asked(None, false, Amount::Iterations(1 << 30)), Intervals::None);
        assert_eq!(asked(Some(0.0), false, long), Intervals::None);
        assert_eq!(asked(Some(0.5), false, Amount::Usual), Intervals::Print(second / 2));
        assert_eq!(AskedIntervals::Never.of(long), Intervals::None);
    }
}
