//! Everything that statistics are taken from, at one moment; and how they are written.

use super::counters::Totals;
use crate::server::shared::Shared;
use std::fmt::Display;
use std::io::Write;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use terrace_cache::{CacheStats, TierStats};

/// One moment of a server.
pub(crate) struct View<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) totals: Totals,
    pub(crate) cache: CacheStats,
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    /// Unix time in seconds.
    pub(crate) now: u32,
}

/// What `stats reset` takes off.
#[derive(Default)]
pub(crate) struct Zero {
    totals: Totals,
    cache: Option<CacheStats>,
    accepted: u64,
    rejected: u64,
}

impl<'s> View<'s> {
    pub(crate) fn new(shared: &'s Shared, now: u32) -> Self {
        let mut view = Self::since_start(shared, now);
        let zero = shared.zero.lock().unwrap_or_else(PoisonError::into_inner);
        view.totals.subtract(&zero.totals);
        view.accepted -= zero.accepted.min(view.accepted);
        view.rejected -= zero.rejected.min(view.rejected);
        if let Some(zero) = &zero.cache {
            view.subtract(zero);
        }
        drop(zero);
        view
    }

    fn since_start(shared: &'s Shared, now: u32) -> Self {
        let mut totals = Totals::default();
        shared.workers.iter().for_each(|worker| totals.add(&worker.counters));
        let [accepted, rejected] = [&shared.connections.accepted, &shared.connections.rejected]
            .map(|count| count.load(Ordering::Relaxed));
        Self { shared, totals, cache: shared.cache.stats(), accepted, rejected, now }
    }

    /// What memcached sets back of what the cache counts; of drives nothing is, since their wear is not.
    fn subtract(&mut self, zero: &CacheStats) {
        let cache = &mut self.cache;
        for (count, zero) in [
            (&mut cache.stored_total, zero.stored_total),
            (&mut cache.evictions, zero.evictions),
            (&mut cache.evictions_index, zero.evictions_index),
            (&mut cache.evictions_tier, zero.evictions_tier),
            (&mut cache.evictions_dram, zero.evictions_dram),
            (&mut cache.evicted_unfetched, zero.evicted_unfetched),
            (&mut cache.reclaimed_expired, zero.reclaimed_expired),
            (&mut cache.read_cache_insertions, zero.read_cache_insertions),
            (&mut cache.read_cache_evictions, zero.read_cache_evictions),
        ] {
            *count -= zero.min(*count);
        }
    }

    /// The sum of a number over all tiers.
    pub(crate) fn tiers(&self, number: impl Fn(&TierStats) -> u64) -> u64 {
        self.cache.tiers.iter().map(number).sum()
    }
}

/// Where a number of the tables comes from.
pub(crate) enum Source {
    /// Counted or computed here.
    Number(fn(&View<'_>) -> u64),
    /// Anything else.
    Text(fn(&View<'_>) -> String),
    /// What this name counts in memcached can't happen here.
    Never,
}

/// A row of `stats`: its name and where the value comes from.
pub(crate) type Row = (&'static str, Source);

/// Writes the rows of a table.
pub(crate) fn write_rows(out: &mut Vec<u8>, view: &View<'_>, rows: &[Row]) {
    rows.iter().for_each(|row| write_row(out, view, row));
}

/// Writes one row.
pub(crate) fn write_row(out: &mut Vec<u8>, view: &View<'_>, (name, source): &Row) {
    match source {
        Source::Number(number) => write(out, name, number(view)),
        Source::Text(text) => write(out, name, text(view)),
        Source::Never => write(out, name, 0),
    }
}

/// Writes one line.
pub(crate) fn write(out: &mut Vec<u8>, name: &str, value: impl Display) {
    // Writing to a `Vec` never fails.
    let _ = write!(out, "STAT {name} {value}\r\n");
}

/// Takes what was counted so far as the new zero.
pub(crate) fn reset(shared: &Shared) {
    shared.workers.iter().for_each(|worker| worker.latency.reset());
    shared.prefixes.reset();
    let View { totals, cache, accepted, rejected, .. } = View::since_start(shared, 0);
    *shared.zero.lock().unwrap_or_else(PoisonError::into_inner) =
        Zero { totals, cache: Some(cache), accepted, rejected };
}
