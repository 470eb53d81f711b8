//! Where an outcome goes: text or JSON to stdout, CSV, SVG, PNG and results to a folder.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Map, Value, json};
use softnic_perf::{say, stop};

use super::outcome::{Figure, Figures, Outcome, Table, beside_table};
use super::{Setting, written};
use crate::chart;
use crate::results::{MadeBy, Results, write_all};

/// The files of an outcome; their paths. What is quick or interrupted has a name of its own, so that it never lies where a whole one does.
fn write_files(
    folder: &Path,
    name: &str,
    png: bool,
    setting: &Setting,
    outcome: &Outcome,
) -> Result<Vec<PathBuf>, String> {
    let mut files = vec![(format!("{name}.csv"), csv(&outcome.figures).into_bytes())];
    if !outcome.beside.is_empty() {
        files.push((format!("{name}-paper.csv"), csv(&beside_figures(outcome)).into_bytes()));
    }
    files.push((format!("{name}.svg"), outcome.chart.svg().into_bytes()));
    if png {
        files.push((format!("{name}.png"), outcome.chart.png()?));
    }
    let made_by = MadeBy {
        softnic: env!("CARGO_PKG_VERSION").into(),
        name: name.into(),
        what: outcome.what.clone(),
        seeds: setting.seeds(),
        quick: setting.quick,
        runs: outcome.runs,
        of: outcome.of,
    };
    files.push((format!("{name}.json"), Results { made_by, chart: outcome.chart.clone() }.json()?));
    write_all(folder, files)
}

/// Where an outcome goes.
pub(super) struct Destination<'a> {
    pub(super) folder: &'a Path,
    pub(super) png: bool,
    pub(super) json: bool,
}

