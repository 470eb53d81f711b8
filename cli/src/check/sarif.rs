//! Findings as SARIF 2.1.0.

use serde_json::{Value, json};
use softnic_check::{Kind, Severity};

use super::findings::{Finding, Findings, Frame};

/// The whole document.
pub(super) fn of(findings: &Findings, program: &str) -> String {
    let rules: Vec<Value> = Kind::ALL
        .iter()
        .map(|kind| {
            json!({
                "id": kind.name(), "shortDescription": { "text": kind.title() },
                "defaultConfiguration": { "level": level(kind.severity()) }
            })
        })
        .collect();
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "softnic check", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": findings.all.iter().map(|finding| result(finding, program)).collect::<Vec<_>>()
        }]
    });
    format!("{document:#}\n")
}

fn level(severity: Severity) -> &'static str {
    severity.name()
}

fn result(finding: &Finding, program: &str) -> Value {
    let mut stacks = Vec::new();
    for (what, frames) in [("at", &finding.stack), ("its object is made", &finding.made)]
        .into_iter()
        .chain(finding.related.iter().map(|(what, frames)| (&what[..], frames)))
    {
        if !frames.is_empty() {
            let frames: Vec<Value> =
                frames.iter().map(|frame| json!({ "location": location(frame, program) })).collect();
            stacks.push(json!({ "message": { "text": what }, "frames": frames }));
        }
    }
    // The frame to look at is one of the program's with a source, if there is any.
    let mut frames = if finding.stack.is_empty() { finding.made.iter() } else { finding.stack.iter() };
    let place = frames.find(|frame| frame.source.is_some()).or(finding.place());
    let locations: Vec<Value> = place.map(|frame| location(frame, program)).into_iter().collect();
    let index = Kind::ALL.iter().position(|kind| *kind == finding.kind);
    json!({
        "ruleId": finding.kind.name(), "ruleIndex": index, "level": level(finding.severity),
        "message": { "text": finding.message }, "locations": locations, "stacks": stacks,
        "properties": {
            "queuePair": finding.queue_pair.map(|(number, _)| number), "queuePairOrder": finding.queue_pair.map(|(_, order)| order),
            "workRequest": finding.wr_id
        }
    })
}

/// A line of a source; without one, the module.
fn location(frame: &Frame, program: &str) -> Value {
    let module = frame.module.as_ref().map_or_else(|| program.to_owned(), |module| module.display().to_string());
    let physical = match &frame.source {
        Some(source) => {
            json!({ "artifactLocation": { "uri": uri(&source.file) }, "region": { "startLine": source.line } })
        }
        None => json!({ "artifactLocation": { "uri": uri(&module) } }),
    };
    match &frame.function {
        Some(function) => {
            json!({ "physicalLocation": physical, "logicalLocations": [{ "name": function, "kind": "function" }] })
        }
        None => json!({ "physicalLocation": physical }),
    }
}

/// A path as a URI: what is not plain is escaped.
fn uri(path: &str) -> String {
    let mut out = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' | b'+' => out.push(byte.into()),
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests;
    use super::*;

    #[test]
    fn a_document_has_rules_results_and_stacks() {
        let found = tests::of(&tests::line(1, "send-buffer-changed", "error"));
        let document: Value = serde_json::from_str(&of(&found, "./x")).unwrap();
        assert_eq!(document["version"], "2.1.0");
        let run = &document["runs"][0];
        let result = &run["results"][0];
        let index = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        assert_eq!((&result["level"], &result["message"]["text"]), (&json!("error"), &json!("it is wrong <&>")));
        let location = &result["locations"][0]["physicalLocation"]["artifactLocation"];
        assert_eq!(location["uri"], "file:///opt/libx.so");
        assert_eq!(result["stacks"].as_array().map(Vec::len), Some(2));
        assert_eq!(uri("/a b/c#d"), "file:///a%20b/c%23d");
    }
}
