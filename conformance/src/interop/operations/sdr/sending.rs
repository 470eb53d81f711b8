//! Our SDR sends, rxe receives: data in its slot, and a completion for each packet that says what it is.

use std::time::Instant;

use softnic_nic::transports::WcOpcode;
use softnic_sdr::SendHandle;
use softnic_sdr::control::Kind;

use super::super::FROM;
use super::{LIMIT, Message, Peer, is_lossy, lengths, until};
use super::{fail, pattern};
use crate::guest::Error;
use crate::interop::session::Session;
use crate::interop::setup::{Done, Side};

pub(super) fn messages(s: &mut Session) -> Result<(), Error> {
    let mut receiver = Receiver { peer: Peer::connect(s)?, known: Vec::new(), overtaken: false };
    let lengths = lengths(s);
    for (number, &len) in (0..).zip(&lengths) {
        let message = Message::new(&receiver.peer.info, number, len);
        let send = start(s, &message, is_lossy(s))?;
        receiver.receive(s, &message, send)?;
        end(s, send, is_lossy(s))?;
    }
    if s.setup.faults.is_empty() {
        key_taken_back(s, &mut receiver, lengths.len() as u64)?;
    } else if !receiver.overtaken && !s.small {
        return fail("no packet was overtaken, so nothing was shown".into());
    }
    match s.sdr(|_, qp, nic| Ok(qp.counters(nic)))?.rejected {
        0 => Ok(()),
        n => fail(format!("softnic rejected {n} control messages of rxe")),
    }
}

/// Gives our SDR a message. As a stream any packet of it can be sent again.
fn start(s: &mut Session, message: &Message, stream: bool) -> Result<SendHandle, Error> {
    message.clear(s, Side::Rxe)?;
    s.fill(Side::Softnic, FROM, &message.data)?;
    let memory = s.local(FROM, message.data.len())?;
    s.sdr(|now, qp, nic| {
        if !stream {
            return qp.send_post(now, nic, memory, message.imm);
        }
        let send = qp.send_stream_start(now, nic, memory.len, message.imm)?;
        qp.send_stream_continue(now, nic, send, 0, memory)?;
        Ok(send)
    })
}

fn end(s: &mut Session, send: SendHandle, stream: bool) -> Result<(), Error> {
    if stream {
        s.sdr(|_, qp, _| qp.send_stream_end(send))?;
    }
    until(s, "a message to leave", |qp, _| qp.send_poll(send))
}

/// Sends whole packets of a stream, from `first` on up to `end`, or the end of the message.
fn send_part(s: &mut Session, message: &Message, send: SendHandle, first: usize, end: usize) -> Result<(), Error> {
    let mtu = s.setup.mtu.bytes() as usize;
    let (from, to) = (first * mtu, message.data.len().min(end * mtu));
    let memory = s.local(FROM + from, to - from)?;
    s.sdr(|now, qp, nic| qp.send_stream_continue(now, nic, send, from as u64, memory))
}

struct Receiver {
    peer: Peer,
    /// What may come: queue pair, immediate and bytes of the packets of all messages.
    known: Vec<(usize, u32, u32)>,
    /// Whether packets came in another order than they were sent in.
    overtaken: bool,
}

