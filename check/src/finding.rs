//! What the model says: findings, of which each has a kind and a place in the program.

use std::fmt;
use std::sync::Arc;

/// How bad a finding is, from the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Misuse by the rules of verbs.
    Error,
    /// Works here, now; on another NIC, or at another time, it may not.
    Warning,
    /// What is left at the end of the process.
    Note,
}

impl Severity {
    /// Its name, as in a report.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }

    /// The severity with this name.
    pub fn named(name: &str) -> Option<Severity> {
        [Severity::Error, Severity::Warning, Severity::Note].into_iter().find(|s| s.name() == name)
    }
}

/// Kinds of findings: each with its name and one line that says what it is.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $severity:ident, $title:literal;)*) => {
        /// What is wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),*];

            /// The name of the kind, as reports and suppressions have it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }

            /// The severity that a finding of the kind has, if nothing is known that makes it a lesser one.
            pub fn severity(self) -> Severity {
                match self {
                    $(Kind::$kind => Severity::$severity,)*
                }
            }

            /// What findings of the kind have in common.
            pub fn title(self) -> &'static str {
                match self {
                    $(Kind::$kind => $title,)*
                }
            }
        }
    };
}

kinds! {
    /// A post in RESET, INIT or RTR.
    PostInWrongState = "post-in-wrong-state", Error, "work posted in a state that takes none";
    /// The checksum of a send buffer differs at its completion.
    SendBufferChanged = "send-buffer-changed", Error, "a send buffer that changed between post and completion";
    /// Two outstanding receives for the same bytes.
    ReceiveOverlap = "receive-overlap", Warning, "two posted receives for the same memory";
    /// A key that no region has.
    SgeUnknownKey = "sge-unknown-key", Error, "a scatter/gather element with a key of no region";
    /// An element that reaches beyond its region.
    SgeOutsideRegion = "sge-outside-region", Error, "a scatter/gather element outside its region";
    /// An element of another protection domain.
    SgeOtherDomain = "sge-other-domain", Error, "a scatter/gather element of another protection domain";
    /// An element that the NIC must write, in a region that it may not.
    SgeNotWritable = "sge-not-writable", Error, "a buffer to be written in a region without IBV_ACCESS_LOCAL_WRITE";
    /// A region that goes under outstanding work.
    RegionInUse = "region-in-use", Error, "a region deregistered under outstanding work";
    /// More signaled work than the completion queue holds.
    CompletionQueueTooSmall = "completion-queue-too-small", Error, "more signaled work than a completion queue holds";
    /// A full send queue without signaled work.
    SendQueueStuck = "send-queue-stuck", Error, "a send queue filled by unsignaled work";
    /// More outstanding sends than the queue holds.
    SendQueueOverrun = "send-queue-overrun", Warning, "more outstanding sends than the send queue was said to hold";
    /// Signaled work, and nobody who polls.
    CompletionsNotPolled = "completions-not-polled", Warning, "signaled work on a completion queue that is never polled";
    /// The target of an outstanding READ or atomic is sent.
    ResultNotAwaited = "result-not-awaited", Error, "the result of a READ or atomic sent before it is there";
    /// An atomic at an address that is no multiple of 8.
    AtomicNotAligned = "atomic-not-aligned", Error, "an atomic at an address that is no multiple of 8";
    /// A receive for datagrams with no room for their 40 bytes.
    DatagramReceiveTooShort = "datagram-receive-too-short", Error, "a receive for datagrams without room for the 40 bytes before them";
    /// A remote access error for a key that was deregistered.
    StaleRkey = "stale-rkey", Error, "remote access with an rkey of a region that is gone";
    /// A SEND that waits for a receive for ever.
    ReceiverNeverReady = "receiver-never-ready", Warning, "a SEND that no receive came for, with rnr_retry 7 (no limit)";
    /// A queue pair that never sends again.
    TimeoutZero = "timeout-zero", Warning, "a queue pair with timeout 0: nothing that is lost is sent again";
    /// A READ or atomic where none may be outstanding.
    ReadDepthZero = "read-depth-zero", Error, "a READ or atomic on a queue pair with max_rd_atomic 0";
    /// A mask that the kernel refuses.
    AttributeMask = "attribute-mask", Warning, "attributes of ibv_modify_qp that the kernel refuses";
    /// More than a ConnectX has.
    BeyondConnectX = "beyond-connectx", Warning, "what a ConnectX does not have";
    /// An event that its object waits for.
    EventNotAcknowledged = "event-not-acknowledged", Warning, "an event that was taken and not acknowledged";
    /// An object at the end of the process.
    Leak = "leak", Note, "an object that is left at the end";
}

impl Kind {
    /// The kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Return addresses of a call, the innermost first: numbers that the model only hands on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stack(Arc<[u64]>);

impl Stack {
    /// Of these addresses.
    pub fn new(addresses: &[u64]) -> Stack {
        Stack(addresses.into())
    }

    /// The addresses.
    pub fn addresses(&self) -> &[u64] {
        &self.0
    }
}

/// Where in the program a call is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What findings are told apart by.
    pub site: u64,
    /// The whole stack.
    pub stack: Stack,
}

impl Place {
    /// Of these addresses, of which the first is the site.
    pub fn new(addresses: &[u64]) -> Place {
        Place { site: addresses.first().copied().unwrap_or(0), stack: Stack::new(addresses) }
    }
}

/// A queue pair, as people know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairName {
    /// Its number.
    pub number: u32,
    /// The how manieth of the process it is, from 1 on.
    pub order: u32,
}

/// Something wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// How bad.
    pub severity: Severity,
    /// One line.
    pub message: String,
    /// The queue pair that it is about.
    pub queue_pair: Option<QueuePairName>,
    /// The work request that it is about.
    pub wr_id: Option<u64>,
    /// The call that is wrong; at the end of the process there is none.
    pub stack: Option<Stack>,
    /// Where the object that it is about was made.
    pub made: Option<Stack>,
    /// What else there is to look at: what it is, and where.
    pub related: Option<(&'static str, Stack)>,
}
