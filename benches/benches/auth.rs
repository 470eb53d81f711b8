//! What authentication adds to RC in the core: WRITEs of one packet and of 64 KiB, requester and responder together, without any IO.
//!
//! The two take turns, so that what else the machine does hits both. What counts is the ratio of the times that a twentieth of the turns
//! stay below: those that nothing else disturbed.
#![allow(missing_docs, clippy::print_stdout)]

use softnic_benches::pair::{Memory, Pair, Setup};
use softnic_benches::rounds::{round, undisturbed};
use softnic_nic::transports::Transport;
use softnic_wire::PathMtu;

const TURNS: usize = 1001;

fn main() {
    println!("| bytes | path MTU | | requester, ns a packet | responder, ns a packet | both, against rc |");
    println!("|---|---|---|---|---|---|");
    for (size, mtu) in [(64, PathMtu::B1024), (64 << 10, PathMtu::B1024), (64 << 10, PathMtu::B4096)] {
        let setup = |auth| {
            let (memory, transport) = (Memory::Hot, Transport::Rc);
            Setup { active: 1, idle: 0, size, memory, mtu, transport, stride: 1, auth }
        };
        let mut pairs = [false, true].map(|auth| Pair::of(setup(auth)));
        let mut times: [[Vec<f64>; 3]; 2] = Default::default();
        for turn in 0..TURNS {
            for (pair, times) in pairs.iter_mut().zip(&mut times) {
                let [a, b] = round(pair);
                if turn > TURNS / 10 {
                    times.iter_mut().zip([a, b, a + b]).for_each(|(v, t)| v.push(t));
                }
            }
        }
        let [rc, auth] = times.map(|times| times.map(undisturbed));
        for (name, [a, b, both]) in [("rc", rc), ("auth", auth)] {
            println!("| {size} | {} | {name} | {a:.1} | {b:.1} | {:.2} |", mtu.bytes(), both / rc[2]);
        }
    }
}
