//! The chart of a race: bars beside bars, as SVG.

use std::fmt::Write;

use super::racers::Race;
use super::report::Results;

const WIDTH: f64 = 720.0;
const PANEL: f64 = 250.0;
const TOP: f64 = 46.0;
const BAR: f64 = 34.0;
const LEFT: f64 = 20.0;
const COLOURS: [&str; 5] = ["#9aa5b1", "#1f77b4", "#6fb1e0", "#d98c3f", "#7a9e5f"];
const NAMES: [&str; 5] = ["raw frames", "softnic RC WRITE", "perftest on softnic", "UCX put over TCP", "UDP"];

/// Bandwidth above, latency below; one group of bars for each MTU.
pub(super) fn svg(all: &[Results]) -> String {
    let height = 2.0 * PANEL + 40.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    // Writing to a String cannot fail.
    for (i, (name, colour)) in NAMES.into_iter().zip(COLOURS).enumerate() {
        let x = LEFT + i as f64 * 140.0;
        let y = height - 22.0;
        let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{name}</text>", x + 18.0, y + 11.0);
    }
    panel(&mut out, all, false, 0.0, "Bandwidth, 64 KiB messages, Gbit/s (more is better)");
    panel(&mut out, all, true, PANEL, "Latency, 64 bytes, half a round trip, µs (less is better)");
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, all: &[Results], latency: bool, y: f64, title: &str) {
    let shown = |race: &Race| race.is_latency() == latency && *race != Race::SoftnicLatencyWaiting;
    let races: Vec<Race> = Race::VETH.iter().copied().filter(shown).collect();
    let highest = all.iter().flat_map(|r| races.iter().map(|&race| r.median(race))).fold(f64::MIN_POSITIVE, f64::max);
    let (floor, room) = (y + PANEL - 30.0, PANEL - TOP - 48.0);
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{title}</text>", y + 24.0);
    for (group, results) in all.iter().enumerate() {
        let x = LEFT + 30.0 + group as f64 * (WIDTH - 2.0 * LEFT) / all.len() as f64;
        for (i, &race) in races.iter().enumerate() {
            let (value, x) = (results.median(race), x + i as f64 * (BAR + 18.0));
            let tall = room * value / highest;
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{BAR}\" height=\"{tall:.1}\" fill=\"{}\"/>",
                floor - tall,
                COLOURS[i % COLOURS.len()],
            );
            let (middle, above) = (x + BAR / 2.0, floor - tall - 5.0);
            let _ = writeln!(out, "<text x=\"{middle:.1}\" y=\"{above:.1}\" text-anchor=\"middle\">{value:.1}</text>");
        }
        let (middle, below) = (x + 2.5 * (BAR + 18.0) - 9.0, floor + 18.0);
        let _ =
            writeln!(out, "<text x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">MTU {}</text>", results.mtu);
    }
    let _ =
        writeln!(out, "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{floor}\" y2=\"{floor}\" stroke=\"black\"/>", WIDTH - LEFT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_peers::report::Counts;

    #[test]
    fn the_tallest_bar_fills_the_panel_and_no_bar_leaves_it() {
        let mut results = Results::new(1500, &Race::VETH, Counts::Median);
        for (i, race) in Race::VETH.into_iter().enumerate() {
            results.add(race, 1.0 + i as f64);
        }
        let text = svg(&[results]);
        assert_eq!(text.matches("<rect").count(), 1 + 5 + 10, "background, legend, bars");
        let tops = text.split("<rect").filter(|part| part.contains("width=\"34\""));
        let tops =
            tops.map(|part| part.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap());
        assert!(tops.into_iter().all(|top| top >= TOP), "{text}");
    }
}
