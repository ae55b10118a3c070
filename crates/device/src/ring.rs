//! Reads through io_uring: one ring per worker over all drives that have a descriptor, submitted in batches.

use crate::buffer::AlignedBuf;
use crate::event::Event;
use crate::queue::{DROP_PATIENCE, detached};
use crate::read::{Done, Late, Read, Waited};
use crate::slab::Slab;
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

const GETEVENTS: EnterFlags = EnterFlags::GETEVENTS;
/// Reads that are handed to the kernel without waiting for the flush, while drives have few: they begin with these
/// while the worker prepares the next. Each time costs a system call.
const BATCH: usize = 8;
/// Buffers of this size are registered: a read for a record of up to 4 KiB takes no more.
const SLAB_BUFFER_BYTES: usize = 8 << 10;
/// Entries of one reap. The kernel posts some twenty completions at an entry.
const ENTRIES_MAX: usize = 8;
/// How often a read is tried again that the kernel interrupted or had no memory for.
const TRIES_MAX: u8 = 16;
/// Naps of [`NAP`] in which the kernel may find memory for a submission, before giving up.
const NAPS_MAX: u32 = 1000;
const NAP: Duration = Duration::from_millis(1);
/// In the place of a file's descriptor.
const NO_FILE: RawFd = -1;
/// Of one call. The kernel takes a time that it can't count for one that is over.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);

/// Files that a ring can have at a time.
const FILES_MAX: u32 = 64;

/// The ring of one worker. The kernel holds the files that are registered, so that a drive may be closed while reads of
/// it are under way.
pub(crate) struct Ring {
    ring: IoUring,
    /// Registered with the ring.
    event: Arc<Event>,
    /// Numbers of files that no drive has.
    free_files: Vec<u32>,
    /// Whether an entry can have a time limit: since Linux 5.11.
    waits_in_kernel: bool,
    /// Registered with the ring; none where the limit on locked memory (`ulimit -l`) forbids it.
    slab: Option<Arc<Slab>>,
    /// Reads that the ring knows, by the number that is their user data. As many as the submission queue has entries,
    /// so that this never overflows, nor the twice as long completion queue.
    slots: Vec<Option<Job>>,
    /// Empty elements of `slots`.
    free: Vec<usize>,
    /// For the next flush, or for when a slot is free.
    waiting: VecDeque<Job>,
    /// Reads that never went to the kernel, since it refused the ring.
    refused: Vec<Done>,
    /// Files of which a read has ended since [`Ring::take_answered`], one bit each.
    answered: u64,
    /// Reads that were given up and that the kernel still has.
    given_up: usize,
    /// Errors of drives since the last reap, with the numbers of the drives.
    failed: Vec<(usize, io::Error)>,
    /// What the kernel said when it last refused the ring; the next flush reports it.
    broken: Option<io::Error>,
}

struct Job {
    read: Read,
    /// The number of its drive's file.
    file: u32,
    waited: Waited,
    tries: u8,
    /// Its caller was told that the drive does not answer. The kernel may still write to the buffer.
    is_given_up: bool,
}

impl Ring {
    /// A ring of `depth` reads that tells of completions by `event`, with at most `slab_bytes_max` bytes of registered
    /// buffers, all of which are resident.
    pub(crate) fn open(event: &Arc<Event>, depth: u32, slab_bytes_max: usize) -> io::Result<Self> {
        let depth = depth.max(1);
        let ring = build(depth)?;
        ring.submitter().register_files(&[NO_FILE; FILES_MAX as usize])?;
        ring.submitter().register_eventfd(event.raw_fd())?;
        let slots = depth as usize;
        let waits_in_kernel = ring.params().is_feature_ext_arg();
        // A drive gets its next reads before what it brought was looked at.
        let slab = register_slab(&ring, (2 * slots).min(slab_bytes_max / SLAB_BUFFER_BYTES));
        Ok(Self {
            ring,
            event: Arc::clone(event),
            free_files: (0..FILES_MAX).rev().collect(),
            waits_in_kernel,
            slab,
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            waiting: VecDeque::new(),
            refused: Vec::new(),
            answered: 0,
            given_up: 0,
            failed: Vec::new(),
            broken: None,
        })
    }

