//! XP between two NICs, packet by packet.

mod credit;
mod deadlines;
mod fallback;
mod feedback;
mod liars;
mod messages;
mod order;
mod property;
mod reads;

use softnic_nic::QpKind;
use softnic_nic::transports::{
    BestEffort, Completion, Data, PartialReason, RecvWr, SendFlags, SendOp, SendWr, Status, Transport,
};
use softnic_wire::Instant;
use softnic_wire::xp::XpEth;

use crate::common::*;

const MTU: usize = 256;
const EXPIRED: Option<PartialReason> = Some(PartialReason::Expired);
const PREEMPTED: Option<PartialReason> = Some(PartialReason::Preempted);
const LAST: Option<PartialReason> = Some(PartialReason::Last);

/// A world of two ends with these settings.
fn options(settings: &str) -> Options {
    let transport: Transport =
        if settings.is_empty() { "xp".into() } else { format!("xp:{settings}") }.parse().unwrap();
    Options { kind: transport.kind(), offers: [Some(transport); 2], ..Options::default() }
}

/// Two hosts that have agreed.
fn agreed(options: Options) -> World {
    let mut w = World::new(options);
    w.run();
    assert_eq!((w.events(A), w.events(B)), (vec![], vec![]));
    w
}

/// Two hosts that have agreed, with the default settings.
fn world() -> World {
    agreed(options(""))
}

/// A time from now.
fn within(w: &World, nanos: u64) -> BestEffort {
    BestEffort::until(Instant::from_nanos(w.now.as_nanos() + nanos))
}

/// Posts a receive of `len` bytes at `offset` of host B.
fn recv_with(w: &mut World, wr_id: u64, offset: usize, len: usize, work: &BestEffort) {
    let sges = [w.sge(B, offset, len)];
    w.post_recv(B, &RecvWr { wr_id, sges: &sges, best_effort: Some(work) }).unwrap();
}

/// Posts a signaled send of `len` bytes from `offset` of host A.
fn send_with(w: &mut World, wr_id: u64, op: SendOp, (offset, len): (usize, usize), work: &BestEffort) {
    let sges = [w.sge(A, offset, len)];
    w.post(A, &SendWr { best_effort: Some(work), ..wr(wr_id, op, Data::Gather(&sges)) }).unwrap();
}

/// wr_id, bytes, and why not all of them are there.
type Ended = (u64, u32, Option<PartialReason>);

fn ended(completions: &[Completion]) -> Vec<Ended> {
    assert!(completions.iter().all(|c| c.status == Status::Success), "{completions:?}");
    completions.iter().map(|c| (c.wr_id, c.byte_len, c.partial)).collect()
}

fn received(w: &mut World) -> Vec<Ended> {
    let cq = w.hosts[B].recv_cq;
    ended(&w.all(B, cq))
}

fn sent(w: &mut World) -> Vec<Ended> {
    let cq = w.hosts[A].send_cq;
    ended(&w.all(A, cq))
}

/// The XP header of each frame.
fn headers(w: &World, frames: &[Vec<u8>]) -> Vec<XpEth> {
    frames.iter().map(|frame| w.parse(frame).ext.xp.unwrap()).collect()
}
