//! A socket and the queue of commands that goes over it.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, sendmsg};
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use terrace_nvme::command::Command;
use terrace_nvme::host::{Event, Queue, QueueConfig, Refused, Tag};
use terrace_nvme::pdu::{Piece, crc32c};

/// What is received at once beyond data whose place is known: some sixteen reads of 4 KiB.
const STAGING_BYTES: usize = 72 << 10;
/// Data of which more than this is still to come are received into their place; less is copied there, with all that
/// comes behind it in the same call.
const PLACED_BYTES_MIN: u32 = 16 << 10;
/// Pieces that are sent at once.
const PIECES: usize = 64;

/// Where the data of commands are.
pub(crate) trait Data {
    /// A range of the data that the command with this tag sends.
    fn sent(&self, tag: usize, offset: u32, bytes: u32) -> &[u8];
    /// The place of a range of what the command with this tag receives.
    fn received(&mut self, tag: usize, offset: u32, bytes: u32) -> &mut [u8];
}

/// A connection with a queue of commands. Calls never block.
pub(crate) struct Wire {
    socket: TcpStream,
    queue: Queue,
    staging: Box<[u8]>,
    /// Whether the socket did not take all that there was to send.
    is_blocked: bool,
}

impl Wire {
    /// Over a socket that is connected and does not block.
    pub(crate) fn new(socket: TcpStream, config: QueueConfig) -> Self {
        let staging = vec![0; STAGING_BYTES].into_boxed_slice();
        Self { socket, queue: Queue::new(config), staging, is_blocked: false }
    }

    /// Most outstanding commands.
    pub(crate) fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Whether [`Wire::submit`] takes another command.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.has_room()
    }

    /// Whether [`Wire::send`] has to be called again once the socket can be written to.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    pub(crate) fn submit(&mut self, command: Command, bytes: u32) -> Result<Tag, Refused> {
        self.queue.submit(command, bytes)
    }

    pub(crate) fn event(&mut self) -> Option<Event> {
        self.queue.event()
    }

    /// Sends what there is to send, as far as the socket takes it.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn send(&mut self, data: &impl Data) -> io::Result<()> {
        loop {
            while let Some(range) = self.queue.digest_wanted() {
                let bytes = data.sent(range.command.into(), range.offset, range.bytes);
                self.queue.set_digest(crc32c(bytes));
            }
            let sent = {
                let mut slices: SmallVec<[IoSlice<'_>; PIECES]> = SmallVec::new();
                for piece in self.queue.pieces().take(PIECES) {
                    slices.push(IoSlice::new(match piece {
                        Piece::Bytes(bytes) => bytes,
                        Piece::Data(range) => {
                            data.sent(range.command.into(), range.offset, range.bytes)
                        }
                    }));
                }
                if slices.is_empty() {
                    self.is_blocked = false;
                    return Ok(());
                }
                let mut control = SendAncillaryBuffer::default();
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                sendmsg(&self.socket, &slices, &mut control, flags)
            };
            match sent {
                Ok(bytes) => self.queue.sent(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.is_blocked = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives what has come. Returns whether anything has.
    ///
    /// # Errors
    /// The connection has ended, or the peer broke the protocol.
    pub(crate) fn receive(&mut self, data: &mut impl Data) -> io::Result<bool> {
        let mut has_come = false;
        loop {
            let place = self.queue.placement().filter(|place| place.bytes >= PLACED_BYTES_MIN);
            let (received, asked, placed) = match place {
                Some(place) => {
                    let target = data.received(place.tag.index(), place.offset, place.bytes);
                    let mut slices = [IoSliceMut::new(target), IoSliceMut::new(&mut self.staging)];
                    let mut control = rustix::net::RecvAncillaryBuffer::default();
                    let received =
                        recvmsg(&self.socket, &mut slices, &mut control, RecvFlags::DONTWAIT);
                    let placed = place.bytes as usize;
                    (received.map(|received| received.bytes), placed + STAGING_BYTES, placed)
                }
                None => {
                    let received = recv(&self.socket, &mut *self.staging, RecvFlags::DONTWAIT);
                    (received.map(|(_, bytes)| bytes), STAGING_BYTES, 0)
                }
            };
            let received = match received {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(has_come),
                Err(error) => return Err(error.into()),
            };
            has_come = true;
            let in_place = received.min(placed);
            if let Some(place) = place {
                let bytes = data.received(place.tag.index(), place.offset, in_place as u32);
                self.queue.placed(bytes).map_err(broken)?;
            }
            self.take_staged(received - in_place, data)?;
            if received < asked {
                return Ok(true);
            }
        }
    }

    /// Takes the first `bytes` of what was received beyond data whose place was known.
    fn take_staged(&mut self, bytes: usize, data: &mut impl Data) -> io::Result<()> {
        let mut input = &self.staging[..bytes];
        while !input.is_empty() {
            let taken = match self.queue.placement() {
                Some(place) => {
                    let bytes = input.len().min(place.bytes as usize);
                    let target = data.received(place.tag.index(), place.offset, bytes as u32);
                    target.copy_from_slice(&input[..bytes]);
                    self.queue.placed(&input[..bytes]).map_err(broken)?;
                    bytes
                }
                None => self.queue.receive(input).map_err(broken)?,
            };
            input = &input[taken..];
        }
        Ok(())
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn broken(ended: terrace_nvme::pdu::Ended) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, ended)
}
