//! A worker's reads from drives: bounded memory, no more at once than helps, one batch per loop, and none
//! that waits for room longer than a drive is waited for. The queue ([`terrace_device::WorkerQueue`]) gives up what a
//! drive does not answer.

use super::slab::Id;
use crate::stats::latency::Latency;
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;
use terrace_cache::ReadPlan;
use terrace_device::{
    AlignedBuf, DEADLINE, Depth, Done, Drive, Engine, LongBuffers, Read, ReadQueue, WorkerQueue,
    is_unanswered,
};

/// Reads that a drive gets at once which was not measured. What exceeds it waits here, without a buffer.
const DEPTH: u32 = 128;
/// As soon as a drive has brought some it gets such a part of its reads besides, before it is known how many it brought.
const AHEAD: u32 = 16;
/// So many reads have one look at the clock, which takes a hundredth of the time that one of them does.
pub(crate) const TIMED_TOGETHER: usize = 8;
/// Shorter reads have the queue's own buffers.
const SHORT_BYTES_MAX: usize = 8 << 10;

/// Bytes of buffers of each worker, in flight or held as evidence, at most, unless a single read is
/// longer. What exceeds it waits. Many at once are what brings a drive to its bandwidth; all workers
/// together have 16 MiB as far as 512 KiB each allow.
pub(crate) fn buffer_bytes_max(workers: u32) -> usize {
    ((16 << 20) / workers.max(1) as usize).clamp(512 << 10, 8 << 20)
}

/// Bytes of each worker's buffers that the kernel knows: all of them are resident whether or not they are used, and
/// all workers together have 8 MiB at most.
fn known_bytes_max(workers: u32) -> usize {
    ((8 << 20) / workers.max(1) as usize).min(2 << 20)
}

/// One of so many workers' queue, in which no drive takes another's share, even if it answers nothing.
pub(crate) fn open(
    drives: &[Arc<dyn Drive>],
    engine: Engine,
    workers: u32,
) -> io::Result<WorkerQueue> {
    let depth = (DEPTH + DEPTH / AHEAD) * drives.len().max(1) as u32;
    WorkerQueue::open_within(drives, engine, depth, known_bytes_max(workers))
}

/// The depth to begin with for a drive with such a knee, which all workers share.
pub(crate) fn depth(knee: u32, workers: u32) -> Depth {
    Depth::new(knee.div_ceil(workers), DEPTH)
}

/// A read that came back.
pub(crate) struct Finished {
    /// The operation that it was for.
    pub(crate) operation: Id,
    /// To be handed back with [`Reads::release`].
    pub(crate) buffer: AlignedBuf,
    pub(crate) result: io::Result<()>,
}

/// A read that waits for room.
struct Asked {
    operation: Id,
    plan: ReadPlan,
    /// By [`Reads::second`].
    second: u32,
}

struct Started {
    operation: Id,
    plan: ReadPlan,
    /// When it was handed to the drive, or a few others later.
    at: Option<Instant>,
}

/// What is known of a tier.
struct Tier {
    /// Reads that found no room.
    waiting: VecDeque<Asked>,
    in_flight: u32,
    /// Where the drive was measured.
    depth: Option<Depth>,
}

impl Tier {
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

/// The queue of one worker over all tiers.
pub(crate) struct Reads {
    queue: Box<dyn ReadQueue>,
    tiers: Vec<Tier>,
    /// The tier whose waiting reads come first next time, so that none starves another.
    turn: usize,
    /// Bytes of buffers given out.
    buffer_bytes: usize,
    buffer_bytes_max: usize,
    long: LongBuffers,
    /// Short ones that came back, for the next reads: whose they are is not looked at each time.
    short: Vec<AlignedBuf>,
    started: Vec<Option<Started>>,
    /// Reads that were submitted and did not come back, those that wait for room too.
    unfinished: usize,
    /// Reads that waited for room for too long, for the next reap.
    given_up: Vec<Finished>,
    /// Unix time, as of the last [`Reads::give_up_late`].
    second: u32,
    vacant: Vec<usize>,
    /// The places of those last submitted, whose time is to be noted.
    submitted: ArrayVec<usize, TIMED_TOGETHER>,
    reaped: Vec<Done>,
    latency: Arc<Latency>,
}

impl Reads {
    /// Has the depth to begin with of each tier, where it was measured.
    pub(crate) fn new(
        queue: Box<dyn ReadQueue>,
        latency: Arc<Latency>,
        buffer_bytes_max: usize,
        depths: impl Iterator<Item = Option<Depth>>,
    ) -> Self {
        let tier = |(number, depth): (usize, Option<Depth>)| {
            let tier = Tier { waiting: VecDeque::new(), in_flight: 0, depth };
            latency.note_depth(number, tier.depth_now());
            tier
        };
        Self {
            queue,
            tiers: depths.enumerate().map(tier).collect(),
            turn: 0,
            buffer_bytes: 0,
            buffer_bytes_max,
            long: LongBuffers::new(buffer_bytes_max),
            short: Vec::new(),
            started: Vec::new(),
            unfinished: 0,
            given_up: Vec::new(),
            second: 0,
            vacant: Vec::new(),
            submitted: ArrayVec::new(),
            reaped: Vec::new(),
            latency,
        }
    }

    /// Readable when [`Reads::reap`] has something to do.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.queue.event_fd()
    }

