//! Traces: what they hold, and the miss-ratio curve of a least-recently-used cache over them.

use crate::PlanError;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// Bytes of a record of libcachesim's binary form: time u32, object u64, size u32, next use i64.
const BINARY_RECORD: usize = 24;

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
    /// Reads a CSV (time, object, size; further columns and a heading are ignored) or libcachesim's
    /// binary form; either may be packed with zstd (`.zst`).
    ///
    /// # Errors
    /// The file can't be read or has a line that is not of that form.
    pub fn read(path: &str) -> Result<Self, PlanError> {
        let failed = |error| PlanError::File { path: path.to_owned(), error };
        let broken = |text: String| PlanError::Input(format!("{path}: {text}"));
        let file = BufReader::new(File::open(path).map_err(failed)?);
        let plain = path.strip_suffix(".zst").unwrap_or(path);
        let input: Box<dyn Read> = if plain == path {
            Box::new(file)
        } else {
            let decoder = ruzstd::decoding::StreamingDecoder::new(file);
            Box::new(decoder.map_err(|error| broken(error.to_string()))?)
        };
        let requests = if plain.ends_with(".csv") {
            let lines = BufReader::new(input).lines();
            csv(lines.map(|line| line.map_err(failed)), &broken)?
        } else {
            binary(input).map_err(failed)?
        };
        if requests.is_empty() {
            return Err(broken("holds no requests".into()));
        }
        Ok(Self::of(&requests))
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

fn csv(
    lines: impl Iterator<Item = Result<String, PlanError>>,
    broken: &dyn Fn(String) -> PlanError,
) -> Result<Vec<(u64, u32)>, PlanError> {
    let mut requests = Vec::new();
    for (at, line) in lines.enumerate() {
        let line = line?;
        let mut fields = line.split(',').map(str::trim).skip(1);
        let object = fields.next();
        let size = fields.next().and_then(|size| size.parse::<u32>().ok());
        match (object, size) {
            (Some(object), Some(size)) => requests.push((identity(object), size)),
            _ if at == 0 || line.trim().is_empty() => {}
            _ => return Err(broken(format!("line {}: not time, object, size", at + 1))),
        }
    }
    Ok(requests)
}

/// Objects are numbers in most traces, and any text in some.
fn identity(object: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    object.parse().unwrap_or_else(|_| {
        let mut hasher = DefaultHasher::new();
        object.hash(&mut hasher);
        hasher.finish()
    })
}

fn binary(mut input: impl Read) -> std::io::Result<Vec<(u64, u32)>> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let (records, rest) = bytes.as_chunks::<BINARY_RECORD>();
    if !rest.is_empty() {
        let text = "neither .csv nor records of 24 bytes";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
    }
    let record = |record: &[u8; BINARY_RECORD]| {
        let [_, _, _, _, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, ..] = *record;
        let object = u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        (object, u32::from_le_bytes([s0, s1, s2, s3]))
    };
    Ok(records.iter().map(record).collect())
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

    #[test]
    fn lines_are_read_and_wrong_ones_named() {
        let broken = |text| PlanError::Input(text);
        let lines = |text: &'static str| text.lines().map(|line| Ok(line.to_owned()));
        let read = csv(lines("time,obj,size\n1,7,100\n2,7,100,x\n"), &broken).unwrap();
        assert_eq!(read, [(7, 100), (7, 100)]);
        let error = csv(lines("1,7,100\n1,2\n"), &broken).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn the_binary_form_is_read() {
        let mut bytes = [0; 2 * BINARY_RECORD];
        bytes[4] = 9;
        bytes[12] = 50;
        bytes[28] = 3;
        bytes[36] = 60;
        assert_eq!(binary(&bytes[..]).unwrap(), [(9, 50), (3, 60)]);
        assert!(binary(&bytes[1..]).is_err());
    }
}
