//! Erasure codes beside ISA-L's: parities of MDS and of XOR by each kernel that the processor has, and lost chunks computed.
//!
//! All take turns, so that what else the machine does hits all alike. What counts is the time that a twentieth of the turns stay below: those
//! that nothing else disturbed. Ratios are between times of one run.
#![allow(missing_docs, clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use softnic_benches::rounds::undisturbed;
use softnic_codes::{ChunkSet, Code, Kernel, xor_all};
use softnic_isal::{DEBIAN, Isal, VARIABLE};

const TURNS: usize = 401;
/// Bytes of data of a turn: some hundred microseconds of work.
const TURN: usize = 2 << 20;
/// What memory that programs register is aligned to.
const PAGE: usize = 4096;

/// Bytes that begin with a page.
struct Pages {
    room: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Pages {
        let room: Vec<u8> = (0..len + PAGE).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
        Pages { start: room.as_ptr().align_offset(PAGE), room, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.room[self.start..][..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..][..self.len]
    }
}

/// A row of a table: a name, and what is timed.
type Contender<'a> = (String, Box<dyn FnMut() + 'a>);

/// Times all in turn, each for `data` bytes a call, and prints a table with ratios to the libraries.
fn race(title: &str, data: usize, mut contenders: Vec<Contender<'_>>) {
    let calls = (TURN / data).max(1);
    let mut times = vec![Vec::new(); contenders.len()];
    for turn in 0..TURNS {
        for ((_, call), times) in contenders.iter_mut().zip(&mut times) {
            let start = Instant::now();
            (0..calls).for_each(|_| call());
            let took = start.elapsed();
            if turn > TURNS / 10 {
                times.push(took.as_nanos() as f64 / calls as f64);
            }
        }
    }
    let times: Vec<f64> = times.into_iter().map(undisturbed).collect();
    let libraries: Vec<usize> = (0..times.len()).filter(|&i| contenders[i].0.starts_with("ISA-L")).collect();
    let ratios: String = libraries.iter().map(|&i| format!(" against {} |", contenders[i].0)).collect();
    println!("\n| {title} | µs | GB/s |{ratios}");
    println!("|---|---|---|{}", "---|".repeat(libraries.len()));
    for ((name, _), time) in contenders.iter().zip(&times) {
        let ratios: String = libraries.iter().map(|&i| format!(" {:.2} |", times[i] / time)).collect();
        println!("| {name} | {:.2} | {:.1} |{ratios}", time / 1e3, data as f64 / time);
    }
}

/// The libraries that are there: Debian's, and the one that the variable names.
fn libraries() -> Vec<(String, Isal)> {
    let named = std::env::var(VARIABLE).ok();
    let mut found = Vec::new();
    for name in std::iter::once(DEBIAN.to_owned()).chain(named) {
        match Isal::open(&name) {
            Ok(library) => found.push((format!("ISA-L ({})", name.rsplit('/').next().unwrap_or(&name)), library)),
            Err(why) => println!("{why}"),
        }
    }
    found
}

fn encode_mds(libraries: &[(String, Isal)], k: usize, m: usize, chunk_len: usize) {
    let data = Pages::new(k * chunk_len);
    let data = data.bytes();
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    for (name, library) in libraries {
        let avx2 = library.encoder_avx2(k, m).map(|encoder| (format!("{name} by AVX2"), encoder));
        for (name, mut encoder) in std::iter::once((name.clone(), library.encoder(k, m))).chain(avx2) {
            let mut parity = Pages::new(m * chunk_len);
            let chunks: Vec<&[u8]> = data.chunks(chunk_len).collect();
            let call = move || {
                let mut rows: [&mut [u8]; 16] = Default::default();
                let room = black_box(parity.bytes_mut()).chunks_mut(chunk_len);
                rows.iter_mut().zip(room).for_each(|(row, room)| *row = room);
                encoder.encode(black_box(&chunks), &mut rows[..m]);
            };
            contenders.push((name, Box::new(call)));
        }
    }
    for kernel in Kernel::available() {
        let code = Code::mds(k, m).expect("a code").with_kernel(kernel);
        let mut parity = Pages::new(m * chunk_len);
        let call = move || code.encode_in_one_piece(0, black_box(data), chunk_len, black_box(parity.bytes_mut()));
        contenders.push((kernel.to_string(), Box::new(call)));
    }
    for at_once in [1, 4] {
        let code = Code::mds(k, m).expect("a code");
        let mut parity = Pages::new(m * chunk_len);
        let call = move || {
            let parity = black_box(parity.bytes_mut());
            parity.fill(0);
            let parts = black_box(data).chunks(at_once * chunk_len).enumerate();
            parts.for_each(|(i, part)| code.add_in_one_piece(i * at_once, part, chunk_len, parity));
        };
        contenders.push((format!("{}, added by {at_once}", code.kernel()), Box::new(call)));
    }
    race(&format!("parities of mds({k}, {m}), {} KiB", chunk_len >> 10), k * chunk_len, contenders);
}

fn sum(libraries: &[(String, Isal)], sources: usize, len: usize) {
    let data = Pages::new(sources * len);
    let chunks: Vec<&[u8]> = data.bytes().chunks(len).collect();
    let chunks = &chunks[..];
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    for (name, library) in libraries {
        let mut into = Pages::new(len);
        let call = move || library.xor(black_box(chunks), black_box(into.bytes_mut()));
        contenders.push((name.clone(), Box::new(call)));
    }
    let mut into = Pages::new(len);
    contenders.push(("xor_all".into(), Box::new(move || xor_all(black_box(into.bytes_mut()), black_box(chunks)))));
    for kernel in Kernel::available() {
        let code = Code::xor(sources, 1).expect("a code").with_kernel(kernel);
        let mut parity = Pages::new(len);
        let data = data.bytes();
        let call = move || code.encode_in_one_piece(0, black_box(data), len, black_box(parity.bytes_mut()));
        contenders.push((format!("xor({sources}, 1), {kernel}"), Box::new(call)));
    }
    race(&format!("sum of {sources}, {} KiB", len >> 10), sources * len, contenders);
}

fn decode(k: usize, m: usize, chunk_len: usize, lost: usize) {
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    let codes = Kernel::available().map(|kernel| Code::mds(k, m).expect("a code").with_kernel(kernel));
    for code in codes.chain(Code::xor(k, m)) {
        let mut data = Pages::new(k * chunk_len);
        let mut parity = Pages::new(m * chunk_len);
        code.encode_in_one_piece(0, data.bytes(), chunk_len, parity.bytes_mut());
        let call = move || {
            let present = ChunkSet::below(k).without(&ChunkSet::below(lost));
            let (data, rows) = (black_box(data.bytes_mut()), ChunkSet::below(m));
            let done = code.decode_in_one_piece(data, chunk_len, &present, &rows, black_box(parity.bytes()));
            assert_eq!(done, Ok(lost));
        };
        contenders.push((format!("{code:?}"), Box::new(call)));
    }
    race(&format!("{lost} lost of {k} + {m}, {} KiB", chunk_len >> 10), k * chunk_len, contenders);
}

fn main() {
    let libraries = libraries();
    for (k, m) in [(32, 8), (8, 2)] {
        for chunk_len in [4 << 10, 64 << 10] {
            encode_mds(&libraries, k, m, chunk_len);
        }
    }
    sum(&libraries, 8, 4 << 10);
    sum(&libraries, 8, 64 << 10);
    for (lost, chunk_len) in [(1, 4 << 10), (8, 4 << 10), (1, 64 << 10), (8, 64 << 10)] {
        decode(32, 8, chunk_len, lost);
    }
}
