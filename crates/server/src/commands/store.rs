//! What `set`, `add`, `replace`, `append`, `prepend`, `cas` and `ms` do to a record.

use super::executor::{Executor, Keyed, Unfinished};
use super::expiry::Expiry;
use crate::stats::counters::Counter;
use terrace_cache::{Body, Change, Hit, Manifest, NewRecord, NewValue, Run};

/// Under which condition, and how, a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

/// One store, as classic and meta commands ask for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store<'a> {
    pub(crate) mode: Mode,
    pub(crate) value: NewValue<'a>,
    pub(crate) client_flags: u32,
    pub(crate) expiry: Expiry,
    /// Only if the record has this CAS number.
    pub(crate) compare: Option<u64>,
    /// The CAS number to give the record, in place of the next.
    pub(crate) assign: Option<u64>,
    /// With `compare`: a record with a higher CAS number is replaced too, and marked stale.
    pub(crate) invalidate: bool,
    /// Append and prepend create a missing record, with this expiry.
    pub(crate) vivify: Option<Expiry>,
}

/// How a store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Done {
        cas: u64,
        /// Length of the value that is stored now.
        value_bytes: u64,
    },
    Refused,
    /// The CAS number differs.
    Exists,
    /// There is no record whose CAS number could be compared.
    NotFound,
    /// Full, and not allowed to evict.
    NoMemory,
}

/// What the decision under the shard's lock came to.
enum Decision {
    Not(Stored),
    /// `is_kept` is false for what has expired already.
    Stores {
        value_bytes: u64,
        is_kept: bool,
    },
    /// Appended to, the record is too long for one piece.
    Outgrows,
}

/// Stores, or says why not.
pub(crate) fn store(on: &Keyed<'_>, store: &Store<'_>) -> Result<Stored, Unfinished> {
    let is_blind = store.mode == Mode::Set && store.compare.is_none();
    let mut decision = Decision::Not(Stored::Refused);
    let update = on.update(is_blind, |hit| {
        let change;
        (change, decision) = decide(on, store, hit);
        change
    })?;
    let mut is_kept = true;
    let stored = match (update, decision) {
        (None, _) => {
            if is_blind {
                forget(on)?;
            }
            Stored::NoMemory
        }
        (Some(_), Decision::Not(reason)) => reason,
        (Some(_), Decision::Outgrows) => super::append::into_chunks(on, store)?,
        (Some(cas), Decision::Stores { value_bytes, is_kept: kept }) => {
            is_kept = kept;
            Stored::Done { cas, value_bytes }
        }
    };
    count(on, store, stored);
    let is_in_use = is_kept && matches!(stored, Stored::Done { .. });
    if let (NewValue::Chunked(manifest), false) = (store.value, is_in_use) {
        let discard = |run: &Run| on.session.discard_chunks(run.item, run.chunks);
        manifest.runs.iter().for_each(discard);
    }
    Ok(stored)
}

#[inline]
fn decide<'v>(
    executor: &Executor<'_>,
    store: &Store<'v>,
    hit: Option<Hit<'v>>,
) -> (Change<'v>, Decision) {
    let not = |reason| (Change::Keep, Decision::Not(reason));
    let Some(hit) = hit else {
        return match store.mode {
            Mode::Set | Mode::Replace if store.compare.is_some() => not(Stored::NotFound),
            Mode::Set | Mode::Add => stores(store, store.expiry, None),
            Mode::Append | Mode::Prepend => match store.vivify {
                Some(expiry) => stores(store, expiry, None),
                None => not(Stored::Refused),
            },
            Mode::Replace => not(Stored::Refused),
        };
    };
    let old = hit.record;
    let is_older = store.compare.is_some_and(|cas| (1..old.cas).contains(&cas));
    // Without CAS numbers each record's is 0: no store may take it for unchanged.
    let is_unchanged = store.compare.is_none_or(|cas| cas == old.cas && cas != 0);
    match store.mode {
        Mode::Add => not(Stored::Refused),
        // As in memcached, these compare with no 0.
        Mode::Append | Mode::Prepend if is_unchanged || store.compare == Some(0) => {
            extend(executor, store, hit)
        }
        Mode::Set | Mode::Replace if is_unchanged => stores(store, store.expiry, None),
        Mode::Set | Mode::Replace if store.invalidate && is_older => {
            // The writer was late: what it brings is better than nothing, but not good for longer.
            stores(store, Expiry::At(old.expires), Some(old.win_sent))
        }
        _ => not(Stored::Exists),
    }
}

