//! The value of a large item on its way to a client: chunks are read ahead as far as memory for that
//! reaches, and none while the client does not take what it has.

use crate::commands::keyed::LargeValue;
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use terrace_cache::{Key, Manifest, Pin, Run, Session};
use terrace_device::AlignedBuf;
use terrace_runtime::chunks::{Chunk, Cursor};

/// Shorter values, such as all that memcached takes unless told otherwise, are sent when all of their
/// chunks are there, as far as there is memory: so one whose chunk is evicted just then is still a miss.
const WHOLE_BYTES_MAX: u64 = 1 << 20;

/// What is handed to a socket at once.
pub(crate) type Slices<'s> = ArrayVec<IoSlice<'s>, 32>;

/// One chunk of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkName {
    pub(crate) chunk: Chunk,
    /// Its place in the whole value, counted by [`Stream`].
    pub(crate) number: u64,
}

/// Bytes to be sent, in the memory that they came in.
pub(crate) enum Piece {
    Copied(Vec<u8>),
    /// This part of what was read, which other chunks may be in too.
    Read(Arc<AlignedBuf>, Range<usize>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Read(buffer, range) => &buffer[range.clone()],
        }
    }
}

/// Why a chunk can't be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The cache let go of it, and so the item is not whole any more.
    Gone,
    /// Its drive did not give it. Another time it may.
    Unreadable,
}

enum Part {
    /// On its way, or lost while the item is being removed.
    Reading(usize),
    There(Piece),
    /// It is lost: what was promised to the client can't be sent.
    Missing,
}

impl Part {
    fn bytes(&self) -> usize {
        match self {
            Self::Reading(bytes) => *bytes,
            Self::There(piece) => piece.bytes().len(),
            Self::Missing => 0,
        }
    }
}

/// What is left to send.
pub(crate) struct Stream {
    /// The key that was asked for.
    key: Box<[u8]>,
    /// Its hash: what changes it has to wait for the last chunk.
    hash: u64,
    manifest: Manifest,
    /// Keeps its chunks until the last one was sent.
    _pin: Option<Pin>,
    /// What stands behind the value.
    terminator: &'static [u8],
    /// It is at the back of `window`, or was sent.
    has_end: bool,
    /// The part at the front of `window` is no chunk.
    has_head: bool,
    /// The reply if a chunk is lost before anything was sent.
    miss: Vec<u8>,
    /// Nothing is sent before all of it is there.
    is_held: bool,
    /// The number of a chunk that is gone; nothing is said of that before the item is removed.
    lost: Option<u64>,
    /// The chunk that is to be looked up next.
    next: Cursor,
    /// Number of the part at the front of `window`.
    sent: u64,
    /// Bytes of that part that were sent.
    sent_bytes: usize,
    window: VecDeque<Part>,
    /// Bytes of all parts in `window`.
    bytes: usize,
}

