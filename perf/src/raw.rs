//! `raw` and `raw_lat`: frames without any protocol, counted by who receives them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use softnic_runtime::api::{RawFrame, RawPort};
use softnic_wire::MacAddr;

use super::client::Tell;
use super::control::{Control, Hello, Message, VERSION, unexpected};
use super::interval::{self, Intervals, Meter};
use super::plan::{Amount, Plan};
use super::report::{Measured, Rates, Times};
use super::side::agreed_mtu;
use super::stop;

/// Frames sent or taken in at a time.
const BATCH: usize = 32;
/// Rounds without anything between looks at the peer.
const LOOK_EVERY: u32 = 4096;
/// How long nothing must come before all has come.
const SILENCE: Duration = Duration::from_millis(50);
/// How long a device may take no frame at all before it is given up.
const STUCK: Duration = Duration::from_secs(2);
/// How long an echo may take before its frame counts as lost.
const LOST: Duration = Duration::from_millis(100);

/// What the peer must know.
pub(crate) fn hello(port: &RawPort, plan: &Plan, address: IpAddr) -> Hello {
    let max_mtu = port.port().mtu.bytes();
    let (mac, plan) = (port.port().mac.0, plan.clone());
    let queue_pairs = Vec::new();
    Hello {
        version: VERSION,
        plan,
        address,
        mac,
        max_mtu,
        link_mtu: None,
        queue_pairs,
        memory: 0,
        rkey: 0,
        reliable: false,
    }
}

/// One end.
pub(crate) struct Raw<'a> {
    pub(crate) port: &'a mut RawPort,
    pub(crate) control: &'a mut Control,
    pub(crate) plan: &'a Plan,
    pub(crate) peer: &'a Hello,
    pub(crate) intervals: Intervals,
}

fn failed(e: std::io::Error) -> String {
    format!("packet IO failed: {e}")
}

