//! What a reliable connection is made with.

use std::time::Duration;

use softnic_wire::sdr::report::HEAD;

use crate::attr::{AttrError, QpAttr};

/// How what is lost comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Selective Repeat by timeouts (SDR-RDMA §4.1.1): a chunk that is not acknowledged in time is sent again.
    Sr,
    /// The receiver asks for what is missing as soon as later chunks tell of it; timeouts stay behind that.
    Nack,
}

/// The attributes of a reliable connection. Both ends have the same scheme; `qp` is as for SDR.
#[derive(Debug, Clone, Copy, PartialEq)]
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
