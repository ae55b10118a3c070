//! A trace as a workload: objects numbered in the order of their first requests.

use crate::{LoadError, Sizes};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A trace, ready to be replayed.
pub struct Replay {
    /// The record of each request.
    requests: Vec<u32>,
    /// Bytes of each record's value.
    values: Arc<[u32]>,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests for {} objects", self.requests(), self.objects())
    }
}

impl Replay {
    /// Reads a trace of a form that [`terrace_trace::read`] knows. An object keeps the size of its
    /// first request; what a key of `key_bytes` leaves of it is the value.
    ///
    /// # Errors
    /// The file can't be read, or holds more objects than there are 32-bit numbers.
    pub fn read(path: &str, key_bytes: usize) -> Result<Self, LoadError> {
        Self::of(&terrace_trace::read(path)?, key_bytes)
    }

    fn of(trace: &[terrace_trace::Request], key_bytes: usize) -> Result<Self, LoadError> {
        let mut records: HashMap<u64, u32> = HashMap::new();
        let mut values = Vec::new();
        let mut requests = Vec::with_capacity(trace.len());
        for &(object, bytes) in trace {
            let next = u32::try_from(records.len())
                .map_err(|_| LoadError::Plan("too many objects in the trace".into()))?;
            let record = *records.entry(object).or_insert(next);
            if record == next {
                values.push(bytes.saturating_sub(key_bytes as u32));
            }
            requests.push(record);
        }
        Ok(Self { requests, values: values.into() })
    }

    /// Requests in all.
    pub fn requests(&self) -> u64 {
        self.requests.len() as u64
    }

    /// Distinct objects.
    pub fn objects(&self) -> u64 {
        self.values.len() as u64
    }

    /// Sizes of the records.
    pub fn sizes(&self, key_bytes: usize) -> Sizes {
        Sizes::Listed { key: key_bytes, values: Arc::clone(&self.values) }
    }

    /// The requests for every `parts`-th record from `part` on, as indexes into these records.
    pub(crate) fn part(&self, part: usize, parts: usize) -> Vec<u32> {
        let (part, parts) = (part as u32, parts as u32);
        let of_part = |record: &&u32| **record % parts == part;
        self.requests.iter().filter(of_part).map(|record| record / parts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_numbered_and_parts_keep_the_order() {
        let trace = [(900, 50), (7, 10), (900, 60), (8, 30), (7, 10)];
        let replay = Replay::of(&trace, 20).unwrap();
        assert_eq!((replay.requests(), replay.objects()), (5, 3));
        let sizes = replay.sizes(20);
        assert_eq!([0, 1, 2].map(|number| sizes.value(number)), [30, 0, 10]);
        assert_eq!(replay.part(0, 2), [0, 0, 1]);
        assert_eq!(replay.part(1, 2), [0, 0]);
    }
}
