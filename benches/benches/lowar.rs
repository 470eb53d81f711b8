//! What LoWAR adds to RC in the core: WRITEs of 64 KiB at a path MTU of 1024, requester and responder together, without any IO.
//!
//! The two take turns, so that what else the machine does hits both. What counts is the ratio of the times that a twentieth of the turns
//! stay below: those that nothing else disturbed.
#![allow(missing_docs, clippy::print_stdout)]

use softnic_benches::pair::{Memory, Pair, Setup};
use softnic_benches::rounds::{round, undisturbed};
use softnic_nic::transports::Transport;
use softnic_nic::transports::lowar::Code;
use softnic_wire::PathMtu;

const SIZE: usize = 64 << 10;
const TURNS: usize = 1001;

fn main() {
    println!(
        "| memory | code | requester, ns a packet | responder, ns a packet | both, against rc | requester | responder |"
    );
    println!("|---|---|---|---|---|---|---|");
    let codes = [None, Code::new(32, 1), Code::new(8, 1), Code::new(64, 8), Code::new(128, 16)];
    for (memory, code) in [Memory::Hot, Memory::Cold].into_iter().flat_map(|m| codes.map(|c| (m, c))) {
        let setup = |code: Option<Code>| {
            let transport = code.map_or(Transport::Rc, Transport::Lowar);
            Setup { active: 1, idle: 0, size: SIZE, memory, mtu: PathMtu::B1024, transport, stride: 1, auth: false }
        };
        let (mut plain, mut coded) = (Pair::of(setup(None)), Pair::of(setup(code)));
        let mut times: [Vec<f64>; 6] = Default::default();
        for turn in 0..TURNS {
            let (a, b) = (round(&mut plain), round(&mut coded));
            if turn > TURNS / 10 {
                let all = [a[0], a[1], a[0] + a[1], b[0], b[1], b[0] + b[1]];
                times.iter_mut().zip(all).for_each(|(v, t)| v.push(t));
            }
        }
        let name = code.map_or("none: rc twice".into(), |code| format!("lowar:{code}"));
        let [a0, a1, a, b0, b1, b] = times.map(undisturbed);
        println!("| {memory:?} | {name} | {b0:.1} | {b1:.1} | {:.3} | {:.3} | {:.3} |", b / a, b0 / a0, b1 / a1);
    }
}
