//! What a program prints, compared as far as it is the same in every run without faults.

use std::collections::BTreeMap;

/// How much of the output is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// All of it.
    Exact(String),
    /// All but its numbers.
    Masked(String),
    /// These lines as often as they come and no others, in any order, with their numbers or without: of several processes.
    AnyOrder {
        /// The lines.
        lines: BTreeMap<String, usize>,
        /// Whether numbers are left out.
        masked: bool,
    },
    /// These lines without their numbers, as often as they come; others are not looked at.
    Lines(BTreeMap<String, usize>),
    /// Nothing: no line is in every run.
    Nothing,
}

impl Expected {
    /// From what runs without faults printed, so many processes together: which of several is the first to print is a matter of time.
    pub fn of(outputs: &[String], processes: usize) -> Expected {
        let Some(first) = outputs.first() else { return Expected::Nothing };
        let all: Vec<String> = outputs.iter().map(|output| masked(output)).collect();
        if processes > 1 {
            for (texts, masked) in [(outputs, false), (&all[..], true)] {
                let lines = counted(&texts[0]);
                if texts.iter().all(|text| counted(text) == lines) {
                    return Expected::AnyOrder { lines, masked };
                }
            }
        }
        if outputs.iter().all(|output| output == first) {
            return Expected::Exact(first.clone());
        }
        if all.iter().all(|output| *output == all[0]) {
            return Expected::Masked(all[0].clone());
        }
        let mut lines = counted(&all[0]);
        for counts in all[1..].iter().map(|output| counted(output)) {
            lines.retain(|line, count| counts.get(line) == Some(count));
        }
        lines.remove("");
        if lines.is_empty() { Expected::Nothing } else { Expected::Lines(lines) }
    }

    /// Whether an output is as expected; else the first line that is not.
    pub fn compare(&self, output: &str) -> Result<(), String> {
        let first_difference = |expected: &str, got: &str| {
            let mut got = got.lines();
            for line in expected.lines() {
                match got.next() {
                    Some(other) if other == line => {}
                    Some(other) => return format!("it prints `{other}` instead of `{line}`"),
                    None => return format!("it does not print `{line}`"),
                }
            }
            got.next().map_or("its output ends otherwise".into(), |more| format!("it prints `{more}`, too"))
        };
        match self {
            Expected::Nothing => Ok(()),
            Expected::Exact(text) if text == output => Ok(()),
            Expected::Exact(text) => Err(first_difference(text, output)),
            Expected::Masked(text) => match masked(output) {
                got if got == *text => Ok(()),
                got => Err(first_difference(text, &got)),
            },
            Expected::Lines(lines) => compare_lines(lines, &counted(&masked(output))),
            Expected::AnyOrder { lines, masked: is_masked } => {
                let got = if *is_masked { counted(&masked(output)) } else { counted(output) };
                compare_lines(lines, &got)?;
                match got.keys().find(|line| !lines.contains_key(*line)) {
                    None => Ok(()),
                    Some(more) => Err(format!("it prints `{more}`, too")),
                }
            }
        }
    }

    /// What is left out of the comparison, to tell; `None` if nothing is.
    pub fn leaves_out(&self) -> Option<&'static str> {
        match self {
            Expected::Exact(_) | Expected::AnyOrder { masked: false, .. } => None,
            Expected::Masked(_) | Expected::AnyOrder { masked: true, .. } => {
                Some("numbers in the output differ from run to run: they are not compared")
            }
            Expected::Lines(_) => Some("lines of the output differ from run to run: these are not compared"),
            Expected::Nothing => Some("the output differs from run to run in every line: it is not compared"),
        }
    }
}

/// Whether lines come as often as they must.
fn compare_lines(lines: &BTreeMap<String, usize>, got: &BTreeMap<String, usize>) -> Result<(), String> {
    match lines.iter().find(|(line, count)| got.get(*line) != Some(count)) {
        None => Ok(()),
        Some((line, count)) => {
            let times = got.get(line).copied().unwrap_or(0);
            Err(format!("it prints `{line}` {times} times instead of {count}"))
        }
    }
}

