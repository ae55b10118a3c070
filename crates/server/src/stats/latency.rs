//! How long things take: log-linear histograms that a worker fills without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_cache::TIERS_MAX;
use terrace_protocol::{BinaryCommand, MetaCommand, Request};
use terrace_runtime::reads::Meter;

/// Steps between a power of two and the next: a value is known to 1/16, about 6 %.
const STEPS_BITS: u32 = 4;
const STEPS: usize = 1 << STEPS_BITS;
/// Up to 2^37 nanoseconds, about two minutes; what takes longer counts as that.
const POWERS: usize = 33;
const BUCKETS: usize = (POWERS + 1) * STEPS;
/// One in so many commands that need no drive is measured: looking at the clock twice takes longer
/// than some of them.
const SAMPLE: u32 = 64;

/// What a request asks for, as far as its time is told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Command {
    #[default]
    Get,
    Set,
    Delete,
    Arithmetic,
    Touch,
    /// What names no key: `stats`, `version`, `mn` and the like.
    Other,
}

impl Command {
    /// All of them, with the names that metrics call them.
    pub(crate) const ALL: [(Self, &'static str); 6] = [
        (Self::Get, "get"),
        (Self::Set, "set"),
        (Self::Delete, "delete"),
        (Self::Arithmetic, "incr"),
        (Self::Touch, "touch"),
        (Self::Other, "other"),
    ];

    pub(crate) fn of(request: &Request<'_>) -> Self {
        match request {
            Request::Store(_) => Self::Set,
            Request::Delete(_) => Self::Delete,
            Request::Arith(_) => Self::Arithmetic,
            Request::Touch(_) => Self::Touch,
            Request::Binary(binary) => Self::of_binary(&binary.command),
            Request::Meta(meta) => match meta.command {
                MetaCommand::Get | MetaCommand::Debug => Self::Get,
                MetaCommand::Set { .. } => Self::Set,
                MetaCommand::Delete => Self::Delete,
                MetaCommand::Arith => Self::Arithmetic,
            },
            Request::Keys(_) => Self::Get,
            Request::MetaNoop | Request::Admin(_) => Self::Other,
        }
    }

    fn of_binary(command: &BinaryCommand<'_>) -> Self {
        match command {
            BinaryCommand::Get(_) => Self::Get,
            BinaryCommand::Store(_) => Self::Set,
            BinaryCommand::Delete { .. } => Self::Delete,
            BinaryCommand::Arith(_) => Self::Arithmetic,
            BinaryCommand::Touch { .. } => Self::Touch,
            _ => Self::Other,
        }
    }
}

/// One for each command.
type Commands = [Histogram; Command::ALL.len()];

fn new_commands() -> Commands {
    std::array::from_fn(|_| Histogram::new())
}

#[derive(Debug)]
struct Histogram(Box<[AtomicU64]>);

impl Histogram {
    fn new() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts `times` of one duration. Only its own worker calls this.
    fn record(&self, took: Duration, times: u64) {
        let bucket = &self.0[bucket(took)];
        bucket.store(bucket.load(Ordering::Relaxed) + times, Ordering::Relaxed);
    }
}

/// One worker's latencies, and how many reads at once follow from them.
#[derive(Debug)]
pub(crate) struct Latency {
    /// Reads, by tier; made with the first read of each.
    tiers: Vec<OnceLock<Histogram>>,
    /// Commands that DRAM alone answered, ...
    commands: Commands,
    /// ... and those that needed a tier, by tier; made with the first of each.
    commands_of_tiers: Vec<OnceLock<Commands>>,
    /// Counts commands, for the choice of those that are measured.
    seen: AtomicU64,
    /// Reads that a tier may have in flight.
    depths: Vec<AtomicU32>,
}

impl Latency {
    /// For a cache with tiers, or that gets some, or with none at all.
    pub(crate) fn new(has_tiers: bool) -> Self {
        let tiers = if has_tiers { TIERS_MAX } else { 0 };
        Self {
            tiers: (0..tiers).map(|_| OnceLock::new()).collect(),
            commands: new_commands(),
            commands_of_tiers: (0..tiers).map(|_| OnceLock::new()).collect(),
            seen: AtomicU64::new(0),
            depths: (0..tiers).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Reads that a tier may have in flight.
    pub(crate) fn depth(&self, tier: usize) -> u32 {
        self.depths.get(tier).map_or(0, |depth| depth.load(Ordering::Relaxed))
    }

    /// Begins to measure a command, if it is one of those that are.
    #[inline]
    pub(crate) fn sample(&self) -> Option<Instant> {
        let seen = self.seen.load(Ordering::Relaxed);
        self.seen.store(seen + 1, Ordering::Relaxed);
        seen.is_multiple_of(SAMPLE.into()).then(Instant::now)
    }

    /// Counts a command that DRAM answered, in place of those that were not measured.
    #[inline]
    pub(crate) fn record_sample(&self, command: Command, since: Option<Instant>) {
        if let Some(since) = since {
            self.commands[command as usize].record(since.elapsed(), SAMPLE.into());
        }
    }

    /// Counts a command that needed a tier.
    pub(crate) fn record_command(&self, command: Command, tier: usize, took: Duration) {
        if let Some(histograms) = self.commands_of_tiers.get(tier) {
            histograms.get_or_init(new_commands)[command as usize].record(took, 1);
        }
    }

    pub(crate) fn reset(&self) {
        let of_tiers = self.commands_of_tiers.iter().filter_map(OnceLock::get).flatten();
        let reads = self.tiers.iter().filter_map(OnceLock::get);
        let all = self.commands.iter().chain(of_tiers).chain(reads);
        all.flat_map(|histogram| &histogram.0).for_each(|b| b.store(0, Ordering::Relaxed));
    }
}

/// Only its own worker calls these.
impl Meter for Latency {
    fn note_read(&self, tier: usize, took: Duration) {
        if let Some(histogram) = self.tiers.get(tier) {
            histogram.get_or_init(Histogram::new).record(took, 1);
        }
    }

    fn note_depth(&self, tier: usize, depth: u32) {
        if let Some(noted) = self.depths.get(tier) {
            noted.store(depth, Ordering::Relaxed);
        }
    }
}

/// The latencies of all workers, added up.
#[derive(Debug)]
pub(crate) struct Percentiles {
    buckets: Vec<u64>,
}

impl Percentiles {
    /// Of reads at one tier.
    pub(crate) fn of<'a>(all: impl Iterator<Item = &'a Latency>, tier: usize) -> Self {
        Self::sum(all.filter_map(|latency| latency.tiers.get(tier)?.get()))
    }

    /// Of a command; `tier` is `None` where DRAM answered it.
    pub(crate) fn of_command<'a>(
        all: impl Iterator<Item = &'a Latency>,
        command: Command,
        tier: Option<usize>,
    ) -> Self {
        Self::sum(all.filter_map(|latency| {
            let histograms = match tier {
                Some(tier) => latency.commands_of_tiers.get(tier)?.get()?,
                None => &latency.commands,
            };
            Some(&histograms[command as usize])
        }))
    }

