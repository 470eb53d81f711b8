//! `softnic run --backup` under programs that connect by name: queue pairs of librdmacm go on when a link is gone, and connections end as they
//! do on any NIC, be it while the link is still gone.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Bench;
use super::ends::{End, OnSoftnic, told};
use super::judge::{self, Ended};
use super::tools::{Case, Prints, case};
use crate::guest::{Error, Space, interrupted};

/// Of each host: the device, its backup, and what libfabric's ends find each other by.
const INTERFACES: [&str; 3] = ["eth0", "eth1", "eth2"];
/// For each thing that is waited for, and for the end of both programs.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a link is down at least.
const DOWN: Duration = Duration::from_secs(2);
/// Between two looks.
const NAP: Duration = Duration::from_millis(50);
/// Requests of the client before its link may fail: its connections are all there.
const BEGUN: u64 = 20;

/// What the library says.
const LEFT: &str = "goes on by its backup";
const BACK: &str = "is back from its backup";

/// Whose link goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Client,
    Server,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// It is up again before the programs end.
    Returns,
    /// It is down when they do: connections end by the backup.
    StaysDown,
}

/// A program that connects by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    WriteBw,
    SendBw,
    Rping,
    Libfabric,
}

impl Program {
    const ALL: [Program; 4] = [Program::WriteBw, Program::SendBw, Program::Rping, Program::Libfabric];

    /// How it is run, and with which delay: where nothing counts seconds, the delay has it last long enough for all that happens, by either
    /// interface; and perftest's server, which listens twice, is slower than its client without one.
    fn case(self) -> (Case, &'static str) {
        const BANDWIDTH: &str = "-R -s 65536 -D 10";
        match self {
            Program::WriteBw => (case("ib_write_bw", BANDWIDTH, Prints::OneRow, false), "delay=100ms"),
            Program::SendBw => (case("ib_send_bw", BANDWIDTH, Prints::OneRow, false), "delay=100ms"),
            Program::Rping => (case("rping", "-v -C 90", Prints::Pings(90), false), "delay=15ms"),
            Program::Libfabric => {
                (case("fi_pingpong", "-p verbs -e msg -S 1024 -I 100", Prints::Fabric, false), "delay=20ms")
            }
        }
    }

    /// The network by which the client is told its server. libfabric's ends tell each other the addresses to connect to.
    fn network(self) -> usize {
        match self {
            Program::WriteBw | Program::SendBw | Program::Rping => 0,
            Program::Libfabric => 2,
        }
    }
}

/// A program, and what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scenario {
    program: Program,
    whose: Whose,
    link: Link,
}

impl Scenario {
    pub(super) fn all() -> impl Iterator<Item = Scenario> {
        Program::ALL.into_iter().flat_map(|program| {
            [Link::Returns, Link::StaysDown]
                .into_iter()
                .flat_map(move |link| [Whose::Client, Whose::Server].map(|whose| Scenario { program, whose, link }))
        })
    }

    pub(super) fn name(self) -> String {
        let whose = match self.whose {
            Whose::Client => "link of the client",
            Whose::Server => "link of the server",
        };
        let how = match self.link {
            Link::Returns => "down and up",
            Link::StaysDown => "down until the end",
        };
        format!("by-name/{}/{whose} {how}", self.program.case().0.program)
    }
}

/// Two hosts with three veth pairs between them; gone when it is dropped.
pub(super) struct Hosts {
    spaces: [Space; 2],
    softnic: PathBuf,
}

impl Hosts {
    pub(super) fn new(bench: &Bench) -> Result<Hosts, Error> {
        let spaces = [Space::new("names-a")?, Space::new("names-b")?];
        for (n, interface) in INTERFACES.into_iter().enumerate() {
            let other = spaces[1].name();
            spaces[0].ip(&format!("link add {interface} type veth peer name {interface} netns {other}"))?;
            for (host, space) in (1..).zip(&spaces) {
                space.ip(&format!("address add 10.80.{n}.{host}/24 dev {interface}"))?;
                space.ip(&format!("link set {interface} up"))?;
            }
        }
        Ok(Hosts { spaces, softnic: bench.softnic.clone() })
    }

