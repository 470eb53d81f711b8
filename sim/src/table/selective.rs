//! The table of `sr`, with the ratio to that of `rc` with the same seeds, and what was aimed at.

use std::fmt::Write;
use std::time::Duration;

use super::{LOSSES, RTTS, Run, SEEDS, bdp, mean, means, render_apart, render_pairs, show_loss};

/// Chances of loss of the long transfers.
const LONG_LOSSES: [f64; 4] = [0.0, 1e-5, 1e-4, 1e-3];
const LONG_RTT: Duration = Duration::from_millis(40);
/// Packets of 4 GiB.
pub(super) const LONG_PACKETS: u64 = 4 << 20;
/// `sr` names the place of each packet of a WRITE in 16 bytes more, of 1106; it may lose little else.
const LEAST: f64 = 0.975;
/// Losses for each bandwidth-delay product from which `sr` must be ahead.
const AHEAD_FROM: f64 = 0.05;
/// Part of the loss-free rate that a long transfer must reach.
const LEAST_LONG: f64 = 0.95;

/// All runs: those of the table, then the long ones.
pub fn runs() -> Vec<Run> {
    let mut runs = super::runs(true);
    for loss in LONG_LOSSES {
        let long = |seed| Run { selective: true, loss, rtt: LONG_RTT, seed, packets: LONG_PACKETS };
        runs.extend(SEEDS.map(long));
    }
    runs
}

/// The table as text, from the goodput of each of [`runs`], rounded, and what the table of `rc` says.
pub fn render(rc: &[Vec<f64>], goodput: &[f64]) -> String {
    let (table, long) = goodput.split_at(super::runs(true).len());
    let mut s = String::from(
        "Goodput of sr (Selective Repeat) in Gbit/s: 10 Gbit/s, MTU 1024, WRITEs of 1 MiB, 256 outstanding, payload elided;\n\
         the mean of seeds 1, 2, 3, with 10 M packets or 300 expected losses each. In brackets: the ratio to rc, in\n\
         goodput-rc.txt. A packet of a WRITE has 16 bytes more than in rc, so without loss the ratio is 1106 / 1122 = 0.986.\n\n",
    );
    let pairs = |(sr, rc): (Vec<f64>, &Vec<f64>)| sr.into_iter().zip(rc).map(|(sr, &rc)| (sr, sr / rc)).collect();
    render_pairs(&mut s, &means(table).into_iter().zip(rc).map(pairs).collect::<Vec<_>>());
    let _ = writeln!(s, "\n4 GiB at a round-trip time of {LONG_RTT:?}; in brackets the ratio to that without loss:\n");
    let _ = writeln!(s, "{:>8}  {:>16}", "loss", "Gbit/s");
    let long: Vec<_> = long.chunks(SEEDS.len()).map(mean).collect();
    for (loss, figure) in LONG_LOSSES.into_iter().zip(&long) {
        let _ = writeln!(s, "{:>8}  {:>16}", show_loss(loss), format!("{figure:.4} ({:.3})", figure / long[0]));
    }
    render_apart(&mut s, &runs(), goodput);
    s
}

/// What was aimed at and missed, a line for each.
pub fn missed(rc: &[Vec<f64>], goodput: &[f64]) -> Vec<String> {
    let (table, long) = goodput.split_at(super::runs(true).len());
    let mut missed = Vec::new();
    for ((loss, sr), rc) in LOSSES.into_iter().zip(means(table)).zip(rc) {
        for ((rtt, sr), rc) in RTTS.into_iter().zip(sr).zip(rc) {
            let (ratio, losses) = (sr / rc, loss * bdp(rtt));
            let cell = format!("loss {}, RTT {rtt:?}: {ratio:.4} of rc", show_loss(loss));
            if ratio < LEAST {
                missed.push(format!("{cell}, less than {LEAST}"));
            }
            if losses >= AHEAD_FROM && ratio <= 1.0 {
                missed.push(format!("{cell}, not ahead, with {losses:.3} losses a bandwidth-delay product"));
            }
        }
    }
    let long: Vec<_> = long.chunks(SEEDS.len()).map(mean).collect();
    for (loss, figure) in LONG_LOSSES.into_iter().zip(&long) {
        let ratio = figure / long[0];
        if ratio < LEAST_LONG {
            let loss = show_loss(loss);
            missed.push(format!("4 GiB, loss {loss}: {ratio:.4} of the loss-free rate, less than {LEAST_LONG}"));
        }
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::super::{parse, rounded};
    use super::*;

    /// What rc reaches by the formula, and sr if it lost nothing.
    fn figures() -> (Vec<Vec<f64>>, Vec<f64>) {
        let rc = LOSSES.map(|loss| RTTS.map(|rtt| super::super::go_back_n(loss, rtt)).to_vec()).to_vec();
        (rc, vec![9.1; runs().len()])
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (rc, mut goodput) = figures();
        goodput.iter_mut().enumerate().for_each(|(i, g)| *g = rounded(*g - i as f64 / 7.0e3));
        let text = render(&rc, &goodput);
        assert_eq!(parse(&text, &runs()), Some(goodput.clone()));
        assert_eq!(render(&rc, &parse(&text, &runs()).unwrap()), text);
    }

    #[test]
    fn each_aim_that_is_missed_is_told() {
        let (rc, mut goodput) = figures();
        assert_eq!(missed(&rc, &goodput), [""; 0]);
        let at = |loss, rtt, packets: u64| {
            let of = |run: &Run| (run.loss, run.rtt, run.packets) == (loss, rtt, packets);
            runs().iter().position(of).unwrap()
        };
        let (ms, us) = (Duration::from_millis(1), Duration::from_micros(1));
        // In one of three seeds, so that the mean is a third of it lower.
        goodput[at(0.0, 10 * us, 10_000_000)] -= 3.0 * 0.1;
        goodput[at(1e-4, ms, 3_000_000)] -= 3.0 * 0.8;
        goodput[at(1e-4, 40 * ms, LONG_PACKETS)] -= 3.0 * 0.5;
        let missed = missed(&rc, &goodput);
        assert_eq!(missed.len(), 3, "{missed:?}");
        assert!(missed[0].starts_with("loss 0, RTT 10µs: 0.9721 of rc, less"), "{missed:?}");
        assert!(missed[1].starts_with("loss 1e-4, RTT 1ms: 0.9978 of rc, not ahead"), "{missed:?}");
        assert!(missed[2].starts_with("4 GiB, loss 1e-4: 0.9451 of the loss-free rate"), "{missed:?}");
    }
}
