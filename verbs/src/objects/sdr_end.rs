//! The NIC's object for a queue pair of `softnic_sdr.h`: one of SDR, or a reliable one, which is connected by the same calls.

use softnic_runtime::api::sdr::{ReliableQueuePair, SdrCounters, SdrError, SdrQueuePair};
use softnic_runtime::api::{PeerPath, Qpn};

use crate::errno::Errno;

/// A queue pair on the NIC.
#[derive(Clone)]
pub(crate) enum SdrEnd {
    Plain(SdrQueuePair),
    Reliable(ReliableQueuePair),
}

impl SdrEnd {
    /// The queue pair of SDR, whose messages the program makes reliable itself.
    pub(crate) fn plain(self) -> Result<SdrQueuePair, Errno> {
        match self {
            SdrEnd::Plain(qp) => Ok(qp),
            SdrEnd::Reliable(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The queue pair with reliable messages.
    pub(crate) fn reliable(self) -> Result<ReliableQueuePair, Errno> {
        match self {
            SdrEnd::Reliable(qp) => Ok(qp),
            SdrEnd::Plain(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    pub(crate) fn info(&self) -> Result<Vec<u8>, SdrError> {
        match self {
            SdrEnd::Plain(qp) => qp.info(),
            SdrEnd::Reliable(qp) => qp.info(),
        }
    }

    pub(crate) fn connect(&self, path: &PeerPath, info: &[u8]) -> Result<(), SdrError> {
        match self {
            SdrEnd::Plain(qp) => qp.connect(path, info),
            SdrEnd::Reliable(qp) => qp.connect(path, info),
        }
    }

    pub(crate) fn number(&self) -> Result<Qpn, SdrError> {
        match self {
            SdrEnd::Plain(qp) => qp.number(),
            SdrEnd::Reliable(qp) => qp.number(),
        }
    }

    pub(crate) fn meet(&self, path: &PeerPath, peer: Qpn) -> Result<(), SdrError> {
        match self {
            SdrEnd::Plain(qp) => qp.meet(path, peer),
            SdrEnd::Reliable(qp) => qp.meet(path, peer),
        }
    }

    pub(crate) fn is_met(&self) -> Result<bool, SdrError> {
        match self {
            SdrEnd::Plain(qp) => qp.is_met(),
            SdrEnd::Reliable(qp) => qp.is_met(),
        }
    }

    pub(crate) fn counters(&self) -> Result<SdrCounters, SdrError> {
        match self {
            SdrEnd::Plain(qp) => qp.counters(),
            SdrEnd::Reliable(qp) => qp.counters(),
        }
    }
}
