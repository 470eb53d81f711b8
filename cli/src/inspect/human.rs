//! The lines that people read.

use std::fmt;
use std::io::{self, Write};

use softnic_pcaps::analysis::{Connection, Verdict};
use softnic_pcaps::decode::{Dissection, IcrcVerdict};
use softnic_pcaps::sack::Sack;
use softnic_pcaps::sequence::Order;
use softnic_pcaps::summary::{Flow, Summary};
use softnic_pcaps::{PacketNumber, Timestamp};
use softnic_wire::aeth::{NakCode, Syndrome};
use softnic_wire::sdr::Split;
use softnic_wire::{Carrier, Error, ExtHeaders, Opcode};

use super::connections::DirectionLine;
use super::mad::mad_line;
use super::sdr;
use super::{End, Shown, groups, rate};

const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";
const GREY: &str = "\x1b[90m";
const BOLD: &str = "\x1b[1m";

pub(super) struct Printer {
    colour: bool,
    several_files: bool,
    /// Times are printed from the first packet on.
    start: Option<Timestamp>,
    /// How immediates of SDR are divided, where there are some.
    sdr: Option<Split>,
}

/// A value in a colour, or plain.
struct Painted<T> {
    colour: Option<&'static str>,
    value: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.colour {
            Some(c) => write!(f, "{c}{}\x1b[0m", self.value),
            None => self.value.fmt(f),
        }
    }
}

/// A field of which the capture may not hold the bytes.
struct Maybe<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Maybe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(v) => v.fmt(f),
            None => f.write_str("?"),
        }
    }
}

impl Printer {
    pub(super) fn new(colour: bool, several_files: bool, sdr: Option<Split>) -> Printer {
        Printer { colour, several_files, start: None, sdr }
    }

    fn paint<T>(&self, colour: &'static str, value: T) -> Painted<T> {
        Painted { colour: self.colour.then_some(colour), value }
    }

    /// Number and time, aligned.
    fn stamp(&mut self, out: &mut impl Write, number: PacketNumber, time: Timestamp) -> io::Result<()> {
        let start = *self.start.get_or_insert(time);
        let ns = time.nanos() - start.nanos();
        let sign = if ns < 0 { "-" } else { "" };
        let us = ns.unsigned_abs() / 1000;
        let text = format!("{sign}{}.{:06}", us / 1_000_000, us % 1_000_000);
        let width = if self.several_files { 7 } else { 5 };
        write!(out, "{number:>width$} {} ", self.paint(GREY, format_args!("{text:>11}")))
    }

    /// A packet; times are printed from the capture's `first` packet on.
    pub(super) fn packet(&mut self, out: &mut impl Write, s: &Shown<'_>, first: Timestamp) -> io::Result<()> {
        self.start.get_or_insert(first);
        self.stamp(out, s.number, s.time)?;
        let p = s.packet;
        if p.layout.carrier == Carrier::RoceV1 {
            write!(out, "RoCEv1 ")?;
        }
        let opcode_colour = colour_of(p);
        write!(out, "{} > {} {}", p.src, p.dst, self.paint(opcode_colour, Maybe(p.opcode)))?;
        write!(out, " qp {} psn {}", Maybe(p.dest_qp), Maybe(p.psn))?;
        let flags: String = [(p.ack_req, 'A'), (p.solicited, 'S'), (p.fecn, 'F'), (p.becn, 'B')]
            .iter()
            .filter(|(on, _)| *on == Some(true))
            .map(|&(_, c)| c)
            .collect();
        if !flags.is_empty() {
            write!(out, " [{flags}]")?;
        }
        write!(out, " len {}", Maybe(p.payload_len))?;
        // An acknowledgement of Selective Repeat has words of its own for what its header means.
        let sack = Sack::of(p);
        let ext = ExtHeaders { sr: p.ext.sr.filter(|_| sack.is_none()), ..p.ext };
        if !ext.set().is_empty() {
            write!(out, ", {ext}")?;
        }
        if let Some(sack) = sack {
            write!(out, ", {sack}")?;
        }
        if let Some(header) = p.repair_header() {
            write!(out, ", {header}")?;
        }
        if let Some(sdr) = sdr::of(p, self.sdr) {
            write!(out, ", {sdr}")?;
        }
        if let Some(group) = &s.group {
            write!(out, ", {group}")?;
        }
        if let Some(line) = mad_line(p) {
            write!(out, ", {line}")?;
        }
        if let Some(trailer) = p.trailer {
            write!(out, ", auth epoch {}", trailer.epoch)?;
        }
        if p.traffic_class & 3 == 3 {
            write!(out, ", {}", self.paint(YELLOW, "CE"))?;
        }
        match p.icrc {
            IcrcVerdict::Ok => write!(out, ", icrc ok")?,
            IcrcVerdict::Bad => write!(out, ", {}", self.paint(RED, "icrc BAD"))?,
            IcrcVerdict::Truncated => write!(out, ", {}", self.paint(YELLOW, "icrc truncated"))?,
        }
        match s.order {
            Some(Order::Again) => write!(out, " {}", self.paint(YELLOW, "(retransmission)"))?,
            Some(Order::Early) => write!(out, " {}", self.paint(YELLOW, "(out of sequence)"))?,
            Some(Order::Next) | None => {}
        }
        if let Some(first) = s.copy_of {
            write!(out, " {}", self.paint(GREY, format_args!("(the same as {first})")))?;
        }
        if let Some(e) = &p.problem {
            write!(out, " {}", self.paint(RED, format_args!("(malformed: {e})")))?;
        }
        writeln!(out)
    }

    pub(super) fn other(
        &mut self,
        out: &mut impl Write,
        number: PacketNumber,
        time: Timestamp,
        why: &Error,
    ) -> io::Result<()> {
        self.stamp(out, number, time)?;
        writeln!(out, "{}", self.paint(GREY, format_args!("not decoded: {why}")))
    }