impl Stream {
    /// The value of a key with this hash; `head` is what stands before it.
    pub(crate) fn new((key, hash): (&[u8], u64), head: Vec<u8>, value: LargeValue) -> Self {
        let LargeValue { manifest, pin, terminator, miss } = value;
        let mut stream = Self {
            key: key.into(),
            hash,
            is_held: manifest.bytes() <= WHOLE_BYTES_MAX,
            manifest,
            _pin: pin,
            terminator,
            has_end: false,
            has_head: !head.is_empty(),
            miss,
            lost: None,
            next: Cursor::default(),
            sent: 0,
            sent_bytes: 0,
            window: VecDeque::new(),
            bytes: 0,
        };
        if !head.is_empty() {
            stream.push(Part::There(Piece::Copied(head)));
        }
        stream.end_if_begun();
        stream
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn key<'s>(&'s self, session: &Session) -> Key<'s> {
        session.key_of_hash(&self.key, self.hash)
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Bytes that are kept or being read.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, part: Part) {
        self.bytes += part.bytes();
        self.window.push_back(part);
    }

    /// The next chunk to look up. While there is no `room` for its bytes, and for those of the `together` that are
    /// read at once, there is none unless it `must` go on. Its place is kept until [`Stream::put`].
    pub(crate) fn begin_next(
        &mut self,
        must: bool,
        room: usize,
        together: u32,
    ) -> Option<ChunkName> {
        let chunk = self.next.chunk(&self.manifest)?;
        let may = !chunk.index.is_multiple_of(together)
            || must && self.window.is_empty()
            || bytes_together(self.next.run(&self.manifest)?, chunk.index, together) <= room;
        if !may {
            return None;
        }
        let number = self.sent + self.window.len() as u64;
        self.next.advance(&self.manifest);
        self.push(Part::Reading(chunk.bytes as usize));
        self.end_if_begun();
        Some(ChunkName { chunk, number })
    }

    /// Behind the last chunk stands the end, so that both are sent at once.
    fn end_if_begun(&mut self) {
        if self.next != Cursor::end(&self.manifest) || self.has_end {
            return;
        }
        self.has_end = true;
        if !self.terminator.is_empty() {
            self.push(Part::There(Piece::Copied(self.terminator.to_vec())));
        }
    }

    /// Puts a chunk in its place, or says why there is none. `true` where the item is to be removed, and
    /// [`Stream::give_up`] to be called after that: the first time that a chunk of it is gone.
    pub(crate) fn put(&mut self, number: u64, piece: Result<Piece, Lost>) -> bool {
        match piece {
            Ok(piece) => self.replace(number, Part::There(piece)),
            Err(Lost::Unreadable) => self.do_without(number),
            Err(Lost::Gone) => {
                let is_first = self.lost.is_none() && self.place(number).is_some();
                if is_first {
                    self.lost = Some(number);
                }
                return is_first;
            }
        }
        false
    }

    /// The item of which a chunk is gone was removed, and that may be said now.
    pub(crate) fn give_up(&mut self) {
        if let Some(number) = self.lost {
            self.do_without(number);
        }
    }

    /// A chunk will not come: the item is a miss, or its connection ends where it should be sent.
    fn do_without(&mut self, number: u64) {
        match self.is_held {
            true if number >= self.sent => self.turn_into_miss(),
            _ => self.replace(number, Part::Missing),
        }
    }

    fn replace(&mut self, number: u64, with: Part) {
        let after = with.bytes();
        if let Some(part) = self.place(number) {
            let before = std::mem::replace(part, with).bytes();
            self.bytes = self.bytes - before + after;
        }
    }

    /// The part of this number, unless it was sent or has no place any more.
    fn place(&mut self, number: u64) -> Option<&mut Part> {
        let place = number.checked_sub(self.sent)?;
        self.window.get_mut(place as usize)
    }

    /// Nothing of it was sent, and nothing will be but that it is not there.
    fn turn_into_miss(&mut self) {
        // Chunks that are still being read have no place any more.
        self.sent += self.window.len() as u64;
        self.window.clear();
        self.bytes = 0;
        self.next = Cursor::end(&self.manifest);
        self.terminator = b"";
        self.has_end = true;
        self.is_held = false;
        let miss = std::mem::take(&mut self.miss);
        self.has_head = !miss.is_empty();
        if self.has_head {
            self.push(Part::There(Piece::Copied(miss)));
        }
    }

    /// Has it sent as it comes: there is no memory for all of it at once.
    pub(crate) fn stop_holding(&mut self) {
        self.is_held = false;
    }

    /// Whether chunks of it are on their way.
    pub(crate) fn is_reading(&self) -> bool {
        self.window.iter().any(|part| matches!(part, Part::Reading(_)))
    }

    /// Whether it waits for chunks before anything is sent.
    fn is_incomplete(&self) -> bool {
        self.is_held && (!self.has_begun_all() || self.is_reading())
    }

    /// Appends what can be sent; `true` if that is all.
    pub(crate) fn gather<'s>(&'s self, slices: &mut Slices<'s>) -> bool {
        if self.is_incomplete() {
            return false;
        }
        let mut sent = self.sent_bytes;
        for part in &self.window {
            let Part::There(piece) = part else { return false };
            if slices.try_push(IoSlice::new(&piece.bytes()[sent..])).is_err() {
                return false;
            }
            sent = 0;
        }
        self.has_begun_all()
    }

    /// Notes that up to so many bytes were sent, and answers how many of them were its own.
    pub(crate) fn take(&mut self, bytes: usize) -> usize {
        let mut left = bytes;
        while let Some(Part::There(piece)) = self.window.front() {
            let length = piece.bytes().len();
            let here = left.min(length - self.sent_bytes);
            left -= here;
            self.sent_bytes += here;
            if self.sent_bytes < length {
                break;
            }
            self.bytes -= length;
            self.sent += 1;
            self.sent_bytes = 0;
            self.has_head = false;
            self.window.pop_front();
        }
        bytes - left
    }

    /// Forgets the chunks that are there and not sent to their end: [`Stream::begin_next`] names them again.
    pub(crate) fn let_pieces_go(&mut self) {
        let is_there = |part: &Part| matches!(part, Part::There(_));
        if self.lost.is_some() || !self.window.iter().all(is_there) {
            return;
        }
        let ends = usize::from(self.has_end && !self.terminator.is_empty());
        let chunks = self.window.len().saturating_sub(usize::from(self.has_head) + ends);
        if chunks == 0 {
            return;
        }
        self.has_end = false;
        for _ in 0..ends + chunks {
            self.bytes -= self.window.pop_back().map_or(0, |part| part.bytes());
        }
        for _ in 0..chunks {
            self.next.retreat(&self.manifest);
        }
    }

    /// Whether something can be sent, or looked up; or it is through, as one that was lost and has nothing to say
    /// is without a byte that is sent.
    pub(crate) fn can_go_on(&self) -> bool {
        match self.is_incomplete() {
            true => !self.is_reading(),
            false => matches!(self.window.front(), None | Some(Part::There(_))),
        }
    }

    /// Whether what is to be sent next is lost.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.window.front(), Some(Part::Missing))
    }

    /// Whether all of it was sent.
    pub(crate) fn is_through(&self) -> bool {
        self.window.is_empty() && self.has_begun_all()
    }

    /// Whether there is no chunk that is still to be looked up.
    pub(crate) fn has_begun_all(&self) -> bool {
        self.has_end
    }
}

