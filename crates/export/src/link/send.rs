//! Sends what a connection has for its host: headers and data in one call, without a copy.

use super::{Link, Phase, Turn, is_temporary};
use arrayvec::ArrayVec;
use std::io::{self, IoSlice, Write as _};
use std::net::Shutdown;
use std::time::Instant;
use terrace_nvme::controller::Event;
use terrace_nvme::pdu::{Piece, crc32c};

/// Pieces of one call: a full sender has three for each of its frames.
const PIECES: usize = 96;

/// What became of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing is left.
    All,
    /// The socket takes no more for now.
    Blocked,
}

impl Link {
    /// Sends all that there is to send, as far as the socket takes it, and serves commands that waited for buffers which
    /// that has freed.
    ///
    /// # Errors
    /// Of the socket.
    pub(crate) fn send(&mut self, turn: &mut Turn, number: usize) -> io::Result<Sent> {
        loop {
            let sent = self.send_now(turn.now)?;
            if self.data.waiting.is_empty() || sent == Sent::Blocked {
                return Ok(sent);
            }
            let before = self.data.waiting.len();
            self.serve(turn, number);
            self.complete_all(turn);
            if self.data.waiting.len() == before {
                return Ok(sent);
            }
        }
    }

    fn send_now(&mut self, now: Instant) -> io::Result<Sent> {
        let Self { socket: Some(socket), connection, data, .. } = self else {
            return Ok(Sent::All);
        };
        loop {
            while let Some(range) = connection.digest_wanted() {
                connection.set_digest(crc32c(data.bytes(range.command, range.offset, range.bytes)));
            }
            let slices: ArrayVec<IoSlice<'_>, PIECES> = connection
                .pieces()
                .take(PIECES)
                .map(|piece| match piece {
                    Piece::Bytes(bytes) => IoSlice::new(bytes),
                    Piece::Data(range) => {
                        IoSlice::new(data.bytes(range.command, range.offset, range.bytes))
                    }
                })
                .collect();
            if slices.is_empty() {
                break;
            }
            let sent = socket.write_vectored(&slices);
            drop(slices);
            match sent {
                Ok(bytes) => {
                    connection.sent(bytes);
                    self.moved = now;
                    while let Some(event) = connection.event() {
                        if let Event::Released { tag } = event {
                            drop(data.take(tag));
                        }
                    }
                }
                Err(error) if is_temporary(&error) => return Ok(Sent::Blocked),
                Err(error) => return Err(error),
            }
        }
        if self.phase == Phase::Ending {
            // The host reads the error before it sees the end of the stream.
            let _ = socket.shutdown(Shutdown::Write);
        }
        Ok(Sent::All)
    }
}
