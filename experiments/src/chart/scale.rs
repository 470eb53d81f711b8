//! Where values lie along an axis, and which of them have ticks.

use super::{Axis, Scale};

/// An axis of a certain length, in pixels.
#[derive(Debug, Clone)]
pub(super) struct Ruler {
    scale: Scale,
    /// The ends in the units of the scale: exponents where it is logarithmic.
    low: f64,
    high: f64,
    /// Zero lies apart, at the beginning.
    zero: bool,
    length: f64,
}

/// A mark on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: Label,
}

/// What stands at a tick.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Label {
    /// A minor tick.
    None,
    Text(String),
    /// Ten to this power.
    Power(i32),
}

impl Label {
    /// Characters that it takes, about.
    pub(super) fn width(&self) -> f64 {
        match self {
            Label::None => 0.0,
            Label::Text(text) => text.chars().count() as f64,
            Label::Power(exponent) => 2.0 + 0.7 * exponent.to_string().len() as f64,
        }
    }
}

/// Pixels for zero before a logarithmic axis: half of them are on either side of the break.
const ZERO: f64 = 44.0;
/// Ticks of a linear axis, at most about.
const LINEAR_TICKS: f64 = 7.0;
/// Decades that are written as plain numbers if all are.
const PLAIN: std::ops::RangeInclusive<i32> = -2..=3;
/// Powers of two that are labelled, at most.
const BYTE_LABELS: i32 = 11;

impl Ruler {
    /// An axis that holds `values`; `from_zero` makes a linear one begin or end there, `margin` is left free at both ends.
    pub(super) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64> + Clone,
        length: f64,
        from_zero: bool,
        margin: f64,
    ) -> Ruler {
        let scale = axis.scale.clone();
        let logarithmic = matches!(scale, Scale::Log | Scale::Bytes);
        let zero = logarithmic && values.clone().any(|v| v <= 0.0);
        let unit = |v: f64| if logarithmic { exponent(&scale, v) } else { v };
        let shown = values.filter(|v| v.is_finite() && (!logarithmic || *v > 0.0)).map(unit);
        let (mut low, mut high) = shown.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        match &scale {
            Scale::Categories(names) => (low, high) = (-0.5, names.len().max(1) as f64 - 0.5),
            Scale::Linear if from_zero => {
                (low, high) = (low.min(0.0), high.max(0.0));
                if low == high {
                    high = 1.0;
                }
                // A little beyond a tick is no reason for another one.
                let step = step(high - low);
                high = (high / step - 0.02).ceil() * step;
                low = (low / step + 0.02).floor() * step;
            }
            // Along y both ends are ticks that have a label.
            Scale::Log if from_zero => {
                if high - low > 1.0 {
                    (low, high) = ((low + 1e-9).floor(), (high - 1e-9).ceil());
                } else {
                    (low, high) = (low - 0.08, high + 0.08);
                }
            }
            _ => {}
        }
        if high <= low {
            (low, high) = (low - 0.5, high + 0.5);
        }
        if !from_zero && !matches!(scale, Scale::Categories(_)) {
            let free = (high - low) * margin / (length - 2.0 * margin - if zero { ZERO } else { 0.0 }).max(1.0);
            (low, high) = (low - free, high + free);
        }
        Ruler { scale, low, high, zero, length }
    }

    /// Pixels from the beginning of the axis; none for what a logarithmic axis cannot show.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let before = if self.zero { ZERO } else { 0.0 };
        let v = match self.scale {
            _ if !value.is_finite() => return None,
            Scale::Log | Scale::Bytes if value <= 0.0 => return self.zero.then_some(ZERO * 0.3),
            Scale::Log | Scale::Bytes => exponent(&self.scale, value),
            Scale::Linear | Scale::Categories(_) => value,
        };
        Some(before + (v - self.low) / (self.high - self.low) * (self.length - before))
    }

    /// Where the axis is broken, in pixels from its beginning.
    pub(super) fn break_at(&self) -> Option<f64> {
        self.zero.then_some(ZERO * 0.75)
    }

    pub(super) fn ticks(&self) -> Vec<Tick> {
        let text = |value: f64, label: String| Some(Tick { at: self.place(value)?, label: Label::Text(label) });
        let zero = self.zero.then(|| text(0.0, "0".into())).flatten();
        let others: Vec<Tick> = match &self.scale {
            Scale::Linear => self.linear(),
            Scale::Log => self.decades(),
            Scale::Bytes => self.powers_of_two(),
            Scale::Categories(names) => {
                names.iter().enumerate().filter_map(|(i, name)| text(i as f64, name.clone())).collect()
            }
        };
        zero.into_iter().chain(others).collect()
    }

    fn linear(&self) -> Vec<Tick> {
        let step = step(self.high - self.low);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let inside = |value: &f64| *value >= self.low - step * 1e-6 && *value <= self.high + step * 1e-6;
        let first = (self.low / step).ceil();
        let values = (0..100).map(|i| (first + f64::from(i)) * step).take_while(|v| inside(v)).filter(inside);
        // Adding 0 makes of -0 a 0.
        values
            .filter_map(|v| Some(Tick { at: self.place(v)?, label: Label::Text(format!("{:.decimals$}", v + 0.0)) }))
            .collect()
    }

    fn decades(&self) -> Vec<Tick> {
        let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
        let inside = |e: f64| e >= self.low - 1e-9 && e <= self.high + 1e-9;
        let mut whole = (first..=last).filter(|&e| inside(f64::from(e)));
        let plain = whole.all(|e| PLAIN.contains(&e));
        // Where there are few decades, the steps between them are labelled, too.
        let between: &[i32] = match self.high - self.low {
            span if span < 0.9 => &[2, 3, 4, 5, 6, 8],
            span if span < 1.6 => &[2, 5],
            _ => &[],
        };
        let mut ticks = Vec::new();
        for exponent in first..=last {
            for digit in 1..10 {
                let value = f64::from(digit) * 10f64.powi(exponent);
                let Some(at) = self.place(value).filter(|_| inside(value.log10())) else { continue };
                let label = match digit {
                    1 if plain => Label::Text(number(value)),
                    1 => Label::Power(exponent),
                    _ if plain && between.contains(&digit) => Label::Text(number(value)),
                    _ => Label::None,
                };
                ticks.push(Tick { at, label });
            }
        }
        ticks
    }

    fn powers_of_two(&self) -> Vec<Tick> {
        let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
        let every = (last - first + 1).div_euclid(BYTE_LABELS) + 1;
        let tick = |e: i32| {
            let value = 2f64.powi(e);
            let label = if (e - first) % every == 0 { Label::Text(bytes(value as u64)) } else { Label::None };
            Some(Tick { at: self.place(value)?, label })
        };
        (first..=last).filter_map(tick).collect()
    }
}

