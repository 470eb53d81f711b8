//! `softnic check`: a verbs program on softnic, and what it does wrong by the rules of verbs.

mod elf;
pub(crate) mod findings;
pub(crate) mod junit;
mod sarif;
mod suppressions;
pub(crate) mod symbols;
pub(crate) mod text;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use softnic_check::Severity;
use softnic_perf::say;

use crate::Common;
use crate::run::{NOT_STARTED, Ran, Setup, launch, writable};
use findings::Findings;
use suppressions::Suppressions;
use symbols::Symbols;

/// When the program succeeded, and there are findings.
const FAILED_BY_FINDINGS: u8 = 121;

/// Run a verbs program on softnic, and find what it does wrong by the rules of verbs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic check -- ./my_test                                       # on softnic run's usual device
  softnic check --dev mem -- ./my_test                             # softnic0 and softnic1, joined in memory
  softnic check --severity warning --junit check.xml -- ./my_test  # for CI: warnings fail, too
  softnic check --suppress check.supp -- ./my_test

docs/check.md has all kinds of findings. They are told on stderr when the program has ended; with --json as the last line of stdout. A
file of suppressions has a line KIND:PATTERN for each, as in `leak:libucs.so*`; * is anything. The exit code is that of the program, or
121 when that is 0 and there is a finding of --severity or worse, or the program used no verbs; 125 to 127 as of softnic run.")]
pub(crate) struct Args {
    /// The least severe findings that make the exit code 121: error, warning or note. All are told
    #[arg(long, value_name = "SEVERITY", default_value = "error")]
    severity: String,
    /// Leave out the findings that a line of FILE is for
    #[arg(long, value_name = "FILE")]
    suppress: Vec<PathBuf>,
    /// Write a report as SARIF 2.1.0, which code forges and editors show at the lines of the program
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Write a report as JUnit XML, which CI servers show: a test for each kind
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    setup: Setup,
    /// The program and what it is given, after --
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Tells the library where findings go.
const CHECK: &str = "SOFTNIC_CHECK";

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    match check(args, common) {
        Ok(code) => Ok(code),
        Err(e) => {
            say!("softnic: {e}");
            Ok(ExitCode::from(NOT_STARTED))
        }
    }
}

fn check(args: &Args, common: &Common) -> Result<ExitCode, String> {
    // Everything is looked at before the program starts.
    let least = Severity::named(&args.severity)
        .ok_or_else(|| format!("--severity: `{}` is none: error, warning or note", args.severity))?;
    let mut suppressions = Suppressions::read(&args.suppress)?;
    let report = |what, file: &Option<PathBuf>| file.as_deref().map(|file| writable(what, file)).transpose();
    let (sarif, junit) = (report("SARIF report", &args.sarif)?, report("JUnit report", &args.junit)?);
    let tell = |folder: &crate::run::PrivateFolder, command: &mut std::process::Command| {
        command.env(CHECK, folder.make_findings()?);
        Ok(())
    };
    let Ran { code, folder, used_verbs } = launch(&args.setup, &args.program, common.seed, tell)?;
    let Some(program) = code.program else { return Ok(code.ours) };
    let all = Findings::read(&folder.findings(), &mut Symbols::default())
        .map_err(|e| format!("cannot read the findings: {e}"))?;
    let (found, suppressed) = suppressions.split(all);
    let name = Path::new(&args.program[0]).display().to_string();
    // Findings are told with the reports, so that one that cannot be written hides none.
    let counts = found.counts();
    let no_verbs = used_verbs == Some(false);
    match common.json {
        true => {
            let all = json!({
                "program": name, "exit_code": program, "used_verbs": used_verbs, "findings": found.json(), "suppressed": suppressed,
                "unused_suppressions": suppressions.unused().collect::<Vec<_>>(), "errors": counts.errors,
                "warnings": counts.warnings, "notes": counts.notes, "unreadable": found.unreadable, "lost": found.are_lost
            });
            // Nobody may be there to read it.
            let _ = writeln!(io::stdout(), "{all}");
        }
        false => {
            // Where nothing was checked, that nothing was found says nothing.
            if !no_verbs {
                let _ = io::stderr().write_all(text::of(&found, suppressed).as_bytes());
            }
            for line in suppressions.unused() {
                say!("softnic: no finding was for the suppression {line}");
            }
        }
    }
    if no_verbs {
        say!(
            "softnic: {name} ended ({program}) and never asked softnic's libibverbs for a device: nothing was checked (it used no verbs, or \
             it is setuid or statically linked)"
        );
    }
    let fails = no_verbs || found.are_incomplete() || found.all.iter().any(|finding| finding.severity <= least);
    let write = |what: &str, file: &Option<PathBuf>, report: &dyn Fn() -> String| match file {
        Some(file) => fs::write(file, report()).map_err(|e| format!("cannot write the {what} {}: {e}", file.display())),
        None => Ok(()),
    };
    write("SARIF report", &sarif, &|| sarif::of(&found, &name))?;
    write("JUnit report", &junit, &|| junit::of(&found, &name, program, no_verbs, least))?;
    match program == 0 && fails {
        true => Ok(ExitCode::from(FAILED_BY_FINDINGS)),
        false => Ok(code.ours),
    }
}
