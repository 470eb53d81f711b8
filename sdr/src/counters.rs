//! What an SDR queue pair counts, and the names that a NIC has for it.

use softnic_nic::transports::Counters as NicCounters;

use crate::reliable::ReliableCounters;

/// Counters of an SDR queue pair, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that were placed.
    pub packets: u64,
    /// Late packets of messages that were completed, into slots that point nowhere.
    pub into_null: u64,
    /// Late packets of messages whose slot serves a later one.
    pub old_generation: u64,
    /// Packets that had come before.
    pub duplicates: u64,
    /// Packets that cannot be of what is posted, and control messages that say what cannot be.
    pub rejected: u64,
    /// Control messages that told of receives.
    pub cts_sent: u64,
    /// Those of them that said nothing new.
    pub cts_repeated: u64,
    /// Control messages that asked for one.
    pub asks_sent: u64,
}

/// How far an SDR queue pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Receives that were posted since the beginning.
    pub posted: u64,
    /// Sends that were started.
    pub started: u64,
    /// Receives that the peer has posted, as far as it is known here.
    pub cleared: u64,
}

impl Counters {
    /// Adds another's.
    pub fn add(&mut self, other: &Counters) {
        self.packets += other.packets;
        self.into_null += other.into_null;
        self.old_generation += other.old_generation;
        self.duplicates += other.duplicates;
        self.rejected += other.rejected;
        self.cts_sent += other.cts_sent;
        self.cts_repeated += other.cts_repeated;
        self.asks_sent += other.asks_sent;
    }

    /// Adds what was counted since `before` to the counters of a NIC.
    pub(crate) fn add_since(&self, before: &Counters, all: &mut NicCounters) {
        all.sdr_packets += self.packets - before.packets;
        all.sdr_into_null += self.into_null - before.into_null;
        all.sdr_old_generation += self.old_generation - before.old_generation;
        all.sdr_duplicates += self.duplicates - before.duplicates;
        all.sdr_rejected += self.rejected - before.rejected;
        all.sdr_cts_sent += self.cts_sent - before.cts_sent;
        all.sdr_cts_repeated += self.cts_repeated - before.cts_repeated;
        all.sdr_asks_sent += self.asks_sent - before.asks_sent;
    }

    /// Late packets of all kinds.
    pub fn late(&self) -> u64 {
        self.into_null + self.old_generation
    }
}

impl ReliableCounters {
    /// Adds what was counted since `before` to the counters of a NIC.
    pub(crate) fn add_since(&self, before: &ReliableCounters, all: &mut NicCounters) {
        macro_rules! add {
            ($($field:ident => $name:ident,)*) => {
                // All of them: a new one is to have a name, too.
                let ReliableCounters { $($field),* } = *self;
                $(all.$name += $field - before.$field;)*
            };
        }
        add! {
            chunks_sent => sdr_chunks_sent,
            chunks_repeated => sdr_chunks_repeated,
            packets_repeated => sdr_retransmitted_packets,
            timeouts => sdr_chunk_timeouts,
            chunks_asked_for => sdr_chunks_asked_for,
            rows_asked_for => sdr_rows_asked_for,
            parity_packets => sdr_repair_packets,
            chunks_recovered => sdr_chunks_recovered,
            packets_recovered => sdr_recovered_packets,
            fallbacks => sdr_fallbacks,
            failed_submessages => sdr_failed_submessages,
            unprotected => sdr_unprotected_submessages,
            decode_ns => sdr_decode_ns,
            acks_sent => sdr_acks_sent,
            nacks_sent => sdr_nacks_sent,
            rejected => sdr_rejected_reports,
        }
    }
}