    fn sum<'a>(all: impl Iterator<Item = &'a Histogram>) -> Self {
        let mut buckets = vec![0; BUCKETS];
        for histogram in all {
            for (sum, count) in buckets.iter_mut().zip(&histogram.0) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        Self { buckets }
    }

    /// Those that came after an earlier sum of the same; all of them if they were reset since.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let pairs = || self.buckets.iter().zip(&before.buckets);
        if pairs().any(|(now, before)| now < before) {
            return Self { buckets: self.buckets.clone() };
        }
        Self { buckets: pairs().map(|(now, before)| now - before).collect() }
    }

    /// The time, in microseconds, that `share` (0 to 1) of them took at most; 0 if there are none.
    pub(crate) fn micros(&self, share: f64) -> u64 {
        self.nanos(share) / 1000
    }

    /// The same in nanoseconds.
    pub(crate) fn nanos(&self, share: f64) -> u64 {
        let total: u64 = self.buckets.iter().sum();
        let wanted = (total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_nanos(bucket);
            }
        }
        0
    }

    /// How many took less than 2^`power` nanoseconds.
    pub(crate) fn below_power(&self, power: u32) -> u64 {
        let end = (power.saturating_sub(STEPS_BITS) as usize + 1) * STEPS;
        self.buckets[..end.min(BUCKETS)].iter().sum()
    }

    /// All of them.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The seconds that they took together, at most 1/16 too many.
    pub(crate) fn seconds(&self) -> f64 {
        let nanos = |(bucket, &count): (usize, &u64)| upper_nanos(bucket) as f64 * count as f64;
        self.buckets.iter().enumerate().map(nanos).sum::<f64>() / 1e9
    }
}

