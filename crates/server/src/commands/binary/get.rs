//! GET, GETK, GAT, GATK, TOUCH.

use crate::commands::executor::{Executor, Keyed, Unfinished};
use crate::commands::expiry::Expiry;
use crate::commands::keyed::Executed;
use crate::commands::keys;
use crate::commands::lookup::{self, Outcome};
use terrace_cache::{Body, Record};
use terrace_protocol::BinaryRequest;
use terrace_protocol::binary::{Echo, Get, Response, Status};

/// GET, which is asked for most.
#[inline]
pub(crate) fn plain_get(
    on: &Keyed<'_>,
    echo: Echo,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let plain = Get { key: b"", with_key: false, touch: None };
    get(on, (echo, false), &plain, out)
}

/// Of `asker` what its response repeats, and whether it is a quiet request.
#[inline]
pub(super) fn get(
    on: &Keyed<'_>,
    asker: (Echo, bool),
    get: &Get<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let touch = get.touch.map(|exptime| Expiry::unsigned(exptime, on.now));
    let write = |record: &Record<'_>, out: &mut Vec<u8>| write(on, asker, get, record, out);
    if let Some(executed) = keys::fetch(on, touch, out, write)? {
        return Ok(executed);
    }
    write_miss(asker, get, out);
    Ok(Executed::Replied)
}

/// Writes a record, or what stands before a value that is sent chunk by chunk.
fn write(
    executor: &Executor<'_>,
    asker: (Echo, bool),
    get: &Get<'_>,
    record: &Record<'_>,
    out: &mut Vec<u8>,
) -> Executed {
    let body = record.body();
    let (value, value_bytes_to_follow) = match &body {
        Body::Inline(value) => (*value, 0),
        Body::Chunked(manifest) => (&[][..], manifest.bytes()),
    };
    let response = Response {
        cas: record.cas,
        extras: &record.client_flags.to_be_bytes(),
        key: if get.with_key { get.key } else { b"" },
        value,
        value_bytes_to_follow,
    };
    asker.0.put(out, &response);
    match body {
        Body::Inline(_) => Executed::Replied,
        Body::Chunked(manifest) => {
            Executed::streams(executor.session, manifest, b"", |out| write_miss(asker, get, out))
        }
    }
}

/// A miss, unless it is not to be told, repeats the key in place of a text, where the key was asked for.
fn write_miss((echo, quiet): (Echo, bool), get: &Get<'_>, out: &mut Vec<u8>) {
    match get.with_key {
        _ if quiet => {}
        false => echo.put_error(out, Status::NotFound),
        true => {
            let response = Response { key: get.key, ..Response::default() };
            echo.put_with(out, Status::NotFound, &response);
        }
    }
}

pub(super) fn touch(
    on: &Keyed<'_>,
    request: &BinaryRequest<'_>,
    exptime: u32,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let expiry = Expiry::unsigned(exptime, on.now);
    let mut seen = None;
    let outcome = lookup::touch(on, expiry, |record| {
        seen = Some((record.record.client_flags, record.record.cas));
    })?;
    match (outcome, seen) {
        (Outcome::Found, Some((client_flags, cas))) => {
            let extras = &client_flags.to_be_bytes();
            request.echo.put(out, &Response { cas, extras, ..Response::default() });
        }
        (Outcome::NoMemory, _) => super::out_of_memory(request, out),
        _ => request.echo.put_error(out, Status::NotFound),
    }
    Ok(Executed::Replied)
}
