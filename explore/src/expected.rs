//! What runs without faults were like, as JSON: who shows a failure again needs it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use softnic_fault_injector::calls::Verb;

use crate::judge::{Baseline, Finding, Sort};
use crate::output::Expected;

/// A baseline as JSON.
pub fn json_of(baseline: &Baseline) -> Value {
    let output = match &baseline.output {
        Expected::Exact(text) => json!({ "exact": text }),
        Expected::Masked(text) => json!({ "masked": text }),
        Expected::Lines(lines) => json!({ "lines": lines }),
        Expected::AnyOrder { lines, masked } => json!({ "any_order": lines, "numbers": !masked }),
        Expected::Nothing => Value::Null,
    };
    let findings: Vec<Value> =
        baseline.findings.iter().map(|finding| json!({ "error": finding.is_error, "what": finding.what })).collect();
    let calls = baseline.calls.as_ref().map(|calls| {
        let calls = calls.iter().map(|(verb, count)| (verb.name().to_owned(), json!(count)));
        calls.collect::<Map<String, Value>>()
    });
    json!({ "exit": baseline.exit, "output": output, "findings": findings, "calls": calls })
}

/// What such JSON says.
pub fn baseline_of(value: &Value) -> Option<Baseline> {
    let output = &value["output"];
    let lines = |name: &str| {
        let line = |(line, count): (&String, &Value)| Some((line.clone(), count.as_u64()? as usize));
        output[name].as_object()?.iter().map(line).collect::<Option<BTreeMap<String, usize>>>()
    };
    let output = if let Some(text) = output["exact"].as_str() {
        Expected::Exact(text.into())
    } else if let Some(text) = output["masked"].as_str() {
        Expected::Masked(text.into())
    } else if let Some(lines) = lines("lines") {
        Expected::Lines(lines)
    } else if let Some(lines) = lines("any_order") {
        Expected::AnyOrder { lines, masked: !output["numbers"].as_bool()? }
    } else {
        Expected::Nothing
    };
    let finding =
        |value: &Value| Some(Finding { is_error: value["error"].as_bool()?, what: value["what"].as_str()?.to_owned() });
    let calls = value["calls"].as_object().map(|calls| {
        let call = |(name, count): (&String, &Value)| Some((Verb::from_name(name)?, count.as_u64()? as usize));
        calls.iter().map(call).collect::<Option<_>>()
    });
    Some(Baseline {
        exit: value["exit"].as_i64()? as i32,
        output,
        findings: value["findings"].as_array()?.iter().map(finding).collect::<Option<_>>()?,
        calls: match calls {
            None => None,
            Some(calls) => Some(calls?),
        },
    })
}

/// A sort of faults as JSON.
pub fn json_of_sort(sort: Sort) -> Value {
    json!({ "recoverable": sort.is_recoverable, "kills": sort.kills, "fails_post": sort.fails_post })
}

/// What such JSON says.
pub fn sort_of(value: &Value) -> Option<Sort> {
    Some(Sort {
        is_recoverable: value["recoverable"].as_bool()?,
        kills: value["kills"].as_bool()?,
        fails_post: value["fails_post"].as_bool()?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for output in [
            Expected::Exact("a\n".into()),
            Expected::Masked("# a\n".into()),
            Expected::Lines(BTreeMap::from([("a".into(), 2)])),
            Expected::AnyOrder { lines: BTreeMap::from([("a".into(), 1)]), masked: true },
            Expected::Nothing,
        ] {
            let finding = Finding { is_error: true, what: "leak at main".into() };
            for calls in [None, Some(BTreeMap::from([(Verb::PostSend, 3)]))] {
                let findings = BTreeSet::from([finding.clone()]);
                let baseline = Baseline { exit: 3, output: output.clone(), findings, calls };
                assert_eq!(baseline_of(&json_of(&baseline)), Some(baseline));
            }
        }
        assert_eq!(baseline_of(&json!({})), None);
        let sort = Sort { is_recoverable: true, kills: false, fails_post: true };
        assert_eq!(sort_of(&json_of_sort(sort)), Some(sort));
    }
}