fn bucket(took: Duration) -> usize {
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let power = nanos.ilog2() - STEPS_BITS;
    let step = (nanos >> power) as usize - STEPS;
    ((power as usize + 1) * STEPS + step).min(BUCKETS - 1)
}

/// The largest value that falls into a bucket.
fn upper_nanos(bucket: usize) -> u64 {
    match (bucket / STEPS, (bucket % STEPS) as u64) {
        (0, step) => step,
        (power, step) => ((step + STEPS as u64 + 1) << (power - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_below_the_end_of_its_bucket_and_close_to_it() {
        for nanos in (0..5000).chain([1 << 20, (1 << 36) - 1]) {
            let end = upper_nanos(bucket(Duration::from_nanos(nanos)));
            assert!(end >= nanos && end <= nanos + nanos / 16, "{nanos} in a bucket to {end}");
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_over_workers() {
        let workers = [Latency::new(true), Latency::new(true)];
        assert_eq!(Percentiles::of(workers.iter(), 1).micros(0.5), 0);
        (0..98).for_each(|_| workers[0].note_read(1, Duration::from_micros(10)));
        (0..2).for_each(|_| workers[1].note_read(1, Duration::from_micros(1000)));
        workers[1].note_read(7, Duration::ZERO);
        let all = Percentiles::of(workers.iter(), 1);
        assert_eq!((all.micros(0.5), all.micros(0.98)), (10, 10));
        assert!((1000..1064).contains(&all.micros(0.99)));
        // 10 us lie between 2^13 and 2^14 ns.
        assert_eq!((all.below_power(13), all.below_power(14), all.count()), (0, 98, 100));
        assert!((0.002_98..0.003_2).contains(&all.seconds()), "{}", all.seconds());
        (0..5).for_each(|_| workers[0].note_read(1, Duration::from_micros(1000)));
        let later = Percentiles::of(workers.iter(), 1);
        assert_eq!((later.since(&all).count(), later.count()), (5, 105));
        assert!((1000..1064).contains(&later.since(&all).micros(0.01)));
        workers.iter().for_each(Latency::reset);
        workers[0].note_read(1, Duration::from_micros(10));
        assert_eq!(Percentiles::of(workers.iter(), 1).since(&later).count(), 1);
        workers.iter().for_each(Latency::reset);
        assert_eq!(Percentiles::of(workers.iter(), 1).micros(0.99), 0);
    }

    #[test]
    fn samples_stand_for_all() {
        let latency = Latency::new(false);
        for _ in 0..640 {
            let since = latency.sample();
            latency.record_sample(Command::Set, since);
        }
        let count =
            |command| Percentiles::of_command([&latency].into_iter(), command, None).count();
        assert_eq!((count(Command::Set), count(Command::Get)), (640, 0));
    }

    #[test]
    fn requests_of_either_protocol_are_told_apart() {
        let command = |bytes: &[u8]| {
            let mut parser = terrace_protocol::Parser::new(terrace_protocol::Protocol::Auto);
            match parser.parse(bytes) {
                terrace_protocol::Parse::Request { request, .. } => Command::of(&request),
                other => panic!("{other:?}"),
            }
        };
        let binary = |opcode, key: &[u8]| {
            let length = key.len() as u8;
            let header = [&[0x80, opcode, 0, length][..], &[0; 7], &[length], &[0; 12]].concat();
            command(&[&header, key].concat())
        };
        assert_eq!((command(b"get k\r\n"), binary(0, b"k")), (Command::Get, Command::Get));
        assert_eq!((command(b"md k\r\n"), binary(4, b"k")), (Command::Delete, Command::Delete));
        assert_eq!((command(b"stats\r\n"), binary(0x10, b"")), (Command::Other, Command::Other));
        assert_eq!((command(b"mn\r\n"), binary(0x0a, b"")), (Command::Other, Command::Other));
    }
}