impl Raw<'_> {
    fn frame(&mut self, size: u32) -> Result<RawFrame, String> {
        let mtu = agreed_mtu(self.plan.mtu, self.port.port().mtu, self.peer.max_mtu)?;
        if size > mtu.bytes() {
            return Err(format!("a raw frame has at most as many bytes as the MTU, {}, not {size}", mtu.bytes()));
        }
        self.port.frame_to(self.peer.address, MacAddr(self.peer.mac), size as usize).map_err(|e| e.to_string())
    }

    /// The client's end.
    pub(crate) fn run(mut self, tell: &mut Tell<'_>) -> Result<(), String> {
        for &size in &self.plan.sizes {
            let mut frame = self.frame(size)?;
            let lost_before = self.port.lost_frames();
            self.control.send(&Message::Go { size, warm_up: self.plan.warm_up(size) })?;
            match self.control.receive(None)? {
                Message::Ready => {}
                other => return Err(unexpected(&other)),
            }
            let mut counters = BTreeMap::new();
            let (mut measured, sent) = match self.plan.op.is_latency() {
                true => {
                    let (times, sent, lost) = self.ping(&mut frame, size)?;
                    counters.insert("lost_messages".into(), lost);
                    (Measured::Latency(times), sent)
                }
                false => {
                    let (rates, sent) = self.flood(&mut frame, size)?;
                    (Measured::Bandwidth(rates), sent)
                }
            };
            self.control.send(&Message::Done { sent: vec![sent] })?;
            let (received, seconds) = match self.control.receive(None)? {
                Message::Outcome { received, seconds, .. } => (received, seconds),
                other => return Err(unexpected(&other)),
            };
            if let Measured::Bandwidth(rates) = &mut measured {
                counters.insert("lost_messages".into(), rates.count.saturating_sub(received));
                rates.count = rates.count.min(received);
                if seconds > 0.0 {
                    rates.elapsed = Duration::from_secs_f64(seconds);
                }
            }
            // What the device did not take until now it never will.
            let unsent = self.port.unsent() as u64;
            counters.insert("lost_frames".into(), self.port.lost_frames() - lost_before + unsent);
            counters.retain(|_, n| *n > 0);
            tell(self.plan, &measured, &counters)?;
            if stop::requested() {
                break;
            }
        }
        self.control.send(&Message::Bye)
    }

    /// Sends as fast as there is room.
    fn flood(&mut self, frame: &mut RawFrame, size: u32) -> Result<(Rates, u64), String> {
        let warm_up = self.plan.warm_up(size);
        let limit = self.plan.iterations(size).map_or(u64::MAX, |n| n + warm_up);
        let (start, mut sent, mut idle) = (Instant::now(), 0u64, 0u32);
        let end = match self.plan.amount {
            Amount::Seconds(s) => Some(start + Duration::from_secs_f64(s)),
            _ => None,
        };
        let mut meter = Meter::new(self.intervals, size, start, 0);
        while sent < limit && !stop::requested() && end.is_none_or(|end| Instant::now() < end) {
            if let Some(now) = meter.is_due_now() {
                meter.close(now, sent, 0);
            }
            let batch = BATCH.min((limit - sent) as usize);
            let n = self.port.send(frame, sent as u32, batch).map_err(failed)?;
            sent += n as u64;
            idle = if n == 0 { idle + 1 } else { 0 };
            stop::yield_if_idle(idle);
            if idle == LOOK_EVERY {
                idle = 0;
                self.control.try_receive()?;
            }
        }
        let mut rates = Rates::new(size);
        (rates.count, rates.elapsed) = (sent.saturating_sub(warm_up), start.elapsed());
        rates.intervals = meter.finish(start + rates.elapsed, sent, 0);
        self.drain()?;
        Ok((rates, sent))
    }

    /// Lets the system take what it had no room for: that is not lost yet. A device may be slow, but not stand still.
    fn drain(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        let (mut least, mut moved) = (usize::MAX, begin);
        while begin.elapsed() < SILENCE / 10 || self.port.unsent() > 0 {
            self.port.flush().map_err(failed)?;
            if self.port.unsent() < least {
                (least, moved) = (self.port.unsent(), Instant::now());
            }
            if moved.elapsed() > STUCK || stop::requested() {
                break;
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// One frame at a time, which comes back; also how many were sent and lost.
    fn ping(&mut self, frame: &mut RawFrame, size: u32) -> Result<(Times, u64, u64), String> {
        let (warm_up, limit) = (self.plan.warm_up(size), self.plan.iterations(size));
        let begin = Instant::now();
        let (mut times, mut lost, mut sent) = (Times::new(size), 0, 0u64);
        let expired = |seconds: Amount| matches!(seconds, Amount::Seconds(s) if begin.elapsed().as_secs_f64() >= s);
        while limit.is_none_or(|n| sent < n + warm_up) && !stop::requested() && !expired(self.plan.amount) {
            let number = sent as u32 & 0x00ff_ffff;
            let start = Instant::now();
            while self.port.send(frame, number, 1).map_err(failed)? == 0 && start.elapsed() < LOST {}
            sent += 1;
            if !self.echo(number, start)? {
                lost += 1;
            } else if sent > warm_up {
                times.record(start.elapsed() / 2);
            }
        }
        times.elapsed = begin.elapsed();
        Ok((times, sent, lost))
    }

    /// Waits for the frame with this number.
    fn echo(&mut self, number: u32, start: Instant) -> Result<bool, String> {
        let (mut came, mut idle) = (false, 0u32);
        loop {
            self.port.receive(BATCH, &mut |n, _| came |= n == number).map_err(failed)?;
            if came {
                return Ok(true);
            }
            idle += 1;
            stop::yield_if_idle(idle);
            if idle.is_multiple_of(64) {
                self.port.flush().map_err(failed)?;
                if start.elapsed() >= LOST {
                    self.control.try_receive()?;
                    return Ok(false);
                }
            }
        }
    }

    /// The server's end.
    pub(crate) fn serve(mut self) -> Result<(), String> {
        loop {
            match self.control.receive(None)? {
                Message::Go { size, warm_up } => {
                    let frame = self.frame(size)?;
                    self.control.send(&Message::Ready)?;
                    let outcome = match self.plan.op.is_latency() {
                        true => self.reflect(frame)?,
                        false => self.count(&frame, size, warm_up)?,
                    };
                    self.control.send(&outcome)?;
                }
                Message::Bye => return Ok(()),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Whether the client is done.
    fn done(&mut self) -> Result<bool, String> {
        match self.control.try_receive()? {
            None if self.control.interruptible && stop::requested() => Err(stop::MESSAGE.into()),
            None => Ok(false),
            Some(Message::Done { .. }) => Ok(true),
            Some(other) => Err(unexpected(&other)),
        }
    }

    /// Counts what comes.
    fn count(&mut self, frame: &RawFrame, size: u32, warm_up: u64) -> Result<Message, String> {
        let (len, mut received, mut idle) = (frame.len(), 0u64, 0u32);
        let (mut first, mut last, mut ended) = (None, Instant::now(), None);
        let mut meter = Meter::new(self.intervals, size, last, 0);
        loop {
            let before = received;
            self.port.receive(BATCH, &mut |_, n| received += u64::from(n == len)).map_err(failed)?;
            if received > before {
                last = Instant::now();
                if meter.is_due(last) {
                    meter.close(last, received, 0);
                }
                if first.is_none() && received >= warm_up {
                    first = Some((last, received));
                }
                idle = 0;
                continue;
            }
            idle += 1;
            stop::yield_if_idle(idle);
            if idle.is_multiple_of(LOOK_EVERY) {
                if ended.is_none() && self.done()? {
                    ended = Some(Instant::now());
                }
                if ended.is_some_and(|at| at.elapsed() > SILENCE) && last.elapsed() > SILENCE {
                    break;
                }
            }
        }
        interval::tell_of_server(self.plan.op.name(), size, meter.finish(last, received, 0), self.intervals);
        // Between the first that counts and the last there are fewer frames than came in the same batch as the first.
        let (seconds, counted) = first.map_or((0.0, 0), |(at, n)| ((last - at).as_secs_f64(), received - n));
        let all = received.saturating_sub(warm_up);
        let seconds = if counted > 0 { seconds * all as f64 / counted as f64 } else { 0.0 };
        Ok(Message::Outcome { received: all, seconds, delivered: None })
    }

    /// Sends back what comes.
    fn reflect(&mut self, mut frame: RawFrame) -> Result<Message, String> {
        let (len, mut received, mut idle) = (frame.len(), 0u64, 0u32);
        loop {
            let mut number = None;
            self.port.receive(BATCH, &mut |n, l| number = if l == len { Some(n) } else { number }).map_err(failed)?;
            if let Some(number) = number {
                received += 1;
                self.port.send(&mut frame, number, 1).map_err(failed)?;
                idle = 0;
                continue;
            }
            idle += 1;
            stop::yield_if_idle(idle);
            if idle.is_multiple_of(64) {
                self.port.flush().map_err(failed)?;
            }
            if idle.is_multiple_of(LOOK_EVERY) && self.done()? {
                return Ok(Message::Outcome { received, seconds: 0.0, delivered: None });
            }
        }
    }
}
