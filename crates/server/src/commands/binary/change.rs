//! SET, ADD, REPLACE, APPEND, PREPEND, DELETE, INCREMENT, DECREMENT.

use super::Ended;
use crate::commands::arith::{self as calculation, Arith, Calculated};
use crate::commands::delete::{self as deletion, Delete, Deleted};
use crate::commands::executor::{Executor, Unfinished};
use crate::commands::expiry::Expiry;
use crate::commands::store::{self as storage, Mode, Store, Stored};
use terrace_cache::{Evidence, Key, NewValue};
use terrace_protocol::Verb;
use terrace_protocol::binary::{self, Status};

pub(super) fn store(
    executor: &Executor<'_>,
    request: &binary::Store<'_>,
    key: Key<'_>,
    value: NewValue<'_>,
    evidence: Option<Evidence<'_>>,
) -> Result<Ended, Unfinished> {
    let (mode, refused) = match request.verb {
        Verb::Set | Verb::Cas(_) => (Mode::Set, Status::NotStored),
        Verb::Add => (Mode::Add, Status::Exists),
        Verb::Replace => (Mode::Replace, Status::NotFound),
        Verb::Append => (Mode::Append, Status::NotStored),
        Verb::Prepend => (Mode::Prepend, Status::NotStored),
    };
    if u64::from(request.value_bytes) > executor.limits.item_bytes_max {
        storage::refuse_too_large(executor, key, mode == Mode::Set, evidence)?;
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
        expiry: Expiry::unsigned(request.exptime, executor.now),
        compare: request.compare,
        assign: None,
        invalidate: false,
        vivify: None,
    };
    Ok(match storage::store(executor, key, &store, evidence)? {
        Stored::Done { cas, .. } => Ended::Done { cas, number: None },
        Stored::Refused => Ended::Failed(refused),
        Stored::Exists => Ended::Failed(Status::Exists),
        Stored::NotFound => Ended::Failed(Status::NotFound),
        Stored::NoMemory => Ended::NoMemory,
    })
}

pub(super) fn delete(
    executor: &Executor<'_>,
    compare: Option<u64>,
    key: Key<'_>,
    evidence: Option<Evidence<'_>>,
) -> Result<Ended, Unfinished> {
    let delete = Delete { compare, ..Delete::default() };
    Ok(match deletion::delete(executor, key, &delete, evidence)? {
        Deleted::Done => Ended::Done { cas: 0, number: None },
        Deleted::NotFound => Ended::Failed(Status::NotFound),
        Deleted::Exists => Ended::Failed(Status::Exists),
        Deleted::NotStored => Ended::NoMemory,
    })
}

pub(super) fn arith(
    executor: &Executor<'_>,
    request: &binary::Arith<'_>,
    key: Key<'_>,
    evidence: Option<Evidence<'_>>,
) -> Result<Ended, Unfinished> {
    let expiry = |exptime| Expiry::unsigned(exptime, executor.now);
    let arith = Arith {
        increments: request.increments,
        delta: request.delta,
        compare: request.compare,
        assign: None,
        create: request.create.map(|(initial, exptime)| (initial, expiry(exptime))),
        expiry: None,
    };
    Ok(match calculation::calculate(executor, key, &arith, evidence)? {
        Calculated::Stored { number, cas, .. } => Ended::Done { cas, number: Some(number) },
        Calculated::NotFound => Ended::Failed(Status::NotFound),
        Calculated::NotNumeric => Ended::Failed(Status::NotNumeric),
        Calculated::Exists => Ended::Failed(Status::Exists),
        Calculated::NoMemory => Ended::NoMemory,
    })
}
