//! The reads of one worker from all of its drives, each in the best way that the drive and the system have.

use crate::buffer::AlignedBuf;
use crate::drive::{Device, Geometry, Reads};
use crate::event::Event;
use crate::health::Direction;
use crate::pool::{Finished, Pool};
use crate::queue::{Done, Read, ReadQueue, detached, no_such_drive, wait_for_event};
use crate::ring::Ring;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of buffers that the kernel knows, unless told otherwise: more are of little use to one queue.
const KNOWN_BYTES_MAX: usize = 2 << 20;
/// More threads than this of one queue only wait for each other, whatever the depth. Drives share them evenly.
const THREADS_MAX: u32 = 16;

/// What reads drives that have a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring where the system allows it, else threads.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// A few threads per worker that block in pread.
    Pool,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Auto => "auto",
            Engine::IoUring => "io_uring",
            Engine::Pool => "pool",
        })
    }
}

/// The way in which a queue reads one of its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// Through the queue's ring.
    IoUring,
    /// By threads of the drive, in blocking calls.
    Threads,
    /// By the worker itself, at each flush.
    Synchronous,
}

/// The reads of one worker, whatever its drives are: drives with a descriptor share a ring, the others have threads or
/// are read by the worker itself, and one event tells of them all. Belongs to the thread that opened it.
///
/// Drives are attached and detached while reads are under way. A drive keeps its number as long as the queue lives;
/// numbers are given in the order of attaching, from 0 on, and are not used again.
pub struct WorkerQueue {
    engine: Engine,
    depth: u32,
    known_bytes_max: usize,
    event: Arc<Event>,
    /// By number.
    drives: Vec<Attached>,
    /// Opened with the first drive that has a descriptor.
    ring: Option<Ring>,
    /// Why there is no ring, under [`Engine::Auto`].
    fallback: Option<io::Error>,
    /// What threads have read.
    finished: Arc<Finished>,
    /// Reads that threads have, or get at the next flush.
    with_threads: usize,
    /// Reads that the worker itself makes at the next flush.
    synchronous: Vec<Read>,
    /// For the next reap: what the worker itself has read, and what no drive gets.
    ready: Vec<Done>,
}

struct Attached {
    geometry: Geometry,
    way: Way,
}

/// How reads get to a drive.
enum Way {
    /// By the number of its file in the ring.
    Ring(u32, Arc<dyn Device>),
    Threads(Pool),
    Synchronous(Arc<dyn Device>),
    Detached,
}

impl WorkerQueue {
    /// Opens a queue over `drives`, which get the numbers from 0 on; at most `depth` reads (0 counts as 1) are under
    /// way at once. Must be called on the thread that uses it.
    ///
    /// # Errors
    /// With [`Engine::IoUring`] where the system forbids it and a drive has a descriptor; else when descriptors, threads
    /// or memory run out.
    pub fn open(drives: &[Arc<dyn Device>], engine: Engine, depth: u32) -> io::Result<Self> {
        Self::open_within(drives, engine, depth, KNOWN_BYTES_MAX)
    }

    /// As [`WorkerQueue::open`], with at most `known_bytes_max` bytes of buffers that the kernel knows, which are resident
    /// all the time (see [`ReadQueue::buffer`]).
    ///
    /// # Errors
    /// As of [`WorkerQueue::open`].
    pub fn open_within(
        drives: &[Arc<dyn Device>],
        engine: Engine,
        depth: u32,
        known_bytes_max: usize,
    ) -> io::Result<Self> {
        let event = Arc::new(Event::new()?);
        let mut queue = Self {
            engine,
            depth: depth.max(1),
            known_bytes_max,
            finished: Arc::new(Finished::new(Arc::clone(&event))),
            event,
            drives: Vec::new(),
            ring: None,
            fallback: None,
            with_threads: 0,
            synchronous: Vec::new(),
            ready: Vec::new(),
        };
        for drive in drives {
            queue.attach_among(Arc::clone(drive), drives.len())?;
        }
        Ok(queue)
    }

