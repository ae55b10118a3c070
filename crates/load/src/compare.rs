//! Two servers on the same cores, measured by turns in short rounds, so that what changes on the
//! machine meanwhile falls on both alike.

use crate::drives::Drives;
use crate::precondition::{filling, precondition};
use crate::process::{Process, Usage};
use crate::server::Server;
use crate::{LoadError, Plan, Report, Workload, run};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What two servers needed for the same load.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    /// How they were started: Terrace, the peer.
    pub(crate) commands: [String; 2],
    /// What was sent.
    pub(crate) load: String,
    /// Turns that each had.
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
    /// Wrong values of both, in all turns.
    pub(crate) wrong: [u64; 2],
    /// The first of them.
    pub(crate) examples: Vec<String>,
}

/// One quantity: medians over the rounds, and the rounds' ratios of Terrace to the peer.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) values: [Option<f64>; 2],
    pub(crate) ratio: Option<Spread>,
    /// Round by round, where each has a value.
    pub(crate) by_round: Option<[Vec<f64>; 2]>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Comparison {
    pub(crate) fn wrong(&self) -> u64 {
        self.wrong.iter().sum()
    }
}

/// One of the two.
struct Side<'s> {
    server: &'s Server,
    process: Option<Process>,
    plan: Plan,
    before: Totals,
    reports: Vec<Report>,
    /// Wrong values of all turns, also of those that are not counted.
    wrong: u64,
    /// The first of them.
    examples: Vec<String>,
}

/// What a server has used since its start.
#[derive(Clone, Copy, Default)]
struct Totals {
    usage: Usage,
    drives: Drives,
}

impl<'s> Side<'s> {
    fn new(server: &'s Server, plan: &Plan, conditioned: bool) -> Result<Self, LoadError> {
        let (warm_up, window) = (Duration::ZERO, None);
        let plan = Plan { address: server.address.clone(), warm_up, window, ..plan.clone() };
        let plan = plan.after_others();
        let process = server.process();
        if conditioned {
            precondition(&plan, process.as_ref())?;
        } else if !matches!(plan.workload, Workload::Fill | Workload::Replay(_)) {
            run(&filling(&plan), process.as_ref())?;
        }
        Ok(Self {
            server,
            process,
            plan,
            before: Totals::default(),
            reports: Vec::new(),
            wrong: 0,
            examples: Vec::new(),
        })
    }

    fn turn(&mut self, round: usize) -> Result<Report, LoadError> {
        let seed = self.plan.seed.wrapping_add(round as u64);
        let report = run(&Plan { seed, ..self.plan.clone() }, self.process.as_ref())?;
        self.wrong += report.wrong;
        if self.examples.is_empty() {
            self.examples.clone_from(&report.examples);
        }
        Ok(report)
    }

    fn totals(&self) -> Result<Totals, LoadError> {
        let usage = self.process.as_ref().map(Process::usage).unwrap_or_default();
        Ok(Totals { usage, drives: Drives::of(&self.plan)?.unwrap_or_default() })
    }

    /// What every report has; `None` where one lacks it.
    fn values(&self, of: fn(&Report) -> Option<f64>) -> Option<Vec<f64>> {
        self.reports.iter().map(of).collect()
    }
}

/// Measures both with `plan`, whose address is not looked at. The first turns are not counted.
pub(crate) fn compare(
    servers: &[Server; 2],
    plan: &Plan,
    conditioned: bool,
    rounds: usize,
) -> Result<Comparison, LoadError> {
    let [ours, theirs] = servers;
    let mut sides = [Side::new(ours, plan, conditioned)?, Side::new(theirs, plan, conditioned)?];
    for side in &mut sides {
        side.turn(0)?;
    }
    for side in &mut sides {
        side.before = side.totals()?;
    }
    for round in 1..=rounds {
        // Whoever comes second finds the machine as the first left it: they take turns in that, too.
        let order = if round % 2 == 0 { [1, 0] } else { [0, 1] };
        for at in order {
            let report = sides[at].turn(round)?;
            sides[at].reports.push(report);
        }
    }
    let after = [sides[0].totals()?, sides[1].totals()?];
    Ok(Comparison {
        commands: [sides[0].server.command.clone(), sides[1].server.command.clone()],
        load: crate::series::told(plan),
        rounds,
        rows: rows(&sides, after),
        wrong: [sides[0].wrong, sides[1].wrong],
        examples: sides.into_iter().flat_map(|side| side.examples).collect(),
    })
}

