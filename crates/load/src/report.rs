//! What a run found, for people and for programs.

use crate::monitor::Sample;
use crate::plan::{End, Plan, Workload};
use crate::process::Usage;
use crate::slots::{Slots, Tallies, steady};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// An open loop that answers less of what was due has too high a rate, whatever its latencies.
const ANSWERED: f64 = 0.97;

/// The outcome of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The workload's name and parameters.
    pub workload: String,
    /// Connections.
    pub connections: usize,
    /// Requests in flight per connection.
    pub depth: usize,
    /// Requests per second that an open loop was to send.
    pub rate_asked: Option<f64>,
    /// Requests answered.
    pub requests: u64,
    /// Of them, stores of records that were missed.
    pub missed_stores: u64,
    /// Keys whose value came back right.
    pub hits: u64,
    /// Keys that were not there.
    pub misses: u64,
    /// Keys whose value came back wrong.
    pub wrong: u64,
    /// Of them, whole values of the record, but of another version, where this run has stored none:
    /// of an earlier run, or stale.
    pub other_versions: u64,
    /// Records stored.
    pub stored: u64,
    /// Records that were there and were deleted.
    pub deleted: u64,
    /// Errors that the server told.
    pub errors: u64,
    /// From the first request to the last reply, or of the windows reported, in seconds.
    pub seconds: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// The windows, if the run had any.
    pub windows: Option<Windows>,
    /// From sending a request to having its whole reply.
    pub latency: Latency,
    /// What the server's process used meanwhile.
    pub server: Option<Usage>,
    /// Processor time of the server per request, in microseconds.
    pub server_cpu_us: Option<f64>,
    /// Processor time of the generator per request, in microseconds.
    pub own_cpu_us: f64,
    /// The same without what it spent in the kernel.
    pub own_user_us: f64,
    /// The first wrong values and errors.
    pub examples: Vec<String>,
}

/// The windows that a run was divided into; the figures are those of the steady ones, of an open loop
/// those of all.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Windows {
    /// How many there were.
    pub all: usize,
    /// How many in a row had about the same rate.
    pub steady: usize,
    /// Whether those are more than half.
    pub is_steady: bool,
    /// Length of each.
    pub seconds: f64,
}

/// In microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Latency {
    fn of(nanos: &Histogram<u64>) -> Self {
        let at = |share| nanos.value_at_quantile(share) as f64 / 1000.0;
        Self {
            mean_us: nanos.mean() / 1000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: nanos.max() as f64 / 1000.0,
        }
    }
}

impl Report {
    /// Whether about as much was answered as was asked for; in a closed loop always.
    pub fn keeps_up(&self) -> bool {
        self.rate_asked.is_none_or(|asked| self.answered_per_second() >= asked * ANSWERED)
    }

    /// Whether every value was right and no request refused; where records were looked for that are all to be there,
    /// none was missed.
    pub fn is_good(&self) -> bool {
        let is_whole = self.misses == 0 || self.workload != Workload::Verify.to_string();
        self.wrong == 0 && self.errors == 0 && is_whole
    }

    /// Requests per second; of an open loop those that were due, not the stores that misses add to them.
    pub(crate) fn answered_per_second(&self) -> f64 {
        let besides = if self.rate_asked.is_some() { self.missed_stores } else { 0 };
        per_second(self.requests - besides, self.seconds)
    }

    /// Of what came back; the samples are those at the starts of the windows and at the end.
    pub(crate) fn new(plan: &Plan, tallies: Tallies, samples: &[Sample]) -> Self {
        let stretch = Stretch::find(plan, &tallies, samples);
        let tally = tallies.sum(stretch.windows.clone());
        let (from, to) = (stretch.from, stretch.to);
        let server = to.server.zip(from.server).map(|(to, from)| to.since(&from));
        let own = to.own.since(from.own);
        let seconds = stretch.seconds;
        let per_request = |ns: u64| ns as f64 / 1000.0 / tally.requests.max(1) as f64;
        Self {
            workload: plan.workload.to_string(),
            connections: plan.connections,
            depth: plan.depth,
            rate_asked: plan.rate,
            requests: tally.requests,
            missed_stores: tally.missed_stores,
            hits: tally.hits,
            misses: tally.misses,
            wrong: tally.wrong,
            other_versions: tally.other_versions,
            stored: tally.stored,
            deleted: tally.deleted,
            errors: tally.errors,
            seconds,
            requests_per_second: per_second(tally.requests, seconds),
            windows: stretch.told,
            latency: Latency::of(&tally.latency),
            server,
            server_cpu_us: server.map(|used| per_request(used.cpu_ns)),
            own_cpu_us: per_request(own.all_ns),
            own_user_us: per_request(own.user_ns),
            examples: tally.examples,
        }
    }
}

