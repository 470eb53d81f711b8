//! A chart as SVG: legend, panels and caption, none over another.

use super::canvas::{Anchor, Canvas, FAINT, INK, Writing, colour, label_width, text_width};
use super::scale::{Label, Ruler, Tick};
use super::{Chart, Kind, Panel, Scale, Series, marks};

/// The whole picture: with one panel, with panels side by side, or with bars.
const WIDTH: f64 = 680.0;
const WIDTH_OF_TWO: f64 = 1000.0;
/// Of a system of axes, without what stands around it.
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TITLE: f64 = 34.0;
const BELOW: f64 = 54.0;
/// Free at both ends of x.
const MARGIN: f64 = 16.0;
const TEXT: f64 = 12.0;
const LEGEND: f64 = 13.0;
const LEGEND_ROW: f64 = 22.0;
/// What an entry of the legend shows before its name.
const SAMPLE: f64 = 30.0;
const CAPTION_ROW: f64 = 16.0;
/// How far names of categories are turned where they have no room.
const TURNED: f64 = -30.0;

/// A name with what it is drawn as.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    name: String,
    kind: Kind,
    hue: usize,
    bar: bool,
}

pub(super) fn draw(chart: &Chart) -> String {
    let bars = chart.panels.iter().any(|p| matches!(p.x.scale, Scale::Categories(_)));
    let columns = if chart.panels.len() < 2 || bars { 1 } else { 2 };
    let width = if columns == 1 && !bars { WIDTH } else { WIDTH_OF_TWO };
    let shared = shared_legend(&chart.panels);
    let own: Vec<Vec<Entry>> =
        chart.panels.iter().map(|p| if shared.is_some() { Vec::new() } else { legend(p) }).collect();
    let column = width / columns as f64;
    let legend_height = |entries: &[Entry], width: f64| rows(entries, width).len() as f64 * LEGEND_ROW;
    let above = 10.0 + shared.as_deref().map_or(0.0, |entries| legend_height(entries, width));
    let heights: Vec<f64> = chart
        .panels
        .chunks(columns)
        .zip(own.chunks(columns))
        .map(|(panels, own)| {
            let legend = own.iter().map(|entries| legend_height(entries, column)).fold(0.0, f64::max);
            let below = panels.iter().map(|p| below(p, column)).fold(0.0, f64::max);
            TITLE + legend + HEIGHT + below
        })
        .collect();
    let caption = wrapped(&chart.caption, width - 2.0 * MARGIN);
    let height = above + heights.iter().sum::<f64>() + caption.len() as f64 * CAPTION_ROW + 14.0;
    let mut canvas = Canvas::new(width, height, &chart.caption);
    if let Some(entries) = &shared {
        draw_legend(&mut canvas, entries, (0.0, 10.0), width);
    }
    for (i, panel) in chart.panels.iter().enumerate() {
        let (row, place) = (i / columns, i % columns);
        let top = above + heights[..row].iter().sum::<f64>();
        let title = match chart.panels.len() {
            0 | 1 => panel.title.clone(),
            _ => format!("({}) {}", (b'a' + i as u8 % 26) as char, panel.title),
        };
        let left = place as f64 * column;
        let own_height = heights[row] - HEIGHT - TITLE - below_of_row(chart, row, columns, column);
        let writing = Writing { bold: true, ..Writing::new(14.0, Anchor::Middle) };
        canvas.text((left + LEFT + (column - LEFT - RIGHT) / 2.0, top + 22.0), &title, writing);
        draw_legend(&mut canvas, &own[i], (left, top + TITLE - 4.0), column);
        let area = Area { left: left + LEFT, top: top + TITLE + own_height, width: column - LEFT - RIGHT };
        draw_panel(&mut canvas, panel, &area);
    }
    let first = height - caption.len() as f64 * CAPTION_ROW;
    for (i, line) in caption.iter().enumerate() {
        canvas.text((MARGIN, first + i as f64 * CAPTION_ROW), line, Writing::new(TEXT, Anchor::Start));
    }
    canvas.finish()
}

fn below_of_row(chart: &Chart, row: usize, columns: usize, column: f64) -> f64 {
    chart.panels.chunks(columns).nth(row).unwrap_or(&[]).iter().map(|p| below(p, column)).fold(0.0, f64::max)
}

/// Where the axes are.
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
}

impl Area {
    pub(super) fn bottom(&self) -> f64 {
        self.top + HEIGHT
    }
}

