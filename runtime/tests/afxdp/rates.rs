//! How many frames a second pass, for whoever wants to know: `cargo test --release -p softnic-runtime --test afxdp -- --ignored --nocapture rates`.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use softnic_runtime::PacketIo;
use softnic_runtime::afxdp::Options;

use crate::frames::roce;
use crate::veth::Veth;

#[test]
#[ignore = "measures, checks nothing"]
fn frames_a_second() {
    let Some(veth) = Veth::new(1, 9000) else { return };
    for len in [64, 1100, 4170] {
        let [mut a, mut b] = [0, 1].map(|side| veth.open(side, &Options::default()).remove(0));
        let (frame, stop) = (roce(0, len, 0), AtomicBool::new(false));
        let (sent, came, seconds) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    sent += a.transmit(32, &mut |tx| tx.put_frame(&frame).is_ok()).unwrap();
                }
                sent
            });
            let (begin, mut came) = (Instant::now(), 0);
            while begin.elapsed() < Duration::from_secs(2) {
                came += b.receive(32, &mut |_| ()).unwrap();
            }
            let seconds = begin.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            (sender.join().unwrap(), came, seconds)
        });
        let rate = came as f64 / seconds / 1e6;
        let mut out = std::io::stdout();
        writeln!(out, "{len} B: {rate:.3} M frames/s received, {sent} sent, {came} came").unwrap();
        writeln!(out, "    sender {:?}\n    receiver {:?}", a.statistics().unwrap(), b.statistics().unwrap()).unwrap();
    }
}
