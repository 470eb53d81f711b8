//! `softnic run --summary` and `--fail-on`: a script stands in for the library, and writes the files that it would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A program with a library beside it.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(name: &str) -> Place {
        let place =
            Place(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("summary-{}-{name}", std::process::id())));
        fs::create_dir_all(place.0.join("tmp")).unwrap();
        // A link: a copy that is written while another test forks is "busy" in its child, and cannot be started.
        fs::hard_link(env!("CARGO_BIN_EXE_softnic"), place.0.join("softnic")).unwrap();
        fs::write(place.0.join("libsoftnic_verbs.so"), "stands in for a library that reads SOFTNIC_DEV").unwrap();
        place
    }

    /// `softnic run --dev mem`, these options, and a shell's script, which counts as one that uses verbs.
    fn run(&self, options: &[&str], script: &str) -> Output {
        let mut command = Command::new(self.0.join("softnic"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SOFTNIC_")) {
            command.env_remove(name);
        }
        let script = format!("ls $SOFTNIC_FILES; {script}");
        command.args(["run", "--dev", "mem"]).args(options).args(["--", "sh", "-c", &script]);
        let out = command.env("TMPDIR", self.0.join("tmp")).output().unwrap();
        assert_eq!(fs::read_dir(self.0.join("tmp")).unwrap().count(), 0, "nothing is left behind");
        out
    }
}

/// What the library writes of a NIC.
fn counts(pid: u32, device: &str, counters: &str) -> String {
    let line = format!(
        "{{\"device\":\"{device}\",\"pid\":{pid},\"description\":\"mem, end 1\",\"counters\":{{{counters},\"lost_frames\":0}}}}"
    );
    format!("echo '{line}' > $SOFTNIC_COUNTERS/{pid}-{device}; ")
}

fn two_processes() -> String {
    // The first one has ended before the second one begins.
    let first = counts(70, "softnic0", "\"sent_pkts\":100,\"retransmitted_packets\":2");
    let second = counts(71, "softnic0", "\"sent_pkts\":11,\"retransmitted_packets\":0");
    let other = counts(71, "softnic1", "\"sent_pkts\":5,\"retransmitted_packets\":1");
    format!("sh -c \"{}\"; {second}{other}", first.replace('"', "\\\"").replace('$', "\\$"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn counters_of_all_processes_are_added_and_printed_at_the_end() {
    let place = Place::new("all");
    let out = place.run(&["--summary"], &format!("{} echo of the program", two_processes()));
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), "of the program\n".into()));
    let expected = "softnic: softnic0 (mem, end 1), 2 processes
  retransmitted_packets    2
  sent_pkts              111
softnic: softnic1 (mem, end 1), 1 process
  retransmitted_packets  1
  sent_pkts              5
";
    assert_eq!(text(&out.stderr), expected);
    let out = place.run(&["--summary", "--json", "--fail-on", "sent_pkts>=116"], &two_processes());
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["devices"][0]["counters"]["sent_pkts"], 111);
    assert_eq!(json["devices"][0]["processes"].as_array().unwrap().len(), 2);
    assert_eq!(json["devices"][1]["counters"]["lost_frames"], 0);
    assert_eq!(json["failed"][0]["condition"], "sent_pkts>=116");
    assert_eq!((out.status.code(), &json["failed"][0]["value"]), (Some(122), &Value::from(116)));
}

#[test]
fn a_run_fails_on_its_counters_only_if_the_program_succeeds() {
    let place = Place::new("fails");
    let condition = ["--fail-on", "local_ack_timeout_err>0", "--fail-on", "retransmitted_packets>2"];
    let out = place.run(&condition, &two_processes());
    assert_eq!(out.status.code(), Some(122));
    assert_eq!(text(&out.stderr), "softnic: failed on retransmitted_packets>2: it is 3\n");
    let out = place.run(&condition, &format!("{} exit 7", two_processes()));
    assert_eq!(out.status.code(), Some(7), "the program's own");
    let out = place.run(&["--fail-on", "retransmitted_packets>3"], &two_processes());
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
}

#[test]
fn a_condition_is_checked_before_the_program_starts() {
    let place = Place::new("checked");
    for (condition, words) in [
        ("retransmitted_pakets>0", "retransmitted_packets"),
        ("sent_pkts", "compares nothing"),
        ("sent_pkts>many", "many"),
    ] {
        let out = place.run(&["--fail-on", condition], "echo started");
        let said = text(&out.stderr);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(125), 0), "{said}");
        assert!(
            said.starts_with("softnic: --fail-on: ") && said.contains(words) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn where_no_process_opened_a_device_the_summary_says_so_and_a_check_of_counters_fails() {
    let place = Place::new("none");
    let none = "softnic: no process opened a device\n";
    let out = place.run(&["--summary"], "true");
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), none.into()));
    let failed = "softnic: failed: --fail-on has no counters to check, because no process opened a device\n";
    let out = place.run(&["--fail-on", "sent_pkts>0"], "true");
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(122), failed.into()));
    let out = place.run(&["--summary", "--fail-on", "sent_pkts>0"], "exit 7");
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(7), format!("{none}{failed}")), "the program's own");
    let out = place.run(&["--summary", "--json", "--fail-on", "sent_pkts>0"], "true");
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), json["devices"].as_array().unwrap().len()), (Some(122), 0));
}
