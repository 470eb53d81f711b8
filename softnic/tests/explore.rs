//! `softnic explore` over C programs of verbs/tests/c with a mistake that only a fault shows. Left out where there is no C compiler, no headers
//! of libibverbs, or no library beside the program (`cargo build`).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

const SOFTNIC: &str = env!("CARGO_BIN_EXE_softnic");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../verbs/tests/c");

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder of a test. Its name is short: sockets of networks lie in it.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn left_out(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: {why}");
}

impl Place {
    /// With this program of verbs/tests/c as `x`; `None` where it cannot be run.
    fn with(program: &str) -> Option<Place> {
        let library = Path::new(SOFTNIC).with_file_name("libsoftnic_verbs.so");
        if !library.exists() {
            left_out(&format!("there is no {}", library.display()));
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = Place(std::env::temp_dir().join(format!("sn-explore-{}-{number}", std::process::id())));
        fs::create_dir_all(place.0.join("tmp")).expect("a folder");
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-O1", "-g", "-pthread", "-o"]).arg(place.0.join("x"));
        gcc.arg(format!("{SOURCES}/{program}.c")).arg("-libverbs");
        match gcc.output() {
            Ok(output) if output.status.success() => Some(place),
            Ok(output) => {
                left_out(&format!("it does not compile: {}", String::from_utf8_lossy(&output.stderr)));
                None
            }
            Err(e) => {
                left_out(&format!("gcc: {e}"));
                None
            }
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(SOFTNIC);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SOFTNIC_")) {
            command.env_remove(name);
        }
        command.current_dir(&self.0).env("TMPDIR", self.0.join("tmp")).stdin(Stdio::null());
        command.arg("explore").args(words);
        command
    }

    fn explore(&self, words: &[&str]) -> Ran {
        let ran = Ran::of(self.command(words).output().expect("softnic runs"));
        assert_eq!(fs::read_dir(self.0.join("tmp")).expect("a folder").count(), 0, "nothing is left behind: {ran:?}");
        ran
    }

    /// The faults of the journal with their outcomes, in its order.
    fn journal(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.0.join("explore-results/explore.jsonl")).unwrap_or_default();
        let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let entries = values.filter_map(|v| Some((v["fault"].as_str()?.to_owned(), v["outcome"].as_str()?.to_owned())));
        entries.collect()
    }

