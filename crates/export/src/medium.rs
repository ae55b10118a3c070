//! A namespace's file or device: what is done with it, and what its errors become.

use crate::buffers::LARGEST;
use crate::counters::{MediumCounters, NamespaceStatus};
use crate::note::Log;
use rustix::fs::{FallocateFlags, FileType, fallocate, fstat};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_device::{AlignedBuf, Drive, ErrorClass, ErrorCounts, Reads};
use terrace_nvme::command::Status;
use terrace_nvme::command::nvm::Blocks;
use terrace_nvme::controller::Namespace;

/// What a call of the file was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
}

/// A namespace, with its file or device.
pub(crate) struct Medium {
    pub(crate) namespace: Namespace,
    pub(crate) drive: Arc<dyn Drive>,
    /// Whether a transfer is a copy within memory, so that an event loop makes it itself.
    pub(crate) is_memory: bool,
    is_block_device: bool,
    pub(crate) counters: MediumCounters,
    /// Classes of errors that were logged, one bit each.
    logged: AtomicU8,
    log: Log,
}

impl Medium {
    pub(crate) fn new(
        namespace: Namespace,
        drive: Arc<dyn Drive>,
        is_memory: bool,
        log: Log,
    ) -> Self {
        let kind = |fd: BorrowedFd<'_>| fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let is_block_device = match drive.reads() {
            Reads::Ring(fd) => kind(fd) == Ok(FileType::BlockDevice),
            _ => false,
        };
        let is_memory = is_memory || matches!(drive.reads(), Reads::Synchronous);
        let (counters, logged) = Default::default();
        Self { namespace, drive, is_memory, is_block_device, counters, logged, log }
    }

    pub(crate) fn offset(&self, blocks: Blocks) -> u64 {
        blocks.lba << self.namespace.block_shift
    }

    fn bytes(&self, blocks: Blocks) -> u64 {
        u64::from(blocks.count) << self.namespace.block_shift
    }

    /// Counts a read that is about to begin.
    pub(crate) fn count_read(&self, bytes: usize) {
        self.counters.reads.add(1);
        self.counters.read_bytes.add(bytes as u64);
    }

    /// Reads from `offset` on. Blocks.
    pub(crate) fn read(&self, offset: u64, memory: &mut AlignedBuf) -> Status {
        self.count_read(memory.len());
        self.status(Way::Read, self.drive.read_at(offset, memory))
    }

    /// Writes at `offset`; if `durably`, the data are on the medium afterwards. Blocks.
    pub(crate) fn write(&self, offset: u64, memory: &AlignedBuf, durably: bool) -> Status {
        self.counters.writes.add(1);
        self.counters.written_bytes.add(memory.len() as u64);
        let written = self.drive.write_at(offset, memory);
        match written {
            Ok(()) if durably => self.flush(),
            written => self.status(Way::Write, written),
        }
    }

    /// Brings all completed writes to the medium. Blocks.
    pub(crate) fn flush(&self) -> Status {
        self.counters.flushes.add(1);
        self.status(Way::Write, self.drive.flush())
    }

    /// Makes blocks read as zeros. Blocks.
    pub(crate) fn write_zeroes(&self, blocks: Blocks) -> Status {
        let (offset, bytes) = (self.offset(blocks), self.bytes(blocks));
        self.counters.zeroed_bytes.add(bytes);
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        let zeroed = match self.drive.reads() {
            Reads::Ring(fd) => fallocate(fd, flags, offset, bytes).is_ok(),
            _ => false,
        };
        if zeroed {
            Status::SUCCESS
        } else {
            self.status(Way::Write, self.write_zeros(offset, bytes))
        }
    }

    /// For file systems and devices that have no other way.
    fn write_zeros(&self, offset: u64, bytes: u64) -> io::Result<()> {
        static ZEROS: OnceLock<AlignedBuf> = OnceLock::new();
        let zeros = ZEROS.get_or_init(|| AlignedBuf::zeroed(LARGEST));
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let bytes = (end - at).min(LARGEST as u64) as usize;
            if bytes == LARGEST {
                self.drive.write_at(at, zeros)?;
            } else {
                self.drive.write_at(at, &AlignedBuf::zeroed(bytes))?;
            }
            at += bytes as u64;
        }
        Ok(())
    }

    /// Tells a block device that blocks are not needed. The space of a file stays reserved: without it, the next write
    /// there could find the file system full. Blocks.
    pub(crate) fn deallocate(&self, ranges: &[Blocks]) -> Status {
        if let (true, Reads::Ring(fd)) = (self.is_block_device, self.drive.reads()) {
            for range in ranges {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // It is a hint: a device that has no use for it keeps the blocks.
                let _ = fallocate(fd, flags, self.offset(*range), self.bytes(*range));
            }
        }
        Status::SUCCESS
    }

    /// The status of a command whose call of the drive ended so. Counts an error, and logs the first of its class.
    pub(crate) fn status(&self, way: Way, result: io::Result<()>) -> Status {
        let Err(error) = result else { return Status::SUCCESS };
        let class = ErrorClass::of(&error);
        self.counters.errors[class as usize].add(1);
        let bit = 1 << class as u8;
        if self.logged.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let verb = if way == Way::Read { "read" } else { "write" };
            self.log.warn(format!(
                "namespace {} ({}): {class}: a {verb} failed ({error}); the host gets an error, further ones of this \
                 kind are counted only; {}",
                self.namespace.nsid,
                self.drive.label(),
                action(class)
            ));
        }
        status_of(class, way)
    }

    /// What it has done.
    pub(crate) fn report(&self) -> NamespaceStatus {
        let counters = &self.counters;
        let mut errors = ErrorCounts::default();
        for class in ErrorClass::ALL {
            errors.add(class, counters.errors[class as usize].get());
        }
        NamespaceStatus {
            nsid: self.namespace.nsid,
            path: self.drive.label().to_owned(),
            bytes: self.namespace.blocks << self.namespace.block_shift,
            reads: counters.reads.get(),
            read_bytes: counters.read_bytes.get(),
            writes: counters.writes.get(),
            written_bytes: counters.written_bytes.get(),
            flushes: counters.flushes.get(),
            zeroed_bytes: counters.zeroed_bytes.get(),
            errors,
        }
    }
}

fn status_of(class: ErrorClass, way: Way) -> Status {
    match (class, way) {
        (ErrorClass::NoSpace, Way::Write) => Status::CAPACITY_EXCEEDED,
        (ErrorClass::ReadOnly, Way::Write) => Status::WRITE_PROTECTED,
        (ErrorClass::Medium, Way::Read) => Status::UNRECOVERED_READ_ERROR,
        (ErrorClass::Medium, Way::Write) => Status::WRITE_FAULT,
        _ => Status::INTERNAL_ERROR,
    }
}

fn action(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::NoSpace => "free space on its file system",
        ErrorClass::ReadOnly => "make it writable, or export it with read-only",
        ErrorClass::Medium => "check the drive, and that its file has its full length",
        ErrorClass::Gone => "connect the drive, and start the export again",
        ErrorClass::Unresponsive | ErrorClass::Other => "check the drive and the kernel's log",
    }
}
