//! What a run sends.

use crate::{Keys, LoadError};
use std::net::SocketAddr;
use std::time::Duration;

/// Which requests are sent, for which records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Stores each record once, in the order of their numbers.
    Fill,
    /// Reads each record once, in the order of their numbers.
    Verify,
    /// Reads records as popular as [`Popularity`] says.
    Get(Popularity),
    /// Stores records that are there already.
    Overwrite(Popularity),
    /// Reads, and overwrites the rest.
    Mixed {
        /// How popular records are.
        popularity: Popularity,
        /// Reads per hundred requests.
        get_percent: u32,
    },
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

/// The protocol that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `get` and `set`.
    Ascii,
    /// `mg` and `ms`.
    Meta,
}

/// When a run ends. [`Workload::Fill`] and [`Workload::Verify`] end after the last record at latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After so many requests, over all connections.
    Requests(u64),
    /// After so much time.
    Time(Duration),
}

/// Every connection has at most `depth` requests in flight: as many as it may (closed loop), or those
/// that are due (open loop, with a `rate`).
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// What to send.
    pub workload: Workload,
    /// Number of the first record.
    pub first: u64,
    /// How many records there are.
    pub records: u64,
    /// Length of every key, in bytes.
    pub key_bytes: usize,
    /// Length of every value, in bytes.
    pub value_bytes: usize,
    /// Connections, all threads together.
    pub connections: usize,
    /// Threads that share the connections.
    pub threads: usize,
    /// Requests in flight per connection.
    pub depth: usize,
    /// Requests per second over all connections, each due at an even distance from the last.
    /// Latencies count from then, also where the server was too slow for it to be sent at once.
    pub rate: Option<f64>,
    /// Sends `depth` requests at once and then waits for all their replies, instead of sending the
    /// next request for each reply.
    pub batch: bool,
    /// What is spoken.
    pub protocol: Protocol,
    /// Keys per `get`; more than one with [`Protocol::Ascii`] only.
    pub keys_per_get: usize,
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
    /// When it ends.
    pub end: End,
    /// Tells on standard error how far it is.
    pub progress: bool,
}

impl Plan {
    /// Looks for contradictions.
    pub(crate) fn keys(&self) -> Result<Keys, LoadError> {
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
        if self.batch && self.rate.is_some() {
            return wrong("batches have no rate");
        }
        if self.records < self.connections as u64 {
            return wrong("there must be at least one record per connection");
        }
        match Keys::new(self.key_bytes) {
            Some(keys) => Ok(keys),
            None => wrong("keys are 16 to 250 bytes long"),
        }
    }

    /// Whether connections must keep to records of their own, so that the order of a record's
    /// requests is the order on its connection, and its newest value is known.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.workload, Workload::Get(_))
    }
}
