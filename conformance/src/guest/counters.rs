//! What a guest's rxe counted since it booted, by its own names.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Error, Guest};

/// By the names of rxe.
pub(crate) type HwCounters = BTreeMap<String, u64>;

/// A guest is slow.
const LIMIT: Duration = Duration::from_secs(60);

impl Guest {
    /// What its rxe counted; `idle` is called while it takes its time.
    pub(crate) fn hw_counters(&mut self, idle: &mut dyn FnMut() -> Result<(), Error>) -> Result<HwCounters, Error> {
        let list = "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *";
        self.call(&json!({"do": "start", "argv": ["sh", "-c", list]}), idle)?;
        let (mut text, begin) = (String::new(), Instant::now());
        while begin.elapsed() < LIMIT {
            let more = self.call(&json!({"do": "output"}), idle)?;
            text.push_str(more["text"].as_str().unwrap_or_default());
            if !more["status"].is_null() {
                break;
            }
            idle()?;
        }
        let counters: HwCounters = text
            .lines()
            .filter_map(|l| l.split_once(':'))
            .filter_map(|(n, v)| Some((n.into(), v.parse().ok()?)))
            .collect();
        match counters.contains_key("sent_pkts") {
            true => Ok(counters),
            false => Err(Error::Failed(format!("rxe's counters are not what they were: {text}"))),
        }
    }
}

/// What was counted in between.
pub(crate) fn since(before: &HwCounters, after: &HwCounters) -> HwCounters {
    after.iter().map(|(name, n)| (name.clone(), n - before.get(name).unwrap_or(&0))).collect()
}
