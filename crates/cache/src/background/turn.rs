//! Which part of the background takes back the next segment when a tier level is full.
//!
//! Each part has segments of its own shards, and frees them at its own pace. So that what is evicted is old by
//! the age of the whole level and not of a part, a part whose oldest segment is much younger than the oldest of
//! all leaves the next one to the part that has it.

use crate::background::reclaim::{Victim, segments_on};
use crate::engine::Engine;

/// A segment is taken back while at most this part of the level's segments is older.
const OLDER_PART: usize = 64;
/// A part waits for another for at most this many slices, since that one may be unable to go on.
const SLICES_MAX: u32 = 1000;

/// How long a part has been waiting for another.
#[derive(Default)]
pub(crate) struct Turn {
    /// The age of the segment that another part has to take back first, ...
    oldest: u64,
    /// ... and how many slices ago that was found.
    slices: u32,
}

impl Turn {
    /// Whether the oldest segment of the part is old enough by the age of all, or was waited for long enough.
    pub(crate) fn has_come(&mut self, engine: &Engine, level: u16, victim: Victim) -> bool {
        let (mut older, mut oldest, mut all) = (0, u64::MAX, 0);
        let age = engine.shards()[victim.shard].segments().age(victim.sealed.number);
        for other in ages(engine, level) {
            all += 1;
            older += usize::from(other < age);
            oldest = oldest.min(other);
        }
        if older * OLDER_PART <= all {
            return true;
        }
        if self.oldest != oldest {
            *self = Self { oldest, slices: 0 };
        }
        self.slices = self.slices.saturating_add(1);
        // A drive that does not answer holds up the part that waits for it.
        self.slices > SLICES_MAX || engine.shared().slots().is_any_silent()
    }
}

/// Ages of all segments of a level that hold something.
fn ages(engine: &Engine, level: u16) -> impl Iterator<Item = u64> {
    segments_on(engine, 0..engine.shards().len(), level).filter_map(|(shard, sealed)| {
        let segments = engine.shards()[shard].segments();
        let is_alive = segments.usage(sealed.number).live_records() > 0;
        is_alive.then(|| segments.age(sealed.number))
    })
}
