//! A drive that is not there.

use crate::buffer::AlignedBuf;
use crate::drive::{Drive, Geometry, Reads};
use crate::health::{Direction, Monitor};
use std::io;

/// The place of a drive that can't be opened: every transfer fails as one of a drive that is gone. With it a cache starts
/// without that drive, and knows that it is missing.
///
/// # Examples
///
/// ```
/// use terrace_device::{AbsentDrive, AlignedBuf, Drive};
///
/// let drive = AbsentDrive::new("/dev/nvme7n1".to_owned(), "no such device".to_owned());
/// let error = drive.read_at(0, &mut AlignedBuf::zeroed(4096)).unwrap_err();
/// assert_eq!(error.to_string(), "no such device");
/// assert_eq!((drive.geometry().bytes, drive.health().name()), (0, "gone"));
/// ```
pub struct AbsentDrive {
    label: String,
    reason: String,
    monitor: Monitor,
}

impl AbsentDrive {
    /// The drive that the user calls `label` and that can't be opened for this reason.
    pub fn new(label: String, reason: String) -> Self {
        Self { label, reason, monitor: Monitor::default() }
    }

    fn refuse(&self, direction: Direction) -> io::Result<()> {
        let error = io::Error::new(io::ErrorKind::NotConnected, self.reason.clone());
        self.monitor.record(direction, Err(error))
    }
}

impl Drive for AbsentDrive {
    fn label(&self) -> &str {
        &self.label
    }

    fn geometry(&self) -> Geometry {
        Geometry { bytes: 0, block_bytes: 512 }
    }

    fn read_at(&self, _offset: u64, _buf: &mut AlignedBuf) -> io::Result<()> {
        self.refuse(Direction::Read)
    }

    fn write_at(&self, _offset: u64, _buf: &AlignedBuf) -> io::Result<()> {
        self.refuse(Direction::Write)
    }

    fn flush(&self) -> io::Result<()> {
        self.refuse(Direction::Write)
    }

    fn reads(&self) -> Reads<'_> {
        Reads::Synchronous
    }

    fn monitor(&self) -> Option<&Monitor> {
        Some(&self.monitor)
    }
}