/// Both axes of a panel.
pub(super) struct Axes<'a> {
    pub(super) area: &'a Area,
    pub(super) x: Ruler,
    pub(super) y: Ruler,
}

impl Axes<'_> {
    /// Where a value lies in the picture.
    pub(super) fn at(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.area.left + self.x.place(x)?, self.height(y)?))
    }

    pub(super) fn height(&self, y: f64) -> Option<f64> {
        Some(self.area.bottom() - self.y.place(y)?)
    }
}

fn draw_panel(canvas: &mut Canvas, panel: &Panel, area: &Area) {
    let points = || panel.series.iter().flat_map(|s| &s.points);
    let axes = Axes {
        area,
        x: Ruler::new(&panel.x, points().map(|p| p.x), area.width, false, MARGIN),
        y: Ruler::new(&panel.y, points().flat_map(|p| [p.y, p.low, p.high]), HEIGHT, true, 0.0),
    };
    let (left, right, bottom) = (area.left, area.left + area.width, area.bottom());
    let categories = matches!(panel.x.scale, Scale::Categories(_));
    let (across, up) = (axes.x.ticks(), axes.y.ticks());
    for tick in &up {
        let (y, major) = (bottom - tick.at, tick.label != Label::None);
        if major {
            canvas.line((left, y), (right, y), FAINT, 1.0);
        }
        canvas.line((left - if major { 6.0 } else { 3.0 }, y), (left, y), INK, 1.0);
        canvas.label((left - 9.0, y + 4.0), &tick.label, Writing::new(TEXT, Anchor::End));
    }
    let turned = are_turned(&across, area.width);
    for tick in &across {
        let (x, major) = (left + tick.at, tick.label != Label::None);
        if major && !categories {
            canvas.line((x, area.top), (x, bottom), FAINT, 1.0);
        }
        canvas.line((x, bottom), (x, bottom + if major { 6.0 } else { 3.0 }), INK, 1.0);
        let writing = match turned {
            true => Writing { turned: TURNED, ..Writing::new(TEXT, Anchor::End) },
            false => Writing::new(TEXT, Anchor::Middle),
        };
        canvas.label((x, bottom + 19.0), &tick.label, writing);
    }
    canvas.line((left, area.top), (left, bottom), INK, 1.2);
    canvas.line((left, bottom), (right, bottom), INK, 1.2);
    // Two strokes over a gap: beyond them the axis is another one.
    if let Some(at) = axes.x.break_at() {
        let x = left + at;
        canvas.line((x - 3.0, bottom), (x + 3.0, bottom), "#ffffff", 3.0);
        for x in [x - 3.0, x + 3.0] {
            canvas.line((x - 3.0, bottom + 5.0), (x + 3.0, bottom - 5.0), INK, 1.2);
        }
    }
    if let Some(at) = axes.y.break_at() {
        let y = bottom - at;
        canvas.line((left, y - 3.0), (left, y + 3.0), "#ffffff", 3.0);
        for y in [y - 3.0, y + 3.0] {
            canvas.line((left - 5.0, y + 3.0), (left + 5.0, y - 3.0), INK, 1.2);
        }
    }
    let name = Writing::new(LEGEND, Anchor::Middle);
    canvas.text((left + area.width / 2.0, bottom + below_labels(&across, turned) + 18.0), &panel.x.name, name);
    let beside = Writing { turned: -90.0, ..name };
    canvas.text((left - LEFT + 16.0, area.top + HEIGHT / 2.0), &panel.y.name, beside);
    match categories {
        true => marks::bars(canvas, panel, &axes),
        false => marks::lines(canvas, panel, &axes),
    }
}

/// Whether labels along x would run into each other.
fn are_turned(ticks: &[Tick], width: f64) -> bool {
    let labelled = ticks.iter().filter(|t| t.label != Label::None);
    let widest = labelled.clone().map(|t| label_width(&t.label, TEXT)).fold(0.0, f64::max);
    widest + 6.0 > width / labelled.count().max(1) as f64
}

/// Pixels that the labels along x take.
fn below_labels(ticks: &[Tick], turned: bool) -> f64 {
    let widest = ticks.iter().map(|t| label_width(&t.label, TEXT)).fold(0.0, f64::max);
    if turned { 19.0 + widest * TURNED.abs().to_radians().sin() + 4.0 } else { 24.0 }
}

