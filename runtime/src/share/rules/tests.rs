//! Every verdict of every program, by test runs in the kernel over frames that never reach an interface.

mod agreement;
mod frames;
mod rates;
mod receiving;
mod sending;
mod wire;

use std::io::Write;

use frames::{LOCAL_MAC, LOCAL_V4, LOCAL_V6};
use softnic_nic::sharing::Process;
use softnic_wire::mad::ip_cm::ServiceId;

use super::super::maps::{Client, Maps};
use super::{egress, ingress, spread};
use crate::bpf::{Kind, Program};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const TC_ACT_UNSPEC: u32 = u32::MAX;
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_REDIRECT: u32 = 7;

/// The existing processes.
const CLIENTS: [u32; 5] = [1, 2, 77, 600, 1022];
/// The process whose outgoing packets are checked.
const SENDER: u32 = 77;
/// The process that gets requests for services without a listener.
const WARDEN: u32 = 600;
/// A process that does not exist.
const STRANGER: u32 = 78;
/// A service of the second client.
const SERVICE: ServiceId = ServiceId::ip(ServiceId::TCP, 4711);

fn process(number: u32) -> Process {
    Process::new(number).unwrap()
}

/// A shared port with some clients. Their interfaces do not exist, so no frame is delivered.
struct SharedPort {
    maps: Maps,
    ingress: Program,
    spread: Program,
    egress: Program,
}

/// The effect of a program on a frame.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    verdict: u32,
    /// The clients for which the program counted a frame.
    receivers: Vec<u32>,
    /// Whether the program counted the frame as one without an addressee.
    nobody: bool,
}

impl SharedPort {
    fn new() -> Option<SharedPort> {
        let maps = Maps::new()
            .inspect_err(|e| {
                // Written past the test harness, which shows no output of tests that pass.
                let _ = writeln!(std::io::stderr(), "LEFT OUT: the programs of a shared port: bpf(2): {e}");
            })
            .ok()?;
        for number in CLIENTS {
            let client = Client { ifindex: 1_000_000 + number, ..Client::default() };
            maps.set_client(process(number), &client).unwrap();
        }
        maps.set_port(2_000_000, LOCAL_MAC, Some(process(WARDEN))).unwrap();
        maps.set_addresses(&[LOCAL_V4.into(), LOCAL_V6.into()]).unwrap();
        assert!(maps.claim(SERVICE, process(2)).unwrap());
        let load = |kind, code: &_| Program::load(kind, code).unwrap_or_else(|e| panic!("{e}"));
        Some(SharedPort {
            ingress: load(Kind::Xdp { fragments: true }, &ingress(&maps)),
            spread: load(Kind::Classifier, &spread(&maps)),
            egress: load(Kind::Classifier, &egress(&maps, process(SENDER))),
            maps,
        })
    }

    /// A port on which the clients with these numbers are members of groups.
    fn with_members(members: &[u32]) -> Option<SharedPort> {
        let port = SharedPort::new()?;
        port.maps.set_members(&members.iter().map(|&n| process(n)).collect::<Vec<_>>()).unwrap();
        Some(port)
    }

    fn client(&self, number: u32) -> Client {
        self.maps.client(process(number)).unwrap().unwrap()
    }

    /// The effect on a frame that arrives at an interface whose driver runs XDP. Without XDP the effect is the same, except that copies for
    /// groups are made at once.
    fn receive(&self, frame: &[u8]) -> Outcome {
        let outcome = self.run(&self.ingress, frame);
        let verdict = match outcome.verdict {
            XDP_REDIRECT => TC_ACT_REDIRECT,
            XDP_DROP => TC_ACT_SHOT,
            _ => return outcome,
        };
        let without_xdp = self.run(&self.spread, frame);
        assert_eq!(without_xdp, Outcome { verdict, receivers: outcome.receivers.clone(), ..outcome }, "{frame:x?}");
        outcome
    }

    fn run(&self, program: &Program, frame: &[u8]) -> Outcome {
        let counts = || CLIENTS.map(|n| (self.client(n).rx_frames, self.client(n).rx_bytes));
        let (before, nobody_before) = (counts(), self.maps.port().unwrap().nobody);
        let verdict = program.test_run(frame).unwrap();
        let mut receivers = Vec::new();
        for ((number, before), after) in CLIENTS.into_iter().zip(before).zip(counts()) {
            let frames = after.0 - before.0;
            assert_eq!(after.1 - before.1, frames * frame.len() as u64, "bytes of {number}");
            receivers.extend((0..frames).map(|_| number));
        }
        Outcome { verdict, receivers, nobody: self.maps.port().unwrap().nobody != nobody_before }
    }
}

/// The effect on a frame for one client.
fn to(verdict: u32, receiver: u32) -> Outcome {
    Outcome { verdict, receivers: vec![receiver], nobody: false }
}

/// The effect on a frame that no client gets.
fn only(verdict: u32) -> Outcome {
    Outcome { verdict, receivers: vec![], nobody: false }
}

/// The effect on a frame without an addressee.
fn for_nobody(verdict: u32) -> Outcome {
    Outcome { nobody: true, ..only(verdict) }
}
