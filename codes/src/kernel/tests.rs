//! Every kernel that the processor has against the definition, byte by byte.

use super::*;
use crate::field::product;

/// Bytes that differ from one to the next, and by the seed.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + 1).wrapping_mul(0x9e37_79b9 + 2 * seed) >> 9) as u8).collect()
}

/// Lengths around those of registers, and longer ones.
fn lengths() -> impl Iterator<Item = usize> {
    // Miri, which has the portable kernel alone, is slow.
    let (step, long) = if cfg!(miri) { (66, 0..0) } else { (1, 511..514) };
    (0..200).step_by(step).chain(long)
}

/// Runs one step at odd addresses and compares all bytes, those around the destinations included.
fn check(kernel: Kernel, step: &Step, sources: usize, destinations: usize, len: usize) {
    let sources: Vec<Vec<u8>> = (0..sources).map(|s| bytes(s + len, s)).collect();
    let sources: Vec<&[u8]> = sources.iter().enumerate().map(|(s, source)| &source[s..]).collect();
    let mut rooms: Vec<Vec<u8>> = (0..destinations).map(|d| bytes(len + d + 7, 100 + d)).collect();
    let mut expected = rooms.clone();
    for (d, room) in expected.iter_mut().enumerate() {
        for i in 0..len {
            let byte = &mut room[d + i];
            *byte = if step.add { *byte } else { 0 };
            let products = sources.iter().enumerate().map(|(s, source)| product(step.coefficients[d][s], source[i]));
            products.for_each(|product| *byte ^= product);
        }
    }
    let mut slices: Vec<&mut [u8]> = rooms.iter_mut().enumerate().map(|(d, room)| &mut room[d..d + len]).collect();
    kernel.multiply(step, &sources, &mut slices);
    assert_eq!(rooms, expected, "{kernel}, {sources:?} of {len} bytes, {step:?}");
}

#[test]
fn every_shape_and_length() {
    for kernel in Kernel::available() {
        for destinations in 1..=DESTINATIONS {
            for sources in 1..=sources_for(destinations) {
                for len in lengths() {
                    let coefficients = std::array::from_fn(|d| std::array::from_fn(|s| (d * 83 + s * 29 + len) as u8));
                    check(kernel, &Step { coefficients, add: len % 2 == 0 }, sources, destinations, len);
                }
            }
        }
    }
}

#[test]
fn every_coefficient_times_every_byte() {
    let source: Vec<u8> = (0..=255).collect();
    for kernel in Kernel::available() {
        for coefficient in (0..=255).step_by(if cfg!(miri) { 85 } else { 1 }) {
            let mut products = vec![0; 256];
            let step = Step { coefficients: [[coefficient; SOURCES]; DESTINATIONS], add: false };
            kernel.multiply(&step, &[&source], &mut [&mut products]);
            assert!((0..=255).all(|x| products[usize::from(x)] == product(coefficient, x)), "{kernel}: {coefficient}");
        }
    }
}

#[test]
fn every_number_of_summands_and_length() {
    for kernel in Kernel::available() {
        for n in 1..=SUMMANDS {
            for (len, add) in lengths().flat_map(|len| [(len, false), (len, true)]) {
                let sources: Vec<Vec<u8>> = (0..n).map(|s| bytes(s + len, s)).collect();
                let sources: Vec<&[u8]> = sources.iter().enumerate().map(|(s, source)| &source[s..]).collect();
                let mut room = bytes(len + 9, 77);
                let mut expected = room.clone();
                for i in 0..len {
                    let kept = if add { room[3 + i] } else { 0 };
                    expected[3 + i] = sources.iter().fold(kept, |sum, source| sum ^ source[i]);
                }
                kernel.sum(&sources, &mut room[3..3 + len], add);
                assert_eq!(room, expected, "{kernel}: {n} of {len} bytes");
            }
        }
    }
}

#[test]
fn bytes_are_added_as_far_as_both_go() {
    for len in lengths().chain([1052, 4140]) {
        for off in 0..4 {
            let from = bytes(len + off, 3);
            let mut into = bytes(len + 5, 4);
            let expected: Vec<u8> = (0..len + 5).map(|i| into[i] ^ from[off..].get(i).copied().unwrap_or(0)).collect();
            xor(&mut into, &from[off..]);
            assert_eq!(into, expected, "{len} bytes at {off}");
        }
    }
}

#[test]
fn sums_of_any_number_of_sources_of_any_length() {
    for n in (0..20).step_by(if cfg!(miri) { 9 } else { 1 }) {
        // All as long as the destination or longer; then one that is shorter, in each place.
        for short in 0..=n {
            let sources: Vec<Vec<u8>> = (0..n).map(|s| bytes(if s == short { 50 } else { 99 + s }, s)).collect();
            let sources: Vec<&[u8]> = sources.iter().map(|source| &source[..]).collect();
            let mut into = bytes(99, 5);
            xor_all(&mut into, &sources);
            let sum = |i: usize| sources.iter().filter_map(|source| source.get(i)).fold(0, |sum, byte| sum ^ byte);
            assert!((0..99).all(|i| into[i] == sum(i)), "{n} sources, {short} is short");
        }
    }
}

#[test]
#[should_panic = "a source has another length"]
fn sources_of_other_lengths_are_refused() {
    Kernel::best().multiply(&Step::default(), &[&[1; 64], &[1; 63]], &mut [&mut [0; 64]]);
}

#[test]
#[should_panic = "a destination has another length"]
fn destinations_of_other_lengths_are_refused() {
    Kernel::best().multiply(&Step::default(), &[&[1; 64]], &mut [&mut [0; 63]]);
}

#[test]
#[should_panic]
fn a_sum_into_another_length_is_refused() {
    Kernel::best().sum(&[&[1; 64]], &mut [0; 63], true);
}

#[test]
fn kernels_have_names() {
    assert!(Kernel::available().all(|kernel| Kernel::named(kernel.name()) == Some(kernel)));
    assert_eq!((Kernel::available().last(), Kernel::named("none")), (Some(Kernel::PORTABLE), None));
    eprintln!("kernels: {:?}", Kernel::available().collect::<Vec<_>>());
}
