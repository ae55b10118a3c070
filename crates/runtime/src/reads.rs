//! A worker's reads from drives: bounded memory, no more at once than helps, one batch per loop, and none
//! that waits for room longer than a drive is waited for. The queue ([`terrace_device::WorkerQueue`]) gives up what a
//! drive does not answer.

use crate::drives::{Drives, Kept};
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_cache::ReadPlan;
use terrace_device::{
    AlignedBuf, Depth, Done, Drive, Engine, LongBuffers, Read, ReadQueue, Waited, WorkerQueue,
    is_unanswered,
};

/// Reads that a drive gets at once which was not measured. What exceeds it waits here, without a buffer.
const DEPTH: u32 = 128;
/// As soon as a drive has brought some it gets such a part of its reads besides, before it is known how many it brought.
const AHEAD: u32 = 16;
/// So many reads have one look at the clock, which takes a hundredth of the time that one of them does.
pub const TIMED_TOGETHER: usize = 8;
/// Shorter reads have the queue's own buffers.
const SHORT_BYTES_MAX: usize = 8 << 10;

/// Bytes of buffers of each worker, in flight or held as evidence, at most, unless a single read is
/// longer. What exceeds it waits. Many at once are what brings a drive to its bandwidth; all workers
/// together have 16 MiB as far as 512 KiB each allow.
fn share_of_buffers(workers: u32) -> usize {
    ((16 << 20) / workers.max(1) as usize).clamp(512 << 10, 8 << 20)
}

/// Bytes of each worker's buffers that the kernel knows: all of them are resident whether or not they are used, and
/// all workers together have 8 MiB at most.
fn known_bytes_max(workers: u32) -> usize {
    ((8 << 20) / workers.max(1) as usize).min(2 << 20)
}

/// The queue of one of `workers` workers, in which no drive takes another's share, even if it answers nothing.
fn queue(drives: &[Arc<dyn Drive>], engine: Engine, workers: u32) -> io::Result<WorkerQueue> {
    let depth = (DEPTH + DEPTH / AHEAD) * drives.len().max(1) as u32;
    WorkerQueue::open_within(drives, engine, depth, known_bytes_max(workers))
}

/// Hears how long reads take, and how many a drive gets at once.
pub trait Meter {
    /// A read of `tier` took `took`.
    fn note_read(&self, tier: usize, took: Duration);
    /// `tier` gets `depth` reads at once from now on.
    fn note_depth(&self, tier: usize, depth: u32);
}

/// Takes no notice.
impl Meter for () {
    fn note_read(&self, _: usize, _: Duration) {}
    fn note_depth(&self, _: usize, _: u32) {}
}

impl<M: Meter> Meter for Arc<M> {
    fn note_read(&self, tier: usize, took: Duration) {
        M::note_read(self, tier, took);
    }
    fn note_depth(&self, tier: usize, depth: u32) {
        M::note_depth(self, tier, depth);
    }
}

/// A read that came back.
pub struct Finished<T> {
    /// As it was submitted with.
    pub token: T,
    /// What was read, to be handed back with [`Reads::release`].
    pub buffer: AlignedBuf,
    /// Whether the drive gave it.
    pub result: io::Result<()>,
}

/// A read that waits for room.
struct Asked<T> {
    token: T,
    plan: ReadPlan,
    waited: Waited,
}

struct Started<T> {
    token: T,
    plan: ReadPlan,
    /// When it was handed to the drive, or a few others later.
    at: Option<Instant>,
}

/// What is known of a tier.
struct Tier<T> {
    /// Reads that found no room.
    waiting: VecDeque<Asked<T>>,
    in_flight: u32,
    /// Where the drive was measured.
    depth: Option<Depth>,
}

impl<T> Tier<T> {
    fn new(depth: Option<Depth>) -> Self {
        Self { waiting: VecDeque::new(), in_flight: 0, depth }
    }

