//! Opening a file or block device: what it is, that no other process has it, its space, direct I/O.

use crate::error::OpenError;
use crate::memory::ALIGNMENT;
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::{self, File, FileType, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Block size where the kernel does not name one.
const DEFAULT_BLOCK_BYTES: u32 = 4096;
/// The smallest block that is worth anything: a sector.
const BLOCK_BYTES_MIN: u32 = 512;

/// How long a device may be in use before that is believed: other processes hold one for a moment, such as
/// udev, which looks at a block device whenever a writer has closed it, or the child of a fork that
/// is about to run another program.
const IN_USE_PATIENCE: Duration = Duration::from_millis(500);
const IN_USE_NAP: Duration = Duration::from_millis(10);

/// An opened, locked and allocated file or block device.
pub(crate) struct Claimed {
    /// For transfers.
    pub(crate) file: File,
    /// Holds the lock. A description of its own, because a ring keeps those that are registered
    /// with it, and with them their locks, for some time after its process has ended: the next
    /// process would find the device in use.
    pub(crate) lock: File,
    pub(crate) bytes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) direct: bool,
    pub(crate) notes: Vec<String>,
}

/// Where devices are; a file that is made there takes memory.
const DEVICES: &str = "/dev";
/// But this one is for files.
const SHARED_MEMORY: &str = "/dev/shm";

impl Claimed {
    pub(crate) fn take(
        path: &Path,
        size: Option<u64>,
        is_foreign: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Self, OpenError> {
        let end = Instant::now() + IN_USE_PATIENCE;
        loop {
            match Self::try_take(path, size, is_foreign) {
                Err(OpenError::InUse(_)) if Instant::now() < end => thread::sleep(IN_USE_NAP),
                result => return result,
            }
        }
    }

    fn try_take(
        path: &Path,
        size: Option<u64>,
        is_foreign: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Self, OpenError> {
        if let Some(bytes) = size.filter(|&bytes| bytes < u64::from(DEFAULT_BLOCK_BYTES)) {
            return Err(OpenError::Empty { path: path.to_owned(), bytes });
        }
        let mut claim = Claim { path, notes: Vec::new() };
        let (lock, created) = claim.open(size)?;
        let opened = claim.lock(&lock).and_then(|()| {
            claim.refuse_foreign(&lock, is_foreign)?;
            let bytes = claim.size(&lock, size)?;
            Ok((claim.open_again(&lock)?, bytes))
        });
        let (file, bytes) = opened.inspect_err(|_| {
            if created {
                // The error that led here matters more than one from tidying up.
                let _ = fs::remove_file(path);
            }
        })?;
        let block_bytes = claim.enable_direct(&file);
        Ok(Self {
            file,
            lock,
            bytes,
            block_bytes: block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES),
            direct: block_bytes.is_some(),
            notes: claim.notes,
        })
    }
}

struct Claim<'a> {
    path: &'a Path,
    notes: Vec<String>,
}

