//! Appending where the result is too long for one piece: the old value and the added one become, or
//! are, chunks, and a manifest that names them all takes the record's place.

use super::executor::{Executor, Keyed, Unfinished};
use super::store::{Mode, Store, Stored};
use terrace_cache::{Access, Body, Change, Lookup, Manifest, NewValue, Record, Run, Update};
use terrace_runtime::chunks::Upload;

/// An item has so many runs at most: each append to it writes a manifest of 20 bytes for each of them.
const RUNS_MAX: usize = 1024;
/// Runs that were joined make up this part of the longest item, or more, so that one of so many is as long.
const JOINED_SHARE: u64 = 128;

/// Chunks of this operation that nobody can find yet; given back unless they are published.
struct Unpublished<'e> {
    executor: &'e Executor<'e>,
    runs: Vec<Run>,
}

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        for run in &self.runs {
            self.executor.session.discard_chunks(run.item, run.chunks);
        }
    }
}

/// Does what `store` asks for with a record that it makes longer than one piece. Whatever comes in
/// between, or is not ready, is answered by `Wait`: the operation starts over.
pub(crate) fn into_chunks(on: &Keyed<'_>, store: &Store<'_>) -> Result<Stored, Unfinished> {
    let hit = match on.get(Access::Peek) {
        Lookup::Hit(hit) => hit,
        Lookup::Read(search) => return Err(Unfinished::Read(search)),
        Lookup::Miss => return Err(Unfinished::Wait),
    };
    let seen = hit.record;
    let mut unpublished = Unpublished { executor: on, runs: Vec::new() };
    let mut present = match seen.body() {
        Body::Chunked(manifest) => manifest.runs,
        Body::Inline(value) => match unpublished.store(value)? {
            Some(run) => vec![run],
            None => return Ok(Stored::NoMemory),
        },
    };
    let added = match store.value {
        NewValue::Chunked(manifest) => manifest.runs.clone(),
        NewValue::Inline(value, _) => {
            let joined = join(on, store.mode, &mut present, value);
            if !on.session.is_intact() {
                return Err(Unfinished::Wait);
            }
            match unpublished.store(joined.as_deref().unwrap_or(value))? {
                Some(run) => vec![run],
                None => return Ok(Stored::NoMemory),
            }
        }
    };
    let mut runs = match store.mode {
        Mode::Prepend => [added, present].concat(),
        _ => [present, added].concat(),
    };
    runs.retain(|run| run.chunks > 0);
    let manifest = Manifest { runs };
    let too_many =
        manifest.runs.len() > RUNS_MAX || manifest.encoded_bytes() > on.limits.inline_bytes_max;
    if too_many || manifest.bytes() > on.limits.item_bytes_max {
        return Ok(Stored::Refused);
    }
    let mut is_same = false;
    let update = on.update(false, |hit| match hit.filter(|hit| is_unchanged(&seen, &hit.record)) {
        None => Change::Keep,
        Some(hit) => {
            is_same = true;
            let value = NewValue::Chunked(&manifest);
            Change::Store(super::extended(&hit.record, value, store.assign))
        }
    });
    match update {
        Ok(Some(cas)) if is_same => {
            // Only what is empty was left out.
            unpublished.runs.retain(|run| run.chunks == 0);
            Ok(Stored::Done { cas, value_bytes: manifest.bytes() })
        }
        Ok(None) => Ok(Stored::NoMemory),
        Err(Unfinished::Read(search)) => Err(Unfinished::Read(search)),
        Ok(Some(_)) | Err(_) => Err(Unfinished::Wait),
    }
}

/// Takes the run beside which `added` is to stand out of `present`, and answers the bytes of both, if they are
/// few: who appends a line at a time would soon have as many runs as there may be. Only what is in DRAM is
/// taken, which what was appended a moment ago is.
fn join(
    executor: &Executor<'_>,
    mode: Mode,
    present: &mut Vec<Run>,
    added: &[u8],
) -> Option<Vec<u8>> {
    let at = if mode == Mode::Prepend { 0 } else { present.len().checked_sub(1)? };
    let run = *present.get(at)?;
    // So many that an item of any size may consist of lines, and few bytes are copied for each.
    let bytes_max =
        (executor.limits.item_bytes_max / JOINED_SHARE).min(executor.limits.chunk_bytes_max as u64);
    if run.chunks != 1 || run.bytes() + added.len() as u64 > bytes_max {
        return None;
    }
    let (session, mut name) = (executor.session, [0; 12]);
    let key = session.chunk_key(run.item, 0, &mut name);
    let Lookup::Hit(hit) = session.get(key, executor.now, Access::Peek, None) else { return None };
    let Body::Inline(beside) = hit.record.body() else { return None };
    present.remove(at);
    Some(match mode {
        Mode::Prepend => [added, beside].concat(),
        _ => [beside, added].concat(),
    })
}

impl Unpublished<'_> {
    /// Stores `value` as chunks; `None` if there is no room and nothing may be evicted.
    fn store(&mut self, value: &[u8]) -> Result<Option<Run>, Unfinished> {
        let Executor { session, limits, now, .. } = *self.executor;
        let mut upload = Upload::begin(session, limits.chunk_bytes(value.len() as u64));
        let update = upload.store_rest(session, value, now);
        self.runs.push(upload.run());
        match update {
            Update::Done { .. } => Ok(Some(upload.run())),
            Update::Full => Ok(None),
            _ => Err(Unfinished::Wait),
        }
    }
}

/// Whether nobody has changed the record since it was seen. Without CAS numbers the value itself
/// must tell.
fn is_unchanged(seen: &Record<'_>, now: &Record<'_>) -> bool {
    let same_value = || match (seen.body(), now.body()) {
        (Body::Inline(a), Body::Inline(b)) => a == b,
        (Body::Chunked(a), Body::Chunked(b)) => a == b,
        _ => false,
    };
    seen.cas == now.cas && (seen.cas != 0 || same_value())
}
