//! Where the suite runs: on an interface of a network namespace that is made for it, or, without root, on a wire in memory. Tests of two processes
//! run on a network in memory.

use std::path::Path;
use std::process::Command;

use crate::guest::{Error, Space};

const INTERFACES: [&str; 2] = ["v0", "v1"];
const ADDRESSES: [&str; 2] = ["10.79.0.1/24", "fd00:79::1/64"];
/// Path MTU 4096 with every header.
const MTU: u32 = 4200;

/// Modules whose tests fork two processes, each of which opens the device.
const OF_TWO_PROCESSES: [&str; 1] = ["test_rdmacm"];

/// The device's place; gone when it is dropped.
pub(super) enum Place {
    /// Two NICs joined in memory, of which one talks to itself.
    Memory,
    /// AF_XDP on a veth, whose other end is in a namespace of its own.
    Veth([Space; 2]),
}

impl Place {
    pub(super) fn veth() -> Result<Place, Error> {
        let spaces = [Space::new("pyverbs-a")?, Space::new("pyverbs-b")?];
        let [a, b] = INTERFACES;
        spaces[0].ip(&format!("link add {a} type veth peer name {b} netns {}", spaces[1].name()))?;
        for (space, interface) in spaces.iter().zip(INTERFACES) {
            // No address that comes some seconds later, when tests run.
            space.ip(&format!("link set {interface} addrgenmode none"))?;
            space.ip(&format!("link set {interface} mtu {MTU} up"))?;
        }
        for address in ADDRESSES {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            spaces[0].ip(&format!("address add {address} dev {a} {nodad}"))?;
        }
        // Tests of two processes are at home in the second one.
        spaces[1].ip("link set lo up")?;
        Ok(Place::Veth(spaces))
    }

    /// What the table calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Place::Memory => "a wire in memory",
            Place::Veth(_) => "AF_XDP",
        }
    }

    /// `softnic run` there for the tests of a module, without the program.
    pub(super) fn command(&self, module: &str, softnic: &Path) -> Command {
        let shared = OF_TWO_PROCESSES.contains(&module);
        let (mut command, device) = match self {
            Place::Memory => (Command::new(softnic), "mem".into()),
            Place::Veth(spaces) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", spaces[usize::from(shared)].name()]).arg(softnic);
                (command, format!("afxdp:{}", INTERFACES[0]))
            }
        };
        command.args(["run", "--dev", if shared { "shm" } else { &device }, "--"]);
        command
    }
}