    /// Takes another drive and returns its number, which is that of [`Read::device`]. It shares the depth that the queue
    /// was opened with. Must be called on the queue's own thread.
    ///
    /// # Errors
    /// As of [`WorkerQueue::open`]; the queue goes on with the drives that it has.
    pub fn attach(&mut self, drive: Arc<dyn Device>) -> io::Result<usize> {
        let attached = self.drives.iter().filter(|drive| !drive.is_detached()).count();
        self.attach_among(drive, attached + 1)
    }

    /// One of `drives` drives.
    fn attach_among(&mut self, drive: Arc<dyn Device>, drives: usize) -> io::Result<usize> {
        let geometry = drive.geometry();
        let way = match drive.reads() {
            Reads::Synchronous => Way::Synchronous(drive),
            Reads::Ring(fd) if self.has_ring()? => match &mut self.ring {
                Some(ring) => Way::Ring(ring.attach(fd)?, Arc::clone(&drive)),
                None => self.threads(Arc::clone(&drive), drives)?,
            },
            Reads::Ring(_) | Reads::Threads => self.threads(drive, drives)?,
        };
        self.drives.push(Attached { geometry, way });
        Ok(self.drives.len() - 1)
    }

    /// Opens the ring unless that was tried before, and returns whether there is one.
    fn has_ring(&mut self) -> io::Result<bool> {
        if self.ring.is_none() && self.fallback.is_none() && self.engine != Engine::Pool {
            match Ring::open(&self.event, self.depth, self.known_bytes_max) {
                Ok(ring) => self.ring = Some(ring),
                Err(error) if self.engine == Engine::IoUring => return Err(error),
                Err(error) => self.fallback = Some(error),
            }
        }
        Ok(self.ring.is_some())
    }

    /// Threads for one of `drives` drives.
    fn threads(&self, drive: Arc<dyn Device>, drives: usize) -> io::Result<Way> {
        let threads = (self.depth.min(THREADS_MAX) as usize).div_ceil(drives.max(1));
        Ok(Way::Threads(Pool::open(drive, threads, Arc::clone(&self.finished))?))
    }

    /// Gives up a drive. Its reads that no thread and no kernel has begun come back as failed, and so does all that is
    /// submitted for it from now on; those that were begun come back as they end. Never blocks. Must be called on the
    /// queue's own thread. Does nothing to a drive that there is not.
    pub fn detach(&mut self, number: usize) {
        let Some(drive) = self.drives.get_mut(number) else { return };
        let mut left = match std::mem::replace(&mut drive.way, Way::Detached) {
            Way::Ring(file, _) => match &mut self.ring {
                Some(ring) => ring.detach(file),
                None => Vec::new(),
            },
            Way::Threads(pool) => {
                let left = pool.close();
                self.with_threads -= left.len();
                left
            }
            Way::Synchronous(_) => {
                let is_its = |read: &mut Read| read.device == number;
                self.synchronous.extract_if(.., is_its).collect()
            }
            Way::Detached => Vec::new(),
        };
        let refuse = |Read { token, buf, .. }| Done { token, buf, result: Err(detached()) };
        self.ready.extend(left.drain(..).map(refuse));
        if !self.ready.is_empty() {
            self.event.signal();
        }
    }

    /// How a drive is read; `None` for one that there is not, or that was detached.
    pub fn path(&self, number: usize) -> Option<ReadPath> {
        match self.drives.get(number)?.way {
            Way::Ring(..) => Some(ReadPath::IoUring),
            Way::Threads(_) => Some(ReadPath::Threads),
            Way::Synchronous(_) => Some(ReadPath::Synchronous),
            Way::Detached => None,
        }
    }

    /// Why drives with a descriptor are read by threads under [`Engine::Auto`]; `None` where they are not, or there
    /// is none.
    pub fn fallback(&self) -> Option<&io::Error> {
        self.fallback.as_ref()
    }