impl Receiver {
    /// rxe receives all of a message.
    fn receive(&mut self, s: &mut Session, message: &Message, send: SendHandle) -> Result<(), Error> {
        let of_message = |&(imm, len): &(u32, u32)| (message.generation, imm, len);
        self.asked(s, message)?;
        let (lossy, begin) = (is_lossy(s), Instant::now());
        self.known.extend(message.packets.iter().map(of_message));
        // Said twice it means no more: the next message waits.
        self.peer.say(s, Kind::Cts, message.number + 1)?;
        self.peer.say(s, Kind::Cts, message.number + 1)?;
        let mut came: Vec<(u32, u32)> = Vec::new();
        loop {
            let missing: Vec<usize> =
                (0..message.packets.len()).filter(|&p| !came.contains(&message.packets[p])).collect();
            if missing.is_empty() {
                break;
            }
            if begin.elapsed() >= LIMIT {
                return fail(format!("rxe misses packets {missing:?} of message {}", message.number));
            }
            let found = self.peer.take(s, missing.len())?;
            if lossy && found.controls.iter().any(|c| (c.kind, c.count) == (Kind::Ask, message.number)) {
                self.peer.say(s, Kind::Cts, message.number + 1)?;
            }
            let nothing = found.data.is_empty();
            for (qp, done) in found.data {
                let packet = self.packet(qp, &done)?;
                if message.packets.contains(&packet) && qp == message.generation {
                    came.push(packet);
                } else if !lossy {
                    return fail(format!("rxe received {done:?} instead of message {}", message.number));
                }
            }
            // What has left and did not come is lost; what has not waits for a control message.
            let again = nothing && lossy && s.sdr(|_, qp, _| qp.send_stream_poll(send))?;
            for &packet in missing.iter().filter(|_| again) {
                send_part(s, message, send, packet, packet + 1)?;
            }
        }
        self.overtaken |= !came.is_sorted();
        let faults = s.setup.faults;
        if faults.is_empty() && came != message.packets || !lossy && came.len() != message.packets.len() {
            return fail(format!("rxe should receive {:x?}, each once, but has {came:x?}", message.packets));
        }
        message.expect(s, Side::Rxe, &message.data)
    }

    /// Nothing of a message comes before rxe has said that there is a receive for it, but a question.
    fn asked(&self, s: &mut Session, message: &Message) -> Result<(), Error> {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            let found = self.peer.take(s, 1)?;
            for (qp, done) in found.data {
                self.packet(qp, &done)?;
                if !is_lossy(s) {
                    return fail(format!("rxe received {done:?} before message {} may come", message.number));
                }
            }
            match found.controls.first().map(|c| (c.kind, c.count)) {
                Some((Kind::Ask, count)) if count == message.number => return Ok(()),
                // An older question that was overtaken.
                Some((Kind::Ask, count)) if count < message.number => {}
                Some(said) => return fail(format!("softnic says {said:?}, not that it waits for {}", message.number)),
                None => {}
            }
        }
        fail(format!("softnic does not ask whether it may send message {}", message.number))
    }

    /// The packet that a completion of rxe is of: one that was sent, by the queue pair of its generation.
    fn packet(&self, qp: usize, done: &Done) -> Result<(u32, u32), Error> {
        let imm = done.imm.filter(|_| done.opcode == Some(WcOpcode::RecvWriteImm));
        match imm.filter(|&imm| self.known.contains(&(qp, imm, done.len))) {
            Some(imm) => Ok((imm, done.len)),
            None => fail(format!("rxe received {done:?} at queue pair {qp}, which was not sent")),
        }
    }
}

/// A receiver that completes a message by taking the key of its generation back: what is late comes to nothing on rxe, too. That is
/// seen when a message without bytes, which needs no key, follows on the same queue pair and is the next that completes.
fn key_taken_back(s: &mut Session, receiver: &mut Receiver, number: u64) -> Result<(), Error> {
    let len = 9 * s.setup.mtu.bytes() as usize;
    let message = Message::new(&receiver.peer.info, number, len);
    let send = start(s, &message, true)?;
    receiver.receive(s, &message, send)?;
    // Not invalidated: LOCAL_INV ends with LOC_QP_OP_ERR at a UC queue pair of rxe, though not at one of RC.
    s.unbind_theirs(receiver.peer.info.generations[message.generation].key)?;
    s.fill(Side::Softnic, FROM, &pattern(99, len))?;
    send_part(s, &message, send, 0, 9)?;
    end(s, send, true)?;
    let empty = Message::new(&receiver.peer.info, number + 1, 0);
    let send = start(s, &empty, false)?;
    receiver.receive(s, &empty, send)?;
    end(s, send, false)?;
    message.expect(s, Side::Rxe, &message.data)
}
