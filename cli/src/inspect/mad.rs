//! Management datagrams in a capture: what a packet to QP1 says.

use softnic_pcaps::decode::Dissection;
use softnic_wire::mad::cm::Message;
use softnic_wire::mad::vendor::{Extensions, MAC, Negotiation, sdr_info};
use softnic_wire::{Opcode, Qpn};

use super::failover;

/// Whether a packet goes to QP1 as MADs do.
pub(super) fn is_mad(p: &Dissection<'_>) -> bool {
    p.dest_qp == Some(Qpn::GSI) && p.opcode == Some(Opcode::UD_SEND_ONLY)
}

/// The CM message in a packet to QP1, with its transaction id.
pub(super) fn cm_message(p: &Dissection<'_>) -> Option<(u64, Message)> {
    let (header, message) = Message::parse(p.payload).ok().filter(|_| is_mad(p))?;
    Some((header.transaction_id, message))
}

/// What a MAD of our own class says about extensions.
pub(super) fn negotiation<'a>(p: &Dissection<'a>) -> Option<Negotiation<'a>> {
    Negotiation::parse(p.payload).ok().filter(|_| is_mad(p))
}

/// A MAD to QP1 in one line: CM messages, our own negotiation, and failover.
pub(super) fn mad_line(p: &Dissection<'_>) -> Option<String> {
    let mac = |n: &Negotiation<'_>| match (n.extensions.contains(Extensions::AUTH), p.payload.get(MAC)) {
        (true, Some(mac)) => mac.iter().fold(" mac ".into(), |text: String, b| format!("{text}{b:02x}")),
        _ => String::new(),
    };
    // What counts as if it was not there is told all the same.
    let no_sdr = || match sdr_info(p.payload) {
        Some(Err(e)) => format!(" no sdr: {e}"),
        _ => String::new(),
    };
    cm_message(p)
        .map(|(_, m)| m.to_string())
        .or_else(|| negotiation(p).map(|n| format!("{n}{}{}", no_sdr(), mac(&n))))
        .or_else(|| failover::hello(p).map(|h| h.to_string()))
        .or_else(|| failover::region(p).map(|q| q.to_string()))
        .or_else(|| failover::proof(p).map(|p| p.to_string()))
}
