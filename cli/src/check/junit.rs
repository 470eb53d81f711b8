//! Findings as JUnit XML: a test for each kind, and one for the program itself.

use std::fmt::Write as _;

use softnic_check::{Kind, Severity};

use super::findings::Findings;
use super::text;

/// The whole document. Findings that are less severe than `least` are told, and fail nothing.
pub(crate) fn of(findings: &Findings, program: &str, exit_code: u8, no_verbs: bool, least: Severity) -> String {
    let mut cases = String::new();
    let mut failures = 0;
    let mut case = |name: &str, failure: Option<(String, String)>, told: String| {
        // Writing to a string does not fail.
        let _ = write!(cases, "    <testcase classname=\"softnic.check\" name=\"{}\"", escaped(name));
        if failure.is_none() && told.is_empty() {
            cases += "/>\n";
            return;
        }
        cases += ">\n";
        if let Some((message, text)) = failure {
            failures += 1;
            let _ = writeln!(cases, "      <failure message=\"{}\">{}</failure>", escaped(&message), escaped(&text));
        }
        if !told.is_empty() {
            let _ = writeln!(cases, "      <system-out>{}</system-out>", escaped(&told));
        }
        cases += "    </testcase>\n";
    };
    let ended = match (exit_code, no_verbs) {
        (_, true) => Some("it used no verbs: nothing was checked".to_owned()),
        (0, false) => None,
        (code, false) => Some(format!("it ended with {code}")),
    };
    case("program", ended.map(|why| (why.clone(), why)), String::new());
    for kind in Kind::ALL {
        let of_kind = || findings.all.iter().filter(|finding| finding.kind == *kind);
        let (bad, told): (Vec<_>, Vec<_>) = of_kind().partition(|finding| finding.severity <= least);
        let all =
            |list: &[&super::findings::Finding]| list.iter().map(|finding| text::block_of(finding)).collect::<String>();
        let failure = bad.first().map(|first| (first.message.clone(), all(&bad)));
        case(kind.name(), failure, all(&told));
    }
    let tests = Kind::ALL.len() + 1;
    let name = escaped(&format!("softnic check {program}"));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" \
         errors=\"0\" skipped=\"0\">\n{cases}  </testsuite>\n</testsuites>\n"
    )
}

/// A text as XML has it; what no document may have is left out.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests;
    use super::*;

    #[test]
    fn a_kind_with_findings_fails_and_lesser_ones_are_told() {
        let found =
            tests::of(&[tests::line(1, "leak", "note"), tests::line(1, "send-buffer-changed", "error")].concat());
        let xml = of(&found, "./x", 0, false, Severity::Error);
        assert!(xml.contains(&format!("tests=\"{}\" failures=\"1\"", Kind::ALL.len() + 1)), "{xml}");
        assert!(xml.contains("<testcase classname=\"softnic.check\" name=\"program\"/>"), "{xml}");
        assert!(xml.contains(
            "name=\"send-buffer-changed\">\n      <failure message=\"it is wrong &lt;&amp;&gt;\">softnic: error"
        ));
        assert!(
            xml.contains("name=\"leak\">\n      <system-out>softnic: note: leak: it is wrong &lt;&amp;&gt;\n"),
            "{xml}"
        );
        assert!(of(&found, "./x", 3, false, Severity::Note).contains("failures=\"3\""), "the program and two kinds");
        assert!(of(&Findings::default(), "./x", 0, true, Severity::Error).contains("nothing was checked"));
        assert_eq!(escaped("a\u{1b}[31m\"<&>\n"), "a[31m&quot;&lt;&amp;&gt;\n");
    }
}
