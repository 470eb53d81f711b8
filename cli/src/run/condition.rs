//! Conditions on counters under which a run counts as failed: `retransmitted_packets>0`.

use std::fmt;
use std::str::FromStr;

use softnic_fault_injector::units::parse_count;
use softnic_runtime::api::{Counters, CountersByName, FailoverCounters, hardware_counters};

/// How many similar names are listed where a name is wrong.
const SIMILAR: usize = 3;

/// A counter, compared with a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    name: String,
    comparison: Comparison,
    limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Greater,
    AtLeast,
    Less,
    AtMost,
    Equal,
    Different,
}

/// The longer ones first: `>` is the beginning of `>=`.
const COMPARISONS: [(&str, Comparison); 6] = [
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    ("==", Comparison::Equal),
    ("!=", Comparison::Different),
    (">", Comparison::Greater),
    ("<", Comparison::Less),
];

/// Every counter of a NIC by every name that it has, all 0.
fn all_names() -> CountersByName {
    let (own, failover) = (Counters::default(), FailoverCounters::default());
    let own = own.iter().chain(failover.iter()).chain([("lost_frames", 0)]);
    let own = own.map(|(name, zero)| (name.to_string(), zero)).collect();
    hardware_counters(&own).into_iter().collect()
}

/// The names that are most like a wrong one.
fn similar(wrong: &str) -> String {
    let all = all_names();
    let mut all: Vec<(&String, f64)> = all.keys().map(|name| (name, strsim::jaro_winkler(wrong, name))).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.iter().take(SIMILAR).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(s: &str) -> Result<Condition, String> {
        let at = s.find(['>', '<', '=', '!']).filter(|&at| at > 0);
        let split = at.map(|at| s.split_at(at));
        let found = split.and_then(|(name, rest)| {
            COMPARISONS.iter().find_map(|&(sign, comparison)| Some((name, comparison, rest.strip_prefix(sign)?)))
        });
        let Some((name, comparison, limit)) = found else {
            return Err(format!("'{s}' compares nothing: write it as in 'retransmitted_packets>0' (> >= < <= == !=)"));
        };
        let name = name.trim();
        if !all_names().contains_key(name) {
            return Err(format!("there is no counter '{name}'; similar ones: {}", similar(name)));
        }
        let limit = parse_count(limit.trim()).map_err(|e| format!("'{s}': {e}"))?;
        Ok(Condition { name: name.into(), comparison, limit })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = COMPARISONS.iter().find(|(_, c)| *c == self.comparison).map_or("", |(sign, _)| sign);
        write!(f, "{}{sign}{}", self.name, self.limit)
    }
}

impl Condition {
    /// The value of its counter where the condition holds.
    pub(crate) fn holds(&self, counters: &CountersByName) -> Option<u64> {
        let value = hardware_counters(counters).into_iter().find(|(name, _)| *name == self.name).map_or(0, |(_, n)| n);
        let holds = match self.comparison {
            Comparison::Greater => value > self.limit,
            Comparison::AtLeast => value >= self.limit,
            Comparison::Less => value < self.limit,
            Comparison::AtMost => value <= self.limit,
            Comparison::Equal => value == self.limit,
            Comparison::Different => value != self.limit,
        };
        holds.then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_the_counter_that_they_name() {
        let counters: CountersByName =
            [("sent_pkts".to_string(), 5), ("packet_seq_err".to_string(), 2)].into_iter().collect();
        for (text, value) in [
            ("sent_pkts>4", Some(5)),
            ("sent_pkts > 5", None),
            ("sent_pkts>=5", Some(5)),
            ("sent_pkts<=4", None),
            ("sent_pkts<1k", Some(5)),
            ("sent_pkts==5", Some(5)),
            ("sent_pkts!=5", None),
            ("lost_frames<1", Some(0)),
            ("rcvd_seq_err!=0", Some(2)),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(condition.holds(&counters), value, "{text}");
        }
        assert_eq!("sent_pkts >= 1k".parse::<Condition>().unwrap().to_string(), "sent_pkts>=1000");
    }

    #[test]
    fn a_wrong_name_lists_those_that_are_like_it() {
        let refused = |text: &str| text.parse::<Condition>().unwrap_err();
        assert!(refused("retransmited_pkts>0").contains("retransmitted_packets"), "{}", refused("retransmited_pkts>0"));
        assert!(refused("timeouts>0").contains("there is no counter 'timeouts'"));
        for wrong in ["", "sent_pkts", ">0", "sent_pkts=>1", "sent_pkts>", "sent_pkts>x"] {
            refused(wrong);
        }
        assert!(refused("sent_pkts=1").contains("=="));
    }
}
