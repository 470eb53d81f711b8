//! `softnic share` as administrators and scripts use it. What needs root and `ip` says on stderr that it was left out without them.

#[path = "common/namespaces.rs"]
mod namespaces;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use namespaces::Namespaces;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const SOFTNIC: &str = env!("CARGO_BIN_EXE_softnic");
/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(60);
/// Without any privileges, as nobody.
const NOBODY: [&str; 8] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
    "--no-new-privs",
    "--",
];

/// A namespace with an interface `e`, whose other end is `f`.
struct Space(Namespaces);

impl Space {
    fn new() -> Option<Space> {
        let commands = [
            "link add name e netns @n type veth peer name f netns @n",
            "-n @n address add 10.78.1.1/24 dev e",
            "-n @n link set lo up",
            "-n @n link set e up",
            "-n @n link set f up",
        ];
        Namespaces::new(&["n"], &commands).map(Space)
    }

    /// A program in the namespace, behind what its privileges are taken from.
    fn program(&self, wrapper: &[&str], program: &str) -> Command {
        match wrapper {
            [] => self.0.inside("n", program),
            [first, rest @ ..] => {
                let mut command = self.0.inside("n", first);
                command.args(rest).arg(program);
                command
            }
        }
    }

    fn command(&self, wrapper: &[&str], arguments: &[&str]) -> Command {
        let mut command = self.program(wrapper, SOFTNIC);
        command.args(arguments);
        command
    }

    fn run(&self, wrapper: &[&str], arguments: &[&str]) -> Output {
        self.command(wrapper, arguments).output().expect("softnic runs")
    }

    /// The daemon, once it serves, and what it said.
    fn share(&self, more: &[&str], notify: Option<&str>) -> (Running, String) {
        let mut command = self.command(&[], &[&["share", "--dev", "afxdp:e"], more].concat());
        command.envs(notify.map(|socket| ("NOTIFY_SOCKET", socket)));
        let mut child = command.stderr(Stdio::piped()).spawn().expect("softnic runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a line");
        (Running { child, stderr }, line)
    }
}

/// Ends with the test.
struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    /// Asks it to end; what it said, and whether it went well.
    fn end(mut self, signal: Signal) -> (bool, String) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it runs");
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("text");
        (self.child.wait().expect("a child").success(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_wrong_argument_is_told_apart_from_an_interface_that_is_not_there() {
    for (arguments, why) in [
        (&["--dev", "mem"][..], "only an interface can be shared: afxdp:IF"),
        (&["--dev", "afxdp:"], "which interface? Write afxdp:INTERFACE"),
        (&["--dev", "afxdp:lo", "--mode", "0777"], "at most 0666"),
        (&["--dev", "afxdp:lo", "--mode", "rw"], "is no mode"),
        (&["--dev", "afxdp:lo", "--group", "no-such-group"], "groupadd --system no-such-group"),
        (&["--dev", "afxdp:lo", "--rate", "fast"], "'fast'"),
        (&["--dev", "afxdp:lo", "--queues", "17"], "17"),
        (&["--dev", "afxdp:nosuch0", "--list"], "nobody shares nosuch0: start `softnic share --dev afxdp:nosuch0`"),
    ] {
        let output = Command::new(SOFTNIC).arg("share").args(arguments).output().expect("softnic runs");
        assert!(!output.status.success() && said(&output).contains(why), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn an_interface_is_shared_listed_found_by_run_and_given_back() {
    let Some(space) = Space::new() else { return };
    let refused = space.run(&NOBODY, &["share", "--dev", "afxdp:e"]);
    assert!(said(&refused).contains("not permitted to"), "{}", said(&refused));
    let folder = std::env::temp_dir().join(format!("softnic-notify-{}", std::process::id()));
    let systemd = UnixDatagram::bind(&folder).expect("a socket");
    systemd.set_read_timeout(Some(LIMIT)).expect("a limit");
    let heard = || {
        let mut buffer = [0; 64];
        let len = systemd.recv(&mut buffer).expect("something is said");
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    let (daemon, line) = space.share(&["--queue-pairs", "7"], folder.to_str());
    assert_eq!(line, "softnic: sharing afxdp:e (native XDP); clients say --dev shared:e\n");
    assert_eq!(heard(), "READY=1");
    let listed = |wrapper: &[&str]| {
        let output = space.run(wrapper, &["share", "--dev", "afxdp:e", "--list", "--json"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect::<Vec<Value>>()
    };
    let clients = listed(&NOBODY);
    assert_eq!((clients.len(), &clients[0]["pid"]), (2, &daemon.child.id().into()), "its own alone, and {clients:?}");
    // A program without privileges, and without --dev.
    let folder_of_program =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("share-{}", std::process::id()));
    std::fs::create_dir_all(&folder_of_program).expect("a folder");
    let program = folder_of_program.join("softnic");
    // A link: a copy that is written while another test forks is "busy" in its child, and cannot be started.
    std::fs::hard_link(SOFTNIC, &program).expect("a link");
    let library = folder_of_program.join("libsoftnic_verbs.so");
    std::fs::write(library, "stands in for a library that reads SOFTNIC_DEV").expect("a file");
    let run = |wrapper: &[&str], words: &[&str]| {
        let program = program.to_str().expect("UTF-8");
        space.program(wrapper, program).arg("run").args(words).output().expect("softnic runs")
    };
    let exclusive = run(&[], &["--dev", "afxdp:e", "--", "true"]);
    let run = run(&NOBODY, &["--", "sh", "-c", "echo $SOFTNIC_DEV"]);
    std::fs::remove_dir_all(folder_of_program).expect("ours");
    assert_eq!(String::from_utf8_lossy(&run.stdout), "shared:e\n", "{}", said(&run));
    assert!(said(&run).contains("softnic: on shared:e: an interface that `softnic share` serves"), "{}", said(&run));
    let info = space.run(&NOBODY, &["devinfo", "--dev", "shared:e", "--json"]);
    let info: Value = serde_json::from_slice(&info.stdout).expect("an object");
    assert_eq!((&info["device"], &info["clients"]), (&"shared:e".into(), &1.into()), "{info}");
    assert!(said(&exclusive).contains("e is shared by `softnic share`: say shared:e"), "{}", said(&exclusive));
    let table = space.run(&[], &["share", "--dev", "afxdp:e", "--list"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.lines().count() == 3 && table.contains("tx_denied") && table.ends_with("packets for nobody: 0\n"));
    let (well, rest) = daemon.end(Signal::SIGTERM);
    assert_eq!((well, rest.as_str()), (true, "softnic: e is not shared any more\n"));
    assert_eq!(heard(), "STOPPING=1");
    let gone = space.run(&[], &["share", "--dev", "afxdp:e", "--list"]);
    assert!(said(&gone).contains("nobody shares e"), "{}", said(&gone));
    std::fs::remove_file(folder).expect("ours");
}

#[test]
fn an_interface_that_goes_ends_the_daemon_with_an_error() {
    let Some(space) = Space::new() else { return };
    let (mut daemon, line) = space.share(&[], None);
    assert!(line.contains("sharing afxdp:e"), "{line}");
    space.0.ip("-n @n link delete e").expect("it was there");
    let mut rest = String::new();
    daemon.stderr.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "softnic: the interface e is gone\n");
    assert!(!daemon.child.wait().expect("a child").success());
}
