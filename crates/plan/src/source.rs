//! What a running server knows of its data.

use crate::PlanError;
use crate::show::{count, time};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use terrace_load::{Address, Client, LoadError};

/// What memcached counts to the bytes of an item besides key and value.
const ITEM_HEADER: f64 = 56.0;
const PORT: u16 = 11211;
/// Counters of less time, or of fewer requests, say little of a usual day.
const HOUR: f64 = 3600.0;
const MILLION: f64 = 1e6;
/// Of less, what is written on a usual day is unknown.
const DAY: f64 = 24.0 * HOUR;

/// What `stats` tells, of any memcached server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Running {
    /// Where it is.
    pub(crate) address: String,
    pub(crate) uptime: f64,
    pub(crate) items: f64,
    /// Mean of key and value, in bytes; none without items.
    pub(crate) payload_bytes: Option<f64>,
    /// Since its start.
    pub(crate) gets: f64,
    pub(crate) sets: f64,
    pub(crate) evictions: f64,
    /// Its `-m`.
    pub(crate) memory_bytes: Option<f64>,
}

impl Running {
    pub(crate) fn ask(server: &str) -> Result<Self, PlanError> {
        let is_complete = server.contains(['/', ':']);
        let address = if is_complete { server.to_owned() } else { format!("{server}:{PORT}") };
        let fails = |error| PlanError::Server { address: address.clone(), why: why(error) };
        let ask = || {
            let mut client = Client::open(&Address::parse(&address)?, None)?;
            let stats = client.stats("")?;
            // Terrace tells the bytes of keys and values themselves; memcached, items with headers.
            Ok((stats, client.stats("tiers").unwrap_or_default()))
        };
        let (stats, tiers) = ask().map_err(fails)?;
        Ok(Self::from(&address, &stats, &tiers))
    }

    fn from(
        address: &str,
        stats: &BTreeMap<String, String>,
        tiers: &BTreeMap<String, String>,
    ) -> Self {
        let told = |name: &str| stats.get(name).and_then(|value| value.parse::<f64>().ok());
        let of = |name: &str| told(name).unwrap_or_default();
        let sum = |suffix: &str| -> f64 {
            let matching = tiers
                .iter()
                .filter(|(name, _)| name.starts_with("tier:") && name.ends_with(suffix));
            matching.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
        };
        let (tier_payload, tier_records) = (sum(":payload_bytes"), sum(":records"));
        let items = of("curr_items");
        let payload_bytes = match tier_records > 0.0 {
            true => tier_payload / tier_records,
            false if !tiers.is_empty() => of("bytes") / items,
            false => (of("bytes") / items - ITEM_HEADER).max(1.0),
        };
        Self {
            address: address.to_owned(),
            uptime: of("uptime"),
            items,
            payload_bytes: (items > 0.0).then_some(payload_bytes),
            gets: of("cmd_get"),
            sets: of("cmd_set"),
            evictions: of("evictions"),
            memory_bytes: told("limit_maxbytes").filter(|bytes| *bytes > 0.0),
        }
    }

    /// Mean requests per second since its start; none if there were none.
    pub(crate) fn per_second(&self) -> Option<f64> {
        let requests = self.gets + self.sets;
        (requests > 0.0).then(|| requests / self.uptime.max(1.0))
    }

    pub(crate) fn get_share(&self) -> Option<f64> {
        let requests = self.gets + self.sets;
        (requests > 0.0).then(|| self.gets / requests)
    }

    /// Whether rates of usual days are like its own.
    pub(crate) fn is_usual(&self) -> bool {
        self.uptime >= DAY
    }

    /// Why its counters may not stand for what is planned. Rates that were said, and records, are not doubted.
    pub(crate) fn doubts(&self, is_load_said: bool, are_items_said: bool) -> Vec<String> {
        let Self { address, uptime, evictions, .. } = self;
        let requests = self.gets + self.sets;
        let mut doubts = Vec::new();
        if !is_load_said && (*uptime < HOUR || requests < MILLION) {
            doubts.push(format!(
                "{address} has been up for {} with {} requests: rates and shares of an hour and a million requests or \
                 more can be planned with; ask again, or say --gets and --sets",
                time(*uptime),
                count(requests),
            ));
        }
        if !are_items_said && *evictions > 0.0 {
            doubts.push(format!(
                "{address} has evicted {}: it holds a part of what clients ask for, and this plan is for that part; say \
                 how many records there are with --items",
                count(*evictions),
            ));
        }
        doubts
    }
}

fn why(error: LoadError) -> String {
    match error {
        LoadError::Connect { error, .. } => {
            format!("{error}; write HOST:PORT or the socket of a server that runs")
        }
        LoadError::Reply(text) if text.to_ascii_lowercase().contains("auth") => {
            format!(
                "it asks for a password ({text}); say --items, --value-bytes, --gets and --sets instead"
            )
        }
        LoadError::Io(error)
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
        {
            "it takes connections and does not answer; is it memcached, and without TLS?".into()
        }
        LoadError::Closed(_) => {
            "it closed the connection unanswered; is it memcached, and without TLS?".into()
        }
        LoadError::Reply(text) => format!("it answers `stats` with {text:?}; is it memcached?"),
        error => error.to_string(),
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
            ("limit_maxbytes", "67108864"),
        ]);
        let none = table(&[]);
        let from = |stats, tiers| Running::from("host:1", stats, tiers);
        let running = from(&stats, &none);
        assert_eq!(
            (running.payload_bytes, running.get_share(), running.per_second()),
            (Some(100.0), Some(0.9), Some(2.0))
        );
        assert_eq!(running.memory_bytes, Some(67_108_864.0));
        let tiers = table(&[("tier:0:payload_bytes", "816"), ("tier:0:records", "1")]);
        assert_eq!(from(&stats, &tiers).payload_bytes, Some(816.0));
        // A Terrace without tiers has no headers in its bytes.
        let tiers = table(&[("records", "10")]);
        assert_eq!(from(&stats, &tiers).payload_bytes, Some(156.0));
        let fresh = from(&none, &tiers);
        assert_eq!(
            (fresh.payload_bytes, fresh.per_second(), fresh.get_share()),
            (None, None, None)
        );
    }

    #[test]
    fn a_server_that_knows_little_is_doubted() {
        let known = Running { uptime: 7200.0, gets: 2e6, ..Running::default() };
        assert_eq!(known.doubts(false, false), Vec::<String>::new());
        let young = Running { uptime: 3599.0, ..known.clone() };
        let idle = Running { gets: 9e5, sets: 9e4, ..known.clone() };
        for doubted in [&young, &idle] {
            let [doubt] = &doubted.doubts(false, false)[..] else { panic!("{doubted:?}") };
            assert!(doubt.contains("--gets and --sets"), "{doubt}");
            assert!(doubted.doubts(true, false).is_empty());
        }
        let full = Running { evictions: 5.0, ..known };
        assert!(full.doubts(false, false)[0].contains("has evicted 5:"));
        assert!(full.doubts(false, true).is_empty());
    }
}
