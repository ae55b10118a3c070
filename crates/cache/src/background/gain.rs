//! Whether reclaiming segments of a tier level gains anything.

use crate::engine::{Engine, fullness};
use std::sync::atomic::Ordering;

/// A round over as many segments as a tier level has gains something if a 32nd of the level's capacity is stored there
/// meanwhile.
const ROUND_LETS_IN: u64 = 32;

/// Segments reclaimed on a tier level since something was gained. Enough free slots alone are no gain: reinserted
/// records may wait in DRAM, and take the same slots once they are sealed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Round {
    /// Segments reclaimed.
    segments: u32,
    /// Most live bytes so far, on the level and in the write buffers.
    live: u64,
    /// Bytes that had been stored on the level when the round began.
    stored: u64,
}

impl Round {
    /// Begins a new round if this one has gained something.
    pub(crate) fn turn(&mut self, engine: &Engine, level: u16, is_enough: bool) {
        let waiting = engine.shared().counters().fresh_bytes().load(Ordering::Relaxed);
        let (live, stored) = (
            fullness::live_bytes_on(engine, level) + waiting,
            fullness::stored_bytes_on(engine, level),
        );
        self.live = self.live.max(live);
        let has_died = !engine.evicts() && live + engine.seal_bytes() <= self.live;
        // A client that sets without a pause takes each freed slot at once.
        let has_let_in =
            stored >= self.stored + engine.shared().slots().capacity_on(level) / ROUND_LETS_IN;
        let has_gained = if self.is_over(engine, level) { is_enough } else { has_let_in };
        if has_died || has_gained {
            *self = Self { segments: 0, live, stored };
        }
    }

    /// Long records leave gaps that no record fits into: without gain, reclaim would go on for ever after it has
    /// reclaimed as many segments as there are.
    pub(crate) fn is_over(&self, engine: &Engine, level: u16) -> bool {
        self.segments > engine.shared().slots().total_on(level)
    }

    /// Counts a segment that is reclaimed.
    pub(crate) fn count(&mut self) {
        self.segments = self.segments.saturating_add(1);
    }

    /// Counts none of the segments reclaimed so far.
    pub(crate) fn restart(&mut self) {
        self.segments = 0;
    }
}
