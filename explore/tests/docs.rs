//! What docs/explore.md says of families and outcomes is what there is.

use softnic_explore::fault::Family;
use softnic_explore::judge::Outcome;

const DOCS: &str = include_str!("../../docs/explore.md");

#[test]
fn every_outcome_has_a_row_and_says_whether_it_fails() {
    for outcome in Outcome::ALL {
        let begin = format!("| {} |", outcome.name());
        let row = DOCS.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("{begin}"));
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or("").trim();
        assert_eq!(last.starts_with("yes"), outcome.fails(), "{row}");
    }
}

#[test]
fn every_family_has_a_row() {
    for family in Family::ALL {
        let name = format!("`{}`", family.name());
        let is_there =
            DOCS.lines().any(|line| line.starts_with('|') && line.split('|').nth(1).is_some_and(|c| c.contains(&name)));
        assert!(is_there, "{name}");
    }
}
