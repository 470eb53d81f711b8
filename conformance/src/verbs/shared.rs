//! Programs without privileges on an interface that `softnic share` serves: with each other, and with a peer on the wire.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Bench;
use super::ends::{self, OnSoftnic};
use super::judge;
use super::tools::Case;
use crate::guest::{Error, Space, failed};

const INTERFACES: [&str; 2] = ["v0", "v1"];
const ADDRESSES: [&str; 2] = ["10.79.0.1", "10.79.0.2"];
/// Path MTU 4096 with every header.
const MTU: u32 = 4216;
/// The longest a run may take; few take more than a second.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const NAP: Duration = Duration::from_millis(5);

/// Where the client of a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// Another process on the shared interface.
    Local,
    /// At the other end of the wire, on an interface of its own.
    OnTheWire,
}

impl Client {
    pub(super) const ALL: [Client; 2] = [Client::Local, Client::OnTheWire];

    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Local => "local",
            Client::OnTheWire => "wire",
        }
    }
}

/// A shared interface; gone when it is dropped. Programs go first, then the daemon.
pub(super) struct Shared {
    server: OnSoftnic,
    local: OnSoftnic,
    on_the_wire: OnSoftnic,
    daemon: Daemon,
    _spaces: [Space; 2],
}

/// `softnic share`, ended when it is dropped.
pub(super) struct Daemon {
    child: Child,
    softnic: PathBuf,
    namespace: String,
    device: String,
}

impl Daemon {
    /// Starts it for an interface of a namespace, and waits until it serves.
    pub(super) fn start(bench: &Bench, space: &Space, interface: &str) -> Result<Daemon, Error> {
        let (namespace, device) = (space.name().to_owned(), format!("afxdp:{interface}"));
        let output = bench.scratch.0.join(format!("share.{namespace}.out"));
        let errors = File::create(&output).map_err(failed(&output))?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace]).arg(&bench.softnic).args(["share", "--dev", &device]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn();
        let child = child.map_err(|e| Error::Failed(format!("`softnic share` cannot be started: {e}")))?;
        let mut daemon = Daemon { child, softnic: bench.softnic.clone(), namespace, device };
        let begin = Instant::now();
        loop {
            let said = std::fs::read_to_string(&output).map_err(failed(&output))?;
            if said.contains("sharing afxdp:") {
                return Ok(daemon);
            }
            let ended = daemon.child.try_wait().map_err(failed(&output))?;
            if ended.is_some() || begin.elapsed() > LIMIT {
                return Err(Error::Failed(format!("`softnic share` does not begin: {said}")));
            }
            std::thread::sleep(NAP);
        }
    }

    /// How many clients it has beside its own.
    fn clients(&self) -> Result<usize, Error> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(&self.softnic);
        command.args(["share", "--dev", &self.device, "--list", "--json"]);
        let listed = command.output().map_err(|e| Error::Failed(format!("`softnic share --list`: {e}")))?;
        let text = String::from_utf8_lossy(&listed.stdout);
        let clients = text.lines().filter(|line| line.contains("\"pid\"")).count();
        clients.checked_sub(1).ok_or_else(|| Error::Failed("the daemon has no client of its own".into()))
    }

    /// Waits until it has no client any more.
    pub(super) fn wait_until_idle(&self) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            match self.clients()? {
                0 => return Ok(()),
                n if begin.elapsed() > LIMIT => return Err(Error::Failed(format!("{n} clients are left"))),
                _ => std::thread::sleep(NAP),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Pid::from_raw(self.child.id() as i32).map(|pid| kill_process(pid, Signal::TERM));
        let _ = self.child.wait();
    }
}

impl Shared {
    pub(super) fn new(bench: &Bench) -> Result<Shared, Error> {
        let spaces = [Space::new("verbs-shared")?, Space::new("verbs-wire")?];
        let [a, b] = INTERFACES;
        spaces[0].ip(&format!("link add {a} type veth peer name {b} netns {}", spaces[1].name()))?;
        for ((space, interface), address) in spaces.iter().zip(INTERFACES).zip(ADDRESSES) {
            space.ip("link set lo up")?;
            space.ip(&format!("address add {address}/24 dev {interface}"))?;
            space.ip(&format!("link set {interface} mtu {MTU} up"))?;
        }
        let daemon = Daemon::start(bench, &spaces[0], a)?;
        let client = |name| OnSoftnic::client_of(bench, &spaces[0], a, ADDRESSES[0], name);
        let (server, local) = (client("shared-server"), client("shared-client"));
        let on_the_wire = OnSoftnic::new(bench, &spaces[1], b, ADDRESSES[1]);
        Ok(Shared { server, local, on_the_wire, daemon, _spaces: spaces })
    }

    /// Runs a case; the daemon has no client of it afterwards.
    pub(super) fn run(&mut self, case: &Case, at: Client) -> Result<(), Error> {
        let client = match at {
            Client::Local => &mut self.local,
            Client::OnTheWire => &mut self.on_the_wire,
        };
        ends::run(case, &mut self.server, client, LIMIT)?;
        let texts = [&self.server, client].map(|end| end.text());
        texts.iter().try_for_each(|text| judge::transport(case, text, None)).map_err(Error::Failed)?;
        self.daemon.wait_until_idle()
    }
}
