//! SET, ADD, REPLACE, APPEND, PREPEND, DELETE, INCREMENT, DECREMENT.

use super::Ended;
use crate::commands::arith::{self as calculation, Arith, Calculated};
use crate::commands::delete::{self as deletion, Delete, Deleted};
use crate::commands::executor::{Keyed, Unfinished};
use crate::commands::expiry::Expiry;
use crate::commands::store::{self as storage, Mode, Store, Stored};
use terrace_cache::NewValue;
use terrace_protocol::Verb;
use terrace_protocol::binary::{self, Status};

pub(super) fn store(
    on: &Keyed<'_>,
    request: &binary::Store<'_>,
    value: NewValue<'_>,
) -> Result<Ended, Unfinished> {
    let (mode, refused) = match request.verb {
        Verb::Set | Verb::Cas(_) => (Mode::Set, Status::NotStored),
        Verb::Add => (Mode::Add, Status::Exists),
        Verb::Replace => (Mode::Replace, Status::NotFound),
        Verb::Append => (Mode::Append, Status::NotStored),
        Verb::Prepend => (Mode::Prepend, Status::NotStored),
    };
    if u64::from(request.value_bytes) > on.limits.item_bytes_max {
        storage::refuse(on, mode == Mode::Set, &on.counters.store_too_large)?;
        return Ok(Ended::Failed(Status::TooLarge));
    }
    let store = Store {
        // With a CAS number, ADD and REPLACE are compare-and-swap too.
        mode: match mode {
            Mode::Add | Mode::Replace if request.compare.is_some() => Mode::Set,
            mode => mode,
        },
        value,
        client_flags: request.client_flags,
        expiry: Expiry::unsigned(request.exptime, on.now),
        compare: request.compare,
        assign: None,
        invalidate: false,
        vivify: None,
    };
    Ok(match storage::store(on, &store)? {
        Stored::Done { cas, .. } => Ended::Done { cas, number: None },
        Stored::Refused => Ended::Failed(refused),
        Stored::Exists => Ended::Failed(Status::Exists),
        Stored::NotFound => Ended::Failed(Status::NotFound),
        Stored::NoMemory => Ended::NoMemory,
    })
}

pub(super) fn delete(on: &Keyed<'_>, compare: Option<u64>) -> Result<Ended, Unfinished> {
    let delete = Delete { compare, ..Delete::default() };
    Ok(match deletion::delete(on, &delete)? {
        Deleted::Done => Ended::Done { cas: 0, number: None },
        Deleted::NotFound => Ended::Failed(Status::NotFound),
        Deleted::Exists => Ended::Failed(Status::Exists),
        Deleted::NotStored => Ended::NoMemory,
    })
}

pub(super) fn arith(on: &Keyed<'_>, request: &binary::Arith<'_>) -> Result<Ended, Unfinished> {
    let expiry = |exptime| Expiry::unsigned(exptime, on.now);
    let arith = Arith {
        increments: request.increments,
        delta: request.delta,
        compare: request.compare,
        assign: None,
        create: request.create.map(|(initial, exptime)| (initial, expiry(exptime))),
        expiry: None,
    };
    Ok(match calculation::calculate(on, &arith)? {
        Calculated::Stored { number, cas, .. } => Ended::Done { cas, number: Some(number) },
        Calculated::NotFound => Ended::Failed(Status::NotFound),
        Calculated::NotNumeric => Ended::Failed(Status::NotNumeric),
        Calculated::Exists => Ended::Failed(Status::Exists),
        Calculated::NoMemory => Ended::NoMemory,
    })
}
