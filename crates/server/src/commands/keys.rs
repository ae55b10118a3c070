//! `get`, `gets`, `gat`, `gats`: one key of them at a time.

use super::executor::{Executor, Unfinished};
use super::expiry::Expiry;
use super::keyed::Executed;
use super::lookup::{self, Effects, Outcome};
use terrace_cache::{Access, Body, Evidence, Key, Record};
use terrace_protocol::{KeysKind, reply};

/// Reads one key; writes nothing if there is no record.
pub(crate) fn execute(
    kind: KeysKind,
    executor: &Executor<'_>,
    key: Key<'_>,
    evidence: Option<Evidence<'_>>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    match kind.touch {
        None => read(kind, executor, key, evidence, out),
        Some(exptime) => read_and_touch(kind, executor, key, exptime, evidence, out),
    }
}

fn read(
    kind: KeysKind,
    executor: &Executor<'_>,
    key: Key<'_>,
    evidence: Option<Evidence<'_>>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let hit = lookup::read(executor, key, Access::Use, evidence)?;
    let counters = executor.counters;
    counters.cmd_get.add(1);
    let Some(hit) = hit else {
        counters.get_misses.add(1);
        if evidence.is_some() {
            counters.miss_from_extstore.add(1);
        }
        return Ok(Executed::Replied);
    };
    let before = out.len();
    let executed = write(kind, &hit.record, out);
    if !lookup::can_be_sent(executor, &executed) {
        out.truncate(before);
        counters.get_misses.add(1);
        return Ok(Executed::Replied);
    }
    counters.get_hits.add(1);
    if !hit.from_dram {
        counters.get_extstore.add(1);
    }
    Ok(executed)
}

fn read_and_touch(
    kind: KeysKind,
    executor: &Executor<'_>,
    key: Key<'_>,
    exptime: i32,
    evidence: Option<Evidence<'_>>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unfinished> {
    let effects = Effects { touch: Some(Expiry::new(exptime, executor.now)), ..Effects::default() };
    let before = out.len();
    let mut written = None;
    let result = lookup::with_effects(executor, key, &effects, evidence, |seen| {
        written = Some(write(kind, &seen.record, out));
    });
    let executed = match result {
        Ok(Outcome::Found) => written.filter(|executed| lookup::can_be_sent(executor, executed)),
        Ok(_) => None,
        Err(unfinished) => {
            out.truncate(before);
            return Err(unfinished);
        }
    };
    let counters = executor.counters;
    counters.cmd_touch.add(1);
    counters.cmd_get.add(1);
    if executed.is_some() {
        counters.touch_hits.add(1);
        counters.get_hits.add(1);
    } else {
        out.truncate(before);
        counters.touch_misses.add(1);
        counters.get_misses.add(1);
    }
    Ok(executed.unwrap_or(Executed::Replied))
}

/// Writes a record, or the line before a value that is sent chunk by chunk.
fn write(kind: KeysKind, record: &Record<'_>, out: &mut Vec<u8>) -> Executed {
    let body = record.body();
    let value_bytes = match &body {
        Body::Inline(value) => value.len() as u64,
        Body::Chunked(manifest) => manifest.bytes(),
    };
    let cas = kind.with_cas.then_some(record.cas);
    reply::put_value_line(out, record.key, record.client_flags, value_bytes, cas);
    match body {
        Body::Inline(value) => {
            reply::put_block(out, value);
            Executed::Replied
        }
        Body::Chunked(manifest) => Executed::Streams(manifest),
    }
}