    /// Takes a file and returns its number.
    ///
    /// # Errors
    /// The kernel refuses it, or [`FILES_MAX`] are there.
    pub(crate) fn attach(&mut self, fd: BorrowedFd<'_>) -> io::Result<u32> {
        let Some(&file) = self.free_files.last() else {
            let most = format!("a queue reads at most {FILES_MAX} drives through io_uring");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, most));
        };
        self.ring.submitter().register_files_update(file, &[fd.as_raw_fd()])?;
        self.free_files.pop();
        Ok(file)
    }

    /// Gives up a file, and returns the reads of it that the kernel has not begun.
    pub(crate) fn detach(&mut self, file: u32) -> Vec<Read> {
        // Entries name files by number: a later file of this number must not get the reads of this one.
        let entered = if self.ring.submission().is_empty() { Ok(()) } else { self.enter() };
        self.note_failure(entered);
        let is_its = |job: &Job| job.file == file;
        let (left, waiting) = self.waiting.drain(..).partition::<VecDeque<_>, _>(is_its);
        self.waiting = waiting;
        let removed = self.ring.submitter().register_files_update(file, &[NO_FILE]);
        if removed.is_ok() && self.ring.submission().is_empty() {
            self.free_files.push(file);
        }
        left.into_iter().map(|job| job.read).collect()
    }

    /// Reads that the ring knows.
    fn started(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether drives have less than half of the reads that they may get at once.
    fn has_few(&self) -> bool {
        self.started() * 2 < self.slots.len()
    }

    /// Hands waiting reads to the kernel while there are slots.
    fn start_waiting(&mut self) -> io::Result<()> {
        self.fill();
        if self.ring.submission().is_empty() { Ok(()) } else { self.enter() }
    }

    /// Moves waiting reads into the ring.
    fn fill(&mut self) {
        let mut ring = self.ring.submission();
        while !self.free.is_empty()
            && let Some(job) = self.waiting.pop_front()
            && let Some(slot) = self.free.pop()
        {
            let is_known = self.slab.as_ref().is_some_and(|slab| slab.contains(&job.read.buf));
            let entry = entry(self.slots[slot].insert(job), slot, is_known);
            // SAFETY: the slot owns the buffer at this address until the completion for the slot
            // was taken from the ring (moving the owner does not move the memory), and `drop`
            // waits for all of them, or leaks the slots.
            let pushed = unsafe { ring.push(&entry) };
            debug_assert!(pushed.is_ok(), "the ring has an entry for every slot");
        }
    }

    /// Hands what is in the ring to the kernel.
    fn enter(&mut self) -> io::Result<()> {
        for _ in 0..NAPS_MAX {
            match self.ring.submit() {
                Ok(_) if self.ring.submission().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::INTR) => {}
                    Some(Errno::AGAIN | Errno::BUSY) => {
                        // Completions of reads under way bring us here again; without any, only we do.
                        if self.started() > self.ring.submission().len() {
                            return Ok(());
                        }
                        thread::sleep(NAP);
                    }
                    _ => return Err(error),
                },
            }
        }
        Err(io::ErrorKind::OutOfMemory.into())
    }

    /// Hands what is in the ring to the kernel, and stays there until a read is finished.
    fn enter_and_wait(&mut self, patience: Duration) -> io::Result<()> {
        let timeout = types::Timespec::from(patience.min(PATIENCE_MAX));
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => Ok(()),
            Err(error) if !is_passing(&error) => Err(error),
            // What it had no memory for stays in the ring.
            _ if self.ring.submission().is_empty() => Ok(()),
            _ => self.enter(),
        }
    }

    /// Takes completions out of the ring.
    fn collect(&mut self, done: &mut Vec<Done>) {
        for completion in self.ring.completion() {
            let slot = completion.user_data() as usize;
            let Some(mut job) = self.slots.get_mut(slot).and_then(Option::take) else { continue };
            self.free.push(slot);
            self.answered |= 1 << job.file;
            if job.is_given_up {
                self.given_up -= 1;
                continue;
            }
            match outcome(&completion, job.read.buf.len()) {
                Err(error) if is_passing(&error) && job.tries < TRIES_MAX => {
                    job.tries += 1;
                    self.waiting.push_front(job);
                }
                // Tried again after its drive was detached.
                Err(error)
                    if job.tries > 0
                        && error.raw_os_error() == Some(Errno::BADF.raw_os_error()) =>
                {
                    let Read { token, buf, .. } = job.read;
                    done.push(Done { token, buf, result: Err(detached()) });
                }
                result => {
                    if let Err(error) = &result {
                        self.failed.push((job.read.device, copy_of(error)));
                    }
                    done.push(Done { token: job.read.token, buf: job.read.buf, result });
                }
            }
        }
    }

    /// Whether the kernel says that it has completions which it posts only when entered. It says so
    /// before it signals the event, and after an entry that left some behind.
    fn has_deferred(&mut self) -> bool {
        let ring = self.ring.submission();
        ring.taskrun() || ring.cq_overflow()
    }

    /// Has deferred completions posted, all that there are if nothing unusual happens.
    fn post_deferred(&mut self) {
        for _ in 0..ENTRIES_MAX {
            if self.broken.is_some() || !self.has_deferred() {
                return;
            }
            let posted = self.run_deferred();
            self.note_failure(posted);
        }
        // There are still more, which have signalled nothing. Or there are none: the kernel marks work
        // a little after it has linked it, so that a mark can be late, for work that an entry had found
        // already; then it stays until the next completion, and a loop that waits for it to go would
        // never end.
        if self.has_deferred() {
            self.event.signal();
        }
    }

    /// Posts some of what is deferred. The event stays quiet meanwhile: posting would signal it, to no
    /// purpose. Whether more was deferred in that time is for the caller to look.
    fn run_deferred(&mut self) -> io::Result<()> {
        self.ring.completion().disable_eventfd();
        // SAFETY: an entry that submits nothing and passes no argument.
        let entered = unsafe { self.ring.submitter().enter::<()>(0, 0, GETEVENTS.bits(), None) };
        self.ring.completion().enable_eventfd();
        // The kernel marks what it defers before it looks whether it may signal; so a look for the
        // mark behind this either sees it, or the kernel sees that it may.
        fence(Ordering::SeqCst);
        match entered {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// After a failure of the ring as a whole, what it does not know yet comes back failed.
    fn note_failure(&mut self, result: io::Result<()>) {
        let Err(error) = result else { return };
        for Job { read: Read { token, buf, .. }, .. } in self.waiting.drain(..) {
            self.refused.push(Done { token, buf, result: Err(error.kind().into()) });
        }
        self.broken = Some(error);
        self.event.signal();
    }
}

/// The reads of a [`crate::WorkerQueue`], see [`crate::ReadQueue`].
impl Ring {
    /// Takes a read of a file for the next flush, or for when there is room.
    #[inline]
    pub(crate) fn submit(&mut self, read: Read, file: u32) {
        let waited = Waited::default();
        let job = Job { read, file, waited, tries: 0, is_given_up: false };
        self.waiting.push_back(job);
        let is_batch = self.waiting.len().is_multiple_of(BATCH) && self.has_few();
        if is_batch && self.broken.is_none() {
            let started = self.start_waiting();
            self.note_failure(started);
        }
    }

    /// A buffer of `len` bytes that the kernel knows, if there is one.
    #[inline]
    pub(crate) fn buffer(&self, len: usize) -> Option<AlignedBuf> {
        self.slab.as_ref().and_then(|slab| AlignedBuf::of_slab(slab, len))
    }

    /// Hands the kernel what was submitted, as far as it takes it.
    ///
    /// # Errors
    /// The kernel refuses the ring, now or since the last flush.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        if !self.refused.is_empty() {
            self.event.signal();
        }
        self.start_waiting()
    }

    /// Whether reads are finished that were not reaped, as far as that shows without a system call.
    pub(crate) fn has_news(&mut self) -> bool {
        self.has_deferred()
    }

    /// Appends finished reads to `done`, and starts what waited for room.
    pub(crate) fn reap(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.refused);
        if self.started() == 0 {
            return;
        }
        self.post_deferred();
        self.collect(done);
        // Also what the kernel once had no memory for, and which stayed in the ring.
        if self.broken.is_none() {
            let started = self.start_waiting();
            self.note_failure(started);
        }
    }

    /// Errors of drives since the last call, with the numbers of the drives.
    #[inline]
    pub(crate) fn take_failed(&mut self) -> Option<Vec<(usize, io::Error)>> {
        (!self.failed.is_empty()).then(|| mem::take(&mut self.failed))
    }

    /// Whether [`Ring::wait`] does what it says, in place of waiting for the event.
    pub(crate) fn waits_in_kernel(&self) -> bool {
        self.waits_in_kernel && self.refused.is_empty() && self.broken.is_none()
    }

    /// Hands the kernel what was submitted, and stays there until a read is finished or `patience` is over.
    ///
    /// # Errors
    /// As of [`Ring::flush`].
    pub(crate) fn wait(&mut self, done: &mut Vec<Done>, patience: Duration) -> io::Result<()> {
        self.fill();
        if self.started() > 0 {
            self.enter_and_wait(patience)?;
            self.collect(done);
        }
        Ok(())
    }

    /// Reads submitted and not yet reaped.
    pub(crate) fn in_flight(&self) -> usize {
        self.started() - self.given_up + self.waiting.len() + self.refused.len()
    }

    /// Reads that were given up and that the kernel still has.
    pub(crate) fn given_up(&self) -> usize {
        self.given_up
    }

    /// Of these, the reads of a file.
    pub(crate) fn given_up_of(&self, file: u32) -> usize {
        let is_its = |job: &&Job| job.is_given_up && job.file == file;
        self.slots.iter().flatten().filter(is_its).count()
    }

    /// Takes the time, and gives up reads that have been waited for too long by now: each goes to `late` with its drive's
    /// number. The kernel keeps the buffers of those that it has.
    pub(crate) fn give_up_late(&mut self, tick: u32, late: &mut Vec<Late>) {
        for job in self.slots.iter_mut().flatten() {
            if job.waited.is_over(tick) && !mem::replace(&mut job.is_given_up, true) {
                self.given_up += 1;
                let Read { device, ref buf, token, .. } = job.read;
                late.push(Late { device, buf: AlignedBuf::zeroed(buf.len()), token });
            }
        }
        let is_over = |job: &mut Job| job.waited.is_over(tick);
        while self.waiting.front_mut().is_some_and(is_over)
            && let Some(Job { read: Read { device, buf, token, .. }, .. }) =
                self.waiting.pop_front()
        {
            late.push(Late { device, buf, token });
        }
        self.waiting.iter_mut().for_each(|job| _ = job.waited.is_over(tick));
    }

    /// The files of which a read has ended since the last call, one bit each.
    pub(crate) fn take_answered(&mut self) -> u64 {
        mem::take(&mut self.answered)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.waiting.clear();
        self.refused.clear();
        self.broken = None;
        let end = Instant::now() + DROP_PATIENCE;
        let mut done = Vec::new();
        while self.started() > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(&mut done, left).is_err() {
                // Better to leak the buffers than to free what the kernel may still write to.
                mem::forget(mem::take(&mut self.slots));
                return;
            }
            // Nor are those tried again that the kernel interrupted.
            self.waiting.clear();
        }
    }
}

