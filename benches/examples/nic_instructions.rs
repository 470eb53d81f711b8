//! A fixed number of WRITEs between two NICs, to count instructions under callgrind: a count does not depend on what
//! else the machine does. `docs/performance.md` has the command.
#![allow(clippy::print_stdout)]

use softnic_benches::pair::{Memory, Pair, Setup};
use softnic_nic::transports::Transport;
use softnic_wire::PathMtu;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    let (Some(active), Some(size), Some(rounds)) = (number(0), number(1), number(2)) else {
        println!(
            "usage: nic_instructions QPS SIZE ROUNDS [IDLE [MTU [TRANSPORT [STRIDE]]]]\nexample: nic_instructions 1 64 1000 9999"
        );
        return;
    };
    let mtu = number(4).and_then(|n| PathMtu::from_bytes(n as u32)).unwrap_or(PathMtu::B4096);
    let transport = args.get(5).map_or(Ok(Transport::Rc), |name| name.parse()).expect("a transport");
    let (idle, stride) = (number(3).unwrap_or(0), number(6).map_or(1, |stride| stride as u16));
    let setup = Setup { active, idle, size, memory: Memory::Hot, mtu, transport, stride, auth: false };
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
