//! Rows of a table: what a call takes by criterion, and beside it the times of all samples, for ratios at the end.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;

/// Criterion, and the times of a call by name and size.
pub struct Rows {
    criterion: Criterion,
    times: BTreeMap<(&'static str, usize), Vec<f64>>,
}

impl Rows {
    /// As the command line says.
    #[allow(clippy::new_without_default)] // it reads the command line
    pub fn new() -> Rows {
        let criterion = Criterion::default().configure_from_args();
        let criterion = criterion.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(300));
        Rows { criterion: criterion.nresamples(1000), times: BTreeMap::new() }
    }

    /// Measures a call.
    pub fn run<R>(&mut self, name: &'static str, size: usize, mut f: impl FnMut() -> R) {
        let times = self.times.entry((name, size)).or_default();
        self.criterion.bench_function(&format!("{name}/{size}"), |b| {
            b.iter_custom(|n| {
                let start = Instant::now();
                for _ in 0..n {
                    black_box(&f());
                }
                let took = start.elapsed();
                times.push(took.as_nanos() as f64 / n as f64);
                took
            });
        });
    }

    /// The tenth percentile of all samples: what else runs on a shared machine only ever adds time.
    pub fn typical(&mut self, name: &'static str, size: usize) -> Option<f64> {
        let t = self.times.get_mut(&(name, size))?;
        t.sort_by(f64::total_cmp);
        t.get(t.len() / 10).copied()
    }

    /// All rows are measured.
    pub fn end(&mut self) {
        self.criterion.final_summary();
    }
}