/// Pixels below the axes of a panel.
fn below(panel: &Panel, column: f64) -> f64 {
    let width = column - LEFT - RIGHT;
    let values = panel.series.iter().flat_map(|s| &s.points).map(|p| p.x);
    let ticks = Ruler::new(&panel.x, values, width, false, MARGIN).ticks();
    BELOW - 24.0 + below_labels(&ticks, are_turned(&ticks, width))
}

fn legend(panel: &Panel) -> Vec<Entry> {
    let bar = matches!(panel.x.scale, Scale::Categories(_));
    let entry = |s: &Series| Entry { name: s.name.clone(), kind: s.kind, hue: s.hue, bar };
    panel.series.iter().filter(|s| !s.name.is_empty()).map(entry).collect()
}

/// One legend for all panels, where a name is drawn alike in all, and what is drawn alike has one name.
fn shared_legend(panels: &[Panel]) -> Option<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for entry in panels.iter().flat_map(legend) {
        let same = |e: &&Entry| e.name == entry.name || (e.kind, e.hue) == (entry.kind, entry.hue);
        match entries.iter().find(same) {
            Some(known) if *known == entry => {}
            Some(_) => return None,
            None => entries.push(entry),
        }
    }
    Some(entries)
}

fn entry_width(entry: &Entry) -> f64 {
    SAMPLE + 6.0 + text_width(&entry.name, LEGEND) + 16.0
}

/// Entries by rows that fit the width.
fn rows(entries: &[Entry], width: f64) -> Vec<&[Entry]> {
    let (mut rows, mut begin, mut taken) = (Vec::new(), 0, 0.0);
    for (i, entry) in entries.iter().enumerate() {
        if taken + entry_width(entry) > width - 2.0 * MARGIN && i > begin {
            rows.push(&entries[begin..i]);
            (begin, taken) = (i, 0.0);
        }
        taken += entry_width(entry);
    }
    if begin < entries.len() {
        rows.push(&entries[begin..]);
    }
    rows
}

fn draw_legend(canvas: &mut Canvas, entries: &[Entry], (left, top): (f64, f64), width: f64) {
    for (i, row) in rows(entries, width).into_iter().enumerate() {
        let y = top + i as f64 * LEGEND_ROW + LEGEND_ROW / 2.0;
        let mut x = left + (width - row.iter().map(entry_width).sum::<f64>()) / 2.0;
        for entry in row {
            sample(canvas, entry, (x, y));
            canvas.text((x + SAMPLE + 6.0, y + 4.5), &entry.name, Writing::new(LEGEND, Anchor::Start));
            x += entry_width(entry);
        }
    }
}

fn sample(canvas: &mut Canvas, entry: &Entry, (x, y): (f64, f64)) {
    let ends = [(x, y), (x + SAMPLE, y)];
    match entry.kind {
        Kind::Measured if entry.bar => canvas.bar(x + SAMPLE - 14.0, y - 6.0, 14.0, 12.0, colour(entry.hue)),
        Kind::Theory if entry.bar => canvas.line((x + 8.0, y), ends[1], INK, 2.5),
        Kind::Measured => canvas.polyline(&ends, colour(entry.hue), 1.8, false),
        Kind::Theory => canvas.polyline(&ends, colour(entry.hue), 1.5, true),
        Kind::Stated => {}
    }
    if !entry.bar && entry.kind != Kind::Theory {
        canvas.marker((x + SAMPLE / 2.0, y), entry.hue);
    }
}

