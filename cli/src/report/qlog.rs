//! A trace (qlog), read into a report: its packets, and what a NIC says that packets do not.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::BufRead;

use serde::Deserialize;
use serde_json::value::RawValue;
use softnic_wire::Opcode;
use softnic_wire::aeth::Credits;
use softnic_wire::aeth::{NakCode, RnrTimer, Syndrome};

use super::ends::{Ends, Group};
use super::follow::follow;
use super::model::{Event, EventKind, FileSummary, Source};
use super::packet::{Packet, cause, flag};

/// A record of a trace: docs/trace.md has its fields.
#[derive(Deserialize)]
struct Record<'a> {
    /// A decimal with more digits than a double holds.
    #[serde(borrow)]
    time: &'a RawValue,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    group_id: Cow<'a, str>,
    #[serde(borrow)]
    data: Data<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data<'a> {
    #[serde(borrow)]
    opcode: Option<Cow<'a, str>>,
    psn: u32,
    dest_qp: u32,
    length: u32,
    ack_req: bool,
    #[serde(borrow)]
    syndrome: Option<Cow<'a, str>>,
    ecn_ce: bool,
    bad_icrc: bool,
    retransmission: bool,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    old: Option<Cow<'a, str>>,
    #[serde(borrow)]
    new: Option<Cow<'a, str>>,
    #[serde(borrow)]
    transport: Option<Cow<'a, str>>,
    #[serde(borrow)]
    peer_address: Option<Cow<'a, str>>,
    peer_qpn: Option<u32>,
    path_mtu: Option<u32>,
    #[serde(borrow)]
    outcome: Option<Cow<'a, str>>,
    count: u64,
    #[serde(borrow)]
    trigger: Option<Cow<'a, str>>,
    #[serde(borrow)]
    counter: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    packets: u64,
    blocks: u64,
    #[serde(borrow)]
    signal: Option<Cow<'a, str>>,
    congestion_window: Option<u64>,
    rate: Option<u64>,
}

/// Reads a trace to its end, or as far as it goes, and no further than `limit` packets that were sent or received.
pub(super) fn read(name: &str, mut from: impl BufRead, limit: usize) -> Result<Source, String> {
    let mut taken = Taken::default();
    let mut line = Vec::new();
    let mut cut;
    let fault = loop {
        cut = taken.packets.len() >= limit;
        if cut {
            break None;
        }
        line.clear();
        match from.read_until(b'\n', &mut line) {
            Ok(0) => break None,
            Ok(_) => {}
            Err(e) => break Some(e.to_string()),
        }
        taken.records += 1;
        let text = line.trim_ascii().strip_prefix(&[0x1e]).unwrap_or(line.trim_ascii());
        // The first record is the header.
        if taken.records == 1 || text.is_empty() {
            continue;
        }
        match std::str::from_utf8(text).map_err(|e| e.to_string()).and_then(|text| taken.record(text)) {
            Ok(()) => {}
            Err(e) => break Some(format!("record {}: {e}", taken.records)),
        }
    };
    let mut source = taken.finish(name, fault);
    source.summary.cut = cut;
    Ok(source)
}

#[derive(Default)]
struct Taken {
    records: u64,
    opcodes: HashMap<String, u8>,
    groups: HashMap<String, u32>,
    ends: Ends,
    /// Packets in the order of the trace; `Packet::connection` is the group until all are read. `true`: received.
    packets: Vec<(Packet, bool)>,
    events: Vec<Event>,
    texts: Vec<String>,
    text_places: HashMap<String, u32>,
    first: Option<i128>,
    payload: u64,
}

