//! The settings of XP as text: `linger=T,active=T,timeout=T,tail=N,spray=N`, and `uc` for a queue pair that its program sees as UC.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::qp::QpKind;

/// The settings of a queue pair of XP. They are local; the peer need not know them. Times are whole microseconds, so that a queue pair's
/// transport takes only a few bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct XpSettings {
    linger: u32,
    active: u32,
    timeout: u32,
    /// How often the last fragment is sent.
    pub tail: u8,
    /// Number of UDP source ports that packets use in turn.
    pub spray: u8,
    /// The program sees a queue pair of UC rather than RC, and so does a peer without XP.
    pub uc: bool,
}

/// The default time for which a receiver waits for late fragments if packets take several paths, in microseconds: the difference between
/// the queues of two paths (docs/xp.md has the measurements).
const SPRAYED_LINGER: u32 = 50;

/// No end, and no limit.
const FOREVER: u32 = u32::MAX;

impl XpSettings {
    /// As in §3.1.2 of the paper: a message completes at the last fragment, which is sent once, on one path.
    pub const DEFAULT: XpSettings =
        XpSettings { linger: 0, active: FOREVER, timeout: 1_000_000, tail: 1, spray: 1, uc: false };

    /// How long a receiver waits for late fragments after the last one; `None`: until the deadline.
    #[inline]
    pub fn linger(&self) -> Option<Duration> {
        (self.linger != FOREVER).then(|| Duration::from_micros(self.linger.into()))
    }

    /// Maximum time of a message from its first packet to its completion; `None`: no limit except deadlines.
    #[inline]
    pub fn active(&self) -> Option<Duration> {
        (self.active != FOREVER).then(|| Duration::from_micros(self.active.into()))
    }

    /// The deadline of READs without their own, counted from when their request is sent.
    #[inline]
    pub fn timeout(&self) -> Duration {
        Duration::from_micros(self.timeout.into())
    }

    /// These settings with another `active`, in whole microseconds.
    pub fn with_active(self, active: Duration) -> XpSettings {
        XpSettings { active: u32::try_from(active.as_micros()).unwrap_or(FOREVER), ..self }
    }

    /// These settings for a queue pair that its program sees as UC, or as RC.
    pub const fn with_uc(self, uc: bool) -> XpSettings {
        XpSettings { uc, ..self }
    }

    /// The kind of queue pair that its program sees.
    pub const fn kind(&self) -> QpKind {
        if self.uc { QpKind::Uc } else { QpKind::Rc }
    }
}

impl Default for XpSettings {
    fn default() -> XpSettings {
        XpSettings::DEFAULT
    }
}

/// Why a text is not a setting of XP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XpSettingsError {
    /// There is no such setting.
    #[error("xp has no setting `{0}`: there are linger=T, active=T, timeout=T, tail=N, spray=N and uc")]
    Unknown(String),
    /// The value is not a time.
    #[error("`{0}` of xp takes a time such as 50us, 2ms or 1s{hint}", hint = if .0 == "linger" { ", or inf" } else { "" })]
    Time(String),
    /// The value is not a number in range.
    #[error("`{0}` of xp takes a number from 1 to {1}")]
    Number(String, u8),
}

/// Maximum number of copies of a last fragment.
const MAX_TAIL: u8 = 16;
/// Maximum number of source ports.
const MAX_SPRAY: u8 = 64;

impl FromStr for XpSettings {
    type Err = XpSettingsError;

    fn from_str(text: &str) -> Result<XpSettings, XpSettingsError> {
        let mut settings = XpSettings::DEFAULT;
        let mut lingers = false;
        for part in text.split(',').map(str::trim) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let time = || time(value).ok_or_else(|| XpSettingsError::Time(name.into()));
            let number = |most| match value.parse() {
                Ok(n) if (1..=most).contains(&n) => Ok(n),
                _ => Err(XpSettingsError::Number(name.into(), most)),
            };
            match name {
                "linger" => {
                    settings.linger = if value == "inf" { FOREVER } else { time()? };
                    lingers = true;
                }
                "active" => settings.active = time()?,
                "timeout" => settings.timeout = time()?,
                "tail" => settings.tail = number(MAX_TAIL)?,
                "spray" => settings.spray = number(MAX_SPRAY)?,
                "uc" if part == "uc" => settings.uc = true,
                _ => return Err(XpSettingsError::Unknown(part.into())),
            }
        }
        if !lingers {
            settings.linger = usual_linger(settings.spray);
        }
        Ok(settings)
    }
}

/// The default of `linger`.
const fn usual_linger(spray: u8) -> u32 {
    if spray > 1 { SPRAYED_LINGER } else { XpSettings::DEFAULT.linger }
}

const UNITS: [(&str, u32); 3] = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];

/// Parses a time in microseconds, up to an hour; 0 needs no unit.
fn time(text: &str) -> Option<u32> {
    if text == "0" {
        return Some(0);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let &(_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let micros = number.parse::<f64>().ok()? * f64::from(length);
    (micros <= 3.6e9).then(|| micros.round() as u32)
}

/// The shortest text that parses to this time.
fn shown(micros: u32) -> String {
    let (unit, length) = UNITS.into_iter().rev().find(|(_, length)| micros.is_multiple_of(*length)).unwrap_or(UNITS[0]);
    format!("{}{unit}", micros / length)
}

/// The settings that differ from the default, as short as possible; empty if there are none.
impl fmt::Display for XpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = XpSettings::DEFAULT;
        let linger = || if self.linger == FOREVER { "inf".into() } else { shown(self.linger) };
        let parts = [
            self.uc.then(|| "uc".to_owned()),
            (self.linger != usual_linger(self.spray)).then(|| format!("linger={}", linger())),
            (self.active != d.active).then(|| format!("active={}", shown(self.active))),
            (self.timeout != d.timeout).then(|| format!("timeout={}", shown(self.timeout))),
            (self.tail != d.tail).then(|| format!("tail={}", self.tail)),
            (self.spray != d.spray).then(|| format!("spray={}", self.spray)),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back_from_their_text() {
        for text in ["uc", "linger=inf", "linger=20us,active=5ms,timeout=250ms,tail=2,spray=8", "uc,tail=16"] {
            assert_eq!(text.parse::<XpSettings>().unwrap().to_string(), text);
        }
        assert_eq!("linger=0s".parse(), Ok(XpSettings::DEFAULT));
        assert_eq!("linger=0".parse(), Ok(XpSettings::DEFAULT));
        let sprayed: XpSettings = "spray=4".parse().unwrap();
        assert_eq!((sprayed.linger(), sprayed.to_string()), (Some(Duration::from_micros(50)), "spray=4".into()));
        let at_once: XpSettings = "linger=0,spray=4".parse().unwrap();
        assert_eq!((at_once.linger(), at_once.to_string()), (Some(Duration::ZERO), "linger=0s,spray=4".into()));
        assert_eq!("active=1.5ms".parse::<XpSettings>().unwrap().active(), Some(Duration::from_micros(1500)));
    }

    #[test]
    fn a_setting_that_cannot_be_is_told_what_can() {
        for (text, why) in [
            ("", "no setting ``"),
            ("lingr=1ms", "there are linger=T"),
            ("uc=1", "no setting `uc=1`"),
            ("active=5", "takes a time such as"),
            ("timeout=inf", "takes a time such as"),
            ("linger=x", "or inf"),
            ("active=2000000s", "takes a time"),
            ("tail=0", "from 1 to 16"),
            ("spray=65", "from 1 to 64"),
        ] {
            let error = text.parse::<XpSettings>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
