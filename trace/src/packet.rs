//! A packet as a trace shows it.

use serde::Serialize;
use softnic_pcaps::decode::{Dissection, IcrcVerdict};
use softnic_wire::aeth::Syndrome;

/// The lower two bits of the traffic class: congestion was experienced (RFC 3168).
const ECN_CE: u8 = 3;

/// The headers of a packet that say what it does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Packet {
    opcode: String,
    psn: u32,
    dest_qp: u32,
    /// Bytes of payload.
    length: usize,
    #[serde(skip_serializing_if = "is_false")]
    ack_req: bool,
    /// What an acknowledgement says: `ack`, `rnr_nak`, or the NAK's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    syndrome: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    ecn_ce: bool,
    #[serde(skip_serializing_if = "is_false")]
    becn: bool,
    #[serde(skip_serializing_if = "is_false")]
    bad_icrc: bool,
    /// It was sent before.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) retransmission: bool,
    /// Why it is sent again, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Packet {
    /// `None` where the frame ends before the headers that say what it is.
    pub(crate) fn of(d: &Dissection<'_>) -> Option<Packet> {
        Some(Packet {
            opcode: d.opcode?.to_string(),
            psn: d.psn?.value(),
            dest_qp: d.dest_qp?.value(),
            length: d.payload_len.unwrap_or(0),
            ack_req: d.ack_req.unwrap_or(false),
            syndrome: d.ext.aeth.map(|aeth| syndrome(aeth.syndrome)),
            ecn_ce: d.traffic_class & ECN_CE == ECN_CE,
            becn: d.becn.unwrap_or(false),
            bad_icrc: d.icrc == IcrcVerdict::Bad,
            retransmission: false,
            reason: None,
        })
    }
}

fn syndrome(syndrome: Syndrome) -> String {
    match syndrome {
        Syndrome::Ack(_) => "ack".into(),
        Syndrome::RnrNak(_) => "rnr_nak".into(),
        Syndrome::Nak(code) => format!("nak: {code}"),
        Syndrome::Reserved(byte) => format!("reserved: {byte:#04x}"),
    }
}