/// Bytes of the chunks that are read together with this first one of them.
fn bytes_together(run: &Run, index: u32, together: u32) -> usize {
    let chunks = run.chunks.saturating_sub(index).min(together);
    chunks as usize * run.chunk_bytes as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_cache::{CHUNKS_TOGETHER, ItemId};

    fn manifest() -> Manifest {
        let run = |item, chunks, last_bytes| Run {
            item: ItemId(item),
            chunks,
            chunk_bytes: 2,
            last_bytes,
        };
        Manifest { runs: vec![run(7, 2, 1), run(8, 4, 2)] }
    }

    fn held_stream() -> Stream {
        let miss = b"EN\r\n".to_vec();
        let large = LargeValue { manifest: manifest(), pin: None, terminator: b"\r\n", miss };
        Stream::new((b"k", 1), b"VA 11\r\n".to_vec(), large)
    }

    /// One that is sent as it comes.
    fn stream() -> Stream {
        let mut stream = held_stream();
        stream.stop_holding();
        stream
    }

    /// What can be sent.
    fn there(stream: &Stream) -> Vec<u8> {
        let mut slices = Slices::new();
        stream.gather(&mut slices);
        slices.iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    /// Sends what can be sent, `step` bytes at once.
    fn send(stream: &mut Stream, step: usize, output: &mut Vec<u8>) {
        loop {
            let all = there(stream);
            if all.is_empty() {
                return;
            }
            let bytes = all.len().min(step);
            output.extend_from_slice(&all[..bytes]);
            assert_eq!(stream.take(bytes), bytes);
        }
    }

    fn copied(bytes: &[u8]) -> Result<Piece, Lost> {
        Ok(Piece::Copied(bytes.to_vec()))
    }

    fn begin(stream: &mut Stream, must: bool, room: usize) -> Vec<ChunkName> {
        std::iter::from_fn(|| stream.begin_next(must, room, CHUNKS_TOGETHER)).collect()
    }

    #[test]
    fn sends_in_order_and_without_room_reads_no_more_than_one_group() {
        for step in [1, 3, 100] {
            let (mut stream, mut output) = (stream(), Vec::new());
            assert!(begin(&mut stream, true, 0).is_empty(), "the head was not sent");
            send(&mut stream, step, &mut output);
            assert_eq!(output, b"VA 11\r\n");
            assert!(begin(&mut stream, false, 0).is_empty(), "others come first");
            let first = begin(&mut stream, true, 0);
            let parts: Vec<_> =
                first.iter().map(|n| (n.chunk.item.0, n.chunk.index, n.chunk.bytes)).collect();
            assert_eq!(parts, [(7, 0, 2), (7, 1, 1)]);
            stream.put(first[1].number, copied(b"c"));
            assert!(!stream.can_go_on() && begin(&mut stream, true, 0).is_empty());
            let mut buffer = AlignedBuf::zeroed(4096);
            buffer[7..9].copy_from_slice(b"ab");
            let read = Arc::new(buffer);
            stream.put(first[0].number, Ok(Piece::Read(Arc::clone(&read), 7..9)));
            send(&mut stream, step, &mut output);
            assert_eq!((&output[..], Arc::strong_count(&read)), (&b"VA 11\r\nabc"[..], 1));
            let rest = begin(&mut stream, true, 0);
            assert_eq!(rest.len(), 4);
            for (at, bytes) in [(3, b"jk"), (0, b"de"), (1, b"fg"), (2, b"hi")] {
                assert!(!stream.is_through());
                stream.put(rest[at].number, copied(bytes));
            }
            send(&mut stream, step, &mut output);
            assert_eq!(output, b"VA 11\r\nabcdefghijk\r\n");
            assert_eq!((stream.is_through(), stream.bytes()), (true, 0));
        }
    }

    /// The chunk of each name, of the value of [`manifest`].
    fn chunk(name: &ChunkName) -> &'static [u8] {
        match (name.chunk.item.0, name.chunk.index) {
            (7, 0) => b"ab",
            (7, 1) => b"c",
            (_, index) => &b"defghijk"[2 * index as usize..][..2],
        }
    }

    #[test]
    fn pieces_that_were_let_go_are_looked_up_again_wherever_sending_stopped() {
        let all = b"VA 11\r\nabcdefghijk\r\n";
        // So many bytes are taken each time before all that is there is let go.
        for step in 1..=all.len() {
            let (mut stream, mut output) = (stream(), Vec::new());
            while !stream.is_through() {
                assert!(stream.can_go_on());
                for name in begin(&mut stream, true, 100) {
                    stream.put(name.number, copied(chunk(&name)));
                }
                let there = there(&stream);
                let taken = there.len().min(step);
                output.extend_from_slice(&there[..taken]);
                assert_eq!(stream.take(taken), taken);
                stream.let_pieces_go();
                assert!(stream.bytes() <= 7 + 2, "{} bytes are kept", stream.bytes());
            }
            assert_eq!((&output[..], stream.bytes()), (&all[..], 0), "{step}");
        }
    }

    #[test]
    fn pieces_are_kept_while_a_chunk_is_read_or_lost() {
        let mut stream = stream();
        let chunks = begin(&mut stream, true, 100);
        stream.put(chunks[0].number, copied(b"ab"));
        let before = stream.bytes();
        stream.let_pieces_go();
        assert_eq!(stream.bytes(), before);
        for name in &chunks[1..] {
            stream.put(name.number, Err(Lost::Unreadable));
        }
        stream.let_pieces_go();
        let mut output = Vec::new();
        send(&mut stream, 100, &mut output);
        assert!(output == b"VA 11\r\nab" && stream.is_broken());
    }

    #[test]
    fn room_lets_more_be_read_ahead_and_a_lost_chunk_breaks_it() {
        let mut stream = stream();
        assert_eq!(begin(&mut stream, false, 4).len(), 2, "eight bytes do not fit into four");
        assert_eq!(stream.bytes(), 7 + 3);
        let second = begin(&mut stream, false, 8);
        assert_eq!((second.len(), stream.bytes()), (4, 7 + 11 + 2));
        assert!(stream.put(2, Err(Lost::Gone)) && !stream.put(3, Err(Lost::Gone)));
        stream.put(1, copied(b"ab"));
        let mut output = Vec::new();
        assert!(!stream.is_broken());
        send(&mut stream, 100, &mut output);
        assert_eq!(output, b"VA 11\r\nab");
        assert!(!stream.is_broken() && !stream.can_go_on(), "the item is still there");
        stream.give_up();
        assert!(stream.is_broken() && !stream.can_go_on() && !stream.is_through());
    }

    #[test]
    fn a_short_value_is_sent_when_all_of_it_is_there() {
        let (mut stream, mut output) = (held_stream(), Vec::new());
        assert!(stream.can_go_on(), "nothing else would begin it");
        let first = begin(&mut stream, true, 3);
        assert!(first.is_empty() && stream.can_go_on(), "four bytes do not fit");
        let chunks = begin(&mut stream, true, 100);
        assert_eq!(chunks.len(), 6);
        for (at, chunk) in chunks.iter().enumerate() {
            send(&mut stream, 100, &mut output);
            assert!(output.is_empty() && !stream.can_go_on(), "{at}");
            stream.put(chunk.number, copied(&b"abcdefghijk"[..chunk.chunk.bytes as usize]));
        }
        assert!(stream.can_go_on());
        send(&mut stream, 3, &mut output);
        assert_eq!(output, b"VA 11\r\nabaabababab\r\n");
        assert!(stream.is_through());
    }

    #[test]
    fn a_short_value_of_which_a_chunk_is_lost_is_a_miss() {
        let (mut stream, mut output) = (held_stream(), Vec::new());
        let chunks = begin(&mut stream, true, 100);
        stream.put(chunks[0].number, copied(b"ab"));
        assert!(stream.put(chunks[3].number, Err(Lost::Gone)));
        assert!(!stream.put(chunks[4].number, Err(Lost::Gone)), "it is told once");
        send(&mut stream, 100, &mut output);
        assert!(output.is_empty() && !stream.can_go_on(), "the item is still there");
        stream.give_up();
        // What comes too late has no place.
        stream.put(chunks[1].number, copied(b"c"));
        assert!(!stream.put(chunks[2].number, Err(Lost::Gone)));
        assert!(stream.can_go_on() && !stream.is_broken());
        send(&mut stream, 100, &mut output);
        assert_eq!((&output[..], stream.is_through(), stream.bytes()), (&b"EN\r\n"[..], true, 0));
    }

    /// A classic miss is told by the `END` behind it alone.
    #[test]
    fn a_lost_value_without_a_word_for_that_is_gone_on_with() {
        let large =
            LargeValue { manifest: manifest(), pin: None, terminator: b"\r\n", miss: Vec::new() };
        let mut stream = Stream::new((b"k", 1), b"VALUE k 0 11\r\n".to_vec(), large);
        let chunks = begin(&mut stream, true, 100);
        assert!(!stream.put(chunks[5].number, Err(Lost::Unreadable)), "it may come back");
        assert!(stream.is_through() && stream.can_go_on());
    }

    #[test]
    fn without_room_for_all_of_it_a_short_value_is_sent_as_it_comes() {
        let (mut stream, mut output) = (held_stream(), Vec::new());
        let chunks = begin(&mut stream, true, 3);
        assert_eq!(chunks.len(), 0);
        stream.stop_holding();
        send(&mut stream, 100, &mut output);
        assert_eq!(output, b"VA 11\r\n");
        assert_eq!(begin(&mut stream, true, 0).len(), 2);
    }
}
