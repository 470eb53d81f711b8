//! Where an outcome goes: text or JSON to stdout, CSV and SVG to a folder.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::chart;
use super::outcome::{Figure, Figures, Outcome, Table, beside_table};

/// Makes the folder and tries that it can be written to, before minutes of work are put into what goes there.
pub(super) fn prepare(folder: &Path) -> Result<(), String> {
    let refused = |e: io::Error| format!("{}: {e}: choose another folder with --out", folder.display());
    fs::create_dir_all(folder).map_err(refused)?;
    let trial = folder.join(format!(".softnic-{}", std::process::id()));
    fs::write(&trial, "written\n").map_err(refused)?;
    fs::remove_file(trial).map_err(refused)
}

/// The files of an outcome; their paths.
pub(super) fn write_files(folder: &Path, name: &str, outcome: &Outcome) -> Result<Vec<PathBuf>, String> {
    let mut files = vec![(format!("{name}.csv"), csv(&outcome.figures))];
    if !outcome.beside.is_empty() {
        files.push((format!("{name}-paper.csv"), csv(&beside_figures(outcome))));
    }
    files.push((format!("{name}.svg"), chart::svg(&outcome.panels)?));
    let write = |(file, text): (String, String)| {
        let path = folder.join(file);
        fs::write(&path, text).map(|()| path.clone()).map_err(|e| format!("{}: {e}", path.display()))
    };
    files.into_iter().map(write).collect()
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
pub(super) fn print_json(name: &str, outcome: &Outcome, files: &[PathBuf]) -> io::Result<()> {
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
        "runs": outcome.runs,
        "of": outcome.of,
        "goals": goals.collect::<Vec<_>>(),
        "paper": paper.collect::<Vec<_>>(),
        "notes": outcome.notes,
        "files": files,
    }});
    writeln!(out, "{summary}")
}

/// Tables, goals, the paper's figures and notes.
pub(super) fn print_text(outcome: &Outcome) -> io::Result<()> {
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
