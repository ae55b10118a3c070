//! Walks over all records, one at a time: each takes a thread and memory for a segment.
//!
//! A walk waits while its client does not take what was found. One that has waited for [`STALLED_AFTER`] makes way
//! for the next client that asks, so that no client can keep the walk from others; its own client is cut off. Until
//! another client asks, a slow one may take its time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pieces that wait for the client, at most; each is of some records of a segment, or of a shard's DRAM.
const PIECES_AHEAD: usize = 2;
/// A longer piece is handed over in parts of about so many bytes.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// A client that takes no piece for this time may be cut off.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// The walks of a server: at most one is under way.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// The lock comes before those of [`Walk`].
    current: Mutex<Option<Arc<Walk>>>,
    /// Walks so far, and requests for a crawl, which finds nothing left to free.
    pub(crate) begun: AtomicU64,
    /// Records that walks have looked at so far.
    pub(crate) records: AtomicU64,
}

#[derive(Debug)]
struct Walk {
    /// What was found. `None` once the client has gone or was cut off: the thread then ends with its next piece.
    pieces: Mutex<Option<Receiver<Vec<u8>>>>,
    /// Since when the thread waits for the client to take a piece.
    stalled_since: Mutex<Option<Instant>>,
}

/// The client's side of a walk; ends the walk when dropped.
#[derive(Debug)]
pub(super) struct Found(Arc<Walk>);

/// Where the thread of a walk puts what it finds. Another walk may begin when it is dropped.
pub(super) struct Pieces {
    sender: SyncSender<Vec<u8>>,
    walk: Arc<Walk>,
    walks: Arc<Walks>,
}

/// The client is gone.
pub(super) struct Gone;

/// What the next look at a walk brings.
pub(super) enum Look {
    Piece(Vec<u8>),
    /// Nothing yet.
    Empty,
    /// There was no more.
    Done,
    /// The client was too slow, and was cut off for another.
    CutOff,
}

impl Walks {
    /// Begins a walk; `None` while another is under way.
    pub(super) fn begin(self: &Arc<Self>) -> Option<(Found, Pieces)> {
        self.begin_at(Instant::now())
    }

    fn begin_at(self: &Arc<Self>, now: Instant) -> Option<(Found, Pieces)> {
        let mut current = lock(&self.current);
        match &*current {
            Some(walk) if walk.is_stalled(now) => walk.end(),
            Some(_) => return None,
            None => {}
        }
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let walk =
            Arc::new(Walk { pieces: Mutex::new(Some(pieces)), stalled_since: Mutex::default() });
        *current = Some(Arc::clone(&walk));
        self.begun.fetch_add(1, Ordering::Relaxed);
        let found = Found(Arc::clone(&walk));
        Some((found, Pieces { sender, walk, walks: Arc::clone(self) }))
    }

    /// Whether a walk is under way.
    pub(crate) fn is_busy(&self) -> bool {
        lock(&self.current).is_some()
    }
}

impl Walk {
    fn is_stalled(&self, now: Instant) -> bool {
        let since = *lock(&self.stalled_since);
        since.is_some_and(|since| now.saturating_duration_since(since) >= STALLED_AFTER)
    }

    /// Drops what was found, which wakes the thread if it waits.
    fn end(&self) {
        lock(&self.pieces).take();
    }
}

impl Found {
    /// What comes next; never blocks.
    pub(super) fn next(&self) -> Look {
        match lock(&self.0.pieces).as_ref().map(Receiver::try_recv) {
            Some(Ok(bytes)) => Look::Piece(bytes),
            Some(Err(TryRecvError::Empty)) => Look::Empty,
            Some(Err(TryRecvError::Disconnected)) => Look::Done,
            None => Look::CutOff,
        }
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Pieces {
    /// Hands `text` over, and blocks while the client does not take what came before it.
    pub(super) fn send(&self, text: &[u8]) -> Result<(), Gone> {
        text.chunks(PIECE_BYTES).try_for_each(|part| self.send_part(part.to_vec()))
    }

    /// Counts a record that was looked at.
    pub(super) fn note_record(&self) {
        self.walks.records.fetch_add(1, Ordering::Relaxed);
    }

    fn send_part(&self, part: Vec<u8>) -> Result<(), Gone> {
        let part = match self.sender.try_send(part) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Disconnected(_)) => return Err(Gone),
            Err(TrySendError::Full(part)) => part,
        };
        *lock(&self.walk.stalled_since) = Some(Instant::now());
        let sent = self.sender.send(part).map_err(|_| Gone);
        *lock(&self.walk.stalled_since) = None;
        sent
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // Unless another walk has taken its place.
        lock(&self.walks.current).take_if(|current| Arc::ptr_eq(current, &self.walk));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn stalled_walk_makes_way_for_the_next_client() {
        let walks = Arc::<Walks>::default();
        let (lazy, pieces) = walks.begin().unwrap();
        let walker = thread::spawn(move || (0..4).try_for_each(|_| pieces.send(b"x")).is_err());
        while lock(&lazy.0.stalled_since).is_none() {
            thread::yield_now();
        }
        assert!(walks.begin().is_none(), "it has not stalled for long");
        let later = Instant::now() + STALLED_AFTER;
        let (found, pieces) = walks.begin_at(later).expect("the place of the stalled one");
        assert!(walker.join().unwrap(), "its thread ends");
        assert!(matches!(lazy.next(), Look::CutOff));
        // The first one's end frees no place but its own.
        drop(lazy);
        assert!(walks.is_busy() && walks.begin_at(later).is_none());
        assert!(pieces.send(b"y").is_ok());
        drop(pieces);
        assert!(!walks.is_busy());
        assert!(matches!(found.next(), Look::Piece(piece) if piece == b"y"));
        assert!(matches!(found.next(), Look::Done));
    }

    #[test]
    fn walk_of_a_client_that_reads_or_waits_for_the_walk_stays() {
        let walks = Arc::<Walks>::default();
        let (found, pieces) = walks.begin().unwrap();
        let later = Instant::now() + 10 * STALLED_AFTER;
        assert!(walks.begin_at(later).is_none(), "nothing was found yet");
        assert!(pieces.send(b"x").is_ok() && pieces.send(b"x").is_ok());
        assert!(walks.begin_at(later).is_none(), "the thread does not wait");
        drop(found);
        assert!(pieces.send(b"x").is_err(), "the client is gone");
    }
}
