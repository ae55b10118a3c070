//! The file of the state: it lies in memory, and its space is reserved.

use crate::platform::crash::crash_point;
use crate::platform::mapped::Loss;
use crate::state::PAGE;
use rustix::fs::{
    FallocateFlags, MemfdFlags, fallocate, fstatvfs, ftruncate, memfd_create, statfs,
};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File systems that keep files in memory: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// The unit of a file's blocks in `stat`, for every file system.
const STAT_BLOCK: u64 = 512;

/// A clean stop replaces the extension of the state's name by this one.
pub const RETIRED: &str = "epoch";

/// The file that outlives the process. One running cache at a time may use it: the caller that opens it must hold a
/// lock on it. It must lie in memory ([`is_in_memory`]): it has no checksums, so the cache would serve damage by a
/// disk.
pub struct StateFile {
    /// Open for reading and writing.
    file: File,
    /// Its name, if it has one.
    path: Option<PathBuf>,
    loss: Loss,
}

impl StateFile {
    /// Takes an open file (read and write) of any length and content. If the file is lost while a cache has it mapped
    /// (see [`crate::replace_lost`]), the cache removes the name `path`.
    pub fn new(file: File, path: Option<PathBuf>) -> Self {
        Self { file, path, loss: Loss::new() }
    }

    /// Memory that lives only as long as this value: for tests, and where nothing should survive.
    pub fn volatile() -> io::Result<Self> {
        Ok(Self::new(memfd_create("terrace-state", MemfdFlags::CLOEXEC)?.into(), None))
    }

