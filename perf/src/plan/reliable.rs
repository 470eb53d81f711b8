//! Runs of reliable messages over SDR: what their queue pairs are made with, and what such a run cannot have.

use std::fmt::Display;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use softnic_runtime::api::sdr::{Fallback, ReliableAttr, Scheme, SdrAttr, Shortfall};
use softnic_wire::PathMtu;

use super::{Op, Plan, SdrPlan};

/// What the queue pairs of a run of reliable messages are made with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReliablePlan {
    /// How what is lost comes again.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
    pub scheme: Scheme,
    /// Bytes that are acknowledged and sent again together; `None` for a packet.
    pub chunk: Option<u32>,
    /// Queue pairs that the packets of a message go by in turn.
    pub channels: u8,
    /// How often numbers of messages come round before a late packet can be taken for a later message's.
    pub generations: u8,
    /// Bits of immediates: message, packet, user.
    pub split: [u8; 3],
    /// What queues may add to a round trip, as a part of it.
    pub alpha: f64,
    /// What a receiver asks for where parity did not repair all.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name", default)]
    pub fallback: Fallback,
}

fn write_name<S: Serializer>(named: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(named)
}

fn read_name<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// Receives for each message that may be in flight: then nobody waits for a CTS.
const AHEAD: u64 = 2;
/// The shortest time after which a receiver reports, and by which a timeout is longer than round trips: threads that share cores get their turn
/// no more often, and what is late then was not lost.
const TURN: Duration = Duration::from_millis(1);
/// A message that takes longer is lost with its connection: longer than what is in flight takes on any line that is worth it.
const TIMEOUT: Duration = Duration::from_secs(60);

impl ReliablePlan {
    /// By a scheme, and everything else as it is where nobody says otherwise.
    pub fn usual(scheme: Scheme) -> ReliablePlan {
        let SdrPlan { channels, generations, split, .. } = SdrPlan::default();
        let ReliableAttr { alpha, fallback, .. } = ReliableAttr::default();
        ReliablePlan { scheme, chunk: None, channels, generations, split, alpha, fallback }
    }

    /// The name of the scheme, without its settings.
    pub(crate) fn name(&self) -> String {
        let text = self.scheme.to_string();
        text.split_once(':').map_or(text.clone(), |(name, _)| name.into())
    }

    /// Bytes of a chunk.
    pub(crate) fn chunk(&self, mtu: PathMtu) -> u32 {
        self.chunk.unwrap_or(mtu.bytes())
    }

    /// The attributes of a queue pair for messages of so many bytes, so many posted at a time, over a path with this round trip.
    pub(crate) fn attr(&self, size: u32, posted: u64, mtu: PathMtu, rtt: Duration) -> Result<ReliableAttr, String> {
        let ReliablePlan { scheme, channels, generations, split, alpha, fallback, .. } = *self;
        let sdr = SdrPlan { chunk: self.chunk(mtu), channels, generations, split };
        // With parity a message is many, and its length is bounded by nothing.
        let longest = if matches!(scheme, Scheme::Ec(_)) { 1 } else { size };
        let qp = sdr.attr(longest, posted, mtu).map_err(|e| e.replacen("sdr", &self.name(), 1))?;
        let rtt = rtt.max(TURN);
        let usual = ReliableAttr::default();
        let acks_per_rtt = (rtt.as_nanos() / TURN.as_nanos()).min(usual.acks_per_rtt.into()) as u32;
        let usual = ReliableAttr { timeout: TIMEOUT, clock: Some(clock), ..usual };
        let attr = ReliableAttr { qp, scheme, rtt, alpha, fallback, acks_per_rtt, ..usual };
        // As if the line had room for all that is posted: nobody knows what it has.
        let bits = u128::from(posted) * u128::from(size) * 8;
        let rate = bits * 1_000_000_000 / rtt.as_nanos().max(1);
        let attr = ReliableAttr { rate: None, ..attr.sized_for(u64::try_from(rate).unwrap_or(u64::MAX), rtt) };
        let slots = attr.qp.slots.min(u32::try_from(attr.qp.split.messages()).unwrap_or(u32::MAX));
        let attr = ReliableAttr { qp: SdrAttr { slots, ..attr.qp }, ..attr };
        attr.check().map_err(|e| format!("{}: {e}", self.name()))?;
        Ok(attr)
    }

    /// What keeps messages from filling a line of so many bits a second, however many are posted, if anything does.
    pub(crate) fn shortfall(&self, rate: u64, mtu: PathMtu, rtt: Duration) -> Option<Shortfall> {
        let attr = self.attr(1, 1, mtu, rtt).ok()?;
        attr.sized_for(rate, rtt).shortfall()
    }
}

/// Nanoseconds since the first call.
fn clock() -> u64 {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

impl Plan {
    /// What is wrong with a run of reliable messages, if it is one.
    pub(super) fn check_reliable(&self) -> Result<(), String> {
        let Some(reliable) = &self.reliable else { return Ok(()) };
        let name = reliable.name();
        if !matches!(self.op, Op::WriteBw | Op::SendBw | Op::WriteFct) {
            return Err(format!("{name} has no {}: only write_bw and send_bw", self.op.name()));
        }
        if self.qps != 1 {
            return Err(format!(
                "a run of {name} has one queue pair, of several channels: --channels instead of --qps"
            ));
        }
        if self.cc.is_some() || self.auth {
            return Err(format!("{name} has no congestion control and no authentication: leave --cc and --auth out"));
        }
        let (posted, mtu, rtt) = (self.posted_ahead(), self.path_mtu(), Duration::from_millis(1));
        self.sizes.iter().try_for_each(|&size| reliable.attr(size, posted, mtu, rtt).map(drop))
    }

    /// The path MTU, or the longest where nobody knows it yet.
    pub(crate) fn path_mtu(&self) -> PathMtu {
        self.mtu.and_then(PathMtu::from_bytes).unwrap_or(PathMtu::B4096)
    }

    /// Messages of a queue pair that are in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        if self.op.is_latency() { 1 } else { self.outstanding() }
    }

    /// Receives that are posted for reliable messages: not two of them in one place of memory that is compared.
    pub(crate) fn posted_ahead(&self) -> u64 {
        let most = if self.verify { (self.slots() as u64).max(self.in_flight()) } else { u64::MAX };
        (self.in_flight() * AHEAD).min(most)
    }

    /// The transport as JSON has it: its name, or that of what is on top of it.
    pub fn name(&self) -> String {
        match (&self.sdr, &self.reliable) {
            (_, Some(reliable)) => reliable.name(),
            (Some(_), None) => "sdr".into(),
            (None, None) => self.transport.name().into(),
        }
    }
}