impl Taken {
    fn record(&mut self, text: &str) -> Result<(), String> {
        let record: Record<'_> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let nanos = nanoseconds(record.time.get()).ok_or("its time is no number of milliseconds")?;
        let first = *self.first.get_or_insert(nanos);
        let time = i64::try_from(nanos - first).map_err(|_| "its time is out of range")?;
        let group = match self.groups.get(&*record.group_id) {
            Some(&place) => place,
            None => {
                let place = self.ends.groups.len() as u32;
                self.ends.groups.push(Group::named(&record.group_id));
                self.groups.insert(record.group_id.to_string(), place);
                place
            }
        };
        let name = record.name.strip_prefix("roce:").unwrap_or(&record.name);
        match name {
            "packet_sent" | "packet_received" => self.packet(group, time, &record.data, name == "packet_received"),
            _ => {
                self.event(group, time, name, &record.data);
                Ok(())
            }
        }
    }

    fn packet(&mut self, group: u32, time: i64, data: &Data<'_>, received: bool) -> Result<(), String> {
        let name = data.opcode.as_deref().ok_or("a packet without an opcode")?;
        let opcode = match self.opcodes.get(name) {
            Some(&opcode) => opcode,
            None => {
                let opcode = Opcode::from_name(name).ok_or_else(|| format!("`{name}` is no opcode"))?;
                self.opcodes.insert(name.into(), opcode.0);
                opcode.0
            }
        };
        let of = &mut self.ends.groups[group as usize];
        of.opcodes[usize::from(opcode)] = true;
        if !received && of.peer_qp.is_none() {
            of.peer_qp = Some(data.dest_qp);
        }
        let flags = [
            (data.retransmission, flag::AGAIN),
            (data.bad_icrc, flag::DAMAGED),
            (data.ecn_ce, flag::MARKED),
            (data.ack_req, flag::ACK_REQ),
        ];
        self.payload += if received { 0 } else { u64::from(data.length) };
        let packet = Packet {
            number: self.records - 1,
            time,
            connection: group,
            opcode,
            psn: data.psn & 0xff_ffff,
            length: data.length,
            syndrome: data.syndrome.as_deref().map(syndrome),
            flags: flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum(),
            cause: data.reason.as_deref().map_or(0, cause_named),
            ..Packet::default()
        };
        self.packets.push((packet, received));
        Ok(())
    }

    fn event(&mut self, group: u32, time: i64, name: &str, data: &Data<'_>) {
        let word = |text: &Option<Cow<'_, str>>| text.as_deref().unwrap_or("?").replace('_', " ");
        let note = match name {
            "state_updated" => match (&data.old, &data.new) {
                (_, None) => "destroyed".into(),
                (None, Some(new)) => format!("state {new}"),
                (Some(old), Some(new)) => format!("state {old} to {new}"),
            },
            "connected" => {
                let of = &mut self.ends.groups[group as usize];
                of.peer_qp = data.peer_qpn.or(of.peer_qp);
                of.peer_address = data.peer_address.as_deref().map(str::to_owned);
                of.transport = data.transport.as_deref().map(str::to_owned);
                of.mtu = data.path_mtu;
                let mtu = data.path_mtu.map_or(String::new(), |mtu| format!(", path MTU {mtu}"));
                format!("connected, {}{mtu}", word(&data.transport))
            }
            "negotiated" => format!("negotiation: {}", word(&data.outcome)),
            "work_posted" => return self.push(group, time, EventKind::Posted, data.count as i64, ""),
            "work_completed" => return self.push(group, time, EventKind::Completed, data.count as i64, ""),
            "loss_detected" => format!("loss detected: {}", word(&data.trigger)),
            "receiver_not_ready" => "waits: receiver not ready".into(),
            "retries_exhausted" => format!("retries exhausted: {}", data.counter.as_deref().unwrap_or("?")),
            "out_of_order" => format!("out of order: {}", word(&data.kind)),
            "packet_dropped" => format!("dropped: {}", data.reason.as_deref().unwrap_or("?")),
            "recovered" => format!("recovered by FEC: {}", data.packets),
            "recovery_failed" => format!("recovery failed: {} blocks", data.blocks),
            "congestion" => format!("congestion: {}", word(&data.signal)),
            "metrics_updated" => {
                for (kind, value) in
                    [(EventKind::CongestionWindow, data.congestion_window), (EventKind::Rate, data.rate)]
                {
                    if let Some(value) = value {
                        self.push(group, time, kind, i64::try_from(value).unwrap_or(i64::MAX), "");
                    }
                }
                return;
            }
            other => other.replace('_', " "),
        };
        self.push(group, time, EventKind::Note, 0, &note);
    }

