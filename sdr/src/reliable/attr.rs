//! What a reliable connection is made with.

use std::time::Duration;

use softnic_codes::Family;
use softnic_wire::sdr::SdrSettings;
use softnic_wire::sdr::report::HEAD;

use super::{Fallback, Scheme};
use crate::attr::{AttrError, MAX_GENERATIONS, MAX_SLOTS, QpAttr, Split};

/// A line that numbers of messages cannot fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{in_flight} bytes of submessages can be in flight, and the line has room for {needed}: chunks of {chunk} bytes would fill it"
)]
pub struct Shortfall {
    /// Bytes that can be in flight.
    pub in_flight: u64,
    /// Bytes that fill the line.
    pub needed: u64,
    /// Bytes of chunks that would do.
    pub chunk: u64,
}

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
    /// With [`Fallback::Rows`] a receiver has room for further rows in it.
    pub parity_pool: u64,
    /// What a receiver asks for of submessages that parity did not repair.
    pub fallback: Fallback,
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
            fallback: Fallback::default(),
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
        // With one a chunk that is sent again when it need not be could be taken for one of a later message.
        range("the number of generations", 2, MAX_GENERATIONS.into(), self.qp.generations.into())?;
        if let Scheme::Ec(p) = self.scheme {
            let block = 2 * u64::from(p.interleave.max(1));
            range("the number of receives", block, MAX_SLOTS.into(), self.qp.slots.into())?;
        }
        let has_rows = matches!(self.scheme, Scheme::Ec(p) if p.family == Family::Mds);
        if self.fallback == Fallback::Rows && !has_rows {
            return Err(AttrError::Rows(self.scheme));
        }
        range("packets of a chunk", 0, u16::MAX.into(), u64::from(self.qp.chunk / self.qp.mtu.bytes()))?;
        self.data().check()
    }

    /// What the negotiation says of it. Room for further rows is a scheme of its own: the peer must have it.
    pub fn settings(&self) -> SdrSettings {
        match self.scheme.settings() {
            settings if self.spare() > 0 => SdrSettings { scheme: 5, ..settings },
            settings => settings,
        }
    }

    /// Further rows of parity that a receiver may ask for of each submessage.
    pub(super) fn spare(&self) -> u32 {
        match (self.fallback, self.scheme) {
            (Fallback::Rows, Scheme::Ec(p)) => p.spare(),
            _ => 0,
        }
    }

    /// How long the receiver waits before it acknowledges.
    pub(super) fn ack_delay(&self) -> Duration {
        (self.rtt / self.acks_per_rtt).max(Duration::from_micros(1))
    }

    /// The attributes of the SDR queue pair: its control messages are reports, too, as long as a packet may be. Where there is parity its
    /// longest message is a submessage.
    pub(super) fn data(&self) -> QpAttr {
        let control_len = self.qp.mtu.bytes().max(HEAD as u32 + 1);
        match self.scheme {
            Scheme::Sr | Scheme::Nack => QpAttr { control_len, ..self.qp },
            Scheme::Ec(p) => {
                let longest = u32::from(p.k).max(u32::from(p.m) + self.spare());
                let max_message = u64::from(longest) * u64::from(self.qp.chunk);
                QpAttr { control_len, max_message, ..self.qp }
            }
        }
    }

    /// For a line of so many bits a second and this round trip. Where there is parity it is in submessages, so numbers bound what is in flight:
    /// receives for as many as fill the line, memory for their parity, and, unless somebody chose another, a division of immediates with
    /// more numbers than the paper's.
    pub fn sized_for(self, rate: u64, rtt: Duration) -> ReliableAttr {
        let sized = ReliableAttr { rtt, rate: Some(rate), ..self };
        let Scheme::Ec(p) = self.scheme else { return sized };
        let packets = (sized.data().max_message / u64::from(self.qp.mtu.bytes())).max(1);
        let packet_bits = (u64::BITS - (packets - 1).leading_zeros()).clamp(12, 27) as u8;
        let split = match self.qp.split == Split::PAPER {
            true => Split::new(28 - packet_bits, packet_bits, 4).unwrap_or(self.qp.split),
            false => self.qp.split,
        };
        // The round trip, and half of one for what is late.
        let submessages = (sized.needed() * 1.5 / sized.submessage() as f64).ceil() as u64 + 32;
        let most = split.messages().min(MAX_SLOTS.into());
        let slots = (2 * submessages.next_multiple_of(p.interleave.max(1).into()))
            .min(most)
            .max(self.qp.slots.min(most as u32).into());
        let rows = u64::from(u32::from(p.m) + self.spare());
        let parity_pool = (slots / 2).max(1) * rows * u64::from(self.qp.chunk);
        let qp = QpAttr { split, slots: slots as u32, ..self.qp };
        ReliableAttr { qp, parity_pool: parity_pool.max(self.parity_pool), ..sized }
    }

    /// Bytes that fill the line.
    fn needed(&self) -> f64 {
        self.rate.unwrap_or(0) as f64 / 8.0 * self.rtt.as_secs_f64()
    }

    /// Bytes of data of a submessage.
    fn submessage(&self) -> u64 {
        match self.scheme {
            Scheme::Ec(p) => u64::from(p.k) * u64::from(self.qp.chunk),
            Scheme::Sr | Scheme::Nack => self.qp.max_message,
        }
    }

    /// What keeps it from filling the line, if anything does: there are fewer numbers of submessages than the line has under way.
    pub fn shortfall(&self) -> Option<Shortfall> {
        let Scheme::Ec(p) = self.scheme else { return None };
        let each = if p.m > 0 { 2 } else { 1 };
        let in_flight = u64::from(self.qp.slots / each) * self.submessage();
        let needed = self.needed() as u64;
        let chunk = (needed / u64::from(self.qp.slots / each).max(1)).div_ceil(p.k.into());
        let mtu = u64::from(self.qp.mtu.bytes());
        (in_flight < needed).then(|| Shortfall { in_flight, needed, chunk: chunk.div_ceil(mtu) * mtu })
    }
}
