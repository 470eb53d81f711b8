//! The processes of a TEST, as they are alike in every run.

use std::collections::HashSet;

use softnic_fault_injector::calls::Verb;
use softnic_fault_injector::{ProcessName, ProcessPattern};

use crate::record::File;
use crate::thing::{Kind, Learned, Thing, queue_pairs, things};

/// What stands for anything in a pattern.
const ANY: &str = "*";

/// A process, and what it does in every run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// What scripts name it by, and people.
    pub pattern: String,
    /// What happens in every run, in the order of the first.
    pub things: Vec<Learned>,
    /// Its queue pairs.
    pub queue_pairs: u32,
}

/// What the runs without faults had in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cast {
    /// Its processes.
    pub actors: Vec<Actor>,
    /// Things that were not in every run.
    pub left_out: usize,
    /// Processes that were not in every run.
    pub strangers: usize,
    /// Things for which a file had no room.
    pub lost: u64,
}

impl Actor {
    /// How many calls of a verb it makes.
    pub fn calls(&self, verb: Verb) -> u32 {
        let of = |learned: &&Learned| learned.thing.kind() == Kind::Call(verb);
        self.things.iter().filter(of).map(|learned| learned.overall).max().unwrap_or(0)
    }

    /// Whether a process that was seen is this one.
    pub fn is(&self, label: &str, ordinal: u32) -> bool {
        let process = ProcessName { label: label.into(), ordinal };
        ProcessPattern::parse(&self.pattern).is_some_and(|pattern| pattern.is_for(&process))
    }
}

/// One process of one run.
struct Seen {
    label: String,
    ordinal: u32,
    things: Vec<Learned>,
    queue_pairs: u32,
}

/// Finds what the runs have in common.
pub fn learn(runs: &[Vec<File>]) -> Cast {
    let of_file = |file: &File| Seen {
        label: file.process.label.clone(),
        ordinal: file.process.ordinal,
        things: things(file),
        queue_pairs: queue_pairs(file),
    };
    let mut cast = Cast { lost: runs.iter().flatten().map(|file| file.lost).sum(), ..Cast::default() };
    let mut runs: Vec<Vec<Seen>> = runs.iter().map(|files| files.iter().map(of_file).collect()).collect();
    if runs.is_empty() {
        return cast;
    }
    let mut first = runs.remove(0);
    // The order in which files lie in a folder says nothing.
    first.sort_by(|a, b| (&a.label, a.ordinal).cmp(&(&b.label, b.ordinal)));
    let several: HashSet<String> =
        first.iter().filter(|seen| seen.ordinal > 1).map(|seen| seen.label.clone()).collect();
    for seen in first {
        let is_one_of_several = several.contains(&seen.label);
        match seen.in_all(&mut runs) {
            Ok((label, common, left_out)) => {
                cast.left_out += left_out;
                // Ordinals are counted for each label by itself.
                let must_say = !label.contains(ANY) && (is_one_of_several || is_numbered(&label));
                let pattern = if must_say { format!("{label} #{}", common.ordinal) } else { label };
                cast.add(Actor { pattern, things: common.things, queue_pairs: common.queue_pairs });
            }
            Err(()) => cast.strangers += 1,
        }
    }
    cast.strangers += runs.iter().map(Vec::len).sum::<usize>();
    cast
}

