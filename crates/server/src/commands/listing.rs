//! Answers too long, or too long in the making, for a worker to write at once: a thread of their own
//! walks over all records while requests go on, or the worker writes a part at a time. Either stops
//! where the client does not take what there is, and ends with the client.

pub(crate) mod items;
pub(crate) mod keys;
pub(crate) mod segments;
pub(crate) mod sizes;

use segments::Segments;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use terrace_cache::{Cache, Dump};

/// Pieces that wait for the client, at most; each is of some records of a segment, or of a shard's DRAM.
const PIECES_AHEAD: usize = 2;
/// A longer piece is handed over in parts of about so many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// What comes next of a listing.
#[derive(Debug)]
pub(crate) enum Next {
    Bytes(Vec<u8>),
    /// Nothing yet.
    Wait,
    End,
}

/// A listing under way.
#[derive(Debug)]
pub(crate) struct Listing {
    source: Source,
    terminator: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Source {
    /// Another thread.
    Walk(Receiver<Vec<u8>>),
    /// Whoever asks for the next piece.
    Segments(Segments),
}

/// Where the thread of a walk puts what it finds.
struct Pieces(SyncSender<Vec<u8>>);

/// The client is gone.
struct Gone;

impl Pieces {
    fn send(&self, text: &[u8]) -> Result<(), Gone> {
        text.chunks(PIECE_BYTES).try_for_each(|part| self.0.send(part.to_vec()).map_err(|_| Gone))
    }
}

impl Listing {
    /// Walks over all records on a thread of its own; `None` while another walk is under way, which
    /// `busy` tells.
    fn walk(
        cache: &Arc<Cache>,
        busy: &Arc<AtomicBool>,
        terminator: Vec<u8>,
        list: impl FnOnce(Dump, &Pieces) -> Result<(), Gone> + Send + 'static,
    ) -> Option<Self> {
        let turn = Turn::take(busy)?;
        let dump = Dump::begin(cache)?;
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let body = move || {
            let pieces = Pieces(sender);
            // Dropped before those: who sees the end may begin the next.
            let _turn = turn;
            // Whether the client stayed to the end makes no difference.
            let _ = list(dump, &pieces);
        };
        thread::Builder::new().name("listing".into()).spawn(body).ok()?;
        Some(Self { source: Source::Walk(pieces), terminator: Some(terminator) })
    }

    /// What comes next; never blocks.
    pub(crate) fn next(&mut self) -> Next {
        let piece = match &mut self.source {
            Source::Walk(pieces) => match pieces.try_recv() {
                Ok(bytes) => Some(bytes),
                Err(TryRecvError::Empty) => return Next::Wait,
                Err(TryRecvError::Disconnected) => None,
            },
            Source::Segments(segments) => segments.next(),
        };
        piece.or_else(|| self.terminator.take()).map_or(Next::End, Next::Bytes)
    }
}

/// One walk at a time; the next may begin when this is dropped.
struct Turn(Arc<AtomicBool>);

impl Turn {
    fn take(busy: &Arc<AtomicBool>) -> Option<Self> {
        (!busy.swap(true, Ordering::AcqRel)).then(|| Self(Arc::clone(busy)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
