//! What `softnic top` shows: lines of a width, from what it knows.

use super::model::{Focus, Model, Nic, Qp, Trend, Wire};
use super::status::Id;
use crate::colour;
use crate::terminal::{Size, fitting};

/// Columns of the tables as they are.
pub(super) const COLUMNS: usize = 80;
/// Columns of names in them; they grow with the terminal.
const DEVICE: usize = 22;
const PEER: usize = 19;
/// Columns of sparklines.
const SPARK: usize = 8;
const SHORT_SPARK: usize = 5;
const LONG_SPARK: usize = 40;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    /// Headings of tables.
    Bold,
    /// What is wrong.
    Red,
    /// Under the cursor.
    Selected,
}

struct Line(String, Style);

impl Line {
    fn plain(text: impl Into<String>) -> Line {
        Line(text.into(), Style::Plain)
    }

    fn painted(&self, columns: usize, colours: bool) -> String {
        let text = fitting(&self.0, columns);
        match self.1 {
            Style::Red => colour::red(&text, colours),
            Style::Bold if colours => format!("\x1b[1m{text}\x1b[0m"),
            Style::Selected if colours => format!("\x1b[7m{text}\x1b[0m"),
            _ => text,
        }
    }
}

/// The screen: a title, what fits of the tables around the cursor, and keys.
pub(super) fn lines(model: &Model, size: Size, colours: bool) -> Vec<String> {
    let wider = size.columns.saturating_sub(COLUMNS);
    let body = match (model.focus, model.qp()) {
        (Focus::OneQueuePair, Some(qp)) => details(model, qp),
        _ => body(model, wider, true),
    };
    let below = footer(model);
    let room = size.rows.saturating_sub(1 + below.len()).max(1);
    let cursor = body.iter().position(|line| line.1 == Style::Selected).unwrap_or(0);
    let first = (cursor + 1).saturating_sub(room);
    let shown = body.iter().skip(first).take(room);
    let all: Vec<&Line> = shown.chain(&below).collect();
    let title = Line::plain(title(model));
    std::iter::once(&title).chain(all).take(size.rows).map(|line| line.painted(size.columns, colours)).collect()
}

/// The tables once, with the queue pairs of every NIC, for what is no terminal.
pub(super) fn table(model: &Model, colours: bool) -> String {
    let mut out = title(model) + "\n";
    for line in body(model, 0, false) {
        out += &line.painted(usize::MAX, colours);
        out.push('\n');
    }
    out
}

fn title(model: &Model) -> String {
    let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    format!(
        "softnic top: {}, {}; rates of {:.1} s, sorted by {}",
        count(model.nics.len(), "NIC"),
        count(model.wires.len(), "wire"),
        model.seconds,
        model.order.name()
    )
}

fn body(model: &Model, wider: usize, interactive: bool) -> Vec<Line> {
    let mut out = Vec::new();
    if model.nics.is_empty() && model.wires.is_empty() {
        out.push(Line::plain("no NIC and no wire runs here; one that does: softnic perf write_bw --duration 60"));
    }
    let selected = |id: Id| interactive && model.focus == Focus::All && model.selected == Some(id);
    if !model.nics.is_empty() {
        out.push(Line(
            format!(
                " {:>10} {:<device$} {:>5} {:<15} {:<15} {:>7}",
                "PROCESS",
                "NIC",
                "QPS",
                "   OUT bit/s",
                "    IN bit/s",
                "AGAIN/s",
                device = DEVICE + wider
            ),
            Style::Bold,
        ));
    }
    for nic in &model.nics {
        out.push(nic_row(nic, wider, selected(nic.status.id)));
        if !interactive {
            queue_pairs(nic, wider, None, &mut out);
        }
    }
    if !model.wires.is_empty() {
        out.push(Line(
            format!(
                " {:>10} {:<device$} {:<15} {:>8} {:>10} {:>7}",
                "PROCESS",
                "WIRE",
                "       bit/s",
                "FRAMES/s",
                "INJECTED/s",
                "DROPPED",
                device = DEVICE + wider
            ),
            Style::Bold,
        ));
    }
    for wire in &model.wires {
        wire_rows(wire, wider, selected(wire.status.id), &mut out);
    }
    if let Some(nic) = model.nic().filter(|_| interactive) {
        queue_pairs(nic, wider, Some(model), &mut out);
    }
    out
}

fn marked(mark: bool, text: String) -> Line {
    Line(format!("{}{text}", if mark { ">" } else { " " }), if mark { Style::Selected } else { Style::Plain })
}

fn nic_row(nic: &Nic, wider: usize, mark: bool) -> Line {
    let device = DEVICE + wider;
    let status = &nic.status;
    let name = if status.up { status.device.clone() } else { format!("DOWN {}", status.device) };
    let [out, back] = &nic.bits;
    let process = format!("{}/{}", status.id.pid, status.id.index);
    marked(
        mark,
        format!(
            "{process:>10} {:<device$} {:>5} {:>6} {} {:>6} {} {:>7}",
            fitting(&name, device),
            status.queue_pairs,
            short(out.now()),
            spark(out, SPARK),
            short(back.now()),
            spark(back, SPARK),
            short(nic.again)
        ),
    )
}

