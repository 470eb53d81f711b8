//! The arithmetic of elements: a reduction of two, bit for bit the same wherever it runs.

use crate::call::{Element, Reduction};

/// Reduces bytes into others of the same length, element by element: `into` becomes `into` with `from`.
///
/// Of half-precision numbers each sum is rounded to them, to the nearest, ties to even. Where two elements cannot be ordered (one is NaN),
/// `into` stays; of a sum with NaN it is the processor that says which NaN it is.
pub fn reduce(element: Element, reduction: Reduction, into: &mut [u8], from: &[u8]) {
    match element {
        Element::F32 => each(into, from, |a, b| {
            choose(reduction, f32::from_le_bytes(a), f32::from_le_bytes(b), |a, b| a + b).to_le_bytes()
        }),
        Element::I32 => each(into, from, |a, b| {
            choose(reduction, i32::from_le_bytes(a), i32::from_le_bytes(b), i32::wrapping_add).to_le_bytes()
        }),
        Element::F16 => each(into, from, |a, b| {
            let [a, b] = [a, b].map(|x| f16_to_f32(u16::from_le_bytes(x)));
            f32_to_f16(choose(reduction, a, b, |a, b| a + b)).to_le_bytes()
        }),
        Element::Bf16 => each(into, from, |a, b| {
            let [a, b] = [a, b].map(|x| bf16_to_f32(u16::from_le_bytes(x)));
            f32_to_bf16(choose(reduction, a, b, |a, b| a + b)).to_le_bytes()
        }),
    }
}

/// Fills bytes with elements that are small whole numbers.
pub fn fill(element: Element, bytes: &mut [u8], mut number: impl FnMut() -> i8) {
    for place in bytes.chunks_exact_mut(element.size() as usize) {
        let x = number();
        match element {
            Element::F32 => place.copy_from_slice(&f32::from(x).to_le_bytes()),
            Element::F16 => place.copy_from_slice(&f32_to_f16(x.into()).to_le_bytes()),
            Element::Bf16 => place.copy_from_slice(&f32_to_bf16(x.into()).to_le_bytes()),
            Element::I32 => place.copy_from_slice(&i32::from(x).to_le_bytes()),
        }
    }
}

fn each<const SIZE: usize>(into: &mut [u8], from: &[u8], of: impl Fn([u8; SIZE], [u8; SIZE]) -> [u8; SIZE]) {
    let (into, _) = into.as_chunks_mut::<SIZE>();
    let (from, _) = from.as_chunks::<SIZE>();
    for (a, b) in into.iter_mut().zip(from) {
        *a = of(*a, *b);
    }
}

fn choose<T: PartialOrd>(reduction: Reduction, a: T, b: T, sum: impl Fn(T, T) -> T) -> T {
    match reduction {
        Reduction::Sum => sum(a, b),
        Reduction::Min if b < a => b,
        Reduction::Max if b > a => b,
        Reduction::Min | Reduction::Max => a,
    }
}

/// The number that a bfloat16 is.
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The bfloat16 that is nearest; of two as near the even one.
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    // Half of the last place, less one where the place is even: what lies in the middle goes to the even one.
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The number that a half is.
pub fn f16_to_f32(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15) << 31, bits >> 10 & 0x1f, u32::from(bits & 0x3ff));
    match exponent {
        // In units of 2^-24, exactly.
        0 => f32::from_bits((fraction as f32 * 2f32.powi(-24)).to_bits() | sign),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (u32::from(exponent) + 112) << 23 | fraction << 13),
    }
}

/// The half that is nearest; of two as near the even one, of what is too large infinity.
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if x.is_nan() {
        return sign | 0x7e00 | (magnitude >> 13 & 0x3ff) as u16;
    }
    let rounded = match magnitude >> 23 {
        // 65520 and more are nearer to 2^16 than to 65504.
        _ if magnitude >= 0x477f_f000 => 0x7c00,
        // Less than 2^-14: in units of 2^-24, which a sum with 2^-1 rounds to.
        exponent if exponent < 113 => (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits(),
        _ => {
            let rebased = magnitude - (112 << 23);
            (rebased + 0xfff + (rebased >> 13 & 1)) >> 13
        }
    };
    sign | rounded as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_the_half_that_is_nearest_to_it() {
        for bits in 0..=u16::MAX {
            if !f16_to_f32(bits).is_nan() {
                assert_eq!(f32_to_f16(f16_to_f32(bits)), bits);
            } else {
                assert!(f16_to_f32(f32_to_f16(f16_to_f32(bits))).is_nan(), "{bits:04x}");
            }
            if !bf16_to_f32(bits).is_nan() {
                assert_eq!(f32_to_bf16(bf16_to_f32(bits)), bits);
            } else {
                assert!(bf16_to_f32(f32_to_bf16(bf16_to_f32(bits))).is_nan(), "{bits:04x}");
            }
        }
    }

    #[test]
    fn what_lies_between_two_halves_goes_to_the_nearer_one_and_from_the_middle_to_the_even_one() {
        for bits in 0..0x7bffu16 {
            let (low, high) = (f64::from(f16_to_f32(bits)), f64::from(f16_to_f32(bits + 1)));
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(f32_to_f16(middle), bits + (bits & 1), "{bits:04x}");
            assert_eq!(f32_to_f16(middle.next_down()), bits);
            assert_eq!(f32_to_f16(middle.next_up()), bits + 1);
            assert_eq!(f32_to_f16(-middle.next_up()), 0x8000 | (bits + 1));
        }
        assert_eq!([65519.9f32, 65520.0, f32::MAX, f32::INFINITY].map(f32_to_f16), [0x7bff, 0x7c00, 0x7c00, 0x7c00]);
        for bits in (0..0x7f7fu16).step_by(7) {
            let (low, high) = (f64::from(bf16_to_f32(bits)), f64::from(bf16_to_f32(bits + 1)));
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(f32_to_bf16(middle), bits + (bits & 1), "{bits:04x}");
            assert_eq!(f32_to_bf16(middle.next_up()), bits + 1);
        }
    }

    #[test]
    fn sums_wrap_and_the_least_and_greatest_are_chosen() {
        let mut a: Vec<u8> = [i32::MAX, 3, -7].iter().flat_map(|x| x.to_le_bytes()).collect();
        let b: Vec<u8> = [1, -3, -8].iter().flat_map(|x: &i32| x.to_le_bytes()).collect();
        let as_numbers =
            |bytes: &[u8]| -> Vec<i32> { bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect() };
        let mut least = a.clone();
        reduce(Element::I32, Reduction::Min, &mut least, &b);
        assert_eq!(as_numbers(&least), [1, -3, -8]);
        let mut greatest = a.clone();
        reduce(Element::I32, Reduction::Max, &mut greatest, &b);
        assert_eq!(as_numbers(&greatest), [i32::MAX, 3, -7]);
        reduce(Element::I32, Reduction::Sum, &mut a, &b);
        assert_eq!(as_numbers(&a), [i32::MIN, 0, -15]);
        let nan = f32::NAN.to_le_bytes();
        let mut one = 1f32.to_le_bytes();
        reduce(Element::F32, Reduction::Min, &mut one, &nan);
        assert_eq!(one, 1f32.to_le_bytes());
    }
}
