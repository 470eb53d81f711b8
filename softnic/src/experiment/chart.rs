//! Charts of figures by category: panels one below the other, as SVG.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;

const WIDTH: u32 = 760;
const PANEL: u32 = 330;
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xd9, 0x8c, 0x3f),
    RGBColor(0x2c, 0x8c, 0x4c),
    RGBColor(0x9b, 0x59, 0xb6),
    RGBColor(0x7f, 0x8c, 0x8d),
    RGBColor(0xc0, 0x39, 0x2b),
    RGBColor(0x16, 0xa0, 0x85),
    RGBColor(0x8a, 0x6d, 0x3b),
];

/// One system of axes.
#[derive(Debug, Clone, Default)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    /// Names of the places along x, evenly spaced.
    pub(super) places: Vec<String>,
    pub(super) series: Vec<Series>,
    /// Powers of ten along y.
    pub(super) logarithmic: bool,
}

/// A line through the places; it has gaps where nothing was measured.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) values: Vec<Option<f64>>,
}

impl Panel {
    /// Where a value lies along y, if it can be shown.
    fn height(&self, value: f64) -> Option<f64> {
        match self.logarithmic {
            true => (value > 0.0).then(|| value.log10()),
            false => value.is_finite().then_some(value),
        }
    }

    /// From below the lowest value to above the highest.
    fn span(&self) -> (f64, f64) {
        let heights = || self.series.iter().flat_map(|s| &s.values).filter_map(|v| self.height((*v)?));
        let high = heights().fold(f64::MIN, f64::max);
        let low = heights().fold(f64::MAX, f64::min);
        match self.logarithmic {
            _ if low > high => (0.0, 1.0),
            true => (low.floor(), (high + 0.05).ceil()),
            false => (low.min(0.0) * 1.08, if high > 0.0 { high * 1.08 } else { 1.0 }),
        }
    }
}

/// Places that are named along x; of more, some are.
const MAX_LABELS: usize = 14;
/// A line through more points than these is drawn without dots.
const MAX_DOTS: usize = 40;

/// Places of categories: a mark at each, none between.
#[derive(Clone)]
struct Places(usize);

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = (-0.3, self.0 as f64 - 0.7);
        let part = (value - low) / (high - low);
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.0).step_by(self.0.div_ceil(MAX_LABELS).max(1)).map(|i| i as f64).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        -0.3..self.0 as f64 - 0.7
    }
}

/// All panels in one picture.
pub(super) fn svg(panels: &[Panel]) -> Result<String, String> {
    let mut out = String::new();
    draw(&mut out, panels).map_err(|e| format!("cannot draw the chart: {e}"))?;
    Ok(out)
}

fn draw(out: &mut String, panels: &[Panel]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(out, (WIDTH, PANEL * panels.len().max(1) as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    for (panel, area) in panels.iter().zip(root.split_evenly((panels.len().max(1), 1))) {
        let (low, high) = panel.span();
        let mut chart = ChartBuilder::on(&area)
            .caption(&panel.title, ("sans-serif", 16))
            .margin(12)
            .margin_right(150)
            .x_label_area_size(42)
            .y_label_area_size(58)
            .build_cartesian_2d(Places(panel.places.len().max(1)), low..high)?;
        let place = |x: &f64| panel.places.get(x.round() as usize).cloned().unwrap_or_default();
        let height = |y: &f64| if panel.logarithmic { power(*y) } else { plain(*y) };
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(panel.x)
            .y_desc(panel.y)
            .y_labels(if panel.logarithmic { (high - low) as usize + 1 } else { 8 })
            .x_label_formatter(&place)
            .y_label_formatter(&height)
            .draw()?;
        for (i, series) in panel.series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let at = |(x, v): (usize, &Option<f64>)| Some((x as f64, panel.height((*v)?)?));
            // Pieces without a gap.
            let all: Vec<_> = series.values.iter().enumerate().map(at).collect();
            for piece in all.split(Option::is_none).filter(|p| p.len() > 1) {
                chart.draw_series(LineSeries::new(piece.iter().flatten().copied(), colour.stroke_width(2)))?;
            }
            if all.len() <= MAX_DOTS {
                chart.draw_series(all.iter().flatten().map(|&point| Circle::new(point, 3, colour.filled())))?;
            }
            let (x, y) = (WIDTH as i32 - 140, 44 + 20 * i as i32);
            area.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], colour.filled()))?;
            area.draw(&Text::new(series.name.clone(), (x + 18, y + 1), ("sans-serif", 13)))?;
        }
    }
    root.present()?;
    Ok(())
}

fn plain(value: f64) -> String {
    let digits = if value.abs() >= 10.0 || value == 0.0 { 0 } else { 1 };
    format!("{value:.digits$}")
}

fn power(exponent: f64) -> String {
    match exponent {
        e if e.fract().abs() > 1e-9 => String::new(),
        e if (-3.0..=4.0).contains(&e) => 10f64.powf(e).to_string(),
        e => format!("1e{e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(logarithmic: bool, values: &[Option<f64>]) -> Panel {
        Panel {
            title: "a < b".into(),
            x: "loss",
            y: "Gbit/s",
            places: vec!["0".into(), "1 %".into(), "2 %".into()],
            series: vec![Series { name: "rc & sr".into(), values: values.into() }],
            logarithmic,
        }
    }

    /// Lines of series; those of the axes are thinner.
    fn lines(svg: &str) -> usize {
        svg.split("<polyline").skip(1).filter(|line| line.contains("stroke-width=\"2\"")).count()
    }

    #[test]
    fn every_value_is_a_point_within_the_picture_and_a_gap_splits_the_line() {
        for logarithmic in [false, true] {
            let text = svg(&[panel(logarithmic, &[Some(0.01), Some(9.0), Some(3.0)])]).unwrap();
            assert_eq!((text.matches("<circle").count(), lines(&text)), (3, 1), "{text}");
            let tops = text.split("<circle").skip(1).map(|c| c.split("cy=\"").nth(1).unwrap());
            let tops: Vec<i32> = tops.map(|c| c.split('"').next().unwrap().parse().unwrap()).collect();
            assert!(tops.iter().all(|y| (0..PANEL as i32).contains(y)), "{tops:?}");
            assert!(tops[1] < tops[2] && tops[2] < tops[0], "more is higher: {tops:?}");
            let gap = svg(&[panel(logarithmic, &[Some(0.01), None, Some(3.0)])]).unwrap();
            assert_eq!((gap.matches("<circle").count(), lines(&gap)), (2, 0), "{gap}");
        }
    }

    #[test]
    fn names_are_escaped_and_nothing_at_all_is_a_chart_too() {
        let text = svg(&[panel(false, &[])]).unwrap();
        assert!(text.contains("a &lt; b") && text.contains("rc &amp; sr"), "{text}");
        assert!(svg(&[]).unwrap().trim_end().ends_with("</svg>"));
    }
}
