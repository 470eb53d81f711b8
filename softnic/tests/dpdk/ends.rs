//! Two processes, each with a device, and what is run between them.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(90);

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

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("a child");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }

    /// The exit code and what it wrote.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        while self.0.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < LIMIT, "it hangs");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (mut text, code) = (String::new(), self.0.wait().expect("ended").code());
        for pipe in
            [self.0.stdout.take().map(|p| Box::new(p) as Box<dyn Read>), self.0.stderr.take().map(|p| Box::new(p) as _)]
        {
            pipe.expect("piped").read_to_string(&mut text).expect("UTF-8");
        }
        (code, text)
    }
}

/// A server and a client, with a device each.
pub(crate) struct Ends {
    /// What runs softnic, in whichever namespace.
    pub(crate) softnic: [Box<dyn Fn() -> Command>; 2],
    pub(crate) devices: [String; 2],
    /// Where the client finds the server.
    pub(crate) host: &'static str,
    port: String,
    pub(crate) folder: PathBuf,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Ends {
    pub(crate) fn new(name: &str, devices: impl FnOnce(&str) -> [String; 2]) -> Ends {
        let folder = std::env::temp_dir().join(format!("softnic-dpdk-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let socket = folder.join("socket");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port().to_string();
        let softnic = || Command::new(env!("CARGO_BIN_EXE_softnic"));
        Ends {
            softnic: [Box::new(softnic), Box::new(softnic)],
            devices: devices(socket.to_str().expect("UTF-8")),
            host: "127.0.0.1",
            port,
            folder,
        }
    }

    pub(crate) fn memif(name: &str) -> Ends {
        Ends::new(name, |socket| {
            ["server", "client"].map(|role| {
                let number = if role == "server" { 1 } else { 2 };
                format!("dpdk:net_memif0,role={role},socket={socket},ip=10.9.0.{number}/24,ip=fd09::{number}/64")
            })
        })
    }

    pub(crate) fn vhost(name: &str) -> Ends {
        Ends::new(name, |socket| {
            [
                format!("dpdk:net_vhost0,iface={socket},ip=10.9.0.1/24"),
                format!("dpdk:net_virtio_user0,path={socket},ip=10.9.0.2/24"),
            ]
        })
    }

    /// The server, once it listens.
    pub(crate) fn server(&self) -> Running {
        let mut command = (self.softnic[0])();
        command.args(["perf", "--server", "--dev", &self.devices[0], "--port", &self.port]);
        let mut server = Running::start(&mut command);
        let mut stderr = BufReader::new(server.0.stderr.take().expect("piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a line");
        assert!(line.contains("waiting for a client"), "{line}");
        server.0.stderr = Some(stderr.into_inner());
        server
    }

    pub(crate) fn client(&self, args: &[&str]) -> Running {
        let mut command = (self.softnic[1])();
        command.arg("perf").args(args);
        command.args(["--dev", &self.devices[1], "--connect", self.host, "--port", &self.port, "--json"]);
        Running::start(&mut command)
    }

    /// A run, and the client's outcome.
    pub(crate) fn run(&self, args: &[&str]) -> Value {
        let server = self.server();
        let (code, text) = self.client(args).end();
        assert_eq!(code, Some(0), "{args:?}: {text}");
        assert_eq!(server.end(), (Some(0), String::new()), "{args:?}");
        serde_json::from_str(text.lines().last().expect("a line")).unwrap_or_else(|e| panic!("{e}: {text}"))
    }
}
