//! Two namespaces with a veth pair between them, without segmentation offloads: as on a plain wire, every frame fits the MTU.

use std::process::{Command, Stdio};

use softnic_conformance::guest::{Error, Space};

/// The receiver's address.
pub(super) const SERVER: &str = "10.77.0.2";
/// The interfaces, and the cores that the processes at either end are kept on.
const CLIENT_END: (&str, &str) = ("v0", "0");
const SERVER_END: (&str, &str) = ("v1", "1");

/// Which end of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

impl End {
    pub(super) fn interface(self) -> &'static str {
        match self {
            End::Client => CLIENT_END.0,
            End::Server => SERVER_END.0,
        }
    }

    pub(super) fn core(self) -> &'static str {
        match self {
            End::Client => CLIENT_END.1,
            End::Server => SERVER_END.1,
        }
    }
}

/// The pair; gone when it is dropped.
pub(super) struct Pair {
    client: Space,
    server: Space,
    pub(super) mtu: u32,
}

impl Pair {
    pub(super) fn new(mtu: u32) -> Result<Pair, Error> {
        let pair = Pair { client: Space::new("race-a")?, server: Space::new("race-b")?, mtu };
        let (a, b) = (End::Client.interface(), End::Server.interface());
        pair.client.ip(&format!("link add {a} type veth peer name {b} netns {}", pair.server.name()))?;
        for (end, address) in [(End::Client, "10.77.0.1"), (End::Server, SERVER)] {
            let (space, interface) = (pair.space(end), end.interface());
            space.ip(&format!("address add {address}/24 dev {interface}"))?;
            space.ip(&format!("link set {interface} mtu {mtu} up"))?;
            let ethtool = ["ethtool", "-K", interface, "tso", "off", "gso", "off"];
            let done = pair.command(end, &ethtool).stdout(Stdio::null()).status();
            if !done.is_ok_and(|status| status.success()) {
                return Err(Error::Failed(format!("`{}` failed", ethtool.join(" "))));
            }
        }
        Ok(pair)
    }

    fn space(&self, end: End) -> &Space {
        match end {
            End::Client => &self.client,
            End::Server => &self.server,
        }
    }

    /// A command at one end, on that end's core.
    pub(super) fn command(&self, end: End, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.space(end).name(), "taskset", "-c", end.core()]);
        command.args(words).stdin(Stdio::null());
        command
    }
}
