//! One reader of a stream: pieces that wait for it, a bounded number, and whether it was given up.

use hyper::body::Bytes;
use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces that wait for a reader. One that takes none while they come is given up.
const PIECES_MAX: usize = 4;

/// The reader's end.
pub(super) struct Stream {
    pieces: Receiver<Bytes>,
    given_up: Rc<Cell<bool>>,
}

/// The source's end.
pub(super) struct Giver {
    pieces: Sender<Bytes>,
    given_up: Rc<Cell<bool>>,
}

/// Whether the source has given a stream up.
pub(super) struct GivenUp(Rc<Cell<bool>>);

/// Both ends of a new stream.
pub(super) fn stream() -> (Giver, Stream) {
    let (sender, pieces) = channel(PIECES_MAX);
    let given_up = Rc::<Cell<bool>>::default();
    (Giver { pieces: sender, given_up: Rc::clone(&given_up) }, Stream { pieces, given_up })
}

impl Stream {
    /// The next piece; `None` at the end.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.pieces.poll_recv(context)
    }

    pub(super) fn given_up(&self) -> GivenUp {
        GivenUp(Rc::clone(&self.given_up))
    }
}

impl Giver {
    /// Gives the reader a piece; `false` if it is gone or takes none.
    pub(super) fn give(&self, piece: Bytes) -> bool {
        self.pieces.try_send(piece).is_ok()
    }

    /// Whether the reader is there.
    pub(super) fn is_read(&self) -> bool {
        !self.pieces.is_closed()
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.given_up.set(true);
    }
}

impl GivenUp {
    pub(super) fn is_so(&self) -> bool {
        self.0.get()
    }
}
