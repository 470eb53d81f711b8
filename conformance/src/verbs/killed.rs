//! What is left of a program over AF_XDP that is killed: nothing on the interface, no socket, no folder.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::ends::{End, told};
use super::pair::Pair;
use super::tools::{Case, Prints, case};
use crate::guest::{Error, Space};

/// The kernel takes a moment to take an interface back.
const LIMIT: Duration = Duration::from_secs(10);

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    /// The program with the library in it.
    Program,
    /// `softnic run`, whose child the program is.
    Launcher,
}

impl Victim {
    pub(super) const ALL: [Victim; 2] = [Victim::Program, Victim::Launcher];

    pub(super) fn name(self) -> &'static str {
        match self {
            Victim::Program => "the program",
            Victim::Launcher => "softnic run",
        }
    }
}

/// A server that waits for its client: its device is open.
const SERVER: Case = case("ibv_rc_pingpong", "", Prints::PingPong, true);

pub(super) fn run(victim: Victim, pair: &mut Pair) -> Result<(), Error> {
    let wrong = |why: String| Err(Error::Failed(why));
    let launcher = pair.server.spawn([None; 2], &SERVER.words("softnic0", 0, None))?;
    let begin = Instant::now();
    while !pair.server.listens(&SERVER)? {
        if let Some(ended) = pair.server.ended()? {
            return wrong(told("the program does not begin", &[("program", &ended)]));
        }
        if begin.elapsed() > LIMIT {
            let ended = pair.server.stop()?;
            return wrong(told("the program does not begin in time", &[("program", &ended)]));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if !link(&pair.spaces[0], pair.server_interface())?.contains("xdp") {
        pair.server.stop()?;
        return wrong("the interface has no XDP program while the device is open: this test would find nothing".into());
    }
    let Some(program) = child_of(launcher) else { return wrong("`softnic run` has no child".into()) };
    let pid = if victim == Victim::Program { program } else { launcher };
    let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
    let ended = pair.server.wait(LIMIT)?;
    let expected = if victim == Victim::Program { Some(137) } else { None };
    if ended.code != expected {
        return wrong(told(
            &format!("`softnic run` exits with {:?}, not {expected:?}", ended.code),
            &[("program", &ended)],
        ));
    }
    let begin = Instant::now();
    let (space, interface) = (&pair.spaces[0], pair.server_interface());
    while let Some(left) = left_behind(space, &[interface], program)? {
        if begin.elapsed() > LIMIT {
            return wrong(left);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // As good as new; and where the launcher was killed, this removes the folder it left.
    pair.run(&SERVER)
}

/// The first child of a process: of `softnic run`, the program.
pub(super) fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// What `ip` says of an interface.
fn link(space: &Space, interface: &str) -> Result<String, Error> {
    let words = ["-n", space.name(), "-details", "link", "show", "dev", interface];
    let output = Command::new("ip").args(words).output().map_err(|e| Error::Failed(format!("ip: {e}")))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first thing that a killed program left at these interfaces of its host, if it left any.
pub(super) fn left_behind(space: &Space, interfaces: &[&str], program: u32) -> Result<Option<String>, Error> {
    if fs::read_to_string(format!("/proc/{program}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        return Ok(Some("the program lives on".into()));
    }
    for interface in interfaces {
        if link(space, interface)?.contains("xdp") {
            return Ok(Some(format!("an XDP program is left on {interface}")));
        }
    }
    let sockets = space.inside(|| {
        let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        Ok(read("unix").lines().filter(|line| line.contains("softnic")).count())
    })?;
    Ok((sockets > 0).then(|| format!("{sockets} sockets are left")))
}
