//! What a run sends.

use crate::{Address, LoadError, Replay, Sizes, Tls};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which requests are sent, for which records.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Stores each record once, in the order of their numbers.
    Fill,
    /// Reads each record once, in the order of their numbers.
    Verify,
    /// Reads records as popular as [`Popularity`] says.
    Get(Popularity),
    /// Stores records whether they are there or not.
    Overwrite(Popularity),
    /// Reads, deletes, and overwrites the rest.
    Mixed {
        /// How popular records are.
        popularity: Popularity,
        /// Reads per hundred requests.
        get_percent: u32,
        /// Deletes per hundred requests.
        delete_percent: u32,
    },
    /// Reads what a trace reads, in its order by object.
    Replay(Arc<Replay>),
}

/// How requests spread over records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Every record alike.
    Uniform,
    /// 80 % of requests ask for 20 % of the records.
    Hot,
    /// The record of rank `r` is asked for in proportion to `r` to the power of minus this.
    Zipf(f64),
    /// Density in proportion to 1 / (x + beta)^s over the key range, x from 0 to 1.
    ZipfMandelbrot {
        /// The exponent, above 1.
        s: f64,
        /// The offset, as a share of the key range, above 0.
        beta: f64,
    },
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fill => write!(f, "fill"),
            Self::Verify => write!(f, "verify"),
            Self::Get(popularity) => write!(f, "get, {popularity}"),
            Self::Overwrite(popularity) => write!(f, "overwrite, {popularity}"),
            Self::Mixed { popularity, get_percent, delete_percent } => {
                write!(f, "mixed, {get_percent} % get, {delete_percent} % delete, {popularity}")
            }
            Self::Replay(trace) => write!(f, "replay of {trace:?}"),
        }
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Hot => write!(f, "80 % of requests for 20 % of records"),
            Self::Zipf(s) => write!(f, "Zipf s = {s}"),
            Self::ZipfMandelbrot { s, beta } => {
                write!(f, "Zipf-Mandelbrot s = {s}, beta = {beta}")
            }
        }
    }
}

/// The protocol that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `get`, `set` and `delete`.
    Ascii,
    /// `mg`, `ms` and `md`.
    Meta,
    /// GET, SET and DELETE; several keys at once as GETQs and a NOOP.
    Binary,
}

/// When a run ends. [`Workload::Fill`], [`Workload::Verify`] and [`Workload::Replay`] end after the
/// last record at latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After so many requests, over all connections.
    Requests(u64),
    /// After so much time.
    Time(Duration),
}

/// The times between requests of an open loop, by connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// All alike.
    Even,
    /// As in Facebook's ETC pool: generalised Pareto.
    Etc,
}

/// Every connection has at most `depth` requests in flight: as many as it may (closed loop), or those
/// that are due (open loop, with a `rate`).
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub address: Address,
    /// How connections are encrypted, if they are.
    pub tls: Option<Tls>,
    /// What to send.
    pub workload: Workload,
    /// Number of the first record.
    pub first: u64,
    /// How many records there are.
    pub records: u64,
    /// The numbers of the records, if they are not in a row: then `records` of them, and `first` is 0.
    pub among: Option<Arc<[u64]>>,
    /// Lengths of keys and values.
    pub sizes: Sizes,
    /// Connections, all threads together.
    pub connections: usize,
    /// Threads that share the connections.
    pub threads: usize,
    /// Requests in flight per connection.
    pub depth: usize,
    /// Requests per second over all connections. Latencies count from when a request was due, also
    /// where the server was too slow for it to be sent then.
    pub rate: Option<f64>,
    /// How requests of an open loop follow each other.
    pub gaps: Gaps,
    /// Sends `depth` requests at once and then waits for all their replies, instead of sending the
    /// next request for each reply. With a `rate` so many are due at once.
    pub batch: bool,
    /// What is spoken.
    pub protocol: Protocol,
    /// Keys per read; more than one not with [`Protocol::Meta`].
    pub keys_per_get: usize,
    /// Stores records that were missed, so long after: the latency of a back end. Meanwhile they
    /// count among the requests in flight.
    pub back_end: Option<Duration>,
    /// Time to live of what is stored, in seconds; 0 for ever.
    pub ttl: u32,
    /// Client flags of what is stored.
    pub flags: u32,
    /// Version that stored values carry, and that read ones must have.
    pub version: u32,
    /// Accepts every version of a value, where this run has not stored one itself.
    pub any_version: bool,
    /// Compares every value that is read.
    pub check: bool,
    /// Start of all random choices.
    pub seed: u64,
    /// When it ends, the warm-up included.
    pub end: End,
    /// Time at the start that is not reported.
    pub warm_up: Duration,
    /// Divides the time after the warm-up into windows so long, of which only the longest steady
    /// stretch is reported, with a `rate` all whole ones; needs [`End::Time`].
    pub window: Option<Duration>,
    /// Tells on standard error how far it is.
    pub progress: bool,
}

