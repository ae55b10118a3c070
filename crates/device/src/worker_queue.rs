//! The reads of one worker from all of its drives, each in the best way that the drive and the system have.

use crate::buffer::AlignedBuf;
use crate::drive::{Drive, Geometry, Reads};
use crate::event::Event;
use crate::failure::unanswered;
use crate::health::{Direction, READ_DEADLINE};
use crate::own_reads::{OwnReads, Wakeup};
use crate::pool::Pool;
use crate::queue::{ReadQueue, detached, no_such_drive, wait_for_event};
use crate::read::{Done, Late, Read};
use crate::ring::Ring;
use crate::thread_reads::ThreadReads;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// By the drive, over a socket of its own for this queue.
    Own,
}

/// The reads of one worker, whatever its drives are: drives with a descriptor share a ring, drives without one have
/// threads or are read by the worker itself, and one event tells of them all. Belongs to the thread that opened it.
///
/// Drives are attached and detached while reads are under way. A drive keeps its number as long as the queue lives;
/// numbers are given in the order of attaching, from 0 on, and are not used again.
pub struct WorkerQueue {
    engine: Engine,
    depth: u32,
    known_bytes_max: usize,
    event: Arc<Event>,
    wakeup: Arc<Wakeup>,
    /// Drives that carry reads out themselves.
    own: Vec<usize>,
    /// By number.
    drives: Vec<Attached>,
    /// Opened with the first drive that has a descriptor.
    ring: Option<Ring>,
    /// Why there is no ring, under [`Engine::Auto`].
    fallback: Option<io::Error>,
    /// Reads that threads have, or get at the next flush.
    with_threads: ThreadReads,
    /// The caller's time, see [`ReadQueue::give_up_late`].
    tick: u32,
    /// Whether a drive is unresponsive.
    is_any_unresponsive: bool,
    /// Reads that the worker itself makes at the next flush.
    synchronous: Vec<Read>,
    /// For the next reap: what the worker itself has read, and what no drive gets.
    ready: Vec<Done>,
}

struct Attached {
    geometry: Geometry,
    way: Way,
    /// The tick in which it was last given a read although it is unresponsive; `None` while it answers.
    unresponsive: Option<u32>,
}

/// How reads get to a drive.
enum Way {
    /// By the number of its file in the ring.
    Ring(u32, Arc<dyn Drive>),
    Threads(Pool, Arc<dyn Drive>),
    Synchronous(Arc<dyn Drive>),
    Own(Box<dyn OwnReads>, Arc<dyn Drive>),
    Detached,
}

impl WorkerQueue {
    /// Opens a queue over `drives`, which get the numbers from 0 on; at most `depth` reads (0 counts as 1) are under
    /// way at once. Must be called on the thread that uses it.
    ///
    /// # Errors
    /// With [`Engine::IoUring`] where the system forbids it and a drive has a descriptor; else when descriptors, threads
    /// or memory run out.
    pub fn open(drives: &[Arc<dyn Drive>], engine: Engine, depth: u32) -> io::Result<Self> {
        Self::open_within(drives, engine, depth, KNOWN_BYTES_MAX)
    }

