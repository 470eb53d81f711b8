//! A switch in a namespace of its own, and hosts around it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::namespaces::Namespaces;

/// Long enough for the slowest machine; no test that passes waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const SOFTNIC: &str = env!("CARGO_BIN_EXE_softnic");
/// Namespaces of hosts.
pub(crate) const HOSTS: [&str; 4] = ["a", "b", "c", "d"];

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A name in the folder for temporary files.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("softnic-switch-{}-{number}-{name}", std::process::id()))
}

/// Hosts `a` to `d`, each with an interface `e` whose other end is `p0` to `p3` in the namespace `m`.
pub(crate) struct Star(pub(crate) Namespaces);

impl Star {
    /// `more` are commands of `ip`: addresses and routes.
    pub(crate) fn new(mtu: u32, more: &[&str]) -> Option<Star> {
        let mut commands = Vec::new();
        for (i, host) in HOSTS.iter().enumerate() {
            let mac = format!("02:00:00:00:78:0{}", i + 1);
            commands.push(format!(
                "link add name e netns @{host} address {mac} mtu {mtu} type veth peer name p{i} netns @m mtu {mtu}"
            ));
            commands.push(format!("-n @m link set p{i} up"));
            commands.push(format!("-n @{host} link set lo up"));
            commands.push(format!("-n @{host} link set e up"));
        }
        commands.extend(more.iter().map(ToString::to_string));
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        Namespaces::new(&["m", "a", "b", "c", "d"], &commands).map(Star)
    }

    /// All hosts in one subnet.
    pub(crate) fn flat(mtu: u32) -> Option<Star> {
        let commands = HOSTS.iter().enumerate().flat_map(|(i, host)| {
            [
                format!("-n @{host} address add 10.78.0.{}/24 dev e", i + 1),
                format!("-n @{host} address add fd78::{}/64 dev e nodad", i + 1),
            ]
        });
        let commands: Vec<String> = commands.collect();
        Star::new(mtu, &commands.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A switch with a port for each host, once it forwards. The file has `before` above the ports, and `behind` behind them.
    pub(crate) fn switch(&self, before: &str, behind: &str, more: &[&str]) -> Running {
        let ports: String = (0..HOSTS.len()).map(|i| format!("[[port]]\ninterface = \"p{i}\"\n")).collect();
        self.switch_of(&format!("{before}\n{ports}{behind}\n"), more)
    }

    pub(crate) fn switch_of(&self, config: &str, more: &[&str]) -> Running {
        let file = scratch("sw.toml");
        std::fs::write(&file, config).expect("a file");
        let mut command = self.0.inside("m", SOFTNIC);
        command.args(["switch", "--config"]).arg(&file).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("softnic runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("softnic: switch: ") {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).expect("a line") > 0, "{said}");
            said += &line;
        }
        std::fs::remove_file(file).expect("it is there");
        Running { child, stderr, said }
    }

    /// Runs `work` in a thread that lives in a namespace.
    pub(crate) fn inside<T: Send>(&self, name: &str, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let namespace = File::open(format!("/run/netns/{}", self.0.name(name))).expect("it is there");
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("it is ours");
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Whether the interface of a port has a program, or takes in frames for others.
    pub(crate) fn taken(&self, port: usize) -> bool {
        let out =
            self.0.inside("m", "ip").args(["-details", "link", "show", &format!("p{port}")]).output().expect("ip");
        let shown = String::from_utf8_lossy(&out.stdout).into_owned();
        shown.contains("prog/xdp") || !shown.contains("promiscuity 0")
    }
}

/// Ends with the test.
pub(crate) struct Running {
    pub(crate) child: Child,
    stderr: BufReader<ChildStderr>,
    /// What it said until frames passed.
    pub(crate) said: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub(crate) fn signal(&self, name: &str) {
        let told = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill");
        assert!(told.success());
    }

    /// The exit code, and what it wrote to both.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let start = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < LIMIT, "it hangs");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (mut out, mut err) = (String::new(), String::new());
        self.child.stdout.take().expect("piped").read_to_string(&mut out).expect("UTF-8");
        self.stderr.read_to_string(&mut err).expect("UTF-8");
        (self.child.wait().expect("ended").code(), out, err)
    }

    /// Ctrl-C, and the summary of one that printed JSON.
    pub(crate) fn summary(self) -> Value {
        self.signal("-INT");
        let (code, out, err) = self.end();
        assert_eq!(code, Some(0), "{err}");
        let v: Value = serde_json::from_str(&out).expect("one object");
        v["summary"].clone()
    }

    /// The next line that it says.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("a line");
        line
    }
}

/// Lines of JSON to a switch.
pub(crate) struct Control(BufReader<UnixStream>);

impl Control {
    pub(crate) fn connect(path: &Path) -> Control {
        let stream = UnixStream::connect(path).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a socket");
        Control(BufReader::new(stream))
    }

    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        self.ask_line(&request.to_string())
    }

    pub(crate) fn ask_line(&mut self, line: &str) -> Value {
        // Whom it refuses it does not listen to; the answer is there all the same.
        let _ = self.0.get_mut().write_all(format!("{line}\n").as_bytes());
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("it answers");
        serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer:?}"))
    }
}
