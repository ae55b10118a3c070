//! `stats cachedump`: keys with the lengths of their values, for tools that know no other listing
//! (libmemcached's `memcdump`, PHP's `getAllKeys`).

use super::{Gone, Listing, Pieces};
use crate::commands::executor::Executor;
use crate::key_text::is_plain;
use std::io::Write;
use terrace_cache::{Dump, Listed};

/// memcached tells no more of a class either: who asks takes it for a small answer.
const ANSWER_BYTES_MAX: usize = 2 << 20;
/// All records are of this class.
const CLASS: u32 = 1;

/// What was found so far.
struct Answer {
    text: Vec<u8>,
    /// Items that may still be told.
    left: u32,
    is_full: bool,
}

/// Begins to list at most `limit` items of a class, 0 for as many as an answer holds; `None` where there
/// is nothing to list, or while another walk over all records is under way.
pub(crate) fn begin(
    executor: &Executor<'_>,
    class: u32,
    limit: u32,
    end: Vec<u8>,
) -> Option<Listing> {
    if class != CLASS {
        return None;
    }
    let (shared, now) = (executor.shared, executor.now);
    let answer = Answer::new(limit);
    Listing::walk(&shared.cache, &shared.walks, end, move |dump, pieces| {
        list(dump, pieces, answer, now)
    })
}

fn list(mut dump: Dump, pieces: &Pieces, mut answer: Answer, now: u32) -> Result<(), Gone> {
    while !answer.is_full && dump.step(now, |listed| answer.add(&listed)) {}
    pieces.send(&answer.text)
}

impl Answer {
    fn new(limit: u32) -> Self {
        let left = if limit == 0 { u32::MAX } else { limit };
        Self { text: Vec::new(), left, is_full: false }
    }

    fn add(&mut self, listed: &Listed<'_>) {
        let record = &listed.record;
        self.put(record.key, record.value_bytes(), record.expires);
    }

    fn put(&mut self, key: &[u8], value_bytes: u64, expires: u32) {
        // A key of the meta protocol may hold a line's end; `metadump` has a way to spell it.
        if self.is_full || !is_plain(key) {
            return;
        }
        let before = self.text.len();
        self.text.extend_from_slice(b"ITEM ");
        self.text.extend_from_slice(key);
        // Writing to memory does not fail.
        let _ = write!(self.text, " [{value_bytes} b; {expires} s]\r\n");
        if self.text.len() > ANSWER_BYTES_MAX {
            self.text.truncate(before);
            self.is_full = true;
        } else {
            self.left -= 1;
            self.is_full = self.left == 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_its_bounds() {
        let mut answer = Answer::new(2);
        answer.put(b"line\r\nend", 1, 0);
        (0..3).for_each(|at| answer.put(format!("k{at}").as_bytes(), at, 7));
        assert_eq!(answer.text, b"ITEM k0 [0 b; 7 s]\r\nITEM k1 [1 b; 7 s]\r\n");
        let mut answer = Answer::new(0);
        (0..100_000).for_each(|_| answer.put(&[b'k'; 250], 1, 0));
        let whole = "ITEM  [1 b; 0 s]\r\n".len() + 250;
        assert!(answer.is_full && answer.text.len() == ANSWER_BYTES_MAX / whole * whole);
    }
}
