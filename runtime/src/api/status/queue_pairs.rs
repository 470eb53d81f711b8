//! The queue pairs of a NIC in its status: what each knows anyway, looked at when somebody asks.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::net::IpAddr;

use softnic_nic::Nic;
use softnic_nic::transports::qp::{QpKind, QpState};
use softnic_nic::transports::{Transport, Vitals};
use softnic_wire::Qpn;

/// Queue pairs that are named, at most: those that moved most packets.
const MOST: usize = 256;

/// How a queue pair stands.
pub(super) struct QueuePairStatus {
    qpn: Qpn,
    kind: QpKind,
    transport: Transport,
    state: QpState,
    peer: Option<(IpAddr, Qpn)>,
    mtu: Option<u32>,
    vitals: Vitals,
}

/// Looks at all queue pairs. The engine waits for it, so nothing is written here.
pub(super) fn look(nic: &Nic, found: &mut Vec<QueuePairStatus>) {
    for qpn in nic.queue_pairs() {
        let (Some((init, attr)), Some(state), Some(vitals)) = (nic.query_qp(qpn), nic.qp_state(qpn), nic.vitals(qpn))
        else {
            continue;
        };
        let peer = attr.path.zip(attr.dest_qp).map(|(path, dest)| (path.addresses.dst(), dest));
        let mtu = attr.mtu.map(|mtu| mtu.bytes());
        found.push(QueuePairStatus { qpn, kind: init.kind(), transport: init.transport, state, peer, mtu, vitals });
    }
}

/// An array of JSON.
pub(super) fn write(out: &mut String, pairs: &mut [QueuePairStatus]) {
    // Numbers of packets that were answered begin anywhere: only those that move tell something.
    pairs.sort_by_key(|pair| (Reverse(pair.vitals.requested), Reverse(pair.vitals.posted), pair.qpn));
    out.push('[');
    for (n, pair) in pairs.iter().take(MOST).enumerate() {
        let QueuePairStatus { qpn, kind, transport, state, peer, mtu, vitals } = pair;
        let Vitals { posted, completed, requested, answered, in_flight, window, rate, retries, rnr_retries, .. } =
            *vitals;
        let transport = if *kind == QpKind::Gsi { "gsi".into() } else { transport.to_string() };
        let comma = if n > 0 { "," } else { "" };
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "{comma}{{\"qpn\":{},\"transport\":\"{transport}\",\"state\":\"{}\"",
            qpn.value(),
            state.name()
        );
        if let Some((address, qpn)) = peer {
            let _ = write!(out, ",\"peer\":\"{address}\",\"peer_qpn\":{}", qpn.value());
        }
        for (name, value) in [("mtu", mtu.map(u64::from)), ("window", window.map(u64::from)), ("rate", rate)] {
            if let Some(value) = value {
                let _ = write!(out, ",\"{name}\":{value}");
            }
        }
        let _ = write!(
            out,
            ",\"posted\":{posted},\"completed\":{completed},\"requested\":{requested},\"answered\":{answered},\
             \"in_flight\":{in_flight},\"retries\":{retries},\"rnr_retries\":{rnr_retries}}}"
        );
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_pairs_that_moved_most_are_named_and_no_answer_is_too_long() {
        let pair = |n: u32| QueuePairStatus {
            qpn: Qpn::new(n),
            kind: QpKind::Rc,
            transport: Transport::LOWAR,
            state: QpState::ReadyToSend,
            peer: Some(("2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff".parse().unwrap(), Qpn::new(0xff_ffff))),
            mtu: Some(4096),
            vitals: Vitals {
                posted: u32::MAX,
                completed: u32::MAX,
                requested: u64::from(n) << 40,
                answered: 0xff_ffff,
                in_flight: u32::MAX,
                window: Some(u32::MAX),
                rate: Some(u64::MAX),
                retries: 7,
                rnr_retries: 7,
                ..Vitals::default()
            },
        };
        let mut pairs: Vec<_> = (1..2000).map(pair).collect();
        let mut out = String::new();
        write(&mut out, &mut pairs);
        assert!(
            out.starts_with("[{\"qpn\":1999,\"transport\":\"lowar:32,1\",\"state\":\"RTS\",\"peer\":\"2001:db8:"),
            "{out}"
        );
        assert_eq!(out.matches("\"qpn\"").count(), MOST);
        assert!(out.len() < super::super::LONGEST / 2);
    }
}
