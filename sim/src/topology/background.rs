//! Traffic in the background of a network, as data: which hosts send, when, and how much. `traffic` sends it.

mod draw;
mod traffic;

use std::time::Duration;

use softnic_fault_injector::bottleneck::wire_bytes;
use softnic_nic::transports::{Status, Transport};
use softnic_wire::PathMtu;

use super::Topology;
use crate::workload::Cc;

pub(super) use traffic::Traffic;

/// What a packet has beside its payload: Ethernet, IPv4, UDP, BTH, ICRC.
const AROUND: u64 = 14 + 20 + 8 + 12 + 4;
/// What the first packet of a WRITE has in addition.
const RETH: u64 = 16;

/// Bytes of a WRITE: longer messages are several.
const MAX_WRITE: u64 = 1 << 20;

/// Seeded WRITEs between hosts, posted when their time has come, whatever became of those before.
#[derive(Debug, Clone, PartialEq)]
pub struct Background {
    /// Hosts that send.
    pub from: Vec<usize>,
    /// Hosts that they send to. One is drawn for each burst, message or incast.
    pub to: Vec<usize>,
    /// What is posted when.
    pub pattern: Pattern,
    /// Part of the line's rate that is posted in the mean: of each sender's line, or of the receiver's in an incast. All that packets of UC
    /// have on the wire counts.
    pub share: f64,
    /// The transport of its queue pairs.
    pub transport: Transport,
    /// Congestion control at both ends.
    pub cc: Cc,
    /// Of its packets.
    pub dscp: u8,
    /// When it begins.
    pub start: Duration,
    /// Nothing more is posted from then on.
    pub stop: Option<Duration>,
}

/// When background traffic is posted, and how much at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum Pattern {
    /// Each sender by itself posts as much as its line carries in a time, and then nothing for a time. Both are exponentially distributed.
    Bursts {
        /// The mean of the first.
        on: Duration,
    },
    /// Each sender by itself posts messages with exponentially distributed times between them.
    Poisson {
        /// Bytes of a message, and how often messages are that long beside the others.
        sizes: Vec<(u32, f64)>,
    },
    /// Some of the senders, drawn each time, post as much each, all at once and to the same receiver.
    Incast {
        /// How many.
        hosts: usize,
        /// From one time to the next.
        every: Duration,
    },
}

/// What was posted in the background, and what became of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BackgroundReport {
    /// WRITEs that were posted, or wait for room.
    pub messages: u64,
    /// Their payload.
    pub bytes: u64,
    /// What they take on the wire, as packets of UC.
    pub wire_bytes: u64,
    /// The same in 10^9 bits a second, from its start to its stop or the end of the run.
    pub offered_gbps: f64,
    /// The same as a part of the line, as [`Background::share`] has it.
    pub offered_share: f64,
    /// WRITEs that completed well at their sender; of UC and XP that says that they were sent.
    pub completed: u64,
    /// WRITEs that ended otherwise.
    pub failed: u64,
    /// How the first of them ended.
    pub first_failure: Option<Status>,
    /// WRITEs that were due and had no room at the end: their sender could not keep up.
    pub waiting: u64,
}

impl Pattern {
    /// Its name in a file.
    pub fn name(&self) -> &'static str {
        match self {
            Pattern::Bursts { .. } => "bursts",
            Pattern::Poisson { .. } => "poisson",
            Pattern::Incast { .. } => "incast",
        }
    }
}

impl Background {
    /// Pairs of a sender and a receiver.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let to = |from: usize| self.to.iter().filter(move |to| **to != from).map(move |to| (from, *to));
        self.from.iter().flat_map(move |&from| to(from))
    }

    /// Bytes that are in the network at a time, at most, as far as it is not overloaded: a WRITE of each sender.
    pub(super) fn outstanding(&self) -> u64 {
        self.from.len() as u64 * MAX_WRITE
    }

    /// Bytes of payload that each sender posts in an incast to a receiver, whose line has this rate.
    pub(super) fn incast_bytes(&self, to: usize, rate: u64, mtu: PathMtu) -> u64 {
        let Pattern::Incast { hosts, every } = self.pattern else { return 0 };
        // The receiver is not among the senders.
        let senders = self.from.iter().filter(|from| **from != to).count().min(hosts).max(1);
        let bytes = rate as f64 * self.share * every.as_secs_f64() / 8.0 / senders as f64;
        payload_of(bytes as u64, mtu)
    }
}

impl Topology {
    /// When all background traffic is over, if that is known.
    pub(super) fn background_end(&self) -> Option<Duration> {
        let stops: Option<Vec<Duration>> = self.background.iter().map(|background| background.stop).collect();
        stops.and_then(|stops| stops.into_iter().max())
    }
}

/// Bytes on the wire of a WRITE of UC, everything counted.
pub(super) fn on_the_wire(size: u32, mtu: PathMtu) -> u64 {
    let (mut left, mut header, mut sum) = (u64::from(size), AROUND + RETH, 0);
    loop {
        let payload = left.min(mtu.bytes().into());
        // Payload is padded to words of four bytes.
        sum += wire_bytes(header + payload.next_multiple_of(4));
        (left, header) = (left - payload, AROUND);
        if left == 0 {
            return sum;
        }
    }
}

/// Bytes of the longest WRITE that takes at most so many bytes on the wire.
fn payload_of(bytes: u64, mtu: PathMtu) -> u64 {
    let full = wire_bytes(AROUND + u64::from(mtu.bytes()));
    let Some(bytes) = bytes.checked_sub(RETH) else { return 0 };
    let (packets, rest) = (bytes / full, bytes % full);
    // The shortest last packet has a word of payload.
    let last = rest.saturating_sub(wire_bytes(AROUND + 4) - 4);
    packets * u64::from(mtu.bytes()) + last / 4 * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_of_a_share_fills_it_to_a_few_bytes() {
        let mtu = PathMtu::B1024;
        assert_eq!(on_the_wire(1024, mtu), 1024 + 58 + 16 + 24);
        assert_eq!(on_the_wire(1025, mtu), 1024 + 58 + 16 + 24 + 4 + 58 + 24);
        assert_eq!(on_the_wire(0, mtu), 58 + 16 + 24);
        for bytes in (300..20_000).chain([1 << 20, 1 << 30]) {
            let payload = payload_of(bytes, mtu);
            let takes = on_the_wire(payload as u32, mtu);
            assert!(takes <= bytes && bytes - takes <= 58 + 24 + 4, "{payload} of {bytes} takes {takes}");
        }
        assert_eq!(payload_of(50, mtu), 0);
    }
}
