//! Findings for people.

use std::fmt::Write as _;

use super::findings::{Counts, Finding, Findings, Frame};

/// All of them, and how many.
pub(crate) fn of(findings: &Findings, suppressed: usize) -> String {
    let mut out = String::new();
    findings.all.iter().for_each(|finding| out += &block_of(finding));
    if findings.unreadable > 0 {
        // Writing to a string does not fail.
        let _ = writeln!(out, "softnic: {} lines of findings are cut off", findings.unreadable);
    }
    if findings.are_lost {
        let _ = writeln!(out, "softnic: findings are lost: a process could not write them");
    }
    let Counts { errors, warnings, notes } = findings.counts();
    let mut parts: Vec<String> = [(errors, "error"), (warnings, "warning"), (notes, "note")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }))
        .collect();
    if parts.is_empty() {
        parts.push("nothing found".into());
    }
    if suppressed > 0 {
        parts.push(format!("{suppressed} suppressed"));
    }
    let _ = writeln!(out, "softnic: {}", parts.join(", "));
    out
}

/// One of them: what, about what, where.
pub(crate) fn block_of(finding: &Finding) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "softnic: {}: {}: {}", finding.severity.name(), finding.kind, finding.message);
    let mut about = Vec::new();
    if let Some((number, order)) = finding.queue_pair {
        about.push(format!("queue pair {number:#x} (number {order} of the process)"));
    }
    if let Some(wr_id) = finding.wr_id {
        about.push(format!("work request {wr_id:#x}"));
    }
    if finding.processes.len() > 1 {
        about.push(format!("{} processes", finding.processes.len()));
    }
    if !about.is_empty() {
        let _ = writeln!(out, "  {}", about.join(", "));
    }
    let made = if finding.stack.is_empty() { "made" } else { "its object is made" };
    stack(&mut out, "at", &finding.stack);
    stack(&mut out, made, &finding.made);
    if let Some((what, frames)) = &finding.related {
        stack(&mut out, what, frames);
    }
    out
}

fn stack(out: &mut String, what: &str, frames: &[Frame]) {
    for (i, frame) in frames.iter().enumerate() {
        let _ = match i {
            0 => writeln!(out, "  {what} {}", of_frame(frame)),
            _ => writeln!(out, "    by {}", of_frame(frame)),
        };
    }
}

/// `function (file:line)`, or as much of it as is known.
pub(crate) fn of_frame(frame: &Frame) -> String {
    let module = frame.module.as_ref().map(|module| module.display().to_string());
    let place = match (&frame.source, module, frame.offset) {
        (Some(source), ..) => format!("{}:{}", source.file, source.line),
        (None, Some(module), Some(offset)) => format!("{module}+{offset:#x}"),
        _ => frame.address.clone(),
    };
    match &frame.function {
        Some(function) => format!("{function} ({place})"),
        None => place,
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests;
    use super::*;

    #[test]
    fn a_finding_is_a_block_and_the_last_line_counts() {
        let found =
            tests::of(&[tests::line(1, "leak", "note"), tests::line(2, "send-buffer-changed", "error")].concat());
        let text = of(&found, 3);
        let expected = "softnic: error: send-buffer-changed: it is wrong <&>
  queue pair 0x11 (number 1 of the process), work request 0x7
  at post (/opt/libx.so+0x10)
  its object is made 0x60
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("softnic: 1 error, 1 note, 3 suppressed\n"), "{text}");
        assert_eq!(of(&Findings::default(), 0), "softnic: nothing found\n");
    }
}
