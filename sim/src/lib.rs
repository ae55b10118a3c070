//! A deterministic simulator of the whole cache.
//!
//! One seed decides everything: sizes, requests, the order in which connections, reads and background
//! work get their turns, what goes wrong with the drives, and at which moment the process or the
//! machine dies. The code that runs is the cache's own, on simulated drives, with a clock that is
//! passed in, on one thread. An oracle knows for every key what it may be; anything else that is
//! found is a failure, and the same seed shows it again.

mod connection;
mod context;
mod crash;
mod drains;
mod fault;
mod look;
mod members;
mod operation;
mod oracle;
mod random;
mod rest;
mod scenario;
mod thrift;
mod trace;
mod value;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// How a run is to be watched.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Prints what happens.
    pub prints: bool,
    /// The cache has several tiers, one below the other.
    pub is_ladder: bool,
    /// Whether drives answer nothing for a while, now and then.
    pub falls_silent: bool,
    /// Whether drives come and go between runs of the cache, in every run that has any.
    pub moves_drives: bool,
}

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Where in the run.
    pub step: u64,
    /// What was found and what was expected.
    pub what: String,
    /// What happened to the key before, oldest first.
    pub events: Vec<String>,
}

/// What happened in a run, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Turns.
    pub steps: u64,
    /// Clients' operations that came to an end.
    pub operations: u64,
    /// Reads that found a record.
    pub hits: u64,
    /// Hits that were read from a drive.
    pub flash_hits: u64,
    /// Operations that rightly found none.
    pub misses: u64,
    /// Operations that found none, where there was one once and losses are allowed.
    pub lost: u64,
    /// Large items of which a chunk was gone.
    pub broken: u64,
    /// Reads from drives for requests.
    pub reads: u64,
    /// Restarts of any kind.
    pub crashes: u64,
    /// Clean stops that came to their end.
    pub clean_stops: u64,
    /// Tiers that were added while the cache ran.
    pub joins: u64,
    /// Tiers that were removed.
    pub removals: u64,
    /// Starts that found nothing usable.
    pub cold_starts: u64,
    /// Records that were there when a process ended, and how many of them its successor had.
    pub held: u64,
    /// See [`Tally::held`].
    pub back: u64,
    /// As the last cache counted them.
    pub evictions: u64,
}

impl Tally {
    /// Adds another run's numbers.
    pub fn add(&mut self, other: &Tally) {
        let pairs = [
            (&mut self.steps, other.steps),
            (&mut self.operations, other.operations),
            (&mut self.hits, other.hits),
            (&mut self.flash_hits, other.flash_hits),
            (&mut self.misses, other.misses),
            (&mut self.lost, other.lost),
            (&mut self.broken, other.broken),
            (&mut self.reads, other.reads),
            (&mut self.crashes, other.crashes),
            (&mut self.clean_stops, other.clean_stops),
            (&mut self.joins, other.joins),
            (&mut self.removals, other.removals),
            (&mut self.cold_starts, other.cold_starts),
            (&mut self.held, other.held),
            (&mut self.back, other.back),
            (&mut self.evictions, other.evictions),
        ];
        for (sum, number) in pairs {
            *sum += number;
        }
    }
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What happened.
    pub tally: Tally,
    /// Equal for equal runs.
    pub digest: u64,
    /// What was wrong, if anything.
    pub failure: Option<Failure>,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    let run = AssertUnwindSafe(|| World::new(seed, &options).map(World::run));
    let failed = |what: String| Outcome {
        tally: Tally::default(),
        digest: 0,
        failure: Some(Failure { step: 0, what, events: Vec::new() }),
    };
    match catch_unwind(run) {
        Ok(Ok((tally, digest, failure))) => Outcome { tally, digest, failure },
        Ok(Err(error)) => failed(format!("the simulator can't begin: {error}")),
        Err(panic) => {
            terrace_cache::set_crash_hook(None);
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            failed(format!("a panic: {}", text.unwrap_or_default()))
        }
    }
}
