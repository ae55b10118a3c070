//! Answers too long, or too long in the making, for a worker to write at once: a thread of their own
//! walks over all records while requests go on, or the worker writes a part at a time. Either stops
//! where the client does not take what there is, and ends with the client.

pub(crate) mod items;
pub(crate) mod keys;
pub(crate) mod segments;
pub(crate) mod sizes;
mod walk;

use segments::Segments;
use std::sync::Arc;
use std::thread;
use terrace_cache::{Cache, Dump};
pub(crate) use walk::Walks;
use walk::{Found, Gone, Look, Pieces};

/// What comes next of a listing.
#[derive(Debug)]
pub(crate) enum Next {
    Bytes(Vec<u8>),
    /// Nothing yet.
    Wait,
    End,
    /// The client did not take the listing, and is cut off for another.
    CutOff,
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
    Walk(Found),
    /// Whoever asks for the next piece.
    Segments(Segments),
}

impl Listing {
    /// Walks over all records on a thread of its own; `None` while another walk is under way.
    fn walk(
        cache: &Arc<Cache>,
        walks: &Arc<Walks>,
        terminator: Vec<u8>,
        list: impl FnOnce(Dump, &Pieces) -> Result<(), Gone> + Send + 'static,
    ) -> Option<Self> {
        let (found, pieces) = walks.begin()?;
        let dump = Dump::begin(cache)?;
        let body = move || {
            // Whether the client stayed to the end makes no difference.
            let _ = list(dump, &pieces);
        };
        thread::Builder::new().name("listing".into()).spawn(body).ok()?;
        Some(Self { source: Source::Walk(found), terminator: Some(terminator) })
    }

    /// What comes next; never blocks.
    pub(crate) fn next(&mut self) -> Next {
        let piece = match &mut self.source {
            Source::Walk(found) => match found.next() {
                Look::Piece(bytes) => Some(bytes),
                Look::Empty => return Next::Wait,
                Look::Done => None,
                Look::CutOff => return Next::CutOff,
            },
            Source::Segments(segments) => segments.next(),
        };
        piece.or_else(|| self.terminator.take()).map_or(Next::End, Next::Bytes)
    }
}
