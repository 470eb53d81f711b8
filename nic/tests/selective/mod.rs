//! Selective Repeat, packet by packet: what is placed and when, what is sent again, what order holds, and peers that lie.

mod answers;
mod arbitrary;
mod liars;
mod loss;
mod negotiated;
mod order;

use softnic_nic::transports::Transport;
use softnic_nic::transports::negotiation::Choice;
use softnic_wire::Psn;
use softnic_wire::aeth::Syndrome;
use softnic_wire::sr::SrEth;

use crate::common::*;

/// One way of the wire takes this long, in nanoseconds.
const ONE_WAY: u64 = 500_000;
/// Bytes of a packet.
const MTU: usize = 256;

fn both_offer() -> Options {
    Options { offers: [Some(Transport::Sr { window: 256 }); 2], ..Options::default() }
}

/// Two hosts that agreed on Selective Repeat.
fn agreed(options: Options) -> World {
    let mut w = World::new(options);
    for _ in 0..2 {
        exchange(&mut w);
    }
    for h in [A, B] {
        assert_eq!(choice(&w, h), Some(Choice::Agreed));
    }
    w
}

/// Each test begins far from the wrap of PSNs, and wraps in its middle.
fn each(test: impl Fn(World)) {
    for psn in FIRST_PSNS {
        test(agreed(Options { psn, ..both_offer() }));
    }
}

fn choice(w: &World, h: usize) -> Option<Choice> {
    w.hosts[h].nic.choice(w.hosts[h].qpn)
}

/// All frames that wait go over, both ways, and take their time.
fn exchange(w: &mut World) {
    let frames = [w.transmit(A), w.transmit(B)];
    w.wait(ONE_WAY);
    w.deliver_all(B, &frames[A]);
    w.deliver_all(A, &frames[B]);
}

/// As [`exchange`], until nobody has anything.
fn settle(w: &mut World) {
    w.settle(ONE_WAY);
}

/// The next frames of `h`, without waiting for clocks; they come `ONE_WAY` later.
fn fly(w: &mut World, h: usize) -> Vec<Vec<u8>> {
    let frames = w.transmit(h);
    w.wait(ONE_WAY);
    frames
}

/// One line a frame: `RDMA_WRITE_LAST +2 A`, `ACK +1 [.x]`, `NAK2 +0 []`, `RNR5 +0 [.x]`, `ANSWERS ACK +3 []`. The bitmap begins with
/// the packet that is expected, where it is not said otherwise.
fn show(w: &World, frames: &[Vec<u8>]) -> Vec<String> {
    frames.iter().map(|f| show_one(w, f)).collect()
}

fn show_one(w: &World, frame: &[u8]) -> String {
    let p = w.parse(frame);
    let first = Psn::new(w.options.psn);
    let psn = p.bth.psn.distance(first);
    let (Some(aeth), Some(sr)) = (p.ext.aeth, p.ext.sr) else {
        let name = p.bth.opcode.to_string();
        return format!("{} {psn:+}{}", name.trim_start_matches("SR_"), if p.bth.ack_req { " A" } else { "" });
    };
    let what = match aeth.syndrome {
        Syndrome::Ack(_) => "ACK".into(),
        Syndrome::Nak(n) => format!("NAK{}", n.0),
        Syndrome::RnrNak(t) => format!("RNR{}", t.0),
        Syndrome::Reserved(b) => format!("RESERVED{b}"),
    };
    let payload = &frame[p.payload.clone()];
    let bits: String =
        (0..sr.offset as usize).map(|i| if payload[i / 8] >> (i % 8) & 1 == 1 { 'x' } else { '.' }).collect();
    let of = if sr.flags & SrEth::RESPONSES != 0 { "ANSWERS " } else { "" };
    let from = Psn::new(sr.number).distance(p.bth.psn);
    let from = if from == 0 { String::new() } else { format!(" from {from:+}") };
    format!("{of}{what} {psn:+}{from} [{bits}]")
}

/// What `h` sends now, shown; it is lost.
fn shown(w: &mut World, h: usize) -> Vec<String> {
    let frames = w.transmit(h);
    show(w, &frames)
}

/// Lets time pass to `h`'s next deadline, and gives what it sends then. A clock may go off too early, and goes on then.
fn on_timer(w: &mut World, h: usize) -> Vec<Vec<u8>> {
    for _ in 0..10 {
        w.wait_for_timer(h).expect("a clock runs");
        let frames = w.transmit(h);
        if !frames.is_empty() {
            return frames;
        }
    }
    panic!("clocks run, and nothing is sent");
}

/// Nothing more is sent, and no clock does anything.
fn assert_quiet(w: &mut World) {
    for _ in 0..4 {
        w.wait(100_000_000);
        assert_eq!([shown(w, A), shown(w, B)], [vec![], Vec::<String>::new()]);
    }
}
