//! What `incr`, `decr` and `ma` do to a record.

use super::executor::{Executor, Keyed, Unfinished};
use super::expiry::Expiry;
use super::number::Digits;
use terrace_cache::{Body, Change, Hit, NewRecord, NewValue};

/// One calculation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arith {
    /// `false` decrements.
    pub(crate) increments: bool,
    pub(crate) delta: u64,
    /// Only if the record has this CAS number.
    pub(crate) compare: Option<u64>,
    /// The CAS number to give the record, in place of the next.
    pub(crate) assign: Option<u64>,
    /// A missing record is created with this number and expiry.
    pub(crate) create: Option<(u64, Expiry)>,
    /// The record's new expiry; otherwise it keeps the old one.
    pub(crate) expiry: Option<Expiry>,
}

/// How a calculation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calculated {
    Stored {
        number: u64,
        cas: u64,
        /// Unix time; 0 for never.
        expires: u32,
    },
    NotFound,
    NotNumeric,
    /// The CAS number differs.
    Exists,
    /// Full, and not allowed to evict.
    NoMemory,
}

pub(crate) fn calculate(on: &Keyed<'_>, arith: &Arith) -> Result<Calculated, Unfinished> {
    let mut outcome = Calculated::NotFound;
    let mut is_created = false;
    let mut digits = Digits::default();
    let place = &mut digits;
    let update = on.update(false, |hit| {
        is_created = hit.is_none();
        let (number, expiry) = match decide(arith, hit) {
            Ok(decided) => decided,
            Err(refused) => {
                outcome = refused;
                return Change::Keep;
            }
        };
        let expires = match expiry {
            Expiry::At(expires) => expires,
            Expiry::Already => on.now,
        };
        outcome = Calculated::Stored { number, cas: 0, expires };
        if expiry == Expiry::Already {
            return Change::Remove;
        }
        let value = NewValue::Inline(place.set(number), &[]);
        Change::Store(match hit {
            Some(hit) => NewRecord { expires, ..super::kept(&hit.record, value, arith.assign) },
            None => NewRecord { cas: arith.assign, ..NewRecord::new(value, expires) },
        })
    })?;
    match (update, &mut outcome) {
        (Some(new), Calculated::Stored { cas, .. }) => *cas = new,
        (Some(_), _) => {}
        (None, outcome) => *outcome = Calculated::NoMemory,
    }
    count(on, arith, outcome, is_created);
    Ok(outcome)
}

fn decide(arith: &Arith, hit: Option<Hit<'_>>) -> Result<(u64, Expiry), Calculated> {
    let Some(hit) = hit else { return arith.create.ok_or(Calculated::NotFound) };
    let old = hit.record;
    let Body::Inline(value) = old.body() else { return Err(Calculated::NotNumeric) };
    if value.is_empty() {
        // memcached finds this before it compares CAS numbers, other text after.
        return Err(Calculated::NotNumeric);
    }
    // As in memcached, 0 stands for no comparison.
    if arith.compare.is_some_and(|cas| cas != 0 && cas != old.cas) {
        return Err(Calculated::Exists);
    }
    let present = super::number::parse_value(value).ok_or(Calculated::NotNumeric)?;
    let number = match arith.increments {
        true => present.wrapping_add(arith.delta),
        false => present.saturating_sub(arith.delta),
    };
    Ok((number, arith.expiry.unwrap_or(Expiry::At(old.expires))))
}

fn count(executor: &Executor<'_>, arith: &Arith, outcome: Calculated, is_created: bool) {
    let counters = executor.counters;
    // A number that was created was neither hit nor missed, as in memcached.
    let is_miss = outcome == Calculated::NotFound;
    let is_hit = !is_created && matches!(outcome, Calculated::Stored { .. });
    match (arith.increments, is_miss, is_hit) {
        (true, true, _) => counters.incr_misses.add(1),
        (true, false, true) => counters.incr_hits.add(1),
        (false, true, _) => counters.decr_misses.add(1),
        (false, false, true) => counters.decr_hits.add(1),
        _ => {}
    }
}
