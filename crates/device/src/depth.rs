//! How many reads a drive gets at once: begun at what was measured of it, adapted to what it does.

use std::time::Duration;

/// Completed reads of a window: their mean latency is compared with that of the next.
const WINDOW: u32 = 512;
/// So many windows between two trials of another depth.
const REST: u32 = 16;
/// Twice as many reads in flight must bring so much more, to be worth it; as `terrace probe` counts
/// the knee.
const WORTH: f64 = 1.05;

/// The depth for one drive and one worker.
///
/// While reads wait for room, reads per second are the depth divided by their mean latency. From time
/// to time twice or half as many are tried for a window: more stay if they bring at least a twentieth
/// more, fewer stay if they cost less than that. What only queues waits here, where it costs no
/// latency of other reads.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    depth: u32,
    most: u32,
    /// Sum and number of the latencies of this window.
    nanos: u64,
    reads: u32,
    /// Windows since the last trial.
    rested: u32,
    /// Which way the next trial goes.
    up_next: bool,
    /// What is being tried, and since what.
    trial: Option<Trial>,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    from: u32,
    /// Reads per second at `from`.
    rate: f64,
}

impl Depth {
    /// Begins with `start` reads; never more than `most`, never fewer than one.
    pub fn new(start: u32, most: u32) -> Self {
        let most = most.max(1);
        Self {
            depth: start.clamp(1, most),
            most,
            nanos: 0,
            reads: 0,
            rested: 0,
            up_next: true,
            trial: None,
        }
    }

    /// Reads that may be in flight now.
    pub fn now(&self) -> u32 {
        self.depth
    }

    /// Notes a completed read. `was_full` says that further reads waited for room meanwhile: else the drive was
    /// not asked for all that it can do, and its latency says nothing.
    pub fn note(&mut self, took: Duration, was_full: bool) {
        if !was_full {
            return;
        }
        self.nanos = self.nanos.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.reads += 1;
        if self.reads >= WINDOW {
            self.end_window();
        }
    }

    fn end_window(&mut self) {
        let latency = self.nanos.max(1) as f64 / f64::from(self.reads) / 1e9;
        let rate = f64::from(self.depth) / latency;
        (self.nanos, self.reads) = (0, 0);
        match self.trial.take() {
            Some(Trial { from, rate: before }) => {
                let stays =
                    if self.depth > from { rate >= before * WORTH } else { rate * WORTH > before };
                if !stays {
                    self.depth = from;
                    self.up_next = !self.up_next;
                    self.rested = 0;
                } else {
                    // What was gained that way once may be there once more.
                    self.rested = REST;
                }
            }
            None if self.rested < REST => self.rested += 1,
            None => self.begin_trial(rate),
        }
    }

    fn begin_trial(&mut self, rate: f64) {
        let from = self.depth;
        let other = if self.up_next { (from * 2).min(self.most) } else { (from / 2).max(1) };
        if other == from {
            self.up_next = !self.up_next;
            return;
        }
        self.depth = other;
        self.trial = Some(Trial { from, rate });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive that serves `lanes` reads side by side in `us` each, while the rest queue.
    fn run(depth: &mut Depth, lanes: u32, us: f64, reads: u32) {
        for _ in 0..reads {
            let queued = (f64::from(depth.now()) / f64::from(lanes)).max(1.0);
            depth.note(Duration::from_nanos((us * queued * 1000.0) as u64), true);
        }
    }

    /// Depths right after each window that is no trial.
    fn settled(depth: &Depth) -> u32 {
        depth.trial.map_or(depth.depth, |trial| trial.from)
    }

    #[test]
    fn it_finds_the_knee_from_below_and_from_above() {
        for start in [1, 4, 128] {
            let mut depth = Depth::new(start, 128);
            run(&mut depth, 32, 100.0, 400 * WINDOW);
            assert_eq!(settled(&depth), 32, "from {start}");
        }
    }

    #[test]
    fn it_follows_a_drive_that_changes() {
        let mut depth = Depth::new(32, 128);
        run(&mut depth, 32, 100.0, 100 * WINDOW);
        assert_eq!(settled(&depth), 32);
        run(&mut depth, 4, 100.0, 400 * WINDOW);
        assert_eq!(settled(&depth), 4);
        run(&mut depth, 64, 80.0, 400 * WINDOW);
        assert_eq!(settled(&depth), 64);
    }

    #[test]
    fn trials_are_few() {
        let mut depth = Depth::new(32, 128);
        let mut other = 0;
        for _ in 0..1000 {
            run(&mut depth, 32, 100.0, WINDOW);
            other += u32::from(depth.now() != 32);
        }
        assert!(other <= 1000 / REST, "{other} of 1000 windows");
    }

    #[test]
    fn bounds_hold_and_idle_reads_say_nothing() {
        let mut depth = Depth::new(0, 0);
        run(&mut depth, 1000, 100.0, 100 * WINDOW);
        assert_eq!(depth.now(), 1);
        let mut depth = Depth::new(500, 128);
        assert_eq!(depth.now(), 128);
        (0..1_000_000).for_each(|at| depth.note(Duration::from_micros(at % 900), false));
        assert_eq!(depth.now(), 128);
        // A drive whose reads take no time, or for ever.
        (0..WINDOW * 100).for_each(|_| depth.note(Duration::ZERO, true));
        (0..WINDOW * 100).for_each(|_| depth.note(Duration::MAX, true));
        assert!((1..=128).contains(&depth.now()));
    }
}
