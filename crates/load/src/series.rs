//! Run after run, and what they show together.

use crate::report::of_another_version;
use crate::{LoadError, Plan, Report};
use serde::{Serialize, Serializer};
use std::fmt;

/// Several runs that differ in one or two settings.
#[derive(Debug, Default, Serialize)]
pub struct Series {
    /// The runs, in order.
    pub points: Vec<Report>,
    /// Which of them was the fastest that kept the latency searched for.
    pub best: Option<usize>,
    /// What was searched for.
    pub goal: Option<String>,
    /// What ended it early; its text in JSON.
    #[serde(rename = "failed", serialize_with = "text")]
    pub failure: Option<LoadError>,
}

impl Series {
    /// Whether all runs were as they should be.
    pub fn is_good(&self) -> bool {
        self.points.iter().all(Report::is_good)
    }

    /// Keeps what a run measured before it failed, and why.
    pub(crate) fn end_early(&mut self, failure: LoadError) {
        self.failure = Some(match failure {
            LoadError::Early { why, until } => {
                self.points.push(*until);
                *why
            }
            other => other,
        });
    }
}

fn text<S: Serializer>(failure: &Option<LoadError>, serializer: S) -> Result<S::Ok, S::Error> {
    failure.as_ref().map(LoadError::to_string).serialize(serializer)
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.points[..], &self.failure) {
            ([only], None) => return only.fmt(f),
            (_, Some(failed)) => writeln!(f, "ENDED EARLY: {failed}")?,
            _ => {}
        }
        if let Some(first) = self.points.first() {
            writeln!(f, "{}", first.workload)?;
        }
        writeln!(
            f,
            "{:>6} {:>6} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>6}",
            "conns",
            "depth",
            "asked/s",
            "answered/s",
            "mean us",
            "50 % us",
            "99 % us",
            "99.9 %",
            "srv CPU",
            "hits",
            "wrong"
        )?;
        for (at, point) in self.points.iter().enumerate() {
            let reads = point.hits + point.misses + point.wrong;
            let share = |hits: u64| match reads {
                0 => "-".to_string(),
                _ => format!("{:.1} %", hits as f64 * 100.0 / reads as f64),
            };
            let latency = &point.latency;
            writeln!(
                f,
                "{:>6} {:>6} {:>10} {:>10.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>8} {:>8} {:>6}{}",
                point.connections,
                point.depth,
                point.rate_asked.map_or("-".into(), |rate| format!("{rate:.0}")),
                point.answered_per_second(),
                latency.mean_us,
                latency.p50_us,
                latency.p99_us,
                latency.p999_us,
                point.server_cpu_us.map_or("-".into(), |us| format!("{us:.2}")),
                share(point.hits),
                point.wrong,
                match point.windows {
                    _ if !point.keeps_up() => "  behind",
                    Some(windows) if !windows.is_steady => "  not steady",
                    _ if self.best == Some(at) => "  <- best",
                    _ => "",
                }
            )?;
        }
        let others = self.points.iter().map(|point| point.other_versions).sum();
        if others > 0 {
            writeln!(f, "of the wrong: {}", of_another_version(others))?;
        }
        match (&self.goal, self.best) {
            (Some(goal), Some(best)) => {
                let rate = self.points[best].answered_per_second();
                writeln!(f, "highest rate with {goal}: {rate:.0}/s")
            }
            (Some(goal), None) => writeln!(f, "no rate with {goal} was found"),
            _ => Ok(()),
        }
    }
}

/// A line that says what was sent.
pub(crate) fn told(plan: &Plan) -> String {
    format!("{}, {} records, {:?}", plan.workload, plan.records, plan.protocol)
}
