//! A worker's reads from drives: bounded memory, no more at once than helps, one batch per loop, and none
//! that is waited for without end.
//!
//! What a drive has begun can't be taken back: it may still write into the buffer. So whoever asked is told that
//! the read failed, while read and buffer stay until the drive brings them. A drive that kept somebody waiting
//! for so long is *silent* until it brings something: what is asked of it fails at once, but for one read a
//! second, to see whether it is back.

use super::slab::Id;
use crate::stats::latency::Latency;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_cache::ReadPlan;
use terrace_device::{
    AlignedBuf, Depth, Device, Done, Engine, LongBuffers, Opened, Read, ReadQueue,
    open_queue_within,
};

/// Reads that a drive gets at once which was not measured. What exceeds it waits here, without a buffer.
const DEPTH: u32 = 128;
/// Who waits for a drive for longer is told that the read failed.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// A silent drive is asked so often.
const TRY_AGAIN: Duration = Duration::from_secs(1);
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
pub(crate) fn open(drives: &[Arc<dyn Device>], engine: Engine, workers: u32) -> io::Result<Opened> {
    let depth = DEPTH * drives.len().max(1) as u32;
    open_queue_within(drives, engine, depth, known_bytes_max(workers))
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
    /// `None` once it was given up.
    operation: Option<Id>,
    plan: ReadPlan,
    at: Instant,
}

/// What is known of a tier.
struct Tier {
    /// Reads that found no room.
    waiting: VecDeque<Asked>,
    in_flight: u32,
    /// Since when it is silent, or when it was last asked while it is.
    silent: Option<Instant>,
    /// Where the drive was measured.
    depth: Option<Depth>,
}

impl Tier {
    fn is_full(&self) -> bool {
        self.in_flight >= self.depth_now()
    }

    /// Whether a read would only add to those that it does not answer.
    fn takes_nothing(&self) -> bool {
        self.silent.is_some_and(|since| since.elapsed() < TRY_AGAIN || self.is_full())
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
    started: Vec<Option<Started>>,
    /// Reads that were submitted and did not come back, those that wait for room too.
    unfinished: usize,
    /// What nobody waits for any longer, and is still to be told.
    given_up: Vec<Finished>,
    /// Unix time, as the worker last told it; when reads were last looked at for their age.
    second: u32,
    looked_at: u32,
    patience: Duration,
    vacant: Vec<usize>,
    submitted: bool,
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
            let tier = Tier { waiting: VecDeque::new(), in_flight: 0, silent: None, depth };
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
            started: Vec::new(),
            unfinished: 0,
            given_up: Vec::new(),
            second: 0,
            looked_at: 0,
            patience: PATIENCE,
            vacant: Vec::new(),
            submitted: false,
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
        self.tiers.iter_mut().for_each(|tier| tier.in_flight = 0);
        for Started { plan, operation, .. } in
            std::mem::take(&mut self.started).into_iter().flatten()
        {
            self.unfinished -= 1;
            if let Some(operation) = operation {
                self.buffer_bytes -= plan.bytes as usize;
                self.submit(plan, operation);
            }
        }
    }

    /// Reads `plan` for `operation`, now or when there is room.
    pub(crate) fn submit(&mut self, plan: ReadPlan, operation: Id) {
        self.unfinished += 1;
        if self.has_room(plan) && !self.has_waiting() && self.tiers[plan.tier].silent.is_none() {
            self.start(plan, operation);
        } else {
            let second = self.second;
            self.tiers[plan.tier].waiting.push_back(Asked { operation, plan, second });
        }
    }

    fn has_room(&self, plan: ReadPlan) -> bool {
        let fits = self.buffer_bytes == 0
            || self.buffer_bytes + plan.bytes as usize <= self.buffer_bytes_max;
        fits && !self.tiers[plan.tier].is_full()
    }

