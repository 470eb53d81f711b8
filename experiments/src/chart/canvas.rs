//! Elements of SVG: lines, text, markers, in the colours of the chart.

use std::fmt::Write;

use super::scale::Label;

/// Okabe and Ito's colours, which people with any colour vision tell apart; yellow, which white paper swallows, is the last.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442"];
pub(super) const INK: &str = "#1a1a1a";
pub(super) const FAINT: &str = "#e4e4e4";
const FONT: &str = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
/// Pixels that a character takes at a font size of one, about: rather too many.
const CHARACTER: f64 = 0.52;

pub(super) fn colour(hue: usize) -> &'static str {
    COLOURS[hue % COLOURS.len()]
}

/// Pixels that a text takes, about.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * CHARACTER * size
}

pub(super) fn label_width(label: &Label, size: f64) -> f64 {
    label.width() * CHARACTER * size
}

/// Which part of a text lies at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// How a text is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing {
    pub(super) size: f64,
    pub(super) anchor: Anchor,
    pub(super) bold: bool,
    /// Degrees, clockwise.
    pub(super) turned: f64,
}

impl Writing {
    pub(super) fn new(size: f64, anchor: Anchor) -> Writing {
        Writing { size, anchor, bold: false, turned: 0.0 }
    }
}

/// A picture under way.
pub(super) struct Canvas {
    out: String,
}

// Writing to a String cannot fail.
impl Canvas {
    /// White, so that it can be read on a dark page, too.
    pub(super) fn new(width: f64, height: f64, description: &str) -> Canvas {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"{FONT}\" role=\"img\">\n<desc>{}</desc>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>",
            escaped(description)
        );
        Canvas { out }
    }

    pub(super) fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        );
    }

    pub(super) fn polyline(&mut self, points: &[(f64, f64)], colour: &str, width: f64, dashed: bool) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dashes = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let _ = writeln!(
            self.out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dashes}/>",
            points.join(" ")
        );
    }

    pub(super) fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        let _ = writeln!(
            self.out,
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    /// From low to high, with caps at both ends.
    pub(super) fn error_bar(&mut self, x: f64, (low, high): (f64, f64), cap: f64, colour: &str) {
        let (left, wide) = (x - cap, 2.0 * cap);
        let _ = writeln!(
            self.out,
            "<path class=\"error\" d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}h{wide:.1}M{left:.1} {high:.1}h{wide:.1}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\"/>"
        );
    }

    pub(super) fn text(&mut self, at: (f64, f64), text: &str, writing: Writing) {
        self.written(at, &escaped(text), writing);
    }

    /// Upon a bar.
    pub(super) fn light_text(&mut self, (x, y): (f64, f64), text: &str, size: f64) {
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"#ffffff\" text-anchor=\"middle\">{}</text>",
            escaped(text)
        );
    }

    pub(super) fn label(&mut self, at: (f64, f64), label: &Label, writing: Writing) {
        match label {
            Label::None => {}
            Label::Text(text) => self.text(at, text, writing),
            Label::Power(exponent) => {
                let sign = if *exponent < 0 { "−" } else { "" };
                let small = writing.size * 0.75;
                let raised = format!(
                    "10<tspan dy=\"-{:.1}\" font-size=\"{small:.1}\">{sign}{}</tspan>",
                    writing.size * 0.4,
                    exponent.abs()
                );
                self.written(at, &raised, writing);
            }
        }
    }

    fn written(&mut self, (x, y): (f64, f64), markup: &str, writing: Writing) {
        let Writing { size, anchor, bold, turned } = writing;
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        let turn = if turned == 0.0 { String::new() } else { format!(" transform=\"rotate({turned} {x:.1} {y:.1})\"") };
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{INK}\" text-anchor=\"{}\"{weight}{turn}>{markup}</text>",
            anchor.name()
        );
    }

    /// A marker whose shape goes with its colour. What lies below shines through, so that markers at the same place are all seen.
    pub(super) fn marker(&mut self, (x, y): (f64, f64), hue: usize) {
        let corners = |points: &[(f64, f64)]| {
            let points: Vec<String> = points.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
            format!("<polygon points=\"{}\"", points.join(" "))
        };
        let shape = match hue % COLOURS.len() {
            0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\""),
            1 => corners(&[(-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)]),
            2 => corners(&[(0.0, -5.6), (5.2, 3.8), (-5.2, 3.8)]),
            3 => corners(&[(0.0, -6.0), (6.0, 0.0), (0.0, 6.0), (-6.0, 0.0)]),
            4 => corners(&[(0.0, 5.6), (5.2, -3.8), (-5.2, -3.8)]),
            5 => corners(&[(0.0, -5.6), (5.3, -1.7), (3.3, 4.5), (-3.3, 4.5), (-5.3, -1.7)]),
            6 => format!("<path d=\"M{:.1} {:.1}l8 8m0 -8l-8 8\"", x - 4.0, y - 4.0),
            _ => format!("<path d=\"M{:.1} {y:.1}h10m-5 -5v10\"", x - 5.0),
        };
        let colour = colour(hue);
        let _ = writeln!(
            self.out,
            "{shape} class=\"marker\" fill=\"#ffffff\" fill-opacity=\"0.5\" stroke=\"{colour}\" stroke-width=\"1.8\"/>"
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