impl Plan {
    /// Records of 20 + 80 bytes, 8 connections with 32 requests in flight each, one request per
    /// record, every value checked.
    pub fn new(address: impl Into<Address>, workload: Workload, records: u64) -> Self {
        Self {
            address: address.into(),
            tls: None,
            workload,
            first: 0,
            records,
            among: None,
            sizes: Sizes::Fixed { key: 20, value: 80 },
            connections: 8,
            threads: 1,
            depth: 32,
            rate: None,
            gaps: Gaps::Even,
            batch: false,
            protocol: Protocol::Ascii,
            keys_per_get: 1,
            back_end: None,
            ttl: 0,
            flags: 0,
            version: 0,
            any_version: false,
            check: true,
            seed: 1,
            end: End::Requests(records),
            warm_up: Duration::ZERO,
            window: None,
            progress: false,
        }
    }

    /// What it is among the points of a series.
    pub(crate) fn point(&self) -> String {
        let Self { workload, connections, depth, .. } = self;
        let rate = self.rate.map_or(String::new(), |rate| format!(", {rate:.0}/s"));
        format!("{workload}; {connections} connections, depth {depth}{rate}")
    }

    /// The same for a run after others: what those have overwritten has versions that it can't know.
    pub(crate) fn after_others(mut self) -> Self {
        self.any_version |= matches!(self.workload, Workload::Mixed { .. });
        self
    }

    /// Looks for contradictions.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let wrong = |text: &str| Err(LoadError::Plan(text.to_string()));
        if self.connections == 0 || self.threads == 0 || self.depth == 0 || self.keys_per_get == 0 {
            return wrong("connections, threads, depth and keys per get must be 1 or more");
        }
        if self.keys_per_get > 1 && self.protocol == Protocol::Meta {
            return wrong("the meta protocol has one key per request");
        }
        if self.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return wrong("a rate is above 0");
        }
        if self.batch && self.back_end.is_some() {
            return wrong("batches have no back end");
        }
        if self.back_end.is_some() && self.among.is_some() {
            return wrong("a back end has records in a row");
        }
        if self
            .among
            .as_ref()
            .is_some_and(|among| (0, among.len() as u64) != (self.first, self.records))
        {
            return wrong("listed records are counted from 0 on, and are as many as are listed");
        }
        if self.records < self.connections as u64 {
            return wrong("there must be at least one record per connection");
        }
        if self.first.checked_add(self.records).is_none() {
            return wrong("the number of the last record is too large");
        }
        if matches!(self.workload, Workload::Mixed { get_percent, delete_percent, .. }
            if get_percent.saturating_add(delete_percent) > 100)
        {
            return wrong("reads and deletes are more than 100 %");
        }
        if self.window.is_some_and(|window| window.is_zero()) {
            return wrong("a window takes some time");
        }
        let timed = matches!(self.end, End::Time(time) if time > self.warm_up);
        if !timed && (self.window.is_some() || !self.warm_up.is_zero()) {
            return wrong("warm-up and windows need a run that ends after a longer time");
        }
        if let (End::Time(time), Some(window)) = (self.end, self.window)
            && window > time.saturating_sub(self.warm_up)
        {
            return wrong("a window is no longer than the run behind its warm-up");
        }
        if !self.sizes.are_valid() {
            return wrong("keys are 16 to 250 bytes long");
        }
        Ok(())
    }

    /// Whether connections must keep to records of their own, so that the order of a record's
    /// requests is the order on its connection, and its newest value is known.
    pub(crate) fn has_shares(&self) -> bool {
        !matches!(self.workload, Workload::Get(_))
    }
}