    /// As [`WorkerQueue::open`], with at most `known_bytes_max` bytes of buffers that the kernel knows, which are resident
    /// all the time (see [`ReadQueue::buffer`]).
    ///
    /// # Errors
    /// As of [`WorkerQueue::open`].
    pub fn open_within(
        drives: &[Arc<dyn Drive>],
        engine: Engine,
        depth: u32,
        known_bytes_max: usize,
    ) -> io::Result<Self> {
        let event = Arc::new(Event::new()?);
        let mut queue = Self {
            engine,
            depth: depth.max(1),
            known_bytes_max,
            with_threads: ThreadReads::new(Arc::clone(&event)),
            wakeup: Wakeup::new(&event),
            own: Vec::new(),
            event,
            drives: Vec::new(),
            ring: None,
            fallback: None,
            tick: 0,
            is_any_unresponsive: false,
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
    pub fn attach(&mut self, drive: Arc<dyn Drive>) -> io::Result<usize> {
        let attached = self.drives.iter().filter(|drive| !drive.is_detached()).count();
        self.attach_among(drive, attached + 1)
    }

    /// One of `drives` drives.
    fn attach_among(&mut self, drive: Arc<dyn Drive>, drives: usize) -> io::Result<usize> {
        let geometry = drive.geometry();
        let way = match drive.reads() {
            Reads::Synchronous => Way::Synchronous(drive),
            Reads::Ring(fd) if self.has_ring()? => match &mut self.ring {
                Some(ring) => Way::Ring(ring.attach(fd)?, Arc::clone(&drive)),
                None => self.threads(Arc::clone(&drive), drives)?,
            },
            Reads::Own(reads) => match reads.open_reads(self.depth, self.wakeup.waker()?) {
                Some(reads) => {
                    self.own.push(self.drives.len());
                    Way::Own(reads, Arc::clone(&drive))
                }
                None => self.threads(drive, drives)?,
            },
            Reads::Ring(_) | Reads::Threads => self.threads(drive, drives)?,
        };
        self.drives.push(Attached { geometry, way, unresponsive: None });
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
    fn threads(&self, drive: Arc<dyn Drive>, drives: usize) -> io::Result<Way> {
        let threads = (self.depth.min(THREADS_MAX) as usize).div_ceil(drives.max(1));
        let pool = Pool::open(Arc::clone(&drive), threads, self.with_threads.finished())?;
        Ok(Way::Threads(pool, drive))
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
            Way::Threads(pool, _) => {
                let left = pool.close().into_iter();
                left.filter_map(|read| {
                    let (_, token) = self.with_threads.remove(read.token)?;
                    Some(Read { token: token?, ..read })
                })
                .collect()
            }
            Way::Synchronous(_) => {
                let is_its = |read: &mut Read| read.device == number;
                self.synchronous.extract_if(.., is_its).collect()
            }
            Way::Own(mut reads, _) => {
                self.own.retain(|&own| own != number);
                reads.close()
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
            Way::Threads(..) => Some(ReadPath::Threads),
            Way::Synchronous(_) => Some(ReadPath::Synchronous),
            Way::Own(..) => Some(ReadPath::Own),
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
                monitor.record_error(Direction::Read, &drive.explain(error));
            }
        }
    }

    /// Whether nothing but the ring has reads under way.
    fn is_all_in_ring(&self) -> bool {
        self.with_threads.in_flight() == 0
            && self.synchronous.is_empty()
            && self.ready.is_empty()
            && self.own_in_flight() == 0
    }

    /// Reads that drives carry out themselves.
    fn own_reads(&self) -> impl Iterator<Item = &dyn OwnReads> {
        self.own.iter().filter_map(|&number| match &self.drives.get(number)?.way {
            Way::Own(reads, _) => Some(reads.as_ref()),
            _ => None,
        })
    }

    fn own_in_flight(&self) -> usize {
        self.own_reads().map(OwnReads::in_flight).sum()
    }

    /// Has drives that carry reads out themselves look for what has come.
    #[inline]
    fn reap_own(&mut self, done: &mut Vec<Done>) {
        for &number in &self.own {
            if let Some(drive) = self.drives.get_mut(number)
                && let Way::Own(reads, _) = &mut drive.way
                && reads.reap(done)
                && drive.unresponsive.is_some()
            {
                drive.record_answer();
            }
        }
    }
}

/// Reads by threads, and unresponsive drives.
impl WorkerQueue {
    /// Hands a read to the drive's threads, under a token of our own.
    fn submit_to_threads(&mut self, read: Read) {
        let Read { device, token, ref buf, .. } = read;
        let token = self.with_threads.add(device, token, buf.len());
        if let Some(Attached { way: Way::Threads(pool, _), .. }) = self.drives.get_mut(device) {
            pool.submit(Read { token, ..read });
        }
    }

    /// Whether an unresponsive drive gets this read all the same: one in a tick, to see whether it answers.
    #[cold]
    fn is_asked_again(&mut self, number: usize) -> bool {
        let held = self.held_by(number);
        let share = (self.depth as usize).div_ceil(self.drives.len());
        let Some(asked) = self.drives.get_mut(number).and_then(|drive| drive.unresponsive.as_mut())
        else {
            return true;
        };
        *asked != self.tick && held < share && {
            *asked = self.tick;
            true
        }
    }

    /// Reads that were given up and that the drive still has.
    fn held_by(&self, number: usize) -> usize {
        match self.drives.get(number).map(|drive| &drive.way) {
            Some(Way::Ring(file, _)) => {
                self.ring.as_ref().map_or(0, |ring| ring.given_up_of(*file))
            }
            Some(Way::Threads(..)) => self.with_threads.given_up_of(number),
            Some(Way::Own(reads, _)) => reads.given_up(),
            _ => 0,
        }
    }

    /// Takes back what is known of unresponsive drives by now: what they have answered, and what the queues of other
    /// workers have seen.
    fn look_at_drives(&mut self) {
        let answered = self.ring.as_mut().map_or(0, Ring::take_answered);
        for number in 0..self.drives.len() {
            let drive = &mut self.drives[number];
            let has_answered = matches!(drive.way, Way::Ring(file, _) if answered >> file & 1 == 1);
            let monitor = drive.way.drive().and_then(|drive| drive.monitor());
            let is_watched = monitor.is_some();
            let is_known = monitor.is_some_and(|monitor| monitor.unanswered_for().is_some());
            match drive.unresponsive {
                Some(_) if has_answered => drive.record_answer(),
                Some(_) if is_watched && !is_known => drive.unresponsive = None,
                None if is_known && !has_answered => drive.unresponsive = Some(self.tick),
                _ => {}
            }
        }
        self.is_any_unresponsive = self.drives.iter().any(|drive| drive.unresponsive.is_some());
    }

    /// Gives up what was submitted too long ago.
    fn give_up_all_late(&mut self) {
        let tick = self.tick;
        let mut late = Vec::new();
        if let Some(ring) = &mut self.ring {
            ring.give_up_late(tick, &mut late);
        }
        self.with_threads.give_up_late(tick, &mut late);
        for &number in &self.own {
            if let Some(Attached { way: Way::Own(reads, _), .. }) = self.drives.get_mut(number) {
                reads.give_up_late(tick, &mut late);
            }
        }
        for Late { device, buf, token } in late {
            let error = unanswered();
            if let Some(drive) = self.drives.get_mut(device) {
                drive.unresponsive.get_or_insert(tick);
                self.is_any_unresponsive = true;
                if let Some(monitor) = drive.way.drive().and_then(|drive| drive.monitor()) {
                    monitor.record_error(Direction::Read, &error);
                    monitor.record_unanswered(Instant::now().checked_sub(READ_DEADLINE));
                }
            }
            self.ready.push(Done { token, buf, result: Err(error) });
        }
        if !self.ready.is_empty() {
            self.event.signal();
        }
    }
}

impl Way {
    fn drive(&self) -> Option<&Arc<dyn Drive>> {
        match self {
            Way::Ring(_, drive)
            | Way::Threads(_, drive)
            | Way::Synchronous(drive)
            | Way::Own(_, drive) => Some(drive),
            Way::Detached => None,
        }
    }
}

impl Attached {
    /// Records that the drive has answered something.
    fn record_answer(&mut self) {
        if self.unresponsive.take().is_some()
            && let Some(monitor) = self.way.drive().and_then(|drive| drive.monitor())
        {
            monitor.record_answer();
        }
    }

    fn is_detached(&self) -> bool {
        matches!(self.way, Way::Detached)
    }
}

impl ReadQueue for WorkerQueue {
    fn attach(&mut self, drive: Arc<dyn Drive>) -> io::Result<usize> {
        WorkerQueue::attach(self, drive)
    }

    fn detach(&mut self, number: usize) {
        WorkerQueue::detach(self, number);
    }

    fn submit(&mut self, read: Read) {
        if self.is_any_unresponsive && !self.is_asked_again(read.device) {
            let Read { token, buf, .. } = read;
            return self.ready.push(Done { token, buf, result: Err(unanswered()) });
        }
        let checked = match self.drives.get_mut(read.device) {
            Some(drive) => match drive.geometry.check(read.offset, read.buf.len()) {
                Ok(()) => match &mut drive.way {
                    Way::Ring(file, _) => {
                        if let Some(ring) = &mut self.ring {
                            return ring.submit(read, *file);
                        }
                        Err(detached())
                    }
                    Way::Threads(..) => return self.submit_to_threads(read),
                    Way::Synchronous(_) => return self.synchronous.push(read),
                    Way::Own(reads, _) => return reads.submit(read),
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
        if self.with_threads.in_flight() > 0 {
            for drive in &mut self.drives {
                if let Way::Threads(pool, _) = &mut drive.way {
                    pool.flush();
                }
            }
        }
        for &number in &self.own {
            if let Some(Attached { way: Way::Own(reads, _), .. }) = self.drives.get_mut(number) {
                reads.flush();
            }
        }
        self.ring.as_mut().map_or(Ok(()), Ring::flush)
    }

    fn has_news(&mut self) -> bool {
        self.ring.as_mut().is_some_and(Ring::has_news)
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.ready);
        self.with_threads.reap(done, |number| {
            if let Some(drive) = self.drives.get_mut(number) {
                drive.record_answer();
            }
        });
        if let Some(ring) = &mut self.ring {
            ring.reap(done);
        }
        self.reap_own(done);
        self.record_failed();
        if self.is_any_unresponsive {
            self.look_at_drives();
        }
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
        self.wakeup.fd()
    }

    fn clear_event(&mut self) {
        self.event.clear();
    }

    fn in_flight(&self) -> usize {
        let with_ring = self.ring.as_ref().map_or(0, Ring::in_flight);
        let in_memory = self.synchronous.len() + self.ready.len();
        with_ring + self.with_threads.in_flight() + self.own_in_flight() + in_memory
    }

    #[inline]
    fn give_up_late(&mut self, tick: u32) {
        if self.tick != tick {
            self.tick = tick;
            self.look_at_drives();
            self.give_up_all_late();
        }
    }

    fn holds_given_up(&self) -> bool {
        self.with_threads.given_up() > 0
            || self.ring.as_ref().is_some_and(|ring| ring.given_up() > 0)
            || self.own_reads().any(|reads| reads.given_up() > 0)
    }
}
