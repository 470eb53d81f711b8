//! Draws from distributions, by nothing but the four operations, whose results are the same on every machine.

use std::f64::consts::LN_2;

use softnic_fault_injector::random::Random;

/// Exponentially distributed with mean 1.
pub(super) fn exponential(random: &mut Random) -> f64 {
    // In (0, 1]: 53 bits.
    -ln(((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64)
}

/// A place in a list of weights, which sum up to `sum`.
pub(super) fn weighted<T>(random: &mut Random, of: &[(T, f64)], sum: f64) -> usize {
    let mut left = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * sum;
    for (place, (_, weight)) in of.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return place;
        }
    }
    of.len().saturating_sub(1)
}

/// The natural logarithm of a normal number in (0, 1], to 12 digits: that of the standard library is the C library's.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // ln m = 2 artanh z, and z is at most a third.
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut power, mut sum) = (z, 0.0);
    for n in (1..26).step_by(2) {
        sum += power / f64::from(n);
        power *= z * z;
    }
    2.0 * sum + f64::from(exponent) * LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_that_of_the_c_library_to_twelve_digits() {
        for x in [1.0, 0.999_999, 0.75, 0.5, 0.333, 0.1, 1e-3, 1e-9, 2f64.powi(-53)] {
            let (ours, theirs) = (ln(x), x.ln());
            assert!((ours - theirs).abs() <= 1e-12 * theirs.abs().max(1.0), "{x}: {ours} and {theirs}");
        }
    }

    #[test]
    fn draws_have_the_mean_and_the_weights_of_their_distribution() {
        let mut random = Random::new(1);
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|_| exponential(&mut random)).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(n);
        // The standard deviations of these are 0.003 and 0.009.
        assert!((mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        let of = [("a", 1.0), ("b", 3.0)];
        let second = (0..n).filter(|_| weighted(&mut random, &of, 4.0) == 1).count();
        assert!((second as f64 / f64::from(n) - 0.75).abs() < 0.005, "{second}");
    }
}
