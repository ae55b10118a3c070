//! `get`, `gets`, `gat`, `gats`, the plainest `mg`, and GET of the binary protocol: one key at a time. Reading a
//! record to send its value.

use super::executor::{Executor, Keyed, Unfinished};
use super::expiry::Expiry;
use super::keyed::Executed;
use super::lookup::{self, Effects, Outcome};
use super::{binary, meta};
use terrace_cache::{Access, Body, Record};
use terrace_protocol::binary::Echo;
use terrace_protocol::{KeysKind, reply};

/// How a key is asked for, and so how it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadKind {
    /// In a line of keys.
    Classic(KeysKind),
    /// `mg <key> v`.
    MetaValue,
    /// GET.
    Binary(Echo),
}

impl ReadKind {
    /// Whether it may change the record.
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Classic(kind) if kind.touch.is_some())
    }
}

/// Reads one key.
#[inline]
pub(crate) fn execute(
    kind: ReadKind,
    on: &Keyed<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    match kind {
        ReadKind::Classic(kind) => classic(kind, on, out),
        ReadKind::MetaValue => meta::get_value(on, out),
        ReadKind::Binary(echo) => binary::plain_get(on, echo, out),
    }
}

/// Reads one key of a line; writes nothing if there is no record.
fn classic(kind: KeysKind, on: &Keyed<'_>, out: &mut Vec<u8>) -> Result<Executed, Unfinished> {
    let touch = kind.touch.map(|exptime| Expiry::new(exptime, on.now));
    let fetched = fetch(on, touch, out, |record, out| write(on, kind, record, out))?;
    Ok(fetched.unwrap_or(Executed::Replied))
}

/// Reads a record, gives it the expiry `touch` if there is one, and has it written by `write`. `None`
/// if there is no record: then nothing was written.
#[inline]
pub(crate) fn fetch(
    on: &Keyed<'_>,
    touch: Option<Expiry>,
    out: &mut Vec<u8>,
    write: impl FnOnce(&Record<'_>, &mut Vec<u8>) -> Executed,
) -> Result<Option<Executed>, Unfinished> {
    match touch {
        None => read(on, out, write),
        Some(expiry) => read_and_touch(on, expiry, out, write),
    }
}

#[inline]
fn read(
    on: &Keyed<'_>,
    out: &mut Vec<u8>,
    write: impl FnOnce(&Record<'_>, &mut Vec<u8>) -> Executed,
) -> Result<Option<Executed>, Unfinished> {
    let hit = lookup::read(on, Access::Use)?;
    let counters = on.counters;
    let Some(hit) = hit else {
        lookup::count_miss(on);
        return Ok(None);
    };
    let before = out.len();
    let executed = write(&hit.record, out);
    let executed = lookup::if_whole(on, executed, (out, before))?;
    counters.cmd_get.add(1);
    if executed.is_none() {
        counters.get_misses.add(1);
        return Ok(None);
    }
    counters.get_hits.add(1);
    if !hit.from_dram {
        counters.get_extstore.add(1);
    }
    Ok(executed)
}

fn read_and_touch(
    on: &Keyed<'_>,
    expiry: Expiry,
    out: &mut Vec<u8>,
    write: impl FnOnce(&Record<'_>, &mut Vec<u8>) -> Executed,
) -> Result<Option<Executed>, Unfinished> {
    let effects = Effects { touch: Some(expiry), ..Effects::default() };
    let before = out.len();
    let mut written = None;
    let result = lookup::with_effects(on, &effects, |seen| {
        written = Some(write(&seen.record, out));
    });
    let sent = result.and_then(|outcome| match (outcome, written) {
        // Without memory it is not touched, and who asked for that is not told that it was.
        (Outcome::Found, Some(executed)) => lookup::if_whole(on, executed, (out, before)),
        _ => Ok(None),
    });
    if !matches!(sent, Ok(Some(_))) {
        out.truncate(before);
    }
    let executed = sent?;
    // As in memcached it is no get.
    let counters = on.counters;
    counters.cmd_touch.add(1);
    if executed.is_some() {
        counters.touch_hits.add(1);
    } else {
        counters.touch_misses.add(1);
    }
    Ok(executed)
}

/// Writes a record, or the line before a value that is sent chunk by chunk.
fn write(
    executor: &Executor<'_>,
    kind: KeysKind,
    record: &Record<'_>,
    out: &mut Vec<u8>,
) -> Executed {
    let cas = kind.with_cas.then_some(record.cas);
    let mut put_line = |bytes| {
        reply::put_value_line(out, record.key, record.client_flags, bytes, cas);
    };
    match record.body() {
        Body::Inline(value) => {
            put_line(value.len() as u64);
            reply::put_block(out, value);
            Executed::Replied
        }
        Body::Chunked(manifest) => {
            put_line(manifest.bytes());
            // Of a key that is not there nothing is said.
            Executed::streams(executor.session, manifest, reply::LINE_END, |_| {})
        }
    }
}
