//! Sizes, counts, rates, times and chances as people write them: `64K`, `1e6`, `10Gbit`, `40ms`, `1%`.

use std::time::Duration;

/// The longest delay of a frame: far beyond every use, and far from the end of virtual time.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(1000);

/// A number, and what stands behind it in lower case.
fn split(s: &str) -> Option<(f64, String)> {
    // An exponent has a digit or a sign behind its letter; a unit that begins with e does not exist.
    let is_exponent = |at: usize| s[at + 1..].starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
    let mut unit = s.len();
    for (at, c) in s.char_indices() {
        let in_number = c.is_ascii_digit() || matches!(c, '.' | '-' | '+') || matches!(c, 'e' | 'E') && is_exponent(at);
        if !in_number {
            unit = at;
            break;
        }
    }
    let number = s[..unit].parse().ok().filter(|number: &f64| number.is_finite())?;
    Some((number, s[unit..].trim_start_matches(' ').to_lowercase()))
}

/// The factor of a letter, in powers of `base`.
fn prefix(letter: &str, base: f64) -> Option<f64> {
    let power = ["", "k", "m", "g", "t"].iter().position(|&known| known == letter)?;
    Some(base.powi(power as i32))
}

/// A whole number that a `u64` holds exactly.
fn whole(number: f64) -> Option<u64> {
    (number >= 0.0 && number.fract() == 0.0 && number <= (1u64 << 53) as f64).then_some(number as u64)
}

/// Bytes: a number with K, M or G (or KiB, MiB, GiB) for powers of 1024, or kB, MB, GB for powers of 1000.
pub fn parse_size(s: &str) -> Result<u64, String> {
    let bad = || format!("'{s}' is no size: write 4096, 64K, 1M (or 1MiB), 2G, or 1MB for a million bytes");
    let (number, unit) = split(s).ok_or_else(bad)?;
    let factor = match unit.strip_suffix('b') {
        None => prefix(&unit, 1024.0),
        Some(letter) => match letter.strip_suffix('i') {
            Some("") => None,
            Some(binary) => prefix(binary, 1024.0),
            None => prefix(letter, 1000.0),
        },
    };
    whole(number * factor.ok_or_else(bad)?).ok_or_else(bad)
}

/// How many: a number, as in 5000, 1k, 2M or 1e6, with powers of 1000.
pub fn parse_count(s: &str) -> Result<u64, String> {
    let bad = || format!("'{s}' is no number of things: write 5000, 10k or 1e6");
    let (number, unit) = split(s).ok_or_else(bad)?;
    whole(number * prefix(&unit, 1000.0).ok_or_else(bad)?).ok_or_else(bad)
}

/// Bits a second: a number with k, M, G or T, powers of 1000, and then nothing, bit, bit/s, bps or b.
pub fn parse_rate(s: &str) -> Result<u64, String> {
    let bad = || format!("'{s}' is no rate: write 10Gbit, 10G or 100Mbit");
    let (number, unit) = split(s).ok_or_else(bad)?;
    let letter = ["bit/s", "bits", "bit", "bps", "b/s"].iter().find_map(|suffix| unit.strip_suffix(suffix));
    let factor = match letter {
        Some(letter) => prefix(letter, 1000.0),
        // A number alone may be meant in any unit.
        None if unit.is_empty() => None,
        None => prefix(&unit, 1000.0),
    };
    let rate = number * factor.ok_or_else(bad)?;
    if (1.0..=1e15).contains(&rate) { Ok(rate as u64) } else { Err(bad()) }
}

/// A time: a number with ns, us (or µs), ms, s, min or h; 0 needs none.
pub fn parse_time(s: &str) -> Result<Duration, String> {
    let bad = || format!("'{s}' is no time: write 10us, 40ms, 2s or 1min");
    let (number, unit) = split(s).ok_or_else(bad)?;
    let factor = match unit.as_str() {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" | "sec" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        "" if number == 0.0 => 1.0,
        _ => return Err(bad()),
    };
    let ns = number * factor;
    if (0.0..=1e18).contains(&ns) { Ok(Duration::from_nanos(ns.round() as u64)) } else { Err(bad()) }
}

/// A chance: a number from 0 to 1, or percent.
pub fn parse_chance(s: &str) -> Result<f64, String> {
    let bad = || format!("'{s}' is no chance: write a number from 0 to 1, as in 1e-3, or 0.1%");
    let (number, unit) = split(s).ok_or_else(bad)?;
    let chance = match unit.as_str() {
        "" => number,
        "%" => number / 100.0,
        _ => return Err(bad()),
    };
    if (0.0..=1.0).contains(&chance) { Ok(chance) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        for (text, bytes) in [
            ("4096", 4096),
            ("0", 0),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("1M", 1 << 20),
            ("1.5M", 3 << 19),
            ("1MB", 1_000_000),
            ("2GiB", 2 << 30),
            ("512B", 512),
            ("1e6", 1_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["10Gbit", "10gbit", "10G", "10g", "10Gbps", "10Gbit/s", "10000M", "1e10bit", "0.01Tbit"] {
            assert_eq!(parse_rate(text), Ok(10_000_000_000), "{text}");
        }
        assert_eq!(parse_rate("2.5Gbit"), Ok(2_500_000_000));
        for (text, millis) in [("40ms", 40), ("0.04s", 40), ("1.5s", 1500), ("1min", 60_000), ("0", 0), ("40000us", 40)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse_time("10us"), Ok(Duration::from_micros(10)));
        assert_eq!((parse_count("5000"), parse_count("1k"), parse_count("1e6")), (Ok(5000), Ok(1000), Ok(1_000_000)));
        assert_eq!((parse_chance("1e-3"), parse_chance("1%"), parse_chance("0")), (Ok(1e-3), Ok(0.01), Ok(0.0)));
    }

    #[test]
    fn what_is_refused() {
        assert!(["", "K", "-1", "1.5", "12Q", "1iB", "99999999999G", "nan"].iter().all(|s| parse_size(s).is_err()));
        assert!(["10", "1e9", "0Gbit", "-1Gbit", "nanGbit", "bit", "10X"].iter().all(|s| parse_rate(s).is_err()));
        assert!(["40", "ms", "-1ms", "infs", "1 d"].iter().all(|s| parse_time(s).is_err()));
        assert!(["", "1.5", "-1", "5x", "1e30"].iter().all(|s| parse_count(s).is_err()));
        assert!(["", "2", "101%", "-1%", "x"].iter().all(|s| parse_chance(s).is_err()));
    }
}
