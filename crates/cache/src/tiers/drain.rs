//! Drains: a tier gets no new segments, and background work moves its records to other tiers. A drain lasts as long as
//! the process, and nothing of it is written.

use crate::platform::lock::lock;
use crate::stats::DrainMode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The values of [`Drain::wish`].
mod wish {
    pub(super) const NONE: u8 = 0;
    pub(super) const KEEP_ALL: u8 = 1;
    pub(super) const DROP_OLDEST: u8 = 2;
    pub(super) const REMOVED: u8 = 3;
    pub(super) const JOINING: u8 = 4;
}

/// The drain of a tier.
#[derive(Default)]
pub(crate) struct Drain {
    /// One of [`wish`].
    wish: AtomicU8,
    /// No other tier had room when that was last looked at.
    has_no_room: AtomicBool,
    /// Unix seconds when it began, and the bytes of live records at that time.
    began: AtomicU32,
    began_with: AtomicU64,
    /// When that was, for its rate.
    began_at: Mutex<Option<Instant>>,
}

impl Drain {
    /// Of a tier that is not in the roster yet.
    pub(crate) fn joining() -> Self {
        Self { wish: AtomicU8::new(wish::JOINING), ..Self::default() }
    }

    /// The tier is in the roster now, and gets segments.
    pub(crate) fn end_joining(&self) {
        self.wish.store(wish::NONE, Ordering::Release);
    }

    fn wish(&self) -> u8 {
        self.wish.load(Ordering::Acquire)
    }

    /// What the drain of the tier may do, if there is one.
    pub(crate) fn mode(&self) -> Option<DrainMode> {
        match self.wish() {
            wish::KEEP_ALL => Some(DrainMode::KeepAll),
            wish::DROP_OLDEST => Some(DrainMode::DropOldest),
            _ => None,
        }
    }

    /// Whether the tier gets no new segments because it is being drained, was removed, or is not in the
    /// roster yet.
    pub(crate) fn is_any(&self) -> bool {
        self.wish() != wish::NONE
    }

    /// Whether the tier left the cache for as long as the process lives.
    pub(crate) fn is_removed(&self) -> bool {
        self.wish() == wish::REMOVED
    }

    /// Begins a drain, or changes the mode of one. `now` is in unix seconds; `live_bytes` are its live records.
    pub(crate) fn begin(&self, mode: DrainMode, now: u32, live_bytes: u64) {
        if !self.is_any() {
            self.began.store(now, Ordering::Relaxed);
            *lock(&self.began_at) = Some(Instant::now());
            self.began_with.store(live_bytes, Ordering::Relaxed);
        }
        self.note_room(true);
        let wish = match mode {
            DrainMode::KeepAll => wish::KEEP_ALL,
            DrainMode::DropOldest => wish::DROP_OLDEST,
        };
        self.wish.store(wish, Ordering::Release);
    }

    /// Ends a drain; `false` if there was none.
    pub(crate) fn end(&self) -> bool {
        let is_drain = |wish| matches!(wish, wish::KEEP_ALL | wish::DROP_OLDEST);
        let end = |wish| is_drain(wish).then_some(wish::NONE);
        self.wish.fetch_update(Ordering::AcqRel, Ordering::Acquire, end).is_ok()
    }

    /// Takes the tier out of use, for as long as the process lives.
    pub(crate) fn set_removed(&self) {
        self.wish.store(wish::REMOVED, Ordering::Release);
    }

    /// Records whether other tiers have room for its records.
    pub(crate) fn note_room(&self, has_room: bool) {
        self.has_no_room.store(!has_room, Ordering::Relaxed);
    }

    /// Whether its drain waits for room on other tiers.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.has_no_room.load(Ordering::Relaxed)
    }

    /// How long it has lasted.
    pub(crate) fn lasted(&self) -> Duration {
        lock(&self.began_at).map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// Unix seconds when the drain began, and the bytes of live records at that time.
    pub(crate) fn began(&self) -> (u32, u64) {
        let Self { began, began_with, .. } = self;
        (began.load(Ordering::Relaxed), began_with.load(Ordering::Relaxed))
    }
}