/// The best ring that the kernel has for us.
fn build(depth: u32) -> io::Result<IoUring> {
    let ring = build_deferring(depth).or_else(|_| build_cooperating(depth));
    let ring = ring.or_else(|_| IoUring::new(depth))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !probe.is_supported(opcode::Read::CODE) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel's io_uring is too old",
        ));
    }
    Ok(ring)
}

/// Since Linux 6.1: completions are processed in batches when this thread asks for them.
fn build_deferring(depth: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    builder.build(depth)
}

/// Since Linux 5.19: completions don't interrupt this thread, they wait for its next system call.
fn build_cooperating(depth: u32) -> io::Result<IoUring> {
    IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().setup_submit_all().build(depth)
}

/// Memory for reads, which stays in place. Reads into it spare the kernel looking its pages up.
fn register_slab(ring: &IoUring, buffers: usize) -> Option<Arc<Slab>> {
    if buffers == 0 {
        return None;
    }
    let slab = Slab::new(buffers, SLAB_BUFFER_BYTES);
    let (start, bytes) = slab.region();
    let region = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: bytes };
    // SAFETY: the memory is valid; the kernel itself keeps its pages until the ring is gone, and
    // writes to them only for reads, whose buffers the slots keep.
    let registered = unsafe { ring.submitter().register_buffers(&[region]) };
    registered.is_ok().then_some(slab)
}

fn entry(job: &mut Job, slot: usize, is_known: bool) -> squeue::Entry {
    let Read { offset, buf, .. } = &mut job.read;
    let file = types::Fixed(job.file);
    // `Geometry::check` does not bound the length by 32 bits; a longer read comes
    // back as one that was too short.
    let len = u32::try_from(buf.len()).unwrap_or(u32::MAX);
    let entry = if is_known {
        opcode::ReadFixed::new(file, buf.as_mut_ptr(), len, 0).offset(*offset).build()
    } else {
        opcode::Read::new(file, buf.as_mut_ptr(), len).offset(*offset).build()
    };
    entry.user_data(slot as u64)
}

/// A short read is one that reached the end: the kernel itself goes on after an interruption.
fn outcome(completion: &cqueue::Entry, wanted: usize) -> io::Result<()> {
    match usize::try_from(completion.result()) {
        Ok(bytes) if bytes == wanted => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::from_raw_os_error(-completion.result())),
    }
}

/// The same error once more.
fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}
