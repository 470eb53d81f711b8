//! Independent runs on all cores: results in the order of the runs, whatever thread made them, and progress on stderr.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use softnic_perf::{say, stop};

/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Does `work` for each of `jobs` on `threads` threads. `None` for those that Ctrl-C came before: runs under way are left behind, for
/// the process ends soon. The first error ends all.
pub(super) fn run<J, R>(
    name: &str,
    jobs: Vec<J>,
    threads: usize,
    work: impl Fn(&J) -> Result<R, String> + Send + Sync + 'static,
) -> Result<Vec<Option<R>>, String>
where
    J: Send + Sync + 'static,
    R: Send + 'static,
{
    let count = jobs.len();
    let shared = Arc::new((jobs, AtomicUsize::new(0), work));
    let (tell, told) = channel();
    for _ in 0..threads.clamp(1, count.max(1)) {
        let (shared, tell) = (shared.clone(), tell.clone());
        std::thread::spawn(move || {
            let (jobs, next, work) = &*shared;
            while !stop::requested() {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(i) else { return };
                if tell.send((i, work(job))).is_err() {
                    return; // nobody wants it any more
                }
            }
        });
    }
    drop(tell);
    let mut progress = Progress::new(name, count);
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    let mut done = 0;
    while done < count && !stop::requested() {
        match told.recv_timeout(LOOK) {
            Ok((i, result)) => {
                results[i] = Some(result?);
                done += 1;
                progress.tell(done);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if stop::requested() => {}
            Err(RecvTimeoutError::Disconnected) => return Err("a run ended in a panic, whose message is above".into()),
        }
    }
    Ok(results)
}

/// A bar on a terminal, else a line for each tenth.
pub(super) struct Progress<'a> {
    name: &'a str,
    count: usize,
    bar: Option<ProgressBar>,
    tenths: usize,
    began: Instant,
}

impl Progress<'_> {
    pub(super) fn new(name: &str, count: usize) -> Progress<'_> {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {eta} left");
        let bar = || ProgressBar::new(count as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let bar = io::stderr().is_terminal().then(bar).map(|bar| bar.with_message("runs"));
        Progress { name, count, bar, tenths: 0, began: Instant::now() }
    }

    pub(super) fn tell(&mut self, done: usize) {
        if let Some(bar) = &self.bar {
            return bar.set_position(done as u64);
        }
        let tenths = done * 10 / self.count.max(1);
        if tenths > self.tenths {
            self.tenths = tenths;
            let left = self.began.elapsed().as_secs_f64() / done as f64 * (self.count - done) as f64;
            say!("{}: {done} of {} runs done, about {left:.0} s left", self.name, self.count);
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs_whoever_made_them() {
        let slow = |&job: &u64| {
            std::thread::sleep(Duration::from_millis(job % 3));
            Ok(job * 2)
        };
        for threads in [1, 3, 100] {
            let results = run("test", (0..40).collect(), threads, slow).unwrap();
            assert_eq!(results, (0..40).map(|job| Some(job * 2)).collect::<Vec<_>>());
        }
        assert_eq!(run("test", Vec::<u64>::new(), 2, slow), Ok(vec![]));
    }

    #[test]
    fn the_first_error_ends_all() {
        let failing = |&job: &u64| if job == 3 { Err(format!("job {job}")) } else { Ok(job) };
        assert_eq!(run("test", (0..40).collect(), 2, failing), Err("job 3".into()));
    }
}
