//! Processes of a run, and patterns by which tables of a script say which of them they are for.

/// What `process` of a table may be.
pub(crate) const PROCESS: &str =
    "a program and its arguments, with * for anything, e.g. \"server *\", or \"server * #2\" for the second of a label";

/// A process of a run, as scripts name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessName {
    /// The name of the program without its folder, and its arguments, with a space between.
    pub label: String,
    /// The how-manieth of the run with this label, from 1.
    pub ordinal: u32,
}

/// Which processes: `*` stands for anything, ` #2` at the end for the second of each label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessPattern {
    label: String,
    ordinal: Option<u32>,
}

impl ProcessPattern {
    /// `None` where there is nothing to compare a label with, or the number is 0.
    pub fn parse(text: &str) -> Option<ProcessPattern> {
        let numbered = text.rsplit_once(" #").filter(|(_, digits)| {
            // `parse` would take a sign of its own.
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        });
        let (label, ordinal) = match numbered {
            Some((label, digits)) => (label, Some(digits.parse().ok().filter(|n| *n > 0)?)),
            None => (text, None),
        };
        (!label.is_empty()).then(|| ProcessPattern { label: label.into(), ordinal })
    }

    /// Whether it is for a process.
    pub fn is_for(&self, process: &ProcessName) -> bool {
        self.ordinal.is_none_or(|ordinal| ordinal == process.ordinal) && matches(&self.label, &process.label)
    }
}

/// Whether a pattern with `*` is all of a text. Only the last `*` is ever gone back to, so the time is at most the product of both lengths.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Behind the last `*`, and from where of the text it is tried.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, t));
            }
            Some(c) if *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((behind, from)) => {
                    (p, t) = (behind, from + 1);
                    star = Some((behind, t));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_for(pattern: &str, label: &str, ordinal: u32) -> bool {
        ProcessPattern::parse(pattern).unwrap().is_for(&ProcessName { label: label.into(), ordinal })
    }

    #[test]
    fn a_pattern_is_held_against_the_whole_label() {
        assert!(is_for("ib_write_bw", "ib_write_bw", 3));
        assert!(!is_for("ib_write_bw", "ib_write_bw localhost", 1) && !is_for("write_bw", "ib_write_bw", 1));
        assert!(is_for("ib_write_bw *", "ib_write_bw localhost", 1) && !is_for("ib_write_bw *", "ib_write_bw", 1));
        assert!(is_for("*", "a", 1) && is_for("*", "", 1) && is_for("a*", "a", 1));
        assert!(is_for("a*b*c", "a-b-b-c", 1) && !is_for("a*b*c", "a-b-b-d", 1) && is_for("*é*", "aé", 1));
        assert!(is_for("*-p * x", "t -p 80 -p 90 x", 1));
        assert!(!is_for(&"*a".repeat(50), &"a".repeat(49), 1) && is_for(&"*a".repeat(50), &"a".repeat(5000), 1));
    }

    #[test]
    fn a_number_at_the_end_is_one_process_of_that_label() {
        assert!(is_for("server * #2", "server -p 1", 2) && !is_for("server * #2", "server -p 1", 1));
        assert!(is_for("a #b", "a #b", 7) && is_for("a #", "a #", 7), "no number");
        assert_eq!(
            [ProcessPattern::parse(""), ProcessPattern::parse("a #0"), ProcessPattern::parse(" #1")],
            [None, None, None]
        );
        assert_eq!(ProcessPattern::parse("a #99999999999"), None);
    }
}
