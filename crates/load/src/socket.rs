//! A connection's socket: TCP, Unix, or TLS over TCP.

use crate::{Address, LoadError, Tls};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A stream that is connected, its TLS handshake done; blocks until told otherwise.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    pub(crate) fn connect(address: &Address, tls: Option<&Tls>) -> Result<Self, LoadError> {
        let failed = |error| LoadError::Connect { address: address.to_string(), error };
        let socket = match (address, tls) {
            (Address::Unix(path), None) => Self::Unix(UnixStream::connect(path).map_err(failed)?),
            (Address::Unix(_), Some(_)) => {
                return Err(LoadError::Plan("a Unix socket has no TLS".into()));
            }
            (Address::Tcp(address), tls) => {
                let mut stream = TcpStream::connect(address).map_err(failed)?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Self::Tcp(stream),
                    Some(tls) => {
                        let mut session = tls.session(address.ip())?;
                        while session.is_handshaking() {
                            session.complete_io(&mut stream).map_err(failed)?;
                        }
                        Self::Tls(Box::new(StreamOwned::new(session, stream)))
                    }
                }
            }
        };
        Ok(socket)
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tls(stream) => stream.sock.set_nonblocking(true),
        }
    }

    pub(crate) fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Self::Unix(stream) => stream.set_read_timeout(Some(time)),
            Self::Tls(stream) => stream.sock.set_read_timeout(Some(time)),
        }
    }

    /// Whether bytes may wait in this process rather than in the kernel: those that came, whom no
    /// poller tells of, and those to be sent, which `flush` sends.
    pub(crate) fn has_own_buffer(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether written bytes wait here for room in the kernel's buffer.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.conn.wants_write())
    }
}

impl Read for Socket {
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Socket {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.sock.as_fd(),
        }
    }
}