fn rows(sides: &[Side<'_>; 2], after: [Totals; 2]) -> Vec<Row> {
    let by_round = |what, of: fn(&Report) -> Option<f64>| {
        let all = sides.each_ref().map(|side| side.values(of));
        let median = |values: &Option<Vec<f64>>| Some(spread(values.clone()?)?.median);
        let values = all.each_ref().map(median);
        let [ours, theirs] = all;
        let by_round = ours.zip(theirs).map(|(ours, theirs)| [ours, theirs]);
        Row { what, values, ratio: by_round.as_ref().and_then(ratio), by_round }
    };
    let in_all = |what, of: fn(&Side<'_>, Totals) -> Option<f64>| Row {
        what,
        values: [0, 1].map(|at: usize| of(&sides[at], after[at])),
        ratio: None,
        by_round: None,
    };
    vec![
        by_round("requests/s", |report| Some(report.requests_per_second)),
        by_round("latency, mean, us", |report| Some(report.latency.mean_us)),
        by_round("latency, 50 %, us", |report| Some(report.latency.p50_us)),
        by_round("latency, 99 %, us", |report| Some(report.latency.p99_us)),
        by_round("server CPU per request, us", |report| report.server_cpu_us),
        by_round("hits, of all reads", |report| {
            let reads = report.hits + report.misses + report.wrong;
            (reads > 0).then(|| report.hits as f64 / reads as f64)
        }),
        in_all("resident memory, MiB", |_, after| {
            Some(after.usage.resident_bytes as f64 / f64::from(1 << 20))
        }),
        in_all("drive reads per request", |side, after| {
            let reads = after.drives.reads.saturating_sub(side.before.drives.reads);
            per_request(side, reads).filter(|_| after.drives.capacity > 0)
        }),
        in_all("drive bytes read per request", |side, after| {
            per_request(side, after.usage.since(&side.before.usage).drive_read_bytes)
        }),
        in_all("drive bytes written per request", |side, after| {
            per_request(side, after.usage.since(&side.before.usage).drive_write_bytes)
        }),
        in_all("drive bytes written per byte stored", |side, after| {
            let stored: u64 = side.reports.iter().map(|report| report.stored).sum();
            let bytes = stored as f64 * side.plan.sizes.mean();
            let written = after.usage.since(&side.before.usage).drive_write_bytes;
            (stored > 0).then(|| written as f64 / bytes)
        }),
    ]
}

fn per_request(side: &Side<'_>, count: u64) -> Option<f64> {
    let requests: u64 = side.reports.iter().map(|report| report.requests).sum();
    (requests > 0).then(|| count as f64 / requests as f64)
}

fn ratio([ours, theirs]: &[Vec<f64>; 2]) -> Option<Spread> {
    spread(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
}

/// `None` of nothing, and of what is no number.
fn spread(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = match values.len() % 2 {
        1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    };
    (least.is_finite() && most.is_finite()).then_some(Spread { median, least, most })
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Terrace  {}\npeer     {}", self.commands[0], self.commands[1])?;
        writeln!(f, "{}; {} rounds each, by turns", self.load, self.rounds)?;
        writeln!(f, "{:<36} {:>12} {:>12}  ratio (least to most)", "", "Terrace", "peer")?;
        for Row { what, values, ratio, .. } in &self.rows {
            let shown = |value: Option<f64>| value.map_or("-".into(), number);
            write!(f, "{what:<36} {:>12} {:>12}", shown(values[0]), shown(values[1]))?;
            match ratio {
                Some(Spread { median, least, most }) => {
                    writeln!(f, "  {median:.2} ({least:.2} to {most:.2})")?;
                }
                None => writeln!(f)?,
            }
        }
        writeln!(f, "{:<36} {:>12} {:>12}", "wrong values", self.wrong[0], self.wrong[1])?;
        self.examples.iter().try_for_each(|example| writeln!(f, "e.g. {example}"))
    }
}

pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        small if small < 10.0 => format!("{value:.3}"),
        _ => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn medians_and_their_spread() {
        let of = |values: &[f64]| spread(values.to_vec()).map(|s| (s.least, s.median, s.most));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn no_wrong_value_of_a_turn_that_is_not_counted_goes_untold() {
        let test = "no_wrong_value_of_a_turn_that_is_not_counted_goes_untold";
        if Command::new("memcached").arg("-V").output().is_err() {
            return terrace_e2e::skip(test, "memcached is not installed; make tools");
        }
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start("memcached -s {socket}", dir.path(), test, &[]).unwrap();
        let plan = Plan::new(server.address.clone(), Workload::Verify, 1000);
        let mut side = Side::new(&server, &plan, false).unwrap();
        run(&Plan { version: 1, ..filling(&side.plan) }, None).unwrap();
        side.turn(0).unwrap();
        run(&filling(&side.plan), None).unwrap();
        assert_eq!(side.turn(1).unwrap().wrong, 0);
        assert_eq!(side.wrong, 1000);
        assert!(!side.examples.is_empty());
    }
}