    fn is_full(&self, is_ahead: bool) -> bool {
        let depth = self.depth_now();
        let more = if is_ahead { depth.div_ceil(AHEAD) } else { 0 };
        self.in_flight >= depth + more
    }

    /// Reads that it gets at once.
    fn depth_now(&self) -> u32 {
        self.depth.map_or(DEPTH, |depth| depth.now())
    }
}

/// The reads of one worker from all tiers; each has a token of type `T`, and `meter` hears what they take.
///
/// # Examples
///
/// ```
/// use std::collections::VecDeque;
/// use std::sync::Arc;
/// use terrace_cache::ReadPlan;
/// use terrace_device::{Drive, Engine, FileDevice};
/// use terrace_runtime::drives::Drives;
/// use terrace_runtime::reads::Reads;
///
/// let path = std::env::temp_dir().join(format!("terrace-reads-{}", std::process::id()));
/// std::fs::write(&path, [7; 4096])?;
/// let drive: Arc<dyn Drive> = Arc::new(FileDevice::open(&path, None)?);
/// let mut reads = Reads::open(&Drives::new(vec![drive]), Engine::Auto, 1, |_| None, ())?;
/// reads.submit(ReadPlan { tier: 0, offset: 0, bytes: 4096 }, "a token");
/// let mut finished = VecDeque::new();
/// while finished.is_empty() {
///     reads.flush(false, |_| false)?;
///     reads.reap(&mut finished);
/// }
/// assert_eq!((finished[0].token, &finished[0].buffer[..]), ("a token", &[7; 4096][..]));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reads<T, M> {
    queue: Box<dyn ReadQueue>,
    /// `None` in tests of queues by themselves.
    drives: Option<Kept>,
    workers: u32,
    uses_io_uring: bool,
    /// Why it reads with threads, although it was to use io_uring.
    fallback: Option<String>,
    tiers: Vec<Tier<T>>,
    /// The tier whose waiting reads come first next time, so that none starves another.
    turn: usize,
    /// Bytes of buffers given out.
    buffer_bytes: usize,
    buffer_bytes_max: usize,
    long: LongBuffers,
    /// Short ones that came back, for the next reads: whose they are is not looked at each time.
    short: Vec<AlignedBuf>,
    started: Vec<Option<Started<T>>>,
    /// Reads that were submitted and did not come back, those that wait for room too.
    unfinished: usize,
    /// Reads that waited for room for too long, for the next reap.
    given_up: Vec<Finished<T>>,
    /// What the queue said at the last [`Reads::give_up_late`].
    holds_given_up: bool,
    /// The time in ticks, as of the last [`Reads::give_up_late`].
    tick: u32,
    vacant: Vec<usize>,
    /// Since [`Reads::take_new_event`].
    has_new_event: bool,
    /// The places of those last submitted, whose time is to be noted.
    submitted: ArrayVec<usize, TIMED_TOGETHER>,
    reaped: Vec<Done>,
    meter: M,
}

impl<T: Copy, M: Meter> Reads<T, M> {
    /// Of one of `workers` workers, which share the drives. `knee`: the reads at once beyond which more from that tier
    /// only queue, where it was measured.
    ///
    /// # Errors
    /// The system refuses the queue, or threads.
    pub fn open(
        drives: &Arc<Drives>,
        engine: Engine,
        workers: u32,
        knee: impl Fn(usize) -> Option<u32>,
        meter: M,
    ) -> io::Result<Self> {
        let workers = workers.max(1);
        let changes = drives.changes();
        let all = drives.all();
        let queue = queue(&all, engine, workers)?;
        let (uses_io_uring, fallback) =
            (queue.uses_io_uring(), queue.fallback().map(io::Error::to_string));
        let depth = |knee: u32| Depth::new(knee.div_ceil(workers), DEPTH);
        let depths = (0..all.len()).map(|tier| knee(tier).map(depth));
        let reads = Self::new(Box::new(queue), meter, share_of_buffers(workers), depths);
        let kept = Kept::new(drives, all.len(), changes);
        Ok(Self { drives: Some(kept), workers, uses_io_uring, fallback, ..reads })
    }

