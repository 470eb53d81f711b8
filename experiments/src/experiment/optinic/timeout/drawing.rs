//! The figures and the chart of `optinic-timeout`.

use softnic_collectives::timeouts::TimeoutSettings;

use super::super::super::outcome::{Figure, Figures};
use super::{Runs, What, fixed, of_what};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

/// All runs, a row for each collective.
pub(super) fn figures(runs: &Runs) -> Figures {
    let mut rows = Vec::new();
    for (what, of) in runs {
        let (margin, part, loss) = match *what {
            What::Step(margin) => (Some(margin), None, 0.0),
            What::Margin(margin, loss) => (Some(margin), None, loss),
            What::Fixed(part, _) => (None, Some(part), 1e-3),
            What::Rc => (None, None, 1e-3),
            What::SlowRank | What::Needed => (Some(TimeoutSettings::default().margin), None, 0.0),
        };
        for (seed, run) in of {
            for (i, time) in run.times.iter().enumerate() {
                rows.push(vec![
                    what.name().into(),
                    Figure::from(margin),
                    Figure::from(part),
                    loss.into(),
                    (*seed as f64).into(),
                    (i as f64).into(),
                    run.began[i].into(),
                    (*time).into(),
                    run.budgets.get(i).copied().into(),
                    run.missing[i].into(),
                ]);
            }
        }
    }
    let columns = vec![
        "run",
        "margin",
        "part",
        "loss",
        "seed",
        "collective",
        "began_ms",
        "time_ms",
        "budget_ms",
        "missing_fraction",
    ];
    Figures { columns, rows }
}

/// The first seed's budgets, and fixed budgets.
pub(super) fn chart(runs: &Runs, needed: Option<f64>) -> Chart {
    let mut series = Vec::new();
    for (hue, margin) in [0.0, 0.5].into_iter().enumerate() {
        let Some((_, run)) = of_what(runs, What::Step(margin)).first() else { continue };
        let dots = |values: &[f64]| values.iter().enumerate().map(|(i, v)| Dot::exact(i as f64, *v)).collect();
        series.push(Series::new(format!("T, margin {margin}"), Kind::Measured, hue, dots(&run.budgets)));
        series.push(Series::new(format!("time, margin {margin}"), Kind::Theory, hue, dots(&run.times)));
    }
    let lost = |dots: Vec<(f64, f64)>| {
        dots.into_iter().map(|(missing, time)| Dot::exact(missing * 100.0, time)).collect::<Vec<_>>()
    };
    let of_fixed = fixed(runs).into_iter().map(|(_, _, sum)| (sum.missing, sum.mean / needed.unwrap_or(1.0))).collect();
    let tails = fixed(runs).into_iter().map(|(_, _, sum)| (sum.missing, sum.p99 / needed.unwrap_or(1.0))).collect();
    Chart {
        panels: vec![
            Panel {
                title: "Budgets, the load doubles".into(),
                x: Axis::new("Collective", Scale::Linear),
                y: Axis::new("T (ms)", Scale::Linear),
                series,
            },
            Panel {
                title: "Time against bytes lost, fixed budgets".into(),
                x: Axis::new("Missing (%)", Scale::Linear),
                y: Axis::new("Time / loss-free mean", Scale::Linear),
                series: vec![
                    Series::new("mean", Kind::Measured, 0, lost(of_fixed)),
                    Series::new("99th percentile", Kind::Measured, 1, lost(tails)),
                ],
            },
        ],
        caption: "Left: the first seed; dashed, how long collectives took.".into(),
    }
}
