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

/// What a scenario needs is missing before the first one, or not at all: behind others this is a failure, not a reason to leave out the layer.
pub(crate) fn opened<T>(result: Result<T, Error>, earlier: usize) -> Result<T, Error> {
    result.map_err(|error| match error {
        Error::Missing(why) if earlier > 0 => Error::Failed(why),
        other => other,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_after_a_scenario_has_run_fails_the_layer() {
        let missing = || Err::<(), _>(Error::Missing("a queue is in use".into()));
        let layer = |earlier| as_layer(opened(missing(), earlier).map(|()| vec![]), 3);
        assert_eq!(layer(0), Outcome::LeftOut("a queue is in use".into()));
        assert_eq!(layer(2), Outcome::Failed("a queue is in use".into()));
    }
}
