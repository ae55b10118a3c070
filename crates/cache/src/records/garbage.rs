//! The chunks of large items that are gone: what is still to be removed, and what keeps it until then.

use crate::records::manifest::{ItemId, Run};
use std::collections::{HashMap, HashSet};

/// The chunks of items that are gone.
#[derive(Default)]
pub(crate) struct GarbageChunks {
    /// Those that are still to be removed.
    runs: Vec<Run>,
    /// Items of which somebody removes a chunk at this moment.
    removing: Vec<ItemId>,
    /// Items whose chunks are being stored: nothing owns them yet.
    uploads: HashSet<ItemId>,
    /// Items that are being sent, and to how many clients: they are removed after that.
    pinned: HashMap<ItemId, u32>,
}

impl GarbageChunks {
    /// An upload begins: its chunks belong to nothing before its manifest is stored.
    pub(crate) fn begin_upload(&mut self, item: ItemId) {
        self.uploads.insert(item);
    }

    /// An upload is over.
    pub(crate) fn end_upload(&mut self, item: ItemId) {
        self.uploads.remove(&item);
    }

    /// The uploads that are under way.
    pub(crate) fn uploads(&self) -> HashSet<ItemId> {
        self.uploads.clone()
    }

    /// Has these chunks removed in time.
    pub(crate) fn add(&mut self, runs: impl Iterator<Item = Run>) {
        self.runs.extend(runs.filter(|run| run.chunks > 0));
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    /// The run to remove a chunk of.
    pub(crate) fn take(&mut self) -> Option<Run> {
        let is_free = |run: &Run| !self.pinned.contains_key(&run.item);
        let run = self.runs.remove(self.runs.iter().rposition(is_free)?);
        self.removing.push(run.item);
        Some(run)
    }

    /// What is left of a run that was taken.
    pub(crate) fn put_back(&mut self, run: Run) {
        if let Some(at) = self.removing.iter().position(|&item| item == run.item) {
            self.removing.swap_remove(at);
        }
        self.runs.extend(Some(run).filter(|run| run.chunks > 0));
    }

    /// Says whether it came in time: no chunk of these items goes any more.
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
