//! Pins: keep the chunks of a large item while it is sent.

use crate::engine::Engine;
use crate::platform::lock::lock;
use crate::records::manifest::{ItemId, Manifest};
use std::fmt;
use std::sync::Arc;

/// Keeps the chunks of a large item that is being sent, even if it is replaced or deleted or expires. A full cache
/// evicts chunks all the same, and [`crate::Cache::flush_all`], which drops whole segments, does not wait for pins.
pub struct Pin {
    engine: Arc<Engine>,
    items: Vec<ItemId>,
    in_time: bool,
}

impl Pin {
    /// See [`crate::Session::pin`].
    pub(crate) fn new(engine: &Arc<Engine>, manifest: &Manifest) -> Self {
        let items: Vec<_> = manifest.runs.iter().map(|run| run.item).collect();
        let in_time = lock(engine.garbage_chunks()).pin(&items);
        Self { engine: Arc::clone(engine), items, in_time }
    }

    /// Whether the chunks that are there stay. If not, they are being removed: the item is no longer its key's.
    pub(crate) fn is_in_time(&self) -> bool {
        self.in_time
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut garbage_chunks = lock(self.engine.garbage_chunks());
        self.items.iter().for_each(|&item| garbage_chunks.unpin(item));
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pin").field(&self.items).finish()
    }
}
