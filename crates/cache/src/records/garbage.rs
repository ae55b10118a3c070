//! Chunks of large items that are gone: which must still be removed, and which must stay until they were sent.

use crate::records::manifest::{ItemId, Run};
use std::collections::{HashMap, HashSet};

/// The chunks of items that are gone.
#[derive(Default)]
pub(crate) struct GarbageChunks {
    /// Runs of chunks that must still be removed.
    runs: Vec<Run>,
    /// Items of which a thread removes a chunk at this moment.
    removing: Vec<ItemId>,
    /// Items with chunks that are being stored: no manifest owns them yet.
    uploads: HashSet<ItemId>,
    /// Items that are being sent, with the number of clients: their chunks must stay until then.
    pinned: HashMap<ItemId, u32>,
}

impl GarbageChunks {
    /// Begins an upload: its chunks belong to no manifest before the upload ends.
    pub(crate) fn begin_upload(&mut self, item: ItemId) {
        self.uploads.insert(item);
    }

    /// Ends an upload.
    pub(crate) fn end_upload(&mut self, item: ItemId) {
        self.uploads.remove(&item);
    }

    /// The uploads that are in progress.
    pub(crate) fn uploads(&self) -> HashSet<ItemId> {
        self.uploads.clone()
    }

    /// Adds chunks that the background will remove.
    pub(crate) fn add(&mut self, runs: impl Iterator<Item = Run>) {
        self.runs.extend(runs.filter(|run| run.chunks > 0));
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    /// Takes a run to remove a chunk of; [`Self::put_back`] must follow.
    pub(crate) fn take(&mut self) -> Option<Run> {
        let is_free = |run: &Run| !self.pinned.contains_key(&run.item);
        let run = self.runs.remove(self.runs.iter().rposition(is_free)?);
        self.removing.push(run.item);
        Some(run)
    }

    /// Returns what is left of a run that was taken.
    pub(crate) fn put_back(&mut self, run: Run) {
        if let Some(at) = self.removing.iter().position(|&item| item == run.item) {
            self.removing.swap_remove(at);
        }
        self.runs.extend(Some(run).filter(|run| run.chunks > 0));
    }

    /// Keeps all chunks of the items; `false` if a thread is removing one of them at this moment.
    pub(crate) fn pin(&mut self, items: &[ItemId]) -> bool {
        items.iter().for_each(|&item| *self.pinned.entry(item).or_default() += 1);
        !items.iter().any(|item| self.removing.contains(item))
    }

    pub(crate) fn unpin(&mut self, item: ItemId) {
        if let Some(clients) = self.pinned.get_mut(&item) {
            *clients -= 1;
            if *clients == 0 {
                self.pinned.remove(&item);
            }
        }
    }
}
