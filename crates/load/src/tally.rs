//! What came back.

use hdrhistogram::Histogram;

/// Longest latency that is told apart, in nanoseconds: a minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 2;
/// How many unexpected answers are kept as examples.
const EXAMPLES_MAX: usize = 5;

/// Counts of one connection, one thread, or a run.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Requests that were answered.
    pub requests: u64,
    /// Of them, stores of records that were missed.
    pub missed_stores: u64,
    /// Keys whose value came back right.
    pub hits: u64,
    /// Keys that were not there.
    pub misses: u64,
    /// Keys whose value came back old, torn or foreign, or with wrong flags.
    pub wrong: u64,
    /// Of them, whole values of the record, but of another version, where this run has stored none.
    pub other_versions: u64,
    /// Records stored.
    pub stored: u64,
    /// Records that were there and were deleted.
    pub deleted: u64,
    /// Keys that the server would not read, store or delete, and other errors it told.
    pub errors: u64,
    /// Time from the sending of a request to its whole answer, in nanoseconds.
    pub latency: Histogram<u64>,
    /// The first wrong values and errors.
    pub examples: Vec<String>,
    run: Run,
}

/// Equal latencies in a row, of the requests of a batch: counted together.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    nanos: u64,
    count: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_max(LATENCY_NS_MAX, SIGNIFICANT_DIGITS);
        Self {
            requests: 0,
            missed_stores: 0,
            hits: 0,
            misses: 0,
            wrong: 0,
            other_versions: 0,
            stored: 0,
            deleted: 0,
            errors: 0,
            latency: latency.expect("the bounds are within the histogram's own"),
            examples: Vec::new(),
            run: Run::default(),
        }
    }

    /// Counts an answered request.
    #[inline]
    pub(crate) fn answered(&mut self, nanos: u64) {
        self.requests += 1;
        if self.run.nanos != nanos {
            self.flush();
            self.run.nanos = nanos;
        }
        self.run.count += 1;
    }

    /// Counts keys that the server would not deal with.
    pub(crate) fn refused(&mut self, keys: usize, text: impl FnOnce() -> String) {
        self.errors += keys as u64;
        self.example(text);
    }

    pub(crate) fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text());
        }
    }

    fn flush(&mut self) {
        self.latency.saturating_record_n(self.run.nanos.max(1), self.run.count);
        self.run = Run::default();
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        other.flush();
        self.flush();
        self.requests += other.requests;
        self.missed_stores += other.missed_stores;
        self.hits += other.hits;
        self.misses += other.misses;
        self.wrong += other.wrong;
        self.other_versions += other.other_versions;
        self.stored += other.stored;
        self.deleted += other.deleted;
        self.errors += other.errors;
        for example in other.examples {
            self.example(|| example);
        }
        // Fails only on histograms of other bounds.
        let _ = self.latency.add(&other.latency);
    }
}
