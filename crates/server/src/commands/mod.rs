//! What each command does. A command either finishes, or says that a drive must be read (or a buffer
//! written out) first; then it is executed again, and has neither changed nor answered anything.

pub(crate) mod admin;
mod append;
mod arith;
pub(crate) mod binary;
mod classic;
mod delete;
pub(crate) mod executor;
pub(crate) mod expiry;
pub(crate) mod keyed;
pub(crate) mod keys;
pub(crate) mod listing;
pub(crate) mod lookup;
mod meta;
mod number;
mod store;

use terrace_cache::{Body, Manifest, NewRecord, NewValue, Record};

/// A record that takes over everything but the value from `old`; `assign` is its CAS number in
/// place of the next.
fn kept<'v>(old: &Record<'v>, value: NewValue<'v>, assign: Option<u64>) -> NewRecord<'v> {
    NewRecord {
        value,
        client_flags: old.client_flags,
        expires: old.expires,
        cas: assign,
        stale: old.stale,
        win_sent: old.win_sent,
    }
}

/// As [`kept`], of a record that was appended to: it is as good as new.
fn extended<'v>(old: &Record<'v>, value: NewValue<'v>, assign: Option<u64>) -> NewRecord<'v> {
    NewRecord { stale: false, win_sent: false, ..kept(old, value, assign) }
}

/// The value of `old`, to be stored once more. `place` keeps the manifest of a large one.
fn same_value<'v>(old: &Record<'v>, place: &'v mut Option<Manifest>) -> NewValue<'v> {
    match old.body() {
        Body::Inline(value) => NewValue::Inline(value, &[]),
        Body::Chunked(manifest) => NewValue::Chunked(place.insert(manifest)),
    }
}