    pub(super) fn summary(&mut self, out: &mut impl Write, s: &Summary, end: &End<'_>) -> io::Result<()> {
        writeln!(out)?;
        writeln!(
            out,
            "{} in {} frames ({} of other protocols, {} fragments, {} not decoded)",
            self.paint(BOLD, format_args!("{} RoCE packets", s.packets)),
            s.frames,
            s.other_frames,
            s.fragments,
            s.undecodable
        )?;
        if let Some(n) = end.copies {
            let told = match self.several_files {
                true => "are in more than one file, and count once; times of different files are as they stand",
                false => "were seen at more than one interface, and count once",
            };
            writeln!(out, "{n} packets {told}")?;
        }
        if s.packets == 0 {
            return Ok(());
        }
        let bad = if s.icrc_bad > 0 { RED } else { GREY };
        writeln!(
            out,
            "ICRC: {} ok, {}, {} truncated; {} malformed",
            s.icrc_ok,
            self.paint(bad, format_args!("{} bad", s.icrc_bad)),
            s.icrc_truncated,
            s.malformed
        )?;
        writeln!(out, "{} bytes in {:.6} s, {}", s.bytes, s.seconds(), rate(s.bits_per_second()))?;
        writeln!(out, "\n{:>9}  opcode", "packets")?;
        for (&opcode, count) in &s.opcodes {
            writeln!(out, "{count:>9}  {}", Opcode(opcode))?;
        }
        writeln!(
            out,
            "\n{:>9} {:>12} {:>7} {:>7} {:>5} {:>5}  flow",
            "packets", "bytes", "retrans", "out-seq", "NAK", "RNR"
        )?;
        for (key, flow) in &s.flows {
            write!(
                out,
                "{:>9} {:>12} {:>7} {:>7} {:>5} {:>5}  {} > {} qp {}",
                flow.packets,
                flow.payload_bytes,
                flow.retransmissions,
                flow.out_of_sequence,
                flow.nak_total(),
                flow.rnr_naks,
                key.src,
                key.dst,
                key.dest_qp
            )?;
            writeln!(out, "{}", self.paint(YELLOW, Remarks(flow)))?;
        }
        groups::lines(out, end.groups)?;
        self.connections(out, end.connections)?;
        self.verdicts(out, end.verdicts)
    }

    /// What is wrong, with the packets that show it and what to do about it.
    fn verdicts(&self, out: &mut impl Write, verdicts: &[Verdict]) -> io::Result<()> {
        if verdicts.is_empty() {
            return writeln!(out, "\nno verdicts: nothing in the capture looks wrong");
        }
        writeln!(out, "\nverdicts")?;
        for v in verdicts {
            let name = self.paint(RED, v.finding.name());
            writeln!(out, "  {name}: {} ({})", v.finding, v.packets)?;
            if let Some((_, [a, b])) = v.connection {
                writeln!(out, "    in {a} <-> {b}")?;
            }
            writeln!(out, "    {}", v.finding.advice())?;
        }
        Ok(())
    }

    /// Each connection, and what went each way.
    fn connections(&self, out: &mut impl Write, connections: &[Connection<'_>]) -> io::Result<()> {
        if connections.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nconnections")?;
        for c in connections {
            write!(out, "  {}", self.paint(BOLD, c))?;
            match c.paired_by {
                Some(by) => writeln!(out, " (paired by {by})")?,
                None => writeln!(out)?,
            }
            for (way, direction) in [">", "<"].iter().zip(c.directions) {
                if let Some(d) = direction.filter(|d| d.packets > 0) {
                    writeln!(out, "    {way} {}", DirectionLine(d))?;
                }
            }
        }
        Ok(())
    }
}

/// Requests plain, answers in cyan, what went wrong in red or yellow.
fn colour_of(p: &Dissection<'_>) -> &'static str {
    match (p.ext.aeth.map(|a| a.syndrome), p.opcode) {
        (Some(Syndrome::Nak(_)), _) => RED,
        (Some(Syndrome::RnrNak(_)), _) | (_, Some(Opcode::CNP)) => YELLOW,
        (_, Some(op)) if op.is_response() => CYAN,
        (_, Some(op)) if !op.is_known() => RED,
        _ => BOLD,
    }
}

/// What is worth a remark at the end of a flow's line.
struct Remarks<'a>(&'a Flow);

impl fmt::Display for Remarks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (&code, n) in &self.0.naks {
            write!(f, "  {n} nak {}", NakCode(code))?;
        }
        let others =
            [(self.0.repairs, "repair"), (self.0.icrc_bad, "bad icrc"), (self.0.cnps, "cnp"), (self.0.ecn_ce, "ce")];
        for (n, what) in others {
            if n > 0 {
                write!(f, "  {n} {what}")?;
            }
        }
        if let Some(sdr) = &self.0.sdr {
            write!(f, "  {} data", sdr.data)?;
            for (n, what) in [(sdr.parity.unwrap_or(0), "parity"), (sdr.retransmitted, "sent again")] {
                if n > 0 {
                    write!(f, ", {n} {what}")?;
                }
            }
        }
        let Some(xp) = &self.0.xp else { return Ok(()) };
        write!(f, "  {} messages", xp.messages())?;
        let others = [
            (xp.missing_packets, "packets missing"),
            (xp.late_packets, "late"),
            (xp.duplicates, "twice"),
            (xp.without_last(), "without a last fragment"),
            (xp.unseen_messages(), "not seen at all"),
        ];
        for (n, what) in others {
            if n > 0 {
                write!(f, ", {n} {what}")?;
            }
        }
        Ok(())
    }
}
