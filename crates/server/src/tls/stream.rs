//! One encrypted connection.

use super::Counters;
use crate::server::socket;
use rustix::net::getpeername;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Records that are taken from the socket before others get their turn.
const RECORDS_MAX: usize = 16;
/// Bytes that are encrypted before the socket has taken those before them.
const BUFFERED_MAX: usize = 64 << 10;
/// Memory of a connection besides its buffers for requests and replies, about.
const MEMORY_BYTES: usize = 24 << 10;

/// A socket, and the state of TLS on it.
pub(crate) struct TlsStream {
    socket: OwnedFd,
    tls: ServerConnection,
    counters: Arc<Counters>,
    /// The handshake is over, and was counted.
    is_open: bool,
    /// The client has sent its last byte.
    has_ended: bool,
}

/// How a receive went; what was decrypted was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decrypted {
    Some,
    /// The socket is empty.
    Drained,
    End,
}

impl TlsStream {
    pub(super) fn new(
        socket: OwnedFd,
        config: Arc<ServerConfig>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(BUFFERED_MAX));
        Ok(Self { socket, tls, counters, is_open: false, has_ended: false })
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Appends to `bytes`, within its capacity, what the client sent.
    pub(crate) fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<Decrypted> {
        for _ in 0..RECORDS_MAX {
            if self.take(bytes) > 0 {
                return Ok(Decrypted::Some);
            }
            if self.has_ended {
                return Ok(Decrypted::End);
            }
            match self.tls.read_tls(&mut Raw(&self.socket)) {
                Ok(0) => self.has_ended = true,
                Ok(_) => self.decrypt()?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Decrypted::Drained);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Decrypted::Some)
    }

    /// Moves what is decrypted already.
    fn take(&mut self, bytes: &mut Vec<u8>) -> usize {
        let mut reader = self.tls.reader();
        // An error says that there is nothing, or never will be.
        let Ok(there) = reader.fill_buf() else { return 0 };
        let taken = there.len().min(bytes.capacity() - bytes.len());
        bytes.extend_from_slice(&there[..taken]);
        reader.consume(taken);
        taken
    }

    fn decrypt(&mut self) -> io::Result<()> {
        match self.tls.process_new_packets() {
            Ok(state) => self.has_ended |= state.peer_has_closed(),
            Err(error) => {
                let counters = &self.counters;
                let counter = match self.is_open {
                    true => &counters.protocol_errors,
                    false => &counters.handshake_errors,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                counters.refuse(|| peer(&self.socket), &error);
                // The client is told why, if it still listens.
                let _ = self.tls.write_tls(&mut Raw(&self.socket));
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
        if !self.is_open && !self.tls.is_handshaking() {
            self.is_open = true;
            self.counters.sessions.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Encrypts some of `bytes` and sends what the socket takes; `WouldBlock` if it takes nothing
    /// more.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        match self.tls.writer().write(bytes)? {
            // The handshake is not over.
            0 => Err(ErrorKind::WouldBlock.into()),
            written => {
                self.flush()?;
                Ok(written)
            }
        }
    }

    /// Sends what is encrypted; `false` if the socket did not take all of it.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Raw(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The socket took all of what is encrypted.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.tls.wants_write()
    }

    /// Bytes of memory held, about.
    pub(crate) fn memory(&self) -> usize {
        MEMORY_BYTES + if self.is_flushed() { 0 } else { BUFFERED_MAX }
    }

    /// Tells the client that nothing more comes, so that it knows that nothing was cut off.
    pub(crate) fn close(&mut self) {
        if self.is_open {
            self.tls.send_close_notify();
            let _ = self.flush();
        }
    }
}

/// Where a client is, for the log.
fn peer(socket: &OwnedFd) -> String {
    let address = getpeername(socket).ok().flatten();
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    address.map_or("gone".to_string(), |address| address.to_string())
}

/// The socket as rustls uses it.
struct Raw<'s>(&'s OwnedFd);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        socket::receive(self.0, buffer)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::send(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