    fn kept(&self, name: &str) -> String {
        let path = self.0.join("explore-results/failures/1").join(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What is wrong here is said in one line.
    fn is_refused(&self, line: &str) {
        assert_eq!(self.code, Some(125), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(self.err.starts_with("softnic: ") && self.err.contains(line), "{line}: {self:?}");
        assert_eq!(self.out, "", "{self:?}");
    }
}

#[test]
fn memory_that_nobody_looked_at_is_found_and_shown_again() {
    let Some(place) = Place::with("planted_region_unchecked") else { return };
    let ran = place.explore(&["--dev", "mem", "--only", "* of reg_mr *", "--junit", "e.xml", "--", "./x"]);
    assert_eq!(ran.code, Some(120), "{ran:?}");
    assert!(ran.out.contains("x: ENOMEM of reg_mr 3\n  crash, 3 of 3 times: SIGSEGV"), "{ran:?}");
    let journal = place.journal();
    let crashed: Vec<&str> = journal.iter().filter(|(_, o)| o == "crash").map(|(fault, _)| fault.as_str()).collect();
    assert!(crashed.iter().all(|fault| fault.ends_with("of reg_mr 3")), "the others are looked at: {crashed:?}");
    let xml = fs::read_to_string(place.0.join("e.xml")).unwrap();
    assert!(xml.contains("<failure message=\"crash: SIGSEGV\">"), "{xml}");
    let script = place.kept("script.toml");
    assert!(script.contains("process = \"x\"") && script.contains("verb = \"reg_mr\""), "{script}");
    assert!(place.kept("README").contains("--replay explore-results/failures/1"));
    // By hand, as the file says.
    let command = place.kept("command").replacen("softnic run", &format!("{SOFTNIC} run"), 1);
    let status = Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(139), "{command}");
    let again = place.explore(&["--replay", "explore-results/failures/1"]);
    assert_eq!(again.code, Some(120), "{again:?}");
    assert!(again.out.contains("it fails as before: crash: SIGSEGV"), "{again:?}");
    let all = place.explore(&["--replay", "explore-results", "--json"]);
    let value: Value = serde_json::from_str(all.out.lines().last().unwrap()).unwrap();
    assert_eq!(value["replayed"][0]["before"], "crash", "{value}");
}

#[test]
fn an_error_behind_which_the_program_waits_for_ever_is_found_with_the_place() {
    let Some(place) = Place::with("planted_waits_for_ever") else { return };
    let only = "*RETRY_EXC_ERR of completion 1 of sends*";
    let ran = place.explore(&["--dev", "mem", "--only", only, "--limit", "1500ms", "--", "./x"]);
    assert_eq!(ran.code, Some(120), "{ran:?}");
    assert!(
        ran.out.contains("x: RETRY_EXC_ERR of completion 1 of sends of queue pair #1\n  hang, 3 of 3 times"),
        "{ran:?}"
    );
    assert!(place.kept("stderr").contains("work request 0 failed"));
    assert!(place.kept("stacks.txt").contains(": ./x"), "{}", place.kept("stacks.txt"));
}

#[test]
fn a_status_that_nobody_looked_at_is_found() {
    let Some(place) = Place::with("planted_status_ignored") else { return };
    let only = "*RETRY_EXC_ERR of completion*";
    let ran = place.explore(&["--dev", "mem", "--only", only, "--", "./x"]);
    assert_eq!(ran.code, Some(120), "{ran:?}");
    assert!(ran.out.contains("x: RETRY_EXC_ERR of completion 1 of sends"), "{ran:?}");
    assert!(ran.out.contains("ignored, 3 of 3 times"), "{ran:?}");
}

#[test]
fn losses_are_mended_and_a_run_goes_on_where_it_ended() {
    let Some(place) = Place::with("planted_status_ignored") else { return };
    let first = place.explore(&["--dev", "mem", "--only", "*loss of*psn +0 *", "--", "./x"]);
    assert_eq!((first.code, first.out.contains("no failures")), (Some(0), true), "{first:?}");
    let before = place.journal();
    assert!(!before.is_empty() && before.iter().all(|(_, outcome)| outcome == "same"), "{before:?}");
    place
        .explore(&["--dev", "mem", "--faults", "loss", "--", "./x"])
        .is_refused("explore-results is there already: choose another --out, or go on with it by --resume");
    let other = place.explore(&["--resume", "--dev", "mem", "--", "./x", "again"]);
    other.is_refused("--resume: explore-results is of another TEST: ./x, in ");
    place.explore(&["--resume", "--", "./x"]).is_refused("--resume: --dev is not as it was");
    let more = place.explore(&["--resume", "--dev", "mem", "--faults", "loss,corrupt", "--json", "--", "./x"]);
    assert_eq!(more.code, Some(0), "{more:?}");
    let after = place.journal();
    assert_eq!(after[..before.len()], before[..]);
    assert!(after.len() > before.len());
    let names: std::collections::BTreeSet<&String> = after.iter().map(|(fault, _)| fault).collect();
    assert_eq!(names.len(), after.len(), "nothing is run twice");
    let value: Value = serde_json::from_str(more.out.lines().last().unwrap()).unwrap();
    assert_eq!((value["runs"].as_u64(), value["not_run"].as_u64()), (Some(after.len() as u64), Some(0)), "{value}");
}

#[test]
fn what_is_there_stays_when_it_is_interrupted() {
    let Some(place) = Place::with("planted_status_ignored") else { return };
    let mut command = place.command(&["--dev", "mem", "--faults", "loss,dup,corrupt,delay", "--", "./x"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("softnic runs");
    let begin = Instant::now();
    while place.journal().len() < 3 {
        assert!(begin.elapsed() < Duration::from_secs(60), "no run ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    let ran = Ran::of(child.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.out.contains("interrupted: no failures") && ran.out.contains("not run"), "{ran:?}");
    assert!(place.journal().len() >= 3);
    assert_eq!(fs::read_dir(place.0.join("tmp")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_test_that_cannot_be_explored_is_refused_in_one_line() {
    let Some(place) = Place::with("planted_status_ignored") else { return };
    let mem = |words: &[&str]| place.explore(&[&["--dev", "mem", "--faults", "loss"], words].concat());
    mem(&["--", "true"]).is_refused("true ended (0) and never called a verb");
    mem(&["--", "/no/such/program"]).is_refused("cannot run /no/such/program: not found");
    mem(&["--", "sh", "-c", "./x; echo it is broken >&2; exit 3"])
        .is_refused("sh fails without faults: exit code 3; its last line on stderr: it is broken");
    mem(&["--", "sh", "-c", "./x; echo >> count; exit $(($(wc -l < count) == 2))"])
        .is_refused("sh ends otherwise in 1 of 3 runs without faults: exit code 0, exit code 1, exit code 0");
    mem(&["--limit", "500ms", "--", "sh", "-c", "./x; sleep 1000"])
        .is_refused("sh does not end within 0.5 s without faults");
    mem(&["--budget", "1ms", "--", "./x"]).is_refused("--budget 1 ms is too short");
    mem(&["--judge", "false", "--", "./x"]).is_refused("--judge: ./x fails 3 of 3 runs without faults");
    mem(&["--only", "nothing", "--", "./x"]).is_refused("no fault of this kind");
    mem(&["--resume", "--", "./x"]).is_refused("--resume: cannot read explore-results/explore.jsonl");
    mem(&["--out", "/proc/x", "--", "./x"]).is_refused("cannot write /proc/x");
    place.explore(&["--faults", "rain", "--", "./x"]).is_refused("--faults: there is no `rain`");
    place.explore(&["--replay", "."]).is_refused("--replay: there is no failure in .");
    place.explore(&["--dev", "nonsense:", "--", "./x"]).is_refused("nonsense");
    assert!(!place.0.join("explore-results").exists());
}

#[test]
fn what_differs_from_run_to_run_is_told_and_left_out() {
    let Some(place) = Place::with("planted_status_ignored") else { return };
    let script = "./x; date +%N; ./x; sleep 1000 > /dev/null 2>&1 & exit 0";
    let ran = place.explore(&["--dev", "mem", "--only", "*#1: loss of * psn +0 *", "--", "sh", "-c", script]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for line in [
        "numbers in the output differ from run to run: they are not compared",
        "sh leaves 1 process running in 3 of 3 runs, also without faults: they are killed",
        "2 processes, ",
    ] {
        assert!(ran.err.contains(line), "{line}: {ran:?}");
    }
    let journal = place.journal();
    assert!(!journal.is_empty() && journal.iter().all(|(fault, _)| fault.starts_with("x #1: ")), "{journal:?}");
}

#[test]
fn a_full_disk_is_told_and_what_is_there_stays() {
    let Some(place) = Place::with("planted_status_ignored") else { return };
    fs::create_dir(place.0.join("small")).unwrap();
    // The journal's first line fits, and soon no more.
    let script = format!(
        "mount -t tmpfs -o size=4k none small || exit 77; {SOFTNIC} explore --dev mem --faults loss,dup,corrupt --out small/r -- ./x; \
         code=$?; tail -n +2 small/r/explore.jsonl | head -1; exit $code"
    );
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script]).current_dir(&place.0).env("TMPDIR", place.0.join("tmp"));
    let ran = match command.output() {
        Ok(output) if output.status.code() != Some(77) => Ran::of(output),
        _ => return left_out("no mount namespaces here"),
    };
    assert_eq!(ran.code, Some(125), "{ran:?}");
    let line =
        "softnic: cannot write small/r/explore.jsonl: No space left on device (os error 28); what is there stays";
    assert!(ran.err.lines().last().is_some_and(|last| last.starts_with(line)), "{ran:?}");
    assert!(ran.out.contains("\"outcome\":\"same\""), "{ran:?}");
}