/// A text with `#` for each number, also for those in hexadecimal, and with one space for several, or for tabs, and none at the end of a line:
/// columns follow the numbers, and so do the lines that are drawn under them.
fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let hex = rest.strip_prefix("0x").map(|digits| digits.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
        if let Some(behind) = hex.filter(|behind| behind.len() + 2 < rest.len()) {
            out.push('#');
            rest = behind;
        } else if c.is_ascii_digit() {
            out.push('#');
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        } else if is_blank(c) {
            rest = rest.trim_start_matches(is_blank);
            if !rest.is_empty() && !rest.starts_with('\n') {
                out.push(' ');
            }
        } else if matches!(c, '-' | '=') {
            out.push(c);
            rest = rest.trim_start_matches(c);
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn counted(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    text.lines().for_each(|line| *counts.entry(line.to_owned()).or_default() += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(outputs: &[&str]) -> Expected {
        of_processes(outputs, 1)
    }

    fn of_processes(outputs: &[&str], processes: usize) -> Expected {
        Expected::of(&outputs.iter().map(ToString::to_string).collect::<Vec<_>>(), processes)
    }

    #[test]
    fn several_processes_print_in_any_order() {
        for outputs in [["a 1\nb\n", "b\na 1\n"], ["a 1\nb\n", "b\na 2\n"]] {
            let expected = of_processes(&outputs, 2);
            assert_eq!([expected.compare("a 1\nb\n"), expected.compare("b\na 1\n")], [Ok(()), Ok(())]);
            assert!(expected.compare("b\n").is_err());
            assert_eq!(expected.compare("a 1\nb\nc\n"), Err("it prints `c`, too".into()));
        }
        assert!(of_processes(&["a 1\nb\n", "b\na 1\n"], 2).compare("a 3\nb\n").is_err(), "they agree on the number");
        assert!(of(&["a\nb\n"; 2]).compare("b\na\n").is_err(), "a process of its own prints in order");
    }

    #[test]
    fn what_is_always_the_same_is_compared_as_it_is() {
        let expected = of(&["ok 1\n", "ok 1\n"]);
        assert_eq!(expected, Expected::Exact("ok 1\n".into()));
        assert_eq!(expected.compare("ok 1\n"), Ok(()));
        assert_eq!(expected.compare("ok 2\n"), Err("it prints `ok 2` instead of `ok 1`".into()));
        assert_eq!(expected.compare(""), Err("it does not print `ok 1`".into()));
        assert_eq!(expected.compare("ok 1\nmore\n"), Err("it prints `more`, too".into()));
        assert_eq!(expected.leaves_out(), None);
    }

    #[test]
    fn numbers_that_differ_are_left_out() {
        let expected = of(&["64  1.25 Gbit/s qp 0x11\n", "64 12.5 Gbit/s qp 0xfe\n"]);
        assert_eq!(expected, Expected::Masked("# # Gbit/s qp #\n".into()));
        assert_eq!(expected.compare("64 3 Gbit/s qp 0x12\n"), Ok(()));
        assert!(expected.compare("64 3 Gbit/s failed\n").is_err());
        assert_eq!(masked("0x ab1c"), "#x ab#c");
        assert_eq!(masked("-----+---\n"), masked("------+--\n"));
        assert_eq!(masked(" 10 \t 1.25\t\t7  \n"), masked(" 10\t123.25 \t7\n"), "of a table whose columns are wider");
    }

    #[test]
    fn lines_that_differ_are_left_out_and_nothing_may_be_left() {
        let expected = of(&["a\nx\ndone\ndone\n", "b\ndone\ndone\n"]);
        assert_eq!(expected.compare("c\ndone\ndone\n"), Ok(()));
        assert_eq!(expected.compare("c\ndone\n"), Err("it prints `done` 1 times instead of 2".into()));
        let nothing = of(&["a\n", "b\n"]);
        assert_eq!((&nothing, nothing.compare("c\n")), (&Expected::Nothing, Ok(())));
        assert!(nothing.leaves_out().is_some());
    }
}