/// Lines of words that fit the width.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line, TEXT) + text_width(word, TEXT) + TEXT * 0.5 <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Point};
    use super::*;

    fn panel(x: Scale, y: Scale, names: &[&str]) -> Panel {
        let points = |i: usize| {
            let point = |x: f64| Point { low: 1.0 + i as f64, high: 4.0 + i as f64, ..Point::exact(x, 2.0 + i as f64) };
            match x {
                Scale::Categories(_) => [0.0, 1.0, 2.0].map(point).to_vec(),
                _ => [0.0, 1e-5, 1e-3].map(point).to_vec(),
            }
        };
        let series = names.iter().enumerate().map(|(i, name)| Series::new(*name, Kind::Measured, i, points(i)));
        let (x_axis, y_axis) = (Axis::new("loss <p>", x.clone()), Axis::new("Goodput (Gbit/s)", y));
        Panel { title: "a < b".into(), x: x_axis, y: y_axis, series: series.collect() }
    }

    fn chart(panels: Vec<Panel>) -> String {
        Chart { panels, caption: "What it shows.".into() }.svg()
    }

    fn count(text: &str, part: &str) -> usize {
        text.matches(part).count()
    }

    /// Numbers of all attributes of this name.
    fn numbers(text: &str, attribute: &str) -> Vec<f64> {
        let begin = format!(" {attribute}=\"");
        text.split(&begin).skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
    }

    #[test]
    fn every_point_has_a_marker_of_its_series_and_an_error_bar() {
        let text = chart(vec![panel(Scale::Log, Scale::Linear, &["rc", "sr & lowar"])]);
        // Three points each, and one in the legend.
        assert_eq!((count(&text, "<circle"), count(&text, "<polygon"), count(&text, "class=\"marker\"")), (4, 4, 8));
        assert!(text.contains("#0072b2") && text.contains("#d55e00"), "{text}");
        assert_eq!(count(&text, "class=\"error\""), 6);
        assert!(text.contains("a &lt; b") && text.contains("sr &amp; lowar") && text.contains("loss &lt;p&gt;"));
        assert!(text.contains("fill=\"#ffffff\"/>"), "a background");
        assert!(text.contains(">−5</tspan>"), "powers of ten: {text}");
    }

    #[test]
    fn categories_have_bars_and_no_lines_between_them() {
        let names = ["one", "two", "three"].map(String::from).into();
        let mut bars = panel(Scale::Categories(names), Scale::Linear, &["rc", "sr"]);
        bars.series.push(Series::new("theory", Kind::Theory, 0, vec![Point::exact(1.0, 3.0)]));
        let text = chart(vec![bars]);
        // Three groups of two, and two in the legend.
        assert_eq!((count(&text, "class=\"bar\""), count(&text, "<polyline")), (8, 0));
        assert_eq!(count(&text, "class=\"marker\""), 0);
        assert!(text.contains(">two</text>"), "{text}");
    }

    #[test]
    fn one_legend_serves_panels_with_the_same_series_and_others_have_their_own() {
        let like = || panel(Scale::Log, Scale::Linear, &["rc", "sr"]);
        let text = chart(vec![like(), like()]);
        assert_eq!((count(&text, ">rc</text>"), count(&text, ">(b) a &lt; b</text>")), (1, 1));
        let text = chart(vec![like(), panel(Scale::Log, Scale::Log, &["flow 1", "flow 2"])]);
        assert_eq!((count(&text, ">rc</text>"), count(&text, ">flow 1</text>")), (1, 1));
        assert!(text.contains("width=\"1000\""), "{text}");
    }

    #[test]
    fn a_line_ends_at_the_break_and_a_theory_of_one_place_is_a_stroke() {
        let mut both = panel(Scale::Log, Scale::Linear, &["rc"]);
        let theory = [0.0, 1e-4].map(|x| Point::exact(x, 3.0)).to_vec();
        both.series.push(Series::new("theory", Kind::Theory, 0, theory));
        let text = chart(vec![both]);
        // One line between the two losses above 0, and the two of the legend.
        assert_eq!(count(&text, "<polyline"), 3);
        assert_eq!(count(&text, "stroke=\"#0072b2\" stroke-width=\"1.5\"/>"), 2, "{text}");
    }

    #[test]
    fn nothing_lies_outside_of_the_picture() {
        for y in [Scale::Linear, Scale::Log] {
            let names: Vec<String> = (0..9).map(|i| format!("lowar:{i}28,16")).collect();
            let panels = vec![
                panel(Scale::Categories(names), y.clone(), &["rc"]),
                panel(Scale::Log, y, &["rc", "a rather long name of a series", "another long name of a series"]),
            ];
            let text = chart(panels);
            let (width, height) = (numbers(&text, "width")[0], numbers(&text, "height")[0]);
            let inside = |all: Vec<f64>, most: f64| all.iter().all(|v| (0.0..=most).contains(v));
            for (across, up) in [("x", "y"), ("x1", "y1"), ("x2", "y2"), ("cx", "cy")] {
                assert!(inside(numbers(&text, across), width) && inside(numbers(&text, up), height), "{text}");
            }
        }
    }

    #[test]
    fn nothing_at_all_is_a_chart_too() {
        let empty = Panel { series: vec![], ..panel(Scale::Log, Scale::Linear, &[]) };
        for text in [chart(vec![]), chart(vec![empty])] {
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }
}
