//! Counters of a wire, for each direction.

/// One direction. What came in, and the copies made of it, have ended in one of these: `tx_frames`, `fault_lost`, `queue_full`,
/// `overflowed`, `too_long`, `unsegmented`, `under_way`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came in.
    pub rx_frames: u64,
    /// Their bytes, from Ethernet on.
    pub rx_bytes: u64,
    /// Those of them that are RoCE packets.
    pub roce_frames: u64,
    /// Frames that were put into the other interface's ring.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that the SPEC lost: by chance, by a script, or because the link was down.
    pub fault_lost: u64,
    /// Frames that found the bottleneck's queue full.
    pub queue_full: u64,
    /// Frames that found no room to be kept in: more were under way than we hold.
    pub overflowed: u64,
    /// Frames that went on with a copy behind them.
    pub duplicated: u64,
    /// Frames that went on with a bit flipped.
    pub corrupted: u64,
    /// Frames that were held until later ones had passed.
    pub reordered: u64,
    /// Frames that came while the link was stalled, and were held until its end.
    pub stalled: u64,
    /// Frames that an event of a script made later.
    pub delayed: u64,
    /// Frames that were marked: congestion experienced.
    pub marked: u64,
    /// Frames that are on their way or held at the moment.
    pub under_way: u64,
    /// TCP and UDP checksums that were partial and were completed.
    pub checksums_completed: u64,
    /// Frames that are longer than the other interface's MTU allows: dropped.
    pub too_long: u64,
    /// Frames longer than the MTU of the interface that they came by, which a sender left to be segmented: dropped. Those too long
    /// for our memory are dropped by the kernel, and not among `rx_frames`.
    pub unsegmented: u64,
    /// Frames that the kernel dropped because the ring that we read was full, or had no memory left; not among `rx_frames`.
    pub rx_missed: u64,
    /// Those of `tx_frames` that the other interface refused, its own queue being full.
    pub tx_refused: u64,
}

impl Counters {
    /// Frames that were lost on purpose: by faults, and at the full queue of a bottleneck.
    pub fn injected_loss(&self) -> u64 {
        self.fault_lost + self.queue_full
    }

    /// Frames that the wire itself did not carry, though nobody asked for that: what was measured over it is invalid.
    pub fn own_drops(&self) -> u64 {
        self.overflowed + self.too_long + self.unsegmented + self.rx_missed + self.tx_refused
    }

    /// Names and values, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("rx_frames", self.rx_frames),
            ("rx_bytes", self.rx_bytes),
            ("roce_frames", self.roce_frames),
            ("tx_frames", self.tx_frames),
            ("tx_bytes", self.tx_bytes),
            ("fault_lost", self.fault_lost),
            ("queue_full", self.queue_full),
            ("overflowed", self.overflowed),
            ("duplicated", self.duplicated),
            ("corrupted", self.corrupted),
            ("reordered", self.reordered),
            ("stalled", self.stalled),
            ("delayed", self.delayed),
            ("marked", self.marked),
            ("under_way", self.under_way),
            ("checksums_completed", self.checksums_completed),
            ("too_long", self.too_long),
            ("unsegmented", self.unsegmented),
            ("rx_missed", self.rx_missed),
            ("tx_refused", self.tx_refused),
        ]
        .into_iter()
    }
}

/// How long frames stayed: from the receive ring of one interface to the transmit ring of the other. Only those that nothing
/// held back; in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Residence {
    /// So many were measured.
    pub frames: u64,
    /// Half of them took no longer.
    pub p50: u64,
    /// 99 of 100 took no longer.
    pub p99: u64,
    /// 999 of 1000 took no longer.
    pub p999: u64,
    /// None took longer.
    pub max: u64,
}
