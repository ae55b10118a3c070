//! Reads through io_uring: one ring per worker over all drives, submitted in batches.

use crate::event::Event;
use crate::{AlignedBuf, Device, Done, Read, ReadQueue};
use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

/// A read that the kernel works on; it owns the buffer until the completion.
struct Flying {
    token: u64,
    buf: AlignedBuf,
}

/// A queue on a ring of its own.
pub(crate) struct UringQueue {
    ring: IoUring,
    event: Event,
    devices: usize,
    /// By slot number, which is the ring's user data. Never longer than the depth.
    flying: Vec<Option<Flying>>,
    free: Vec<usize>,
    /// What exceeds the depth.
    waiting: VecDeque<Read>,
    /// Entries pushed and not yet handed to the kernel.
    pushed: usize,
    failed: Vec<Done>,
}

impl UringQueue {
    /// A ring of `depth` reads over devices that all have a descriptor.
    pub(crate) fn open(devices: &[Arc<dyn Device>], depth: u32) -> io::Result<Self> {
        let fds: Option<Vec<RawFd>> = devices.iter().map(|device| device.raw_fd()).collect();
        let fds = fds.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        let depth = depth.max(1).next_power_of_two();
        // Completions are processed when this thread asks for them, not by interrupting it. Older
        // kernels know none of this and do without.
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(depth * 2)
            .build(depth)
            .or_else(|_| IoUring::new(depth))?;
        let event = Event::new()?;
        ring.submitter().register_files(&fds)?;
        ring.submitter().register_eventfd(event.raw_fd())?;
        let slots = depth as usize;
        Ok(Self {
            ring,
            event,
            devices: fds.len(),
            flying: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            waiting: VecDeque::new(),
            pushed: 0,
            failed: Vec::new(),
        })
    }

    /// Puts a read into the ring if a slot is free; gives it back otherwise.
    fn push(&mut self, read: Read) -> Option<Read> {
        if read.device >= self.devices {
            let result = Err(io::Error::from(io::ErrorKind::NotFound));
            self.failed.push(Done { token: read.token, buf: read.buf, result });
            return None;
        }
        let Some(slot) = self.free.pop() else { return Some(read) };
        let Read { device, offset, mut buf, token } = read;
        let target = types::Fixed(device as u32);
        let entry = opcode::Read::new(target, buf.as_mut_ptr(), buf.len() as u32)
            .offset(offset)
            .build()
            .user_data(slot as u64);
        // Moving the buffer moves its owner, not the memory that the entry points to.
        self.flying[slot] = Some(Flying { token, buf });
        // SAFETY: `flying` keeps the buffer, of this address and length, until the completion for
        // the slot was reaped; `drop` waits for all of them. The ring has as many entries as there
        // are slots, so it can't be full.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "as many entries as slots");
        self.pushed += 1;
        None
    }

    fn push_waiting(&mut self) {
        while let Some(read) = self.waiting.pop_front() {
            if let Some(read) = self.push(read) {
                self.waiting.push_front(read);
                return;
            }
        }
    }

    fn collect(&mut self, done: &mut Vec<Done>) {
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            let Some(Flying { token, buf }) = self.flying.get_mut(slot).and_then(Option::take)
            else {
                continue;
            };
            self.free.push(slot);
            let result = match usize::try_from(entry.result()) {
                Ok(bytes) if bytes == buf.len() => Ok(()),
                Ok(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
            };
            done.push(Done { token, buf, result });
        }
    }

    fn in_kernel(&self) -> usize {
        self.flying.len() - self.free.len()
    }
}

impl ReadQueue for UringQueue {
    fn submit(&mut self, read: Read) {
        if let Some(read) = self.push(read) {
            self.waiting.push_back(read);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.pushed > 0 {
            match self.ring.submit() {
                Ok(taken) => self.pushed -= taken.min(self.pushed),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is short of memory or of room for completions: they go with a later
                // flush, after some were reaped.
                Err(error) if matches!(error.raw_os_error(), Some(11 | 16)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.failed);
        if self.in_kernel() == 0 {
            return;
        }
        self.event.clear();
        // With deferred task work, completions appear when the ring is entered.
        // An error here shows up again at the next flush.
        let _ = self.ring.submitter().enter_for_completions();
        self.collect(done);
        if !self.waiting.is_empty() {
            self.push_waiting();
        }
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.fd()
    }

    fn in_flight(&self) -> usize {
        self.in_kernel() + self.waiting.len() + self.failed.len()
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        // The kernel writes into the buffers until their reads are completed.
        self.waiting.clear();
        let mut done = Vec::new();
        while self.in_kernel() > 0 {
            if self.ring.submit_and_wait(1).is_err_and(|e| e.kind() != io::ErrorKind::Interrupted) {
                // Can't wait: rather leak the buffers than free what the kernel may write to.
                std::mem::forget(std::mem::take(&mut self.flying));
                return;
            }
            self.collect(&mut done);
        }
    }
}

/// Entering the ring only to have completions posted.
trait EnterForCompletions {
    fn enter_for_completions(&self) -> io::Result<usize>;
}

impl EnterForCompletions for io_uring::Submitter<'_> {
    fn enter_for_completions(&self) -> io::Result<usize> {
        const GETEVENTS: u32 = 1;
        // SAFETY: nothing is submitted and no argument is passed.
        unsafe { self.enter::<()>(0, 0, GETEVENTS, None) }
    }
}
