//! The coarse clock that expiry goes by.

use rustix::time::{ClockId, clock_gettime};

const SECOND_NS: i64 = 1_000_000_000;

/// Seconds since 1970. Set by the wall clock once and driven by the monotonic one from then on, so
/// that nobody who sets the wall clock back brings expired records to life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Unix time at monotonic time 0. In nanoseconds, since the seconds of both clocks begin at different moments.
    origin_ns: i64,
    started_unix_s: u32,
}

impl Clock {
    /// `floor` is the latest time that was acted on before a restart: a wall clock that was set back
    /// since does not count.
    pub(crate) fn new(floor: u32) -> Self {
        // By the exact clocks, since the coarse one is late by up to a tick, which would be ahead from then on.
        let wall_ns = nanoseconds(ClockId::Realtime) - nanoseconds(ClockId::Monotonic);
        let floor_ns = i64::from(floor) * SECOND_NS - nanoseconds(ClockId::MonotonicCoarse);
        let mut clock = Self { origin_ns: wall_ns.max(floor_ns), started_unix_s: 0 };
        clock.started_unix_s = clock.now();
        clock
    }

    /// Unix time in seconds. Costs a few nanoseconds (no system call).
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        let seconds = (self.origin_ns + nanoseconds(ClockId::MonotonicCoarse)) / SECOND_NS;
        seconds.clamp(1, i64::from(u32::MAX)) as u32
    }

    /// Seconds since the clock was made.
    pub(crate) fn uptime(&self) -> u32 {
        self.now() - self.started_unix_s
    }
}

fn nanoseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * SECOND_NS + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_begin_when_those_of_the_wall_clock_do() {
        let clock = Clock::new(0);
        // A tick of the coarse clock, and how long another may have the processor meanwhile.
        let late_ns = 200_000_000;
        let end = nanoseconds(ClockId::Monotonic) + SECOND_NS;
        while nanoseconds(ClockId::Monotonic) < end {
            let before_ns = nanoseconds(ClockId::Realtime);
            let now_ns = i64::from(clock.now()) * SECOND_NS;
            let after_ns = nanoseconds(ClockId::Realtime);
            assert!(now_ns <= after_ns, "{} ns ahead", now_ns - after_ns);
            assert!(now_ns + SECOND_NS > before_ns - late_ns, "{} ns behind", before_ns - now_ns);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn no_clock_begins_before_its_floor() {
        let floor = Clock::new(0).now() + 500;
        let clock = Clock::new(floor);
        assert!((floor..=floor + 1).contains(&clock.now()));
        assert!(clock.uptime() <= 1);
    }
}
