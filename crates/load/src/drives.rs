//! What a server says of its drives, whatever server it is.

use crate::{Client, LoadError, Plan};
use std::collections::BTreeMap;

/// Counters until now; 0 for what the server does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drives {
    /// Reads of drives for requests.
    pub(crate) reads: u64,
    /// Bytes written.
    pub(crate) written: u64,
    /// Bytes that the drives hold.
    pub(crate) capacity: u64,
}

impl Drives {
    /// Of `stats tiers`, or of memcached's extstore; `None` for a server without drives.
    pub(crate) fn of(plan: &Plan) -> Result<Option<Self>, LoadError> {
        // A server that has no such statistics says so with an error, and may close.
        let tiers = Client::open(&plan.address, plan.tls.as_ref())?.stats("tiers");
        if let Some(drives) = tiers.ok().and_then(|stats| of_terrace(&stats)) {
            return Ok(Some(drives));
        }
        Ok(of_extstore(&Client::open(&plan.address, plan.tls.as_ref())?.stats("")?))
    }
}

fn of_terrace(stats: &BTreeMap<String, String>) -> Option<Drives> {
    let sum = |name: &str| {
        let of_tiers = |key: &str| key.starts_with("tier:") && key.ends_with(name);
        let values = stats.iter().filter(|(key, _)| of_tiers(key));
        values.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
    };
    let capacity = sum(":capacity_bytes");
    let (reads, written) = (sum(":reads"), sum(":written_bytes"));
    (capacity > 0).then_some(Drives { reads, written, capacity })
}

fn of_extstore(stats: &BTreeMap<String, String>) -> Option<Drives> {
    let number = |name: &str| stats.get(name)?.parse().ok();
    Some(Drives {
        reads: number("extstore_objects_read")?,
        written: number("extstore_bytes_written")?,
        capacity: number("extstore_limit_maxbytes")?,
    })
}
