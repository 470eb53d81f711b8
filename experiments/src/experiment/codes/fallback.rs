//! How often a WRITE falls back to Selective Repeat because parity is not enough: by the code, and by the formulas of SDR-RDMA's appendix B.

use softnic_codes::{ChunkSet, Code, Family};
use softnic_fault_injector::random::Random;

/// A WRITE: `submessages` of a code, in chunks of some packets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    pub(super) k: usize,
    pub(super) m: usize,
    pub(super) submessages: usize,
    /// Packets of a chunk.
    pub(super) packets: usize,
}

impl Write {
    /// The chance that a chunk is lost, by that of a packet.
    fn chunk_loss(&self, loss: f64) -> f64 {
        -(self.packets as f64 * (-loss).ln_1p()).exp_m1()
    }

    /// The chance that a submessage cannot be recovered (appendix B); k is a multiple of m.
    fn failure(&self, family: Family, loss: f64) -> f64 {
        let q = self.chunk_loss(loss);
        match family {
            Family::Mds => more_than(self.m, self.k + self.m, q),
            Family::Xor => any_of(self.m, more_than(1, self.k / self.m + 1, q)),
        }
    }

    /// The chance that any submessage of the WRITE cannot (§4.2.3).
    pub(super) fn formula(&self, family: Family, loss: f64) -> f64 {
        any_of(self.submessages, self.failure(family, loss))
    }

    /// Loses packets of one WRITE, each with this chance, and asks the codes, as a receiver does, whether each submessage can be recovered;
    /// which of the codes fall back.
    pub(super) fn draw<const N: usize>(&self, codes: &[Code; N], loss: f64, random: &mut Random) -> [bool; N] {
        let submessage = (self.k + self.m) * self.packets;
        let all = submessage * self.submessages;
        let mut falls_back = [false; N];
        let mut lost = gap(loss, random);
        while lost < all && falls_back.contains(&false) {
            let begin = lost / submessage * submessage;
            let (mut present, mut parities) = (ChunkSet::below(self.k), ChunkSet::below(self.m));
            while lost < begin + submessage {
                let chunk = (lost - begin) / self.packets;
                match chunk.checked_sub(self.k) {
                    None => present.remove(chunk),
                    Some(row) => parities.remove(row),
                }
                lost = lost.saturating_add(1).saturating_add(gap(loss, random));
            }
            for (code, falls_back) in codes.iter().zip(&mut falls_back) {
                *falls_back |= !code.can_recover(self.k, &present, &parities);
            }
        }
        falls_back
    }

    /// What [`Write::draw`] comes to in the mean, where that is too rare to be seen, by what the code does with each number of lost chunks.
    pub(super) fn by_strata(&self, strata: &Strata, loss: f64) -> f64 {
        let (n, q) = (self.k + self.m, self.chunk_loss(loss));
        let failure = strata.failing.iter().enumerate().map(|(lost, failing)| failing * exactly(lost, n, q)).sum();
        any_of(self.submessages, failure)
    }
}

/// How often a submessage cannot be recovered that lost so many of its k + m chunks, by that number.
pub(super) struct Strata {
    failing: Vec<f64>,
}

impl Strata {
    /// Asks a code about this many drawn sets of each number of lost chunks.
    pub(super) fn draw(code: &Code, sets: u32, random: &mut Random) -> Strata {
        let n = code.k() + code.m();
        let mut chunks: Vec<usize> = (0..n).collect();
        let mut fails = |lost: usize| {
            for i in 0..lost {
                chunks.swap(i, i + random.below((n - i) as u64) as usize);
            }
            let there = chunks[lost..].iter().copied();
            let present = there.clone().filter(|&chunk| chunk < code.k()).collect();
            let parities = there.filter_map(|chunk| chunk.checked_sub(code.k())).collect();
            !code.can_recover(code.k(), &present, &parities)
        };
        let failing = (0..=n).map(|lost| (0..sets).filter(|_| fails(lost)).count() as f64 / f64::from(sets));
        Strata { failing: failing.collect() }
    }
}

/// How many packets come before the next one that is lost.
fn gap(loss: f64, random: &mut Random) -> usize {
    // From above zero to one.
    let uniform = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (uniform.ln() / (-loss).ln_1p()) as usize
}

/// The chance that any of `n` happens, each with chance `p`.
fn any_of(n: usize, p: f64) -> f64 {
    -(n as f64 * (-p).ln_1p()).exp_m1()
}

/// The chance that `count` of `n` happen, each with chance `p`.
fn exactly(count: usize, n: usize, p: f64) -> f64 {
    let ways = (0..count).map(|i| (n - i) as f64 / (i + 1) as f64).product::<f64>();
    ways * p.powi(count as i32) * (1.0 - p).powi((n - count) as i32)
}

