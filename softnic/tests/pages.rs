//! `softnic completions`, `softnic man`, `--color` and the order of options in each help.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn softnic(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    let plain = ["NO_COLOR", "CLICOLOR_FORCE"];
    command.args(arguments).stdin(Stdio::null());
    plain.iter().for_each(|name| {
        command.env_remove(name);
    });
    command
}

fn stdout(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// Names of all commands, from the help.
fn subcommands() -> Vec<String> {
    let help = stdout(&mut softnic(&["--help"]));
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<String> = names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.len() > 10, "{names:?}");
    names.into_iter().filter(|name| name != "help").collect()
}

fn corpus() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../pcaps/corpus/loss_send_middle_nak.pcap").into()
}

#[test]
fn every_command_has_a_man_page() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man1");
    let _ = fs::remove_dir_all(&folder);
    let told = stdout(softnic(&["man", "--json"]).arg(&folder));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let names = subcommands();
    assert_eq!(told["pages"].as_array().unwrap().len(), names.len() + 1);
    for (page, what) in std::iter::once(("softnic.1".into(), "softnic".into()))
        .chain(names.iter().map(|name| (format!("softnic-{name}.1"), format!("softnic {name}"))))
    {
        let text = fs::read_to_string(folder.join(&page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        let synopsis = text.split("SYNOPSIS").nth(1).unwrap_or_else(|| panic!("{page} has no synopsis"));
        // roff writes a hyphen with a backslash.
        let synopsis = synopsis.replace("\\-", "-");
        assert!(text.contains(".TH ") && synopsis.contains(&what), "{page}: {synopsis}");
    }
    assert!(fs::read_to_string(folder.join("softnic-perf.1")).unwrap().contains("\\-\\-duration"));
}

/// Whether a shell reads a script without complaint; nothing where there is no such shell.
fn reads(shell: &str, check: &str, script: &str) -> Option<bool> {
    let child = Command::new(shell).arg(check).stdin(Stdio::piped()).spawn();
    let mut child = child.ok()?;
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    Some(child.wait().unwrap().success())
}

#[test]
fn completions_are_what_the_shells_read_and_know_every_command() {
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = stdout(&mut softnic(&["completions", shell]));
        for name in subcommands() {
            assert!(script.contains(&name), "{shell} does not know {name}");
        }
        match reads(shell, check, &script) {
            None if shell == "bash" => panic!("no bash"),
            None => eprintln!("no {shell} here: left out"),
            Some(well) => assert!(well, "{shell} cannot read its completions"),
        }
    }
}

/// What bash offers behind a line.
#[test]
fn bash_completes_commands_and_options() {
    let script = stdout(&mut softnic(&["completions", "bash"]));
    let offers = |words: &[&str]| {
        let last = words.len() - 1;
        let ask = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={last}; _softnic softnic '{}' '{}'; echo \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words[last],
            words[last - 1]
        );
        stdout(Command::new("bash").args(["--norc", "-c", &ask]))
    };
    assert_eq!(offers(&["softnic", "expe"]).trim(), "experiment");
    assert_eq!(offers(&["softnic", "sim", "--topo"]).trim(), "--topology");
    assert!(offers(&["softnic", "perf", "write"]).contains("write_bw"));
}

#[test]
fn colours_are_there_where_they_are_asked_for() {
    let corpus = corpus();
    let coloured = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = softnic(arguments);
        stdout(command.envs(variables.iter().copied())).contains('\u{1b}')
    };
    let inspect = ["inspect", corpus.as_str()];
    let with = |color: &'static str| ["--color", color, "inspect", corpus.as_str()];
    // Standard output is a pipe here.
    assert!(!coloured(&inspect, &[]));
    assert!(coloured(&with("always"), &[("NO_COLOR", "1")]));
    assert!(coloured(&inspect, &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&with("never"), &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&inspect, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(coloured(&["perf", "--help", "--color=always"], &[]) && !coloured(&["perf", "--help"], &[]));
}

/// Options of every command come last, under a heading of their own.
#[test]
fn the_options_of_every_command_stand_behind_its_own() {
    for name in subcommands() {
        let help = stdout(&mut softnic(&[&name, "--help"]));
        let (own, common) = help.split_once("Options of every command:").unwrap_or_else(|| panic!("{name}: {help}"));
        let common = common.split("Examples:").next().unwrap();
        for option in ["--json", "--seed", "--color"] {
            assert!(common.contains(option), "softnic {name}: {option}");
            assert!(
                !own.lines().any(|line| line.trim_start().starts_with(&format!("{option} "))),
                "softnic {name}: {option}"
            );
        }
    }
}
