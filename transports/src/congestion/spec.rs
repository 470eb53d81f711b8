//! Congestion control by name, as in command lines and files: `none`, `window`, `fixed:2Gbit:256K`, `dcqcn`, `dcqcn:ai=5Mbit,timer=300us`,
//! `swift`, `swift:base=50us`.

use std::time::Duration;

use super::{CongestionControl, Dcqcn, DcqcnConfig, EqdsConfig, Fixed, Swift, SwiftConfig};
use crate::Transport;

/// Parsers for rates, sizes and times, supplied by the caller.
#[derive(Debug, Clone, Copy)]
pub struct Units {
    /// Bits per second, as in `10Gbit`.
    pub rate: fn(&str) -> Result<u64, String>,
    /// Bytes, as in `64K`.
    pub size: fn(&str) -> Result<u64, String>,
    /// A time, as in `55us`.
    pub time: fn(&str) -> Result<Duration, String>,
}

/// The congestion control of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cc {
    /// No control: as fast as the link permits.
    #[default]
    None,
    /// As fast as the link permits, with no more outstanding packets than a software receiver has room for. There is no controller, but a
    /// limit of the queue pair itself (`QpInit::limit_flight`).
    Window,
    /// A fixed rate in bits per second on the wire, and a fixed number of payload bytes in flight.
    Fixed {
        /// The rate.
        rate: u64,
        /// The window.
        window: u64,
    },
    /// DCQCN.
    Dcqcn(DcqcnConfig),
    /// Swift.
    Swift(SwiftConfig),
    /// EQDS: not a controller of the sender, but an agreement of both queue pairs (`Nic::use_credit`). With a peer that does not agree, it
    /// is [`Cc::Window`].
    Eqds(EqdsConfig),
}

/// The names, for error messages.
const NAMES: &str = "none, window, fixed:RATE[:WINDOW], dcqcn, swift or eqds";

/// Why a congestion control was not recognised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CcError {
    /// The name is unknown.
    #[error("there is no congestion control '{0}': choose {names}", names = NAMES)]
    Unknown(String),
    /// The congestion control does not have this setting.
    #[error("{name} has no setting '{setting}': {settings}")]
    Setting {
        /// The congestion control.
        name: &'static str,
        /// The setting.
        setting: String,
        /// The settings that it has, with an example.
        settings: &'static str,
    },
    /// A value is not valid.
    #[error("{what}: {why}")]
    Value {
        /// The setting.
        what: String,
        /// The reason.
        why: String,
    },
}

const DCQCN: &str = "ai, hai, timer, alpha-timer, bytes, g, f, floor and burst, as in dcqcn:ai=5Mbit,timer=300us";
const SWIFT: &str =
    "base, hop, hops, range, fs-min, fs-max, ai, beta, mdf, start, floor and timeouts, as in swift:base=50us,ai=2";
const EQDS: &str = "spec, quantum, share and retry, as in eqds:spec=64K,share=0.95";

impl Cc {
    /// Parses a name with its settings.
    pub fn parse(text: &str, units: &Units) -> Result<Cc, CcError> {
        let (name, settings) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match (name, settings) {
            ("none", None) => Ok(Cc::None),
            ("window", None) => Ok(Cc::Window),
            ("fixed", Some(settings)) => fixed(settings, units),
            ("dcqcn", settings) => dcqcn(settings, units),
            ("swift", settings) => swift(settings, units),
            ("eqds", settings) => eqds(settings, units),
            _ => Err(CcError::Unknown(one_line(text))),
        }
    }