    pub(super) fn run(&self, bench: &Bench, scenario: Scenario) -> Result<(), Error> {
        let (case, delay) = scenario.program.case();
        let case = Case { fault: Some(delay), ..case };
        let end = |host: usize, name: &str| {
            let address = format!("10.80.{}.{}", scenario.program.network(), host + 1);
            let mut end = OnSoftnic::new(bench, &self.spaces[host], name, &address);
            end.device = format!("afxdp:{}", INTERFACES[0]);
            end.backup = Some(format!("afxdp:{}", INTERFACES[1]));
            end.backup_fault = Some(delay);
            end
        };
        let mut ends = [end(0, "names-server"), end(1, "names-client")];
        let cut = match scenario.whose {
            Whose::Server => &self.spaces[0],
            Whose::Client => &self.spaces[1],
        };
        let set_link = |how: &str| cut.ip(&format!("link set {} {how}", INTERFACES[0]));
        let happened = self.happens(&case, &mut ends, scenario.link, set_link);
        let ended = ends.each_mut().map(|end| match happened {
            Ok(()) => end.wait(LIMIT),
            Err(_) => end.stop(),
        });
        set_link("up")?;
        let [server, client] = ended;
        let (server, client) = (server?, client?);
        let both = [("server", &server), ("client", &client)];
        if bench.verbose {
            println!("{}", told("", &both));
        }
        let judged =
            happened.map_err(|why| why.to_string()).and_then(|()| judge(&case, scenario.link, &server, &client));
        judged.map_err(|why| Error::Failed(told(&why, &both)))
    }

    /// Starts both ends, takes the link away in the middle, and back where it returns.
    fn happens(
        &self,
        case: &Case,
        ends: &mut [OnSoftnic; 2],
        link: Link,
        set_link: impl Fn(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let [server, client] = ends;
        server.start(case, None)?;
        until("the server waits for its client", || server.listens(case))?;
        let address = server.address().to_owned();
        client.start(case, Some(&address))?;
        until("both ends have their backups", || Ok(self.is_protected(0) && self.is_protected(1) && self.has_begun()))?;
        set_link("down")?;
        until("both ends go on by their backups", || Ok((0..2).all(|host| self.counts(host, "failover_failovers"))))?;
        std::thread::sleep(DOWN);
        if link == Link::Returns {
            set_link("up")?;
            until("the client is back", || Ok(self.counts(1, "failover_failbacks")))?;
        }
        Ok(())
    }

    /// What `softnic counters` says of the NIC of a host, if one runs there.
    fn nic(&self, host: usize) -> Option<Value> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.spaces[host].name()]).arg(&self.softnic).args(["counters", "--json"]);
        serde_json::from_slice(&command.output().ok()?.stdout).ok()
    }

    fn counts(&self, host: usize, counter: &str) -> bool {
        self.nic(host).is_some_and(|nic| nic["counters"][counter].as_u64() > Some(0))
    }

    /// Whether all connections of a host have backups at both ends.
    fn is_protected(&self, host: usize) -> bool {
        let Some(nic) = self.nic(host) else { return false };
        let connected = |qp: &&Value| qp["transport"] != "gsi" && qp["state"] == "RTS";
        let connections = nic["qps"].as_array().map_or(0, |qps| qps.iter().filter(connected).count());
        connections > 0 && nic["counters"]["failover_protected"].as_u64() >= Some(connections as u64)
    }

    /// Whether the client is at work.
    fn has_begun(&self) -> bool {
        self.nic(1).is_some_and(|nic| nic["counters"]["sent_requests"].as_u64() >= Some(BEGUN))
    }
}

/// Waits for something.
fn until(what: &str, mut is: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let begin = Instant::now();
    while !is()? {
        if begin.elapsed() > LIMIT || interrupted() {
            return Err(Error::Failed(format!("it did not happen that {what}")));
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}

/// Both ends well, and told that the connection left, and came back where it could.
fn judge(case: &Case, link: Link, server: &Ended, client: &Ended) -> Result<(), String> {
    judge::both(case, server, client)?;
    for (name, end) in [("server", server), ("client", client)] {
        if !end.text.contains(LEFT) {
            return Err(format!("the {name} is not told that the connection goes on by its backup"));
        }
    }
    match client.text.contains(BACK) == (link == Link::Returns) {
        true => Ok(()),
        false => Err(format!("the client is told the contrary of: the link {link:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_loses_either_link_for_a_while_and_for_good() {
        let names: std::collections::BTreeSet<String> = Scenario::all().map(Scenario::name).collect();
        assert_eq!(names.len(), Program::ALL.len() * 4);
        assert!(names.contains("by-name/rping/link of the server down until the end"), "{names:?}");
    }

    #[test]
    fn an_end_that_was_not_told_of_its_failover_has_failed() {
        let case = case("rping", "-v -C 1", Prints::Pings(1), false);
        let ping = "ping data: rdma-ping-0: ABC\n";
        let ended = |words: &[&str]| Ended { code: Some(0), text: ping.to_owned() + &words.join("\n") };
        let (left, back) = (ended(&[LEFT]), ended(&[LEFT, BACK]));
        assert_eq!(judge(&case, Link::Returns, &left, &back), Ok(()));
        assert_eq!(judge(&case, Link::StaysDown, &left, &left), Ok(()));
        assert!(judge(&case, Link::Returns, &left, &left).is_err());
        assert!(judge(&case, Link::StaysDown, &left, &back).is_err());
        assert!(judge(&case, Link::Returns, &ended(&[]), &back).is_err());
    }
}
