//! The coarse clock that expiry goes by.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since 1970. Set by the wall clock once and driven by the monotonic one from then on, so
/// that nobody who sets the wall clock back brings expired records to life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Unix time at monotonic time 0.
    origin_s: i64,
    started_unix_s: u32,
}

impl Clock {
    /// `floor` is the latest time that was acted on before a restart: a wall clock that was set back
    /// since does not count.
    pub(crate) fn new(floor: u32) -> Self {
        let wall_s = clock_gettime(ClockId::Realtime).tv_sec.max(floor.into());
        let origin_s = wall_s - monotonic_s();
        Self { origin_s, started_unix_s: to_unix(origin_s + monotonic_s()) }
    }

    /// Unix time in seconds. Costs a few nanoseconds (no system call).
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        to_unix(self.origin_s + monotonic_s())
    }

    /// Seconds since the clock was made.
    pub(crate) fn uptime(&self) -> u32 {
        self.now() - self.started_unix_s
    }
}

fn monotonic_s() -> i64 {
    clock_gettime(ClockId::MonotonicCoarse).tv_sec
}

fn to_unix(seconds: i64) -> u32 {
    seconds.clamp(1, i64::from(u32::MAX)) as u32
}
