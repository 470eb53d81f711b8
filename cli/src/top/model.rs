//! What `softnic top` knows: rates from one look to the next, what is selected, and what keys do to it.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::status::{Id, NicStatus, QpStatus, Status, WireStatus};
use crate::terminal::Key;

/// Looks that are remembered.
const REMEMBERED: usize = 60;
/// Where the numbers of packets begin again.
const PSNS: u32 = 1 << 24;

/// A rate now, and before.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Trend(VecDeque<f64>);

impl Trend {
    /// The last rate.
    pub(super) fn now(&self) -> f64 {
        self.0.back().copied().unwrap_or(0.0)
    }

    /// The rates of the last looks, oldest first.
    pub(super) fn last(&self, n: usize) -> impl Iterator<Item = f64> + Clone + '_ {
        self.0.iter().skip(self.0.len().saturating_sub(n)).copied()
    }

    fn push(mut self, rate: f64) -> Trend {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(rate);
        self
    }
}

/// A NIC and its rates; of pairs the first is what leaves.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Nic {
    pub(super) status: NicStatus,
    /// Bits a second.
    pub(super) bits: [Trend; 2],
    pub(super) packets: [f64; 2],
    /// Packets sent again, a second.
    pub(super) again: f64,
    pub(super) qps: Vec<Qp>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Qp {
    pub(super) status: QpStatus,
    /// Packets of its own requests a second, and of its peer's.
    pub(super) packets: [Trend; 2],
    /// Work requests that were completed, a second.
    pub(super) messages: f64,
}

/// A wire and its rates, from a to b and back.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wire {
    pub(super) status: WireStatus,
    pub(super) bits: [Trend; 2],
    pub(super) frames: [f64; 2],
    pub(super) injected: [f64; 2],
}

impl Wire {
    /// Frames that the wire itself dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.status.directions.iter().map(|direction| direction.dropped).sum()
    }
}

/// What comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Order {
    /// The highest rate.
    #[default]
    Rate,
    /// The lowest process or queue pair number.
    Number,
    /// What is sent again.
    Again,
}

impl Order {
    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Rate => "rate",
            Order::Number => "number",
            Order::Again => "again",
        }
    }

    fn next(self) -> Order {
        match self {
            Order::Rate => Order::Number,
            Order::Number => Order::Again,
            Order::Again => Order::Rate,
        }
    }
}

/// Where the arrows move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Focus {
    /// Among NICs and wires.
    #[default]
    All,
    /// Among the queue pairs of a NIC.
    QueuePairs,
    /// A queue pair alone is shown.
    OneQueuePair,
}

/// Faults that are being typed for a wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) wire: Id,
    pub(super) text: String,
}

/// What a key asks for, beside other lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    Interrupt,
    /// Other faults for a wire.
    SetFaults(Id, String),
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) nics: Vec<Nic>,
    pub(super) wires: Vec<Wire>,
    /// Seconds between the last two looks.
    pub(super) seconds: f64,
    pub(super) order: Order,
    pub(super) focus: Focus,
    pub(super) selected: Option<Id>,
    /// Somebody chose it; else the first one is selected, whichever that is.
    chosen: bool,
    pub(super) selected_qp: Option<u32>,
    pub(super) prompt: Option<Prompt>,
    /// What the last key came to, and whether that is an error.
    pub(super) message: Option<(String, bool)>,
}

impl Model {
    /// Another look, so many seconds after the last one.
    pub(super) fn update(&mut self, all: Vec<Status>, seconds: f64) {
        self.seconds = seconds;
        let (old_nics, old_wires) = (std::mem::take(&mut self.nics), std::mem::take(&mut self.wires));
        for status in all {
            match status {
                Status::Nic(status) => {
                    let old = old_nics.iter().find(|nic| nic.status.id == status.id);
                    self.nics.push(nic(status, old, seconds));
                }
                Status::Wire(status) => {
                    let old = old_wires.iter().find(|wire| wire.status.id == status.id);
                    self.wires.push(wire(status, old, seconds));
                }
            }
        }
        self.sort();
        self.keep_selection();
    }

