//! rxe sends, our SDR receives: single WRITEs with immediate, by root keys of ours, set the bits of a bitmap or come too late.

use std::time::Instant;

use softnic_nic::transports::{SendOp, Status, WcOpcode};
use softnic_sdr::control::Kind;
use softnic_sdr::{Bitmap, Counters, RecvHandle};

use super::super::FROM;
use super::{LIMIT, Message, Peer, SLICE, SLOTS, fail, is_lossy, lengths, pattern, until};
use crate::guest::Error;
use crate::interop::session::{SendAt, Session};
use crate::interop::setup::{Queue, Side};

/// Once as our NIC does it, and once without its help for SDR: then the key alone keeps what is late away.
pub(super) fn messages(s: &mut Session) -> Result<(), Error> {
    all(s)?;
    let mut setup = s.setup;
    let Some(attr) = setup.sdr.as_mut().filter(|_| !s.small) else { return Ok(()) };
    attr.screened = false;
    s.close_end(Side::Rxe)?;
    s.close_end(Side::Softnic)?;
    s.open(setup)?;
    all(s)
}

fn all(s: &mut Session) -> Result<(), Error> {
    let mut peer = Peer::connect(s)?;
    let mut before: Vec<Message> = Vec::new();
    // Once more than there are slots of all generations: the last messages use those of the first again.
    for (number, len) in (0..).zip(lengths(s).into_iter().chain(lengths(s).into_iter().take(1))) {
        let message = Message::new(&peer.ours, number, len);
        let (receive, bitmap) = post(s, &mut peer, &message)?;
        if let Some(old) = number.checked_sub(SLOTS.into()).filter(|_| !is_lossy(s)) {
            // The slot is the new message's, but neither the key nor the queue pair.
            late(s, &peer, &before[old as usize], |c| c.old_generation)?;
            if bitmap.count() != 0 {
                return fail(format!("packets of message {old} set bits of message {number}"));
            }
            message.expect(s, Side::Softnic, &[])?;
        }
        s.fill(Side::Rxe, FROM, &message.data)?;
        match is_lossy(s) {
            true => send_until_there(s, &peer, &message, &bitmap)?,
            false => send_in_two_parts(s, &peer, &message, &bitmap)?,
        }
        let imm = message.imm.or((message.packets.len() as u32 >= peer.ours.split.pieces()).then_some(0));
        if bitmap.imm() != imm {
            return fail(format!("message {number} should have the immediate {imm:x?}, not {:x?}", bitmap.imm()));
        }
        message.expect(s, Side::Softnic, &message.data)?;
        s.sdr(|_, qp, nic| qp.recv_complete(nic, receive))?;
        if !is_lossy(s) {
            late(s, &peer, &message, |c| c.into_null)?;
            message.expect(s, Side::Softnic, &message.data)?;
        }
        before.push(message);
    }
    match counters(s)? {
        c if c.rejected > 0 || !is_lossy(s) && c.duplicates > 0 => fail(format!("softnic counted {c:?}")),
        _ => Ok(()),
    }
}

fn counters(s: &mut Session) -> Result<Counters, Error> {
    s.sdr(|_, qp, nic| Ok(qp.counters(nic)))
}

/// Posts a receive, which rxe is told of. Where that is lost, rxe asks.
fn post(s: &mut Session, peer: &mut Peer, message: &Message) -> Result<(RecvHandle, Bitmap), Error> {
    message.clear(s, Side::Softnic)?;
    let memory = s.local(message.place(s).0, message.data.len())?;
    let posted = s.sdr(|now, qp, nic| {
        let receive = qp.recv_post(now, nic, memory)?;
        Ok((receive, qp.recv_bitmap_get(receive)?.clone()))
    })?;
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        let said = peer.take(s, 1)?.controls;
        match said.first().map(|c| (c.kind, c.count)) {
            Some((Kind::Cts, count)) if count == message.number + 1 => return Ok(posted),
            // One that was repeated, or late.
            Some((Kind::Cts, count)) if count <= message.number => {}
            Some(said) => return fail(format!("softnic says {said:?} when receive {} is posted", message.number)),
            None => peer.say(s, Kind::Ask, message.number)?,
        }
    }
    fail(format!("softnic does not say that receive {} is posted", message.number))
}

