//! The commands in README.md, docs/ and the examples of `--help`: each is run, or excepted with a reason and its options checked.

mod table;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{fs, io};

use softnic_conformance::steps::{Outcome, shell};
use softnic_conformance::{project, setup};
use table::{Content, EXCEPTIONS, EXIT_CODES, FILES, NOT_COMMANDS, PROGRAMS, SHORTER};

/// Seconds that a command may take; one that takes longer is for the table of exceptions.
const LIMIT: &str = "60";

/// A command, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    place: String,
    line: String,
}

/// What a line of a code block is.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Command(String),
    Other,
    /// It looks like a command of a program that nobody knows.
    Unknown,
}

/// A line without a prompt (`$`, `here$`, `softnic#`) and without the comment behind it; and whether it had a prompt.
fn strip(line: &str) -> (&str, bool) {
    let line = line.trim();
    let first = line.split_whitespace().next().unwrap_or("");
    let name = first.strip_suffix(['$', '#']);
    let prompt = name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric()));
    let line = if prompt { line[first.len()..].trim_start() } else { line };
    (line.find("  #").map_or(line, |at| line[..at].trim_end()), prompt)
}

/// What a line is; `begins` says that it is the first of its block.
fn classify(line: &str, begins: bool) -> Line {
    let (command, prompt) = strip(line);
    let word = command.split_whitespace().find(|word| !is_assignment(word)).unwrap_or("");
    let known = PROGRAMS.contains(&word) || word.ends_with("/softnic");
    if known && !command.contains(": ") {
        return Line::Command(command.to_owned());
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c);
    let looks = word.len() > 1 && word.chars().all(plain) && word.starts_with(|c: char| c.is_ascii_lowercase());
    let looks = looks && command.len() > word.len() && !NOT_COMMANDS.contains(&word);
    if prompt || begins && looks { Line::Unknown } else { Line::Other }
}

/// `NAME=value` before a command.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// The commands of a document: lines of its code blocks, indented or fenced with `sh` or `console`.
fn of_document(name: &str, text: &str) -> Result<Vec<Found>, String> {
    let mut found = Vec::new();
    let mut fence: Option<bool> = None;
    let (mut blank, mut in_block) = (true, false);
    for (n, line) in text.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(matches!(kind, "sh" | "console")) };
            (blank, in_block) = (true, false);
            continue;
        }
        let indented = line.starts_with("    ") && fence.is_none();
        let begins = indented && blank && !in_block;
        // Indented lines right behind text go on with it, as in lists.
        in_block = indented && (blank || in_block) || line.is_empty() && in_block;
        blank = line.is_empty() || line.starts_with('#') && fence.is_none();
        if blank || fence.is_none() && !in_block || fence == Some(false) {
            continue;
        }
        match classify(line, begins || fence.is_some()) {
            Line::Command(line) => found.push(Found { place: format!("{name}:{}", n + 1), line }),
            Line::Other => {}
            Line::Unknown => {
                let line = line.trim();
                return Err(format!("{name}:{}: `{line}` is neither a known command nor known as none", n + 1));
            }
        }
    }
    Ok(found)
}

/// README.md and docs/*.md.
fn documents() -> Result<Vec<Found>, String> {
    let docs = fs::read_dir(project::root().join("docs")).map_err(|e| format!("docs: {e}"))?;
    let mut names: Vec<String> = docs.filter_map(|e| Some(format!("docs/{}", e.ok()?.file_name().to_str()?))).collect();
    names.retain(|name| name.ends_with(".md"));
    names.sort();
    names.insert(0, "README.md".into());
    let mut found = Vec::new();
    for name in names {
        let text = fs::read_to_string(project::root().join(&name)).map_err(|e| format!("{name}: {e}"))?;
        found.extend(of_document(&name, &text)?);
    }
    Ok(found)
}

/// The examples in the help of a command line and of its subcommands.
fn of_help(program: &Path, name: &str) -> Result<Vec<Found>, String> {
    let help = |arguments: &[&str]| -> Result<String, String> {
        // In lines as long as they are.
        let out = Command::new(program).args(arguments).arg("--help").env("COLUMNS", "1000").output();
        let out = out.map_err(|e| format!("{}: {e}", program.display()))?;
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let top = help(&[])?;
    let listed = top.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names: Vec<&str> = listed.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").collect();
    if names.is_empty() {
        return Err(format!("{name} --help lists no commands"));
    }
    let mut found = Vec::new();
    for (place, text) in std::iter::once((format!("{name} --help"), Ok(top.clone())))
        .chain(names.iter().map(|sub| (format!("{name} {sub} --help"), help(&[sub]))))
    {
        let text = text?;
        let examples = text.lines().skip_while(|l| *l != "Examples:").skip(1).take_while(|l| !l.is_empty());
        for line in examples {
            match classify(line, true) {
                Line::Command(line) => found.push(Found { place: place.clone(), line }),
                _ => return Err(format!("{place}: `{}` is no known command", line.trim())),
            }
        }
    }
    Ok(found)
}

fn exception(line: &str) -> Option<&'static (&'static str, &'static str)> {
    EXCEPTIONS.iter().find(|(part, _)| line.contains(part))
}

