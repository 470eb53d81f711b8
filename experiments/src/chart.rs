//! Charts of measurements: what is in them. `scale` places values on axes, `svg` draws with `marks` and `canvas`.

mod canvas;
mod marks;
#[cfg(feature = "png")]
mod png;
mod scale;
mod svg;

pub(crate) use scale::bytes;

use serde::{Deserialize, Serialize};

/// A picture: panels side by side, and what their marks mean.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chart {
    pub(crate) panels: Vec<Panel>,
    /// Below the panels, in sentences.
    pub(crate) caption: String,
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        svg::draw(self)
    }

    /// The bytes of a PNG file.
    #[cfg(feature = "png")]
    pub(crate) fn png(&self) -> Result<Vec<u8>, String> {
        png::draw(&self.svg())
    }

    #[cfg(not(feature = "png"))]
    pub(crate) fn png(&self) -> Result<Vec<u8>, String> {
        Err(NO_PNG.into())
    }
}

/// Whether this program can draw PNG on this machine: an error that says which can, or what it lacks. Before hours of runs, not after.
pub(crate) fn check_png() -> Result<(), String> {
    Chart::default().png().map(drop)
}

#[cfg(not(feature = "png"))]
const NO_PNG: &str = "this softnic was built without PNG: build with `cargo build --release --features png`, or use a package of `cargo xtask dist`";

/// One system of axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// What is along an axis: its name with the unit, and how values lie there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Axis {
    pub(crate) name: String,
    pub(crate) scale: Scale,
}

/// How values lie along an axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scale {
    /// Evenly; along y from 0 on.
    Linear,
    /// By powers of ten. Zero, where a value is zero, has a place of its own beyond a break of the axis.
    Log,
    /// Bytes by powers of two.
    Bytes,
    /// Names, each with a group of bars: the value along x is the place of the name. Only along x.
    Categories(Vec<String>),
}

impl Axis {
    pub(crate) fn new(name: &str, scale: Scale) -> Axis {
        Axis { name: name.into(), scale }
    }
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Which colour and shape of marker: the same for a measurement and its theory.
    pub(crate) hue: usize,
    pub(crate) points: Vec<Point>,
}

/// Where the points of a series come from, which says how they are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A line with markers and error bars; bars where there are categories.
    Measured,
    /// A dashed line without markers.
    Theory,
    /// Markers alone: figures that others published.
    Stated,
}

/// A value, with the ends of its error bar.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The same as `y` where there is no error bar.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Point {
    /// Without an error bar.
    pub(crate) fn exact(x: f64, y: f64) -> Point {
        Point { x, y, low: y, high: y }
    }
}

impl Series {
    pub(crate) fn new(name: impl Into<String>, kind: Kind, hue: usize, points: Vec<Point>) -> Series {
        Series { name: name.into(), kind, hue, points }
    }
}

/// Values from the lowest to the highest of `values` that are above zero, close enough for a smooth line on a logarithmic axis; 0 before
/// them where it is among `values`.
pub(crate) fn smooth(values: &[f64]) -> Vec<f64> {
    const STEPS: i32 = 60;
    let positive = || values.iter().copied().filter(|v| *v > 0.0);
    let (low, high) = (positive().fold(f64::MAX, f64::min), positive().fold(0.0, f64::max));
    let zero = values.contains(&0.0).then_some(0.0);
    let steps = if low < high { STEPS } else { 0 };
    let between = (0..=steps).map(|i| low * (high / low).powf(f64::from(i) / f64::from(STEPS)));
    zero.into_iter().chain(between.filter(|_| high > 0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smooth_line_goes_from_the_lowest_to_the_highest_value_and_has_zero_apart() {
        let line = smooth(&[0.0, 1e-5, 1e-3, 1e-4]);
        assert!(line[0] == 0.0 && line[1] == 1e-5 && line.is_sorted(), "{line:?}");
        assert!((line.last().unwrap() / 1e-3 - 1.0).abs() < 1e-9 && line.len() > 50);
        assert_eq!(smooth(&[0.0]), [0.0]);
        assert_eq!(smooth(&[1e-3]), [1e-3]);
        assert_eq!(smooth(&[]), [0.0; 0]);
    }
}
