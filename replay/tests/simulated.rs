//! scratch
use softnic_replay::*;
use softnic_sim::{Op, Options as Sim, QpKind, run};
#[test]
fn sims() {
    let faults = [
        "",
        "loss=0.02",
        "ab.loss=0.05",
        "ba.loss=0.05",
        "reorder=0.02:3",
        "dup=0.02",
        "corrupt=0.02",
        "loss=0.03,reorder=0.03:2,dup=0.03",
        "jitter=50us",
    ];
    let mut bad = 0;
    let only: Option<u64> = std::env::var("ONLY").ok().and_then(|v| v.parse().ok());
    for seed in 0..400u64 {
        if only.is_some_and(|o| o != seed) {
            continue;
        }
        let op = [Op::Send, Op::Write, Op::Read, Op::Atomic][seed as usize % 4];
        let fault = faults[(seed / 4) as usize % faults.len()];
        let mut o = Sim {
            op,
            size: [1, 1000, 5000, 20000][(seed / 36) as usize % 4],
            count: 30,
            depth: 4,
            qps: 1 + (seed / 5 % 3) as u32,
            rtt: std::time::Duration::from_micros(200),
            seed,
            ..Sim::default()
        };
        o.faults = fault.parse().unwrap();
        if op == Op::Atomic {
            o.size = 8;
        }
        if seed % 11 == 10 {
            o.transport = QpKind::Uc;
            if matches!(op, Op::Read | Op::Atomic) {
                o.op = Op::Write;
            }
        }
        let mut pcap = Vec::new();
        run(&o, Some(&mut pcap), &mut |_| ()).unwrap();
        let r = replay(&pcap[..], &Options::default()).unwrap();
        if r.exit_code() != 0 || !r.undetermined.is_empty() || only.is_some() {
            bad += 1;
            if bad > 12 {
                continue;
            }
            println!(
                "seed {seed} {op:?} {fault} size {}: exit {} diffs {} undet {} {:?}",
                o.size,
                r.exit_code(),
                r.differences.len(),
                r.undetermined.len(),
                r.counts()
            );
            for d in r.differences.iter().take(3) {
                println!(
                    "   D {} [{}] {}: ours {} | captured {} | {}",
                    d.packet, d.flow, d.role, d.ours, d.captured, d.why
                );
            }
            for d in r.undetermined.iter().take(2) {
                println!("   U {} {:?}", d.packet, d.why);
            }
            if only.is_some() {
                std::fs::write("/tmp/s.pcap", &pcap).unwrap();
            }
        }
    }
    println!("BAD {bad}");
}
