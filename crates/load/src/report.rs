//! What a run found, for people and for programs.

use crate::plan::Plan;
use crate::process::Usage;
use crate::tally::Tally;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The outcome of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The workload's name and parameters.
    pub workload: String,
    /// Requests answered.
    pub requests: u64,
    /// Keys whose value came back right.
    pub hits: u64,
    /// Keys that were not there.
    pub misses: u64,
    /// Keys whose value came back wrong.
    pub wrong: u64,
    /// Records stored.
    pub stored: u64,
    /// Errors that the server told.
    pub errors: u64,
    /// From the first request to the last reply, in seconds.
    pub seconds: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// From sending a request to having its whole reply.
    pub latency: Latency,
    /// What the server's process used meanwhile.
    pub server: Option<Usage>,
    /// Processor time of the server per request, in microseconds.
    pub server_cpu_us: Option<f64>,
    /// Processor time of the generator per request, in microseconds.
    pub own_cpu_us: f64,
    /// The first wrong values and errors.
    pub examples: Vec<String>,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
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

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        tally: &Tally,
        time: Duration,
        server: Option<Usage>,
        own_cpu_ns: u64,
    ) -> Self {
        let seconds = time.as_secs_f64();
        let per_request = |ns: u64| ns as f64 / 1000.0 / tally.requests.max(1) as f64;
        let at = |share| tally.latency.value_at_quantile(share) as f64 / 1000.0;
        Self {
            workload: format!("{:?}", plan.workload),
            requests: tally.requests,
            hits: tally.hits,
            misses: tally.misses,
            wrong: tally.wrong,
            stored: tally.stored,
            errors: tally.errors,
            seconds,
            requests_per_second: tally.requests as f64 / seconds,
            latency: Latency {
                p50_us: at(0.5),
                p90_us: at(0.9),
                p99_us: at(0.99),
                p999_us: at(0.999),
                max_us: tally.latency.max() as f64 / 1000.0,
            },
            server,
            server_cpu_us: server.map(|used| per_request(used.cpu_ns)),
            own_cpu_us: per_request(own_cpu_ns),
            examples: tally.examples.clone(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.workload)?;
        let rate = self.requests_per_second;
        writeln!(f, "  requests     {} in {:.2} s, {rate:.0}/s", self.requests, self.seconds)?;
        if self.hits + self.misses + self.wrong > 0 {
            let Self { hits, misses, wrong, .. } = self;
            writeln!(f, "  read         {hits} right, {misses} missed, {wrong} wrong")?;
        }
        if self.stored > 0 {
            writeln!(f, "  stored       {}", self.stored)?;
        }
        if self.errors > 0 {
            writeln!(f, "  errors       {}", self.errors)?;
        }
        let Latency { p50_us, p90_us, p99_us, p999_us, max_us } = self.latency;
        writeln!(
            f,
            "  latency us   50 % {p50_us:.0}, 90 % {p90_us:.0}, 99 % {p99_us:.0}, \
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
        writeln!(f, "  own CPU      {:.2} us per request", self.own_cpu_us)?;
        for example in &self.examples {
            writeln!(f, "  e.g.         {example}")?;
        }
        Ok(())
    }
}
