//! Two processes of `softnic perf`, a server and a client, with a device each, which meet at a port of TCP.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Long enough for the slowest machine; no test that passes waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// A process; it ends with the test.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs"))
    }

    /// A server, once it listens.
    pub(crate) fn listening(command: &mut Command) -> Running {
        let mut server = Running::start(command);
        let mut stderr = BufReader::new(server.0.stderr.take().expect("piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a line");
        assert!(line.contains("waiting for a client"), "{line}");
        server.0.stderr = Some(stderr.into_inner());
        server
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("a child");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }

    /// The exit code and what it wrote, on stdout and then on stderr.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        while self.0.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < LIMIT, "process {} hangs", self.id());
            std::thread::sleep(Duration::from_millis(10));
        }
        let (mut text, code) = (String::new(), self.0.wait().expect("ended").code());
        if let Some(mut stdout) = self.0.stdout.take() {
            stdout.read_to_string(&mut text).expect("UTF-8");
        }
        if let Some(mut stderr) = self.0.stderr.take() {
            stderr.read_to_string(&mut text).expect("UTF-8");
        }
        (code, text)
    }
}

/// The devices of a server and a client, and the port at which they meet.
pub(crate) struct Meeting {
    pub(crate) devices: [String; 2],
    pub(crate) port: String,
}

impl Meeting {
    pub(crate) fn new(devices: [String; 2]) -> Meeting {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port().to_string();
        Meeting { devices, port }
    }

    /// The server, once it listens, by a command that runs softnic with what is added to it.
    pub(crate) fn server(&self, mut softnic: Command, more: &[&str]) -> Running {
        softnic.args(["perf", "--server", "--dev", &self.devices[0], "--port", &self.port]).args(more);
        Running::listening(&mut softnic)
    }

    /// The client's command, where the server is reached at `host`.
    pub(crate) fn client(&self, mut softnic: Command, host: &str, args: &[&str]) -> Command {
        softnic.arg("perf").args(args);
        softnic.args(["--dev", &self.devices[1], "--connect", host, "--port", &self.port, "--json"]);
        softnic
    }
}
