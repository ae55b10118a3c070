//! A regular file or a block device, read and written around the page cache where possible.

use crate::{AlignedBuf, Device, Geometry};
use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, StatxFlags, fallocate, flock, fstatvfs,
    open, statx,
};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Offsets and lengths of all transfers; what pages and segments are made of.
const BLOCK_BYTES: u32 = 4096;

/// Why a device can't be used. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A directory was named.
    #[error("{}: is a directory; name a file in it, for instance {}/terrace.tier", .0.display(), .0.display())]
    Directory(PathBuf),
    /// The directory that the file would be in is missing.
    #[error("{}: its directory does not exist; create it first", .0.display())]
    NoParent(PathBuf),
    /// No right to read and write.
    #[error("{}: no permission to read and write it; change its owner or mode, or run as another user (-u)", .0.display())]
    Permission(PathBuf),
    /// A pipe, a socket, a character device.
    #[error("{}: is neither a file nor a block device", .0.display())]
    Kind(PathBuf),
    /// A file to be created, and no word on how large.
    #[error("{}: no size given; write {}:SIZE, for instance {}:10G", .0.display(), .0.display(), .0.display())]
    NoSize(PathBuf),
    /// Less than the smallest that is of use.
    #[error("{}: {bytes} bytes are too few for a tier", path.display())]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// The size asked for.
        bytes: u64,
    },
    /// A block device that has fewer bytes than were asked for.
    #[error("{}: has {has} bytes, fewer than the {asked} asked for; give a smaller size or none", path.display())]
    DeviceTooSmall {
        /// The device.
        path: PathBuf,
        /// Its size.
        has: u64,
        /// The size asked for.
        asked: u64,
    },
    /// The file system has too little room.
    #[error("{}: no room for {asked} bytes, the file system has {free} free; give a smaller size or free some", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free.
        free: u64,
    },
    /// Another process holds the lock.
    #[error("{}: is in use by another process; stop it or name another file", .0.display())]
    InUse(PathBuf),
    /// Anything else that the system answered.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
}

/// An opened, locked file or block device. What it holds is left as it is.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    label: String,
    bytes: u64,
    notes: Vec<String>,
}

impl FileDevice {
    /// Opens `path` for reading and writing and locks it against other processes. A regular file is
    /// created (mode 0600) and its space reserved as needed, to `bytes`; a larger one keeps its size
    /// and only the first `bytes` are used. Without `bytes` an existing file or device is used
    /// whole.
    pub fn open(path: &Path, bytes: Option<u64>) -> Result<Self, OpenError> {
        let (file, direct) = open_file(path)?;
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(OpenError::Directory(path.to_owned()));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(OpenError::Kind(path.to_owned()));
        }
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|_| OpenError::InUse(path.to_owned()))?;
        let mut notes = Vec::new();
        if !direct {
            notes.push(
                "no direct I/O on this file system: reads and writes go through the page cache"
                    .to_owned(),
            );
        }
        let has =
            if kind.is_file() { metadata.size() } else { device_bytes(&file).map_err(failed)? };
        let asked = match bytes {
            Some(bytes) => bytes,
            None if has > 0 => has,
            None => return Err(OpenError::NoSize(path.to_owned())),
        };
        let asked = asked / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
        if asked == 0 {
            return Err(OpenError::TooSmall { path: path.to_owned(), bytes: bytes.unwrap_or(has) });
        }
        if kind.is_block_device() && asked > has {
            return Err(OpenError::DeviceTooSmall { path: path.to_owned(), has, asked });
        }
        if kind.is_file() {
            reserve(&file, path, has, asked, &mut notes)?;
        }
        let label = path.display().to_string();
        Ok(Self { file, label, bytes: asked, notes })
    }

    /// What the operator should know: direct I/O or space that could not be had.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Device for FileDevice {
    fn label(&self) -> &str {
        &self.label
    }

    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes, block_bytes: BLOCK_BYTES }
    }

    fn read_at(&self, offset: u64, buf: &mut AlignedBuf) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }
}

/// Opens with direct I/O if the file system grants it in our block size; says whether it does.
fn open_file(path: &Path) -> Result<(File, bool), OpenError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match open(path, flags | OFlags::DIRECT, mode) {
        Ok(fd) if accepts_blocks(&fd) => return Ok((fd.into(), true)),
        Ok(_) | Err(rustix::io::Errno::INVAL) => {}
        Err(error) => return Err(open_error(path, error)),
    }
    let fd = open(path, flags, mode).map_err(|error| open_error(path, error))?;
    Ok((fd.into(), false))
}

/// Whether direct I/O in our block size is aligned enough.
fn accepts_blocks(fd: impl AsFd) -> bool {
    let Ok(stat) = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return true };
    // A kernel that doesn't tell leaves the field zero; 4 KiB then is the customary size.
    let told = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    !told || (1..=BLOCK_BYTES).contains(&stat.stx_dio_offset_align)
}

fn open_error(path: &Path, error: rustix::io::Errno) -> OpenError {
    use rustix::io::Errno;
    let path = path.to_owned();
    match error {
        Errno::ISDIR => OpenError::Directory(path),
        Errno::NOENT | Errno::NOTDIR => OpenError::NoParent(path),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => OpenError::Permission(path),
        Errno::NOSPC => OpenError::Full { path, asked: 0, free: 0 },
        Errno::NXIO => OpenError::Kind(path),
        error => OpenError::Io { path, source: error.into() },
    }
}

fn device_bytes(file: &File) -> io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// Makes sure that all of the file has its space now, so that a full file system is found at start.
fn reserve(
    file: &File,
    path: &Path,
    has: u64,
    asked: u64,
    notes: &mut Vec<String>,
) -> Result<(), OpenError> {
    use rustix::io::Errno;
    match fallocate(file, FallocateFlags::empty(), 0, asked) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            notes.push("this file system can't reserve space: a full disk will show up later, as write errors".to_owned());
            let grown = if has < asked { file.set_len(asked) } else { Ok(()) };
            grown.map_err(|source| OpenError::Io { path: path.to_owned(), source })
        }
        Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
            // What was reserved before the space ran out is given back.
            let _ = file.set_len(has);
            if has == 0 {
                let _ = std::fs::remove_file(path);
            }
            let free = fstatvfs(file).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
            Err(OpenError::Full { path: path.to_owned(), asked, free })
        }
        Err(error) => Err(OpenError::Io { path: path.to_owned(), source: error.into() }),
    }
}
