//! Why a device can't be opened, each with what to do about it.

use std::io;
use std::path::PathBuf;

/// Why [`crate::FileDevice::open`] refused. The message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path names a directory.
    #[error("{} is a directory: name a file in it, for example {}", .0.display(), .0.join("terrace").display())]
    IsDirectory(PathBuf),
    /// The path names a socket, a pipe or a character device.
    #[error("{} is neither a file nor a block device: name one of those", .0.display())]
    NotStorage(PathBuf),
    /// A directory on the way does not exist.
    #[error("{} can't be created: make its directory first", .0.display())]
    NoParent(PathBuf),
    /// A device that is not connected: nothing is created among devices.
    #[error("{} is not there: connect the drive, or name another path", .0.display())]
    NotThere(PathBuf),
    /// A symbolic link to what is not there.
    #[error("{} is a link to a file that is not there: make that file or remove the link", .0.display())]
    LeadsNowhere(PathBuf),
    /// The user may not read and write it, or the file system is read-only.
    #[error("{} can't be opened for reading and writing: {source}; give this user the right to, or name another path", path.display())]
    NotPermitted {
        /// What was asked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file is missing or empty, and no size was given for it.
    #[error("{} has no size yet: say how large it is to be, for example {}:10g", .0.display(), .0.display())]
    NoSize(PathBuf),
    /// A running Terrace, a file system or another program has it.
    #[error("{} is in use: stop the other Terrace or unmount it, or name another path", .0.display())]
    InUse(PathBuf),
    /// It holds what the caller would not have overwritten, see [`crate::FileDevice::open_unless`].
    #[error("{}: holds data that Terrace did not write; give an empty file or wipe it first", .0.display())]
    Foreign(PathBuf),
    /// A block device is smaller than its `size`.
    #[error("{} has {has} bytes, {asked} were asked for: ask for at most {has}, or leave the size out", path.display())]
    Smaller {
        /// What was asked for.
        path: PathBuf,
        /// Bytes asked for.
        asked: u64,
        /// Bytes it has.
        has: u64,
    },
    /// Less than one block of 4096 bytes.
    #[error("{} would have {bytes} bytes, less than a block: give it a larger size", path.display())]
    Empty {
        /// What was asked for.
        path: PathBuf,
        /// Bytes that were asked for, or that it has.
        bytes: u64,
    },
    /// The file system can't give the file its space.
    #[error("the file system of {} is full: {asked} bytes asked for, {missing} of them still to allocate, {free} free; free some or ask for less", path.display())]
    Full {
        /// What was asked for.
        path: PathBuf,
        /// Bytes asked for.
        asked: u64,
        /// Of these, what the file did not have yet.
        missing: u64,
        /// Bytes that the user may still allocate there; a quota can make it fewer.
        free: u64,
    },
    /// The file would exceed what the file system or the process may have in one file.
    #[error("{} can't have {asked} bytes: {limit}; ask for less or raise it", path.display())]
    TooLarge {
        /// What was asked for.
        path: PathBuf,
        /// Bytes asked for.
        asked: u64,
        /// What forbids it.
        limit: String,
    },
    /// Anything else that the kernel refused.
    #[error("{}: {step}: {source}; check the path and the drive", path.display())]
    Io {
        /// What was asked for.
        path: PathBuf,
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether the drive, or the file system that it lies on, may be missing for a while.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NotThere(_)
                | Self::NoParent(_)
                | Self::LeadsNowhere(_)
                | Self::NoSize(_)
                | Self::Io { .. }
        )
    }
}
