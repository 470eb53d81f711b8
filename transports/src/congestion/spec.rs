//! Congestion control by name, as command lines and files have it: `none`, `window`, `fixed:2Gbit:256K`, `dcqcn`, `dcqcn:ai=5Mbit,timer=300us`.

use std::time::Duration;

use super::{CongestionControl, Dcqcn, DcqcnConfig, Fixed};

/// How people write rates, sizes and times; who parses for them knows.
#[derive(Debug, Clone, Copy)]
pub struct Units {
    /// Bits a second, as in `10Gbit`.
    pub rate: fn(&str) -> Result<u64, String>,
    /// Bytes, as in `64K`.
    pub size: fn(&str) -> Result<u64, String>,
    /// As in `55us`.
    pub time: fn(&str) -> Result<Duration, String>,
}

/// The congestion control of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cc {
    /// Nothing: as fast as the link takes it.
    #[default]
    None,
    /// As fast as the link takes it, with no more outstanding than a receiver in software has room for: no controller, but
    /// a limit of the queue pair itself (`QpInit::limit_flight`).
    Window,
    /// A rate in bits a second on the wire, and bytes of payload in flight.
    Fixed {
        /// The rate.
        rate: u64,
        /// The window.
        window: u64,
    },
    /// DCQCN.
    Dcqcn(DcqcnConfig),
}

/// Why there is no such congestion control.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CcError {
    /// There is none of this name.
    #[error("there is no congestion control '{0}': choose none, window, fixed:RATE[:WINDOW] or dcqcn")]
    Unknown(String),
    /// It will come.
    #[error("congestion control '{0}' is not there yet: choose none, window, fixed:RATE[:WINDOW] or dcqcn")]
    NotYet(String),
    /// DCQCN has no such setting.
    #[error(
        "dcqcn has no setting '{0}': ai, hai, timer, alpha-timer, bytes, g, f, floor and burst, as in dcqcn:ai=5Mbit,timer=300us"
    )]
    Setting(String),
    /// A value is not one.
    #[error("{what}: {why}")]
    Value {
        /// The setting.
        what: String,
        /// Why it is none.
        why: String,
    },
}

impl Cc {
    /// Reads a name with its settings.
    pub fn parse(text: &str, units: &Units) -> Result<Cc, CcError> {
        let (name, settings) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match (name, settings) {
            ("none", None) => Ok(Cc::None),
            ("window", None) => Ok(Cc::Window),
            ("fixed", Some(settings)) => fixed(settings, units),
            ("dcqcn", None) => Ok(Cc::Dcqcn(DcqcnConfig::default())),
            ("dcqcn", Some(settings)) => dcqcn(settings, units),
            ("swift" | "eqds", _) => Err(CcError::NotYet(one_line(name))),
            _ => Err(CcError::Unknown(one_line(text))),
        }
    }

    /// Its name, without settings.
    pub fn name(&self) -> &'static str {
        match self {
            Cc::None => "none",
            Cc::Window => "window",
            Cc::Fixed { .. } => "fixed",
            Cc::Dcqcn(_) => "dcqcn",
        }
    }

    /// A controller for one queue pair, on a line of `rate` bits a second; `None` where there is none. A driver that may ask for a packet
    /// so `late` that its time has long come gets what it missed made up for; one in virtual time is never late.
    pub fn make(&self, rate: u64, late: Duration) -> Option<Box<dyn CongestionControl>> {
        match *self {
            Cc::None | Cc::Window => None,
            Cc::Fixed { rate, window } => Some(Box::new(Fixed::new(rate, window).with_burst(late))),
            Cc::Dcqcn(config) => {
                let config = DcqcnConfig { burst: config.burst.max(late), ..config };
                Some(Box::new(Dcqcn::new(rate, config)))
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

fn fixed(settings: &str, units: &Units) -> Result<Cc, CcError> {
    let (rate, window) = settings.split_once(':').map_or((settings, None), |(rate, window)| (rate, Some(window)));
    let rate = value("the rate of fixed", (units.rate)(rate))?;
    let window = match window.map(|w| value("the window of fixed", (units.size)(w))).transpose()? {
        Some(0) => return value("the window of fixed", Err("with a window of 0 nothing would ever leave".into())),
        window => window.unwrap_or(u64::MAX),
    };
    Ok(Cc::Fixed { rate, window })
}

fn dcqcn(settings: &str, units: &Units) -> Result<Cc, CcError> {
    let mut c = DcqcnConfig::default();
    for word in settings.split(',') {
        let (key, text) = word.split_once('=').ok_or_else(|| CcError::Setting(one_line(word)))?;
        let what = format!("{} of dcqcn", one_line(key));
        let rate = || at_least(&what, (units.rate)(text), 1_000_000, "1Mbit");
        let time = || match value(&what, (units.time)(text))? {
            t if (Duration::from_micros(1)..=Duration::from_secs(1)).contains(&t) => Ok(t),
            _ => value(&what, Err("from 1us to 1s".into())),
        };
        let number = |least: u32, most: u32| match text.parse() {
            Ok(n) if (least..=most).contains(&n) => Ok(n),
            _ => value(&what, Err(format!("a whole number from {least} to {most}"))),
        };
        match key {
            "ai" => c.additive = rate()?,
            "hai" => c.hyper = rate()?,
            "floor" => c.floor = rate()?,
            "timer" => c.increase_timer = time()?,
            "alpha-timer" => c.alpha_timer = time()?,
            "bytes" => c.byte_counter = at_least(&what, (units.size)(text), 1, "1")?,
            "g" => c.gain = number(2, 4096)?,
            "f" => c.fast_recovery = number(0, 1000)?,
            "burst" => c.burst = value(&what, (units.time)(text))?.min(Duration::from_secs(1)),
            _ => return Err(CcError::Setting(one_line(key))),
        }
    }
    Ok(Cc::Dcqcn(c))
}

fn at_least(what: &str, read: Result<u64, String>, least: u64, shown: &str) -> Result<u64, CcError> {
    match value(what, read)? {
        n if n >= least => Ok(n),
        _ => value(what, Err(format!("at least {shown}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bare numbers, so that these tests need nobody's units.
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
    }

    #[test]
    fn what_cannot_be_is_refused_with_one_line() {
        for (text, says) in [
            ("", "there is no congestion control ''"),
            ("reno", "choose none, window, fixed:RATE[:WINDOW] or dcqcn"),
            ("none:1", "there is no congestion control 'none:1'"),
            ("fixed", "there is no congestion control 'fixed'"),
            ("fixed:x", "the rate of fixed: 'x' is no rate"),
            ("fixed:1:0", "nothing would ever leave"),
            ("swift", "is not there yet"),
            ("dcqcn:", "dcqcn has no setting ''"),
            ("dcqcn:fast=1", "dcqcn has no setting 'fast'"),
            ("dcqcn:ai=1", "ai of dcqcn: at least 1Mbit"),
            ("dcqcn:g=1", "g of dcqcn: a whole number from 2 to 4096"),
            ("dcqcn:timer=1", "timer of dcqcn: from 1us to 1s"),
            ("dcqcn:bytes=0", "bytes of dcqcn: at least 1"),
        ] {
            let error = Cc::parse(text, &UNITS).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