/// What may be behind values that are wrong by their version alone.
pub(crate) fn of_another_version(count: u64) -> String {
    format!(
        "{count} whole, of another version: an earlier run's (--any-version takes them), or stale"
    )
}

fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(1e-9)
}

/// What part of a run is reported.
struct Stretch {
    windows: Range<usize>,
    from: Sample,
    to: Sample,
    seconds: f64,
    told: Option<Windows>,
}

impl Stretch {
    fn find(plan: &Plan, tallies: &Tallies, samples: &[Sample]) -> Self {
        let first = samples.first().copied().unwrap_or_default();
        let last = samples.last().copied().unwrap_or_default();
        // Work that ends before its time has no windows after that, and none at all before the first ends.
        let whole = match plan.end {
            End::Time(end) => Slots::of(plan).whole(end.min(last.at)).filter(|&whole| whole > 0),
            End::Requests(_) => None,
        };
        let Some(whole) = whole else {
            let seconds = (last.at - first.at).as_secs_f64();
            return Self { windows: 0..usize::MAX, from: first, to: last, seconds, told: None };
        };
        let steady = steady(&tallies.requests(whole));
        // Of an open loop all count: what a stall puts off is what its latencies are to show.
        let windows = if plan.rate.is_some() { 0..whole } else { steady.clone() };
        let at = |window: usize| samples.get(window).copied().unwrap_or(last);
        let each = plan.window.unwrap_or_default().as_secs_f64();
        Self {
            from: at(windows.start),
            to: at(windows.end),
            seconds: each * windows.len() as f64,
            told: Some(Windows {
                all: whole,
                steady: steady.len(),
                is_steady: 2 * steady.len() > whole,
                seconds: each,
            }),
            windows,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.workload)?;
        let rate = self.answered_per_second();
        let asked =
            self.rate_asked.map_or(String::new(), |asked| format!(" of {asked:.0}/s asked for"));
        writeln!(
            f,
            "  requests     {} in {:.2} s, {rate:.0}/s{asked}",
            self.requests, self.seconds
        )?;
        if self.missed_stores > 0 {
            writeln!(f, "  of them      {} stored what was missed", self.missed_stores)?;
        }
        if !self.keeps_up() {
            writeln!(f, "  BEHIND       what was due waits, the longer the run, the longer")?;
        }
        if self.hits + self.misses + self.wrong > 0 {
            let Self { hits, misses, wrong, .. } = self;
            writeln!(f, "  read         {hits} right, {misses} missed, {wrong} wrong")?;
        }
        if self.other_versions > 0 {
            writeln!(f, "  of the wrong {}", of_another_version(self.other_versions))?;
        }
        if self.stored > 0 {
            writeln!(f, "  stored       {}", self.stored)?;
        }
        if self.deleted > 0 {
            writeln!(f, "  deleted      {}", self.deleted)?;
        }
        if let Some(Windows { all, steady, is_steady, seconds }) = self.windows {
            let but = if is_steady { "" } else { ": NOT STEADY" };
            writeln!(f, "  windows      {steady} of {all} of {seconds:.1} s{but}")?;
        }
        if self.errors > 0 {
            writeln!(f, "  errors       {}", self.errors)?;
        }
        let Latency { mean_us, p50_us, p90_us, p99_us, p999_us, max_us } = self.latency;
        writeln!(
            f,
            "  latency us   mean {mean_us:.0}, 50 % {p50_us:.0}, 90 % {p90_us:.0}, 99 % {p99_us:.0}, \
             99.9 % {p999_us:.0}, most {max_us:.0}"
        )?;
        if let (Some(server), Some(cpu)) = (self.server, self.server_cpu_us) {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            writeln!(f, "  server CPU   {cpu:.2} us per request")?;
            writeln!(
                f,
                "  server RAM   {:.1} MiB resident, {:.1} MiB at most",
                mib(server.resident_bytes),
                mib(server.resident_bytes_max)
            )?;
            writeln!(
                f,
                "  drive        {:.1} MiB read, {:.1} MiB written",
                mib(server.drive_read_bytes),
                mib(server.drive_write_bytes)
            )?;
        }
        let (all, user) = (self.own_cpu_us, self.own_user_us);
        writeln!(f, "  own CPU      {all:.2} us per request, {user:.2} us outside the kernel")?;
        for example in &self.examples {
            writeln!(f, "  e.g.         {example}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Workload};
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    /// Of a run that was to take ten seconds, in windows of one.
    fn plan() -> Plan {
        let address = Address::Unix("none".into());
        Plan {
            end: End::Time(Duration::from_secs(10)),
            window: Some(Duration::from_secs(1)),
            ..Plan::new(address, Workload::Fill, 1000)
        }
    }

    fn samples(at_ms: &[u64]) -> Vec<Sample> {
        let sample = |&ms| Sample { at: Duration::from_millis(ms), ..Sample::default() };
        at_ms.iter().map(sample).collect()
    }

    /// So many requests in each window, answered within a microsecond.
    fn tallies(plan: &Plan, requests: &[u64]) -> Tallies {
        let mut tallies = Tallies::new(Slots::of(plan));
        for (second, &requests) in (0..).zip(requests) {
            (0..requests).for_each(|_| tallies.at(second * SECOND).answered(1000));
        }
        tallies
    }

    #[test]
    fn work_that_ends_before_its_time_is_reported() {
        let plan = plan();
        let report = Report::new(&plan, tallies(&plan, &[900]), &samples(&[0, 500]));
        assert_eq!((report.requests, report.seconds), (900, 0.5));
        assert!(report.windows.is_none());
        let ended = samples(&[0, 1000, 2000, 2500]);
        let report = Report::new(&plan, tallies(&plan, &[400, 400, 100]), &ended);
        assert_eq!((report.requests, report.seconds), (800, 2.0));
        assert!(report.windows.is_some_and(|windows| windows.all == 2 && windows.is_steady));
    }

    #[test]
    fn an_open_loop_tells_its_stalls() {
        let plan = Plan { rate: Some(100.0), ..plan() };
        let seconds: Vec<u64> = (0..=10).map(|second| 1000 * second).collect();
        let mut tallies = tallies(&plan, &[100, 100, 100, 100, 100, 100, 100, 50]);
        // What was due in a stall of half a second comes late, in the next window.
        (0..50).for_each(|_| tallies.at(8 * SECOND).answered(SECOND / 2));
        (0..200).for_each(|at| tallies.at((8 + at / 100) * SECOND).answered(1000));
        let report = Report::new(&plan, tallies, &samples(&seconds));
        assert_eq!((report.requests, report.seconds), (1000, 10.0));
        assert!(report.latency.p99_us > 400_000.0, "{report}");
        assert!(report.windows.is_some_and(|windows| windows.all == 10 && windows.steady == 7));
        // A rate that is kept in seven windows of ten only is not kept.
        let tallies = self::tallies(&plan, &[100, 100, 100, 100, 100, 100, 100, 20, 20, 20]);
        assert!(!Report::new(&plan, tallies, &samples(&seconds)).keeps_up());
    }

    #[test]
    fn stores_of_what_was_missed_are_none_of_the_requests_asked_for() {
        let plan = Plan { rate: Some(100.0), ..plan() };
        let seconds: Vec<u64> = (0..=10).map(|second| 1000 * second).collect();
        let report = |requests| {
            let mut tallies = Tallies::new(Slots::of(&plan));
            for second in 0..10 {
                let tally = tallies.at(second * SECOND);
                (0..requests).for_each(|_| tally.answered(1000));
                tally.missed_stores = requests / 2;
            }
            Report::new(&plan, tallies, &samples(&seconds))
        };
        let (half, all) = (report(100), report(200));
        assert!(!half.keeps_up() && all.keeps_up());
        assert!(half.to_string().contains(" 50/s of 100/s asked for"), "{half}");
        assert_eq!((all.requests, all.missed_stores), (2000, 1000));
    }
}
