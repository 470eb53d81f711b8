//! `cargo xtask fuzz`: every fuzz target in turn, and a table of what each did.
//!
//! The targets are built as `cargo fuzz` builds them, without that program: a nightly compiler is all that is needed.

mod target;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use softnic_conformance::project;
use softnic_conformance::steps::{Outcome, command, shell_with, succeeds};

use target::{Ran, Target};

/// The folder of inputs that were found: it is kept between runs.
const FOUND: &str = "target/fuzz-corpus";
/// Where an input goes that a target does not survive.
const ARTIFACTS: &str = "fuzz/artifacts";
/// Minutes of a run that names none.
const MINUTES: u64 = 15;
/// What libFuzzer needs of the compiler: counters at every edge, comparisons, the address sanitizer, and every assertion.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Cdebug-assertions=on -Ccodegen-units=1";

/// Which targets run, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Minutes of the whole run, divided evenly among the targets
    #[arg(long, value_name = "N", default_value_t = MINUTES, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: u64,
    /// Run one input through one target, instead of looking for new ones
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Only these targets
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// Runs the targets; the error is the line that says which failed.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let names = chosen(&options.targets)?;
    let folder = build()?;
    if let Some(input) = &options.input {
        let [name] = &names[..] else { return Err("an input is for one target: name it".into()) };
        return replay(&folder.join(name), input);
    }
    let each = Duration::from_secs(options.minutes * 60) / names.len() as u32;
    match in_turn(&folder, &names, each)? {
        failed if failed.is_empty() => Ok(()),
        failed => Err(format!("{} of {} fuzz targets failed: {}", failed.len(), names.len(), failed.join(", "))),
    }
}

/// The layer of `cargo xtask test --all`: a minute for each target.
pub(crate) fn run_as_layer() -> Outcome {
    if !succeeds(&["rustup", "run", "nightly", "cargo", "--version"]) {
        return Outcome::LeftOut("no nightly toolchain".into());
    }
    let run = || {
        let names = chosen(&[])?;
        let failed = in_turn(&build()?, &names, Duration::from_secs(60))?;
        Ok((names.len(), failed))
    };
    match run() {
        Ok((all, failed)) if failed.is_empty() => Outcome::Passed(format!("{all} targets")),
        Ok((_, failed)) => Outcome::Failed(failed.join(", ")),
        Err(why) => Outcome::Failed(why),
    }
}

/// The targets by their names, or all.
fn chosen(asked: &[String]) -> Result<Vec<String>, String> {
    let manifest = project::root().join("fuzz/Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let all = listed(&text);
    if let Some(unknown) = asked.iter().find(|&name| !all.contains(name)) {
        return Err(format!("no fuzz target is called `{unknown}`; there are: {}", all.join(", ")));
    }
    Ok(if asked.is_empty() { all } else { asked.to_vec() })
}

/// The programs of a manifest, in its order.
fn listed(manifest: &str) -> Vec<String> {
    let sections = manifest.split("[[bin]]").skip(1);
    let name = |section: &str| Some(section.split_once("name = \"")?.1.split_once('"')?.0.to_owned());
    sections.filter_map(name).collect()
}

/// Builds all targets; the folder that they are in.
fn build() -> Result<PathBuf, String> {
    let nightly = command(&["rustup", "run", "nightly", "rustc", "-vV"]).output();
    let version = nightly.ok().filter(|out| out.status.success()).map(|out| out.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("fuzzing needs a nightly toolchain: `rustup toolchain install nightly`")?;
    // With a triple named, flags are not for build scripts. A folder of its own: the flags are for every crate.
    let words = ["build", "--manifest-path", "fuzz/Cargo.toml", "--release", "--bins", "--target", host];
    let words = [&["rustup", "run", "nightly", "cargo"][..], &words].concat();
    match shell_with(&words, &[("RUSTFLAGS", FLAGS), ("CARGO_TARGET_DIR", "fuzz/target")]) {
        Outcome::Failed(why) => Err(why),
        _ => Ok(project::root().join("fuzz/target").join(host).join("release")),
    }
}

/// One input, as often as it takes to see what is wrong: once.
fn replay(program: &Path, input: &Path) -> Result<(), String> {
    let status = std::process::Command::new(program).arg(input).status();
    match status.map_err(|e| format!("{}: {e}", program.display()))? {
        status if status.success() => Ok(()),
        status => Err(format!("{} is not survived: {status}", input.display())),
    }
}

/// Runs the targets one after the other and prints the table; those that failed.
fn in_turn(programs: &Path, names: &[String], each: Duration) -> Result<Vec<String>, String> {
    let mut rows: Vec<(&str, Ran)> = Vec::new();
    for (n, name) in names.iter().enumerate() {
        println!("== {name} ({} of {}), {} s", n + 1, names.len(), each.as_secs());
        let target = Target {
            program: programs.join(name),
            found: project::root().join(FOUND).join(name),
            kept: project::root().join("fuzz/corpus").join(name),
            artifacts: project::root().join(ARTIFACTS).join(name),
        };
        let ran = target.run(each)?;
        for input in &ran.crashes {
            let input = input.strip_prefix(project::root()).unwrap_or(input);
            println!("FAILED; again: cargo xtask fuzz {name} --input {}", input.display());
        }
        rows.push((name, ran));
    }
    println!("{}", table(&rows));
    Ok(rows.iter().filter(|(_, ran)| !ran.passed()).map(|(name, _)| (*name).to_owned()).collect())
}

fn table(rows: &[(&str, Ran)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("target".len());
    let mut out = format!("\n{:width$}   executions   new corpus   crashes", "target");
    for (name, ran) in rows {
        let crashes = match ran.crashes.len() {
            0 if !ran.passed() => "FAILED".to_owned(),
            n => n.to_string(),
        };
        out += &format!("\n{name:width$}  {:>11}  {:>11}  {crashes:>8}", ran.executions, ran.new_inputs);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_of_the_manifest_has_its_source_and_is_run() {
        let names = chosen(&[]).unwrap();
        for name in &names {
            assert!(project::root().join("fuzz/fuzz_targets").join(format!("{name}.rs")).exists(), "{name}");
        }
        let sources = fs::read_dir(project::root().join("fuzz/fuzz_targets")).unwrap().count();
        assert_eq!(names.len(), sources);
        assert_eq!(chosen(&["nic".into()]).unwrap(), ["nic"]);
        assert!(chosen(&["nik".into()]).unwrap_err().contains("`nik`; there are: frame, "));
    }

    #[test]
    fn the_table_says_of_each_target_what_it_ran_found_and_did_not_survive() {
        let crashed = Ran { executions: 7, new_inputs: 0, crashes: vec!["crash-1".into()], ended_well: false };
        let killed = Ran { crashes: Vec::new(), ..crashed.clone() };
        let good = Ran { executions: 1_234_567, new_inputs: 12, crashes: Vec::new(), ended_well: true };
        let rows = [("frame", good), ("nic", crashed), ("cm", killed)];
        let table = table(&rows);
        let lines: Vec<_> = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[0], ["target", "executions", "new", "corpus", "crashes"]);
        assert_eq!(lines[1..], [["frame", "1234567", "12", "0"], ["nic", "7", "0", "1"], ["cm", "7", "0", "FAILED"]]);
    }
}
