//! Bugs planted on purpose, to test that the swarm finds them (`cargo xtask soak --self-test`).
//!
//! Without the feature `planted-bugs`, which no released build has, [`planted`] is `false` and everything compiles to nothing.

#[cfg(feature = "planted-bugs")]
use std::sync::atomic::{AtomicU8, Ordering};

macro_rules! bugs {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal,)+) => {
        /// A planted bug, described by its effect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])+ $variant,)+
        }

        impl Bug {
            /// All planted bugs.
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
    /// A packet that arrives while an answer is pending is acknowledged but not placed.
    AckWithoutPlacing = "ack-without-placing",
    /// An atomic whose answer was lost is executed again.
    AtomicTwice = "atomic-twice",
    /// The number of stored atomic answers is one less than the number that the peer may request again.
    AtomicForgotten = "atomic-answer-forgotten",
    /// After the last PSN the responder expects PSN 1.
    PsnWrap = "psn-wrap-off-by-one",
    /// Now and then a send completes without a completion.
    CompletionLost = "completion-lost",
    /// A completion that is added to a non-empty queue is added twice.
    CompletionTwice = "completion-twice",
    /// A completion raises no event if another one is pending.
    EventLost = "completion-event-lost",
    /// An access may end one byte past its region or window.
    BoundsOffByOne = "bounds-off-by-one",
    /// A read-only region can be written.
    RightUnchecked = "rights-unchecked",
    /// A region is accessible from every protection domain.
    DomainUnchecked = "protection-domain-unchecked",
    /// A window is found by its old keys.
    StaleKey = "stale-key-accepted",
    /// A window of type 2B is accessible through every queue pair.
    WindowOfAnother = "window-through-another-qp",
    /// SEND with invalidate does not invalidate the window.
    InvalidateForgotten = "invalidate-forgotten",
    /// A plain acknowledgement completes a READ whose data has not arrived.
    ReadWithoutData = "read-without-data",
    /// A repeated WRITE is written again.
    WriteAgain = "write-carried-out-again",
    /// A retransmission after a timeout starts one packet too late.
    ResendsTooLate = "go-back-n-one-too-late",
    /// The ACK timer is not restarted for packets that are still unanswered.
    ClockStops = "clock-not-started-again",
    /// A fence does not wait for READs and atomics.
    FenceIgnored = "fence-ignored",
    /// A drained send queue starts new messages.
    DrainedBegins = "sqd-begins-a-message",
    /// A packet after a gap continues the message of an unreliable connection.
    UcMixes = "uc-mixes-messages",
    /// Now and then two shared receives are taken for one message.
    SharedReceiveLost = "shared-receive-lost",
    /// The first member of a group receives its datagrams twice.
    DatagramTwice = "datagram-twice",
    /// Damaged packets are accepted.
    IcrcUnchecked = "icrc-unchecked",
    /// A message that found no receive is recorded as started.
    RnrForgotten = "rnr-not-taken-back",
    /// A queue pair that is reset in the middle of a message continues that message.
    ResetForgotten = "reset-keeps-half-a-message",
    /// A message of several packets raises no event when its sender requested one.
    SolicitedLost = "solicited-bit-lost",
    /// Selective Repeat: a packet of a WRITE that arrives early is counted but not placed.
    SrNotPlaced = "sr-early-not-placed",
    /// Selective Repeat: a READ or atomic is executed when it arrives, even if earlier packets are missing.
    SrDataEarly = "sr-data-before-its-turn",
    /// Selective Repeat: a receive completes when its message is complete, even if earlier packets are missing.
    SrCompletesEarly = "sr-receive-before-its-turn",
    /// Selective Repeat: a repeated atomic is executed again.
    SrAtomicAgain = "sr-atomic-twice",
    /// Selective Repeat: a retransmitted packet counts as arrived, and its loss is not detected.
    SrResentOnce = "sr-lost-retransmission-unnoticed",
    /// Selective Repeat: when all packets have arrived, the requester does not ask whether they were executed.
    SrNotAsked = "sr-last-word-not-asked-for",
    /// Selective Repeat: a message that arrives early takes the receive of an earlier message.
    SrWrongReceive = "sr-early-send-in-the-wrong-receive",
    /// LoWAR: a packet is recovered from other packets than those that were summed, and its ICRC is correct nevertheless.
    LowarDigest = "lowar-digest-unchecked",
    /// LoWAR: a packet in the reordering ring that was overrun by another one is still taken for the original packet.
    LowarOverrun = "lowar-overrun-unnoticed",
    /// LoWAR: packets older than the newest one count as arrived, even if they are sent again because they were lost or rejected.
    LowarSwallowed = "lowar-again-is-swallowed",
    /// LoWAR: a destroyed queue pair keeps the coding units of its second block.
    LowarUnitsKept = "lowar-units-not-given-back",
    /// LoWAR: packets that were given up stay in the reordering ring.
    LowarRingKept = "lowar-ring-not-emptied",
    /// XP: a packet of a message that has ended is placed.
    XpLatePlaced = "xp-late-placed",
    /// XP: now and then a message takes one receive too many.
    XpReceiveSkipped = "xp-receive-skipped",
    /// XP: a strided WRITE is placed one run too late.
    XpStrideOffByARun = "xp-stride-off-by-a-run",
    /// XP: a deadline also ends the following receive.
    XpDeadlineOfAnother = "xp-deadline-of-another",
    /// XP: a duplicate packet is counted twice, although there is a bitmap.
    XpCountedTwice = "xp-counted-twice",
    /// XP: message numbers do not wrap around.
    XpWrap = "xp-number-wrap",
    /// SDR: the bit of a chunk is set one packet before the chunk is complete.
    SdrBitEarly = "sdr-bit-before-payload",
    /// SDR: all generations share one root key.
    SdrSharedKey = "sdr-root-key-shared",
    /// SDR: a packet counts whatever the generation of its queue pair is.
    SdrGenerationUnchecked = "sdr-generation-unchecked",
    /// SDR: the slot of a completed receive is emptied only when the next receive is posted there.
    SdrSlotEmptiedLate = "sdr-slot-emptied-too-late",
    /// SDR: a repeated CTS counts again.
    SdrCtsTwice = "sdr-cts-counted-twice",
    /// SDR: the pieces of an immediate are assembled one position off.
    SdrPieceMisplaced = "sdr-piece-in-the-wrong-place",
    /// Reliable messages over SDR: the first of 64 chunks is acknowledged with the others, even if it is missing.
    SdrAckEarly = "sdr-ack-before-chunk",
    /// Reliable messages over SDR: lost chunks are computed from the parity rows after the right ones.
    SdrWrongRow = "sdr-wrong-row-decoded",
    /// Reliable messages over SDR: each further parity row is the one before the right one.
    SdrWrongFurtherRow = "sdr-wrong-further-row",
    /// Reliable messages over SDR: parity contains that of an earlier submessage.
    SdrParityOfAnother = "sdr-parity-of-another",
    /// Reliable messages over SDR: the timer of a retransmitted chunk does not run.
    SdrTimerNotRestarted = "sdr-timer-not-restarted",
    /// Reliable messages over SDR: the acknowledgement of a complete message is not repeated when it was lost.
    SdrFinalAckForgotten = "sdr-final-ack-forgotten",
    /// Reliable messages over SDR: recovered chunks are written again after the receive has completed.
    SdrDecodedLate = "sdr-decoded-after-completion",
    /// Failover: receives are counted while the side that is left still receives.
    ShiftCounterEarly = "shift-counter-read-too-early",
    /// Failover: keys of the default NIC are used at the backup.
    ShiftKeys = "shift-keys-not-translated",
    /// Failover: a status that was already read counts again.
    ShiftTwice = "shift-handshake-taken-twice",
    /// Failover: the default side is used again before all sends at the backup have completed.
    ShiftFence = "shift-fence-not-waited-for",
    /// Failover: sends after the fence leave by the default side at once.
    ShiftDoorbell = "shift-doorbell-not-withheld",
    /// Failover: a completion of the backup's queue pair has the backup's queue pair number.
    ShiftQpn = "shift-completion-of-the-backup",
    /// Failover: a reconnected queue pair starts with the PSN of its first connection.
    ShiftOldPsns = "shift-old-psns-again",
    /// Collectives: now and then the data of a message is not added to the buffer.
    CollectiveStepSkipped = "collective-step-skipped",
    /// Collectives: bytes that did not arrive are read from where they would have been placed.
    CollectiveStaleBytes = "collective-stale-bytes",
    /// Collectives: a message has the deadline of the following phase.
    CollectiveDeadlineOfAnother = "collective-deadline-of-another-phase",
    /// Collectives: an observation is recorded for whichever collective was called first.
    CollectiveMedianOfAnother = "collective-median-of-another",
    /// EQDS: a sender counts new credit twice.
    EqdsCountedTwice = "eqds-credit-counted-twice",
    /// EQDS: credit is granted at once, whatever the time of the turn is.
    EqdsUnpaced = "eqds-credit-without-a-turn",
    /// Swift: every answer above the target cuts the window.
    SwiftCutsAgain = "swift-cuts-more-than-once-a-round-trip",
    /// XP: feedback counts for the newest packet that requested some, whichever packet it names.
    XpFeedbackOfAnother = "xp-feedback-of-another",
    /// Shared ports: a NIC is found by one bit too few of a queue pair number.
    SharedPortBit = "shared-port-one-bit-short",
    /// Shared ports: negotiation MADs go to the first NIC, whichever owns the queue pair.
    SharedNegotiation = "shared-negotiation-to-the-first",
}

/// The planted bug, by its index in [`Bug::ALL`] plus one.
#[cfg(feature = "planted-bugs")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in this process, or removes it.
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
