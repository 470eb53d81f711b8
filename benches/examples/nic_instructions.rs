//! A fixed number of RC WRITEs between two NICs, to count instructions under callgrind: a count does not depend on what
//! else the machine does. `docs/performance.md` has the command.
#![allow(clippy::print_stdout)]

use softnic_benches::pair::{Memory, Pair, Setup};
use softnic_wire::PathMtu;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    let (Some(active), Some(size), Some(rounds)) = (number(0), number(1), number(2)) else {
        println!(
            "usage: nic_instructions QPS SIZE ROUNDS [IDLE [MTU [R,C]]]\nexample: nic_instructions 1 64 1000 9999"
        );
        return;
    };
    let mtu = number(4).and_then(|n| PathMtu::from_bytes(n as u32)).unwrap_or(PathMtu::B4096);
    let lowar = args.get(5).and_then(|code| code.parse().ok());
    let setup = Setup { active, idle: number(3).unwrap_or(0), size, memory: Memory::Hot, mtu, lowar, auth: false };
    let mut pair = Pair::of(setup);
    let mut done = 0;
    for _ in 0..rounds {
        pair.post();
        loop {
            let sent = pair.send();
            pair.receive(sent);
            let answers = pair.answer();
            done += pair.complete(answers);
            if sent == 0 && answers == 0 {
                break;
            }
        }
    }
    println!("{done} messages, {} packets", rounds * pair.packets());
}
