//! Files and block devices.

use crate::buffer::AlignedBuf;
use crate::claim::Claimed;
use crate::drive::{Drive, Geometry, Reads};
use crate::error::OpenError;
use crate::health::{Direction, Monitor};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::time::Instant;

/// A regular file or a block device, exclusively ours while it is open.
///
/// Transfers bypass the page cache where the file system allows it ([`FileDevice::is_direct`]).
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// Dropping it releases the lock on the device.
    lock: File,
    label: String,
    geometry: Geometry,
    is_block_device: bool,
    direct: bool,
    notes: Vec<String>,
    monitor: Monitor,
}

impl FileDevice {
    /// Opens `path` for `size` bytes and locks it.
    ///
    /// A file that does not exist is created (mode 0600; `size` must be given, the directory must
    /// exist) and one that is smaller than `size` grows; all its space is allocated here, so that a
    /// full disk shows now and not later. Of a larger file or block device the first `size` bytes
    /// are used. Without `size` it is used as it is. What the file already holds stays as it is, even
    /// when opening fails.
    pub fn open(path: impl AsRef<Path>, size: Option<u64>) -> Result<Self, OpenError> {
        Self::open_unless(path, size, &|_| false)
    }

    /// As [`FileDevice::open`], but refuses what `is_foreign` of its first bytes (a block of 4096, or
    /// all that there are): before anything of it is changed, its length included. Not asked about
    /// what is empty or new.
    pub fn open_unless(
        path: impl AsRef<Path>,
        size: Option<u64>,
        is_foreign: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let Claimed { file, lock, bytes, block_bytes, direct, notes } =
            Claimed::take(path, size, is_foreign)?;
        let geometry = Geometry { bytes: bytes - bytes % u64::from(block_bytes), block_bytes };
        if geometry.bytes == 0 {
            return Err(OpenError::Empty { path: path.to_owned(), bytes });
        }
        let (label, monitor) = (path.display().to_string(), Monitor::default());
        let is_block_device = file.metadata().is_ok_and(|meta| meta.file_type().is_block_device());
        Ok(Self { file, lock, label, geometry, is_block_device, direct, notes, monitor })
    }

    /// Bytes of a block device; none once it is gone.
    fn bytes_now(&self) -> u64 {
        // Transfers name their offsets, so that the position is of no use.
        rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0)).unwrap_or(0)
    }

    /// Whether transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// What the user should know about how the device is used, one line each; mostly none.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Drive for FileDevice {
    fn label(&self) -> &str {
        &self.label
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.geometry.check(offset, buf.len())?;
        let read = self.file.read_exact_at(buf, offset).map_err(|error| self.explain(error));
        self.monitor.record(Direction::Read, read)
    }

    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        self.geometry.check(offset, buf.len())?;
        let begun = Instant::now();
        let written = self.file.write_all_at(buf, offset);
        if written.is_ok() {
            self.monitor.record_pace(buf.len(), begun.elapsed());
        }
        let written = written.map_err(|error| self.explain(error));
        self.monitor.record(Direction::Write, written)
    }

    fn flush(&self) -> io::Result<()> {
        self.monitor.record(Direction::Write, self.file.sync_data())
    }

    fn explain(&self, error: io::Error) -> io::Error {
        let may_be_gone =
            matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::StorageFull);
        if may_be_gone && self.is_block_device && self.bytes_now() < self.geometry.bytes {
            return rustix::io::Errno::NODEV.into();
        }
        error
    }

    fn close(&self) {
        // Queues and transfers may still have the number of the descriptor: it must not become another file's.
        let _ = close_keeping_number(&self.file);
        let _ = close_keeping_number(&self.lock);
    }

    fn monitor(&self) -> Option<&Monitor> {
        Some(&self.monitor)
    }

    fn reads(&self) -> Reads<'_> {
        Reads::Ring(self.file.as_fd())
    }
}

/// Closes the file, and has its descriptor stand for one that is always at its end and takes no writes.
fn close_keeping_number(file: &File) -> io::Result<()> {
    let nothing = File::open("/dev/null")?;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and it is not closed here.
    let mut descriptor = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(file.as_raw_fd()) });
    Ok(rustix::io::dup2(&nothing, &mut descriptor)?)
}
