//! What XP takes in the core beside UC: WRITEs at a path MTU of 1024, requester and responder together, without any IO; with strides, and with
//! many queue pairs.
//!
//! Two take turns, so that what else the machine does hits both. What counts is the ratio of the times that a twentieth of the turns stay
//! below: those that nothing else disturbed.
#![allow(missing_docs, clippy::print_stdout)]

use softnic_benches::pair::{Memory, Pair, Setup};
use softnic_benches::rounds::{round, undisturbed};
use softnic_nic::transports::Transport;
use softnic_nic::transports::xp::XpSettings;
use softnic_wire::PathMtu;

const XP: Transport = Transport::Xp(XpSettings::DEFAULT);

fn setup(transport: Transport, stride: u16, size: usize, active: usize) -> Setup {
    Setup { active, idle: 0, size, memory: Memory::Hot, mtu: PathMtu::B1024, transport, stride, auth: false }
}

/// Times of both, by requester, responder and their sum. Where one of them has more queue pairs than caches hold, one after the
/// other: it would leave the other nothing in them.
fn measure(setups: [Setup; 2], turns: usize) -> [[f64; 3]; 2] {
    match setups.iter().any(|setup| setup.active > 1) {
        false => race(setups, turns),
        true => setups.map(|setup| race([setup], turns)[0]),
    }
}

/// Times of those that take turns.
fn race<const N: usize>(setups: [Setup; N], turns: usize) -> [[f64; 3]; N] {
    let mut pairs = setups.map(Pair::of);
    let mut times: [[Vec<f64>; 3]; N] = [(); N].map(|()| Default::default());
    for turn in 0..turns {
        for (pair, times) in pairs.iter_mut().zip(&mut times) {
            let [a, b] = round(pair);
            if turn > turns / 10 {
                times.iter_mut().zip([a, b, a + b]).for_each(|(v, t)| v.push(t));
            }
        }
    }
    times.map(|times| times.map(undisturbed))
}

fn main() {
    println!(
        "| bytes | stride | queue pairs | | requester, ns a packet | responder, ns a packet | both, against the first |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (first, second, size, turns) in [
        ((Transport::Uc, 1, 1), (Transport::Uc, 1, 1), 1 << 10, 2001),
        ((Transport::Uc, 1, 1), (XP, 1, 1), 1 << 10, 2001),
        ((Transport::Uc, 1, 1), (XP, 1, 1), 256 << 10, 201),
        ((Transport::Uc, 1, 1), (XP, 256, 1), 256 << 10, 201),
        ((XP, 1, 1), (XP, 1, 100_000), 1 << 10, 21),
    ] {
        let both = [first, second];
        let found = measure(both.map(|(transport, stride, active)| setup(transport, stride, size, active)), turns);
        for ((transport, stride, active), [a, b, sum]) in both.into_iter().zip(found) {
            let ratio = sum / found[0][2];
            println!("| {size} | {stride} | {active} | {transport} | {a:.1} | {b:.1} | {ratio:.2} |");
        }
    }
}
