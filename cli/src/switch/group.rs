//! A group as people and programs write it: the same words in TOML and in JSON.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::str::FromStr;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use softnic_fault_injector::text::on_one_line;
use softnic_fault_injector::units::parse_size;
use softnic_switch::group::{GroupSpec, MergeSpec, Range, Receiver, Target};
use softnic_wire::{MacAddr, Psn, Qpn};

/// A group.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupText {
    sender: Word<IpAddr>,
    mc_id: Number<24>,
    qpn: Option<Number<24>>,
    psn: Option<Number<24>>,
    #[serde(default)]
    receivers: Vec<ReceiverText>,
    #[serde(default)]
    ranges: Vec<RangeText>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReceiverText {
    address: Word<IpAddr>,
    qpn: Number<24>,
    mac: Option<Word<MacAddr>>,
    branch: Option<Number<32>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeText {
    start: Number<64>,
    length: Size,
    rkey: Number<32>,
    #[serde(default)]
    targets: Vec<TargetText>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetText {
    start: Number<64>,
    rkey: Number<32>,
}

impl GroupText {
    /// The group, as far as it can be told without others.
    pub(super) fn spec(&self) -> Result<GroupSpec, String> {
        let merge = match (&self.qpn, &self.psn) {
            (Some(qpn), Some(psn)) => Some(MergeSpec { qpn: qpn.qpn(), psn: Psn::new(psn.0 as u32) }),
            (None, None) => None,
            (Some(_), None) => return Err("psn: that of the sender's first packet must be there where qpn is".into()),
            (None, Some(_)) => return Err("qpn: the sender's queue pair must be there where psn is".into()),
        };
        let receiver = |r: &ReceiverText| Receiver {
            address: r.address.0,
            qpn: r.qpn.qpn(),
            mac: r.mac.as_ref().map(|mac| mac.0),
            branch: r.branch.as_ref().map(|n| n.0 as u32),
        };
        let target = |t: &TargetText| Target { start: t.start.0, rkey: t.rkey.0 as u32 };
        let range = |r: &RangeText| Range {
            start: r.start.0,
            len: r.length.0,
            rkey: r.rkey.0 as u32,
            targets: r.targets.iter().map(target).collect(),
        };
        let spec = GroupSpec {
            sender: self.sender.0,
            mc_id: self.mc_id.qpn(),
            merge,
            receivers: self.receivers.iter().map(receiver).collect(),
            ranges: self.ranges.iter().map(range).collect(),
        };
        spec.check().map_err(|e| e.to_string())?;
        Ok(spec)
    }
}

/// A whole number of so many bits, in figures or in quotes, as in "0xdead0000": not every format has all numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number<const BITS: u32>(pub(super) u64);

impl<const BITS: u32> Number<BITS> {
    pub(super) fn qpn(self) -> Qpn {
        Qpn::new(self.0 as u32)
    }
}

impl<'de, const BITS: u32> Deserialize<'de> for Number<BITS> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Number<BITS>, D::Error> {
        d.deserialize_any(NumberVisitor::<BITS>).map(Number)
    }
}

struct NumberVisitor<const BITS: u32>;

impl<const BITS: u32> Visitor<'_> for NumberVisitor<BITS> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number of {BITS} bits, as in 17, 0x11 or \"0x11\"")
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<u64, E> {
        match BITS == 64 || n >> BITS == 0 {
            true => Ok(n),
            false => Err(E::invalid_value(Unexpected::Unsigned(n), &self)),
        }
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<u64, E> {
        let n = u64::try_from(n).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))?;
        self.visit_u64(n)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let number = match text.strip_prefix("0x") {
            Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(digits, 16).ok(),
            Some(_) => None,
            None => text.parse().ok(),
        };
        let Some(n) = number else { return Err(E::invalid_value(Unexpected::Str(&on_one_line(text)), &self)) };
        self.visit_u64(n)
    }
}

/// Bytes: a number, or as in "64K".
#[derive(Debug, Clone, Copy)]
pub(super) struct Size(pub(super) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Size, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes, as in 4096 or \"64K\"")
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<u64, E> {
                Ok(n)
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<u64, E> {
                u64::try_from(n).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
                parse_size(text).map_err(E::custom)
            }
        }
        d.deserialize_any(SizeVisitor).map(Size)
    }
}

/// A value that is written as text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word<T>(pub(super) T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Word<T>, D::Error> {
        struct WordVisitor<T>(PhantomData<T>);
        impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for WordVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text in quotes")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
                text.parse().map_err(|e| E::custom(format!("'{}' is {e}", on_one_line(text))))
            }
        }
        d.deserialize_str(WordVisitor(PhantomData)).map(Word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<GroupSpec, String> {
        serde_json::from_str::<GroupText>(text).map_err(|e| e.to_string())?.spec()
    }

    #[test]
    fn a_group_of_json_is_what_it_says() {
        let spec = parse(
            r#"{"sender": "10.0.0.1", "mc_id": "0x777777", "qpn": 17, "psn": "0xfffff0",
                "receivers": [{"address": "10.0.0.2", "qpn": 34, "mac": "02:00:00:00:00:02"},
                              {"address": "10.0.0.3", "qpn": "0x33", "branch": 1}],
                "ranges": [{"start": "0xffffffff00000000", "length": "1M", "rkey": 5,
                            "targets": [{"start": 0, "rkey": 6}, {"start": 4096, "rkey": 4294967295}]}]}"#,
        )
        .unwrap();
        assert_eq!((spec.mc_id.value(), spec.merge.unwrap().psn), (0x77_7777, Psn::new(0xff_fff0)));
        assert_eq!(spec.receivers[0].mac, Some(MacAddr([2, 0, 0, 0, 0, 2])));
        assert_eq!((spec.receivers[1].qpn.value(), spec.receivers[1].branch), (0x33, Some(1)));
        let range = &spec.ranges[0];
        assert_eq!((range.start, range.len, range.targets[1].rkey), (0xffff_ffff_0000_0000, 1 << 20, u32::MAX));
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let group = |more: &str| {
            format!(
                r#"{{"sender": "10.0.0.1", "mc_id": 7, "receivers": [{{"address": "10.0.0.2", "qpn": 34}}]{more}}}"#
            )
        };
        assert!(parse(&group("")).is_ok(), "another switch merges");
        for (text, words) in [
            (group(r#", "psn": 1"#), "qpn"),
            (group(r#", "qpn": 17"#), "psn"),
            (group(r#", "qpn": 16777216, "psn": 0"#), "24 bits"),
            (group(r#", "colour": 1"#), "unknown field `colour`"),
            (group(r#", "ranges": [{"start": -1, "length": 1, "rkey": 1}]"#), "64 bits"),
            (group(r#", "ranges": [{"start": 1, "length": "lots", "rkey": 1}]"#), "'lots' is no size"),
            (r#"{"sender": "10.0.0.1", "mc_id": 7}"#.into(), "at least one receiver"),
            (r#"{"sender": "ten", "mc_id": 7}"#.into(), "'ten' is"),
            (r#"{"sender": "10.0.0.1", "mc_id": 1, "receivers": []}"#.into(), "reserved"),
        ] {
            let said = parse(&text).unwrap_err();
            assert!(said.contains(words) && !said.contains('\n'), "{text}: {said}");
        }
    }
}
