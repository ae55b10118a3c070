//! What `delete` and `md` do to a record.

use super::executor::{Keyed, Unfinished};
use super::expiry::Expiry;
use terrace_cache::{Change, Hit, Manifest, NewRecord, NewValue};

/// One deletion.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delete {
    /// Only if the record has this CAS number.
    pub(crate) compare: Option<u64>,
    /// The CAS number to give a record that stays; if it is stale it gets the next by itself.
    pub(crate) assign: Option<u64>,
    /// Don't remove the record, mark it stale: the next reader may renew it.
    pub(crate) invalidate: bool,
    /// Don't remove the record, but its value, and give it these client flags.
    pub(crate) empty: Option<u32>,
    /// The expiry of a record that stays.
    pub(crate) expiry: Option<Expiry>,
}

/// How a deletion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deleted {
    Done,
    NotFound,
    /// The CAS number differs.
    Exists,
    /// Full, and not allowed to evict: the record could not be changed.
    NotStored,
}

pub(crate) fn delete(on: &Keyed<'_>, delete: &Delete) -> Result<Deleted, Unfinished> {
    let mut outcome = Deleted::NotFound;
    let mut manifest = None;
    let place = &mut manifest;
    let update = on.update(false, |hit| {
        // A record that is still to be recovered must not come back either.
        let Some(hit) = hit else { return Change::Remove };
        if delete.compare.is_some_and(|cas| cas != hit.record.cas) {
            outcome = Deleted::Exists;
            return Change::Keep;
        }
        outcome = Deleted::Done;
        change(delete, hit, place)
    })?;
    if update.is_none() {
        outcome = Deleted::NotStored;
    }
    match outcome {
        // As in memcached what was marked as stale is no deletion.
        Deleted::Done if !delete.invalidate => on.counters.delete_hits.add(1),
        Deleted::NotFound => on.counters.delete_misses.add(1),
        Deleted::Done | Deleted::Exists | Deleted::NotStored => {}
    }
    Ok(outcome)
}

fn change<'v>(delete: &Delete, hit: Hit<'v>, place: &'v mut Option<Manifest>) -> Change<'v> {
    let old = hit.record;
    if !delete.invalidate && delete.empty.is_none() {
        return Change::Remove;
    }
    let expires = match (delete.expiry, delete.empty) {
        (Some(Expiry::Already), _) => return Change::Remove,
        (Some(Expiry::At(expires)), _) => expires,
        (None, Some(_)) => 0,
        (None, None) => old.expires,
    };
    let value = match delete.empty {
        Some(_) => NewValue::Inline(&[], &[]),
        None => super::same_value(&old, place),
    };
    Change::Store(NewRecord {
        value,
        client_flags: delete.empty.unwrap_or(old.client_flags),
        expires,
        // Who has the version before it may still replace an emptied record, but no stale one.
        cas: delete.assign.or((!delete.invalidate).then_some(old.cas)),
        stale: delete.invalidate,
        win_sent: false,
    })
}