/// Whether a label by itself would be taken for one with a number behind it.
fn is_numbered(label: &str) -> bool {
    label.rsplit_once(" #").is_some_and(|(_, digits)| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

impl Cast {
    /// Another one; processes that no pattern tells apart are one.
    fn add(&mut self, actor: Actor) {
        match self.actors.iter_mut().find(|other| other.pattern == actor.pattern) {
            Some(other) => {
                let here: HashSet<Thing> = actor.things.iter().map(|learned| learned.thing).collect();
                let before = other.things.len();
                other.things.retain(|learned| here.contains(&learned.thing));
                self.left_out += before - other.things.len();
                other.queue_pairs = other.queue_pairs.min(actor.queue_pairs);
            }
            None => self.actors.push(actor),
        }
    }

    /// How many things there are.
    pub fn things(&self) -> usize {
        self.actors.iter().map(|actor| actor.things.len()).sum()
    }
}

impl Seen {
    /// Finds it in all other runs, takes it out of these, and keeps what is in all of them; with its label, and how
    /// many things are not in all.
    fn in_all(mut self, others: &mut [Vec<Seen>]) -> Result<(String, Seen, usize), ()> {
        let mut label = self.label.clone();
        let mut all: HashSet<Thing> = self.things.iter().map(|learned| learned.thing).collect();
        for run in others {
            let exact = run.iter().position(|other| other.label == self.label && other.ordinal == self.ordinal);
            let at = exact.or_else(|| {
                let alike =
                    run.iter().enumerate().filter_map(|(i, other)| Some((alike(&self.label, &other.label)?, i)));
                alike.max_by_key(|&(alike, i)| (alike, std::cmp::Reverse(i))).map(|(_, i)| i)
            });
            let other = run.remove(at.ok_or(())?);
            label = in_common(&label, &other.label);
            let there: HashSet<Thing> = other.things.iter().map(|learned| learned.thing).collect();
            all.extend(&there);
            self.things.retain(|learned| there.contains(&learned.thing));
            self.queue_pairs = self.queue_pairs.min(other.queue_pairs);
        }
        let left_out = all.len() - self.things.len();
        Ok((label, self, left_out))
    }
}

/// How many words two labels of one program have in common.
fn alike(a: &str, b: &str) -> Option<usize> {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split(' ').collect(), b.split(' ').collect());
    (a.len() == b.len() && a[0] == b[0]).then(|| a.iter().zip(&b).filter(|(a, b)| a == b).count())
}

/// A label with `*` for the words that differ.
fn in_common(pattern: &str, label: &str) -> String {
    let words = pattern.split(' ').zip(label.split(' '));
    words.map(|(a, b)| if a == b { a } else { ANY }).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thing::tests::{call, file};

    #[test]
    fn what_is_not_in_every_run_is_left_out_and_counted() {
        let (open, reg, post) = (call(Verb::OpenDevice, 0), call(Verb::RegMr, 0), call(Verb::PostSend, 1));
        let runs = [
            vec![file("./x", 1, &[open, reg, post, post])],
            vec![file("./x", 1, &[open, reg, post]), file("./y", 1, &[open])],
            vec![file("./x", 1, &[open, reg, reg, post, post])],
        ];
        let cast = learn(&runs);
        assert_eq!((cast.actors.len(), cast.left_out, cast.strangers), (1, 2, 1));
        assert_eq!(cast.actors[0].pattern, "./x");
        assert_eq!((cast.things(), cast.actors[0].queue_pairs), (3, 1));
        assert_eq!((cast.actors[0].calls(Verb::PostSend), cast.actors[0].calls(Verb::CreateQp)), (1, 0));
    }

    #[test]
    fn words_that_differ_are_anything_and_ordinals_tell_twins_apart() {
        let open = [call(Verb::OpenDevice, 0)];
        let run = |port: &str| {
            vec![file(&format!("server {port} -v"), 1, &open), file("client a", 1, &open), file("client a", 2, &open)]
        };
        let cast = learn(&[run("17"), run("99")]);
        let patterns: Vec<&str> = cast.actors.iter().map(|actor| actor.pattern.as_str()).collect();
        assert_eq!(patterns, ["client a #1", "client a #2", "server * -v"]);
        assert!(cast.actors[1].is("client a", 2) && !cast.actors[1].is("client a", 1));
        assert!(cast.actors[2].is("server 3 -v", 1));
    }

    #[test]
    fn twins_that_no_pattern_tells_apart_are_one() {
        let (open, reg) = (call(Verb::OpenDevice, 0), call(Verb::RegMr, 0));
        let run =
            |a: &str, b: &str| vec![file(&format!("w {a}"), 1, &[open, reg]), file(&format!("w {b}"), 1, &[open])];
        let cast = learn(&[run("1", "2"), run("3", "4")]);
        assert_eq!(cast.actors.len(), 1);
        assert_eq!((cast.actors[0].pattern.as_str(), cast.things(), cast.left_out), ("w *", 1, 1));
    }
}
