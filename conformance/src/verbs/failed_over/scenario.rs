//! A scenario of failover: a program, what fails under it, and what it must see of that.

use crate::verbs::tools::Case;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Initiator,
    Responder,
}

impl Whose {
    pub(super) const BOTH: [Whose; 2] = [Whose::Initiator, Whose::Responder];

    fn name(self) -> &'static str {
        match self {
            Whose::Initiator => "initiator",
            Whose::Responder => "responder",
        }
    }

    pub(super) fn other(self) -> Whose {
        match self {
            Whose::Initiator => Whose::Responder,
            Whose::Responder => Whose::Initiator,
        }
    }

    /// Its place in pairs of server and client.
    pub(super) fn index(self) -> usize {
        match self {
            Whose::Responder => 0,
            Whose::Initiator => 1,
        }
    }
}

/// What happens to the default path while the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    Nothing,
    /// The same, and the peer is Linux Soft-RoCE in a virtual machine.
    SoftRoce,
    /// `ip link set down`, later `up`. Of a veth pair both ends lose the carrier.
    Down(Whose),
    /// The same at both hosts at once, with a bridge between them.
    DownAtBoth,
    /// Down and up, several times in a row.
    Flapping(Whose),
    /// `ip link del`, with a bridge between the hosts: the other one keeps its link.
    Deleted(Whose),
    /// The same of a veth pair: both interfaces are gone.
    BothDeleted,
    /// `softnic wire` in the middle gets these faults for a while. The links stay up, so only retries tell.
    Wire(&'static str),
    /// The link of one end goes down, and its program is killed so many milliseconds later.
    Killed(Whose, u64),
    /// Faults of the device of one end, with their times, as `softnic run --fault` has them.
    Nic(Whose, &'static str),
}

impl Trouble {
    pub(super) fn name(self) -> String {
        match self {
            Trouble::Nothing => "nothing fails".into(),
            Trouble::SoftRoce => "with Linux Soft-RoCE".into(),
            Trouble::Down(whose) => format!("link of the {}", whose.name()),
            Trouble::DownAtBoth => "links of both at once".into(),
            Trouble::Flapping(whose) => format!("flapping link of the {}", whose.name()),
            Trouble::Deleted(whose) => format!("interface of the {} deleted", whose.name()),
            Trouble::BothDeleted => "interfaces of both deleted".into(),
            Trouble::Wire(spec) => format!("wire with {spec}"),
            Trouble::Killed(whose, ms) => format!("{} killed {ms} ms after its link", whose.name()),
            Trouble::Nic(whose, spec) => format!("{spec} at the {}", whose.name()),
        }
    }

    /// What is between the default interfaces.
    pub(super) fn middle(self) -> Middle {
        match self {
            Trouble::Wire(_) => Middle::Wire,
            Trouble::DownAtBoth | Trouble::Deleted(_) => Middle::Bridge,
            _ => Middle::Cable,
        }
    }
}

/// What is between the default interfaces of both hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Middle {
    /// Nothing: they are a veth pair.
    Cable,
    /// A bridge of the kernel: each host has a link of its own.
    Bridge,
    /// `softnic wire`.
    Wire,
}

/// What programs must see of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// Nothing: the connection goes on by the backup, and returns.
    Returns,
    /// Nothing: the connection goes on by the backup, and stays there.
    Stays,
    /// The connection has no backup for this reason, which one line says, and the program does as ever.
    Unprotected(&'static str),
    /// The same, and the program ends in the error that it has without a backup.
    Ends(&'static str),
    /// The other end ends, too, in whatever way, and nothing is left of the one that was killed.
    SurvivorEnds,
}

/// A program, and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verbs) struct Scenario {
    /// Its `short` says whether every test run has it.
    pub(super) case: Case,
    pub(super) trouble: Trouble,
    pub(super) expected: Expected,
    /// Whether the server and the client are given a backup.
    pub(super) backups: [bool; 2],
    /// Both have the backup's interface as a second device: each backs the other.
    pub(super) mutual: bool,
}

impl Scenario {
    /// A program at two hosts with backups, which must not notice.
    pub(super) fn new(case: Case, trouble: Trouble) -> Scenario {
        let expected = match trouble {
            Trouble::Deleted(_) | Trouble::BothDeleted => Expected::Stays,
            Trouble::Killed(..) => Expected::SurvivorEnds,
            _ => Expected::Returns,
        };
        Scenario { case, trouble, expected, backups: [true; 2], mutual: false }
    }

    pub(in crate::verbs) fn name(&self) -> String {
        let backups = match self.backups {
            [true, true] if self.mutual => ", mutual",
            [true, true] => "",
            [false, true] => ", server without backup",
            [true, false] => ", client without backup",
            [false, false] => ", without backups",
        };
        format!("{} {}/{}{backups}", self.case.program, self.case.options, self.trouble.name())
    }

    pub(in crate::verbs) fn is_short(&self) -> bool {
        self.case.short
    }

    /// The faults of the device of the server (0) or the client (1), from their start on.
    pub(super) fn fault_of(&self, end: usize) -> Option<&'static str> {
        match self.trouble {
            Trouble::Nic(whose, spec) if whose.index() == end => Some(spec),
            _ => None,
        }
    }

    /// How many queue pairs its options ask for.
    pub(super) fn connections(&self) -> u64 {
        let mut words = self.case.options.split_whitespace().skip_while(|&word| word != "-q").skip(1);
        words.next().and_then(|count| count.parse().ok()).unwrap_or(1)
    }

    /// Whether the program runs until it is ended, and says every second how fast.
    pub(super) fn is_endless(&self) -> bool {
        self.case.options.contains("--run_infinitely")
    }
}
