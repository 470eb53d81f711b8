//! Scenarios among guests: which of them are run, and how a run of them ended.

use crate::guest::Error;
use crate::steps::Outcome;

/// Those with these names, or all; `command` lists them.
pub(crate) fn choose<'a, T>(
    all: &'a [T],
    name: impl Fn(&T) -> &str,
    wanted: &[String],
    command: &str,
) -> Result<Vec<&'a T>, String> {
    if wanted.is_empty() {
        return Ok(all.iter().collect());
    }
    let find = |wanted: &String| all.iter().find(|scenario| name(scenario) == wanted);
    let none = || format!("there is no such scenario: `cargo xtask {command} --list` shows those that are");
    wanted.iter().map(find).collect::<Option<_>>().ok_or_else(none)
}

/// Says how many passed; an error if some did not.
pub(crate) fn sum_up(failures: &[String], of: usize) -> Result<(), String> {
    match failures.len() {
        0 => {
            println!("{of} scenarios passed");
            Ok(())
        }
        n => Err(format!("{n} of {of} scenarios failed")),
    }
}

/// The same as a layer of tests; what is missing leaves it out.
pub(crate) fn as_layer(failures: Result<Vec<String>, Error>, of: usize) -> Outcome {
    match failures {
        Ok(failures) if failures.is_empty() => Outcome::Passed(format!("{of} scenarios")),
        Ok(failures) => Outcome::Failed(failures.join("; ")),
        Err(Error::Missing(why)) => Outcome::LeftOut(why),
        Err(why) => Outcome::Failed(why.to_string()),
    }
}