    fn sort(&mut self) {
        let order = self.order;
        let highest = |a: f64, b: f64| b.total_cmp(&a);
        let rate = |trends: &[Trend; 2]| trends[0].now() + trends[1].now();
        self.nics.sort_by(|a, b| {
            let first = match order {
                Order::Rate => highest(rate(&a.bits), rate(&b.bits)),
                Order::Number => Ordering::Equal,
                Order::Again => highest(a.again, b.again),
            };
            first.then(a.status.id.cmp(&b.status.id))
        });
        self.wires.sort_by(|a, b| {
            let first = match order {
                Order::Rate => highest(rate(&a.bits), rate(&b.bits)),
                Order::Number | Order::Again => Ordering::Equal,
            };
            first.then(a.status.id.cmp(&b.status.id))
        });
        for nic in &mut self.nics {
            nic.qps.sort_by(|a, b| {
                let again = |qp: &Qp| (qp.status.retries + qp.status.rnr_retries) as f64;
                let first = match order {
                    Order::Rate => highest(rate(&a.packets), rate(&b.packets)),
                    Order::Number => Ordering::Equal,
                    Order::Again => highest(again(a), again(b)),
                };
                first.then(a.status.qpn.cmp(&b.status.qpn))
            });
        }
    }

    /// All that can be selected, as it stands on the screen.
    fn ids(&self) -> Vec<Id> {
        self.nics.iter().map(|nic| nic.status.id).chain(self.wires.iter().map(|wire| wire.status.id)).collect()
    }

    /// Something is selected as long as there is anything.
    fn keep_selection(&mut self) {
        let ids = self.ids();
        if !self.chosen || self.selected.is_none_or(|id| !ids.contains(&id)) {
            (self.selected, self.focus, self.chosen) = (ids.first().copied(), Focus::All, false);
        }
        let qps = self.nic().map_or(&[][..], |nic| &nic.qps);
        if self.focus != Focus::All && !qps.iter().any(|qp| Some(qp.status.qpn) == self.selected_qp) {
            (self.selected_qp, self.focus) =
                (qps.first().map(|qp| qp.status.qpn), if qps.is_empty() { Focus::All } else { Focus::QueuePairs });
        }
        if self.prompt.as_ref().is_some_and(|prompt| !ids.contains(&prompt.wire)) {
            self.prompt = None;
            self.message = Some(("the wire is gone".into(), true));
        }
    }

    /// The NIC that is selected.
    pub(super) fn nic(&self) -> Option<&Nic> {
        self.nics.iter().find(|nic| Some(nic.status.id) == self.selected)
    }

    fn wire(&self) -> Option<&Wire> {
        self.wires.iter().find(|wire| Some(wire.status.id) == self.selected)
    }

    /// The queue pair that is selected.
    pub(super) fn qp(&self) -> Option<&Qp> {
        self.nic()?.qps.iter().find(|qp| Some(qp.status.qpn) == self.selected_qp)
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: Key) -> Action {
        if key == Key::Interrupt {
            return Action::Interrupt;
        }
        self.message = None;
        match self.prompt.take() {
            Some(prompt) => self.type_faults(prompt, key),
            None => self.command(key),
        }
    }

    fn type_faults(&mut self, mut prompt: Prompt, key: Key) -> Action {
        match key {
            Key::Enter => return Action::SetFaults(prompt.wire, prompt.text),
            Key::Escape => return Action::Nothing,
            Key::Backspace => drop(prompt.text.pop()),
            Key::EraseLine => prompt.text.clear(),
            Key::Char(c) => prompt.text.push(c),
            _ => {}
        }
        self.prompt = Some(prompt);
        Action::Nothing
    }

