//! What must be refused, and how both ends say so.

use softnic_nic::transports::{SendOp, Status, WcOpcode};

use super::{FROM, Kind, LIMIT, TO, UNTOUCHED, clear, ends, expect_data, expect_sent, fail};
use crate::guest::Error;
use crate::interop::session::Session;
use crate::interop::setup::{MEMORY, Queue, Side};

pub(super) fn receive_never(s: &mut Session) -> Result<(), Error> {
    let (from, _) = ends(s);
    s.send(from, 1, SendOp::Send, FROM, 100)?;
    expect_sent(s, 1, Status::RnrRetryExcErr, WcOpcode::Send)
}

/// The request ends with `status`, and the responder's memory is as it was.
fn refused(s: &mut Session, kind: Kind, addr: u64, rkey: u32, len: usize, status: Status) -> Result<(), Error> {
    let (from, to) = ends(s);
    clear(s, to, len)?;
    s.send(from, 1, kind.op(1, addr, rkey), FROM, len)?;
    expect_sent(s, 1, status, kind.completes_as())?;
    expect_data(s, to, &vec![UNTOUCHED; len])
}

pub(super) fn bad_key(s: &mut Session, kind: Kind) -> Result<(), Error> {
    let (addr, rkey) = s.remote(ends(s).1, TO)?;
    let len = 3 * s.setup.mtu.bytes() as usize;
    refused(s, kind, addr, rkey ^ 0x5a5a_5a00, len, Status::RemAccessErr)
}

pub(super) fn bad_key_atomic(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    let (remote_addr, rkey) = s.remote(to, TO)?;
    clear(s, to, 8)?;
    s.send(from, 1, SendOp::FetchAdd { remote_addr, rkey: rkey ^ 0x5a5a_5a00, add: 1 }, FROM, 8)?;
    expect_sent(s, 1, Status::RemAccessErr, WcOpcode::FetchAdd)?;
    expect_data(s, to, &[UNTOUCHED; 8])
}

pub(super) fn out_of_range(s: &mut Session) -> Result<(), Error> {
    let to = ends(s).1;
    let (begin, rkey) = s.remote(to, 0)?;
    let end = begin + MEMORY as u64;
    s.fill(to, MEMORY - 8, &[UNTOUCHED; 8])?;
    refused(s, Kind::Write, end - 8, rkey, 64, Status::RemAccessErr)?;
    match s.read(to, MEMORY - 8, 8)? == [UNTOUCHED; 8] {
        true => Ok(()),
        false => fail("the bytes before the region's end were written".into()),
    }
}

pub(super) fn mr_without_write(s: &mut Session) -> Result<(), Error> {
    let (addr, rkey) = s.remote(ends(s).1, TO)?;
    refused(s, Kind::Write, addr, rkey, 16, Status::RemAccessErr)
}

pub(super) fn qp_without_read(s: &mut Session) -> Result<(), Error> {
    let (addr, rkey) = s.remote(ends(s).1, TO)?;
    refused(s, Kind::Read, addr, rkey, 16, Status::RemInvReqErr)
}

pub(super) fn too_long(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    // An invalid request, and a local length error where it was received; rxe says that it failed by itself.
    let (status, at_receiver) = match to {
        Side::Rxe => (Status::RemOpErr, Status::LocQpOpErr),
        Side::Softnic => (Status::RemInvReqErr, Status::LocLenErr),
    };
    let mtu = s.setup.mtu.bytes() as usize;
    for (room, len) in [(16, 64), (mtu + 16, 3 * mtu)] {
        clear(s, to, len)?;
        s.recv(to, 5, TO, room)?;
        s.send(from, 1, SendOp::Send, FROM, len)?;
        expect_sent(s, 1, status, WcOpcode::Send)?;
        let found = s.poll(to, Queue::Recv, 1, LIMIT)?;
        if found.iter().map(|d| (d.wr_id, d.status)).ne([(5, at_receiver)]) {
            return fail(format!("{} should complete the receive with {at_receiver}, but has {found:?}", to.name()));
        }
        let behind = s.read(to, TO + room, len - room)?;
        if behind.iter().any(|&b| b != UNTOUCHED) {
            return fail(format!("{} wrote behind the end of its receive", to.name()));
        }
        // Both queue pairs are in the error state now.
        let setup = s.setup;
        s.close_end(Side::Rxe)?;
        s.close_end(Side::Softnic)?;
        s.open(setup)?;
    }
    Ok(())
}

pub(super) fn peer_gone(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    let (remote_addr, rkey) = s.remote(to, TO)?;
    s.close_end(to)?;
    s.send(from, 1, SendOp::Write { remote_addr, rkey }, FROM, 8)?;
    expect_sent(s, 1, Status::RetryExcErr, WcOpcode::Write)
}

pub(super) fn nothing_arrives(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    let (remote_addr, rkey) = s.remote(to, TO)?;
    clear(s, to, 8)?;
    s.send(from, 1, SendOp::Write { remote_addr, rkey }, FROM, 8)?;
    expect_sent(s, 1, Status::RetryExcErr, WcOpcode::Write)?;
    expect_data(s, to, &[UNTOUCHED; 8])
}
