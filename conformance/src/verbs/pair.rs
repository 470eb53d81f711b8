//! Two namespaces with a veth pair, and a program on softnic at each end of it.

use std::time::Duration;

use super::Bench;
use super::ends::{self, End, OnSoftnic, told};
use super::judge;
use super::tools::{Case, Prints};
use crate::guest::{Error, Space};

const INTERFACES: [&str; 2] = ["v0", "v1"];
const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// Path MTU 4096 with every header, also with those of LoWAR's repair packets.
const MTU: u32 = 4216;
/// The longest a run may take; few take more than a second.
const LIMIT: Duration = Duration::from_secs(60);

/// The pair; gone when it is dropped. Programs go first.
pub(super) struct Pair {
    pub(super) server: OnSoftnic,
    pub(super) client: OnSoftnic,
    pub(super) spaces: [Space; 2],
    verbose: bool,
}

impl Pair {
    pub(super) fn new(bench: &Bench) -> Result<Pair, Error> {
        let spaces = [Space::new("verbs-a")?, Space::new("verbs-b")?];
        let [a, b] = INTERFACES;
        spaces[0].ip(&format!("link add {a} type veth peer name {b} netns {}", spaces[1].name()))?;
        for ((space, interface), address) in spaces.iter().zip(INTERFACES).zip(ADDRESSES) {
            space.ip(&format!("address add {address}/24 dev {interface}"))?;
            space.ip(&format!("link set {interface} mtu {MTU} up"))?;
        }
        let end = |n: usize| OnSoftnic::new(bench, &spaces[n], INTERFACES[n], ADDRESSES[n]);
        let (server, client) = (end(0), end(1));
        Ok(Pair { server, client, spaces, verbose: bench.verbose })
    }

    /// Runs a case.
    pub(super) fn run(&mut self, case: &Case) -> Result<(), Error> {
        if matches!(case.prints, Prints::Device | Prints::Port | Prints::Fabrics) {
            let server = &mut self.server;
            server.start(case, None)?;
            let ended = server.wait(LIMIT)?;
            if self.verbose {
                println!("{}", ended.text);
            }
            let judged = judge::alone(case, &ended, server.address());
            return judged.map_err(|why| Error::Failed(told(&why, &[("program", &ended)])));
        }
        ends::run(case, &mut self.server, &mut self.client, LIMIT)?;
        let texts = [&self.server, &self.client].map(OnSoftnic::text);
        texts.iter().try_for_each(|text| judge::transport(case, text, None)).map_err(Error::Failed)
    }

    /// The interface of the server.
    pub(super) fn server_interface(&self) -> &'static str {
        INTERFACES[0]
    }
}
