//! The seeds that a test of worlds takes.

use std::ops::Range;

/// The seeds of a test, and whether they are enough to judge what was among their worlds.
///
/// `SOFTNIC_SEED=N` is one seed, `SOFTNIC_SEEDS=M` so many from 0 on, or from N on with both. Without them there are `usual` ones.
pub fn seeds(usual: u64) -> (Range<u64>, bool) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    choose(usual, number("SOFTNIC_SEED"), number("SOFTNIC_SEEDS"))
}

fn choose(usual: u64, first: Option<u64>, many: Option<u64>) -> (Range<u64>, bool) {
    match (first, many) {
        (Some(first), many) => (first..first + many.unwrap_or(1), false),
        (None, many) => (0..many.unwrap_or(usual), many.is_none_or(|many| many >= usual)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_as_many_seeds_as_usual_tell_what_is_missing() {
        assert_eq!(choose(300, None, None), (0..300, true));
        assert_eq!(choose(300, None, Some(1500)), (0..1500, true));
        assert_eq!(choose(300, None, Some(20)), (0..20, false));
        assert_eq!(choose(300, Some(7), None), (7..8, false));
        assert_eq!(choose(300, Some(7), Some(400)), (7..407, false));
    }
}
