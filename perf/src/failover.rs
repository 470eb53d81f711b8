//! What the failover of a NIC did in a run, for people and as JSON; and the wait for backups before it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use softnic_runtime::api::FailoverCounters;

use super::side::Side;
use super::stop;

/// How long the queue pairs of a run may take to meet their backups.
const MEETING: Duration = Duration::from_secs(2);

/// Waits until all queue pairs have a backup at both ends, and says how many do not.
pub(crate) fn meet(side: &Side) {
    let (begin, all) = (Instant::now(), u64::from(side.plan.qps));
    while let Some(counters) = side.context.failover_counters() {
        let protected = counters.protected.min(all);
        if protected == all {
            return;
        }
        if begin.elapsed() > MEETING || stop::requested() {
            say!("softnic: {} of {all} queue pairs did not meet their backups: they run without", all - protected);
            return;
        }
        if !side.context.progress() {
            std::thread::yield_now();
        }
    }
}

/// The field `failover` of a report: its fields are a contract.
pub fn failover_json(c: &FailoverCounters) -> Value {
    json!({
        "mode": "shift",
        "failovers": c.failovers,
        "failbacks": c.failbacks,
        "refused": c.refused,
        "resubmitted": c.resubmitted,
        "skipped": c.skipped,
        "fallback_us": { "p50": c.fallback_us(0.5), "p99": c.fallback_us(0.99), "max": c.fallback_us(1.0) },
    })
}

/// How often connections moved, what was sent again, and how long that took.
pub fn failover_text(c: &FailoverCounters) -> String {
    let counts = format!(
        "{} to the backup, {} back, {} refused; {} sent again, {} skipped",
        c.failovers, c.failbacks, c.refused, c.resubmitted, c.skipped
    );
    match (c.fallback_us(0.5), c.fallback_us(0.99), c.fallback_us(1.0)) {
        (Some(p50), Some(p99), Some(max)) => format!("{counts}; {p50:.1} µs p50, {p99:.1} p99, {max:.1} max"),
        _ => counts,
    }
}