/// Stores the value as it came; `stale` says that it is, and whether the right to renew it was given
/// away.
fn stores<'v>(store: &Store<'v>, expiry: Expiry, stale: Option<bool>) -> (Change<'v>, Decision) {
    let value_bytes = value_bytes(store.value);
    let Expiry::At(expires) = expiry else {
        return (Change::Remove, Decision::Stores { value_bytes, is_kept: false });
    };
    let new = NewRecord {
        value: store.value,
        client_flags: store.client_flags,
        expires,
        cas: store.assign,
        stale: stale.is_some(),
        win_sent: stale == Some(true),
    };
    (Change::Store(new), Decision::Stores { value_bytes, is_kept: true })
}

/// Appends or prepends where both parts fit into one piece.
fn extend<'v>(executor: &Executor<'_>, store: &Store<'v>, hit: Hit<'v>) -> (Change<'v>, Decision) {
    let old = hit.record;
    let total = old.value_bytes() + value_bytes(store.value);
    if total > executor.limits.item_bytes_max {
        // The item stays, and so says memcached.
        return (Change::Keep, Decision::Not(Stored::Refused));
    }
    let (Body::Inline(present), NewValue::Inline(added, _)) = (old.body(), store.value) else {
        return (Change::Keep, Decision::Outgrows);
    };
    if total > executor.limits.inline_bytes_max as u64 {
        return (Change::Keep, Decision::Outgrows);
    }
    let (head, tail) = match store.mode {
        Mode::Prepend => (added, present),
        _ => (present, added),
    };
    let extended = super::extended(&old, NewValue::Inline(head, tail), store.assign);
    (Change::Store(extended), Decision::Stores { value_bytes: total, is_kept: true })
}

/// Length of a value that is to be stored.
pub(crate) fn value_bytes(value: NewValue<'_>) -> u64 {
    match value {
        NewValue::Inline(head, tail) => (head.len() + tail.len()) as u64,
        NewValue::Chunked(manifest) => Manifest::bytes(manifest),
    }
}

fn count(executor: &Executor<'_>, store: &Store<'_>, stored: Stored) {
    let counters = executor.counters;
    counters.cmd_set.add(1);
    if stored == Stored::NoMemory {
        counters.store_no_memory.add(1);
    }
    if store.compare.is_some() && matches!(store.mode, Mode::Set | Mode::Replace) {
        match stored {
            Stored::Done { .. } => counters.cas_hits.add(1),
            Stored::Exists => counters.cas_badval.add(1),
            Stored::NotFound => counters.cas_misses.add(1),
            _ => {}
        }
    }
}

/// Refuses a value, which was to replace the present one if `replaces` says so, and counts that.
pub(crate) fn refuse(on: &Keyed<'_>, replaces: bool, counter: &Counter) -> Result<(), Unfinished> {
    if replaces {
        forget(on)?;
    }
    counter.add(1);
    Ok(())
}

/// What a refused `set` would have replaced must not stay, or the client would go on reading what it
/// meant to overwrite. Blind as that is, what is to go may have to be looked for.
fn forget(on: &Keyed<'_>) -> Result<(), Unfinished> {
    match on.update(true, |_| Change::Remove) {
        Ok(_) | Err(Unfinished::Recovering) => Ok(()),
        Err(why) => Err(why),
    }
}
