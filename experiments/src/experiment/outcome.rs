//! What an experiment came to: figures, tables of them, charts, goals, and the paper's own figures beside ours.

use std::time::Duration;

use super::paper::Stated;
use super::stats::{Spread, ratio};
use crate::chart::Chart;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What was run, in a few words: above the tables.
    pub(super) what: String,
    /// For people.
    pub(super) tables: Vec<Table>,
    /// For programs.
    pub(super) figures: Figures,
    pub(super) chart: Chart,
    pub(super) goals: Vec<Goal>,
    /// Why the goals are not judged, where they are not.
    pub(super) unjudged: Option<&'static str>,
    pub(super) beside: Vec<Beside>,
    /// Where ours differs from the paper and why.
    pub(super) notes: Vec<String>,
    /// Runs that were made, of those that were to be.
    pub(super) runs: usize,
    pub(super) of: usize,
}

/// A table of text.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// What is in a place where nothing was measured or stated.
pub(super) const NOTHING: &str = "–";

/// A figure, or that there is none.
pub(super) fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or(NOTHING.into(), |v| format!("{v:.decimals$}"))
}

/// A mean and the deviation of a seed.
pub(super) fn spread_shown(spread: Option<Spread>, decimals: usize) -> String {
    spread.map_or(NOTHING.into(), |s| format!("{:.decimals$} ±{:.decimals$}", s.mean, s.deviation))
}

/// A chance of loss as the paper writes it.
pub(super) fn percent(loss: f64) -> String {
    if loss == 0.0 { "0".into() } else { format!("{} %", (loss * 1e7).round() / 1e5) }
}

/// A time with its unit apart.
pub(super) fn time_shown(time: Duration) -> String {
    let text = format!("{time:?}");
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// A figure of the paper, where its text states one.
pub(super) fn stated(value: Option<Stated>) -> String {
    value.map_or("not stated".into(), |s| s.value.to_string())
}

/// All figures in rows of the same columns.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Figure>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Figure {
    Text(String),
    Number(f64),
    Missing,
}

impl From<&str> for Figure {
    fn from(text: &str) -> Figure {
        Figure::Text(text.into())
    }
}

impl From<String> for Figure {
    fn from(text: String) -> Figure {
        Figure::Text(text)
    }
}

impl From<f64> for Figure {
    fn from(number: f64) -> Figure {
        Figure::Number(number)
    }
}

impl From<Option<f64>> for Figure {
    fn from(number: Option<f64>) -> Figure {
        number.map_or(Figure::Missing, Figure::Number)
    }
}

/// Something to be reached.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) bound: Bound,
    pub(super) measured: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    /// `None` where it was not measured.
    pub(super) fn is_reached(&self) -> Option<bool> {
        self.measured.map(|measured| match self.bound {
            Bound::AtLeast(least) => measured >= least,
            Bound::AtMost(most) => measured <= most,
        })
    }

    pub(super) fn line(&self) -> String {
        let (bound, value) = match self.bound {
            Bound::AtLeast(least) => ("at least", least),
            Bound::AtMost(most) => ("at most", most),
        };
        let verdict = match self.is_reached() {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "not measured",
        };
        format!("goal {verdict}: {}: {}, {bound} {value}", self.what, shown(self.measured, 3))
    }
}

/// A figure that the paper's text states, and ours.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    pub(super) stated: Stated,
    pub(super) ours: Option<f64>,
}

impl Beside {
    pub(super) fn ratio(&self) -> Option<f64> {
        ratio(self.ours, Some(self.stated.value))
    }
}

/// The table of them.
pub(super) fn beside_table(beside: &[Beside]) -> Table {
    let row = |b: &Beside| {
        let ours = shown(b.ours, 2);
        vec![b.stated.what.into(), b.stated.place.into(), b.stated.value.to_string(), ours, shown(b.ratio(), 2)]
    };
    Table {
        title: "Beside the paper".into(),
        columns: ["figure", "where", "paper", "ours", "ours/paper"].map(String::from).into(),
        rows: beside.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_its_unit_apart() {
        assert_eq!(time_shown(Duration::from_micros(1500)), "1.5 ms");
        assert_eq!(time_shown(Duration::from_micros(10)), "10 µs");
    }

    #[test]
    fn a_goal_is_reached_missed_or_not_measured() {
        let goal = |bound, measured| Goal { what: "x".into(), bound, measured };
        assert_eq!(goal(Bound::AtLeast(2.0), Some(2.0)).line(), "goal reached: x: 2.000, at least 2");
        assert_eq!(goal(Bound::AtLeast(2.0), Some(1.9994)).line(), "goal MISSED: x: 1.999, at least 2");
        assert_eq!(goal(Bound::AtMost(0.2), Some(0.3)).is_reached(), Some(false));
        assert_eq!(goal(Bound::AtMost(0.2), None).line(), "goal not measured: x: –, at most 0.2");
    }
}
