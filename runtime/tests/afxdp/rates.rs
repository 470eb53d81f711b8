//! How many frames a second pass, for whoever wants to know:
//! `cargo test --release -p softnic-runtime --test afxdp -- --ignored --nocapture rates`.

use std::io::Write;
use std::time::{Duration, Instant};

use softnic_runtime::PacketIo;
use softnic_runtime::afxdp::{AfXdp, Options};

use crate::frames::roce;
use crate::veth::Veth;

const TIME: Duration = Duration::from_secs(1);
const BATCH: usize = 32;

/// Seconds that the calling thread has run on a CPU.
fn seconds_run() -> f64 {
    let shown = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    shown.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(f64::NAN) / 1e9
}

fn send(io: &mut AfXdp, frame: &[u8]) -> usize {
    io.transmit(BATCH, &mut |tx| tx.put_frame(frame).is_ok()).unwrap()
}

fn take(io: &mut AfXdp) -> usize {
    io.receive(BATCH, &mut |_| ()).unwrap()
}

/// Frames a second with a thread for each end: what a machine with two idle cores can do.
fn with_two_threads(a: &mut AfXdp, b: &mut AfXdp, frame: &[u8]) -> f64 {
    let begin = Instant::now();
    let came = std::thread::scope(|scope| {
        scope.spawn(|| {
            while begin.elapsed() < TIME {
                send(a, frame);
            }
        });
        let mut came = 0;
        while begin.elapsed() < TIME {
            came += take(b);
        }
        came
    });
    came as f64 / TIME.as_secs_f64()
}

/// Frames in a second of CPU time with both ends in turn: what sending and taking in a frame costs, whatever else runs here.
fn in_turn(a: &mut AfXdp, b: &mut AfXdp, frame: &[u8]) -> f64 {
    let (begin, before) = (Instant::now(), seconds_run());
    let mut came = 0;
    while begin.elapsed() < TIME {
        send(a, frame);
        while take(b) == BATCH {
            came += BATCH;
        }
    }
    came as f64 / (seconds_run() - before)
}

#[test]
#[ignore = "measures, checks nothing"]
fn frames_a_second() {
    let Some(veth) = Veth::new(1, 9000) else { return };
    for len in [64, 1100, 4170] {
        let [mut a, mut b] = [0, 1].map(|side| veth.open(side, &Options::default()).remove(0));
        let frame = roce(0, len, 0);
        let turns = in_turn(&mut a, &mut b, &frame) / 1e6;
        let lost = a.lost() + b.lost();
        let threads = with_two_threads(&mut a, &mut b, &frame) / 1e6;
        let s = b.statistics().unwrap();
        let mut out = std::io::stdout();
        writeln!(out, "{len} B: {threads:.3} M frames/s with two threads; {turns:.3} M in a second of CPU time")
            .unwrap();
        writeln!(out, "    lost: {lost} in turn, {} with two threads", a.lost() + b.lost() - lost).unwrap();
        writeln!(out, "    in two chunks: {} moved, {} copied", s.rx_moved, s.rx_copied).unwrap();
    }
}
