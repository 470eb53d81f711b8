//! What was measured, on axes: lines with markers and error bars, or bars.

use super::canvas::{Anchor, Canvas, INK, Writing, colour};
use super::svg::Axes;
use super::{Kind, Panel, Point, Series};

/// A line through more points than these has markers at some of them.
const MAX_MARKERS: usize = 40;
/// Markers of such a line.
const SOME_MARKERS: usize = 8;
/// Half the width of the ends of an error bar.
const CAP: f64 = 4.0;
/// The part of a category's width that its bars take.
const GROUP: f64 = 0.8;
/// A bar that is at least so wide has its value above it.
const VALUE_WIDTH: f64 = 24.0;
/// One that is higher has it within.
const VALUE_HEIGHT: f64 = 20.0;
/// Font size of these.
const VALUE: f64 = 10.0;

pub(super) fn lines(canvas: &mut Canvas, panel: &Panel, axes: &Axes<'_>) {
    let of = |kind: Kind| panel.series.iter().filter(move |s| s.kind == kind);
    for series in of(Kind::Theory) {
        draw_line(canvas, series, axes, 1.5, true);
    }
    for series in of(Kind::Measured) {
        for point in &series.points {
            error_bar(canvas, point, axes, axes.x.place(point.x), colour(series.hue));
        }
        draw_line(canvas, series, axes, 1.8, false);
    }
    for series in of(Kind::Measured).chain(of(Kind::Stated)) {
        let (every, first) = match series.points.len() {
            n if n <= MAX_MARKERS => (1, 0),
            // Not all at the same places.
            n => (n / SOME_MARKERS, (2 * series.hue + 1) * n / SOME_MARKERS / 8),
        };
        for point in series.points.iter().skip(first).step_by(every) {
            if let Some(at) = axes.at(point.x, point.y) {
                canvas.marker(at, series.hue);
            }
        }
    }
}

/// A line is broken where a value cannot be shown, and where the x axis is.
fn draw_line(canvas: &mut Canvas, series: &Series, axes: &Axes<'_>, width: f64, dashed: bool) {
    let gap = axes.x.break_at().is_some();
    let mut pieces: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for point in &series.points {
        let place = axes.at(point.x, point.y);
        let alone = gap && point.x <= 0.0;
        if place.is_none() || alone {
            pieces.push(Vec::new());
        }
        if let (Some(place), Some(piece)) = (place, pieces.last_mut()) {
            piece.push(place);
        }
        if alone {
            pieces.push(Vec::new());
        }
    }
    for piece in pieces {
        match piece[..] {
            // A theory has no markers: at a single place it is a stroke.
            [(x, y)] if dashed => canvas.line((x - 9.0, y), (x + 9.0, y), colour(series.hue), width),
            [] | [_] => {}
            _ => canvas.polyline(&piece, colour(series.hue), width, dashed),
        }
    }
}

fn error_bar(canvas: &mut Canvas, point: &Point, axes: &Axes<'_>, x: Option<f64>, colour: &str) {
    let Some(x) = x.map(|x| axes.area.left + x).filter(|_| point.low < point.high) else { return };
    // What is too low for a logarithmic axis ends where the axis does.
    let low = axes.height(point.low).unwrap_or(axes.area.bottom());
    let Some(high) = axes.height(point.high) else { return };
    canvas.error_bar(x, (low, high), CAP, colour);
}

pub(super) fn bars(canvas: &mut Canvas, panel: &Panel, axes: &Axes<'_>) {
    let measured: Vec<&Series> = panel.series.iter().filter(|s| s.kind == Kind::Measured).collect();
    let (Some(first), Some(second)) = (axes.x.place(0.0), axes.x.place(1.0)) else { return };
    let slot = (second - first) * GROUP / measured.len().max(1) as f64;
    let left_of =
        |x: f64, i: usize| Some(axes.area.left + axes.x.place(x)? - (second - first) * GROUP / 2.0 + slot * i as f64);
    for (i, series) in measured.iter().enumerate() {
        for point in &series.points {
            let (Some(left), Some(top)) = (left_of(point.x, i), axes.height(point.y)) else { continue };
            let base = axes.height(0.0).unwrap_or(axes.area.bottom());
            let (up, down) = (top.min(base), top.max(base));
            canvas.bar(left + slot * 0.04, up, slot * 0.92, down - up, colour(series.hue));
            let middle = left + slot / 2.0;
            error_bar(canvas, point, axes, Some(middle - axes.area.left), INK);
            // Within the bar where there is room, for the line of a theory may be right above it.
            match slot >= VALUE_WIDTH {
                true if down - up > VALUE_HEIGHT => canvas.light_text((middle, up + 16.0), &short(point.y), VALUE),
                true => {
                    let above = axes.height(point.high).unwrap_or(top).min(up);
                    canvas.text((middle, above - 5.0), &short(point.y), Writing::new(VALUE, Anchor::Middle));
                }
                false => {}
            }
        }
    }
    for series in panel.series.iter().filter(|s| s.kind == Kind::Theory) {
        // Over the bar that it is about, else over all of them.
        let about = measured.iter().position(|m| m.hue == series.hue);
        let wide = if about.is_some() { slot } else { slot * measured.len() as f64 };
        for point in &series.points {
            if let (Some(left), Some(y)) = (left_of(point.x, about.unwrap_or(0)), axes.height(point.y)) {
                canvas.line((left, y), (left + wide, y), INK, 2.5);
            }
        }
    }
}

/// A value in three digits, about.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}
