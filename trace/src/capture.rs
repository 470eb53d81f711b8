//! A trace of what a capture shows: packets, which were sent again, and why as far as packets say it.

use std::collections::HashMap;
use std::net::IpAddr;

use softnic_pcaps::decode::Dissection;
use softnic_pcaps::sequence::Order;
use softnic_pcaps::summary::Summary;
use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::opcode::Kind;

use crate::event::Event;
use crate::packet::Packet;
use crate::qlog::Trace;

/// Writes the packets of a capture to a trace, one after the other. A flow is a group: all packets from one address to one queue pair of another.
pub struct CaptureTrace {
    trace: Trace,
    summary: Summary,
    /// What was last said to a sender, between two addresses, about its packets.
    said: HashMap<(IpAddr, IpAddr), &'static str>,
}

impl CaptureTrace {
    /// Nothing yet.
    pub fn new(trace: Trace) -> CaptureTrace {
        CaptureTrace { trace, summary: Summary::default(), said: HashMap::new() }
    }

    /// Takes the next packet, which was captured so many nanoseconds after 1970, and `wire_len` bytes long.
    pub fn packet(&mut self, d: &Dissection<'_>, nanos: i128, wire_len: u32) {
        let order = self.summary.add(d, nanos, wire_len);
        let Some(mut packet) = Packet::of(d) else { return };
        let Some(opcode) = d.opcode else { return };
        if order == Some(Order::Again) && opcode.is_request() {
            packet.retransmission = true;
            packet.reason = Some(*self.said.get(&(d.src, d.dst)).unwrap_or(&"ack_timeout"));
        } else if opcode.is_request() {
            // It goes on: what was said is done.
            self.said.remove(&(d.src, d.dst));
        }
        let nanos = u64::try_from(nanos).unwrap_or(0);
        let group = format!("{} > {} {:#x}", d.src, d.dst, d.dest_qp.map_or(0, |qpn| qpn.value()));
        self.trace.write(nanos, &group, &Event::PacketSent(packet));
        let said = match d.ext.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR)) => Event::LossDetected { trigger: "sequence_nak" },
            Some(Syndrome::RnrNak(_)) => Event::ReceiverNotReady {},
            _ if opcode.kind() == Kind::CongestionNotification => Event::Congestion { signal: "cnp" },
            _ => return,
        };
        let reason = match said {
            Event::LossDetected { trigger } => trigger,
            Event::ReceiverNotReady {} => "receiver_not_ready",
            _ => "",
        };
        if !reason.is_empty() {
            self.said.insert((d.dst, d.src), reason);
        }
        self.trace.write(nanos, &group, &said);
    }
}
