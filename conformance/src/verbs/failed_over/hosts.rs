//! Two hosts with a default path, a backup path and one for the programs' own connections; and how the default path fails.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::scenario::{Middle, Trouble};
use crate::guest::{Error, Space, failed};
use crate::verbs::Bench;
use crate::verbs::ends::OnSoftnic;

/// Of each host: the device, its backup, and what programs' own connections go by.
const INTERFACES: [&str; 3] = [DEVICE, BACKUP, "eth2"];
pub(super) const DEVICE: &str = "eth0";
pub(super) const BACKUP: &str = "eth1";
/// Of the namespace in the middle: towards the server, and towards the client.
const IN_THE_MIDDLE: [&str; 2] = ["m0", "m1"];
/// How often a link flaps, and how long it is down or up each time.
const FLAPS: usize = 5;
const FLAP: Duration = Duration::from_millis(300);
/// How long a wire may take to begin, or to end.
const LIMIT: Duration = Duration::from_secs(15);

/// The hosts; gone when they are dropped. Programs go first.
pub(super) struct Hosts {
    pub(super) ends: [OnSoftnic; 2],
    wire: Option<Wire>,
    pub(super) spaces: [Space; 2],
    _middle: Option<Space>,
}

impl Hosts {
    /// Which of them has a backup, and whether that is a second device.
    pub(super) fn new(bench: &Bench, between: Middle, backups: [bool; 2], mutual: bool) -> Result<Hosts, Error> {
        let spaces = [Space::new("shift-a")?, Space::new("shift-b")?];
        let middle = match between {
            Middle::Cable => None,
            Middle::Bridge | Middle::Wire => Some(Space::new("shift-m")?),
        };
        for (n, interface) in INTERFACES.into_iter().enumerate() {
            match &middle {
                Some(middle) if n == 0 => connect_by(middle, &spaces, interface)?,
                _ => {
                    let other = spaces[1].name();
                    spaces[0].ip(&format!("link add {interface} type veth peer name {interface} netns {other}"))?;
                }
            }
            for (host, space) in (1..).zip(&spaces) {
                space.ip(&format!("address add 10.79.{n}.{host}/24 dev {interface}"))?;
                space.ip(&format!("link set {interface} up"))?;
            }
        }
        let wire = match (&middle, between) {
            (Some(middle), Middle::Wire) => Some(Wire::start(bench, middle)?),
            (Some(middle), _) => {
                middle.ip("link add br0 type bridge forward_delay 0 stp_state 0")?;
                middle.ip("link set br0 up")?;
                IN_THE_MIDDLE.iter().try_for_each(|port| middle.ip(&format!("link set {port} master br0")))?;
                None
            }
            (None, _) => None,
        };
        let end = |n: usize, name: &str| {
            let mut end = OnSoftnic::new(bench, &spaces[n], name, &format!("10.79.2.{}", n + 1));
            end.device = format!("afxdp:{DEVICE}");
            let second = format!("afxdp:{BACKUP}");
            (end.second, end.backup) = match (backups[n], mutual) {
                (true, true) => (Some(second), Some("mutual".into())),
                (true, false) => (None, Some(second)),
                (false, _) => (None, None),
            };
            end
        };
        let ends = [end(0, "shift-server"), end(1, "shift-client")];
        Ok(Hosts { ends, wire, spaces, _middle: middle })
    }

