//! One policy over one stream: what is counted.

use super::stream::Stream;
use super::{Answer, Policy};

/// Counts of the requests that were measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) gets: u64,
    pub(super) dram: u64,
    pub(super) flash: u64,
    pub(super) misses: u64,
    /// Objects written to flash.
    pub(super) written: u64,
    /// SETs that were not caused by a miss.
    pub(super) sets: u64,
}

impl Counts {
    pub(super) fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.gets.max(1) as f64
    }

    /// Share of all GETs that DRAM answers.
    pub(super) fn dram_share(&self) -> f64 {
        self.dram as f64 / self.gets.max(1) as f64
    }

    /// Share of the hits that DRAM answers.
    pub(super) fn dram_share_of_hits(&self) -> f64 {
        self.dram as f64 / (self.dram + self.flash).max(1) as f64
    }

    pub(super) fn writes_per_miss(&self) -> f64 {
        self.written as f64 / self.misses.max(1) as f64
    }

    fn note(&mut self, answer: Answer) {
        self.gets += 1;
        match answer {
            Answer::Dram => self.dram += 1,
            Answer::Flash => self.flash += 1,
            Answer::Miss => self.misses += 1,
        }
    }
}

/// Counts what comes after the first `warm_up` requests, and the share of GETs that DRAM answers in
/// each stretch of `every` requests.
pub(super) fn run(
    policy: &mut impl Policy,
    stream: &Stream,
    warm_up: usize,
    every: usize,
) -> (Counts, Vec<f64>) {
    let (mut counts, mut stretch, mut series) = (Counts::default(), Counts::default(), Vec::new());
    let mut written_before = 0;
    for (at, (object, is_set)) in stream.iter().enumerate() {
        if at == warm_up {
            written_before = policy.written();
        }
        if is_set {
            policy.set(object);
            counts.sets += u64::from(at >= warm_up);
        } else {
            let answer = policy.get(object);
            stretch.note(answer);
            if at >= warm_up {
                counts.note(answer);
            }
        }
        if every > 0 && (at + 1) % every == 0 {
            series.push(std::mem::take(&mut stretch).dram_share());
        }
    }
    counts.written = policy.written() - written_before;
    (counts, series)
}