    /// Whether any drive is read through io_uring.
    pub fn uses_io_uring(&self) -> bool {
        self.ring.is_some()
    }

    /// Records errors of the ring's reads with their drives; those of other reads were recorded by the drives.
    #[inline]
    fn record_failed(&mut self) {
        let Some(failed) = self.ring.as_mut().and_then(Ring::take_failed) else { return };
        for (number, error) in failed {
            if let Some(Attached { way: Way::Ring(_, drive), .. }) = self.drives.get(number)
                && let Some(monitor) = drive.monitor()
            {
                monitor.record_error(Direction::Read, &error);
            }
        }
    }

    /// Whether nothing but the ring has reads under way.
    fn is_all_in_ring(&self) -> bool {
        self.with_threads == 0 && self.synchronous.is_empty() && self.ready.is_empty()
    }
}

impl Attached {
    fn is_detached(&self) -> bool {
        matches!(self.way, Way::Detached)
    }
}

impl ReadQueue for WorkerQueue {
    fn submit(&mut self, read: Read) {
        let checked = match self.drives.get_mut(read.device) {
            Some(drive) => match drive.geometry.check(read.offset, read.buf.len()) {
                Ok(()) => match &mut drive.way {
                    Way::Ring(file, _) => {
                        if let Some(ring) = &mut self.ring {
                            return ring.submit(read, *file);
                        }
                        Err(detached())
                    }
                    Way::Threads(pool) => {
                        self.with_threads += 1;
                        return pool.submit(read);
                    }
                    Way::Synchronous(_) => return self.synchronous.push(read),
                    Way::Detached => Err(detached()),
                },
                wrong => wrong,
            },
            None => Err(no_such_drive(read.device)),
        };
        self.ready.push(Done { token: read.token, buf: read.buf, result: checked });
    }

    fn buffer(&mut self, len: usize) -> AlignedBuf {
        let known = self.ring.as_ref().and_then(|ring| ring.buffer(len));
        known.unwrap_or_else(|| AlignedBuf::zeroed(len))
    }

    fn flush(&mut self) -> io::Result<()> {
        for mut read in self.synchronous.drain(..) {
            if let Some(Attached { way: Way::Synchronous(drive), .. }) =
                self.drives.get(read.device)
            {
                let result = drive.read_at(read.offset, &mut read.buf);
                self.ready.push(Done { token: read.token, buf: read.buf, result });
            }
        }
        if !self.ready.is_empty() {
            self.event.signal();
        }
        if self.with_threads > 0 {
            for drive in &mut self.drives {
                if let Way::Threads(pool) = &mut drive.way {
                    pool.flush();
                }
            }
        }
        self.ring.as_mut().map_or(Ok(()), Ring::flush)
    }

    fn has_news(&mut self) -> bool {
        self.ring.as_mut().is_some_and(Ring::has_news)
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.ready);
        if self.with_threads > 0 {
            let before = done.len();
            self.finished.take(done);
            self.with_threads -= done.len() - before;
        }
        if let Some(ring) = &mut self.ring {
            ring.reap(done);
        }
        self.record_failed();
    }

    fn wait(&mut self, done: &mut Vec<Done>, patience: Duration) -> io::Result<()> {
        let is_all_in_ring = self.is_all_in_ring();
        match &mut self.ring {
            Some(ring) if is_all_in_ring && ring.waits_in_kernel() => {
                ring.wait(done, patience)?;
                self.record_failed();
                Ok(())
            }
            _ => wait_for_event(self, done, patience),
        }
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn clear_event(&mut self) {
        self.event.clear();
    }

    fn in_flight(&self) -> usize {
        let with_ring = self.ring.as_ref().map_or(0, Ring::in_flight);
        with_ring + self.with_threads + self.synchronous.len() + self.ready.len()
    }
}
