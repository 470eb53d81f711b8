//! Reliable messages over SDR: what is lost comes again, by a scheme that both ends have (SDR-RDMA §4.1).
//!
//! A [`ReliableQp`] is an SDR queue pair for the data and what it takes to make a WRITE reliable: the n-th that is posted goes into the peer's
//! n-th receive, of the same length, and is complete when the peer has said that all of it is there. A state machine as the SDK is: it
//! takes completions, control messages and time, and hands out sends.

mod attr;
mod by_chunks;
mod chunk_bits;
mod fallback;
mod layout;
mod pool;
mod receiver;
mod reliability;
mod round_trip;
mod scheme;
mod sender;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use softnic_nic::transports::memory::PdId;
use softnic_nic::{Layer, Nic};
use softnic_wire::Instant;
use softnic_wire::sdr::SdrSettings;

use crate::Local;
use crate::attr::QpAttr;
use crate::error::SdrError;
use crate::qp::SdrQp;
use by_chunks::ByChunks;

pub use attr::{ReliableAttr, Shortfall};
pub use fallback::{Fallback, FallbackError};
pub use reliability::{Io, Reliability};
pub use scheme::{Protection, Scheme, SchemeError};
pub use softnic_codes::Family;

/// Why a message was not carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReliableError {
    /// It was not whole in the time that a message has.
    #[error("the message was not whole in time")]
    Timeout,
    /// The peer's receive has another length.
    #[error("a message of {0} bytes, and the peer's receive has {1}")]
    Length(u64, u64),
    /// The queue pair failed.
    #[error(transparent)]
    Sdr(#[from] SdrError),
}

/// A message that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// One that was sent. When it succeeded the peer has all of it.
    Written {
        /// Its number, from 0.
        id: u64,
        /// What became of it.
        outcome: Result<(), ReliableError>,
    },
    /// One that was received: its memory is the program's.
    Received {
        /// Its number, from 0.
        id: u64,
        /// What became of it.
        outcome: Result<(), ReliableError>,
    },
}

impl Outcome {
    /// Why it was not carried over, if it was not.
    fn error(&self) -> Option<ReliableError> {
        let (Outcome::Written { outcome, .. } | Outcome::Received { outcome, .. }) = self;
        outcome.err()
    }
}

/// What a reliable connection counts, beside the counters of its SDR queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReliableCounters {
    /// Chunks that were sent the first time.
    pub chunks_sent: u64,
    /// Chunks that were sent again.
    pub chunks_repeated: u64,
    /// Their packets.
    pub packets_repeated: u64,
    /// Chunks that were sent again because their time was over.
    pub timeouts: u64,
    /// Chunks that were sent again because the peer asked for them.
    pub chunks_asked_for: u64,
    /// Packets of parity that were sent, those of further rows included.
    pub parity_packets: u64,
    /// Further rows of parity that were sent because the peer asked for them.
    pub rows_asked_for: u64,
    /// Chunks that did not come and were computed, and their packets.
    pub chunks_recovered: u64,
    /// The packets of these.
    pub packets_recovered: u64,
    /// Messages of which parity did not repair all.
    pub fallbacks: u64,
    /// The submessages of these that it did not.
    pub failed_submessages: u64,
    /// Submessages for whose parity there was no memory.
    pub unprotected: u64,
    /// Nanoseconds that computing lost chunks took, where there is a clock.
    pub decode_ns: u64,
    /// Reports of what has come.
    pub acks_sent: u64,
    /// Reports of what is missing.
    pub nacks_sent: u64,
    /// What reports said of chunks that were never sent.
    pub rejected: u64,
}

/// A reliable connection.
pub struct ReliableQp {
    qp: SdrQp,
    scheme: Box<dyn Reliability>,
    counters: ReliableCounters,
    /// What of them is among the NIC's.
    published: ReliableCounters,
    outcomes: VecDeque<Outcome>,
    /// Outcomes that nobody has taken yet, for whoever looks without the engine.
    waiting: Arc<AtomicUsize>,
    timeout: Option<Instant>,
    /// Why everything ended, if it did.
    failed: Option<ReliableError>,
}

impl ReliableQp {
    /// Makes one on a NIC, in a protection domain.
    pub fn create(nic: &mut Nic, pd: PdId, attr: &ReliableAttr) -> Result<ReliableQp, SdrError> {
        attr.check()?;
        let scheme = ByChunks::new(nic, pd, attr);
        ReliableQp::create_with(nic, pd, &attr.data(), attr.settings(), Box::new(scheme))
    }