    /// Has the trouble begin. `true` if it goes on until [`Hosts::mend`].
    pub(super) fn fail(&self, trouble: Trouble) -> Result<bool, Error> {
        let down = |n: usize| self.spaces[n].ip(&format!("link set {DEVICE} down"));
        match trouble {
            Trouble::Nothing | Trouble::SoftRoce | Trouble::Nic(..) => return Ok(false),
            Trouble::Down(whose) | Trouble::Killed(whose, _) => down(whose.index())?,
            Trouble::DownAtBoth => (0..2).try_for_each(down)?,
            Trouble::Deleted(whose) => self.spaces[whose.index()].ip(&format!("link del {DEVICE}"))?,
            Trouble::BothDeleted => self.spaces[0].ip(&format!("link del {DEVICE}"))?,
            Trouble::Wire(spec) => self.set_wire(spec)?,
            Trouble::Flapping(whose) => {
                for _ in 0..FLAPS {
                    down(whose.index())?;
                    std::thread::sleep(FLAP);
                    self.mend(trouble)?;
                    std::thread::sleep(FLAP);
                }
                return Ok(false);
            }
        }
        Ok(!matches!(trouble, Trouble::Deleted(_) | Trouble::BothDeleted))
    }

    /// Ends the trouble.
    pub(super) fn mend(&self, trouble: Trouble) -> Result<(), Error> {
        let up = |n: usize| self.spaces[n].ip(&format!("link set {DEVICE} up"));
        match trouble {
            Trouble::Down(whose) | Trouble::Flapping(whose) | Trouble::Killed(whose, _) => up(whose.index()),
            Trouble::DownAtBoth => (0..2).try_for_each(up),
            Trouble::Wire(_) => self.set_wire(""),
            Trouble::Nothing | Trouble::SoftRoce | Trouble::Nic(..) => Ok(()),
            Trouble::Deleted(_) | Trouble::BothDeleted => Ok(()),
        }
    }

    fn set_wire(&self, spec: &str) -> Result<(), Error> {
        self.wire.as_ref().map_or(Ok(()), |wire| wire.set(spec))
    }
}

/// A veth pair from each host to the namespace in the middle.
fn connect_by(middle: &Space, spaces: &[Space; 2], interface: &str) -> Result<(), Error> {
    for (space, port) in spaces.iter().zip(IN_THE_MIDDLE) {
        let host = space.name();
        middle.ip(&format!("link add {port} type veth peer name {interface} netns {host}"))?;
        middle.ip(&format!("link set {port} up"))?;
    }
    Ok(())
}

/// `softnic wire` in the namespace in the middle.
struct Wire {
    process: Child,
    softnic: std::path::PathBuf,
    namespace: String,
}

impl Wire {
    fn start(bench: &Bench, middle: &Space) -> Result<Wire, Error> {
        let output = bench.scratch.0.join("shift-wire.out");
        let out = File::create(&output).map_err(failed(&output))?;
        let errors = out.try_clone().map_err(failed(&output))?;
        let [a, b] = IN_THE_MIDDLE;
        let mut command = inside(middle.name());
        command.arg(&bench.softnic).args(["wire", "--a", a, "--b", b]);
        command.stdin(Stdio::null()).stdout(out).stderr(errors);
        let process = command.spawn().map_err(|e| Error::Failed(format!("`softnic wire` cannot be started: {e}")))?;
        let wire = Wire { process, softnic: bench.softnic.clone(), namespace: middle.name().into() };
        let begin = Instant::now();
        while wire.set("").is_err() {
            if begin.elapsed() > LIMIT {
                let said = std::fs::read_to_string(&output).unwrap_or_default();
                return Err(Error::Failed(format!("`softnic wire` does not begin: {}", said.trim())));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(wire)
    }

    /// Gives it other faults.
    fn set(&self, spec: &str) -> Result<(), Error> {
        let output = inside(&self.namespace).arg(&self.softnic).args(["wire", "set", spec]).output();
        let output = output.map_err(|e| Error::Failed(format!("`softnic wire set` cannot be started: {e}")))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::Failed(String::from_utf8_lossy(&output.stderr).trim().into())),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = Pid::from_raw(self.process.id() as i32).map(|pid| kill_process(pid, Signal::TERM));
        let begin = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) {
            if begin.elapsed() > LIMIT {
                let _ = self.process.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A command in a namespace.
pub(super) fn inside(namespace: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]);
    command
}
