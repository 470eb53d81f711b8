//! Datagrams, and messages that find no receive where nobody sends them again.

use std::net::IpAddr;
use std::time::Duration;

use softnic_nic::transports::{SendOp, Status};

use super::{
    FROM, Kind, MARGIN, TO, UNTOUCHED, clear, ends, expect_received, expect_sent, fail, pattern, received, transfer,
};
use crate::guest::Error;
use crate::interop::session::Session;
use crate::interop::setup::{Done, Queue};
use crate::interop::wire::address;

/// A receive for a datagram begins with the network header that it came with; an IPv4 header is in the second half of it.
const HEADER: usize = 40;

pub(super) fn all(s: &mut Session, kind: Kind) -> Result<(), Error> {
    let mtu = s.setup.mtu.bytes() as usize;
    for (n, len) in (1..).zip([0, 1, 13, mtu]) {
        datagram(s, kind, n, len)?;
    }
    Ok(())
}

fn datagram(s: &mut Session, kind: Kind, n: u64, len: usize) -> Result<(), Error> {
    let (from, to) = ends(s);
    let data = pattern(n, len);
    s.fill(from, FROM, &data)?;
    clear(s, to, HEADER + len)?;
    s.recv(to, n, TO, HEADER + len + MARGIN)?;
    s.send(from, n, kind.op(n, 0, 0), FROM, len)?;
    expect_sent(s, n, Status::Success, kind.completes_as())?;
    let src_qp = Some(s.qpns(from)?[0]);
    expect_received(s, Done { src_qp, ..received(kind, n, HEADER + len) })?;
    let found = s.read(to, TO, HEADER + len + MARGIN)?;
    let addresses = [from, to].map(|side| match address(side, s.setup.ipv6) {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    });
    // Source and destination are the end of either header.
    let addresses = addresses.concat();
    if found[HEADER - if s.setup.ipv6 { 32 } else { 8 }..HEADER] != addresses {
        return fail(format!("{} has a network header with other addresses: {:x?}", to.name(), &found[..HEADER]));
    }
    if found[HEADER..HEADER + len] != data || found[HEADER + len..].iter().any(|&b| b != UNTOUCHED) {
        return fail(format!("{}'s memory is not the datagram", to.name()));
    }
    Ok(())
}

/// A SEND before there is a receive: the sender is content, nothing arrives.
fn into_the_void(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    s.send(from, 77, SendOp::Send, FROM, 100)?;
    expect_sent(s, 77, Status::Success, Kind::Send.completes_as())?;
    match s.poll(to, Queue::Recv, 1, Duration::from_millis(50))?[..] {
        [] => Ok(()),
        _ => fail("a message arrived without a receive".into()),
    }
}

pub(super) fn uc_no_receive(s: &mut Session) -> Result<(), Error> {
    into_the_void(s)?;
    transfer(s, Kind::Send, 1, 2 * s.setup.mtu.bytes() as usize + 1, Duration::ZERO)
}

pub(super) fn ud_no_receive(s: &mut Session) -> Result<(), Error> {
    into_the_void(s)?;
    datagram(s, Kind::Send, 1, 100)
}
