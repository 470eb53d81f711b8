//! `softnic race` between two ends: over AF_XDP on a veth pair between namespaces, and without a server. What needs root and `ip` says on stderr that it
//! was left out without them.

#[path = "common/namespaces.rs"]
mod namespaces;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use namespaces::Namespaces;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn race(spaces: &Namespaces, side: &str, arguments: &[&str]) -> Command {
    let mut command = spaces.inside(side, env!("CARGO_BIN_EXE_softnic"));
    command.args(["race", "--dev", "afxdp:e"]).args(arguments);
    command
}

#[test]
fn a_server_in_another_namespace_serves_all_runs_of_a_race_and_says_once_that_it_waits() {
    let commands = [
        "link add name e netns @a type veth peer name e netns @b",
        "-n @a address add 10.79.1.1/24 dev e",
        "-n @b address add 10.79.1.2/24 dev e",
        "-n @a link set e up",
        "-n @b link set e up",
    ];
    let Some(spaces) = Namespaces::new(&["a", "b"], &commands) else { return };
    let mut server = race(&spaces, "b", &["--server"]).stderr(Stdio::piped()).spawn().expect("softnic runs");
    let mut said = BufReader::new(server.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert_eq!(line, "waiting for clients at TCP port 18515, until Ctrl-C\n");
    let out = std::env::temp_dir().join(format!("softnic-race-{}", std::process::id()));
    let grid = ["--loss", "0,1e-2", "--transports", "rc,sr", "--seeds", "1", "--duration", "200ms", "--out"];
    let asked = [&["--connect", "10.79.1.2"], &grid[..], &[out.to_str().expect("UTF-8")]].concat();
    let client = race(&spaces, "a", &asked).output().expect("softnic runs");
    kill(Pid::from_raw(server.id() as i32), Signal::SIGINT).expect("it runs");
    let ended = server.wait().expect("a child");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(client.status.success(), "{}; {rest}", String::from_utf8_lossy(&client.stderr));
    let rows = fs::read_to_string(out.join("race-wire.csv")).expect("figures");
    fs::remove_dir_all(out).expect("ours");
    assert_eq!(rows.lines().count(), 5, "a row for each transport and loss: {rows}");
    assert!(
        rows.lines()
            .skip(1)
            .all(|row| row.split(',').nth(8).is_some_and(|gbps| gbps.parse::<f64>().is_ok_and(|gbps| gbps > 0.0))),
        "{rows}"
    );
    assert_eq!((ended.success(), rest.as_str()), (true, ""));
}

#[test]
fn where_nobody_serves_the_command_to_start_is_the_one_that_asks() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port().to_string();
    drop(listener);
    let mut perf = Command::new(env!("CARGO_BIN_EXE_softnic"));
    perf.args(["perf", "write_bw", "--dev", "shm:nobody", "--connect", "127.0.0.1", "--port", &port]);
    let why = perf.output().expect("softnic runs").stderr;
    let words = format!("nobody listens at 127.0.0.1:{port}: start the same command with --server there first");
    assert!(String::from_utf8_lossy(&why).contains(&words), "{}", String::from_utf8_lossy(&why));
}
