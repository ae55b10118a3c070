//! The classic commands for one key: what they ask for, and their replies.

use super::arith::{self as calculation, Arith, Calculated};
use super::delete::{self as deletion, Delete, Deleted};
use super::executor::{Keyed, Unfinished};
use super::expiry::Expiry;
use super::keyed::Executed;
use super::lookup::{self, Outcome};
use super::store::{self as storage, Mode, Store, Stored};
use terrace_cache::NewValue;
use terrace_protocol::{Verb, reply};

const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";

pub(crate) fn store(
    on: &Keyed<'_>,
    request: &terrace_protocol::Store<'_>,
    value: NewValue<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let (mode, compare) = match request.verb {
        Verb::Set => (Mode::Set, None),
        Verb::Add => (Mode::Add, None),
        Verb::Replace => (Mode::Replace, None),
        Verb::Append => (Mode::Append, None),
        Verb::Prepend => (Mode::Prepend, None),
        Verb::Cas(cas) => (Mode::Set, Some(cas)),
    };
    if u64::from(request.value_bytes) > on.limits.item_bytes_max {
        let replaces = mode == Mode::Set && compare.is_none();
        storage::refuse(on, replaces, &on.counters.store_too_large)?;
        return replied(out, request.noreply, reply::TOO_LARGE);
    }
    let store = Store {
        mode,
        value,
        client_flags: request.client_flags,
        expiry: Expiry::new(request.exptime, on.now),
        compare,
        assign: None,
        invalidate: false,
        vivify: None,
    };
    let text = match storage::store(on, &store)? {
        Stored::Done { .. } => reply::STORED,
        Stored::Refused => reply::NOT_STORED,
        Stored::Exists => reply::EXISTS,
        Stored::NotFound => reply::NOT_FOUND,
        Stored::NoMemory => reply::OUT_OF_MEMORY,
    };
    replied(out, request.noreply, text)
}

pub(crate) fn delete(
    on: &Keyed<'_>,
    request: &terrace_protocol::Delete<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let text = match deletion::delete(on, &Delete::default())? {
        Deleted::Done => reply::DELETED,
        Deleted::NotFound | Deleted::Exists => reply::NOT_FOUND,
        Deleted::NotStored => OUT_OF_MEMORY,
    };
    replied(out, request.noreply, text)
}

pub(crate) fn arith(
    on: &Keyed<'_>,
    request: &terrace_protocol::Arith<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let arith = Arith {
        increments: request.increments,
        delta: request.delta,
        compare: None,
        assign: None,
        create: None,
        expiry: None,
    };
    let text = match calculation::calculate(on, &arith)? {
        Calculated::Stored { number, .. } => {
            if !request.noreply {
                reply::put_number(out, number);
                out.extend_from_slice(b"\r\n");
            }
            return Ok(Executed::Replied);
        }
        Calculated::NotNumeric => reply::NON_NUMERIC,
        Calculated::NotFound | Calculated::Exists => reply::NOT_FOUND,
        Calculated::NoMemory => OUT_OF_MEMORY,
    };
    replied(out, request.noreply, text)
}

pub(crate) fn touch(
    on: &Keyed<'_>,
    request: &terrace_protocol::Touch<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let expiry = Expiry::new(request.exptime, on.now);
    let text = match lookup::touch(on, expiry, |_| {})? {
        Outcome::Found => reply::TOUCHED,
        Outcome::Missing | Outcome::Created { .. } => reply::NOT_FOUND,
        Outcome::NoMemory => OUT_OF_MEMORY,
    };
    replied(out, request.noreply, text)
}

fn replied(out: &mut Vec<u8>, noreply: bool, text: &[u8]) -> Result<Executed, Unfinished> {
    if !noreply {
        out.extend_from_slice(text);
    }
    Ok(Executed::Replied)
}
