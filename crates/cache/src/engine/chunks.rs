//! The chunks of large items: begins and ends uploads, and discards the chunks of items that are gone.

use crate::engine::Engine;
use crate::platform::lock::lock;
use crate::platform::quiesce::Guard;
use crate::records::manifest::{ItemId, Manifest, Run};
use crate::records::record::Record;
use crate::segments::segment::Sealed;
use crate::shard::Shard;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// Begins the upload of a large item.
pub(crate) fn begin_item(engine: &Engine) -> ItemId {
    let mut garbage_chunks = lock(&engine.garbage_chunks);
    let item = ItemId(engine.next_item());
    garbage_chunks.begin_upload(item);
    item
}

/// Ends uploads: a manifest owns the chunks, or they are removed.
pub(crate) fn end_uploads(engine: &Engine, runs: &[Run]) {
    let mut garbage_chunks = lock(&engine.garbage_chunks);
    runs.iter().for_each(|run| garbage_chunks.end_upload(run.item));
}

/// The uploads in progress, and the number of the next item.
pub(crate) fn uploads(engine: &Engine) -> (HashSet<ItemId>, u64) {
    let garbage_chunks = lock(&engine.garbage_chunks);
    (garbage_chunks.uploads(), engine.next_item.load(Ordering::Relaxed))
}

/// Gives the background chunks of items that are gone to remove.
pub(crate) fn discard_runs(engine: &Engine, runs: impl Iterator<Item = Run>) {
    lock(&engine.garbage_chunks).add(runs);
}

/// Discards the chunks of a record that is gone, if it is a large item.
pub(crate) fn discard_chunks_of(engine: &Engine, record: &Record<'_>) {
    if record.is_manifest() {
        discard_runs(engine, Manifest::decode(record.raw()).runs.into_iter());
    }
}

/// As [`discard_chunks_of`], for the bytes of a record that lost its entry a moment ago. If a request changed the
/// record before that, its successor is in DRAM and may have the same chunks: then they stay.
pub(crate) fn discard_chunks_of_dropped(
    engine: &Engine,
    shard: &Shard,
    guard: Guard<'_>,
    bytes: &[u8],
) {
    let Some((record, _)) = Record::decode(bytes) else { return };
    let key = engine.hasher().key(record.key, record.is_chunk());
    let pos = engine.hasher().name(key.hash()).pos;
    let _locked = shard.lock(&engine.shared, guard);
    if shard.find_resident(&engine.shared, guard, &key, pos).is_none() {
        discard_chunks_of(engine, &record);
    }
}

/// Asks for a search for chunks without an owner if records with manifests may be lost unread.
pub(crate) fn note_lost(engine: &Engine, shard: &Shard, sealed: Sealed) {
    if shard.segments().has_manifests(sealed.number) {
        engine.recovery.census.ask();
    }
}
