//! Waiting for sockets, and being woken.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Most events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// An epoll set. Everything is registered once, edge-triggered, so that neither back-pressure nor a
/// full socket costs a system call to change what is waited for.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

/// What happened to one registered descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The number that it was registered with.
    pub(crate) number: u64,
    pub(crate) readable: bool,
    /// The other side sent its last byte, or the connection broke: the end shows when reading.
    pub(crate) hung_up: bool,
    /// The connection broke: nothing that is sent arrives any more.
    pub(crate) broke: bool,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches `source` until it is closed.
    pub(crate) fn add(&self, source: impl AsFd, number: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(number), flags)?)
    }

    /// Watches an eventfd, which is only read. (It is always writable, and says so again each time
    /// that it is cleared: watched for that too, every clearing would be a wake-up.)
    pub(crate) fn add_event(&self, source: impl AsFd, number: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(number), flags)?)
    }

    /// Waits until something happens, at most for `timeout` (`None`: for ever).
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout
            .map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
        self.events.clear();
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// How many things the last [`Poll::wait`] saw; [`Poll::ready`] names each.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn ready(&self, at: usize) -> Ready {
        let event = self.events[at];
        let (number, flags) = (event.data.u64(), event.flags);
        let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let broke = flags.contains(EventFlags::ERR);
        Ready { number, readable: hung_up || flags.contains(EventFlags::IN), hung_up, broke }
    }
}

/// Wakes a thread that waits in [`Poll::wait`].
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// To register, or to poll for reading.
    pub(crate) fn fd(&self) -> impl AsFd + '_ {
        &self.0
    }

    pub(crate) fn wake(&self) {
        // Fails only when the counter is at its end, and then the thread is being woken anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_le_bytes());
    }

    /// Makes the descriptor unreadable again.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}