impl Destination<'_> {
    /// Makes the folder and tries that it can be written to, before minutes of work are put into what goes there.
    pub(super) fn prepare(&self) -> Result<(), String> {
        if self.png {
            chart::check_png()?;
        }
        let refused = |e: io::Error| format!("{}: {e}: choose another folder with --out", self.folder.display());
        fs::create_dir_all(self.folder).map_err(refused)?;
        let trial = self.folder.join(format!(".softnic-{}", std::process::id()));
        fs::write(&trial, "written\n").map_err(refused)?;
        fs::remove_file(trial).map_err(refused)
    }

    /// Writes and prints what a run that began at `began`, with so many simulations at a time, came to.
    pub(super) fn take(
        &self,
        base: &str,
        setting: &Setting,
        mut outcome: Outcome,
        (began, at_a_time): (Instant, usize),
    ) -> Result<ExitCode, String> {
        let interrupted = outcome.runs < outcome.of;
        // Goals are for the whole grid with all its seeds.
        if !outcome.goals.is_empty() && (setting.quick || interrupted) {
            outcome.goals.clear();
            outcome.unjudged = Some(if setting.quick { "quick" } else { "interrupted" });
        }
        let quick = if setting.quick { "-quick" } else { "" };
        let name = format!("{base}{quick}{}", if interrupted { "-interrupted" } else { "" });
        let files = write_files(self.folder, &name, self.png, setting, &outcome)?;
        written(match self.json {
            true => print_json(base, setting, &outcome, &files),
            false => print_text(&outcome),
        })?;
        let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
        let seconds = began.elapsed().as_secs_f64();
        say!("{} runs in {seconds:.1} s, {at_a_time} at a time; written: {}", outcome.runs, names.join(", "));
        if interrupted {
            say!("softnic: interrupted: the figures are of {} of {} runs", outcome.runs, outcome.of);
            return Ok(ExitCode::from(stop::EXIT_CODE));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn beside_figures(outcome: &Outcome) -> Figures {
    let row = |b: &super::outcome::Beside| {
        vec![b.stated.what.into(), b.stated.place.into(), b.stated.value.into(), b.ours.into(), b.ratio().into()]
    };
    Figures {
        columns: vec!["figure", "place", "paper", "ours", "ratio"],
        rows: outcome.beside.iter().map(row).collect(),
    }
}

/// As RFC 4180 has it: a line of names, then lines of figures; nothing between two commas where there is none.
fn csv(figures: &Figures) -> String {
    let mut out = figures.columns.join(",");
    out.push('\n');
    for row in &figures.rows {
        let fields: Vec<String> = row.iter().map(csv_field).collect();
        out.push_str(&fields.join(","));
        out.push('\n');
    }
    out
}

fn csv_field(figure: &Figure) -> String {
    match figure {
        Figure::Text(text) if text.contains([',', '"', '\n']) => format!("\"{}\"", text.replace('"', "\"\"")),
        Figure::Text(text) => text.clone(),
        Figure::Number(number) => rounded(*number).to_string(),
        Figure::Missing => String::new(),
    }
}

/// To nine digits: more tell of nothing but the order of additions.
fn rounded(number: f64) -> f64 {
    format!("{number:.8e}").parse().unwrap_or(number)
}

fn json_figure(figure: &Figure) -> Value {
    match figure {
        Figure::Text(text) => json!(text),
        Figure::Number(number) => json!(rounded(*number)),
        Figure::Missing => Value::Null,
    }
}

/// An object for each row of figures, and one for the rest.
fn print_json(name: &str, setting: &Setting, outcome: &Outcome, files: &[PathBuf]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for row in &outcome.figures.rows {
        let fields = outcome.figures.columns.iter().zip(row).map(|(name, f)| ((*name).into(), json_figure(f)));
        writeln!(out, "{}", Value::Object(fields.collect::<Map<_, _>>()))?;
    }
    let goals = outcome.goals.iter().map(
        |g| json!({ "goal": g.what, "measured": g.measured.map(rounded), "reached": g.is_reached(), "line": g.line() }),
    );
    let paper = outcome.beside.iter().map(|b| {
        json!({
            "figure": b.stated.what, "place": b.stated.place, "paper": b.stated.value,
            "ours": b.ours.map(rounded), "ratio": b.ratio().map(rounded),
        })
    });
    let summary = json!({ "summary": {
        "experiment": name,
        "quick": setting.quick,
        "runs": outcome.runs,
        "of": outcome.of,
        "goals": goals.collect::<Vec<_>>(),
        "goals_not_judged": outcome.unjudged,
        "paper": paper.collect::<Vec<_>>(),
        "notes": outcome.notes,
        "files": files,
    }});
    writeln!(out, "{summary}")
}

/// Tables, goals, the paper's figures and notes.
fn print_text(outcome: &Outcome) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{}", text(outcome))
}

fn text(outcome: &Outcome) -> String {
    let mut s = wrapped(&outcome.what, "");
    for t in &outcome.tables {
        table(&mut s, t);
    }
    if !outcome.beside.is_empty() {
        table(&mut s, &beside_table(&outcome.beside));
    }
    if !outcome.goals.is_empty() {
        s.push('\n');
    }
    if let Some(why) = outcome.unjudged {
        let _ = writeln!(s, "\ngoals not judged: {why}");
    }
    for goal in &outcome.goals {
        // Writing to a String cannot fail.
        let _ = writeln!(s, "{}", goal.line());
    }
    if !outcome.notes.is_empty() {
        s.push('\n');
    }
    for note in &outcome.notes {
        s.push_str(&wrapped(note, "- "));
    }
    s
}

fn table(s: &mut String, table: &Table) {
    let wide = |text: &String| text.chars().count();
    let width = |i: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(i)).chain(table.columns.get(i));
        cells.map(wide).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let _ = writeln!(s, "\n{}", table.title);
    for row in [&table.columns].into_iter().chain(&table.rows) {
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(width - wide(cell));
            // The first column is words, the others are figures.
            let _ = if i == 0 { write!(s, "  {cell}{room}") } else { write!(s, "  {room}{cell}") };
        }
        s.truncate(s.trim_end().len());
        s.push('\n');
    }
}

/// Lines of at most a hundred characters; those behind the first as far in as its mark.
fn wrapped(text: &str, mark: &str) -> String {
    let (mut out, mut line) = (String::new(), mark.to_string());
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 100 {
            out += line.trim_end();
            out.push('\n');
            line = " ".repeat(mark.len());
        }
        line += word;
        line.push(' ');
    }
    out += line.trim_end();
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_has_commas_and_leaves_out_what_is_missing() {
        let figures = Figures {
            columns: vec!["transport", "gbps", "formula"],
            rows: vec![
                vec!["lowar:32,1".into(), (1.0 / 3.0).into(), Figure::Missing],
                vec!["say \"rc\"".into(), 9.25.into(), 0.0.into()],
            ],
        };
        assert_eq!(csv(&figures), "transport,gbps,formula\n\"lowar:32,1\",0.333333333,\n\"say \"\"rc\"\"\",9.25,0\n");
    }

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut s = String::new();
        let rows = vec![vec!["0.1 %".into(), "9.250".into()], vec!["–".into(), "12.000".into()]];
        table(&mut s, &Table { title: "T".into(), columns: vec!["loss".into(), "rc".into()], rows });
        assert_eq!(s, "\nT\n  loss       rc\n  0.1 %   9.250\n  –      12.000\n");
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = wrapped(&"word ".repeat(30), "- ");
        assert!(text.lines().count() == 2 && text.lines().all(|l| l.chars().count() <= 100), "{text}");
        assert!(text.starts_with("- word") && text.lines().nth(1).unwrap().starts_with("  word"));
    }
}
