//! `softnic run` and `softnic install` as people and scripts use them; a file stands in for the library, which no program here loads.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(60);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A program with a library beside it, and a folder for temporary files of its own.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn bare() -> Place {
        let name = format!("run-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let place = Place(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        fs::create_dir_all(place.0.join("bin")).expect("a folder");
        fs::create_dir_all(place.temporary()).expect("a folder");
        let program = place.0.join("bin/softnic");
        // A link: a copy that is written while another test forks is "busy" in its child, and cannot be started.
        fs::hard_link(env!("CARGO_BIN_EXE_softnic"), &program).expect("a link");
        place
    }

    fn new() -> Place {
        let place = Place::bare();
        fs::write(place.library(), "stands in for a library that reads SOFTNIC_DEV").expect("a file");
        place
    }

    fn library(&self) -> PathBuf {
        self.0.join("bin/libsoftnic_verbs.so")
    }

    fn temporary(&self) -> PathBuf {
        self.0.join("tmp")
    }

    fn softnic(&self, args: &[&str]) -> Command {
        // Whoever runs the tests may ignore signals (nohup, a shell's `&`), which programs inherit.
        let mut command = Command::new("env");
        command
            .arg("--default-signal")
            .arg(self.0.join("bin/softnic"))
            .args(args)
            .env("TMPDIR", self.temporary())
            .env_remove("LD_LIBRARY_PATH")
            .current_dir(&self.0);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SOFTNIC_")) {
            command.env_remove(name);
        }
        command
    }

    /// `softnic run`, then these words.
    fn run(&self, args: &[&str]) -> Output {
        self.softnic(&["run"]).args(args).output().expect("softnic runs")
    }

    /// What a shell prints under `softnic run --dev mem` and these options.
    fn shell(&self, options: &[&str], script: &str) -> String {
        let out = self.run(&[&["--dev", "mem"], options, &["--", "sh", "-c", script]].concat());
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).expect("UTF-8").trim().into()
    }

    /// The exit code and the only line of an error.
    fn refusal(&self, args: &[&str]) -> (Option<i32>, String) {
        let out = self.run(args);
        let text = String::from_utf8(out.stderr).expect("UTF-8");
        assert!(
            out.stdout.is_empty() && text.lines().count() == 1 && text.starts_with("softnic: "),
            "{args:?}: {text}"
        );
        self.is_clean();
        (out.status.code(), text)
    }

    /// A program that runs, after it said `ready`.
    fn started(&self, script: &str) -> Child {
        let mut command = self.softnic(&["run", "--dev", "mem", "--", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("softnic runs");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("it was asked for");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "ready");
        child
    }

    fn left_behind(&self) -> usize {
        fs::read_dir(self.temporary()).expect("a folder").count()
    }

    fn is_clean(&self) {
        assert_eq!(self.left_behind(), 0, "nothing is left behind");
    }
}