/// The command as it is run.
fn shortened(line: &str) -> String {
    SHORTER.iter().fold(line.to_owned(), |line, (long, short)| line.replace(long, short))
}

/// The arguments by which `softnic` or `cargo xtask` is called in a command, if one of them is, up to those of another program.
fn own_arguments(line: &str) -> Option<(&'static str, Vec<String>)> {
    let line = shortened(line);
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "softnic" || w.ends_with("/softnic"));
    let (program, from) = match (at, words.windows(2).position(|w| w == ["cargo", "xtask"])) {
        (Some(at), _) => ("softnic", at + 1),
        (None, Some(at)) => ("xtask", at + 2),
        _ => return None,
    };
    let ends = |word: &&&str| !matches!(**word, "--" | "|" | "||" | "&&" | ">" | ";") && !word.ends_with(')');
    Some((program, words[from..].iter().take_while(ends).map(|w| w.trim_matches('\'').to_owned()).collect()))
}

/// The folder in which commands are run: the built program, and the files that they name.
struct Folder(PathBuf);

impl Folder {
    fn new(softnic: &Path) -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("softnic-commands-{}", std::process::id()));
        fs::create_dir_all(path.join("bin"))?;
        let folder = Folder(path);
        std::os::unix::fs::symlink(softnic, folder.0.join("bin/softnic"))?;
        for name in ["pcaps", "docs"] {
            std::os::unix::fs::symlink(project::root().join(name), folder.0.join(name))?;
        }
        for (name, content) in FILES {
            let bytes = match content {
                Content::Copy(from) => fs::read(project::root().join(from))?,
                Content::Text(text) => text.as_bytes().to_vec(),
                Content::Document(document, n) => {
                    let text = fs::read_to_string(project::root().join(document))?;
                    let block = text.split("```").nth(2 * n + 1).unwrap_or_default();
                    block.split_once('\n').map_or("", |(_, block)| block).as_bytes().to_vec()
                }
            };
            fs::write(folder.0.join(name), bytes)?;
            // A key that others can read is refused.
            fs::set_permissions(folder.0.join(name), fs::Permissions::from_mode(0o600))?;
        }
        Ok(folder)
    }

    /// Whether a command line takes these arguments: with `--help` behind them it reads them, and runs nothing.
    fn check_arguments(&self, program: &Path, arguments: &[String]) -> Result<(), String> {
        let mut command = Command::new(program);
        let out = command.args(arguments).arg("--help").current_dir(&self.0).stdin(Stdio::null()).output();
        let out = out.map_err(|e| format!("{}: {e}", program.display()))?;
        if out.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&out.stderr).lines().next().unwrap_or("it ended without a word").to_owned())
    }

    /// Runs a command, and says what went wrong.
    fn run(&self, line: &str) -> Result<(), String> {
        let path = std::env::var("PATH").unwrap_or_default();
        // With all that the command started, where it takes too long.
        let out = Command::new("timeout")
            .args([LIMIT, "bash", "-o", "pipefail", "-c", &format!("exec 2>&1; {}", shortened(line))])
            .current_dir(&self.0)
            .env("PATH", format!("{}:{path}", self.0.join("bin").display()))
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("timeout: {e}"))?;
        let expected = EXIT_CODES.iter().find(|(part, _)| line.contains(part)).map_or(0, |&(_, code)| code);
        match out.status.code() {
            Some(code) if code == expected => Ok(()),
            Some(124) => Err(format!("it takes more than {LIMIT} s")),
            _ => {
                let said = String::from_utf8_lossy(&out.stdout);
                Err(format!("{}: {}", out.status, said.lines().last().unwrap_or_default()))
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs all commands: a layer of tests.
pub(crate) fn run_as_layer() -> Outcome {
    if let Outcome::Failed(why) = shell(&["cargo", "build", "--locked", "-p", "softnic"]) {
        return Outcome::Failed(why);
    }
    match run_all(&project::root().join("target/debug/softnic")) {
        Ok(said) => Outcome::Passed(said),
        Err(why) => Outcome::Failed(why),
    }
}

fn run_all(softnic: &Path) -> Result<String, String> {
    // What runs now, by a name that stays: the layers before this one may have built it anew.
    let xtask = PathBuf::from("/proc/self/exe");
    let mut all = documents()?;
    all.extend(of_help(softnic, "softnic")?);
    all.extend(of_help(&xtask, "cargo xtask")?);
    let folder = Folder::new(softnic).map_err(|e| format!("a folder for the commands: {e}"))?;
    let (mut failed, mut seen) = (String::new(), BTreeSet::new());
    let has_jq = setup::is_installed("jq");
    let (mut run, mut excepted) = (0, 0);
    for Found { place, line } in &all {
        if !seen.insert(shortened(line)) {
            continue;
        }
        let begin = Instant::now();
        let result = match exception(line) {
            None => {
                run += 1;
                // Where it is not installed, what stands before it is run.
                let end = line.find("| jq").filter(|_| !has_jq).unwrap_or(line.len());
                folder.run(&line[..end])
            }
            Some(_) => {
                excepted += 1;
                match own_arguments(line) {
                    Some(("softnic", arguments)) => folder.check_arguments(softnic, &arguments),
                    Some((_, arguments)) => folder.check_arguments(&xtask, &arguments),
                    None => Ok(()),
                }
            }
        };
        let took = begin.elapsed().as_secs_f64();
        match result {
            Ok(()) if took > 2.0 => println!("{place}: {line}: {took:.1} s"),
            Ok(()) => {}
            Err(why) => {
                println!("{place}: `{line}` does not work: {why}");
                let _ = write!(failed, "{}{place}", if failed.is_empty() { "" } else { ", " });
            }
        }
    }
    let unused: Vec<&str> =
        EXCEPTIONS.iter().map(|e| e.0).filter(|part| !all.iter().any(|found| found.line.contains(part))).collect();
    if !unused.is_empty() {
        return Err(format!("exceptions that no command needs: {unused:?}"));
    }
    match failed.is_empty() {
        true => Ok(format!("{run} commands run, {excepted} excepted")),
        false => Err(format!("commands that do not work: {failed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<String> {
        of_document("a.md", text).unwrap().into_iter().map(|f| f.line).collect()
    }

    #[test]
    fn commands_are_found_in_code_blocks_and_nowhere_else() {
        let text = "# A heading\n    softnic devinfo\n\nText, and `softnic sim` in it:\n\n    here$  softnic perf --size 1K   # a comment\n    softnic sim\n\n    \
                    goodput 1 Gbit/s\n\n- a list\n    softnic goes on here\n\n```sh\nsoftnic inspect a.pcap\n```\n\n```toml\nsoftnic = 1\n```\n";
        assert_eq!(
            commands(text),
            ["softnic devinfo", "softnic perf --size 1K", "softnic sim", "softnic inspect a.pcap"]
        );
    }

    #[test]
    fn a_command_of_an_unknown_program_is_an_error() {
        for text in ["    frobnicate --now\n", "```sh\nfrobnicate --now\n```\n", "    softnic sim\n    $ frobnicate\n"]
        {
            assert!(of_document("a.md", text).unwrap_err().contains("frobnicate"), "{text}");
        }
    }

    #[test]
    fn every_command_of_the_documents_is_known() {
        let all = documents().unwrap();
        assert!(all.len() > 80, "{} commands", all.len());
        // What is neither excepted nor ours would run programs that this machine may not have.
        let strange =
            |f: &&Found| exception(&f.line).is_none() && own_arguments(&f.line).is_none_or(|a| a.0 != "softnic");
        let strange: Vec<&Found> = all.iter().filter(strange).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }

    #[test]
    fn the_arguments_of_our_own_programs_are_told_from_those_of_others() {
        let of = |line| own_arguments(line).map(|(program, words)| (program, words.join(" ")));
        let run = "sudo target/release/softnic run --dev afxdp:eth0 -- ibv_devinfo -v";
        assert_eq!(of(run), Some(("softnic", "run --dev afxdp:eth0".into())));
        assert_eq!(of("cargo run --release -- sim --size 1M"), Some(("softnic", "sim --size 1M".into())));
        assert_eq!(of("cargo xtask verbs --offsets > offsets.txt"), Some(("xtask", "verbs --offsets".into())));
        assert_eq!(of("ip link show"), None);
    }
}
