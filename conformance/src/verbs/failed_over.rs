//! `softnic run --backup` under perftest: the link of the device goes down in the middle and comes back, and the programs end as if nothing had
//! been.

use std::time::{Duration, Instant};

use super::Bench;
use super::ends::{End, OnSoftnic, told};
use super::judge::{self, Ended};
use super::tools::{Case, Prints, case};
use crate::guest::{Error, Space, interrupted};

/// Of each host: the device, its backup, and what perftest's own connection goes by.
const INTERFACES: [&str; 3] = ["eth0", "eth1", "eth2"];
const LIMIT: Duration = Duration::from_secs(40);
/// From the start of the client until the link goes down: it has met its peer by then.
const BEFORE: Duration = Duration::from_secs(2);
/// How long the link is down.
const DOWN: Duration = Duration::from_secs(2);
/// Long enough for both, and for the way back.
const OPTIONS: &str = "-s 65536 -D 8";

/// What the library says.
const LEFT: &str = "goes on by its backup";
const BACK: &str = "is back from its backup";

/// Whose link goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Initiator,
    Responder,
}

/// A program, and what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scenario {
    program: &'static str,
    whose: Whose,
}

impl Scenario {
    pub(super) fn all() -> impl Iterator<Item = Scenario> {
        let programs = ["ib_write_bw", "ib_send_bw", "ib_read_bw"].into_iter();
        programs.flat_map(|program| [Whose::Initiator, Whose::Responder].map(|whose| Scenario { program, whose }))
    }

    pub(super) fn name(self) -> String {
        let whose = match self.whose {
            Whose::Initiator => "link of the initiator",
            Whose::Responder => "link of the responder",
        };
        format!("{}/{whose}", self.program)
    }
}

/// Two hosts with three veth pairs between them; gone when it is dropped. Programs go first.
pub(super) struct TwoPaths {
    server: OnSoftnic,
    client: OnSoftnic,
    spaces: [Space; 2],
    verbose: bool,
}

impl TwoPaths {
    pub(super) fn new(bench: &Bench) -> Result<TwoPaths, Error> {
        let spaces = [Space::new("shift-a")?, Space::new("shift-b")?];
        for (n, interface) in INTERFACES.into_iter().enumerate() {
            let other = spaces[1].name();
            spaces[0].ip(&format!("link add {interface} type veth peer name {interface} netns {other}"))?;
            for (host, space) in (1..).zip(&spaces) {
                space.ip(&format!("address add 10.79.{n}.{host}/24 dev {interface}"))?;
                space.ip(&format!("link set {interface} up"))?;
            }
        }
        let end = |n: usize, name: &str| {
            let mut end = OnSoftnic::new(bench, &spaces[n], name, &format!("10.79.2.{}", n + 1));
            end.device = format!("afxdp:{}", INTERFACES[0]);
            end.backup = Some(format!("afxdp:{}", INTERFACES[1]));
            end
        };
        let (server, client) = (end(0, "shift-server"), end(1, "shift-client"));
        Ok(TwoPaths { server, client, spaces, verbose: bench.verbose })
    }

    pub(super) fn run(&mut self, scenario: Scenario) -> Result<(), Error> {
        let case = case(scenario.program, OPTIONS, Prints::OneRow, false);
        let space = match scenario.whose {
            Whose::Initiator => &self.spaces[1],
            Whose::Responder => &self.spaces[0],
        };
        let device = INTERFACES[0];
        let done = cut_under(&case, [&mut self.server, &mut self.client], |up| {
            space.ip(&format!("link set {device} {}", if up { "up" } else { "down" }))
        });
        if let Err(why) = done {
            // Whichever of them runs.
            let _ = [&mut self.server, &mut self.client].map(End::stop);
            return space.ip(&format!("link set {device} up")).and(Err(why));
        }
        let [server, client] = [&mut self.server, &mut self.client].map(|end| end.wait(LIMIT));
        let (server, client) = (server?, client?);
        let judged = judge(&case, &server, &client);
        if self.verbose {
            println!("{}", told("", &[("server", &server), ("client", &client)]));
        }
        judged.map_err(|why| Error::Failed(told(&why, &[("server", &server), ("client", &client)])))
    }
}

/// Starts both ends, and takes the link away and back in the middle.
fn cut_under(
    case: &Case,
    [server, client]: [&mut OnSoftnic; 2],
    set_link: impl Fn(bool) -> Result<(), Error>,
) -> Result<(), Error> {
    let begin = Instant::now();
    server.start(case, None)?;
    while !server.listens(case)? {
        if begin.elapsed() > LIMIT || interrupted() {
            return Err(Error::Failed("the server does not begin".into()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let address = server.address().to_owned();
    client.start(case, Some(&address))?;
    std::thread::sleep(BEFORE);
    set_link(false)?;
    std::thread::sleep(DOWN);
    set_link(true)
}

/// Both ends well, and told once each that the connection left and came back.
fn judge(case: &Case, server: &Ended, client: &Ended) -> Result<(), String> {
    judge::both(case, server, client)?;
    for (name, end) in [("server", server), ("client", client)] {
        if !end.text.contains(LEFT) {
            return Err(format!("the {name} is not told that the connection goes on by its backup"));
        }
    }
    match client.text.contains(BACK) {
        true => Ok(()),
        false => Err("the client is not told that the connection is back".into()),
    }
}
