//! Traces: what they hold, and the miss-ratio curve of a least-recently-used cache over them.

use crate::PlanError;
use std::collections::HashMap;

/// Requests, reduced to what a plan needs.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Requests in all.
    pub requests: f64,
    /// Distinct objects.
    pub objects: f64,
    /// Bytes of all distinct objects, each at the size it was first seen with.
    pub bytes: f64,
    /// For each repeated request, the bytes of objects used since, itself included; sorted.
    distances: Vec<u64>,
}

impl Trace {
    /// Reads a file of any form that [`terrace_trace::read`] knows.
    ///
    /// # Errors
    /// The file can't be read or has a line that is not of that form.
    pub fn read(path: &str) -> Result<Self, PlanError> {
        Ok(Self::of(&terrace_trace::read(path)?))
    }

    /// Of (object, bytes) in the order of requests.
    pub fn of(requests: &[(u64, u32)]) -> Self {
        let mut trace = Self { requests: requests.len() as f64, ..Self::default() };
        let mut last = HashMap::new();
        let mut recent = Sums::new(requests.len());
        for (now, &(object, bytes)) in requests.iter().enumerate() {
            if let Some((before, size)) = last.insert(object, (now, bytes)) {
                trace.distances.push(recent.from(before));
                recent.subtract(before, u64::from(size));
            } else {
                trace.bytes += f64::from(bytes);
            }
            recent.add(now, u64::from(bytes));
        }
        trace.objects = last.len() as f64;
        trace.distances.sort_unstable();
        trace
    }

    /// Hit ratio of a least-recently-used cache of so many bytes; first requests are misses.
    pub fn hits(&self, bytes: f64) -> f64 {
        let hits = self.distances.partition_point(|&distance| distance as f64 <= bytes);
        hits as f64 / self.requests
    }
}

/// Sums over ranges of a changing list (a Fenwick tree).
struct Sums {
    tree: Vec<u64>,
    total: u64,
}

impl Sums {
    fn new(length: usize) -> Self {
        Self { tree: vec![0; length + 1], total: 0 }
    }

    fn add(&mut self, at: usize, value: u64) {
        self.total += value;
        self.walk(at, |sum| *sum = sum.wrapping_add(value));
    }

    fn subtract(&mut self, at: usize, value: u64) {
        self.total -= value;
        self.walk(at, |sum| *sum = sum.wrapping_sub(value));
    }

    fn walk(&mut self, at: usize, change: impl Fn(&mut u64)) {
        let mut node = at + 1;
        while node < self.tree.len() {
            change(&mut self.tree[node]);
            node += node & node.wrapping_neg();
        }
    }

    /// The sum of the element at `at` and all behind it.
    fn from(&self, at: usize) -> u64 {
        let (mut node, mut before) = (at, 0_u64);
        while node > 0 {
            before = before.wrapping_add(self.tree[node]);
            node -= node & node.wrapping_neg();
        }
        self.total - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    #[test]
    fn the_curve_is_that_of_a_real_lru() {
        let mut state = 1_u64;
        let requests: Vec<(u64, u32)> = (0..5000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let object = ((state >> 33) % 100).min((state >> 40) % 100);
                (object, 10 + object as u32)
            })
            .collect();
        let trace = Trace::of(&requests);
        for room in [0_u64, 100, 700, 2000, 10_000] {
            let mut cache: VecDeque<(u64, u32)> = VecDeque::new();
            let mut hits = 0;
            for &(object, bytes) in &requests {
                // In its stack all objects stay, so that inclusion holds for unequal sizes too.
                let at = cache.iter().position(|&(other, _)| other == object);
                if let Some(at) = at {
                    let used: u64 = cache.iter().take(at + 1).map(|&(_, b)| u64::from(b)).sum();
                    hits += u64::from(used <= room);
                    cache.remove(at);
                }
                cache.push_front((object, bytes));
            }
            assert_eq!(trace.hits(room as f64), hits as f64 / 5000.0, "{room}");
        }
        let distinct: HashSet<u64> = requests.iter().map(|&(object, _)| object).collect();
        assert_eq!(trace.objects, distinct.len() as f64);
    }
}