    /// The name, without settings.
    pub fn name(&self) -> &'static str {
        match self {
            Cc::None => "none",
            Cc::Window => "window",
            Cc::Fixed { .. } => "fixed",
            Cc::Dcqcn(_) => "dcqcn",
            Cc::Swift(_) => "swift",
            Cc::Eqds(_) => "eqds",
        }
    }

    /// Whether a queue pair limits its own data in flight.
    pub fn limits_flight(&self) -> bool {
        matches!(self, Cc::Window | Cc::Eqds(_))
    }

    /// The credit that a queue pair offers its peer, if the driver may be late by `late`.
    pub fn credit(&self, late: Duration) -> Option<EqdsConfig> {
        match *self {
            Cc::Eqds(config) => Some(EqdsConfig { burst: late, ..config }),
            _ => None,
        }
    }

    /// Whether it can control the sends of a transport: a controller that measures round trips needs a transport whose packets are
    /// answered.
    pub fn is_for(&self, transport: Transport) -> bool {
        match self {
            Cc::None => true,
            Cc::Window | Cc::Fixed { .. } | Cc::Dcqcn(_) => transport.has_congestion_control(),
            Cc::Swift(_) => transport.is_reliable() || transport.is_bounded(),
            Cc::Eqds(_) => transport.has_credit(),
        }
    }

    /// Creates a controller for one queue pair on a link of `rate` bits per second; `None` if there is none. If the driver may poll for a
    /// packet up to `late` after its time, the controller makes up for that delay. A driver in virtual time is never late.
    pub fn make(&self, rate: u64, late: Duration) -> Option<Box<dyn CongestionControl>> {
        match *self {
            Cc::None | Cc::Window | Cc::Eqds(_) => None,
            Cc::Fixed { rate, window } => Some(Box::new(Fixed::new(rate, window).with_burst(late))),
            Cc::Dcqcn(config) => {
                let config = DcqcnConfig { burst: config.burst.max(late), ..config };
                Some(Box::new(Dcqcn::new(rate, config)))
            }
            // The delay of a driver is host delay, at both ends.
            Cc::Swift(config) => {
                Some(Box::new(Swift::new(rate, SwiftConfig { base: config.base.max(late), ..config })))
            }
        }
    }
}

fn one_line(s: &str) -> String {
    s.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn value<T>(what: &str, read: Result<T, String>) -> Result<T, CcError> {
    read.map_err(|why| CcError::Value { what: what.into(), why })
}

/// The value of one setting.
struct Value<'a> {
    what: String,
    text: &'a str,
    units: &'a Units,
}

impl Value<'_> {
    fn wrong<T>(&self, why: String) -> Result<T, CcError> {
        value(&self.what, Err(why))
    }

    fn rate(&self) -> Result<u64, CcError> {
        self.at_least((self.units.rate)(self.text), 1_000_000, "1Mbit")
    }

    fn size(&self) -> Result<u64, CcError> {
        self.at_least((self.units.size)(self.text), 1, "1")
    }

    fn at_least(&self, read: Result<u64, String>, least: u64, shown: &str) -> Result<u64, CcError> {
        match value(&self.what, read)? {
            n if n >= least => Ok(n),
            _ => self.wrong(format!("at least {shown}")),
        }
    }

    fn bytes(&self, least: u32, most: u32) -> Result<u32, CcError> {
        match value(&self.what, (self.units.size)(self.text))?.try_into() {
            Ok(n) if (least..=most).contains(&n) => Ok(n),
            _ => self.wrong(format!("from {least} to {most} bytes")),
        }
    }

    /// A time from one microsecond to one second.
    fn period(&self) -> Result<Duration, CcError> {
        match value(&self.what, (self.units.time)(self.text))? {
            t if (Duration::from_micros(1)..=Duration::from_secs(1)).contains(&t) => Ok(t),
            _ => self.wrong("from 1us to 1s".into()),
        }
    }

    /// A time of up to one second, or zero.
    fn time(&self) -> Result<Duration, CcError> {
        Ok(value(&self.what, (self.units.time)(self.text))?.min(Duration::from_secs(1)))
    }

    fn number(&self, least: u32, most: u32) -> Result<u32, CcError> {
        match self.text.parse() {
            Ok(n) if (least..=most).contains(&n) => Ok(n),
            _ => self.wrong(format!("a whole number from {least} to {most}")),
        }
    }

    /// A number with up to three decimals, in thousandths.
    fn thousandths(&self, least: u32, most: u32) -> Result<u32, CcError> {
        let n = self.text.parse().map_or(-1.0, |n: f64| (n * 1000.0).round());
        match (f64::from(least)..=f64::from(most)).contains(&n) {
            true => Ok(n as u32),
            false => self.wrong(format!("from {} to {}", f64::from(least) / 1000.0, f64::from(most) / 1000.0)),
        }
    }
}

