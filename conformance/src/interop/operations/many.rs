//! Many at once: queue pairs, READs, and receives that several queue pairs share.

use std::time::Duration;

use softnic_nic::transports::{SendOp, Status, WcOpcode};

use super::{FROM, LIMIT, TO, clear, ends, expect_data, fail, pattern};
use crate::guest::Error;
use crate::interop::session::{RecvAt, SendAt, Session};
use crate::interop::setup::{Done, Queue, Side};

/// Bytes that each queue pair writes, and bytes of its message.
const WRITE: usize = 1000;
const MESSAGE: usize = 100;

/// A WRITE and a SEND at every queue pair, all posted at once.
pub(super) fn queue_pairs(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    let n = s.setup.qps;
    let data = pattern(3, n * (WRITE + MESSAGE));
    s.fill(from, FROM, &data)?;
    clear(s, to, data.len())?;
    let (addr, rkey) = s.remote(to, TO)?;
    let messages = n * WRITE;
    let recv = |qp| RecvAt { qp, wr_id: qp as u64, offset: TO + messages + qp * MESSAGE, len: MESSAGE };
    s.recv_all(to, &(0..n).map(recv).collect::<Vec<_>>())?;
    let write = |qp| {
        let op = SendOp::Write { remote_addr: addr + (qp * WRITE) as u64, rkey };
        SendAt { qp, wr_id: 2 * qp as u64, op, offset: FROM + qp * WRITE, len: WRITE }
    };
    let send = |qp| {
        let op = SendOp::SendImm { imm: qp as u32 };
        SendAt { qp, wr_id: 2 * qp as u64 + 1, op, offset: FROM + messages + qp * MESSAGE, len: MESSAGE }
    };
    s.send_all(from, &(0..n).map(write).chain((0..n).map(send)).collect::<Vec<_>>())?;
    let mut sent = poll_all(s, from, Queue::Send, 2 * n)?;
    // A queue pair keeps its order, but each goes at its own pace.
    sent.sort_by_key(|d| d.wr_id / 2);
    let expected = (0..2 * n as u64).map(|id| (id, if id % 2 == 0 { WcOpcode::Write } else { WcOpcode::Send }));
    if sent.iter().map(|d| (d.wr_id, d.opcode)).ne(expected.map(|(id, opcode)| (id, Some(opcode)))) {
        return fail(format!(
            "{} should complete a WRITE and a SEND for each queue pair, but has {sent:?}",
            from.name()
        ));
    }
    let mut received = poll_all(s, to, Queue::Recv, n)?;
    received.sort_by_key(|d| d.wr_id);
    if received.iter().map(|d| (d.wr_id, d.imm)).ne((0..n as u64).map(|id| (id, Some(id as u32)))) {
        return fail(format!("{} should receive at each queue pair its own message, but has {received:?}", to.name()));
    }
    expect_data(s, to, &data)
}

/// Completions, all of them successes.
fn poll_all(s: &mut Session, side: Side, queue: Queue, count: usize) -> Result<Vec<Done>, Error> {
    let found = s.poll(side, queue, count, LIMIT)?;
    match found.iter().find(|d| d.status != Status::Success) {
        Some(d) => fail(format!("{} should succeed, but has {d:?}", side.name())),
        None if found.len() != count => fail(format!("{} has {} completions of {count}", side.name(), found.len())),
        None => Ok(found),
    }
}

/// More READs than may be outstanding, of several packets each, at once.
pub(super) fn reads(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    let (count, len) = if s.small { (6, 300) } else { (16, 1500) };
    let data = pattern(9, count * len);
    s.fill(to, FROM, &data)?;
    clear(s, from, data.len())?;
    let read = |n: usize| {
        let (remote_addr, rkey) = s.remote(to, FROM + n * len)?;
        Ok(SendAt { qp: 0, wr_id: n as u64, op: SendOp::Read { remote_addr, rkey }, offset: TO + n * len, len })
    };
    let all = (0..count).map(read).collect::<Result<Vec<_>, Error>>()?;
    s.send_all(from, &all)?;
    let found = poll_all(s, from, Queue::Send, count)?;
    if found.iter().map(|d| d.wr_id).ne(0..count as u64) {
        return fail(format!("{} should complete {count} READs in order, but has {found:?}", from.name()));
    }
    expect_data(s, from, &data)
}

/// Messages of two queue pairs that take their receives from one queue; the last one comes before there is a receive for it.
pub(super) fn shared_receives(s: &mut Session) -> Result<(), Error> {
    let (from, to) = ends(s);
    let (n, slot, late) = if s.small { (5_usize, 2 * 1024, 5) } else { (9, 2 * 1024, 30) };
    let len = |i: usize| 100 + 97 * i;
    let recv = |i: usize| RecvAt { qp: 0, wr_id: i as u64, offset: TO + i * slot, len: slot };
    for i in 0..n {
        s.fill(from, FROM + i * slot, &pattern(i as u64, len(i)))?;
    }
    s.recv_all(to, &(0..n - 1).map(recv).collect::<Vec<_>>())?;
    let send = |i: usize| {
        let op = SendOp::SendImm { imm: i as u32 };
        SendAt { qp: i % 2, wr_id: i as u64, op, offset: FROM + i * slot, len: len(i) }
    };
    s.send_all(from, &(0..n).map(send).collect::<Vec<_>>())?;
    s.pause(Duration::from_millis(late))?;
    s.recv_all(to, &[recv(n - 1)])?;
    poll_all(s, from, Queue::Send, n)?;
    let received = poll_all(s, to, Queue::Recv, n)?;
    let mut messages: Vec<_> = received.iter().filter_map(|d| d.imm).collect();
    messages.sort_unstable();
    if !messages.iter().copied().eq(0..n as u32) || received.iter().map(|d| d.wr_id).ne(0..n as u64) {
        return fail(format!("{} should receive each message once, receives in order: {received:?}", to.name()));
    }
    for d in received {
        let i = d.imm.unwrap_or(0) as usize;
        let found = s.read(to, TO + d.wr_id as usize * slot, len(i))?;
        if d.len as usize != len(i) || found != pattern(i as u64, len(i)) {
            return fail(format!("receive {} of {} is not message {i}", d.wr_id, to.name()));
        }
    }
    Ok(())
}
