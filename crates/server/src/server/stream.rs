//! The value of a large item on its way to a client: a few chunks are read ahead, and none while the
//! client does not take what it has.

use crate::commands::keyed::LargeValue;
use std::collections::VecDeque;
use terrace_cache::{ItemId, Manifest};

/// Chunks that are looked up before the first of them is sent.
const READ_AHEAD: usize = 4;

/// One chunk of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkName {
    pub(crate) item: ItemId,
    /// Index within its upload.
    pub(crate) index: u32,
    /// Its length.
    pub(crate) bytes: u32,
    /// Counts the chunks of the whole value.
    pub(crate) number: u64,
}

enum Chunk {
    Reading,
    Read(Vec<u8>),
}

/// What is left to send.
pub(crate) struct Stream {
    /// The reply up to the value.
    head: Vec<u8>,
    manifest: Manifest,
    /// What stands behind the value.
    terminator: &'static [u8],
    /// Index of the run, and within it of the chunk, that is to be looked up next.
    next: (usize, u32),
    /// Number of the chunk at the front of `window`.
    sent: u64,
    window: VecDeque<Chunk>,
}

impl Stream {
    /// `head` is what stands before the value.
    pub(crate) fn new(head: Vec<u8>, LargeValue { manifest, terminator }: LargeValue) -> Self {
        Self { head, manifest, terminator, next: (0, 0), sent: 0, window: VecDeque::new() }
    }

    /// Moves what can be sent to `output`; `true` once all of it is there.
    pub(crate) fn advance(&mut self, output: &mut Vec<u8>) -> bool {
        output.append(&mut self.head);
        while let Some(Chunk::Read(bytes)) = self.window.front() {
            output.extend_from_slice(bytes);
            self.window.pop_front();
            self.sent += 1;
        }
        let is_complete = self.window.is_empty() && self.next.0 == self.manifest.runs.len();
        if is_complete {
            output.extend_from_slice(self.terminator);
        }
        is_complete
    }

    /// The next chunk to look up, unless enough are under way. Its place is kept until
    /// [`Stream::put`].
    pub(crate) fn begin_next(&mut self) -> Option<ChunkName> {
        if self.window.len() >= READ_AHEAD {
            return None;
        }
        let run = self.manifest.runs.get(self.next.0)?;
        let index = self.next.1;
        let is_last = index + 1 >= run.chunks;
        let bytes = if is_last { run.last_bytes } else { run.chunk_bytes };
        let number = self.sent + self.window.len() as u64;
        let name = ChunkName { item: run.item, index, bytes, number };
        self.next = if is_last { (self.next.0 + 1, 0) } else { (self.next.0, index + 1) };
        self.window.push_back(Chunk::Reading);
        Some(name)
    }

    /// Puts a chunk in its place.
    pub(crate) fn put(&mut self, number: u64, bytes: Vec<u8>) {
        let place = number.checked_sub(self.sent).map(|place| place as usize);
        if let Some(chunk) = place.and_then(|place| self.window.get_mut(place)) {
            *chunk = Chunk::Read(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_cache::Run;

    fn manifest() -> Manifest {
        let run = |item, chunks, last_bytes| Run {
            item: ItemId(item),
            chunks,
            chunk_bytes: 2,
            last_bytes,
        };
        Manifest { runs: vec![run(7, 2, 1), run(8, 4, 2)] }
    }

    #[test]
    fn sends_in_order_and_reads_only_a_little_ahead() {
        let large = LargeValue { manifest: manifest(), terminator: b"\r\n" };
        let mut stream = Stream::new(b"VA 11\r\n".to_vec(), large);
        let mut output = Vec::new();
        assert!(!stream.advance(&mut output));
        assert_eq!(output, b"VA 11\r\n");
        let names: Vec<_> = std::iter::from_fn(|| stream.begin_next()).collect();
        let parts: Vec<_> = names.iter().map(|n| (n.item.0, n.index, n.bytes, n.number)).collect();
        assert_eq!(parts, [(7, 0, 2, 0), (7, 1, 1, 1), (8, 0, 2, 2), (8, 1, 2, 3)]);
        stream.put(1, b"c".to_vec());
        assert!(!stream.advance(&mut output));
        assert!(stream.begin_next().is_none());
        stream.put(0, b"ab".to_vec());
        assert!(!stream.advance(&mut output));
        assert_eq!(output, b"VA 11\r\nabc");
        let rest: Vec<_> = std::iter::from_fn(|| stream.begin_next()).collect();
        assert_eq!(rest.iter().map(|n| n.number).collect::<Vec<_>>(), [4, 5]);
        for (number, bytes) in [(5, b"jk"), (2, b"de"), (3, b"fg"), (4, b"hi")] {
            stream.put(number, bytes.to_vec());
        }
        assert!(stream.advance(&mut output));
        assert_eq!(output, b"VA 11\r\nabcdefghijk\r\n");
    }
}