    fn start(&mut self, plan: ReadPlan, operation: Id) {
        let started = Started { operation: Some(operation), plan, at: Instant::now() };
        let token = match self.vacant.pop() {
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
        let tier = &mut self.tiers[device];
        tier.in_flight += 1;
        if let Some(asked) = &mut tier.silent {
            *asked = Instant::now();
        }
        self.queue.submit(Read { device, offset, buf, token: token as u64 });
        self.submitted = true;
    }

    /// Room for a read, holding anything.
    fn buffer(&mut self, bytes: usize) -> AlignedBuf {
        if bytes <= SHORT_BYTES_MAX { self.queue.buffer(bytes) } else { self.long.take(bytes) }
    }

    /// Takes a buffer back.
    pub(crate) fn release(&mut self, buffer: AlignedBuf) {
        self.hand_over(&buffer);
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
    }

    /// Hands what was submitted to the drives, all at once, but for what waited and is `abandoned` meanwhile:
    /// that is forgotten.
    ///
    /// # Errors
    /// The queue failed as a whole, now or since the last flush; see [`Reads::move_to`].
    pub(crate) fn flush(&mut self, mut abandoned: impl FnMut(Id) -> bool) -> io::Result<()> {
        self.turn = (self.turn + 1).checked_rem(self.tiers.len()).unwrap_or(0);
        for tier in (self.turn..self.tiers.len()).chain(0..self.turn) {
            while let Some(&Asked { plan, operation, .. }) = self.tiers[tier].waiting.front() {
                if abandoned(operation) {
                    self.unfinished -= 1;
                } else if self.tiers[tier].takes_nothing() {
                    self.unfinished -= 1;
                    self.give_up(plan, operation);
                } else if self.has_room(plan) {
                    self.start(plan, operation);
                } else {
                    break;
                }
                self.tiers[tier].waiting.pop_front();
            }
        }
        if std::mem::take(&mut self.submitted) || self.queue.in_flight() > 0 {
            self.queue.flush()?;
        }
        Ok(())
    }

    /// Whether a read waits for room.
    pub(crate) fn has_waiting(&self) -> bool {
        self.tiers.iter().any(|tier| !tier.waiting.is_empty())
    }

    /// Whether every drive has less than half of the reads that it gets at once, so that one more comes back about as
    /// soon as one alone.
    pub(crate) fn has_slack(&self) -> bool {
        self.tiers
            .iter()
            .all(|tier| tier.waiting.is_empty() && tier.in_flight * 2 < tier.depth_now())
    }

    /// Whether anything is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        self.unfinished > 0 || self.has_given_up()
    }