    /// Goes on with another queue, after the old one failed as a whole: what that did not bring back
    /// is read again.
    pub(crate) fn move_to(&mut self, queue: Box<dyn ReadQueue>) {
        self.queue = queue;
        self.vacant.clear();
        self.submitted.clear();
        self.tiers.iter_mut().for_each(|tier| tier.in_flight = 0);
        for Started { plan, operation, .. } in
            std::mem::take(&mut self.started).into_iter().flatten()
        {
            self.unfinished -= 1;
            self.buffer_bytes -= plan.bytes as usize;
            self.submit(plan, operation);
        }
    }

    /// Reads `plan` for `operation`, now or when there is room.
    pub(crate) fn submit(&mut self, plan: ReadPlan, operation: Id) {
        self.unfinished += 1;
        if self.has_room(plan, false) && !self.has_waiting() {
            self.start(plan, operation);
        } else {
            let second = self.second;
            self.tiers[plan.tier].waiting.push_back(Asked { operation, plan, second });
        }
    }

    fn has_room(&self, plan: ReadPlan, is_ahead: bool) -> bool {
        let fits = self.buffer_bytes == 0
            || self.buffer_bytes + plan.bytes as usize <= self.buffer_bytes_max;
        fits && !self.tiers[plan.tier].is_full(is_ahead)
    }

    fn start(&mut self, plan: ReadPlan, operation: Id) {
        let started = Started { operation, plan, at: None };
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
    pub(crate) fn release(&mut self, buffer: AlignedBuf) {
        self.hand_over(&buffer);
        if buffer.capacity() == SHORT_BYTES_MAX && self.short.len() < DEPTH as usize {
            self.short.push(buffer);
        }
    }

    /// The buffer is another's from now on, until that drops it.
    pub(crate) fn hand_over(&mut self, buffer: &AlignedBuf) {
        self.buffer_bytes -= buffer.len();
    }

    /// Bytes of buffers, at most.
    pub(crate) fn buffer_bytes_max(&self) -> usize {
        self.buffer_bytes_max
    }

    /// Gives memory back that was not used since the last time.
    pub(crate) fn give_back(&mut self) {
        self.long.give_back();
        self.short = Vec::new();
    }

    /// Hands what was submitted to the drives, all at once, but for what waited and is `abandoned` meanwhile:
    /// that is forgotten. `is_ahead`: they have brought some that are still to be reaped.
    ///
    /// # Errors
    /// The queue failed as a whole, now or since the last flush; see [`Reads::move_to`].
    pub(crate) fn flush(
        &mut self,
        is_ahead: bool,
        mut abandoned: impl FnMut(Id) -> bool,
    ) -> io::Result<()> {
        self.turn = (self.turn + 1).checked_rem(self.tiers.len()).unwrap_or(0);
        for tier in (self.turn..self.tiers.len()).chain(0..self.turn) {
            while let Some(&Asked { plan, operation, .. }) = self.tiers[tier].waiting.front() {
                if abandoned(operation) {
                    self.unfinished -= 1;
                } else if self.has_room(plan, is_ahead) {
                    self.start(plan, operation);
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
    pub(crate) fn has_waiting(&self) -> bool {
        self.tiers.iter().any(|tier| !tier.waiting.is_empty())
    }

    /// Whether reads wait, and drives have brought some that were not reaped: they may have nothing to do.
    pub(crate) fn has_news(&mut self) -> bool {
        self.has_waiting() && self.queue.has_news()
    }

    /// Whether every drive has less than half of the reads that it gets at once, so that one more comes back about as
    /// soon as one alone.
    pub(crate) fn has_slack(&self) -> bool {
        self.tiers
            .iter()
            .all(|tier| tier.waiting.is_empty() && tier.in_flight * 2 < tier.depth_now())
    }

    /// Whether anything is on its way, or a drive may yet answer what was given up.
    pub(crate) fn is_busy(&self) -> bool {
        self.unfinished > 0 || self.has_given_up() || self.queue.holds_given_up()
    }

    /// Whether something is to be reaped that no drive brings.
    pub(crate) fn has_given_up(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Takes the time, and gives up what has waited for too long by then. Looks once a second.
    #[inline]
    pub(crate) fn give_up_late(&mut self, second: u32) {
        if self.second != second {
            self.second = second;
            self.give_up_all_late();
        }
    }

    #[cold]
    fn give_up_all_late(&mut self) {
        self.queue.give_up_late(self.second);
        for tier in 0..self.tiers.len() {
            while let Some(&Asked { plan, operation, second }) = self.tiers[tier].waiting.front()
                && u64::from(self.second.saturating_sub(second)) > DEADLINE.as_secs()
            {
                self.tiers[tier].waiting.pop_front();
                self.unfinished -= 1;
                self.give_up(plan, operation);
            }
        }
    }

    /// Has the next reap bring a read as failed that waited for room.
    fn give_up(&mut self, plan: ReadPlan, operation: Id) {
        let buffer = AlignedBuf::zeroed(plan.bytes as usize);
        self.buffer_bytes += buffer.len();
        let result = Err(io::ErrorKind::TimedOut.into());
        self.given_up.push(Finished { operation, buffer, result });
    }

    /// Appends what came back, and what was given up; never blocks.
    pub(crate) fn reap(&mut self, finished: &mut VecDeque<Finished>) {
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
                self.latency.record(started.plan.tier, took);
                if let Some(depth) = &mut tier.depth {
                    depth.note(took, !tier.waiting.is_empty());
                    self.latency.note_depth(started.plan.tier, depth.now());
                }
            }
            let (operation, buffer, result) = (started.operation, done.buf, done.result);
            finished.push_back(Finished { operation, buffer, result });
        }
    }
}

#[cfg(test)]
mod tests;
