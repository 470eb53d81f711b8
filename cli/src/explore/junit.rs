//! The result as JUnit XML: a test for each fault.

use std::fmt::Write as _;

use softnic_explore::journal::Entry;
use softnic_explore::judge::Outcome;

use crate::check::junit::escaped;

/// The whole document.
pub(super) fn of<'a>(test: &str, entries: impl Iterator<Item = &'a Entry>) -> String {
    let (mut cases, mut tests, mut failures, mut skipped) = (String::new(), 0, 0, 0);
    for entry in entries {
        tests += 1;
        let (class, name) = (escaped(&format!("softnic.explore.{}", entry.family)), escaped(&entry.fault));
        let seconds = entry.ms as f64 / 1000.0;
        // Writing to a string does not fail.
        let _ = write!(cases, "    <testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.3}\"");
        if entry.outcome.fails() {
            failures += 1;
            let why = entry.why.as_deref().unwrap_or("");
            let mut text = String::new();
            if let Some((failed, of)) = entry.times {
                let _ = writeln!(text, "{failed} of {of} times");
            }
            if let Some(number) = entry.failure.or(entry.like) {
                let _ = writeln!(text, "failures/{number}{}", if entry.like.is_some() { " is alike" } else { "" });
            }
            text += entry.script.as_deref().unwrap_or("");
            let message = escaped(&format!("{}: {why}", entry.outcome.name()));
            let _ = writeln!(
                cases,
                ">\n      <failure message=\"{message}\">{}</failure>\n    </testcase>",
                escaped(&text)
            );
        } else if entry.outcome == Outcome::NotMet {
            skipped += 1;
            cases += ">\n      <skipped message=\"what the fault is for did not come\"/>\n    </testcase>\n";
        } else {
            cases += "/>\n";
        }
    }
    let name = escaped(&format!("softnic explore {test}"));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" \
         errors=\"0\" skipped=\"{skipped}\">\n{cases}  </testsuite>\n</testsuites>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_a_test() {
        let entry = |fault: &str, outcome| Entry {
            fault: fault.into(),
            family: "loss".into(),
            outcome,
            why: Some("<it>".into()),
            exit: Some(0),
            ms: 1500,
            failure: Some(2),
            like: None,
            kind: None,
            times: Some((3, 3)),
            script: Some("[[event]]\n".into()),
        };
        let all = [entry("a & b", Outcome::Hang), entry("c", Outcome::Same), entry("d", Outcome::NotMet)];
        let xml = of("./x", all.iter());
        assert!(xml.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{xml}");
        assert!(
            xml.contains(
                "name=\"a &amp; b\" time=\"1.500\">\n      <failure message=\"hang: &lt;it&gt;\">3 of 3 times"
            )
        );
        assert!(xml.contains("name=\"c\" time=\"1.500\"/>"));
    }
}
