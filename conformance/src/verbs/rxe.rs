//! A program on softnic at a tap, and its peer on Linux Soft-RoCE in a virtual machine behind it.

use std::time::Duration;

use serde_json::json;

use super::Bench;
use super::ends::{self, OnRxe, OnSoftnic};
use super::judge;
use super::tools::Case;
use crate::guest::{Error, Guest, Image, Link, Machine, SOFT_ROCE, Space, create_folder};

pub(super) const TAP: &str = "sntap0";
const OUR_MAC: &str = "02:00:00:35:00:01";
const THEIR_MAC: &str = "02:00:00:35:00:02";
const OUR_ADDRESS: &str = "10.35.0.1";
const THEIR_ADDRESS: &str = "10.35.0.2";
/// Path MTU 4096 with every header.
pub(super) const MTU: u32 = 4200;
/// The longest a run may take: the guest is emulated.
const LIMIT: Duration = Duration::from_secs(120);

/// Which end softnic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Softnic {
    Server,
    Client,
}

impl Softnic {
    pub(super) fn name(self) -> &'static str {
        match self {
            Softnic::Server => "softnic is the server",
            Softnic::Client => "softnic is the client",
        }
    }
}

/// The peer, with our end of the wire to it. Programs go before the namespace does.
pub(super) struct Peer {
    ours: OnSoftnic,
    theirs: OnRxe,
    space: Space,
    pub(super) kernel: String,
}

fn idle() -> Result<(), Error> {
    std::thread::sleep(Duration::from_millis(5));
    Ok(())
}

impl Peer {
    pub(super) fn boot(bench: &Bench) -> Result<Peer, Error> {
        let space = Space::new("verbs-rxe")?;
        let image = Image::of(&SOFT_ROCE)?;
        space.add_tap(TAP, OUR_MAC, MTU, &["10.35.0.1/24"])?;
        let folder = bench.scratch.0.join("guest");
        create_folder(&folder)?;
        let link = Link::Tap { namespace: space.name().into(), tap: TAP.into() };
        println!("verbs: booting the guest");
        let guest = Guest::boot(&image, &folder, &Machine::new(link, THEIR_MAC, &["10.35.0.2/24"], MTU), &mut idle)?;
        let mut theirs = OnRxe { guest, address: THEIR_ADDRESS.into(), text: String::new() };
        let kernel = theirs.call(json!({"do": "kernel"}))?.as_str().unwrap_or("?").to_owned();
        let ours = OnSoftnic::new(bench, &space, TAP, OUR_ADDRESS);
        Ok(Peer { ours, theirs, space, kernel })
    }

    /// Gives our end a backup, with nobody behind it.
    pub(super) fn add_backup(&mut self) -> Result<(), Error> {
        self.space.ip("link add snbackup0 type veth peer name snbackup1")?;
        self.space.ip("address add 10.36.0.1/24 dev snbackup0")?;
        self.space.ip(&format!("link set snbackup0 mtu {MTU} up"))?;
        self.space.ip(&format!("link set snbackup1 mtu {MTU} up"))?;
        self.ours.backup = Some("afxdp:snbackup0".into());
        Ok(())
    }

    /// What our end printed last.
    pub(super) fn text(&self) -> String {
        self.ours.text()
    }

    /// Runs a case.
    pub(super) fn run(&mut self, case: &Case, softnic: Softnic) -> Result<(), Error> {
        match softnic {
            Softnic::Server => ends::run(case, &mut self.ours, &mut self.theirs, LIMIT),
            Softnic::Client => ends::run(case, &mut self.theirs, &mut self.ours, LIMIT),
        }?;
        judge::transport(case, &self.ours.text(), Some(THEIR_ADDRESS)).map_err(Error::Failed)
    }
}
