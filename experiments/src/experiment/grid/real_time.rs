//! The same grid in real time, between two NICs on devices: one run after the other.

use softnic_perf::{Measured, Op, stop};
use softnic_runtime::api::DeviceSpec;

use super::super::Setting;
use super::super::device::{Ends, Link, Load, MAX_PACKETS, measure};
use super::super::outcome::time_shown;
use super::super::pool::Progress;
use super::super::race::Race;
use super::super::theory::Path;
use super::{Args, FIGURES, Metric, Place, Point};

/// What is raced unless asked otherwise: what a busy machine without privileges carries.
pub(super) const RATE: u64 = 200_000_000;
pub(super) const SIZE: u32 = 64 << 10;
pub(super) const SEEDS: u64 = 3;

/// Work requests outstanding, at most: as many as the simulated runs have.
const MAX_DEPTH: f64 = super::MAX_DEPTH;

/// Where the fault injector of a device cannot emulate a place.
pub(super) fn check(args: &Args, device: &DeviceSpec, places: &[Place]) -> Result<(), String> {
    if args.metric != Metric::Goodput && places.iter().any(|place| place.qps > 1) {
        return Err("on a device completion times are those of one connection: leave --qps out".into());
    }
    if *device != DeviceSpec::Mem {
        args.fault.for_device().map_err(|e| format!("--fault: {e}"))?;
    }
    for place in places {
        let path = Path { rate: place.rate, rtt: place.rtt, mtu: args.mtu.bytes(), connections: 1 };
        let rtt = time_shown(place.rtt);
        if path.bdp() > MAX_PACKETS {
            let most = (place.rate as f64 * MAX_PACKETS / path.bdp() / 1e6) as u64;
            return Err(format!(
                "a round trip of {rtt} holds {:.0} packets, and a device's fault injector keeps {MAX_PACKETS:.0}: --rate is at most {most}Mbit there",
                path.bdp()
            ));
        }
        if packets(args, place) * f64::from(place.qps) > MAX_PACKETS {
            return Err(format!(
                "a message for each connection is more than the {MAX_PACKETS:.0} packets that a device's fault injector keeps: choose a smaller --size"
            ));
        }
    }
    Ok(())
}

/// Packets of a message.
fn packets(args: &Args, place: &Place) -> f64 {
    f64::from(place.size.div_ceil(args.mtu.bytes()))
}

/// Runs every point with all seeds; what Ctrl-C came before is missing.
pub(super) fn race(
    args: &Args,
    ends: &Ends,
    setting: &Setting,
    points: &[Point],
) -> Result<Race<Point, FIGURES>, String> {
    let seeds = setting.seeds();
    let mut progress = Progress::new(setting.name, points.len() * seeds.len());
    let mut results = Vec::new();
    for point in points {
        for &seed in &seeds {
            let result = if stop::requested() { None } else { one(args, ends, point, seed)? };
            results.push(result);
            progress.tell(results.iter().flatten().count());
        }
    }
    drop(progress);
    Ok(Race::of(points, &vec![seeds.len(); points.len()], &results))
}

fn one(args: &Args, ends: &Ends, point: &Point, seed: u64) -> Result<Option<[f64; FIGURES]>, String> {
    let Place { rtt, rate, size, qps } = point.place;
    let link = Link { rate, rtt, loss: point.loss, faults: args.fault.clone() };
    let load = Load {
        op: if args.metric == Metric::Goodput { Op::WriteBw } else { Op::WriteFct },
        transport: point.transport,
        size,
        mtu: args.mtu,
        qps,
        depth: depth(args, &point.place),
        // NICs that send as fast as the link takes it leave no queue before it, which would make the round trip longer.
        cc: Some(format!("fixed:{}bit", rate / u64::from(qps))),
        timeout: timeout(rtt.as_secs_f64()),
        seconds: args.duration.as_secs_f64(),
    };
    let Some(run) = measure(ends, &link, &load, seed)? else { return Ok(None) };
    let count = |name: &str| run.counters.get(name).copied().unwrap_or(0) as f64;
    let again = count("retransmitted_packets") / count("sent_pkts").max(1.0);
    Ok(Some(match &run.measured {
        Measured::Bandwidth(rates) => [rates.average_gbps(), f64::NAN, f64::NAN, again, rates.count as f64],
        Measured::Latency(times) => {
            let goodput = f64::from(size) * 8.0 * times.count() as f64 / times.elapsed.as_secs_f64() / 1e9;
            [goodput, times.mean_ms(), times.quantile_ms(0.99), again, times.count() as f64]
        }
    }))
}

/// Work requests of a connection: four times what fits the round trip, as far as the fault injector can keep their packets.
fn depth(args: &Args, place: &Place) -> u32 {
    let wanted = (4.0 * place.bandwidth_delay() / f64::from(place.size) / f64::from(place.qps)).ceil().max(2.0);
    let kept = (MAX_PACKETS / packets(args, place) / f64::from(place.qps)).floor();
    wanted.min(kept).clamp(1.0, MAX_DEPTH) as u32
}

/// The local ACK timeout: four round trips, and what threads that share cores may wait for each other.
fn timeout(rtt: f64) -> u8 {
    let least = 4.0 * rtt + 0.05;
    (0..31).find(|&n| 4.096e-6 * f64::from(1u32 << n) >= least).unwrap_or(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_longer_than_four_round_trips() {
        assert_eq!((timeout(0.0), timeout(0.001), timeout(0.04)), (14, 14, 16));
    }
}
