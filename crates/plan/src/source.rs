//! What a running server knows of its data.

use crate::PlanError;
use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use terrace_load::Client;

/// What memcached counts to the bytes of an item besides key and value.
const ITEM_HEADER: f64 = 56.0;

/// What `stats` tells, of any memcached server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) items: f64,
    /// Mean of key and value, in bytes.
    pub(crate) payload_bytes: f64,
    /// Mean requests per second since its start.
    pub(crate) per_second: f64,
    pub(crate) get_share: f64,
}

impl Running {
    pub(crate) fn ask(server: &str) -> Result<Self, PlanError> {
        let no_address = || PlanError::Input(format!("{server} is not HOST:PORT"));
        let mut addresses = server.to_socket_addrs().map_err(|_| no_address())?;
        let mut client = Client::connect(addresses.next().ok_or_else(no_address)?)?;
        let stats = client.stats("")?;
        // Terrace tells the bytes of keys and values themselves; memcached, items with headers.
        let tiers = client.stats("tiers").unwrap_or_default();
        Self::from(&stats, &tiers)
            .ok_or_else(|| PlanError::Input(format!("{server} holds no items yet")))
    }

    fn from(stats: &BTreeMap<String, String>, tiers: &BTreeMap<String, String>) -> Option<Self> {
        let of = |name: &str| stats.get(name).and_then(|value| value.parse::<f64>().ok());
        let items = of("curr_items").filter(|items| *items > 0.0)?;
        let (gets, sets) = (of("cmd_get")?, of("cmd_set")?);
        let sum = |suffix: &str| -> f64 {
            let matching = tiers
                .iter()
                .filter(|(name, _)| name.starts_with("tier:") && name.ends_with(suffix));
            matching.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
        };
        let (tier_payload, tier_records) = (sum(":payload_bytes"), sum(":records"));
        let payload_bytes = match tier_records > 0.0 {
            true => tier_payload / tier_records,
            false if !tiers.is_empty() => of("bytes")? / items,
            false => (of("bytes")? / items - ITEM_HEADER).max(1.0),
        };
        Some(Self {
            items,
            payload_bytes,
            per_second: (gets + sets) / of("uptime")?.max(1.0),
            get_share: if gets + sets > 0.0 { gets / (gets + sets) } else { 1.0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_servers_counters_become_inputs() {
        let stats = table(&[
            ("curr_items", "10"),
            ("cmd_get", "90"),
            ("cmd_set", "10"),
            ("uptime", "50"),
            ("bytes", "1560"),
        ]);
        let running = Running::from(&stats, &table(&[])).unwrap();
        assert_eq!(
            (running.payload_bytes, running.get_share, running.per_second),
            (100.0, 0.9, 2.0)
        );
        let tiers = table(&[("tier:0:payload_bytes", "816"), ("tier:0:records", "1")]);
        assert_eq!(Running::from(&stats, &tiers).unwrap().payload_bytes, 816.0);
        // A Terrace without tiers has no headers in its bytes.
        let tiers = table(&[("records", "10")]);
        assert_eq!(Running::from(&stats, &tiers).unwrap().payload_bytes, 156.0);
        assert!(Running::from(&table(&[]), &tiers).is_none());
    }
}
