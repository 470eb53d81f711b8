//! Series and captions of charts, from what seeds came to.

use softnic_transports::Transport;

use super::Setting;
use super::stats::Spread;
use crate::chart::{Axis, Kind, Point, Scale, Series};

/// The colour of what others published.
pub(super) const STATED_HUE: usize = 6;

/// What dashed lines of goodput mean.
pub(super) const GOODPUT_THEORY: &str = "Dashed: theory, what is left of the line rate where a round trip is lost for each lost packet (rc), or for each \
     block that repair packets cannot restore (lowar).";
/// What dashed lines of completion times mean.
pub(super) const TIMES_THEORY: &str = "Dashed: theory of the mean, with a round trip more for each lost packet (rc), once if anything is lost (sr), or for each block \
     that repair packets cannot restore (lowar).";

/// The chance of loss along x.
pub(super) fn loss_axis() -> Axis {
    Axis::new("Packet loss rate", Scale::Log)
}

/// Means, with error bars from the lowest to the highest seed.
pub(super) fn measured(name: impl ToString, hue: usize, points: impl Iterator<Item = (f64, Option<Spread>)>) -> Series {
    let point = |(x, spread): (f64, Option<Spread>)| {
        let Spread { mean, lowest, highest, .. } = spread?;
        Some(Point { x, y: mean, low: lowest, high: highest })
    };
    Series::new(name.to_string(), Kind::Measured, hue, points.filter_map(point).collect())
}

/// The theory of a transport, if there is any.
pub(super) fn theory(
    transport: Transport,
    hue: usize,
    points: impl Iterator<Item = (f64, Option<f64>)>,
) -> Option<Series> {
    bare(format!("{transport}, theory"), Kind::Theory, hue, points)
}

/// Figures that others published, if there are any.
pub(super) fn stated_points(
    name: &str,
    hue: usize,
    points: impl Iterator<Item = (f64, Option<f64>)>,
) -> Option<Series> {
    bare(name.into(), Kind::Stated, hue, points)
}

fn bare(name: String, kind: Kind, hue: usize, points: impl Iterator<Item = (f64, Option<f64>)>) -> Option<Series> {
    let points: Vec<Point> = points.filter_map(|(x, y)| Some(Point::exact(x, y?))).collect();
    (!points.is_empty()).then(|| Series::new(name, kind, hue, points))
}

/// What markers and error bars are, then `more`.
pub(super) fn caption(setting: &Setting, more: &str) -> String {
    let marks = match setting.seeds()[..] {
        [seed] => format!("One run each, with seed {seed}: no error bars."),
        [first, .., last] => {
            format!("Markers: means of seeds {first} to {last}. Error bars: from the lowest to the highest of them.")
        }
        [] => String::new(),
    };
    format!("{marks} {more}")
}
