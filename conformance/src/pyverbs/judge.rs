//! What the end of a test means. A test that the suite skips has passed nothing: only what docs/verbs.md says that we do not have, or what
//! this machine lacks, may be skipped.

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TestVerdict {
    Passed,
    /// The suite skipped it, with its reason, because of something that is not here.
    Skipped {
        reason: String,
        lacks: Lacks,
    },
    Failed(String),
}

/// What is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lacks {
    /// In softnic, by these words of docs/verbs.md.
    Softnic(&'static str),
    /// In the machine.
    Machine(&'static str),
}

/// Tests whose names begin so may be skipped with a reason that says so.
struct Excuse {
    tests: &'static str,
    says: &'static str,
    lacks: Lacks,
}

const fn excuse(tests: &'static str, says: &'static str, lacks: Lacks) -> Excuse {
    Excuse { tests, says, lacks }
}

const EXCUSES: &[Excuse] = &[
    excuse("", "Create XRCD is not supported", Lacks::Softnic("XRC")),
    excuse("", "Device memory is not supported", Lacks::Softnic("device memory")),
    excuse("", "Create QP type 8 is not supported", Lacks::Softnic("raw packets")),
    excuse("test_qp.", "Create Raw Packet QP", Lacks::Softnic("raw packets")),
    excuse("test_odp.", "ODP is not supported", Lacks::Softnic("on-demand paging")),
    excuse("test_mr.", "dmabuf", Lacks::Softnic("dma-buf")),
    excuse("test_mr.", "dma-buf", Lacks::Softnic("dma-buf")),
    excuse("test_tag_matching.", "Extended CQ is not supported", Lacks::Softnic("tag matching")),
    excuse(
        "test_qpex.QpExTestCase.test_qp_ex_rc_atomic_write",
        "Extended QP is not supported",
        Lacks::Softnic("atomic write"),
    ),
    excuse("test_shared_pd.", "Importing a device is not supported", Lacks::Softnic("importing of objects")),
    excuse("", "There are no huge pages", Lacks::Machine("huge pages")),
];

/// What it means that the suite skipped a test.
pub(super) fn skipped(test: &str, reason: &str) -> TestVerdict {
    let excuse = EXCUSES.iter().find(|e| test.starts_with(e.tests) && reason.contains(e.says));
    match excuse {
        Some(excuse) => TestVerdict::Skipped { reason: reason.into(), lacks: excuse.lacks },
        None => TestVerdict::Failed(format!("skipped by the suite, though it should run: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project;

    #[test]
    fn a_test_that_is_skipped_although_it_should_run_has_failed() {
        let xrc = skipped("test_atomic.AtomicTest.test_xrc", "Create XRCD is not supported");
        assert!(matches!(xrc, TestVerdict::Skipped { lacks: Lacks::Softnic("XRC"), .. }));
        for (test, reason) in [
            ("test_qp.QPTest.test_create_rc_qp", "Create QP type 2 is not supported"),
            ("test_cqex.CqExTest.test_traffic", "Extended CQ is not supported"),
            ("test_qpex.QpExTestCase.test_qp_ex_rc_send", "Extended QP is not supported on this device"),
        ] {
            assert!(matches!(skipped(test, reason), TestVerdict::Failed(_)), "{test}");
        }
    }

    #[test]
    fn whatever_excuses_a_skip_is_in_the_document() {
        let text = std::fs::read_to_string(project::root().join("docs/verbs.md")).unwrap();
        let (_, what_is_not) = text.split_once("\n## What is not\n").unwrap();
        let (what_is_not, _) = what_is_not.split_once("\n## ").unwrap();
        // Lines break anywhere.
        let words: Vec<_> = what_is_not.split_whitespace().collect();
        let said = words.join(" ").to_lowercase();
        for excuse in EXCUSES {
            if let Lacks::Softnic(what) = excuse.lacks {
                assert!(said.contains(&what.to_lowercase()), "docs/verbs.md does not say that there is no {what}");
            }
        }
    }
}