/// rxe sends these packets of a message.
fn send(s: &mut Session, peer: &Peer, message: &Message, which: &[usize]) -> Result<(), Error> {
    let (mtu, base) = (s.setup.mtu.bytes() as usize, u64::from(message.slot) * peer.ours.slot_len);
    let (qp, rkey) = (message.generation, peer.ours.generations[message.generation].key);
    let one = |&packet: &usize| {
        let ((imm, len), at) = (message.packets[packet], packet * mtu);
        let op = SendOp::WriteImm { remote_addr: base + at as u64, rkey, imm };
        SendAt { qp, wr_id: packet as u64, op, offset: FROM + at, len: len as usize }
    };
    s.send_all(Side::Rxe, &which.iter().map(one).collect::<Vec<_>>())?;
    let done = s.poll(Side::Rxe, Queue::Send, which.len(), LIMIT)?;
    let expected = which.iter().map(|&p| (p as u64, Status::Success, Some(WcOpcode::Write)));
    match done.iter().map(|d| (d.wr_id, d.status, d.opcode)).eq(expected) {
        true => Ok(()),
        false => fail(format!("rxe should have sent packets {which:?}, but has {done:?}")),
    }
}

/// All packets but one, in no order: exactly the bits of whole chunks are set. Then that one.
fn send_in_two_parts(s: &mut Session, peer: &Peer, message: &Message, bitmap: &Bitmap) -> Result<(), Error> {
    let own = message.data.len().div_ceil(s.setup.mtu.bytes() as usize).max(1);
    let before = counters(s)?.packets;
    let mut order: Vec<usize> = (0..message.packets.len()).collect();
    order.sort_by_key(|p| p * 7 % 16);
    // The last one has bytes of the message, so that a bit depends on it.
    let last = order.iter().rposition(|&p| p < own).map(|at| order.remove(at)).unwrap_or(0);
    send(s, peer, message, &order)?;
    let count = order.len() as u64;
    until(s, "packets of a message", |qp, nic| Ok(qp.counters(nic).packets == before + count))?;
    let chunks = 0..own.div_ceil(2);
    let wrong: Vec<usize> = chunks.filter(|&chunk| bitmap.is_set(chunk as u32) != (chunk != last / 2)).collect();
    if !wrong.is_empty() || bitmap.is_full() {
        return fail(format!("without packet {last} of message {} bits {wrong:?} are wrong", message.number));
    }
    send(s, peer, message, &[last])?;
    until(s, "all bits of a message", |_, _| Ok(bitmap.is_full()))
}

/// Again and again what is missing.
fn send_until_there(s: &mut Session, peer: &Peer, message: &Message, bitmap: &Bitmap) -> Result<(), Error> {
    let begin = Instant::now();
    while !bitmap.is_full() {
        if begin.elapsed() >= LIMIT {
            let missing: Vec<u32> = bitmap.missing().collect();
            return fail(format!("chunks {missing:?} of message {} do not come", message.number));
        }
        let packets = bitmap.missing().flat_map(|chunk| [2 * chunk as usize, 2 * chunk as usize + 1]);
        let packets: Vec<usize> = packets.filter(|&p| p < message.packets.len()).collect();
        send(s, peer, message, &packets)?;
        s.pause(SLICE)?;
    }
    Ok(())
}

/// Packets of a message that is over, with other bytes, are discarded and counted as what they are.
fn late(s: &mut Session, peer: &Peer, message: &Message, count: fn(&Counters) -> u64) -> Result<(), Error> {
    let before = counters(s)?;
    s.fill(Side::Rxe, FROM, &pattern(77, message.data.len()))?;
    let mut which = vec![0, message.packets.len() - 1];
    which.dedup();
    send(s, peer, message, &which)?;
    let more = which.len() as u64;
    until(s, "late packets", |qp, nic| Ok(count(&qp.counters(nic)) == count(&before) + more))?;
    match counters(s)? {
        after if (after.packets, after.late()) == (before.packets, before.late() + more) => Ok(()),
        after => fail(format!("{more} late packets of message {}: {before:?}, then {after:?}", message.number)),
    }
}