impl Claim<'_> {
    /// The file, and whether it was created.
    fn open(&self, size: Option<u64>) -> Result<(File, bool), OpenError> {
        // Asked before opening, which for a pipe or a terminal would have effects.
        match fs::metadata(self.path) {
            Ok(meta) => {
                self.refuse_other_types(meta.file_type())?;
                let mut options = Self::options();
                if meta.file_type().is_block_device() {
                    // Without O_CREAT it means: not mounted, and not opened by another process.
                    options.custom_flags(OFlags::EXCL.bits() as i32);
                }
                options.open(self.path).map(|file| (file, false)).map_err(|e| self.why_not(e))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.path.starts_with(DEVICES) && !self.path.starts_with(SHARED_MEMORY) {
                    return Err(OpenError::NotThere(self.path.to_owned()));
                }
                if size.is_none() {
                    return Err(OpenError::NoSize(self.path.to_owned()));
                }
                let created = Self::options().create_new(true).mode(0o600).open(self.path);
                created.map(|file| (file, true)).map_err(|e| self.why_not(e))
            }
            Err(error) => Err(self.why_not(error)),
        }
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options
    }

    fn refuse_other_types(&self, kind: FileType) -> Result<(), OpenError> {
        if kind.is_dir() {
            return Err(OpenError::IsDirectory(self.path.to_owned()));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(OpenError::NotStorage(self.path.to_owned()));
        }
        Ok(())
    }

    fn why_not(&self, error: io::Error) -> OpenError {
        use io::ErrorKind::{
            AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied,
            ReadOnlyFilesystem, ResourceBusy, StorageFull,
        };
        let path = self.path.to_owned();
        match error.kind() {
            IsADirectory => OpenError::IsDirectory(path),
            NotFound | NotADirectory => OpenError::NoParent(path),
            PermissionDenied | ReadOnlyFilesystem => {
                OpenError::NotPermitted { path, source: error }
            }
            // What is there, and was not found when we looked.
            AlreadyExists if path.is_symlink() && !path.exists() => OpenError::LeadsNowhere(path),
            // Created by another process in the moment after we looked.
            ResourceBusy | AlreadyExists => OpenError::InUse(path),
            StorageFull => OpenError::Full { path, asked: 0, missing: 0, free: 0 },
            _ => self.failed("open", error),
        }
    }

    fn failed(&self, step: &'static str, source: impl Into<io::Error>) -> OpenError {
        OpenError::Io { path: self.path.to_owned(), step, source: source.into() }
    }

    fn lock(&self, file: &File) -> Result<(), OpenError> {
        match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse(self.path.to_owned())),
            Err(TryLockError::Error(error)) => Err(self.failed("lock", error)),
        }
    }

    /// A second description of the same file.
    fn open_again(&self, first: &File) -> Result<File, OpenError> {
        let open = || {
            let second = Self::options().open(self.path)?;
            let (a, b) = (first.metadata()?, second.metadata()?);
            if (a.dev(), a.ino()) != (b.dev(), b.ino()) {
                return Err(io::Error::other("it was replaced meanwhile"));
            }
            Ok(second)
        };
        open().map_err(|error| self.failed("open again", error))
    }

    /// To be called before anything is written or allocated.
    fn refuse_foreign(
        &self,
        file: &File,
        is_foreign: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(), OpenError> {
        let mut first = [0; DEFAULT_BLOCK_BYTES as usize];
        let mut bytes = 0;
        while bytes < first.len() {
            match file.read_at(&mut first[bytes..], bytes as u64) {
                Ok(0) => break,
                Ok(more) => bytes += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read", error)),
            }
        }
        match bytes > 0 && is_foreign(&first[..bytes]) {
            true => Err(OpenError::Foreign(self.path.to_owned())),
            false => Ok(()),
        }
    }

    /// Usable bytes, all of them allocated.
    fn size(&mut self, file: &File, asked: Option<u64>) -> Result<u64, OpenError> {
        let meta = file.metadata().map_err(|e| self.failed("stat", e))?;
        self.refuse_other_types(meta.file_type())?;
        if meta.file_type().is_block_device() {
            return self.size_of_block_device(file, asked);
        }
        let has = meta.len();
        let bytes = asked.unwrap_or(has);
        if bytes == 0 {
            return Err(OpenError::NoSize(self.path.to_owned()));
        }
        self.allocate(file, bytes, has).inspect_err(|_| {
            // What an unsuccessful allocation took is given back; `has` is what was there before.
            let _ = file.set_len(has);
        })?;
        Ok(bytes)
    }

    fn size_of_block_device(&self, mut file: &File, asked: Option<u64>) -> Result<u64, OpenError> {
        let has = file.seek(SeekFrom::End(0)).map_err(|e| self.failed("ask for the size", e))?;
        match asked {
            Some(asked) if asked > has => {
                Err(OpenError::Smaller { path: self.path.to_owned(), asked, has })
            }
            _ => Ok(asked.unwrap_or(has)),
        }
    }

    /// Makes the first `bytes` of a file real without changing what they hold.
    fn allocate(&mut self, file: &File, bytes: u64, has: u64) -> Result<(), OpenError> {
        self.check_process_limit(bytes)?;
        self.check_room(file, bytes)?;
        match retry(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.notes.push(format!(
                    "{}: its file system can't reserve space, a full disk will show only later",
                    self.path.display()
                ));
                let grown = if bytes > has { file.set_len(bytes) } else { Ok(()) };
                grown.map_err(|e| self.failed("grow", e))
            }
            Err(Errno::NOSPC | Errno::DQUOT) => Err(self.full(file, bytes, has)),
            Err(Errno::FBIG) => Err(self.too_large(bytes, "its file system has no larger files")),
            Err(error) => Err(self.failed("reserve space", error)),
        }
    }

    /// Asked first because exceeding it would kill the process with a signal.
    fn check_process_limit(&self, bytes: u64) -> Result<(), OpenError> {
        match getrlimit(Resource::Fsize).current {
            Some(limit) if bytes > limit => {
                let limit = format!("this process may write files of {limit} bytes (ulimit -f)");
                Err(self.too_large(bytes, &limit))
            }
            _ => Ok(()),
        }
    }

    /// Asked first because an attempt takes all that is left before it fails, and other processes that write there
    /// meanwhile fail with it.
    fn check_room(&self, file: &File, asked: u64) -> Result<(), OpenError> {
        let (missing, free) = room(file, asked);
        match free {
            Some(free) if missing > free => {
                Err(OpenError::Full { path: self.path.to_owned(), asked, missing, free })
            }
            _ => Ok(()),
        }
    }

    fn too_large(&self, asked: u64, limit: &str) -> OpenError {
        OpenError::TooLarge { path: self.path.to_owned(), asked, limit: limit.to_owned() }
    }

    fn full(&self, file: &File, asked: u64, has: u64) -> OpenError {
        // So that `free` counts what the attempt itself took.
        let _ = file.set_len(has);
        let (missing, free) = room(file, asked);
        let free = free.unwrap_or(0);
        OpenError::Full { path: self.path.to_owned(), asked, missing, free }
    }

    /// Switches to direct I/O and says in which blocks, if the file system can.
    fn enable_direct(&mut self, file: &File) -> Option<u32> {
        let enabled = direct_block_bytes(file).and_then(|block_bytes| {
            let flags = rustix::fs::fcntl_getfl(file).ok()? | OFlags::DIRECT;
            // To date each read costs a little, and only the file's owner may do without.
            let undated = rustix::fs::fcntl_setfl(file, flags | OFlags::NOATIME);
            undated.or_else(|_| rustix::fs::fcntl_setfl(file, flags)).ok()?;
            Some(block_bytes)
        });
        if enabled.is_none() {
            self.notes.push(format!(
                "{}: its file system has no direct I/O, transfers go through the page cache",
                self.path.display()
            ));
        }
        enabled
    }
}

/// How many of so many bytes a file still lacks, and how many its file system has left; `None` where it does not say.
fn room(file: &File, asked: u64) -> (u64, Option<u64>) {
    let allocated = file.metadata().map_or(0, |meta| meta.blocks() * 512);
    let free = rustix::fs::fstatvfs(file).ok().filter(|fs| fs.f_blocks > 0);
    (asked.saturating_sub(allocated), free.map(|fs| fs.f_bavail * fs.f_frsize))
}

/// The unit of direct I/O; `None` if there is none, or none that our buffers satisfy.
fn direct_block_bytes(file: &File) -> Option<u32> {
    let Ok(stat) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Some(DEFAULT_BLOCK_BYTES);
    };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        // An older kernel: it will say when asked for direct I/O.
        return Some(DEFAULT_BLOCK_BYTES);
    }
    let (offset, memory) = (stat.stx_dio_offset_align, stat.stx_dio_mem_align);
    let fits = |align: u32| align.is_power_of_two() && align as usize <= ALIGNMENT;
    (fits(offset) && fits(memory)).then_some(offset.max(BLOCK_BYTES_MIN))
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