    /// A copy, as a crash at this moment would leave it.
    pub fn snapshot(&self) -> io::Result<Self> {
        let mut copy = Self::volatile()?;
        let mut from = self.file.try_clone()?;
        from.rewind()?;
        let (mut buffer, zeros) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            let read = from.read(&mut buffer)?;
            match read {
                0 => break,
                _ if buffer[..read] == zeros[..read] => {
                    copy.file.seek(io::SeekFrom::Current(read as i64))?;
                }
                _ => copy.file.write_all(&buffer[..read])?,
            }
        }
        ftruncate(&copy.file, from.metadata()?.len())?;
        Ok(copy)
    }

    /// A copy as a clean stop leaves it once everything is on the tiers: only its first page.
    ///
    /// # Errors
    /// There is no memory for the copy, or the file can't be read.
    pub fn retired(&self) -> io::Result<Self> {
        let copy = Self::volatile()?;
        let mut page = [0; PAGE];
        self.file.read_exact_at(&mut page, 0)?;
        copy.file.write_all_at(&page, 0)?;
        Ok(copy)
    }

    /// Replaces the file by its first page, under another name, when nothing else of it is needed: that page tells an
    /// older copy of a tier from the one that was stopped. Does nothing where the file has no name. Steps:
    ///
    /// 1. The page is written beside the file. A crash leaves both, and the next start takes the file.
    /// 2. The file's name is removed.
    pub(super) fn retire(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut page = [0; PAGE];
        self.file.read_exact_at(&mut page, 0)?;
        let beside = path.with_extension(RETIRED);
        let make = || File::options().write(true).create_new(true).mode(0o600).open(&beside);
        let made = make().or_else(|error| match error.kind() {
            // A crash may have left it.
            io::ErrorKind::AlreadyExists => std::fs::remove_file(&beside).and_then(|()| make()),
            _ => Err(error),
        });
        made?.write_all_at(&page, 0)?;
        self.remove_name();
        Ok(())
    }

    pub(super) fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn loss(&self) -> Loss {
        self.loss
    }

    /// Makes the file useless for a start, whatever other processes do with it: zeros its first page, and removes its
    /// name if that still is this file's.
    pub(super) fn forget(&self) {
        // If one of these is refused, the other one suffices.
        let _ = self.file.write_all_at(&[0; PAGE], 0);
        self.remove_name();
    }

    /// Removes the name if it still is this file's.
    fn remove_name(&self) {
        let own = self.file.metadata().map(|meta| (meta.dev(), meta.ino()));
        if let (Some(path), Ok(own)) = (&self.path, own) {
            let named = path.symlink_metadata().map(|meta| (meta.dev(), meta.ino()));
            if named.is_ok_and(|named| named == own) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Makes the file all zeros behind this first page, and reserves its space so that no store can fail later. The page
    /// comes first, so that a crash leaves it.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if the file system has no room for it; the file has only the page then, if that.
    pub(super) fn erase(&self, bytes: usize, first: &[u8; PAGE]) -> io::Result<()> {
        self.file.write_all_at(first, 0)?;
        crash_point("state: its first page is written");
        ftruncate(&self.file, PAGE as u64)?;
        crash_point("state: it is erased");
        if room_beside(&self.file)? < (bytes - PAGE) as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        ftruncate(&self.file, bytes as u64)?;
        self.reserve(0..bytes as u64).inspect_err(|_| {
            // A part of it may have been reserved.
            let _ = ftruncate(&self.file, PAGE as u64);
        })
    }

    /// Makes the file this long, if it is shorter, and reserves the space.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if the file system has no room for it.
    pub(super) fn grow(&self, bytes: u64) -> io::Result<()> {
        let had = self.bytes()?;
        if had < bytes {
            if room_beside(&self.file)? < bytes - had {
                return Err(io::ErrorKind::StorageFull.into());
            }
            ftruncate(&self.file, bytes)?;
            self.reserve(had..bytes)?;
        }
        Ok(())
    }

    /// Reserves again what an earlier process had returned of the file's space.
    pub(super) fn fill_holes(&self) -> io::Result<()> {
        let meta = self.file.metadata()?;
        let has_holes = meta.blocks() * STAT_BLOCK < meta.len();
        if has_holes { self.reserve(0..meta.len()) } else { Ok(()) }
    }

    /// Reserves space for this part of the file, so that no store into it can fail. Its contents stay.
    pub(super) fn reserve(&self, part: Range<u64>) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), part.start, part.end - part.start) {
            Err(rustix::io::Errno::OPNOTSUPP) => self.write_again(part),
            done => Ok(done?),
        }
    }

    /// Reserves space on a file system without reservations, by writing what is there.
    fn write_again(&self, part: Range<u64>) -> io::Result<()> {
        let mut page = [0; PAGE];
        for at in part.clone().step_by(PAGE) {
            let bytes = PAGE.min((part.end - at) as usize);
            self.file.read_exact_at(&mut page[..bytes], at)?;
            self.file.write_all_at(&page[..bytes], at)?;
        }
        Ok(())
    }
}

/// Whether files in this folder lie in memory, and so are as fast and as safe as memory of a process.
///
/// # Errors
/// The folder can't be examined.
pub fn is_in_memory(folder: &Path) -> io::Result<bool> {
    let kind = statfs(folder)?.f_type;
    Ok(IN_MEMORY.contains(&(kind as u64)))
}

/// Bytes that can still be written to the file system of a file.
fn room_beside(file: &File) -> io::Result<u64> {
    let stat = fstatvfs(file)?;
    // A file system without a limit reports no blocks at all.
    Ok(if stat.f_blocks == 0 { u64::MAX } else { stat.f_bavail * stat.f_frsize })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Where there are no reservations, and after a process that returned parts of its file.
    #[test]
    fn reserved_holes_take_space_and_keep_their_neighbours() {
        let file = StateFile::volatile().unwrap();
        ftruncate(&file.file, 5 * PAGE as u64).unwrap();
        file.file.write_all_at(b"kept", PAGE as u64).unwrap();
        let taken = || file.file.metadata().unwrap().blocks() * STAT_BLOCK / PAGE as u64;
        assert_eq!(taken(), 1);
        file.write_again(0..3 * PAGE as u64).unwrap();
        assert_eq!(taken(), 3);
        file.fill_holes().unwrap();
        assert_eq!(taken(), 5);
        let mut bytes = [0; 5 * PAGE];
        file.file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().filter(|byte| **byte != 0).eq(b"kept"));
    }
}
