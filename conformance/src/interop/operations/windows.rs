//! Memory windows, and the ways to make a key invalid.

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{SendOp, Status, WcOpcode};

use super::{
    FROM, Kind, MARGIN, TO, UNTOUCHED, clear, ends, expect_data, expect_done, expect_received, expect_sent, fail,
};
use super::{pattern, received};
use crate::guest::Error;
use crate::interop::session::{BindAt, Session};
use crate::interop::setup::{Done, Side};

/// Bytes of a window.
const LEN: usize = 2000;

/// The responder lays a window over the bytes at [`TO`]; the key.
fn bind(s: &mut Session) -> Result<u32, Error> {
    let (_, to) = ends(s);
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let rkey = s.bind(to, &BindAt { qp: 0, wr_id: 90, offset: TO, len: LEN, access, zero_based: false })?;
    expect_done(s, to, 90, Status::Success, WcOpcode::BindWindow)?;
    Ok(rkey)
}

/// A WRITE by `rkey` ends like this.
fn write(s: &mut Session, wr_id: u64, rkey: u32, offset: usize, len: usize, status: Status) -> Result<(), Error> {
    let (from, to) = ends(s);
    let (remote_addr, _) = s.remote(to, offset)?;
    s.send(from, wr_id, SendOp::Write { remote_addr, rkey }, FROM, len)?;
    expect_sent(s, wr_id, status, WcOpcode::Write)
}

/// WRITE and READ by the window's key bring the data; what is in `s` then is a window in use.
fn use_window(s: &mut Session) -> Result<u32, Error> {
    let (from, to) = ends(s);
    clear(s, to, LEN)?;
    let data = pattern(5, LEN);
    s.fill(from, FROM, &data)?;
    let rkey = bind(s)?;
    write(s, 1, rkey, TO, LEN, Status::Success)?;
    expect_data(s, to, &data)?;
    clear(s, from, LEN)?;
    let (remote_addr, _) = s.remote(to, TO)?;
    s.send(from, 2, SendOp::Read { remote_addr, rkey }, TO, LEN)?;
    expect_sent(s, 2, Status::Success, WcOpcode::Read)?;
    expect_data(s, from, &data)?;
    clear(s, to, LEN)?;
    Ok(rkey)
}

/// The responder takes its window away itself.
pub(super) fn local_invalidate(s: &mut Session) -> Result<(), Error> {
    let (_, to) = ends(s);
    let rkey = use_window(s)?;
    s.send(to, 91, SendOp::LocalInv { rkey }, 0, 0)?;
    expect_done(s, to, 91, Status::Success, WcOpcode::LocalInv)?;
    write(s, 3, rkey, TO, LEN, Status::RemAccessErr)?;
    expect_data(s, to, &[UNTOUCHED; LEN])
}

/// The requester takes it away with a SEND.
pub(super) fn send_invalidate(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    let rkey = use_window(s)?;
    let receive = TO + 2 * LEN;
    s.recv(to, 7, receive, 100 + MARGIN)?;
    s.send(from, 3, SendOp::SendInv { rkey }, FROM, 100)?;
    expect_sent(s, 3, Status::Success, WcOpcode::Send)?;
    // rxe sets the kernel's flag for it, which means something else to a program.
    let invalidated = (to == Side::Softnic).then_some(rkey);
    expect_received(s, Done { invalidated, ..received(Kind::Send, 7, 100) })?;
    let (sent, found) = (s.read(from, FROM, 100)?, s.read(to, receive, 100)?);
    if sent != found {
        return fail(format!("{}'s receive is not the message", to.name()));
    }
    write(s, 4, rkey, TO, LEN, Status::RemAccessErr)?;
    expect_data(s, to, &[UNTOUCHED; LEN])
}

/// A WRITE that is inside the region, but ends behind the window. rxe looks at the region alone and carries it out.
pub(super) fn beyond(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    let rkey = use_window(s)?;
    let (status, expected) = match to {
        Side::Softnic => (Status::RemAccessErr, vec![UNTOUCHED; 16]),
        Side::Rxe => (Status::Success, s.read(from, FROM, 16)?),
    };
    write(s, 3, rkey, TO + LEN - 8, 16, status)?;
    match s.read(to, TO + LEN - 8, 16)? == expected {
        true => Ok(()),
        false => fail(format!("{}'s bytes at the end of the window are not as expected", to.name())),
    }
}
