//! The client's end of a run: every size in turn, and what came of it.

use std::collections::BTreeMap;

use super::bandwidth::Sender;
use super::best_effort::Delivered;
use super::control::{Control, Message, unexpected};
use super::interval::Intervals;
use super::latency::PingPong;
use super::plan::{Plan, Verb};
use super::report::Measured;
use super::side::{Side, next_line};
use super::stop;

/// What becomes of each size that was measured, with the counters.
pub type Tell<'t> = dyn FnMut(&Plan, &Measured, &BTreeMap<String, u64>) -> Result<(), String> + 't;

/// Runs all sizes over a connection; stops early at Ctrl-C.
pub(crate) fn run(
    side: &mut Side,
    control: &mut Control,
    intervals: Intervals,
    tell: &mut Tell<'_>,
) -> Result<(), String> {
    for size in side.plan.sizes.clone() {
        side.counters();
        PingPong::clear(side, size);
        control.send(&Message::Go { size, warm_up: side.plan.warm_up(size) })?;
        match next_line(control, &side.context)? {
            Message::Ready => {}
            other => return Err(unexpected(&other)),
        }
        let (mut measured, sent) = if side.plan.op.is_latency() {
            let (times, sent) = PingPong::new(side, control, size).ask(intervals)?;
            (Measured::Latency(times), vec![sent])
        } else {
            let (rates, sent) = Sender::new(side, control, size).run(intervals)?;
            (Measured::Bandwidth(rates), sent)
        };
        control.send(&Message::Done { sent })?;
        let (received, seconds, delivered) = match outcome(side, control) {
            Ok(outcome) => outcome,
            // What was measured is worth telling.
            Err(_) if stop::requested() => {
                measured.set_failover(side.context.failover_counters());
                let counters = side.counters();
                return tell(&side.plan, &measured, &counters);
            }
            Err(e) => return Err(e),
        };
        measured.set_failover(side.context.failover_counters());
        let mut counters = side.counters();
        // Nobody acknowledges these: what counts is what came.
        if let Measured::Bandwidth(rates) = &mut measured
            && !side.plan.transport.is_reliable()
        {
            if received < rates.count {
                counters.insert("lost_messages".into(), rates.count - received);
            }
            rates.delivered = rates.delivered.or(delivered);
            // The bytes of those that are lost are missing there already.
            if rates.delivered.is_none() {
                rates.count = rates.count.min(received);
            }
            if side.plan.op.verb() == Verb::Send && seconds > 0.0 {
                rates.elapsed = std::time::Duration::from_secs_f64(seconds);
            }
        }
        tell(&side.plan, &measured, &counters)?;
        if stop::requested() {
            break;
        }
    }
    control.send(&Message::Bye)
}

fn outcome(side: &Side, control: &mut Control) -> Result<(u64, f64, Option<Delivered>), String> {
    match next_line(control, &side.context)? {
        Message::Outcome { received, seconds, delivered } => Ok((received, seconds, delivered)),
        other => Err(unexpected(&other)),
    }
}
