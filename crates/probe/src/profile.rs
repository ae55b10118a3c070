//! What is kept of a measured drive.

use serde::{Deserialize, Serialize};

/// A device profile; its file is TOML. `terrace plan --drive FILE.toml` reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The drive's path.
    pub name: String,
    /// Usable bytes.
    pub capacity_bytes: f64,
    /// Random reads of 4 KiB per second, at `queue_depth`.
    pub read_iops: f64,
    /// Reads in flight beyond which more only queue.
    pub queue_depth: u32,
    /// Median time of a read at that depth, in microseconds.
    pub read_us_p50: f64,
    /// Its 99th percentile.
    pub read_us_p99: f64,
    /// Sequential writes in bytes per second; missing if the drive was not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes_per_second: Option<f64>,
}
