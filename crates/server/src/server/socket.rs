//! Sending and receiving, encrypted or not.

use super::input::Received;
use super::udp::Datagram;
use crate::tls::{Decrypted, TlsStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A client's socket.
pub(crate) enum Socket {
    Plain(OwnedFd),
    Tls(Box<TlsStream>),
    Datagram(Box<Datagram>),
}

impl Socket {
    /// The descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(fd) => fd.as_fd(),
            Self::Tls(stream) => stream.socket().as_fd(),
            Self::Datagram(datagram) => AsFd::as_fd(&**datagram.port()),
        }
    }

    /// What the log calls the connection.
    pub(crate) fn number(&self) -> i32 {
        self.fd().as_raw_fd()
    }

    /// Appends to `bytes`, within its capacity, what the client sent.
    #[inline]
    pub(crate) fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<Received> {
        match self {
            Self::Plain(fd) => receive_plain(fd, bytes),
            Self::Tls(stream) => stream.receive(bytes).map(|decrypted| match decrypted {
                Decrypted::Some => Received::More,
                Decrypted::Drained => Received::Drained,
                Decrypted::End => Received::End,
            }),
            Self::Datagram(datagram) => Ok(datagram.receive(bytes)),
        }
    }

    /// Sends some of `bytes`; `WouldBlock` when nothing more is taken.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(fd) => send(fd, bytes),
            Self::Tls(stream) => stream.send(bytes),
            Self::Datagram(datagram) => Ok(datagram.send(bytes)),
        }
    }

    /// Sends some of the bytes of several slices, of which none is empty, as [`Socket::send`] does.
    pub(crate) fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(fd) => {
                let mut control = SendAncillaryBuffer::default();
                Ok(rustix::net::sendmsg(fd, slices, &mut control, SendFlags::NOSIGNAL)?)
            }
            Self::Tls(_) | Self::Datagram(_) => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                first.map_or(Ok(0), |slice| self.send(slice))
            }
        }
    }

    /// Whether everything that was sent is on its way, which it tries again to bring there.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) | Self::Datagram(_) => Ok(true),
            Self::Tls(stream) => stream.flush(),
        }
    }

    /// Whether everything that was sent is on its way.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Datagram(_) => true,
            Self::Tls(stream) => stream.is_flushed(),
        }
    }

    /// Whether it would take nothing at present, of which an event tells the end.
    pub(crate) fn takes_nothing(&mut self) -> bool {
        if matches!(self, Self::Datagram(_)) {
            return false;
        }
        // An error shows in the next turn.
        if self.flush().is_ok_and(|is_flushed| !is_flushed) {
            return true;
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(self.fd(), PollFlags::OUT)], Some(&now)) == Ok(0)
    }

    /// Everything was sent: says so, where that is done in words.
    pub(crate) fn close(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(stream) => stream.close(),
            Self::Datagram(datagram) => datagram.deliver(),
        }
    }

    /// Bytes of memory held, about.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(stream) => stream.memory(),
            Self::Datagram(datagram) => datagram.memory(),
        }
    }
}

fn receive_plain(fd: &OwnedFd, bytes: &mut Vec<u8>) -> io::Result<Received> {
    let room = bytes.capacity() - bytes.len();
    let spare = rustix::buffer::spare_capacity(bytes);
    match rustix::net::recv(fd, spare, RecvFlags::empty()) {
        Ok((0, _)) => Ok(Received::End),
        // epoll(7): a read that comes back short has emptied a stream socket.
        Ok((received, _)) if received < room => Ok(Received::Drained),
        Ok(_) => Ok(Received::More),
        Err(rustix::io::Errno::AGAIN) => Ok(Received::Drained),
        Err(rustix::io::Errno::INTR) => Ok(Received::More),
        Err(error) => Err(error.into()),
    }
}

/// Receives bytes as they are.
pub(crate) fn receive(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, buffer, RecvFlags::empty())?.0)
}

/// Sends bytes as they are.
pub(crate) fn send(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)?)
}