    fn command(&mut self, key: Key) -> Action {
        self.chosen = true;
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('s') => {
                self.order = self.order.next();
                self.sort();
            }
            Key::Char('f') => match self.wire() {
                Some(wire) => self.prompt = Some(Prompt { wire: wire.status.id, text: wire.status.fault.clone() }),
                None => self.message = Some(("faults are a wire's: select a wire with the arrows".into(), true)),
            },
            Key::Up | Key::Char('k') => self.step(-1),
            Key::Down | Key::Char('j') => self.step(1),
            Key::Enter | Key::Right => {
                self.focus = match self.focus {
                    Focus::All if self.nic().is_some_and(|nic| !nic.qps.is_empty()) => Focus::QueuePairs,
                    Focus::All => Focus::All,
                    Focus::QueuePairs | Focus::OneQueuePair => Focus::OneQueuePair,
                };
                self.keep_selection();
            }
            Key::Escape | Key::Left | Key::Backspace => {
                self.focus = match self.focus {
                    Focus::OneQueuePair => Focus::QueuePairs,
                    Focus::QueuePairs | Focus::All => Focus::All,
                };
            }
            _ => {}
        }
        Action::Nothing
    }

    /// The next one, or the one before it.
    fn step(&mut self, by: isize) {
        let moved =
            |at: Option<usize>, len: usize| at.map_or(0, |at| at.saturating_add_signed(by)).min(len.saturating_sub(1));
        match self.focus {
            Focus::All => {
                let ids = self.ids();
                let at = ids.iter().position(|id| Some(*id) == self.selected);
                self.selected = ids.get(moved(at, ids.len())).copied();
                self.selected_qp = None;
            }
            Focus::QueuePairs | Focus::OneQueuePair => {
                let qps: Vec<u32> =
                    self.nic().map_or_else(Vec::new, |nic| nic.qps.iter().map(|qp| qp.status.qpn).collect());
                let at = qps.iter().position(|qpn| Some(*qpn) == self.selected_qp);
                self.selected_qp = qps.get(moved(at, qps.len())).copied();
            }
        }
    }

    /// A wire took other faults, or why not; what was typed is there still.
    pub(super) fn faults_set(&mut self, wire: Id, text: String, result: Result<(), String>) {
        match result {
            Ok(()) => {
                let now = if text.is_empty() { "none" } else { &text };
                self.message = Some((format!("faults now: {now}"), false));
                let wires = self.wires.iter_mut().filter(|w| w.status.id == wire);
                wires.for_each(|w| w.status.fault.clone_from(&text));
            }
            Err(why) => {
                self.message = Some((why, true));
                self.prompt = Some(Prompt { wire, text });
            }
        }
    }
}

/// What grew in a time, by the second.
fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds.max(1e-6)
}

/// The next value of two trends; a first look has none.
fn trends(old: Option<[Trend; 2]>, rates: impl Fn(usize) -> f64) -> [Trend; 2] {
    match old {
        Some([out, back]) => [out.push(rates(0)), back.push(rates(1))],
        None => Default::default(),
    }
}

fn nic(status: NicStatus, old: Option<&Nic>, seconds: f64) -> Nic {
    let before = old.map(|old| &old.status);
    let bits = trends(old.map(|old| old.bits.clone()), |n| {
        before.map_or(0.0, |b| rate(status.bytes[n], b.bytes[n], seconds)) * 8.0
    });
    let packets = [0, 1].map(|n| before.map_or(0.0, |b| rate(status.packets[n], b.packets[n], seconds)));
    let again = before.map_or(0.0, |b| rate(status.again, b.again, seconds));
    let old_of = |qpn: u32| old?.qps.iter().find(|qp| qp.status.qpn == qpn);
    let qps = status.qps.iter().map(|qp| queue_pair(qp.clone(), old_of(qp.qpn), seconds)).collect();
    Nic { status, bits, packets, again, qps }
}

fn queue_pair(status: QpStatus, old: Option<&Qp>, seconds: f64) -> Qp {
    // A queue pair that was connected anew counts from elsewhere.
    let before = old.map(|old| &old.status).filter(|b| b.peer == status.peer && b.peer_qpn == status.peer_qpn);
    let answered = |b: &QpStatus| match status.answered.wrapping_sub(b.answered) % PSNS {
        n if n < PSNS / 2 => f64::from(n) / seconds.max(1e-6),
        _ => 0.0,
    };
    let packets = trends(old.map(|old| old.packets.clone()), |n| {
        before.map_or(0.0, |b| if n == 0 { rate(status.requested, b.requested, seconds) } else { answered(b) })
    });
    let completed = |b: &QpStatus| status.completed.wrapping_sub(b.completed).cast_signed().max(0);
    let messages = before.map_or(0.0, |b| f64::from(completed(b)) / seconds.max(1e-6));
    Qp { status, packets, messages }
}

fn wire(status: WireStatus, old: Option<&Wire>, seconds: f64) -> Wire {
    let before = old.map(|old| &old.status.directions);
    let now = &status.directions;
    let bits = trends(old.map(|old| old.bits.clone()), |n| {
        before.map_or(0.0, |b| rate(now[n].bytes, b[n].bytes, seconds)) * 8.0
    });
    let frames = [0, 1].map(|n| before.map_or(0.0, |b| rate(now[n].frames, b[n].frames, seconds)));
    let injected = [0, 1].map(|n| before.map_or(0.0, |b| rate(now[n].injected, b[n].injected, seconds)));
    Wire { status, bits, frames, injected }
}
