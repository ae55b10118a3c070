//! From values to places on an axis, and the round numbers that stand there.

use crate::text::{binary, decimal};

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0 on, or from below if there are values below it.
    Linear,
    /// The same with whole numbers at its ticks.
    Whole,
    /// Equal ratios at equal distances, with 1, 2 and 5 times powers of ten.
    Decades,
    /// The same with powers of two, which have letters for powers of 1024.
    Doubling,
}

/// Ticks of a linear axis at most.
const TICKS_MAX: f64 = 20.0;
/// So few ticks are drawn whether they fit or not.
const TICKS_MIN: usize = 3;
/// For what floating point loses.
const SLACK: f64 = 1e-9;

/// A number at an axis.
#[derive(Clone, Debug)]
pub(crate) struct Tick {
    /// Its place from 0 to 1.
    pub(crate) at: f64,
    pub(crate) label: String,
}

/// An axis with its ends and ticks.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    scale: Scale,
    /// The ends; of logarithmic scales their logarithms.
    low: f64,
    high: f64,
    pub(crate) ticks: Vec<Tick>,
}

impl Scale {
    /// Whether a value has a place on such an axis.
    pub(crate) fn takes(self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || matches!(self, Self::Linear | Self::Whole))
    }

    /// What the axis is linear in.
    fn inner(self, value: f64) -> f64 {
        match self {
            Self::Linear | Self::Whole => value,
            Self::Decades => value.log10(),
            Self::Doubling => value.log2(),
        }
    }

    /// An axis for values that it takes, with as many ticks as `fits` says; `None` without any value.
    pub(crate) fn over(
        self,
        values: impl Iterator<Item = f64>,
        fits: impl Fn(&[Tick]) -> bool,
    ) -> Option<Span> {
        let ends = |ends: Option<(f64, f64)>, value: f64| {
            let (least, most) = ends.unwrap_or((value, value));
            Some((least.min(value), most.max(value)))
        };
        let (least, most) = values.filter(|value| self.takes(*value)).fold(None, ends)?;
        let spans = (0..).map(|sparser| self.span(least, most, sparser));
        let enough = |span: &Span| fits(&span.ticks) || span.ticks.len() <= TICKS_MIN;
        spans.into_iter().find(enough)
    }

    /// With fewer ticks the greater `sparser` is.
    fn span(self, least: f64, most: f64, sparser: usize) -> Span {
        match self {
            Self::Linear | Self::Whole => self.even(least, most, sparser),
            Self::Decades => match sparser {
                0 => self.ratios(least, most),
                step => self.powers(least, most, step as i32),
            },
            Self::Doubling => {
                let (low, high) = (self.inner(least), self.inner(most));
                // Room for one power of two at least.
                let wider = (1.0 - (high - low)).max(0.0) / 2.0;
                let (low, high) = (low - wider, high + wider);
                let step = sparser as i32 + 1;
                let (first, last) = (low / f64::from(step), high / f64::from(step));
                let first = (first - SLACK).ceil() as i32;
                let last = ((last + SLACK).floor() as i32).max(first);
                let powers = (first..=last).map(|n| n * step);
                self.with(low, high, powers.map(|n| (f64::from(n), binary(n))))
            }
        }
    }

    /// Ticks at multiples of 1, 2 or 5 times a power of ten; both ends are such.
    fn even(self, least: f64, most: f64, sparser: usize) -> Span {
        let (low, high) = (least.min(0.0), most.max(if self == Self::Whole { 1.0 } else { 0.0 }));
        let high = if high > low { high } else { low + 1.0 };
        let finest = (high - low) / TICKS_MAX;
        let finest = if self == Self::Whole { finest.max(1.0) } else { finest };
        let mut steps = round_from(finest);
        let step = steps.nth(sparser).unwrap_or(finest);
        let (first, last) = ((low / step + SLACK).floor(), (high / step - SLACK).ceil());
        let count = (last - first) as i32;
        let values = (0..=count).map(|n| (first + f64::from(n)) * step);
        self.with(first * step, last * step, values.map(|value| (value, decimal(value))))
    }

    /// Ticks at 1, 2 and 5 times powers of ten; both ends are such.
    fn ratios(self, least: f64, most: f64) -> Span {
        let before = |value: f64| value * (1.0 + SLACK);
        let low = round_from(least / 10.0).take_while(|tick| *tick <= before(least)).last();
        let low = low.unwrap_or(least);
        let mut ticks: Vec<f64> = Vec::new();
        for tick in round_from(low) {
            ticks.push(tick);
            if before(tick) >= most && ticks.len() > 1 {
                break;
            }
        }
        let high = ticks[ticks.len() - 1];
        let named = ticks.into_iter().map(|tick| (tick.log10(), decimal(tick)));
        self.with(low.log10(), high.log10(), named)
    }

    /// Ticks at powers of ten to a multiple of `step`; both ends are such.
    fn powers(self, least: f64, most: f64, step: i32) -> Span {
        let wide = f64::from(step);
        let first = (least.log10() / wide + SLACK).floor() as i32;
        let last = ((most.log10() / wide - SLACK).ceil() as i32).max(first + 1);
        let powers = (first..=last).map(|n| n * step);
        let (low, high) = (f64::from(first * step), f64::from(last * step));
        self.with(low, high, powers.map(|n| (f64::from(n), decimal(10_f64.powi(n)))))
    }

    fn with(self, low: f64, high: f64, ticks: impl Iterator<Item = (f64, String)>) -> Span {
        let place = |(inner, label)| Tick { at: (inner - low) / (high - low), label };
        Span { scale: self, low, high, ticks: ticks.map(place).collect() }
    }
}

