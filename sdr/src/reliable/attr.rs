//! What a reliable connection is made with.

use std::time::Duration;

use softnic_wire::sdr::report::HEAD;

use super::Scheme;
use crate::attr::{AttrError, QpAttr};

/// The attributes of a reliable connection. Both ends have the same scheme; `qp` is as for SDR.
#[derive(Debug, Clone, Copy)]
pub struct ReliableAttr {
    /// The SDR queue pair that carries the data.
    pub qp: QpAttr,
    /// How what is lost comes again.
    pub scheme: Scheme,
    /// The round trip, as long as none was measured.
    pub rtt: Duration,
    /// What queues on the way may add to a round trip, as a part of it: a chunk is sent again after RTT + α · RTT.
    pub alpha: f64,
    /// The receiver acknowledges what has come this often in a round trip, and at once when a message is whole.
    pub acks_per_rtt: u32,
    /// Chunks behind a missing one that must have come before it is asked for: a network may bring packets out of order.
    pub reordering: u32,
    /// Bits that the line carries in a second, where it is known: how long parity is waited for (§4.2.3). Without, a message is waited for as
    /// long as something of it comes.
    pub rate: Option<u64>,
    /// Bytes of memory for parity, at each end for what it sends and for what it receives. Where there is no more, submessages go without.
    pub parity_pool: u64,
    /// What tells how long computing lost chunks takes, in nanoseconds of whatever beginning; nothing else depends on it.
    pub clock: Option<fn() -> u64>,
    /// After this time the connection ends in an error: from when a WRITE was posted, and of a receive from when something of it came.
    pub timeout: Duration,
}

impl Default for ReliableAttr {
    fn default() -> ReliableAttr {
        ReliableAttr {
            qp: QpAttr::default(),
            scheme: Scheme::Sr,
            rtt: Duration::from_millis(10),
            alpha: 2.0,
            acks_per_rtt: 16,
            reordering: 3,
            rate: None,
            parity_pool: 64 << 20,
            clock: None,
            timeout: Duration::from_secs(10),
        }
    }
}

impl ReliableAttr {
    /// What does not fit together, if anything.
    pub fn check(&self) -> Result<(), AttrError> {
        let range = |what, from: u64, to: u64, n: u64| match (from..=to).contains(&n) {
            true => Ok(()),
            false => Err(AttrError::Range(what, from, to, n)),
        };
        let year = 365 * 24 * 3600 * 1_000_000_000;
        range("the round trip [ns]", 1, year, self.rtt.as_nanos() as u64)?;
        range("the timeout of messages [ns]", 1, year, self.timeout.as_nanos() as u64)?;
        range("α [%]", 0, 100_000, if self.alpha >= 0.0 { (self.alpha * 100.0) as u64 } else { u64::MAX })?;
        range("acknowledgements in a round trip", 1, 1000, self.acks_per_rtt.into())?;
        range("the tolerance for reordering", 1, 1 << 20, self.reordering.into())?;
        range("packets of a chunk", 0, u16::MAX.into(), u64::from(self.qp.chunk / self.qp.mtu.bytes()))?;
        self.data().check()
    }

    /// How long the receiver waits before it acknowledges.
    pub(super) fn ack_delay(&self) -> Duration {
        (self.rtt / self.acks_per_rtt).max(Duration::from_micros(1))
    }

    /// The attributes of the SDR queue pair: its control messages are reports, too, as long as a packet may be.
    pub(super) fn data(&self) -> QpAttr {
        QpAttr { control_len: self.qp.mtu.bytes().max(HEAD as u32 + 1), ..self.qp }
    }
}
