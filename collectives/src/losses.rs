//! What did not come, for whoever wants to know why a step of a training was strange (§6 of the paper), and to lose the same again.
//!
//! As text, a line for each message that was not whole:
//!
//! ```text
//! # softnic collective losses 1
//! collective 17 rank 3 step 5 from 2: 0..1024 4096..5120
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

const HEAD: &str = "# softnic collective losses 1";

/// A message that was not whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Which collective of the group, from 0; warm-ups are not counted.
    pub collective: u64,
    /// The rank that it was for.
    pub rank: usize,
    /// The step of that rank's plan.
    pub step: u32,
    /// The rank that it was from.
    pub from: usize,
    /// Bytes of the message that are missing, in order, none touching another.
    pub ranges: Vec<Range<u32>>,
}

/// Losses of a run, by collective, rank and step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LossLog {
    losses: BTreeMap<(u64, usize, u32), Loss>,
}

/// A line that is none of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LossLogError {
    /// It begins otherwise.
    #[error("line 1: it begins with '{HEAD}'")]
    Head,
    /// A line that is no loss.
    #[error(
        "line {0}: it is not of the form 'collective 17 rank 3 step 5 from 2: 0..1024 4096..5120', with ranges in order"
    )]
    Line(usize),
}

impl LossLog {
    /// Notes a loss.
    pub fn add(&mut self, loss: Loss) {
        self.losses.insert((loss.collective, loss.rank, loss.step), loss);
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Loss> {
        self.losses.values()
    }

    /// The ranges that a rank lost in a step.
    pub fn ranges(&self, collective: u64, rank: usize, step: u32) -> &[Range<u32>] {
        self.losses.get(&(collective, rank, step)).map_or(&[], |loss| &loss.ranges)
    }

    /// Bytes that are missing in all.
    pub fn bytes(&self) -> u64 {
        self.iter().flat_map(|loss| &loss.ranges).map(|r| u64::from(r.end - r.start)).sum()
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.losses.is_empty()
    }
}

/// Puts ranges in order and makes one of those that touch.
pub(crate) fn tidy(ranges: &mut Vec<Range<u32>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, before| {
        let touches = next.start <= before.end;
        if touches {
            before.end = before.end.max(next.end);
        }
        touches
    });
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { collective, rank, step, from, ranges } = self;
        write!(f, "collective {collective} rank {rank} step {step} from {from}:")?;
        ranges.iter().try_for_each(|range| write!(f, " {}..{}", range.start, range.end))
    }
}

impl FromStr for Loss {
    type Err = ();

    fn from_str(line: &str) -> Result<Loss, ()> {
        let (head, tail) = line.split_once(':').ok_or(())?;
        let words: Vec<&str> = head.split_whitespace().collect();
        let ["collective", collective, "rank", rank, "step", step, "from", from] = words[..] else { return Err(()) };
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for word in tail.split_whitespace() {
            let (start, end) = word.split_once("..").ok_or(())?;
            let range = start.parse().map_err(drop)?..end.parse().map_err(drop)?;
            if range.is_empty() || ranges.last().is_some_and(|before| before.end >= range.start) {
                return Err(());
            }
            ranges.push(range);
        }
        Ok(Loss {
            collective: collective.parse().map_err(drop)?,
            rank: rank.parse().map_err(drop)?,
            step: step.parse().map_err(drop)?,
            from: from.parse().map_err(drop)?,
            ranges,
        })
    }
}

impl fmt::Display for LossLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        self.iter().try_for_each(|loss| writeln!(f, "{loss}"))
    }
}

impl FromStr for LossLog {
    type Err = LossLogError;

    fn from_str(text: &str) -> Result<LossLog, LossLogError> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != HEAD) {
            return Err(LossLogError::Head);
        }
        let mut log = LossLog::default();
        for (i, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            log.add(line.parse().map_err(|()| LossLogError::Line(i + 1))?);
        }
        Ok(log)
    }
}

/// Bytes of ranges.
pub(crate) fn bytes_of(ranges: &[Range<u32>]) -> u64 {
    ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_as_it_was_written_and_nothing_else_is_read() {
        let mut log = LossLog::default();
        for (collective, rank, step) in [(17, 3, 5), (2, 0, 9), (17, 1, 5)] {
            log.add(Loss { collective, rank, step, from: 2, ranges: vec![0..1024, 4096..5120] });
        }
        assert_eq!(log.to_string().parse(), Ok(log.clone()));
        assert_eq!(log.bytes(), 3 * 2048);
        assert_eq!(log.ranges(17, 3, 5), [0..1024, 4096..5120]);
        assert_eq!(log.ranges(17, 3, 6), []);
        assert_eq!("".parse::<LossLog>(), Err(LossLogError::Head));
        for wrong in [
            "collective 1 rank 2 step 3",
            "collective 1 rank 2 step 3 from 4: 5",
            "collective 1 rank 2 step 3 from 4: 5..5",
            "collective 1 rank 2 step 3 from 4: 9..12 0..5",
            "collective 1 rank -2 step 3 from 4: 0..5",
        ] {
            assert_eq!(format!("{HEAD}\n\n{wrong}\n").parse::<LossLog>(), Err(LossLogError::Line(3)), "{wrong}");
        }
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = vec![8..12, 0..4, 4..6, 20..24, 10..14];
        tidy(&mut ranges);
        assert_eq!(ranges, [0..6, 8..14, 20..24]);
    }
}