/// Parses `KEY=VALUE,…`; `set` returns whether the key exists.
fn each_setting(
    (name, settings): (&'static str, &'static str),
    text: Option<&str>,
    units: &Units,
    mut set: impl FnMut(&str, &Value<'_>) -> Result<bool, CcError>,
) -> Result<(), CcError> {
    for word in text.iter().flat_map(|text| text.split(',')) {
        let none = |word| CcError::Setting { name, setting: one_line(word), settings };
        let (key, text) = word.split_once('=').ok_or_else(|| none(word))?;
        let value = Value { what: format!("{} of {name}", one_line(key)), text, units };
        if !set(key, &value)? {
            return Err(none(key));
        }
    }
    Ok(())
}

fn fixed(settings: &str, units: &Units) -> Result<Cc, CcError> {
    let (rate, window) = settings.split_once(':').map_or((settings, None), |(rate, window)| (rate, Some(window)));
    let rate = value("the rate of fixed", (units.rate)(rate))?;
    let window = match window.map(|w| value("the window of fixed", (units.size)(w))).transpose()? {
        Some(0) => return value("the window of fixed", Err("with a window of 0 nothing would ever leave".into())),
        window => window.unwrap_or(u64::MAX),
    };
    Ok(Cc::Fixed { rate, window })
}

fn dcqcn(settings: Option<&str>, units: &Units) -> Result<Cc, CcError> {
    let mut c = DcqcnConfig::default();
    each_setting(("dcqcn", DCQCN), settings, units, |key, v| {
        match key {
            "ai" => c.additive = v.rate()?,
            "hai" => c.hyper = v.rate()?,
            "floor" => c.floor = v.rate()?,
            "timer" => c.increase_timer = v.period()?,
            "alpha-timer" => c.alpha_timer = v.period()?,
            "bytes" => c.byte_counter = v.size()?,
            "g" => c.gain = v.number(2, 4096)?,
            "f" => c.fast_recovery = v.number(0, 1000)?,
            "burst" => c.burst = v.time()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Cc::Dcqcn(c))
}

fn eqds(settings: Option<&str>, units: &Units) -> Result<Cc, CcError> {
    let mut c = EqdsConfig::default();
    each_setting(("eqds", EQDS), settings, units, |key, v| {
        match key {
            "spec" => c.speculative = v.bytes(10_000, 1 << 28)?,
            "quantum" => c.quantum = v.bytes(1000, 1 << 24)?,
            "share" => c.share = v.thousandths(10, 1000)?,
            "retry" => c.retry = v.period()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Cc::Eqds(c))
}

fn swift(settings: Option<&str>, units: &Units) -> Result<Cc, CcError> {
    let mut c = SwiftConfig::default();
    each_setting(("swift", SWIFT), settings, units, |key, v| {
        match key {
            "base" => c.base = v.period()?,
            "hop" => c.hop = v.time()?,
            "hops" => c.hops = v.number(0, 64)?,
            "range" => c.range = v.time()?,
            "fs-min" => c.scaling[0] = v.thousandths(1, 1_000_000)?,
            "fs-max" => c.scaling[1] = v.thousandths(1, 1_000_000)?,
            "ai" => c.additive = v.thousandths(1, 1_000_000)?,
            "beta" => c.beta = v.thousandths(1, 1000)?,
            "mdf" => c.max_decrease = v.thousandths(1, 999)?,
            "start" => c.start = v.thousandths(1, 1_000_000)?,
            "floor" => c.floor = v.thousandths(1, 1_000_000)?,
            "timeouts" => c.timeouts = v.number(1, 1000)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let [least, most] = c.scaling;
    match least < most {
        true => Ok(Cc::Swift(c)),
        false => value("fs-min of swift", Err("it must be less than fs-max".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain numbers, so that these tests need no parsers.
    const UNITS: Units = Units {
        rate: |s| s.parse().map_err(|_| format!("'{s}' is no rate")),
        size: |s| s.parse().map_err(|_| format!("'{s}' is no size")),
        time: |s| s.parse().map(Duration::from_nanos).map_err(|_| format!("'{s}' is no time")),
    };

    #[test]
    fn names_and_settings_are_read() {
        let parse = |s| Cc::parse(s, &UNITS).unwrap();
        assert_eq!((parse("none"), parse("window")), (Cc::None, Cc::Window));
        assert_eq!(parse("fixed:2000"), Cc::Fixed { rate: 2000, window: u64::MAX });
        assert_eq!(parse("fixed:2000:64"), Cc::Fixed { rate: 2000, window: 64 });
        assert_eq!(parse("dcqcn"), Cc::Dcqcn(DcqcnConfig::default()));
        let all = "dcqcn:ai=5000000,hai=50000000,timer=300000,alpha-timer=60000,bytes=32767,g=1024,f=1,floor=1000000,burst=5000";
        let expected = DcqcnConfig {
            gain: 1024,
            alpha_timer: Duration::from_micros(60),
            increase_timer: Duration::from_micros(300),
            byte_counter: 32767,
            fast_recovery: 1,
            additive: 5_000_000,
            hyper: 50_000_000,
            floor: 1_000_000,
            burst: Duration::from_micros(5),
        };
        assert_eq!(parse(all), Cc::Dcqcn(expected));
        assert_eq!(parse("swift"), Cc::Swift(SwiftConfig::default()));
        let all = "swift:base=50000,hop=2000,hops=3,range=0,fs-min=0.5,fs-max=64,ai=0.25,beta=1,mdf=0.3,start=8,floor=0.001,timeouts=2";
        let expected = SwiftConfig {
            base: Duration::from_micros(50),
            hop: Duration::from_micros(2),
            hops: 3,
            range: Duration::ZERO,
            scaling: [500, 64_000],
            additive: 250,
            beta: 1000,
            max_decrease: 300,
            start: 8000,
            floor: 1,
            timeouts: 2,
        };
        assert_eq!(parse(all), Cc::Swift(expected));
        assert_eq!(parse("eqds"), Cc::Eqds(EqdsConfig::default()));
        let expected = EqdsConfig {
            speculative: 65_536,
            quantum: 8192,
            share: 950,
            retry: Duration::from_micros(50),
            burst: Duration::ZERO,
        };
        assert_eq!(parse("eqds:spec=65536,quantum=8192,share=0.95,retry=50000"), Cc::Eqds(expected));
    }

    #[test]
    fn who_measures_round_trips_is_for_transports_whose_packets_are_answered() {
        let of = |name| -> Vec<_> {
            let cc = Cc::parse(name, &UNITS).unwrap();
            Transport::all().filter(|&t| cc.is_for(t)).map(Transport::name).collect()
        };
        assert_eq!(of("swift"), ["rc", "sr", "lowar", "xp"]);
        assert_eq!(of("dcqcn"), ["rc", "sr", "lowar", "xp", "uc"]);
        assert_eq!(of("eqds"), ["rc", "sr", "xp"]);
        assert_eq!(of("none").len(), 6);
    }

    #[test]
    fn what_cannot_be_is_refused_with_one_line() {
        for (text, says) in [
            ("", "there is no congestion control ''"),
            ("reno", "choose none, window, fixed:RATE[:WINDOW], dcqcn, swift or eqds"),
            ("none:1", "there is no congestion control 'none:1'"),
            ("fixed", "there is no congestion control 'fixed'"),
            ("fixed:x", "the rate of fixed: 'x' is no rate"),
            ("fixed:1:0", "nothing would ever leave"),
            ("eqds:", "eqds has no setting ''"),
            ("eqds:spec=9999", "spec of eqds: from 10000 to 268435456 bytes"),
            ("eqds:share=1.1", "share of eqds: from 0.01 to 1"),
            ("eqds:quantum=0", "quantum of eqds: from 1000"),
            ("eqds:retry=0", "retry of eqds: from 1us to 1s"),
            ("dcqcn:", "dcqcn has no setting ''"),
            ("dcqcn:fast=1", "dcqcn has no setting 'fast'"),
            ("dcqcn:ai=1", "ai of dcqcn: at least 1Mbit"),
            ("dcqcn:g=1", "g of dcqcn: a whole number from 2 to 4096"),
            ("dcqcn:timer=1", "timer of dcqcn: from 1us to 1s"),
            ("dcqcn:bytes=0", "bytes of dcqcn: at least 1"),
            ("swift:", "swift has no setting ''"),
            ("swift:target=1000", "swift has no setting 'target': base, hop, hops,"),
            ("swift:base=0", "base of swift: from 1us to 1s"),
            ("swift:beta=1.5", "beta of swift: from 0.001 to 1"),
            ("swift:ai=nan", "ai of swift: from 0.001 to 1000"),
            ("swift:hops=65", "hops of swift: a whole number from 0 to 64"),
            ("swift:fs-min=8,fs-max=8", "fs-min of swift: it must be less than fs-max"),
        ] {
            let error = Cc::parse(text, &UNITS).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