    fn push(&mut self, group: u32, time: i64, kind: EventKind, value: i64, text: &str) {
        let place = match self.text_places.get(text) {
            Some(&place) => place,
            None => {
                let place = self.texts.len() as u32;
                self.texts.push(text.into());
                self.text_places.insert(text.into(), place);
                place
            }
        };
        self.events.push(Event { time, connection: group, end: 0, kind, value, text: place });
    }

    fn finish(mut self, name: &str, fault: Option<String>) -> Source {
        self.ends.pair();
        for event in &mut self.events {
            (event.connection, event.end) = self.ends.place(event.connection);
        }
        self.events.sort_by_key(|e| e.time);
        let packets = self.ends.join(self.packets);
        let last = packets.iter().map(Packet::arrival).max().unwrap_or(0);
        let first = packets.iter().map(|p| p.time).min().unwrap_or(0);
        let connections = self.ends.connections();
        let mut source = Source {
            summary: FileSummary {
                name: name.into(),
                kind: "trace",
                records: self.records,
                packets: packets.len() as u64,
                bytes: self.payload,
                connections: connections.len(),
                duration: last - first,
                start: softnic_pcaps::Timestamp::from_nanos(self.first.unwrap_or(0)).to_string(),
                icrc_bad: packets.iter().filter(|p| p.has(flag::DAMAGED)).count() as u64,
                fault: fault.clone(),
                cut: false,
            },
            paths: self.ends.paths(),
            connections,
            packets,
            events: self.events,
            texts: self.texts,
            fault,
            ..Source::default()
        };
        let both: Vec<bool> = self.ends.both_traced();
        follow(&mut source, |connection| both[connection as usize]);
        source
    }
}

/// Milliseconds with a decimal point, in nanoseconds.
fn nanoseconds(text: &str) -> Option<i128> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 6 || !part.bytes().all(|b| b.is_ascii_digit()) {
        // Written by others: as exact as a double is.
        return text.parse::<f64>().ok().filter(|ms| ms.is_finite()).map(|ms| (ms * 1e6) as i128);
    }
    let whole: i128 = whole.parse::<i64>().ok()?.into();
    let digits: i128 = if part.is_empty() { 0 } else { part.parse::<i64>().ok()?.into() };
    Some(whole * 1_000_000 + digits * 10i128.pow(6 - part.len() as u32))
}

fn syndrome(name: &str) -> u8 {
    let code = |name: &str| (0..32).map(NakCode).find(|code| code.to_string() == name);
    match name {
        "rnr_nak" => Syndrome::RnrNak(RnrTimer(0)),
        _ => match name.strip_prefix("nak: ").and_then(code) {
            Some(code) => Syndrome::Nak(code),
            None => Syndrome::Ack(Credits::UNLIMITED),
        },
    }
    .to_byte()
}

fn cause_named(reason: &str) -> u8 {
    match reason {
        "sequence_nak" => cause::NAK,
        "receiver_not_ready" => cause::NOT_READY,
        "selective_ack" => cause::SELECTIVE_ACK,
        "implied_nak" => cause::IMPLIED_NAK,
        "ack_timeout" => cause::TIMEOUT,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_trace_are_exact() {
        assert_eq!(nanoseconds("1763337600123.000001"), Some(1_763_337_600_123_000_001));
        assert_eq!(
            [nanoseconds("1.5"), nanoseconds("2"), nanoseconds("0.25e1")],
            [Some(1_500_000), Some(2_000_000), Some(2_500_000)]
        );
        assert_eq!([nanoseconds("x"), nanoseconds("1.x")], [None, None]);
    }

    #[test]
    fn syndromes_by_their_names() {
        assert_eq!(syndrome("ack"), 0x1f);
        assert_eq!(syndrome("rnr_nak") >> 5, 1);
        assert_eq!(syndrome("nak: remote access error"), 0x62);
    }
}
