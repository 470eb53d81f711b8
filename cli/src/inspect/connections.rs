//! Connections in words and in JSON, verdicts in JSON.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use softnic_pcaps::PacketNumber;
use softnic_pcaps::analysis::{Connection, Direction, EndPoint, Finding, Verdict};
use softnic_wire::Qpn;

use super::rate;

/// What went one way, in one line.
pub(super) struct DirectionLine<'a>(pub(super) &'a Direction);

impl fmt::Display for DirectionLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = self.0;
        write!(f, "{} packets", d.packets)?;
        if d.retransmissions > 0 {
            write!(f, ", {} sent again", d.retransmissions)?;
        }
        if d.payload_bytes > 0 {
            write!(f, ", {} bytes of payload", d.payload_bytes)?;
        }
        if let Some(bits) = d.payload_rate() {
            write!(f, ", {}", rate(bits))?;
        }
        let r = &d.round_trips;
        if let (Some(min), Some(median), Some(p99)) = (r.min(), r.quantile(0.5), r.quantile(0.99)) {
            write!(f, ", round trip min {} median {} p99 {} of {}", Time(min), Time(median), Time(p99), r.count())?;
        }
        Ok(())
    }
}

/// A time with three digits or more.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_nanos() as f64 {
            ns if ns < 1e6 => write!(f, "{:.1}us", ns / 1e3),
            ns if ns < 1e9 => write!(f, "{:.2}ms", ns / 1e6),
            ns => write!(f, "{:.2}s", ns / 1e9),
        }
    }
}

/// What is wrong, to programs.
pub(super) fn verdict(v: &Verdict) -> Value {
    let mut value = json!({
        "name": v.finding.name(),
        "found": v.finding.to_string(),
        "advice": v.finding.advice(),
        "packets": v.packets.first().iter().copied().map(packet).collect::<Vec<_>>(),
        "count": v.packets.count(),
        "ends": v.connection.map(|(_, ends)| ends.map(end)),
    });
    if let Finding::Refused { request: Some(r), .. } = &v.finding {
        value["request"] =
            json!({ "n": packet(r.number), "opcode": r.opcode.to_string(), "va": r.va, "rkey": r.rkey, "len": r.len });
    }
    value
}

/// A number in a capture; text, as in 2:17, where there are several.
fn packet(number: u64) -> Value {
    let number = PacketNumber(number);
    match number.file() {
        None => number.within().into(),
        Some(_) => number.to_string().into(),
    }
}

fn end(e: EndPoint) -> Value {
    json!({ "addr": e.addr.to_string(), "qp": e.qp.map(Qpn::value) })
}

/// What a connection is to programs.
pub(super) fn connection(c: &Connection<'_>) -> Value {
    json!({
        "ends": c.ends.map(end),
        "paired_by": c.paired_by.map(|by| by.name()),
        "directions": c.directions.map(|d| d.map(direction)),
    })
}

fn direction(d: &Direction) -> Value {
    let r = &d.round_trips;
    let seconds = |t: Option<Duration>| t.map(|t| t.as_secs_f64());
    json!({
        "packets": d.packets,
        "requests": d.requests,
        "payload_bytes": d.payload_bytes,
        "retransmissions": d.retransmissions,
        "rate_gbps": d.payload_rate().map(|bits| bits / 1e9),
        "mtu": d.mtu.map(|m| m.bytes()),
        "round_trips": {
            "count": r.count(),
            "min_s": seconds(r.min()),
            "median_s": seconds(r.quantile(0.5)),
            "p99_s": seconds(r.quantile(0.99)),
            "max_s": seconds(r.max()),
        },
    })
}