fn send(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    let begin = Instant::now();
    loop {
        match child.try_wait().expect("a child") {
            Some(status) => return status,
            None if begin.elapsed() > LIMIT => panic!("it does not end"),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn the_library_is_found_first_under_all_its_names_by_this_program_alone() {
    let place = Place::new();
    let script = "d=${LD_LIBRARY_PATH%%:*}; stat -c %a $d; cd $d && cat libibverbs.so.1 librdmacm.so.1 libibverbs.so librdmacm.so";
    let text = place.shell(&[], script);
    let content = fs::read_to_string(place.library()).unwrap();
    assert_eq!(text, format!("700\n{}", content.repeat(4)));
    place.is_clean();
    let mut command = place.softnic(&["run", "--dev", "mem", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"]);
    let out = command.env("LD_LIBRARY_PATH", "/before:/it").output().unwrap();
    let path = String::from_utf8(out.stdout).unwrap();
    assert!(path.starts_with(place.temporary().to_str().unwrap()) && path.trim().ends_with(":/before:/it"), "{path}");
}

/// ld.so says that it cannot load what stands in for libraries here, and goes on.
#[test]
fn what_is_preloaded_comes_after_what_others_want() {
    let place = Place::new();
    let variables = |place: &Place| {
        let script = "echo $LD_PRELOAD; echo $ASAN_OPTIONS; cat $(echo $LD_PRELOAD | tr : ' ') 2> /dev/null";
        let mut command = place.softnic(&["run", "--dev", "mem", "--", "sh", "-c", script]);
        let out = command.env("LD_PRELOAD", "/no/other.so").env("ASAN_OPTIONS", "detect_leaks=0").output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(variables(&place), "/no/other.so\ndetect_leaks=0\n", "without it all is as it was");
    fs::write(place.0.join("bin/libsoftnic_preload.so"), "stands in for it").unwrap();
    let text = variables(&place);
    let (preloaded, rest) = text.split_once('\n').unwrap();
    assert!(preloaded.starts_with(&format!("/no/other.so:{}/", place.temporary().display())), "{preloaded}");
    let verbs = fs::read_to_string(place.library()).unwrap();
    assert_eq!(rest, format!("verify_asan_link_order=0:detect_leaks=0\nstands in for it{verbs}"));
    place.is_clean();
    let folder = place.0.join("lib");
    assert!(place.softnic(&["install", folder.to_str().unwrap()]).status().unwrap().success());
    assert_eq!(fs::read_to_string(folder.join("libsoftnic_preload.so")).unwrap(), "stands in for it");
}

#[test]
fn an_installed_program_has_its_library_in_lib() {
    let place = Place::new();
    fs::create_dir(place.0.join("lib")).unwrap();
    fs::rename(place.library(), place.0.join("lib/libsoftnic_verbs.so")).unwrap();
    assert!(place.shell(&[], "cat $LD_LIBRARY_PATH/libibverbs.so.1").starts_with("stands in"));
}

#[test]
fn options_reach_the_library_by_the_environment_and_win_over_it() {
    let place = Place::new();
    let script = "echo $SOFTNIC_DEV/$SOFTNIC_FAULT/$SOFTNIC_TRANSPORT/$SOFTNIC_CC/$SOFTNIC_CPUS/$SOFTNIC_SEED; echo $SOFTNIC_PCAP";
    let options = [
        "--fault",
        "loss=1e-3",
        "--transport",
        "rc",
        "--cc",
        "dcqcn:f=3",
        "--cpu",
        "0",
        "--seed",
        "7",
        "--pcap",
        "a.pcap",
    ];
    let whole = place.0.join("a.pcap");
    assert_eq!(place.shell(&options, script), format!("mem/loss=1e-3/rc/dcqcn:f=3/0/7\n{}", whole.display()));
    assert!(!whole.exists(), "it is the library's to make");
    let dgram = "dgram:x,y,ip=10.0.0.1/24";
    assert_eq!(place.shell(&["--dev", dgram], "echo \"$SOFTNIC_DEV\""), format!("mem;{dgram}"));
    let with = |args: &[&str]| {
        let mut command =
            place.softnic(&[&["run"], args, &["--", "sh", "-c", "echo $SOFTNIC_DEV/$SOFTNIC_FAULT"]].concat());
        let out = command.env("SOFTNIC_DEV", dgram).env("SOFTNIC_FAULT", "dup=0.1").output().unwrap();
        String::from_utf8(out.stdout).unwrap().trim().to_string()
    };
    assert_eq!(with(&[]), format!("{dgram}/dup=0.1"));
    assert_eq!(with(&["--dev", "mem", "--fault", "loss=0.1"]), "mem/loss=0.1");
}

#[test]
fn a_key_file_reaches_the_library_by_its_whole_name_and_is_looked_at_before() {
    let place = Place::new();
    let file = place.0.join("key");
    fs::write(&file, [7; 32]).unwrap();
    let script = "echo $SOFTNIC_KEY_FILE";
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let (code, text) = place.refusal(&["--dev", "mem", "--auth", "key", "--", "true"]);
    assert!(code == Some(125) && text.contains("--auth: others may use the key file key (mode 640)"), "{text}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(place.shell(&["--auth", "key"], script), file.display().to_string());
    let (code, text) = place.refusal(&["--dev", "mem", "--auth", "no-such-key", "--", "true"]);
    assert!(code == Some(125) && text.contains("cannot read the key file no-such-key"), "{text}");
}

#[test]
fn scripts_of_faults_reach_the_library_by_their_whole_names() {
    let place = Place::new();
    let file = place.0.join("drop.toml");
    fs::write(&file, "[[event]]\naction = \"drop\"\nnth = 3\n").unwrap();
    let args = ["--dev", "mem", "--backup", "mem", "--fault", "loss=0.1,@drop.toml", "--backup-fault", "@drop.toml"];
    let whole = file.display();
    let told = place.shell(&args, "cd / && echo $SOFTNIC_FAULT $SOFTNIC_BACKUP_FAULT");
    assert_eq!(told, format!("loss=0.1,@{whole} @{whole}"));
}

#[test]
fn a_program_that_never_asks_for_a_device_is_named() {
    let place = Place::new();
    let said = |script: &str| {
        let out = place.run(&["--dev", "mem", "--", "sh", "-c", script]);
        (out.status.code(), String::from_utf8(out.stderr).expect("UTF-8"))
    };
    let (code, text) = said("exit 3");
    assert_eq!(code, Some(3));
    assert!(
        text.contains("sh ended (3) and never asked softnic's libibverbs for a device") && text.contains("setuid"),
        "{text}"
    );
    // Any of its processes may do so: the library opens its folder then, and may leave files there.
    let script = "ls $SOFTNIC_FILES && mkdir -p $SOFTNIC_FILES/a/b && echo > $SOFTNIC_FILES/a/c";
    assert_eq!(said(script), (Some(0), String::new()));
    place.is_clean();
}

#[test]
fn the_exit_code_is_the_programs() {
    let place = Place::new();
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -SEGV $$", 139)] {
        assert_eq!(place.run(&["--dev", "mem", "--", "sh", "-c", script]).status.code(), Some(code), "{script}");
        place.is_clean();
    }
    // Without the two dashes, too.
    assert!(place.run(&["--dev", "mem", "true"]).status.success());
}

#[test]
fn a_program_that_cannot_be_run_is_named() {
    let place = Place::new();
    let (code, text) = place.refusal(&["--dev", "mem", "--", "no-such-program"]);
    assert!(code == Some(127) && text.contains("no-such-program: not found"), "{text}");
    let plain = place.0.join("plain");
    fs::write(&plain, "x").unwrap();
    let (code, text) = place.refusal(&["--dev", "mem", "--", plain.to_str().unwrap()]);
    assert!(code == Some(126) && text.contains("plain"), "{text}");
}

#[test]
fn a_full_or_closed_stderr_stops_nothing() {
    let place = Place::new();
    for stderr in ["2>/dev/full", "2>&-"] {
        let program = place.0.join("bin/softnic");
        let line = format!("exec {} run -- echo ran {stderr}", program.display());
        let mut command = Command::new("sh");
        let out =
            command.args(["-c", &line]).env("TMPDIR", place.temporary()).env("XDG_RUNTIME_DIR", &place.0).output();
        let out = out.expect("softnic runs");
        assert_eq!((out.status.code(), &out.stdout[..]), (Some(0), &b"ran\n"[..]), "{stderr}");
    }
}

#[test]
fn mistakes_are_told_before_the_program_starts() {
    let place = Place::new();
    for (options, words) in [
        (&["--dev", "eth9/1"][..], &["eth9/1", "afxdp:INTERFACE"][..]),
        (&["--dev", "eth9"], &["there is no interface eth9"]),
        (&["--dev", "afxdp:no-such-if"], &["no-such-if"]),
        (&["--dev", "dgram:x,y"], &["ip=10.0.0.1/24"]),
        (&["--dev", "dgram:127.0.0.1:5000,127.0.0.1:5001"], &["127.0.0.1:5000", "UNIX sockets"]),
        (&["--dev", "dgram:x,y,ip=10.0.0.1", "--dev", "dgram:x,y,ip=10.0.0.1"], &["twice"]),
        (&["--dev", "mem;mem"], &["`;`"]),
        (&["--dev", "mem", "--fault", "loss=2"], &["--fault", "loss"]),
        (&["--dev", "mem", "--fault", "rx.loss=0.1"], &["--fault", "rx."]),
        (&["--dev", "dgram:x,y,ip=10.0.0.1", "--fault", "ab.loss=0.1"], &["--fault", "ab."]),
        (
            &["--dev", "mem", "--transport", "xq"],
            &["--transport", "there is no transport `xq`", "rc, sr[:PACKETS], lowar[:R,C]"],
        ),
        (&["--dev", "mem", "--transport", "lowar:8,9"], &["`8,9` are no blocks of lowar", "32,1"]),
        (&["--dev", "mem", "--transport", "sr:3"], &["`3`", "from 64 to"]),
        (&["--dev", "mem", "--transport", "ud"], &["ud is no transport of RC queue pairs", "the program itself"]),
        (&["--dev", "mem", "--transport", "tcp"], &["`tcp`", "rc", "sr"]),
        (&["--dev", "mem", "--cc", "swift:base=0"], &["--cc", "base of swift", "from 1us to 1s"]),
        (&["--dev", "mem", "--cc", "reno"], &["--cc", "'reno'", "dcqcn"]),
        (&["--dev", "mem", "--cpu", "0,x"], &["0,x", "numbers"]),
        (&["--dev", "mem", "--cpu", "99999"], &["core 99999"]),
        (
            &["--dev", "mem", "--pcap", "no/such/folder/a.pcap"],
            &["cannot write the capture no/such/folder/a.pcap: No such"],
        ),
    ] {
        let (code, text) = place.refusal(&[options, &["--", "sh", "-c", "echo started"]].concat());
        assert_eq!(code, Some(125), "{text}");
        for word in words {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

#[test]
fn without_a_library_it_says_how_to_build_one() {
    let place = Place::bare();
    let (code, text) = place.refusal(&["--dev", "mem", "true"]);
    assert!(code == Some(125) && text.contains("cargo build --release -p softnic-verbs"), "{text}");
}

#[test]
fn signals_go_on_to_the_program_and_the_folder_is_removed() {
    let place = Place::new();
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10)] {
        let script = format!("trap 'exit 40' {signal}; echo ready; while :; do sleep 0.02; done");
        let mut child = place.started(&script);
        assert_eq!(place.left_behind(), 1);
        send(signal, child.id());
        assert_eq!(wait(&mut child).code(), Some(40), "{signal}");
        place.is_clean();
        // One that has no handler.
        let mut child = place.started("echo ready; exec sleep 1000");
        send(signal, child.id());
        assert_eq!(wait(&mut child).code(), Some(128 + number), "{signal}");
        place.is_clean();
    }
}

#[test]
fn when_it_is_killed_the_program_goes_too_and_the_next_run_clears_up() {
    let place = Place::new();
    let mut other = place.started("echo ready; exec sleep 1000");
    let mut child = place.started("echo ready; echo $$; exec sleep 1000");
    send("KILL", child.id());
    assert_eq!(wait(&mut child).signal(), Some(9));
    // The program's end closes its output.
    let mut rest = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().expect("it was asked for"), &mut rest).unwrap();
    assert_eq!(place.left_behind(), 2);
    assert_eq!(place.shell(&[], "ls $TMPDIR | wc -l"), "2", "that of the killed run is gone, the other two are there");
    assert_eq!(place.left_behind(), 1);
    send("TERM", other.id());
    assert_eq!(wait(&mut other).code(), Some(143));
    place.is_clean();
}

#[test]
fn the_program_has_the_signal_mask_that_we_had() {
    let place = Place::new();
    assert_eq!(place.shell(&[], "grep SigBlk /proc/self/status | tr -d '[:space:]'"), "SigBlk:0000000000000000");
}

/// Runs `softnic run -- true` in a network namespace that has been prepared.
fn in_namespace(place: &Place, commands: &[&str]) -> Option<(Option<i32>, String)> {
    let script = commands.iter().fold(String::from("set -e; ip link set lo up; "), |all, c| all + c + "; ");
    // Like a program that uses the library.
    let program = "ls $SOFTNIC_FILES; echo $SOFTNIC_DEV";
    let script = format!("{script} exec {} run -- sh -c '{program}'", place.0.join("bin/softnic").display());
    let out = Command::new("unshare").args(["-n", "sh", "-c", &script]).env_remove("SOFTNIC_DEV").output();
    match out {
        Ok(out) if !String::from_utf8_lossy(&out.stderr).starts_with("unshare") => {
            let text = [out.stdout, out.stderr].concat();
            Some((out.status.code(), String::from_utf8_lossy(&text).trim().to_string()))
        }
        _ => {
            left_out();
            None
        }
    }
}

fn left_out() {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: no network namespace without root");
}

#[test]
fn without_a_device_the_only_interface_is_taken_and_else_memory_that_processes_share() {
    let place = Place::new();
    let Some((code, text)) = in_namespace(&place, &[]) else { return };
    let is_shm = |code, text: &str| code == Some(0) && text.starts_with("shm\n") && text.contains("softnic: on shm: ");
    assert!(is_shm(code, &text) && text.contains("no interface is up"), "{text}");
    let veth = "ip link add e0 type veth peer name e1; ip link set e0 up; ip link set e1 up; ip address add 10.9.0.1/24 dev e0";
    let settled = "while ! ip link show e0 | grep -q 'state UP'; do sleep 0.01; done";
    let (code, text) = in_namespace(&place, &[veth, settled]).expect("as before");
    assert!(code == Some(0) && text.starts_with("afxdp:e0\nsoftnic: on afxdp:e0: "), "{text}");
    let (code, text) = in_namespace(&place, &[veth, settled, "ip address add 10.9.0.2/24 dev e1"]).expect("as before");
    assert!(is_shm(code, &text) && text.contains("--dev afxdp:e0, afxdp:e1"), "{text}");
    let (code, text) = in_namespace(&place, &[veth, settled, "ip link set e0 down"]).expect("as before");
    assert!(is_shm(code, &text), "{text}");
}

#[test]
fn without_privileges_the_capability_is_named() {
    let place = Place::new();
    if !Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|made| made.success()) {
        return left_out();
    }
    let veth = "ip link add e0 type veth peer name e1 && ip link set e0 up && ip link set e1 up && ip address add 10.9.0.1/24 dev e0";
    let program = place.0.join("bin/softnic");
    let run =
        format!("setpriv --bounding-set=-all --inh-caps=-all {} run --dev afxdp:e0 -- echo started", program.display());
    let out =
        Command::new("unshare").args(["-n", "sh", "-c", &format!("{veth} && {run}")]).output().expect("unshare runs");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.stdout.is_empty(), "it does not start: {text}");
    assert_eq!((out.status.code(), text.contains("CAP_NET_ADMIN")), (Some(125), true), "{text}");
}

#[test]
fn install_lays_down_all_names_and_spares_what_is_not_ours() {
    let place = Place::new();
    let install = |args: &[&str]| place.softnic(&["install"]).args(args).output().expect("softnic runs");
    let folder = place.0.join("a folder/lib");
    let name = folder.to_str().unwrap();
    for _again in 0..2 {
        let out = install(&[name]);
        assert!(out.status.success(), "{out:?}");
        let line = String::from_utf8(out.stdout).unwrap();
        let value = Command::new("sh")
            .args(["-c", &format!("unset LD_LIBRARY_PATH; {line} echo \"$LD_LIBRARY_PATH\"")])
            .output();
        assert_eq!(String::from_utf8(value.unwrap().stdout).unwrap().trim(), name);
    }
    let content = fs::read_to_string(place.library()).unwrap();
    assert_eq!(fs::read_to_string(folder.join("libibverbs.so.1")).unwrap(), content);
    for name in ["librdmacm.so.1", "libibverbs.so", "librdmacm.so"] {
        assert_eq!(fs::read_link(folder.join(name)).unwrap().to_str(), Some("libibverbs.so.1"), "{name}");
    }
    assert!(fs::symlink_metadata(folder.join("libibverbs.so.1")).unwrap().is_file());
    for (name, call) in [("softnicdv.h", "softnicdv_is_supported"), ("softnic_sdr.h", "softnic_sdr_qp_create")] {
        let header = fs::read_to_string(folder.join("include/infiniband").join(name)).unwrap();
        assert!(header.contains(call), "{name}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 5, "nothing else is left there");

    let theirs = place.0.join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("librdmacm.so.1.3"), "another library").unwrap();
    std::os::unix::fs::symlink("librdmacm.so.1.3", theirs.join("librdmacm.so.1")).unwrap();
    let out = install(&[theirs.to_str().unwrap()]);
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("--force"), "{out:?}");
    assert!(!theirs.join("libibverbs.so.1").exists());
    assert!(install(&[theirs.to_str().unwrap(), "--force"]).status.success());
    assert_eq!(fs::read_to_string(theirs.join("librdmacm.so.1.3")).unwrap(), "another library");
    assert_eq!(fs::read_to_string(theirs.join("librdmacm.so.1")).unwrap(), content);
    let mode = fs::metadata(theirs.join("libibverbs.so.1")).unwrap().permissions().mode();
    assert_eq!(mode & 0o400, 0o400);
}

#[test]
fn a_level_of_the_log_that_there_is_not_is_refused_before_the_program_starts() {
    let place = Place::new();
    let mut command = place.softnic(&["run", "--dev", "mem", "--", "echo", "started"]);
    let out = command.env("SOFTNIC_LOG", "loud").output().expect("softnic runs");
    let said = String::from_utf8(out.stderr).expect("UTF-8");
    assert_eq!((out.status.code(), out.stdout.len()), (Some(125), 0), "{said}");
    assert!(said.starts_with("softnic: SOFTNIC_LOG: `loud` is no level") && said.lines().count() == 1, "{said}");
}
