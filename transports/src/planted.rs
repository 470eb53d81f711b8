//! Bugs that are planted on purpose, to see that the swarm finds them (`cargo xtask soak --self-test`).
//!
//! Without the feature `planted-bugs`, which no build has that anybody uses, [`planted`] is `false` and all of it compiles to
//! nothing.

#[cfg(feature = "planted-bugs")]
use std::sync::atomic::{AtomicU8, Ordering};

macro_rules! bugs {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal,)+) => {
        /// A bug, by what it does wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])+ $variant,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$variant,)+];

            /// The name of the bug in `soak --self-test`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$variant => $name,)+
                }
            }
        }
    };
}

bugs! {
    /// A packet that comes while an answer waits is acknowledged and not placed.
    AckWithoutPlacing = "ack-without-placing",
    /// An atomic whose answer was lost is carried out again.
    AtomicTwice = "atomic-twice",
    /// One answer of an atomic fewer is kept than the peer may ask for again.
    AtomicForgotten = "atomic-answer-forgotten",
    /// After the last PSN the responder expects 1.
    PsnWrap = "psn-wrap-off-by-one",
    /// Now and then a send is done and says nothing.
    CompletionLost = "completion-lost",
    /// A completion that finds others waiting is there twice.
    CompletionTwice = "completion-twice",
    /// A completion raises no event when one is waiting already.
    EventLost = "completion-event-lost",
    /// An access may end a byte behind its region or window.
    BoundsOffByOne = "bounds-off-by-one",
    /// A region that may only be read is written to.
    RightUnchecked = "rights-unchecked",
    /// A region serves every protection domain.
    DomainUnchecked = "protection-domain-unchecked",
    /// A window is found by the keys of old.
    StaleKey = "stale-key-accepted",
    /// A window of type 2B serves every queue pair.
    WindowOfAnother = "window-through-another-qp",
    /// SEND with invalidate leaves the window as it is.
    InvalidateForgotten = "invalidate-forgotten",
    /// A plain acknowledgement completes a READ whose data did not come.
    ReadWithoutData = "read-without-data",
    /// A WRITE that comes again is written again.
    WriteAgain = "write-carried-out-again",
    /// A retransmission after a timeout begins one packet too late.
    ResendsTooLate = "go-back-n-one-too-late",
    /// The clock is not started again for what is still unanswered.
    ClockStops = "clock-not-started-again",
    /// A fence does not wait for READs and atomics.
    FenceIgnored = "fence-ignored",
    /// A send queue that is drained begins new messages.
    DrainedBegins = "sqd-begins-a-message",
    /// A packet behind a gap continues the message of an unreliable connection.
    UcMixes = "uc-mixes-messages",
    /// Now and then two shared receives are taken for one message.
    SharedReceiveLost = "shared-receive-lost",
    /// The first member of a group gets its datagrams twice.
    DatagramTwice = "datagram-twice",
    /// Damaged packets are taken.
    IcrcUnchecked = "icrc-unchecked",
    /// A message that found no receive is remembered as begun.
    RnrForgotten = "rnr-not-taken-back",
    /// A queue pair that is reset in the middle of a message goes on with it.
    ResetForgotten = "reset-keeps-half-a-message",
    /// A message of several packets raises no event when its sender asked for one.
    SolicitedLost = "solicited-bit-lost",
    /// Selective Repeat: a packet of a WRITE that comes early counts as come and is not placed.
    SrNotPlaced = "sr-early-not-placed",
    /// Selective Repeat: a READ or atomic is carried out when it comes, whatever is missing before it.
    SrDataEarly = "sr-data-before-its-turn",
    /// Selective Repeat: a receive completes when its message is whole, whatever is missing before it.
    SrCompletesEarly = "sr-receive-before-its-turn",
    /// Selective Repeat: an atomic that comes again is carried out again.
    SrAtomicAgain = "sr-atomic-twice",
    /// Selective Repeat: what was sent again counts as come, and its loss is not noticed.
    SrResentOnce = "sr-lost-retransmission-unnoticed",
    /// Selective Repeat: when all has come nobody asks whether it was carried out.
    SrNotAsked = "sr-last-word-not-asked-for",
    /// Selective Repeat: a message that comes early takes the receive whose turn it is.
    SrWrongReceive = "sr-early-send-in-the-wrong-receive",
    /// LoWAR: a packet is recovered of others than those that were added up, and its ICRC is right all the same.
    LowarDigest = "lowar-digest-unchecked",
    /// LoWAR: a packet of the reordering ring that another one has overrun is taken for the one that stood there.
    LowarOverrun = "lowar-overrun-unnoticed",
    /// LoWAR: what is older than the newest packet counts as come, also when it is sent again because it was lost or turned away.
    LowarSwallowed = "lowar-again-is-swallowed",
    /// LoWAR: a queue pair that is gone keeps the coding units of its second block.
    LowarUnitsKept = "lowar-units-not-given-back",
    /// LoWAR: what is given up stays in the reordering ring.
    LowarRingKept = "lowar-ring-not-emptied",
    /// XP: a packet of a message that is over is placed.
    XpLatePlaced = "xp-late-placed",
    /// XP: now and then a message takes one receive too many.
    XpReceiveSkipped = "xp-receive-skipped",
    /// XP: a strided WRITE lands one run behind where it belongs.
    XpStrideOffByARun = "xp-stride-off-by-a-run",
    /// XP: a deadline ends the receive behind it, too.
    XpDeadlineOfAnother = "xp-deadline-of-another",
    /// XP: a packet that comes twice is counted twice, although there is a bitmap.
    XpCountedTwice = "xp-counted-twice",
    /// XP: message numbers do not count round.
    XpWrap = "xp-number-wrap",
    /// SDR: the bit of a chunk is set one packet before the chunk is whole.
    SdrBitEarly = "sdr-bit-before-payload",
    /// SDR: all generations have one root key.
    SdrSharedKey = "sdr-root-key-shared",
    /// SDR: a packet counts whichever generation its queue pair is of.
    SdrGenerationUnchecked = "sdr-generation-unchecked",
    /// SDR: the slot of a receive that is completed is emptied when the next one is posted there.
    SdrSlotEmptiedLate = "sdr-slot-emptied-too-late",
    /// SDR: a CTS that comes again counts again.
    SdrCtsTwice = "sdr-cts-counted-twice",
    /// SDR: the pieces of an immediate are put together one place off.
    SdrPieceMisplaced = "sdr-piece-in-the-wrong-place",
    /// Reliable messages over SDR: the first of 64 chunks is acknowledged with the others, whether it is there or not.
    SdrAckEarly = "sdr-ack-before-chunk",
    /// Reliable messages over SDR: lost chunks are computed from the rows of parity behind the right ones.
    SdrWrongRow = "sdr-wrong-row-decoded",
    /// Reliable messages over SDR: of further rows of parity each is the one before the right one.
    SdrWrongFurtherRow = "sdr-wrong-further-row",
    /// Reliable messages over SDR: parity has that of an earlier submessage in it.
    SdrParityOfAnother = "sdr-parity-of-another",
    /// Reliable messages over SDR: the timer of a chunk that is sent again does not run.
    SdrTimerNotRestarted = "sdr-timer-not-restarted",
    /// Reliable messages over SDR: the acknowledgement of a whole message is not given again when it was lost.
    SdrFinalAckForgotten = "sdr-final-ack-forgotten",
    /// Reliable messages over SDR: chunks that were computed are written again after the receive was completed.
    SdrDecodedLate = "sdr-decoded-after-completion",
    /// Failover: receives are counted while the side that is left still receives.
    ShiftCounterEarly = "shift-counter-read-too-early",
    /// Failover: keys of the default are used at the backup.
    ShiftKeys = "shift-keys-not-translated",
    /// Failover: a status that was read counts again.
    ShiftTwice = "shift-handshake-taken-twice",
    /// Failover: the default is used again before all has completed that went by the backup.
    ShiftFence = "shift-fence-not-waited-for",
    /// Failover: what follows the fence leaves by the default at once.
    ShiftDoorbell = "shift-doorbell-not-withheld",
    /// Failover: a completion of the backup's queue pair has its number.
    ShiftQpn = "shift-completion-of-the-backup",
    /// Failover: a queue pair that is connected anew begins with the PSN of its first life.
    ShiftOldPsns = "shift-old-psns-again",
    /// Collectives: now and then what a message brings is not taken into the buffer.
    CollectiveStepSkipped = "collective-step-skipped",
    /// Collectives: bytes that did not come are taken from where they would have landed.
    CollectiveStaleBytes = "collective-stale-bytes",
    /// Collectives: a message has the deadline of the phase behind its own.
    CollectiveDeadlineOfAnother = "collective-deadline-of-another-phase",
    /// Collectives: what was needed is noted for whichever collective was called first.
    CollectiveMedianOfAnother = "collective-median-of-another",
    /// EQDS: a sender counts credit that is new twice.
    EqdsCountedTwice = "eqds-credit-counted-twice",
    /// EQDS: credit is granted at once, whenever the turn would be.
    EqdsUnpaced = "eqds-credit-without-a-turn",
    /// Swift: every answer above the target cuts the window.
    SwiftCutsAgain = "swift-cuts-more-than-once-a-round-trip",
    /// XP: feedback counts for the newest packet that asked for some, whichever it names.
    XpFeedbackOfAnother = "xp-feedback-of-another",
    /// Shared ports: a NIC is found by one bit too few of a queue pair's number.
    SharedPortBit = "shared-port-one-bit-short",
    /// Shared ports: what is negotiated goes to the first NIC, whichever has the queue pair.
    SharedNegotiation = "shared-negotiation-to-the-first",
}

/// The bug that is planted, by its place in [`Bug::ALL`] plus one.
#[cfg(feature = "planted-bugs")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in this process, or none.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |b| b as u8 + 1), Ordering::Relaxed);
}

/// Whether this bug is planted.
#[cfg(feature = "planted-bugs")]
#[inline]
pub fn planted(bug: Bug) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as u8 + 1
}

/// Whether this bug is planted: never.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}