    fn new(
        queue: Box<dyn ReadQueue>,
        meter: M,
        buffer_bytes_max: usize,
        depths: impl Iterator<Item = Option<Depth>>,
    ) -> Self {
        let tier = |(number, depth): (usize, Option<Depth>)| {
            let tier = Tier::new(depth);
            meter.note_depth(number, tier.depth_now());
            tier
        };
        Self {
            queue,
            drives: None,
            workers: 1,
            uses_io_uring: false,
            fallback: None,
            tiers: depths.enumerate().map(tier).collect(),
            turn: 0,
            buffer_bytes: 0,
            buffer_bytes_max,
            long: LongBuffers::new(buffer_bytes_max),
            short: Vec::new(),
            started: Vec::new(),
            unfinished: 0,
            given_up: Vec::new(),
            holds_given_up: false,
            tick: 0,
            has_new_event: false,
            vacant: Vec::new(),
            submitted: ArrayVec::new(),
            reaped: Vec::new(),
            meter,
        }
    }

    /// Readable when [`Reads::reap`] has something to do.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.queue.event_fd()
    }

    /// Whether [`Reads::event_fd`] is another one since the last call, because of a drive that came.
    #[inline]
    pub fn take_new_event(&mut self) -> bool {
        std::mem::take(&mut self.has_new_event)
    }

    /// Makes [`Reads::event_fd`] unreadable until there is more to reap; the caller must reap afterwards.
    pub fn clear_event(&mut self) {
        self.queue.clear_event();
    }

    /// Why it reads with threads, although it was to use io_uring.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Goes on with threads, after [`Reads::flush`] failed: the system refuses io_uring after all, such as by a filter
    /// of system calls that came later or lets rings be made and not be used. [`Reads::event_fd`] is another one then.
    ///
    /// # Errors
    /// `error`, if it reads with threads already; or the system refuses these.
    pub fn fall_back(&mut self, error: io::Error) -> io::Result<()> {
        if !self.uses_io_uring {
            return Err(error);
        }
        let Some(kept) = &self.drives else { return Err(error) };
        let (drives, changes) = (Arc::clone(kept.drives()), kept.drives().changes());
        let all = drives.all();
        let queue = queue(&all, Engine::Pool, self.workers)?;
        self.drives = Some(Kept::new(&drives, all.len(), changes));
        self.take_new_tiers();
        (self.uses_io_uring, self.fallback) = (false, Some(error.to_string()));
        self.move_to(Box::new(queue));
        Ok(())
    }

    /// Attaches drives that came, and detaches those that left.
    fn keep_up(&mut self) {
        let before = self.queue.event_fd().as_raw_fd();
        if let Some(drives) = &mut self.drives {
            // What it lacks for a drive it may have later: until then reads of it fail.
            let _ = drives.keep_up(self.queue.as_mut());
            self.take_new_tiers();
        }
        self.has_new_event |= self.queue.event_fd().as_raw_fd() != before;
    }

    fn take_new_tiers(&mut self) {
        let drives = self.drives.as_ref().map_or(0, Kept::len);
        while self.tiers.len() < drives {
            let tier = Tier::new(None);
            self.meter.note_depth(self.tiers.len(), tier.depth_now());
            self.tiers.push(tier);
        }
    }

    /// Goes on with another queue: what the old one did not bring back is read again, and has its time anew.
    fn move_to(&mut self, queue: Box<dyn ReadQueue>) {
        self.queue = queue;
        self.queue.give_up_late(self.tick);
        self.vacant.clear();
        self.submitted.clear();
        self.tiers.iter_mut().for_each(|tier| tier.in_flight = 0);
        for Started { plan, token, .. } in std::mem::take(&mut self.started).into_iter().flatten() {
            self.unfinished -= 1;
            self.buffer_bytes -= plan.bytes as usize;
            self.submit(plan, token);
        }
    }

    /// Reads `plan` for `token`, now or when there is room. Its deadline begins with the next [`Reads::give_up_late`].
    pub fn submit(&mut self, plan: ReadPlan, token: T) {
        if plan.tier >= self.tiers.len() {
            self.keep_up();
        }
        if plan.tier >= self.tiers.len() {
            return self.give_up(plan, token);
        }
        self.unfinished += 1;
        if self.has_room(plan, false) && !self.has_waiting() {
            self.start(plan, token);
        } else {
            let waited = Waited::default();
            self.tiers[plan.tier].waiting.push_back(Asked { token, plan, waited });
        }
    }

    fn has_room(&self, plan: ReadPlan, is_ahead: bool) -> bool {
        let fits = self.buffer_bytes == 0
            || self.buffer_bytes + plan.bytes as usize <= self.buffer_bytes_max;
        fits && !self.tiers[plan.tier].is_full(is_ahead)
    }

    fn start(&mut self, plan: ReadPlan, token: T) {
        let started = Started { token, plan, at: None };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.started[place] = Some(started);
                place
            }
            None => {
                self.started.push(Some(started));
                self.started.len() - 1
            }
        };
        let buf = self.buffer(plan.bytes as usize);
        self.buffer_bytes += buf.len();
        let (device, offset) = (plan.tier, plan.offset);
        self.tiers[device].in_flight += 1;
        self.queue.submit(Read { device, offset, buf, token: place as u64 });
        self.submitted.push(place);
        if self.submitted.is_full() {
            self.note_time();
        }
    }

    /// Room for a read, holding anything.
    fn buffer(&mut self, bytes: usize) -> AlignedBuf {
        if bytes > SHORT_BYTES_MAX {
            return self.long.take(bytes);
        }
        let Some(mut buffer) = self.short.pop() else { return self.queue.buffer(bytes) };
        buffer.set_len(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub fn release(&mut self, buffer: AlignedBuf) {
        self.hand_over(&buffer);
        if buffer.capacity() == SHORT_BYTES_MAX && self.short.len() < DEPTH as usize {
            self.short.push(buffer);
        }
    }

    /// The buffer is another's from now on, until that drops it.
    pub fn hand_over(&mut self, buffer: &AlignedBuf) {
        self.buffer_bytes -= buffer.len();
    }

    /// Bytes of buffers, at most.
    pub fn buffer_bytes_max(&self) -> usize {
        self.buffer_bytes_max
    }

    /// Gives memory back that was not used since the last time.
    pub fn give_back(&mut self) {
        self.long.give_back();
        self.short = Vec::new();
    }

    /// Hands what was submitted to the drives, all at once, but for what waited and is `abandoned` meanwhile:
    /// that is forgotten. `is_ahead`: they have brought some that are still to be reaped.
    ///
    /// # Errors
    /// The queue failed as a whole, now or since the last flush; see [`Reads::fall_back`].
    pub fn flush(
        &mut self,
        is_ahead: bool,
        mut abandoned: impl FnMut(T) -> bool,
    ) -> io::Result<()> {
        self.turn = (self.turn + 1).checked_rem(self.tiers.len()).unwrap_or(0);
        for tier in (self.turn..self.tiers.len()).chain(0..self.turn) {
            while let Some(&Asked { plan, token, .. }) = self.tiers[tier].waiting.front() {
                if abandoned(token) {
                    self.unfinished -= 1;
                } else if self.has_room(plan, is_ahead) {
                    self.start(plan, token);
                } else {
                    break;
                }
                self.tiers[tier].waiting.pop_front();
            }
        }
        let is_any_new = !self.submitted.is_empty();
        if is_any_new {
            self.note_time();
        }
        if is_any_new || self.queue.in_flight() > 0 { self.queue.flush() } else { Ok(()) }
    }

    /// Notes that what was last submitted is with the drive from now on.
    fn note_time(&mut self) {
        let now = Instant::now();
        for place in self.submitted.drain(..) {
            if let Some(Some(started)) = self.started.get_mut(place) {
                started.at = Some(now);
            }
        }
    }

    /// Whether a read waits for room.
    pub fn has_waiting(&self) -> bool {
        self.tiers.iter().any(|tier| !tier.waiting.is_empty())
    }

    /// Whether reads wait, and drives have brought some that were not reaped: they may have nothing to do.
    pub fn has_news(&mut self) -> bool {
        self.has_waiting() && self.queue.has_news()
    }

    /// Whether every drive has less than half of the reads that it gets at once, so that one more comes back about as
    /// soon as one alone.
    pub fn has_slack(&self) -> bool {
        self.tiers
            .iter()
            .all(|tier| tier.waiting.is_empty() && tier.in_flight * 2 < tier.depth_now())
    }

    /// Whether anything is on its way, or a drive may yet answer what was given up.
    pub fn is_busy(&self) -> bool {
        self.unfinished > 0 || self.has_given_up() || self.holds_given_up
    }

    /// Whether something is to be reaped that no drive brings.
    pub fn has_given_up(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Takes the time, and gives up what has waited for too long by then. Looks once in a tick. Attaches drives that came,
    /// and detaches those that left.
    #[inline]
    pub fn give_up_late(&mut self, tick: u32) {
        if self.drives.as_ref().is_some_and(Kept::is_behind) {
            self.keep_up();
        }
        if self.tick != tick {
            self.tick = tick;
            self.give_up_all_late();
        }
    }

    #[cold]
    fn give_up_all_late(&mut self) {
        self.queue.give_up_late(self.tick);
        self.holds_given_up = self.queue.holds_given_up();
        for tier in 0..self.tiers.len() {
            let waiting = &mut self.tiers[tier].waiting;
            // Those are in front, since all are asked each time.
            let is_over = |asked: &mut Asked<T>| usize::from(asked.waited.is_over(self.tick));
            let late: usize = waiting.iter_mut().map(is_over).sum();
            for Asked { plan, token, .. } in waiting.drain(..late).collect::<Vec<_>>() {
                self.unfinished -= 1;
                self.give_up(plan, token);
            }
        }
    }

    /// Has the next reap bring a read as failed that waited for room.
    fn give_up(&mut self, plan: ReadPlan, token: T) {
        let buffer = AlignedBuf::zeroed(plan.bytes as usize);
        self.buffer_bytes += buffer.len();
        let result = Err(io::ErrorKind::TimedOut.into());
        self.given_up.push(Finished { token, buffer, result });
    }

    /// Blocks until there is something to reap, a signal comes, or the time is over.
    ///
    /// # Errors
    /// As of [`Reads::flush`].
    pub fn wait(&mut self, time: Duration) -> io::Result<()> {
        self.queue.wait(&mut self.reaped, time)
    }

    /// Appends what came back, and what was given up; never blocks.
    pub fn reap(&mut self, finished: &mut VecDeque<Finished<T>>) {
        finished.extend(self.given_up.drain(..));
        self.queue.reap(&mut self.reaped);
        if self.reaped.is_empty() {
            return;
        }
        let now = Instant::now();
        for done in self.reaped.drain(..) {
            let place = done.token as usize;
            let Some(started) = self.started.get_mut(place).and_then(Option::take) else {
                continue;
            };
            self.vacant.push(place);
            self.unfinished -= 1;
            let tier = &mut self.tiers[started.plan.tier];
            tier.in_flight -= 1;
            // How long a drive is waited for says nothing of how long it takes.
            if !done.result.as_ref().is_err_and(is_unanswered) {
                let took = now - started.at.unwrap_or(now);
                self.meter.note_read(started.plan.tier, took);
                if let Some(depth) = &mut tier.depth {
                    depth.note(took, !tier.waiting.is_empty());
                    self.meter.note_depth(started.plan.tier, depth.now());
                }
            }
            let (token, buffer, result) = (started.token, done.buf, done.result);
            finished.push_back(Finished { token, buffer, result });
        }
    }
}

#[cfg(test)]
mod tests;
