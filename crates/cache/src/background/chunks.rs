//! Removes the chunks of large items that are gone.

use crate::engine::Engine;
use crate::platform::lock::lock;
use crate::platform::quiesce::Guard;
use crate::records::manifest::ItemId;

/// Chunks removed per slice, at most: more than a slice seals, which may replace as many.
const CHUNKS_PER_SLICE: usize = 64;

/// Removes some chunks of items that are gone; `false` if there were none, or all must wait.
pub(crate) fn discard_some(engine: &Engine, guard: Guard<'_>) -> bool {
    (0..CHUNKS_PER_SLICE).take_while(|_| discard_one(engine, guard)).count() > 0
}

fn discard_one(engine: &Engine, guard: Guard<'_>) -> bool {
    if !engine.shared().logs_have_room() {
        return false;
    }
    let Some(mut run) = lock(engine.garbage_chunks()).take() else { return false };
    let is_gone = discard_chunk(engine, guard, run.item, run.chunks - 1);
    run.chunks -= u32::from(is_gone);
    lock(engine.garbage_chunks()).put_back(run);
    is_gone
}

/// Removes one chunk; `false` if that must wait. On a tier an extent is found by its full position in hash order, which
/// the directory has; the entry of a chunk that is short enough to lie in a page is deferred, so that the footer
/// decides.
fn discard_chunk(engine: &Engine, guard: Guard<'_>, item: ItemId, index: u32) -> bool {
    let mut name = [0; 12];
    let key = engine.hasher().chunk_key(item, index, &mut name);
    let shard = &engine.shards()[engine.hasher().shard(key.hash())];
    let name = engine.hasher().name(key.hash());
    let mut locked = shard.lock(engine.shared(), guard);
    if let Some((resident, _, at)) = shard.find_resident(engine.shared(), guard, &key, name.pos) {
        locked.log_tombstone_of_origin(name, &resident);
        locked.unlink_origin(name, &resident);
        locked.forget(name.pos, &resident, at);
        return true;
    }
    let candidates = locked.candidates(name);
    let held = candidates.iter().find_map(|sealed| {
        let mut extents = shard.segments().extents(sealed.number);
        Some((sealed, extents.find(|extent| extent.pos() == name.pos)?))
    });
    if let Some((sealed, extent)) = held {
        locked.log_tombstone(name, sealed.number);
        locked.unlink(name, sealed.number, Some(extent.record_bytes()));
        return true;
    }
    let may_defer = locked.may_take_out(&candidates) && locked.has_room_to_defer(&candidates);
    for sealed in candidates.iter().filter(|_| may_defer) {
        locked.log_tombstone(name, sealed.number);
        locked.defer(name, sealed.number);
    }
    may_defer
}
