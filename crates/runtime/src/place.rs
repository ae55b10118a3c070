//! Where a drive is, and opening it there.

use crate::created::Created;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_device::{Drive, FileDevice};
use terrace_remote::{Address, Purpose, RemoteDrive};

/// Where a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file or a block device.
    Local(PathBuf),
    /// A namespace behind NVMe/TCP.
    Remote(Remote),
}

/// A namespace behind NVMe/TCP, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Where it is.
    pub address: Address,
    /// The name of this host; by default [`terrace_remote::host_nqn`]'s.
    pub host_nqn: Option<String>,
    /// Whether headers and data have digests.
    pub digests: bool,
    /// Whether it may be taken from another host that has it.
    pub may_take: bool,
}

/// A drive that was opened.
pub struct OpenDrive {
    /// The drive.
    pub drive: Arc<dyn Drive>,
    /// What the user should know about how it is used, one line each; mostly none.
    pub notes: Vec<String>,
}

/// Why a drive can't be opened; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// A file or block device.
    #[error(transparent)]
    Local(#[from] terrace_device::OpenError),
    /// A remote drive.
    #[error(transparent)]
    Remote(#[from] terrace_remote::OpenError),
}

impl DriveError {
    /// Whether the drive may be missing for a while.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Local(error) => error.is_absence(),
            Self::Remote(error) => error.is_absence(),
        }
    }
}

impl Place {
    /// The file or block device; `None` of a remote drive.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            Self::Remote(_) => None,
        }
    }

    /// Whether both are the same drive, however they are used.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(one), Self::Local(other)) => one == other,
            (Self::Remote(one), Self::Remote(other)) => one.address == other.address,
            _ => false,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Remote(remote) => remote.address.fmt(f),
        }
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Self::Local(path.to_owned())
    }
}

/// Opens a drive of `bytes` bytes, or of all that it has; notes a file that it makes.
///
/// # Errors
/// It can't be had; or another program's data are on it, which stay.
pub fn open_drive(
    place: &Place,
    bytes: Option<u64>,
    created: &mut Created,
) -> Result<OpenDrive, DriveError> {
    let is_foreign = &terrace_cache::is_foreign;
    match place {
        Place::Local(path) => {
            let drive = created.by(path, || FileDevice::open_unless(path, bytes, is_foreign))?;
            let notes = drive.notes().to_vec();
            Ok(OpenDrive { drive: Arc::new(drive), notes })
        }
        Place::Remote(Remote { address, host_nqn, digests, may_take }) => {
            let options = terrace_remote::Options {
                host_nqn: host_nqn.clone(),
                digests: *digests,
                purpose: if *may_take { Purpose::Take } else { Purpose::Own },
            };
            let drive = RemoteDrive::open(address, bytes, &options, is_foreign)?;
            let notes = drive.notes().to_vec();
            Ok(OpenDrive { drive: Arc::new(drive), notes })
        }
    }
}
