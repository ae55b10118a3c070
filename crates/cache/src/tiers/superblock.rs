//! Writing superblocks.

use crate::config::error::OpenError;
use crate::segments::layout::{PAGE, Superblock};
use std::io;
use terrace_device::AlignedBuf;
use terrace_device::Drive;

/// Writes a superblock and makes it durable by `flush`, which is of the device.
pub(crate) fn write(
    device: &dyn Drive,
    superblock: &Superblock,
    flush: impl FnOnce() -> io::Result<()>,
) -> Result<(), OpenError> {
    let mut page = AlignedBuf::zeroed(PAGE);
    superblock.encode(&mut page);
    let written = device.write_at(0, &page).and_then(|()| flush());
    written.map_err(|source| device_error(device, source))
}

pub(crate) fn device_error(device: &dyn Drive, source: io::Error) -> OpenError {
    OpenError::Device { device: device.label().to_owned(), source }
}
