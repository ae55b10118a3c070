//! The chunks of large items: how those of items that are gone are removed, and what keeps them until then.

use crate::dram::memory::Guard;
use crate::facade::cache::{Cache, Engine};
use crate::platform::lock::lock;
use crate::records::manifest::{ItemId, Manifest, Run};
use crate::records::record::Record;
use crate::shard::Shard;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Chunks that are removed per slice, at most: more than a slice seals, which may replace as many.
const CHUNKS_PER_SLICE: usize = 64;

/// The chunks of items that are gone.
#[derive(Default)]
pub(crate) struct Doomed {
    /// Those that are still to be removed.
    runs: Vec<Run>,
    /// Items of which somebody removes a chunk at this moment.
    removing: Vec<ItemId>,
    /// Items whose chunks are being stored: nothing owns them yet.
    uploads: HashSet<ItemId>,
    /// Items that are being sent, and to how many clients: they are removed after that.
    pinned: HashMap<ItemId, u32>,
}

impl Doomed {
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    /// The run to remove a chunk of.
    fn take(&mut self) -> Option<Run> {
        let is_free = |run: &Run| !self.pinned.contains_key(&run.item);
        let run = self.runs.remove(self.runs.iter().rposition(is_free)?);
        self.removing.push(run.item);
        Some(run)
    }

    /// What is left of a run that was taken.
    fn put_back(&mut self, run: Run) {
        if let Some(at) = self.removing.iter().position(|&item| item == run.item) {
            self.removing.swap_remove(at);
        }
        self.runs.extend(Some(run).filter(|run| run.chunks > 0));
    }

    /// Says whether it came in time: no chunk of these items goes any more.
    fn pin(&mut self, items: &[ItemId]) -> bool {
        items.iter().for_each(|&item| *self.pinned.entry(item).or_default() += 1);
        !items.iter().any(|item| self.removing.contains(item))
    }

    fn unpin(&mut self, item: ItemId) {
        if let Some(clients) = self.pinned.get_mut(&item) {
            *clients -= 1;
            if *clients == 0 {
                self.pinned.remove(&item);
            }
        }
    }
}

/// Keeps the chunks of a large item that is being sent while it is replaced, deleted, or expires. Those that a
/// full cache lets go of are gone all the same, and so are all of them after [`Cache::flush_all`], which takes back
/// whole segments and waits for nobody.
pub struct Pin {
    cache: Arc<Cache>,
    items: Vec<ItemId>,
    in_time: bool,
}

impl Pin {
    /// See [`crate::Session::pin`].
    pub(crate) fn new(cache: &Arc<Cache>, manifest: &Manifest) -> Self {
        let items: Vec<_> = manifest.runs.iter().map(|run| run.item).collect();
        let in_time = lock(&cache.engine.doomed).pin(&items);
        Self { cache: Arc::clone(cache), items, in_time }
    }

    /// Whether the chunks that are there stay. If not, they are being removed: the item is not its key's any more.
    pub(crate) fn is_in_time(&self) -> bool {
        self.in_time
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut doomed = lock(&self.cache.engine.doomed);
        self.items.iter().for_each(|&item| doomed.unpin(item));
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pin").field(&self.items).finish()
    }
}

impl Engine {
    /// Begins the upload of a large item.
    pub(crate) fn begin_item(&self) -> ItemId {
        let mut doomed = lock(&self.doomed);
        let item = ItemId(self.next_item());
        doomed.uploads.insert(item);
        item
    }

    /// Uploads are over: a manifest owns the chunks, or they are removed.
    pub(crate) fn end_uploads(&self, runs: &[Run]) {
        let mut doomed = lock(&self.doomed);
        runs.iter().for_each(|run| _ = doomed.uploads.remove(&run.item));
    }

    /// The uploads that are under way, and the number of the next item.
    pub(crate) fn uploads(&self) -> (HashSet<ItemId>, u64) {
        let doomed = lock(&self.doomed);
        (doomed.uploads.clone(), self.next_item.load(Ordering::Relaxed))
    }

    /// Has the chunks of items that are gone removed in the background.
    pub(crate) fn discard_runs(&self, runs: impl Iterator<Item = Run>) {
        lock(&self.doomed).runs.extend(runs.filter(|run| run.chunks > 0));
    }

    /// A record is gone: if it is a large item, so are its chunks.
    pub(crate) fn discard_chunks_of(&self, record: &Record<'_>) {
        if record.is_manifest {
            self.discard_runs(Manifest::decode(record.raw).runs.into_iter());
        }
    }

    /// As [`Engine::discard_chunks_of`], for the bytes of a record whose entry was dropped a moment ago. Where
    /// somebody changed it before that, what came of it is in DRAM and may have the same chunks.
    pub(crate) fn discard_chunks_of_dropped(&self, shard: &Shard, guard: Guard<'_>, bytes: &[u8]) {
        let Some((record, _)) = Record::decode(bytes) else { return };
        let key = self.hasher.key(record.key, record.is_chunk);
        let pos = self.hasher.name(key.hash).pos;
        let _locked = shard.lock(&self.pool, guard);
        if shard.find_resident(&self.pool, guard, &key, pos).is_none() {
            self.discard_chunks_of(&record);
        }
    }

    /// Removes some chunks of items that are gone. Says whether there were any that need not wait.
    pub(crate) fn discard_some(&self, guard: Guard<'_>) -> bool {
        (0..CHUNKS_PER_SLICE).take_while(|_| self.discard_one(guard)).count() > 0
    }

    fn discard_one(&self, guard: Guard<'_>) -> bool {
        if !self.pool.logs_have_room() {
            return false;
        }
        let Some(mut run) = lock(&self.doomed).take() else { return false };
        let is_gone = self.discard_chunk(guard, run.item, run.chunks - 1);
        run.chunks -= u32::from(is_gone);
        lock(&self.doomed).put_back(run);
        is_gone
    }

    /// Removes one chunk; `false` if that has to wait. On flash it is told by its position in hash order,
    /// which for an extent the directory holds in full; the entry of a chunk short enough to lie in a
    /// page is suspended, so that the footer decides.
    fn discard_chunk(&self, guard: Guard<'_>, item: ItemId, index: u32) -> bool {
        let mut name = [0; 12];
        let key = self.hasher.chunk_key(item, index, &mut name);
        let shard = &self.shards[self.hasher.shard(key.hash)];
        let name = self.hasher.name(key.hash);
        let mut locked = shard.lock(&self.pool, guard);
        if let Some((resident, _, at)) = shard.find_resident(&self.pool, guard, &key, name.pos) {
            locked.log_kill_origin(name, &resident);
            locked.unlink_origin(name, &resident);
            locked.forget(name.pos, &resident, at);
            return true;
        }
        let candidates = locked.candidates(name);
        let held = candidates.iter().find_map(|sealed| {
            let mut extents = shard.segments.extents(sealed.number);
            Some((sealed, extents.find(|extent| extent.pos == name.pos)?))
        });
        if let Some((sealed, extent)) = held {
            locked.log_kill(name, sealed.number);
            locked.unlink(name, sealed.number, Some(extent.record_bytes()));
            return true;
        }
        let may_suspend =
            locked.may_take_out(&candidates) && locked.has_room_to_suspend(&candidates);
        for sealed in candidates.iter().filter(|_| may_suspend) {
            locked.log_kill(name, sealed.number);
            locked.suspend(name, sealed.number);
        }
        may_suspend
    }
}