fn exponent(scale: &Scale, value: f64) -> f64 {
    if *scale == Scale::Bytes { value.log2() } else { value.log10() }
}

/// 1, 2 or 5 times a power of ten, so that a span has at most about [`LINEAR_TICKS`] of them.
fn step(span: f64) -> f64 {
    let rough = span / LINEAR_TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= rough * 0.999).unwrap_or(10.0);
    digit * power
}

/// Without digits that come from rounding.
fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// In the largest unit that it is whole in.
pub(crate) fn bytes(size: u64) -> String {
    match size {
        n if n > 0 && n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        n if n > 0 && n % (1 << 10) == 0 => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruler(scale: Scale, values: &[f64], from_zero: bool) -> Ruler {
        Ruler::new(&Axis::new("x", scale), values.iter().copied(), 400.0, from_zero, 10.0)
    }

    fn labels(ruler: &Ruler) -> Vec<String> {
        let shown = |tick: Tick| match tick.label {
            Label::None => None,
            Label::Text(text) => Some(text),
            Label::Power(e) => Some(format!("10^{e}")),
        };
        ruler.ticks().into_iter().filter_map(shown).collect()
    }

    #[test]
    fn a_logarithmic_axis_has_a_label_at_each_decade_and_minor_ticks_between() {
        let ruler = ruler(Scale::Log, &[1e-5, 1e-2], false);
        assert_eq!(labels(&ruler), ["10^-5", "10^-4", "10^-3", "10^-2"]);
        let minor = ruler.ticks().iter().filter(|t| t.label == Label::None).count();
        assert!((24..=28).contains(&minor), "eight between each two, and few beyond the ends: {minor}");
        let at = |v| ruler.place(v).unwrap();
        assert!((at(1e-4) - at(1e-5) - (at(1e-3) - at(1e-4))).abs() < 1e-9, "decades are equally long");
        assert!(at(3e-4) - at(1e-4) < (at(1e-3) - at(1e-4)) / 2.0, "and not linear inside");
    }

    #[test]
    fn zero_has_a_place_of_its_own_on_a_logarithmic_axis_before_a_break() {
        let with = ruler(Scale::Log, &[0.0, 1e-3, 1e-2], false);
        let (zero, gap, first) = (with.place(0.0).unwrap(), with.break_at().unwrap(), with.place(1e-3).unwrap());
        assert!(zero < gap && gap < first, "{zero} {gap} {first}");
        assert_eq!(labels(&with)[0], "0");
        let without = ruler(Scale::Log, &[1e-3, 1e-2], false);
        assert_eq!((without.place(0.0), without.break_at()), (None, None));
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_ends_at_a_tick_above_all_values() {
        let ruler = ruler(Scale::Linear, &[9.03, 0.18], true);
        assert_eq!(labels(&ruler), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!((ruler.place(0.0), ruler.place(10.0)), (Some(0.0), Some(400.0)));
        assert_eq!(labels(&self::ruler(Scale::Linear, &[0.004, 0.009], true)).last().unwrap(), "0.010");
        assert_eq!(labels(&self::ruler(Scale::Linear, &[], true)).first().unwrap(), "0.0");
    }

    #[test]
    fn few_decades_have_labels_between_them_and_bytes_have_binary_units() {
        let times = ruler(Scale::Log, &[40.9, 201.0], true);
        assert!(
            labels(&times).contains(&"50".into()) && labels(&times).contains(&"200".into()),
            "{:?}",
            labels(&times)
        );
        let sizes = ruler(Scale::Bytes, &[64.0, 2048.0], false);
        assert_eq!(labels(&sizes), ["64 B", "128 B", "256 B", "512 B", "1 KiB", "2 KiB"]);
        assert_eq!((bytes(3 << 20), bytes(1500)), ("3 MiB".into(), "1500 B".into()));
    }
}
