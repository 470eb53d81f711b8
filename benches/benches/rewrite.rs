//! Changing a frame that passes through a switch, with its ICRC updated, against checking its ICRC and computing it anew.
//!
//! Goals: at 4 KiB at most half of the time, and the same time at every length.
#![allow(missing_docs, clippy::print_stdout)]

use std::hint::black_box;
use std::net::Ipv4Addr;

use softnic_benches::frames::Write;
use softnic_benches::rows::Rows;
use softnic_wire::rewrite::{Passing, RethRewrite, Rewrite};
use softnic_wire::{MacAddr, Qpn, icrc};

const SIZES: [usize; 5] = [64, 256, 1024, 2048, 4096];
const ROUNDS: usize = 3;

const UPDATE: &str = "change the fields, update the ICRC";
const ANEW: &str = "verify the ICRC, change the fields, compute it anew";

fn main() {
    let mut rows = Rows::new();
    for _ in 0..ROUNDS {
        SIZES.iter().for_each(|&size| measure(&mut rows, size));
    }
    rows.end();
    println!("\n| ns a frame | {} |\n|---|{}", SIZES.map(|s| s.to_string()).join(" | "), "---|".repeat(SIZES.len()));
    let times = [UPDATE, ANEW].map(|row| SIZES.map(|size| rows.typical(row, size).unwrap_or(f64::NAN)));
    for (row, times) in [UPDATE, ANEW].iter().zip(times) {
        println!("| {row} | {} |", times.map(|t| format!("{t:.1}")).join(" | "));
    }
    let [update, anew] = times;
    let ratio: Vec<f64> = update.iter().zip(anew).map(|(update, anew)| update / anew).collect();
    println!("| ratio | {} |", ratio.iter().map(|r| format!("{r:.2}")).collect::<Vec<_>>().join(" | "));
    let (least, most) = (update.iter().copied().fold(f64::NAN, f64::min), update.iter().copied().fold(0.0, f64::max));
    let verdict = |good: bool| if good { "reached" } else { "not reached" };
    println!("at 4 KiB at most 0.5: {:.2}, {}", ratio[4], verdict(ratio[4] <= 0.5));
    println!(
        "the same at every length: {:.2} from the least to the most, {}",
        most / least,
        verdict(most / least < 1.2)
    );
}

fn measure(rows: &mut Rows, size: usize) {
    let write = Write {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        dest_qp: Qpn::new(0x1234),
        va: 0x7f00_1000,
        rkey: 0xabcd,
        size,
    };
    let mut frame = write.frame();
    let Ok(passing) = Passing::parse(&frame) else { return };
    // Two receivers in turn, so that every field changes every time.
    let to = [(3, 0x1_0000u64), (4, 0x1_0000u64.wrapping_neg())].map(|(n, offset)| Rewrite {
        dst_mac: Some(MacAddr([2, 0, 0, 0, 0, n])),
        dst_ip: Some(Ipv4Addr::from([10, 0, 0, n]).into()),
        dest_qp: Some(Qpn::new(0x1000 + u32::from(n))),
        reth: Some(RethRewrite { offset, rkey: u32::from(n) }),
        ..Rewrite::default()
    });
    let mut turn = 0;
    rows.run(UPDATE, size, || {
        turn ^= 1;
        passing.apply(black_box(&to[turn]), black_box(&mut frame))
    });
    assert_eq!(icrc::verify(&mut frame, passing.layout()), Ok(()), "it is still right");
    let layout = *passing.layout();
    // MAC address, IP address, queue pair and RETH as bytes: a checksum of IPv4 is not even part of it.
    let fields = to.map(|rewrite| {
        let mut changed = frame.clone();
        let _ = passing.apply(&rewrite, &mut changed);
        changed
    });
    let (ip, bth) = (layout.network + 10, layout.bth);
    rows.run(ANEW, size, || {
        turn ^= 1;
        let (frame, from) = (black_box(&mut frame), black_box(&fields[turn]));
        icrc::verify(frame, &layout)?;
        frame[..6].copy_from_slice(&from[..6]);
        frame[ip..ip + 10].copy_from_slice(&from[ip..ip + 10]);
        frame[bth + 5..bth + 8].copy_from_slice(&from[bth + 5..bth + 8]);
        frame[bth + 12..bth + 24].copy_from_slice(&from[bth + 12..bth + 24]);
        icrc::write(frame, &layout)
    });
    assert_eq!(icrc::verify(&mut frame, &layout), Ok(()), "it is right again");
}
