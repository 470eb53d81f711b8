//! A C program that calls verbs as any program does: compiled here, and run by `softnic run`, with a backup and without.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("program.c");
const HEADER: &str = include_str!("../../../../verbs/include/softnicdv.h");

/// The program, in a folder of its own.
pub(super) struct Program(PathBuf);

/// What a run printed: figures by their names.
pub(super) type Printed = BTreeMap<String, Vec<f64>>;

impl Program {
    /// Compiles it.
    pub(super) fn compile(experiment: &str) -> Result<Program, String> {
        let folder = std::env::temp_dir().join(format!("softnic-{experiment}-{}", std::process::id()));
        let written = fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("program.c"), SOURCE))
            .and_then(|()| fs::write(folder.join("softnicdv.h"), HEADER));
        let program = Program(folder);
        written.map_err(|e| format!("{}: {e}: choose another folder with TMPDIR", program.0.display()))?;
        let needs = format!(
            "{experiment} compiles a program: install a C compiler and the headers of libibverbs (Debian: apt install gcc libibverbs-dev)"
        );
        let cc = Command::new("cc")
            .current_dir(&program.0)
            .args(["-std=gnu11", "-O2", "-pthread", "-o", "program", "program.c", "-libverbs", "-ldl"])
            .output()
            .map_err(|e| format!("cc: {e}: {needs}"))?;
        match cc.status.success() {
            true => Ok(program),
            false => Err(format!("{}{needs}", String::from_utf8_lossy(&cc.stderr))),
        }
    }

    /// Runs it on two devices on wires in memory.
    pub(super) fn run(&self, backup: bool, args: &[&str]) -> Result<Printed, String> {
        let softnic = std::env::current_exe().map_err(|e| format!("cannot tell where this program lies: {e}"))?;
        let mut command = Command::new(softnic);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SOFTNIC_")) {
            // What programs are told elsewhere is not for this one.
            command.env_remove(name);
        }
        command.args(["run", "--dev", "mem"]).args(if backup { &["--backup", "mem"][..] } else { &[] });
        command.arg("--").arg(self.0.join("program")).args(args).stdin(Stdio::null());
        let out = command.output().map_err(|e| format!("cannot run the program: {e}"))?;
        if !out.status.success() {
            return Err(format!("the program ended with {}: {}", out.status, String::from_utf8_lossy(&out.stderr)));
        }
        parse(&String::from_utf8_lossy(&out.stdout))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parse(text: &str) -> Result<Printed, String> {
    let mut printed = Printed::new();
    for line in text.lines() {
        let figure = line.rsplit_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?)));
        let (name, value) = figure.ok_or_else(|| format!("the program printed `{line}`"))?;
        printed.entry(name.into()).or_default().push(value);
    }
    Ok(printed)
}

/// The one that a quarter of them lies below: what else the machine does is in the others.
pub(super) fn lower_quartile(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 4).copied()
}

/// The middle one; the mean of the two in the middle where there is none.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().saturating_sub(1) / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names_of_several_words() {
        let printed = parse("reg_mr 12\nmodify_qp RTR 3.5\nreg_mr 14\n").unwrap();
        assert_eq!(
            (printed["reg_mr"].as_slice(), printed["modify_qp RTR"].as_slice()),
            (&[12.0, 14.0][..], &[3.5][..])
        );
        assert!(parse("reg_mr\n").is_err());
    }

    #[test]
    fn a_median_is_in_the_middle_and_a_quartile_below() {
        assert_eq!(lower_quartile(vec![5.0, 2.0, 1.0, 9.0]), Some(2.0));
        assert_eq!(
            (median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 2.0, 3.0]), median(vec![])),
            (Some(2.0), Some(2.5), None)
        );
    }
}
