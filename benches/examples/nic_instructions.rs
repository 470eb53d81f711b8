//! A fixed number of RC WRITEs between two NICs, to count instructions under callgrind: a count does not depend on what
//! else the machine does. `docs/performance.md` has the command.
#![allow(clippy::print_stdout)]

use softnic_benches::pair::{Memory, Pair};

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let (Some(qps), Some(size), Some(rounds)) = (args.next(), args.next(), args.next()) else {
        println!("usage: nic_instructions QPS SIZE ROUNDS [IDLE]\nexample: nic_instructions 1 64 1000 9999");
        return;
    };
    let mut pair = Pair::with_idle(qps, args.next().unwrap_or(0), size, Memory::Hot);
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
    println!("{done} packets");
}