    /// Makes one with a scheme of the program's own, which has a number and settings that the peer's must equal: numbers below 128 are for
    /// those of this crate.
    pub fn create_with(
        nic: &mut Nic,
        pd: PdId,
        attr: &QpAttr,
        settings: SdrSettings,
        scheme: Box<dyn Reliability>,
    ) -> Result<ReliableQp, SdrError> {
        let mut qp = SdrQp::create(nic, pd, attr)?;
        qp.set_scheme(settings);
        Ok(ReliableQp {
            qp,
            scheme,
            counters: ReliableCounters::default(),
            published: ReliableCounters::default(),
            outcomes: VecDeque::new(),
            waiting: Arc::default(),
            timeout: None,
            failed: None,
        })
    }

    /// Gives back all that it has of the NIC. What was posted is over.
    pub fn destroy(mut self, nic: &mut Nic) {
        self.qp.destroy(nic);
        self.scheme.destroy(nic);
    }

    /// The SDR queue pair, to be connected with the peer's.
    pub fn qp(&mut self) -> &mut SdrQp {
        &mut self.qp
    }

    /// What it counted.
    pub fn counters(&self) -> ReliableCounters {
        self.counters
    }

    /// The round trip, as far as it is known.
    pub fn rtt(&self) -> Duration {
        self.scheme.rtt()
    }

    /// Posts a WRITE into the peer's next receive; its number.
    pub fn write(&mut self, now: Instant, nic: &mut Nic, memory: Local) -> Result<u64, SdrError> {
        self.check_open()?;
        let id = self.with(now, nic, |scheme, io| scheme.write(io, memory))?;
        self.progress(now, nic);
        Ok(id)
    }

    /// Posts memory for the peer's next WRITE; its number.
    pub fn receive(&mut self, now: Instant, nic: &mut Nic, memory: Local) -> Result<u64, SdrError> {
        self.check_open()?;
        let id = self.with(now, nic, |scheme, io| scheme.receive(io, memory))?;
        self.progress(now, nic);
        Ok(id)
    }

    /// Why everything ended, if it did: a message that is not carried over ends the connection, for nobody can tell the peer which one it was.
    pub fn failure(&self) -> Option<ReliableError> {
        self.failed
    }

    fn check_open(&self) -> Result<(), SdrError> {
        if self.failed.is_some() { Err(SdrError::Ended) } else { Ok(()) }
    }

    /// The next message that is over.
    pub fn poll(&mut self) -> Option<Outcome> {
        let outcome = self.outcomes.pop_front();
        self.waiting.store(self.outcomes.len(), Ordering::Relaxed);
        outcome
    }

    /// How many messages are over that [`ReliableQp::poll`] has not told yet, for whoever looks without the engine: a hint, as of the last
    /// progress.
    pub fn waiting(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiting)
    }

    /// Lets the scheme do something.
    fn with<R>(&mut self, now: Instant, nic: &mut Nic, call: impl FnOnce(&mut dyn Reliability, &mut Io<'_>) -> R) -> R {
        let ReliableQp { qp, scheme, counters, outcomes, .. } = self;
        call(&mut **scheme, &mut Io { now, nic, qp, counters, outcomes })
    }

    /// Does what there is to do.
    pub fn progress(&mut self, now: Instant, nic: &mut Nic) {
        self.qp.take_note(nic);
        self.with(now, nic, |scheme, io| scheme.progress(io));
        self.qp.progress(now, nic);
        if self.failed.is_none()
            && let Some(why) = self.outcomes.iter().find_map(Outcome::error)
        {
            self.fail(now, nic, why);
        }
        if !self.outcomes.is_empty() {
            self.waiting.store(self.outcomes.len(), Ordering::Relaxed);
        }
        self.timeout = match self.failed {
            // Nothing of it leaves any more, nor comes.
            Some(_) => None,
            None => {
                let scheme = self.with(now, nic, |scheme, io| scheme.poll_timeout(io));
                [self.qp.poll_timeout(), scheme].into_iter().flatten().min()
            }
        };
        self.publish(nic);
    }

    /// Adds what was counted since to the NIC's counters.
    fn publish(&mut self, nic: &mut Nic) {
        if self.counters != self.published {
            self.counters.add_since(&self.published, nic.counters_mut());
            self.published = self.counters;
        }
    }

    /// Ends the connection: all that is posted is over by this. The peer ends by its own time, for what it sends is not acknowledged any more.
    pub fn fail(&mut self, now: Instant, nic: &mut Nic, why: ReliableError) {
        if self.failed.is_some() {
            return;
        }
        (self.failed, self.timeout) = (Some(why), None);
        // What is still posted must not be read any more when the program hears of it.
        self.qp.fail(nic);
        self.with(now, nic, |scheme, io| scheme.fail(io, why));
        self.publish(nic);
        self.waiting.store(self.outcomes.len(), Ordering::Relaxed);
    }

    /// When [`ReliableQp::progress`] wants to be called although nothing happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timeout
    }
}

/// A reliable connection is the layer of its NIC.
impl Layer for ReliableQp {
    fn progress(&mut self, now: Instant, nic: &mut Nic) {
        ReliableQp::progress(self, now, nic);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        ReliableQp::poll_timeout(self)
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
