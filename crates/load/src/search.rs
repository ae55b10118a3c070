//! The highest rate at which a server still keeps a latency.

use crate::{LoadError, Plan, Process, Report, Series, run};

/// Where the search ends: the bounds lie so near each other, as a share of the upper one.
const NEAR: f64 = 0.03;
const STEPS_MAX: usize = 12;

/// A latency to be kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Goal {
    which: Which,
    most_us: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Mean,
    P50,
    P99,
    P999,
}

impl Goal {
    /// From such as `mean=1ms` or `p99=500us`.
    pub(crate) fn parse(text: &str) -> Result<Self, LoadError> {
        let wrong = || LoadError::Plan(format!("{text} is not like mean=1ms or p99=500us"));
        let (which, time) = text.split_once('=').ok_or_else(wrong)?;
        let which = match which {
            "mean" => Which::Mean,
            "p50" => Which::P50,
            "p99" => Which::P99,
            "p99.9" => Which::P999,
            _ => return Err(wrong()),
        };
        let number = time.trim_end_matches(char::is_alphabetic);
        let us = match &time[number.len()..] {
            "us" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        if !(number.is_finite() && number > 0.0) {
            return Err(wrong());
        }
        Ok(Self { which, most_us: number * us })
    }

    fn is_kept(self, report: &Report) -> bool {
        let latency = &report.latency;
        let us = match self.which {
            Which::Mean => latency.mean_us,
            Which::P50 => latency.p50_us,
            Which::P99 => latency.p99_us,
            Which::P999 => latency.p999_us,
        };
        us <= self.most_us && report.keeps_up()
    }
}

/// Runs with rate after rate; gives back all runs in the order of their rates, and which of them was
/// the fastest that kept the goal.
///
/// # Errors
/// Not even the closed loop that it begins with came to its end.
pub(crate) fn search(
    plan: &Plan,
    goal: Goal,
    server: Option<&Process>,
) -> Result<Series, LoadError> {
    // What a closed loop reaches is above what an open one can.
    let most = run(plan, server)?.requests_per_second;
    let mut points: Vec<(Report, bool)> = Vec::new();
    let (mut kept, mut missed) = (0.0, most * 1.1);
    let mut failure = None;
    for step in 0..STEPS_MAX {
        if missed - kept < NEAR * missed {
            break;
        }
        // The rates in question are rather high ones.
        let rate = if step == 0 { most * 0.7 } else { f64::midpoint(kept, missed) };
        let open = Plan { rate: Some(rate), ..plan.clone() }.after_others();
        let report = match run(&open, server) {
            Ok(report) => report,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        let keeps = goal.is_kept(&report);
        if keeps {
            kept = rate;
        } else {
            missed = rate;
        }
        points.push((report, keeps));
    }
    let rate = |report: &Report| report.rate_asked.unwrap_or_default();
    points.sort_by(|(one, _), (other, _)| rate(one).total_cmp(&rate(other)));
    let best = points.iter().rposition(|(_, keeps)| *keeps);
    let points = points.into_iter().map(|(report, _)| report).collect();
    Ok(Series { points, best, goal: None, failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read() {
        let goal = |text| Goal::parse(text).ok();
        assert_eq!(goal("mean=1ms"), Some(Goal { which: Which::Mean, most_us: 1000.0 }));
        assert_eq!(goal("p99=250us"), Some(Goal { which: Which::P99, most_us: 250.0 }));
        assert_eq!(goal("p99.9=0.5s"), Some(Goal { which: Which::P999, most_us: 500_000.0 }));
        for wrong in ["p98=1ms", "mean=1", "mean", "mean=ms", "p99=1h", "p99=-1ms", "p99=0us"] {
            assert_eq!(goal(wrong), None, "{wrong}");
        }
    }
}