    /// Whether something is to be reaped that no drive brings.
    pub(crate) fn has_given_up(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Tells the time, and gives up what has waited for too long by then. Looks once a second.
    pub(crate) fn give_up_late(&mut self, second: u32) {
        self.second = second;
        if self.looked_at == second || !self.is_busy() {
            return;
        }
        self.looked_at = second;
        let now = Instant::now();
        for place in 0..self.started.len() {
            let Some(started) = &mut self.started[place] else { continue };
            let (plan, is_late) = (started.plan, now - started.at >= self.patience);
            if let Some(operation) = started.operation.take_if(|_| is_late) {
                self.tiers[plan.tier].silent.get_or_insert(now);
                // What is in flight counts no more, since other drives need the room.
                self.buffer_bytes -= plan.bytes as usize;
                self.give_up(plan, operation);
            }
        }
        for tier in 0..self.tiers.len() {
            while let Some(&Asked { plan, operation, second: asked }) =
                self.tiers[tier].waiting.front()
                && u64::from(second.saturating_sub(asked)) > self.patience.as_secs()
            {
                self.tiers[tier].waiting.pop_front();
                self.unfinished -= 1;
                self.give_up(plan, operation);
            }
        }
    }

    /// Has who asked told that the read failed, whether or not a drive is at it.
    fn give_up(&mut self, plan: ReadPlan, operation: Id) {
        let buffer = AlignedBuf::zeroed(plan.bytes as usize);
        self.buffer_bytes += buffer.len();
        let result = Err(io::ErrorKind::TimedOut.into());
        self.given_up.push(Finished { operation, buffer, result });
    }

    /// Appends what came back, and what was given up; never blocks.
    pub(crate) fn reap(&mut self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.given_up);
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
            let took = now - started.at;
            self.latency.record(started.plan.tier, took);
            let tier = &mut self.tiers[started.plan.tier];
            tier.in_flight -= 1;
            tier.silent = None;
            let Some(operation) = started.operation else { continue };
            if let Some(depth) = &mut tier.depth {
                depth.note(took, !tier.waiting.is_empty());
                self.latency.note_depth(started.plan.tier, depth.now());
            }
            finished.push(Finished { operation, buffer: done.buf, result: done.result });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use terrace_device::{FileDevice, open_queue};

    /// A queue that the system refuses when it is first used.
    struct Refused {
        reads: usize,
        null: std::fs::File,
    }

    impl ReadQueue for Refused {
        fn submit(&mut self, _: Read) {
            self.reads += 1;
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
        fn reap(&mut self, _: &mut Vec<Done>) {}
        fn event_fd(&self) -> BorrowedFd<'_> {
            self.null.as_fd()
        }
        fn clear_event(&mut self) {}
        fn in_flight(&self) -> usize {
            self.reads
        }
    }

    #[test]
    fn another_queue_takes_over_what_one_does_not_bring_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tier");
        std::fs::write(&path, [7; 64 << 10]).unwrap();
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&path, None).unwrap());
        let null = std::fs::File::open("/dev/null").unwrap();
        let latency = Arc::new(Latency::new(1));
        let refused = Box::new(Refused { reads: 0, null });
        let mut reads = Reads::new(refused, latency, 1 << 20, std::iter::once(None));
        let mut operations = super::super::slab::Slab::new();
        for at in 0..3 {
            let plan = ReadPlan { tier: 0, offset: at * 4096, bytes: 4096 };
            reads.submit(plan, operations.insert(at));
        }
        assert!(reads.flush(|_| false).is_err());
        assert!(reads.flush(|_| false).is_err(), "told again until something is done about it");
        reads.move_to(open_queue(&[device], Engine::Pool, 8).unwrap().queue);
        reads.flush(|_| false).unwrap();
        let mut finished = Vec::new();
        let end = Instant::now() + std::time::Duration::from_secs(60);
        while finished.len() < 3 && Instant::now() < end {
            reads.reap(&mut finished);
        }
        assert!(!reads.is_busy());
        let mut seen: Vec<_> = finished
            .drain(..)
            .map(|read| {
                read.result.unwrap();
                assert_eq!(read.buffer[..], [7; 4096]);
                reads.release(read.buffer);
                operations.remove(read.operation).unwrap()
            })
            .collect();
        seen.sort_unstable();
        assert_eq!((seen, reads.buffer_bytes), (vec![0, 1, 2], 0));
    }

    /// Brings what it is told to, and nothing else.
    struct Hanging {
        held: Arc<std::sync::Mutex<Vec<Read>>>,
        brought: Arc<std::sync::Mutex<Vec<Done>>>,
        null: std::fs::File,
    }

    impl ReadQueue for Hanging {
        fn submit(&mut self, read: Read) {
            self.held.lock().unwrap().push(read);
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn reap(&mut self, done: &mut Vec<Done>) {
            done.append(&mut self.brought.lock().unwrap());
        }
        fn event_fd(&self) -> BorrowedFd<'_> {
            self.null.as_fd()
        }
        fn clear_event(&mut self) {}
        fn in_flight(&self) -> usize {
            self.held.lock().unwrap().len()
        }
    }

    #[test]
    fn a_drive_that_hangs_is_given_up_and_taken_back_when_it_answers() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let (held, brought) = <(Arc<std::sync::Mutex<Vec<Read>>>, _)>::default();
        let queue =
            Box::new(Hanging { held: Arc::clone(&held), brought: Arc::clone(&brought), null });
        let latency = Arc::new(Latency::new(1));
        let mut reads = Reads::new(queue, latency, 1 << 20, std::iter::once(None));
        let mut operations = super::super::slab::Slab::new();
        let plan = ReadPlan { tier: 0, offset: 0, bytes: 4096 };
        let mut second = 1000;
        reads.give_up_late(second);
        // What is reaped after so many reads were asked for, and a second has passed.
        let mut ask = |reads: &mut Reads, asked: usize| {
            (0..asked).for_each(|at| reads.submit(plan, operations.insert(at)));
            reads.flush(|_| false).unwrap();
            second += 1;
            reads.give_up_late(second);
            let mut finished = Vec::new();
            reads.reap(&mut finished);
            let results = finished.into_iter().map(|read| {
                operations.remove(read.operation).unwrap();
                assert_eq!(read.buffer.len(), 4096);
                reads.release(read.buffer);
                read.result.map_err(|error| error.kind())
            });
            results.collect::<Vec<_>>()
        };
        let late = Err(io::ErrorKind::TimedOut);
        let all = DEPTH as usize + 2;
        assert_eq!(ask(&mut reads, all), []);
        assert_eq!(held.lock().unwrap().len(), all - 2, "two wait for room");
        reads.patience = Duration::ZERO;
        assert_eq!(ask(&mut reads, 0), vec![late; all]);
        assert_eq!(reads.buffer_bytes, 0);
        assert!(reads.is_busy(), "they may still come");
        reads.patience = Duration::from_secs(3600);
        assert_eq!(ask(&mut reads, 3), vec![late; 3], "at once");
        // One comes after all.
        let bring = || {
            let Read { buf, token, .. } = held.lock().unwrap().remove(0);
            brought.lock().unwrap().push(Done { token, buf, result: Ok(()) });
        };
        bring();
        assert_eq!(ask(&mut reads, 0), [], "nobody waits for it");
        assert_eq!(ask(&mut reads, 1), []);
        (0..all - 2).for_each(|_| bring());
        assert_eq!(ask(&mut reads, 0), [Ok(())]);
        assert!(!reads.is_busy());
        assert_eq!((reads.buffer_bytes, reads.tiers[0].in_flight), (0, 0));
    }

    #[test]
    fn a_measured_drive_gets_no_more_reads_than_help_and_starves_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| -> Arc<dyn Device> {
            let path = dir.path().join(name);
            std::fs::write(&path, [7; 64 << 10]).unwrap();
            Arc::new(FileDevice::open(&path, None).unwrap())
        };
        let devices = [open("a"), open("b")];
        let queue = open_queue(&devices, Engine::Pool, 8).unwrap().queue;
        let depths = [Some(Depth::new(2, 128)), None].into_iter();
        let latency = Arc::new(Latency::new(2));
        let mut reads = Reads::new(queue, Arc::clone(&latency), 1 << 20, depths);
        assert_eq!((latency.depth(0), latency.depth(1)), (2, DEPTH));
        let mut operations = super::super::slab::Slab::new();
        let of_the_other = 2 * DEPTH as usize;
        for at in 0..10 + of_the_other {
            let tier = usize::from(at >= 10);
            let plan = ReadPlan { tier, offset: 0, bytes: 4096 };
            reads.submit(plan, operations.insert(tier));
        }
        let mut seen = [0, 0];
        let mut finished = Vec::new();
        let end = Instant::now() + std::time::Duration::from_secs(60);
        while reads.is_busy() && Instant::now() < end {
            reads.flush(|_| false).unwrap();
            assert!(reads.tiers[0].in_flight <= 2, "{}", reads.tiers[0].in_flight);
            // Nor does one that was not measured take buffers for more than it can be given.
            assert!(reads.buffer_bytes <= (2 + DEPTH as usize) * 4096, "{}", reads.buffer_bytes);
            reads.reap(&mut finished);
            for read in finished.drain(..) {
                read.result.unwrap();
                reads.release(read.buffer);
                seen[operations.remove(read.operation).unwrap()] += 1;
            }
        }
        assert_eq!(
            (seen, reads.tiers[0].in_flight, reads.buffer_bytes),
            ([10, of_the_other], 0, 0)
        );
    }
}
