//! What the machine's processors did meanwhile: how long they worked, and how long its host kept them for others. A layer that took long on a busy
//! host is told from one that has become dear.

use std::fmt;
use std::ops::Sub;

/// Ticks a second in /proc/stat: USER_HZ, which is 100 on every machine that DPDK and AF_XDP are for.
const TICKS: f64 = 100.0;

/// Seconds of all processors together: since the machine started, or between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Processors {
    /// At work, for whatever program of this machine.
    pub(crate) busy: f64,
    /// Wanted, and not given by the host.
    pub(crate) stolen: f64,
}

impl Processors {
    /// Since the machine started, where the kernel tells.
    pub(crate) fn now() -> Option<Processors> {
        Processors::of(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line: user, nice, system, idle, waiting, interrupts (two kinds), stolen; guests are in the first two already (proc(5)).
    fn of(stat: &str) -> Option<Processors> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let &[user, nice, system, _idle, _waiting, hard, soft, stolen, ..] = &ticks[..] else { return None };
        Some(Processors { busy: (user + nice + system + hard + soft) / TICKS, stolen: stolen / TICKS })
    }
}

impl Sub for Processors {
    type Output = Processors;

    fn sub(self, before: Processors) -> Processors {
        Processors { busy: self.busy - before.busy, stolen: self.stolen - before.stolen }
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "processors worked for {:.0} s, and the host kept them for {:.0} s", self.busy, self.stolen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_what_the_host_took_are_told_apart() {
        let before = Processors::of("cpu  100 20 30 9000 500 7 3 40 60 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n").expect("read");
        assert_eq!(before, Processors { busy: 1.6, stolen: 0.4 });
        let after = Processors::of("cpu  1100 20 30 9900 500 7 3 2040 60 0\n").expect("read");
        assert_eq!((after - before).to_string(), "processors worked for 10 s, and the host kept them for 20 s");
        // A kernel from before hosts could be told apart, and no kernel's file.
        assert_eq!(Processors::of("cpu  1 2 3 4\n"), None);
        assert_eq!(Processors::of("intr 1 2 3 4 5 6 7 8\n"), None);
    }
}