impl Span {
    /// The place of a value, from 0 to 1.
    pub(crate) fn at(&self, value: f64) -> f64 {
        (self.scale.inner(value) - self.low) / (self.high - self.low)
    }
}

/// 1, 2 and 5 times powers of ten, from the first that is no less than `least` on.
fn round_from(least: f64) -> impl Iterator<Item = f64> {
    let power = least.log10().floor() as i32;
    let decades = (power..).map(|power| 10_f64.powi(power));
    let all = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|times| times * decade));
    all.skip_while(move |step| *step < least * (1.0 - SLACK))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALES: [Scale; 4] = [Scale::Linear, Scale::Whole, Scale::Decades, Scale::Doubling];

    /// The number that a label says.
    fn said(label: &str) -> f64 {
        if let Some(power) = label.strip_prefix("2^") {
            return 2_f64.powi(power.parse().unwrap());
        }
        let letters = "kMGT".chars().zip([1e3, 1e6, 1e9, 1e12]);
        let mut units = letters.chain("K".chars().zip([1024.0]));
        let unit = units.find(|(letter, _)| label.ends_with(*letter));
        let digits = label.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        digits.parse::<f64>().unwrap() * unit.map_or(1.0, |(_, unit)| unit)
    }

    fn is_round(step: f64) -> bool {
        let mantissa = step / 10_f64.powf((step.log10() + SLACK).floor());
        [1.0, 2.0, 5.0].iter().any(|round| (mantissa / round - 1.0).abs() < 1e-6)
    }

    /// Pairs of values from tiny to huge.
    fn ranges() -> impl Iterator<Item = (f64, f64)> {
        let sizes = [1e-12, 3e-7, 0.04, 0.99, 1.0, 1.3, 7.0, 64.0, 999.0, 4e4, 5e6, 7.7e9, 1e14];
        let pairs = sizes.into_iter().flat_map(move |one| sizes.map(|other| (one, other)));
        pairs.filter(|(least, most)| least <= most)
    }

    #[test]
    fn values_lie_between_the_ends_and_ticks_are_in_order_and_differ() {
        for scale in SCALES {
            for (least, most) in ranges() {
                for limit in [3, 5, 11, 40] {
                    let fits = |ticks: &[Tick]| ticks.len() <= limit;
                    let span = scale.over([most, least].into_iter(), fits).unwrap();
                    let name = format!("{scale:?} {least} {most}: {span:?}");
                    let ends = [span.at(least), span.at(most)];
                    assert!(ends.iter().all(|at| (-1e-6..=1.0 + 1e-6).contains(at)), "{name}");
                    assert!(!span.ticks.is_empty() && span.ticks.len() <= limit, "{name}");
                    for pair in span.ticks.windows(2) {
                        assert!(
                            pair[0].at < pair[1].at && pair[0].label != pair[1].label,
                            "{name}"
                        );
                    }
                    let inside = |tick: &Tick| (-1e-6..=1.0 + 1e-6).contains(&tick.at);
                    assert!(span.ticks.iter().all(inside), "{name}");
                }
            }
        }
    }

    #[test]
    fn ticks_are_round_and_stand_where_their_labels_say() {
        for scale in [Scale::Linear, Scale::Whole, Scale::Decades] {
            for (least, most) in ranges() {
                let fits = |ticks: &[Tick]| ticks.len() <= 7;
                let span = scale.over([least, most].into_iter(), fits).unwrap();
                let name = format!("{scale:?} {least} {most}: {span:?}");
                let values: Vec<f64> = span.ticks.iter().map(|tick| said(&tick.label)).collect();
                for (value, tick) in values.iter().zip(&span.ticks) {
                    assert!((span.at(*value) - tick.at).abs() < 1e-6, "{name}");
                }
                if scale == Scale::Decades {
                    assert!(values.iter().all(|value| is_round(*value)), "{name}");
                    continue;
                }
                let steps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
                assert!(steps.iter().all(|step| is_round(*step)), "{name}");
                assert!(scale != Scale::Whole || steps[0] >= 1.0, "{name}");
                assert!(scale == Scale::Decades || values[0] == 0.0, "{name}");
            }
        }
    }

    #[test]
    fn ticks_of_usual_ranges() {
        let labels = |scale: Scale, least: f64, most: f64, limit: usize| {
            let fits = |ticks: &[Tick]| ticks.len() <= limit;
            let span = scale.over([least, most].into_iter(), fits).unwrap();
            span.ticks.into_iter().map(|tick| tick.label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(Scale::Linear, 3.0, 187_300.0, 6), "0 50k 100k 150k 200k");
        assert_eq!(labels(Scale::Linear, -0.3, 0.8, 8), "-0.4 -0.2 0 0.2 0.4 0.6 0.8");
        assert_eq!(labels(Scale::Linear, 0.0, 0.0, 3), "0 0.5 1");
        assert_eq!(labels(Scale::Whole, 1.0, 5.0, 9), "0 1 2 3 4 5");
        assert_eq!(labels(Scale::Whole, 1.0, 1.0, 9), "0 1");
        assert_eq!(labels(Scale::Decades, 60.0, 900.0, 9), "50 100 200 500 1k");
        assert_eq!(labels(Scale::Decades, 3.0, 40_000.0, 7), "1 10 100 1k 10k 100k");
        assert_eq!(labels(Scale::Decades, 1.0, 1.0, 9), "1 2");
        assert_eq!(
            labels(Scale::Doubling, 512.0, 67_108_864.0, 9),
            "1K 4K 16K 64K 256K 1M 4M 16M 64M"
        );
        assert_eq!(labels(Scale::Doubling, 1.0, 32.0, 9), "1 2 4 8 16 32");
        assert_eq!(labels(Scale::Doubling, 3.0, 3.0, 9), "4");
    }

    #[test]
    fn values_without_a_place_are_left_out() {
        let any = |_: &[Tick]| true;
        let none = [0.0, -1.0, f64::NAN, f64::INFINITY];
        assert!(Scale::Decades.over(none.into_iter(), any).is_none());
        let span = Scale::Linear.over(none.into_iter(), any).unwrap();
        assert_eq!((span.low, span.high), (-1.0, 0.0));
    }
}
