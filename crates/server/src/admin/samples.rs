//! Writing metrics in Prometheus' text format.

use crate::stats::latency::Percentiles;
use std::fmt::Write;

/// Ends of the buckets of histograms, as powers of two in nanoseconds: from half a microsecond to
/// 17 seconds.
const POWERS: std::ops::RangeInclusive<u32> = 9..=34;

/// What Prometheus may do with a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, until the server is started again.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations.
    Histogram,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The samples of one metric.
pub(crate) struct Samples<'t> {
    name: &'t str,
    text: &'t mut String,
}

/// Names and values.
pub(crate) type Labels<'l> = [(&'l str, &'l str)];

impl<'t> Samples<'t> {
    pub(crate) fn new(name: &'t str, text: &'t mut String) -> Self {
        Self { name, text }
    }

    pub(crate) fn one(&mut self, labels: &Labels<'_>, value: impl Into<Value>) {
        self.line("", labels, value.into());
    }

    pub(super) fn histogram(&mut self, labels: &Labels<'_>, times: &Percentiles) {
        let count = times.count();
        for power in POWERS {
            let end = format!("{}", (1u64 << power) as f64 / 1e9);
            let labels = [labels, &[("le", end.as_str())]].concat();
            self.line("_bucket", &labels, times.below_power(power).into());
        }
        self.line("_bucket", &[labels, &[("le", "+Inf")]].concat(), count.into());
        self.line("_sum", labels, times.seconds().into());
        self.line("_count", labels, count.into());
    }

    fn line(&mut self, suffix: &str, labels: &Labels<'_>, value: Value) {
        // Writing to a String can't fail.
        let _ = write!(self.text, "terrace_{}{suffix}", self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{}{name}=\"{value}\"", if at == 0 { '{' } else { ',' });
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = match value {
            Value::Whole(value) => writeln!(self.text, "{close} {value}"),
            Value::Float(value) => writeln!(self.text, "{close} {value}"),
        };
    }
}

/// A sample's value.
pub(crate) enum Value {
    Whole(u64),
    Float(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}
