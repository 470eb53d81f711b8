//! The same measurement at many points, each with several seeds.

use softnic_sim::{Options, Report};

use super::stats::Spread;
use super::{Setting, simulate};

/// What `N` figures came to at each point.
pub(super) struct Race<P, const N: usize> {
    points: Vec<(P, [Option<Spread>; N])>,
    /// Runs that were made, of those that were to be.
    pub(super) runs: usize,
    pub(super) of: usize,
}

/// Runs every point with all its seeds, on all cores.
pub(super) fn race<P: Copy + PartialEq, const N: usize>(
    setting: &Setting,
    points: &[P],
    seeds: impl Fn(&P) -> Vec<u64>,
    options: impl Fn(&P, u64) -> Result<Options, String>,
    figures: fn(&Report) -> [f64; N],
) -> Result<Race<P, N>, String> {
    let mut jobs = Vec::new();
    let mut counts = Vec::new();
    for point in points {
        let seeds = seeds(point);
        counts.push(seeds.len());
        for seed in seeds {
            jobs.push(options(point, seed)?);
        }
    }
    let results = setting.each(jobs, move |options| Ok(figures(&simulate(options)?)))?;
    Ok(Race::of(points, &counts, &results))
}

impl<P: Copy + PartialEq, const N: usize> Race<P, N> {
    /// Of the results of all runs, point by point, so many for each.
    pub(super) fn of(points: &[P], counts: &[usize], results: &[Option<[f64; N]>]) -> Race<P, N> {
        let mut rest = results;
        let mut measured = Vec::new();
        for (point, &count) in points.iter().zip(counts) {
            let (mine, others) = rest.split_at(count);
            rest = others;
            let spread = |i: usize| Spread::of(mine.iter().map(|figures| Some(figures.as_ref()?[i])));
            measured.push((*point, std::array::from_fn(spread)));
        }
        Race { points: measured, runs: results.iter().flatten().count(), of: results.len() }
    }

    /// All points in their order.
    pub(super) fn points(&self) -> impl Iterator<Item = &(P, [Option<Spread>; N])> {
        self.points.iter()
    }

    /// A figure at a point, where it was measured.
    pub(super) fn spread(&self, point: P, figure: usize) -> Option<Spread> {
        self.points.iter().find(|(p, _)| *p == point)?.1[figure]
    }

    pub(super) fn mean(&self, point: P, figure: usize) -> Option<f64> {
        self.spread(point, figure).map(|s| s.mean)
    }
}

/// The lowest of all, if all are there.
pub(super) fn lowest(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.reduce(|a, b| Some(a?.min(b?))).flatten()
}

/// The highest of all, if all are there.
pub(super) fn highest(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.reduce(|a, b| Some(a?.max(b?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extreme_needs_all_values() {
        assert_eq!(lowest([Some(2.0), Some(1.0)].into_iter()), Some(1.0));
        assert_eq!(highest([Some(2.0), None, Some(1.0)].into_iter()), None);
        assert_eq!(lowest([].into_iter()), None);
    }
}
