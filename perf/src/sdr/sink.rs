//! The sink of SDR alone: how many packets a second it takes, at one engine or at several that share all messages.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use softnic_nic::Sink;
use softnic_nic::transports::Arrival;
use softnic_sdr::arrivals::{Arrivals, Receive};
use softnic_sdr::{Bitmap, Pool, QpAttr};
use softnic_wire::Qpn;

/// Messages are long and many, so that their bitmaps are in no near cache.
const MESSAGE: u64 = 16 << 20;
const MESSAGES: u32 = 1024;
const MTU: u32 = 4096;
const PACKETS: u32 = (MESSAGE / MTU as u64) as u32;
/// The key of the peer's WRITEs.
const KEY: u32 = 5;

/// Millions of packets a second that so many threads take, each with the packets of its own channel of every message; the best of `rounds`,
/// for whatever else the machine does only makes it slower.
pub fn sink_rate(engines: u8, chunk_packets: u32, rounds: u32) -> f64 {
    let engines = engines.clamp(1, softnic_sdr::attr::MAX_CHANNELS);
    let attr = QpAttr {
        chunk: chunk_packets * MTU,
        slots: MESSAGES,
        max_message: MESSAGE,
        channels: engines,
        ..QpAttr::default()
    };
    let mut pool = Pool::default();
    let mut sinks: Vec<Arrivals> = (0..engines)
        .map(|engine| {
            let mut arrivals = Arrivals::at_engine(&attr, engines, engine);
            arrivals.add_queue_pair(qpn(engine), 0, engine, KEY);
            arrivals
        })
        .collect();
    let mut best = Duration::MAX;
    for _ in 0..rounds {
        let bitmaps: Vec<Bitmap> = (0..MESSAGES).map(|_| pool.take_among(&attr, engines, MESSAGE)).collect();
        for (slot, bitmap) in (0..).zip(&bitmaps) {
            let receive = Receive { number: slot.into(), len: MESSAGE, bitmap: bitmap.clone() };
            sinks.iter_mut().for_each(|arrivals| arrivals.post(slot, 0, &receive));
        }
        best = best.min(one_round(&attr, &mut sinks));
        // Every bit is set, or it was no run.
        assert!(bitmaps.iter().all(Bitmap::is_full), "a bit is missing");
        let nothing = Pool::default().take(0);
        (0..MESSAGES).for_each(|slot| sinks.iter_mut().for_each(|arrivals| arrivals.complete(slot, &nothing)));
        bitmaps.into_iter().for_each(|bitmap| pool.give_back(bitmap));
    }
    f64::from(MESSAGES) * f64::from(PACKETS) / best.as_secs_f64() / 1e6
}

fn qpn(engine: u8) -> Qpn {
    Qpn::new(77 + u32::from(engine))
}

/// All packets of all messages, by all engines at once.
fn one_round(attr: &QpAttr, sinks: &mut [Arrivals]) -> Duration {
    let (all, begun) = (sinks.len(), Barrier::new(sinks.len()));
    let times = std::thread::scope(|s| {
        let threads: Vec<_> = (sinks.iter_mut().enumerate())
            .map(|(engine, arrivals)| {
                let begun = &begun;
                s.spawn(move || {
                    begun.wait();
                    let start = Instant::now();
                    for slot in 0..MESSAGES {
                        feed(attr, arrivals, slot, engine, all);
                    }
                    (start, Instant::now())
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
    });
    let (start, end) = (times.iter().map(|t| t.0).min(), times.iter().map(|t| t.1).max());
    start.zip(end).map_or(Duration::MAX, |(start, end)| end - start)
}

/// The packets of a message that are for one of the engines.
fn feed(attr: &QpAttr, arrivals: &mut Arrivals, slot: u32, engine: usize, engines: usize) {
    let qpn = qpn(engine as u8);
    for packet in (engine as u32..PACKETS).step_by(engines) {
        let arrival = Arrival {
            qpn,
            imm: attr.split.pack(slot, packet, 0),
            remote_addr: u64::from(slot) * MESSAGE + u64::from(packet) * u64::from(MTU),
            rkey: KEY,
            byte_len: MTU,
            solicited: false,
        };
        if arrivals.admits(&arrival) {
            arrivals.on_arrival(&arrival);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bits_are_set_by_one_engine_and_by_several() {
        for engines in [1, 2, 3] {
            assert!(sink_rate(engines, 64, 1) > 0.0);
        }
    }
}
