//! Decides which partition of the background reclaims the next segment when a tier level is full, and which moves the
//! next one when tiers are drained.
//!
//! Each partition takes segments of its own shards, at its own pace. Evicted records should be old by the age of the
//! whole level, and a drain should not end with one partition alone. So a partition with an oldest segment that is much
//! younger than the oldest of these tiers lets the partition with that one go first.

use crate::background::reclaim::{Sources, Victim};
use crate::engine::Engine;

/// A segment may be reclaimed if at most a 64th of the segments is older.
pub(crate) const OLDER_PART: usize = 64;
/// A partition waits for another one for at most 1000 slices, since that one may be unable to go on.
const SLICES_MAX: u32 = 1000;

/// The time that a partition has waited for another one.
#[derive(Default)]
pub(crate) struct Turn {
    /// The age of the segment that another partition must take first, ...
    oldest: u64,
    /// ... and the slices since that was found.
    slices: u32,
}

impl Turn {
    /// Whether the oldest segment of the partition is old enough among these tiers', or it has waited long enough.
    /// It may be taken if at most one in `older_part` is older.
    pub(crate) fn has_come(
        &mut self,
        engine: &Engine,
        sources: &Sources,
        victim: Victim,
        older_part: usize,
    ) -> bool {
        let (mut older, mut oldest, mut all) = (0, u64::MAX, 0);
        let age = engine.shards()[victim.shard].segments().age(victim.sealed.number);
        for other in ages(engine, sources) {
            all += 1;
            older += usize::from(other < age);
            oldest = oldest.min(other);
        }
        if older * older_part <= all {
            return true;
        }
        if self.oldest != oldest {
            *self = Self { oldest, slices: 0 };
        }
        self.slices = self.slices.saturating_add(1);
        // An unresponsive drive holds up the partition that waits for it.
        self.slices > SLICES_MAX || engine.shared().slots().is_any_silent()
    }
}

/// Ages of all segments of some tiers with live records.
fn ages(engine: &Engine, sources: &Sources) -> impl Iterator<Item = u64> {
    sources.segments(engine, 0..engine.shards().len()).filter_map(|(shard, sealed)| {
        let segments = engine.shards()[shard].segments();
        let is_alive = segments.usage(sealed.number).live_records() > 0;
        is_alive.then(|| segments.age(sealed.number))
    })
}