fn wire_rows(wire: &Wire, wider: usize, mark: bool, out: &mut Vec<Line>) {
    let device = DEVICE + wider;
    let [a, b] = &wire.status.ends;
    let process = wire.status.id.pid.to_string();
    for (n, (process, ends)) in
        [(process.as_str(), format!("{a} > {b}")), ("", format!("{b} > {a}"))].iter().enumerate()
    {
        let direction = wire.status.directions[n];
        out.push(marked(
            mark && n == 0,
            format!(
                "{process:>10} {:<device$} {:>6} {} {:>8} {:>10} {:>7}",
                fitting(ends, device),
                short(wire.bits[n].now()),
                spark(&wire.bits[n], SPARK),
                short(wire.frames[n]),
                short(wire.injected[n]),
                short(direction.dropped as f64)
            ),
        ));
    }
    let fault = &wire.status.fault;
    out.push(Line::plain(format!("{:>12}faults: {}", "", if fault.is_empty() { "none" } else { fault })));
    let dropped = wire.dropped();
    if dropped > 0 {
        out.push(Line(format!("{:>12}INVALID: the wire itself dropped {dropped} frames", ""), Style::Red));
    }
}

fn queue_pairs(nic: &Nic, wider: usize, model: Option<&Model>, out: &mut Vec<Line>) {
    if nic.qps.is_empty() {
        return;
    }
    let peer = PEER + wider;
    out.push(Line(
        format!(
            " {:>8} {:<10} {:<5} {:<peer$} {:<11} {:<11} {:>6} {:>2}",
            "QP", "TRANSPORT", "STATE", "PEER", "OUT pkt/s", " IN pkt/s", "FLYING", "RT"
        ),
        Style::Bold,
    ));
    for qp in &nic.qps {
        let status = &qp.status;
        let mark = model.is_some_and(|m| m.focus == Focus::QueuePairs && m.selected_qp == Some(status.qpn));
        let [sent, answered] = &qp.packets;
        out.push(marked(
            mark,
            format!(
                "{:>#8x} {:<10} {:<5} {:<peer$} {:>5} {} {:>5} {} {:>6} {:>2}",
                status.qpn,
                fitting(&status.transport, 10),
                fitting(&status.state, 5),
                fitting(&status.peer_text(), peer),
                short(sent.now()),
                spark(sent, SHORT_SPARK),
                short(answered.now()),
                spark(answered, SHORT_SPARK),
                short(status.in_flight as f64),
                status.retries + status.rnr_retries
            ),
        ));
    }
    let more = nic.status.queue_pairs.saturating_sub(nic.qps.len() as u64);
    if more > 0 {
        out.push(Line::plain(format!("{:>12}and {more} queue pairs that moved less", "")));
    }
}

/// All that is known of a queue pair.
fn details(model: &Model, qp: &Qp) -> Vec<Line> {
    let status = &qp.status;
    let of = model.nic().map_or(String::new(), |nic| {
        format!(" of {}/{} ({})", nic.status.id.pid, nic.status.id.index, nic.status.device)
    });
    let mut out = vec![Line(format!("queue pair {:#x}{of}", status.qpn), Style::Bold)];
    let mut row = |name: &str, text: String| out.push(Line::plain(format!("  {name:<12}{text}")));
    row("transport", format!("{}, {}", status.transport, status.state));
    row("peer", status.peer_text());
    if let Some(mtu) = status.mtu {
        row("path MTU", format!("{mtu} bytes"));
    }
    for (name, trend) in ["requests", "answered"].into_iter().zip(&qp.packets) {
        row(name, format!("{:>6} packets/s {}", short(trend.now()), spark(trend, LONG_SPARK)));
    }
    let outstanding = status.posted.wrapping_sub(status.completed);
    row("work", format!("{:>6} completed/s, {outstanding} outstanding", short(qp.messages)));
    let window = status.window.map_or(String::new(), |window| format!(" of at most {window}"));
    row("in flight", format!("{:>6} packets{window}", status.in_flight));
    if let Some(rate) = status.rate {
        row("paced at", format!("{:>6} bit/s", short(rate as f64)));
    }
    row("retries", format!("{:>6} since the last progress, {} without a receive", status.retries, status.rnr_retries));
    out
}

fn footer(model: &Model) -> Vec<Line> {
    let mut out: Vec<Line> = Vec::new();
    if let Some((text, is_error)) = &model.message {
        out.push(Line(text.clone(), if *is_error { Style::Red } else { Style::Plain }));
    }
    out.push(Line::plain(match (&model.prompt, model.focus) {
        (Some(prompt), _) => format!("faults (Enter sets, Esc leaves): {}_", prompt.text),
        (None, Focus::All) => "arrows select  Enter queue pairs  s sort  f faults of a wire  q quit".into(),
        (None, Focus::QueuePairs) => "arrows select  Enter one queue pair  Esc back  s sort  q quit".into(),
        (None, Focus::OneQueuePair) => "arrows other queue pairs  Esc back  q quit".into(),
    }));
    out
}

/// A number of at most five columns.
pub(super) fn short(value: f64) -> String {
    let mut scaled = value;
    for unit in ["", "k", "M", "G", "T"] {
        if scaled < 999.5 || unit == "T" {
            let digits = match scaled {
                _ if unit.is_empty() => 0,
                small if small < 9.995 => 2,
                medium if medium < 99.95 => 1,
                _ => 0,
            };
            return format!("{scaled:.digits$}{unit}");
        }
        scaled /= 1e3;
    }
    String::new()
}

/// The last rates as blocks, the highest of them a whole one.
fn spark(trend: &Trend, columns: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = trend.last(columns).fold(0.0, f64::max);
    let block = |rate: f64| match most > 0.0 {
        true => BLOCKS[((rate / most * 7.0).round() as usize).min(7)],
        false => BLOCKS[0],
    };
    let blocks: String = trend.last(columns).map(block).collect();
    format!("{blocks:>columns$}")
}