/// The chance that more than `count` do.
fn more_than(count: usize, n: usize, p: f64) -> f64 {
    (count + 1..=n).map(|i| exactly(i, n, p)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILIES: [Family; 2] = [Family::Xor, Family::Mds];

    fn paper(packets: usize) -> Write {
        Write { k: 32, m: 8, submessages: (128 << 20) / (32 * packets * 4096), packets }
    }

    #[test]
    fn formulas_are_exact_where_all_losses_can_be_counted() {
        for (k, m) in [(4, 2), (8, 2), (6, 3), (5, 1), (2, 2)] {
            for family in FAMILIES {
                let code = Code::new(family, k, m).unwrap();
                for q in [1e-4f64, 0.03, 0.5] {
                    let fails = |set: &u64| {
                        let (present, parities) = (ChunkSet::from_words([*set]), ChunkSet::from_words([set >> k]));
                        !code.can_recover(k, &present.and(&ChunkSet::below(k)), &parities)
                    };
                    let chance = |set: u64| {
                        let there = set.count_ones() as i32;
                        (1.0 - q).powi(there) * q.powi((k + m) as i32 - there)
                    };
                    let exact: f64 = (0..1u64 << (k + m)).filter(fails).map(chance).sum();
                    let write = Write { k, m, submessages: 1, packets: 1 };
                    let formula = write.formula(family, q);
                    assert!((formula / exact - 1.0).abs() < 1e-9, "{code} at {q}: {formula}, {exact}");
                    let several = Write { submessages: 7, ..write }.formula(family, q);
                    assert!((several - (1.0 - (1.0 - exact).powi(7))).abs() < 1e-9);
                }
            }
        }
    }

    /// What appendix B comes to for 128 MiB of (32, 8).
    #[test]
    fn the_formulas_have_the_papers_places_of_fallback() {
        let of = |family, loss| paper(1).formula(family, loss);
        assert!((of(Family::Xor, 1e-3) - 0.08).abs() < 0.005 && of(Family::Xor, 1e-2) > 0.999);
        assert!((of(Family::Mds, 1e-2) / 2e-7 - 1.0).abs() < 0.2, "{}", of(Family::Mds, 1e-2));
        assert!((of(Family::Mds, 5e-2) - 0.12).abs() < 0.01 && of(Family::Mds, 1e-1) > 0.999);
        // A chunk of 16 packets is lost about 16 times as often.
        assert!((paper(16).chunk_loss(1e-3) - 0.0159).abs() < 1e-4);
        assert_eq!((paper(1).submessages, paper(16).submessages), (1024, 64));
    }

    #[test]
    fn what_is_drawn_falls_back_as_often_as_the_formula_says() {
        let codes = FAMILIES.map(|family| Code::new(family, 32, 8).unwrap());
        for (packets, loss) in [(1, 2e-3), (1, 5e-2), (16, 4e-3)] {
            let (write, mut random, draws) = (paper(packets), Random::new(7), 400);
            let fell = (0..draws).fold([0; 2], |fell, _| {
                let now = write.draw(&codes, loss, &mut random);
                [0, 1].map(|i| fell[i] + u32::from(now[i]))
            });
            for (family, fell) in FAMILIES.into_iter().zip(fell) {
                let (part, formula) = (f64::from(fell) / f64::from(draws), write.formula(family, loss));
                let error = (formula * (1.0 - formula) / f64::from(draws)).sqrt().max(1.0 / f64::from(draws));
                assert!((part - formula).abs() < 4.0 * error, "{family}, {packets} at {loss}: {part}, {formula}");
            }
        }
    }

    #[test]
    fn strata_come_to_the_formula_where_nothing_can_be_seen() {
        let write = paper(1);
        for (family, loss) in [(Family::Xor, 1e-5), (Family::Xor, 1e-3), (Family::Mds, 1e-3), (Family::Mds, 1e-2)] {
            let code = Code::new(family, 32, 8).unwrap();
            let strata = Strata::draw(&code, 5000, &mut Random::new(3));
            let (ours, formula) = (write.by_strata(&strata, loss), write.formula(family, loss));
            assert!((ours / formula - 1.0).abs() < 0.1, "{family} at {loss}: {ours}, {formula}");
        }
    }

    #[test]
    fn gaps_are_as_long_as_losses_are_rare() {
        let mut random = Random::new(1);
        for loss in [1e-3, 0.1, 0.9] {
            let mean = (0..20_000).map(|_| gap(loss, &mut random) as f64).sum::<f64>() / 20_000.0;
            assert!((mean / ((1.0 - loss) / loss) - 1.0).abs() < 0.05, "{loss}: {mean}");
        }
    }
}
