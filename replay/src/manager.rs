//! The connection manager's exchanges: ours takes the place of each side in turn, and says what the captured one said.
//!
//! Ids are drawn from a generator, so ours draws those of the capture. What a program decides (to connect, to accept, with which
//! queue pair, with which words) is taken from the captured message, by the command that makes our manager send such a one; what
//! follows from the rules (both ids, the transaction, the peer's queue pair, what a message answers) is compared.

mod exchange;
mod place;

use std::collections::BTreeMap;
use std::net::IpAddr;

use softnic_wire::Qpn;
use softnic_wire::opcode::Service;

use crate::capture::{Capture, Packet, Skip};
use crate::findings::Findings;
use crate::peers::PeerKind;
use crate::report::{FlowReport, Report, Role};
use crate::{Options, manager::exchange::Exchange};

/// Bytes of a management datagram.
const MTU: u32 = 256;

/// Replays every exchange that the capture has from its beginning; what belongs to none is skipped.
pub(crate) fn replay(capture: &mut Capture, options: &Options, report: &mut Report) {
    let (exchanges, others) = exchange::survey(&capture.management);
    (0..others).for_each(|_| capture.skip(Skip::Management));
    let mut kinds: BTreeMap<IpAddr, PeerKind> = BTreeMap::new();
    let mut kind = |address: IpAddr| {
        let of = |p: &&Packet| p.src == address;
        *kinds.entry(address).or_insert_with(|| {
            options.peer.unwrap_or_else(|| PeerKind::of(capture.management.iter().chain(&capture.packets).filter(of)))
        })
    };
    for exchange in &exchanges {
        let mut found = Findings::new(report.flows.len());
        for role in [Role::Requester, Role::Responder] {
            place::take(exchange, role, &mut found);
        }
        report.packets += exchange.messages.len() as u64;
        report.differences.append(&mut found.differences);
        report.undetermined.append(&mut found.undetermined);
        report.flows.push(flow(exchange, &found, kind(exchange.asking), kind(exchange.asked)));
    }
}

fn flow(exchange: &Exchange, found: &Findings, requester_kind: PeerKind, responder_kind: PeerKind) -> FlowReport {
    let of_asking = exchange.messages.iter().filter(|m| m.of_asking).count() as u64;
    FlowReport {
        service: Service::Ud,
        requester: exchange.asking,
        requester_qp: Some(Qpn::GSI),
        responder: exchange.asked,
        responder_qp: Qpn::GSI,
        requester_kind,
        responder_kind,
        mtu: MTU,
        requests: of_asking,
        answers: exchange.messages.len() as u64 - of_asking,
        counts: found.counts,
    }
}
