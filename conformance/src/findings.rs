//! What `softnic check` finds in programs that are right: `cargo xtask verbs --check` and `cargo xtask pyverbs --check` fail on errors, and
//! tell the rest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::guest::{Error, failed};

/// Findings that are alike but for their numbers: severity and kind, and how many.
type Counted = BTreeMap<(String, String), usize>;

/// Errors that programs have, and why these are right; docs/check.md has them, too.
const KNOWN: [(&str, &str); 7] = [
    // Its client writes the next message into the buffer when the peer has answered, whether or not the completion of the last one was polled.
    ("rping", "send-buffer-changed"),
    // UCX acknowledges datagrams itself, and is done with a region when the peer has: before the completion was polled.
    ("ud_v", "region-in-use"),
    // What these tests of rdma-core are about.
    ("test_atomic_invalid_lkey", "sge-unknown-key"),
    ("test_atomic_non_aligned_addr", "atomic-not-aligned"),
    ("test_mr_rereg_pd", "sge-other-domain"),
    ("test_post_receive_qp_state_bad_flow", "post-in-wrong-state"),
    ("test_post_send_qp_state_bad_flow", "post-in-wrong-state"),
];

/// Takes the findings out of a folder: what is found is printed, and an error is one.
pub(crate) fn judge(folder: &Path, test: &str) -> Result<(), Error> {
    let mut text = String::new();
    for file in fs::read_dir(folder).map_err(failed(folder))?.flatten() {
        text += &fs::read_to_string(file.path()).map_err(failed(folder))?;
        fs::remove_file(file.path()).map_err(failed(folder))?;
    }
    let (counted, errors) = count(&text).map_err(Error::Failed)?;
    for ((severity, kind), count) in counted {
        println!("check: {test}: {severity} {kind} ({count})");
    }
    let is_known = |kind: &str| {
        KNOWN.iter().any(|(program, known)| *known == kind && test.split(['/', '.']).any(|part| part == *program))
    };
    let errors: Vec<String> = errors.into_iter().filter(|(kind, _)| !is_known(kind)).map(|(_, error)| error).collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(format!("softnic check finds:{}", errors.concat()))),
    }
}

/// How many there are of each kind, and the errors: their kinds, and what they say.
fn count(text: &str) -> Result<(Counted, Vec<(String, String)>), String> {
    let (mut counted, mut errors) = (Counted::new(), Vec::new());
    for line in text.lines() {
        let finding: Value = serde_json::from_str(line).map_err(|e| format!("a finding is cut off: {e}: {line}"))?;
        let word = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        let (severity, kind) = (word("severity"), word("kind"));
        if severity == "error" {
            errors.push((kind.clone(), format!("\n    {kind}: {}\n      {}", word("message"), calls(&finding))));
        }
        *counted.entry((severity, kind)).or_default() += 1;
    }
    Ok((counted, errors))
}

/// The calls of a finding, the innermost first, as far as they have names.
fn calls(finding: &Value) -> String {
    let stack = ["stack", "made"].into_iter().find_map(|stack| finding[stack].as_array());
    let name = |call: &Value| {
        let known = |key: &str| call[key].as_str().map(str::to_owned);
        known("function").or_else(|| Some(format!("{}+{}", known("module")?, known("offset")?))).unwrap_or_default()
    };
    stack.into_iter().flatten().map(name).collect::<Vec<_>>().join(" by ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_with_their_calls_and_others_are_counted() {
        let line = |severity: &str, kind: &str| {
            format!(
                "{{\"kind\":\"{kind}\",\"severity\":\"{severity}\",\"message\":\"it is wrong\",\
                 \"stack\":[{{\"module\":\"/bin/x\",\"offset\":\"0x10\"}},{{\"function\":\"main\"}}]}}\n"
            )
        };
        let text = [line("note", "leak"), line("error", "stale-rkey"), line("note", "leak")].concat();
        let (counted, errors) = count(&text).unwrap();
        assert_eq!(counted[&("note".to_owned(), "leak".to_owned())], 2);
        let told = "\n    stale-rkey: it is wrong\n      /bin/x+0x10 by main";
        assert_eq!(errors, [("stale-rkey".to_owned(), told.to_owned())]);
        assert!(count("{\"kind\":\"le").is_err(), "what is cut off hides something");
    }
}
