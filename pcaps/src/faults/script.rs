//! Faults as a script in TOML, with the reason for each.

use std::fmt;
use std::time::Duration;

use softnic_wire::Qpn;

use super::{Action, Event, Report, Way};
use crate::PacketNumber;

/// What the script is to be played on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Played {
    /// A link: `ab` goes from the requester to the responder.
    #[default]
    Link,
    /// The requester's device: `ab` is what it sends.
    Requester,
    /// The responder's device: `ab` is what that sends.
    Responder,
}

/// What a script says before its events.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// The captures, by name.
    pub files: Vec<String>,
    /// Where it is played.
    pub played: Played,
}

impl Report {
    /// Writes the events as a script.
    pub fn write_script(&self, header: &Header, out: &mut impl fmt::Write) -> fmt::Result {
        let files: Vec<String> = header.files.iter().map(|name| one_line(name)).collect();
        writeln!(out, "# Faults of {}, as `softnic faults` found them.", files.join(", "))?;
        self.write_counts(out)?;
        self.write_place(out)?;
        match header.played {
            Played::Link => writeln!(
                out,
                "# For a link, where ab goes from the requester to the responder: softnic sim --fault @FILE"
            )?,
            Played::Requester => writeln!(
                out,
                "# For the requester's device, where ab is what it sends: softnic run --fault @FILE -- PROGRAM"
            )?,
            Played::Responder => writeln!(
                out,
                "# For the responder's device, where ab is what it sends: softnic run --fault @FILE -- PROGRAM"
            )?,
        }
        for event in &self.events {
            writeln!(out)?;
            write_event(event, header.played, out)?;
        }
        Ok(())
    }

    /// How many of each kind, as in `2 lost, 1 late`.
    pub fn counts(&self) -> String {
        let word = |action: &Action| match action {
            Action::Drop => "lost",
            Action::Duplicate => "doubled",
            Action::Corrupt(_) => "damaged",
            Action::Reorder(_) => "out of order",
            Action::Mark => "marked",
            Action::Delay(_) => "delayed",
        };
        let count = |wanted| self.events.iter().filter(|event| word(&event.action) == wanted).count();
        let words = ["lost", "doubled", "damaged", "out of order", "marked", "delayed"];
        let some: Vec<String> = words
            .map(|word| (count(word), word))
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, word)| format!("{n} {word}"))
            .collect();
        some.join(", ")
    }

    fn write_counts(&self, out: &mut impl fmt::Write) -> fmt::Result {
        let plural = if self.connections == 1 { "" } else { "s" };
        writeln!(out, "# {} RoCE packets, {} connection{plural}; {}.", self.packets, self.connections, self.counts())?;
        if self.left_out > 0 {
            writeln!(out, "# {} more are left out: these are the first.", self.left_out)?;
        }
        if self.unseen > 0 {
            writeln!(out, "# The last {} RoCE packets of the capture were not looked at.", self.unseen)?;
        }
        if self.elsewhere > 0 {
            writeln!(
                out,
                "# {} more are between other hosts, and left out: a script is for one link.",
                self.elsewhere
            )?;
        }
        if self.not_ready > 0 {
            writeln!(
                out,
                "# A receiver was not ready {} times (RNR NAK): no fault of a link, and not in the script.",
                self.not_ready
            )?;
        }
        if self.undelayed > 0 {
            writeln!(
                out,
                "# {} long round trips are left out: a packet that is delayed alone is overtaken.",
                self.undelayed
            )?;
        }
        Ok(())
    }

    fn write_place(&self, out: &mut impl fmt::Write) -> fmt::Result {
        let Some([a, b]) = self.hosts else { return Ok(()) };
        writeln!(out, "# a is {a}, which sent the first request, b is {b}.")?;
        for (way, taken) in [Way::Ab, Way::Ba].into_iter().zip(self.taken) {
            match taken {
                Some(true) => {
                    writeln!(out, "# {way}: taken before the place of the losses: what was lost is in the capture.")?
                }
                Some(false) => writeln!(
                    out,
                    "# {way}: taken behind the place of the losses: what was lost is not in the capture."
                )?,
                None => {}
            }
        }
        Ok(())
    }
}

fn write_event(e: &Event, played: Played, out: &mut impl fmt::Write) -> fmt::Result {
    let seconds = e.time as f64 / 1e9;
    match e.packet {
        Some(n) => write!(out, "# packet {}, {seconds:.6} s", PacketNumber(n))?,
        None => write!(out, "# not in the capture, before {seconds:.6} s")?,
    }
    writeln!(out, ", psn {}: {}", e.psn, e.why)?;
    writeln!(out, "[[event]]")?;
    let (name, more) = match e.action {
        Action::Drop => ("drop", None),
        Action::Duplicate => ("duplicate", None),
        Action::Corrupt(bit) => ("corrupt", bit.map(|bit| format!("bit = {bit}"))),
        Action::Reorder(behind) => ("reorder", Some(format!("behind = {behind}"))),
        Action::Mark => ("ecn", None),
        Action::Delay(by) => ("delay", Some(format!("delay = \"{}\"", time(by)))),
    };
    writeln!(out, "action = \"{name}\"")?;
    if let Some(more) = more {
        writeln!(out, "{more}")?;
    }
    let way = if played == Played::Responder { e.way.back() } else { e.way };
    writeln!(out, "direction = \"{way}\"")?;
    match e.opcode {
        Some(opcode) if opcode.is_known() => writeln!(out, "opcode = \"{opcode}\"")?,
        Some(opcode) => writeln!(out, "opcode = {:#04x}", opcode.0)?,
        None => {}
    }
    match e.destination {
        Some(n) => writeln!(out, "qpn = \"#{n}\"")?,
        None if e.dest_qp == Qpn::GSI => writeln!(out, "qpn = 1")?,
        None => writeln!(out, "qpn = {:#x}", e.dest_qp.value())?,
    }
    if let Some(n) = e.after_first {
        writeln!(out, "psn = \"+{n}\"")?;
    }
    if let Some(n) = e.iteration {
        writeln!(out, "iteration = {n}")?;
    }
    if let Some(n) = e.nth {
        writeln!(out, "nth = {n}")?;
    }
    Ok(())
}

fn time(by: Duration) -> String {
    match by.as_nanos() {
        ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns if ns % 1_000 == 0 => format!("{}us", ns / 1_000),
        ns => format!("{ns}ns"),
    }
}

/// A name, whatever is in it, is no more than a comment.
fn one_line(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
