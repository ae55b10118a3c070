//! A drive or file under measurement, and whether it may be written.

use crate::ProbeError;
use crate::holes::unwritten;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use terrace_device::{AlignedBuf, Drive, FileDevice, Reads};
use terrace_remote::{Address, Options, PREFIX, Purpose, RemoteDrive};

/// How many places of a block device, from its first to its last bytes, are looked at to tell
/// whether it holds anything, and how much of each: partition tables, file systems and arrays leave
/// traces at either end, and data between.
const PLACES: u64 = 257;
const LOOKED_AT: u64 = 1 << 20;
const FILL_BYTES: usize = 4 << 20;
/// Files for as many processes as there ever are, and what each has at least.
const OWN_FILES: u64 = 32;
const OWN_BYTES_MIN: u64 = 1 << 20;
/// So small a part of a file that was never written does not show.
const UNWRITTEN_SHARE: u64 = 100;

/// A drive that is open for measurement. A file that did not exist before has no name any more, so that
/// it goes with this process, however that ends; one that was empty is empty again when dropped.
pub struct Target {
    /// The drive.
    pub device: Arc<dyn Drive>,
    /// Whether it may be written.
    pub writable: bool,
    /// What the user should know about how it is used.
    pub notes: Vec<String>,
    path: PathBuf,
    held: Held,
    /// Beside a file that was made here: one for each process.
    own: OnceLock<Vec<Target>>,
}

impl Target {
    /// Opens `path`; a new file gets `bytes`. What holds anything is read only, unless `destroy`.
    ///
    /// # Errors
    /// It can't be opened, or holds nothing that could be read.
    pub fn open(path: &Path, bytes: u64, destroy: bool) -> Result<Self, ProbeError> {
        let name = path.display().to_string();
        if name.starts_with(PREFIX) {
            return Self::open_remote(&name, destroy);
        }
        let held = held(path).map_err(ProbeError::io(&name))?;
        // What holds something keeps its size too.
        let grows = matches!(held, Held::NoFile | Held::EmptyFile);
        let device = FileDevice::open(path, grows.then_some(bytes))?;
        let notes = device.notes().to_vec();
        let writable = held != Held::Something || destroy;
        if held == Held::NoFile {
            std::fs::remove_file(path).map_err(ProbeError::io(&name))?;
        }
        let (device, path, own) = (Arc::new(device), path.to_owned(), OnceLock::new());
        let mut target = Self { device, writable, notes, path, held, own };
        if held == Held::Something {
            target.note_holes()?;
        } else {
            target.fill().map_err(ProbeError::io(&name))?;
        }
        Ok(target)
    }

    /// Connects to a remote drive, which is read only, unless `destroy`.
    fn open_remote(name: &str, destroy: bool) -> Result<Self, ProbeError> {
        let address = Address::parse(name).map_err(ProbeError::Input)?;
        let purpose = if destroy { Purpose::Overwrite } else { Purpose::Read };
        let options = Options { purpose, ..Options::default() };
        let drive = RemoteDrive::open(&address, None, &options, &|_| false)?;
        let notes = drive.notes().to_vec();
        let (device, path, own) = (Arc::new(drive), PathBuf::from(name), OnceLock::new());
        Ok(Self { device, writable: destroy, notes, path, held: Held::Something, own })
    }

    /// Opened once more, for another process: past the page cache where that is possible.
    pub(crate) fn file(&self, writes: bool) -> Result<File, ProbeError> {
        // By its descriptor: what was made here has no name.
        let path = match self.device.reads() {
            Reads::Ring(fd) => PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())),
            Reads::Threads | Reads::Synchronous | Reads::Own(_) => self.path.clone(),
        };
        let open = |flags: rustix::fs::OFlags| {
            let writes = writes && self.writable;
            let flags = flags.bits().cast_signed();
            File::options().read(true).write(writes).custom_flags(flags).open(&path)
        };
        open(rustix::fs::OFlags::DIRECT)
            .or_else(|_| open(rustix::fs::OFlags::empty()))
            .map_err(ProbeError::io(self.device.label()))
    }

    /// A file for each process, all together as large as this one; made when they are first asked
    /// for. None beside what was there before, or if they would be too small.
    pub(crate) fn own_files(&self) -> Result<Option<&[Target]>, ProbeError> {
        let bytes = self.device.geometry().bytes / OWN_FILES;
        let bytes = bytes - bytes % OWN_BYTES_MIN;
        if self.held != Held::NoFile || bytes == 0 {
            return Ok(None);
        }
        if let Some(files) = self.own.get() {
            return Ok(Some(files));
        }
        let one = |number: u64| {
            let mut path = self.path.clone().into_os_string();
            path.push(format!(".{number}"));
            let path = Path::new(&path);
            if path.symlink_metadata().is_ok() {
                let text = format!("{} is there already; measure another path", path.display());
                return Err(ProbeError::Input(text));
            }
            Self::open(path, bytes, false)
        };
        let files = (0..OWN_FILES).map(one).collect::<Result<_, _>>()?;
        Ok(Some(self.own.get_or_init(|| files)))
    }

    /// Tells of a file that is not filled here how much of it reading costs its drive nothing.
    fn note_holes(&mut self) -> Result<(), ProbeError> {
        let bytes = self.device.geometry().bytes;
        let unwritten = unwritten(&self.file(false)?, bytes);
        if unwritten > bytes / UNWRITTEN_SHARE {
            self.notes.push(format!(
                "{}: {} of {} MiB were never written; reads of them never reach the drive, which is \
                 slower than these figures and a profile say: measure a new file",
                self.device.label(),
                unwritten >> 20,
                bytes >> 20
            ));
        }
        Ok(())
    }

    /// Reading what was never written costs a drive nothing.
    fn fill(&self) -> std::io::Result<()> {
        use rand::{Rng, SeedableRng};
        let mut buffer = AlignedBuf::zeroed(FILL_BYTES);
        rand::rngs::SmallRng::seed_from_u64(1).fill_bytes(&mut buffer);
        let bytes = self.device.geometry().bytes;
        for offset in (0..bytes).step_by(FILL_BYTES) {
            let left = usize::try_from(bytes - offset).unwrap_or(FILL_BYTES);
            buffer.set_len(FILL_BYTES.min(left));
            self.device.write_at(offset, &buffer)?;
        }
        self.device.flush()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.held == Held::EmptyFile {
            let _ = File::options().write(true).open(&self.path).and_then(|file| file.set_len(0));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    NoFile,
    EmptyFile,
    BlankDevice,
    Something,
}

fn held(path: &Path) -> std::io::Result<Held> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Held::NoFile),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_block_device() {
        return Ok(if metadata.len() > 0 { Held::Something } else { Held::EmptyFile });
    }
    let blank = is_blank(&mut File::open(path)?)?;
    Ok(if blank { Held::BlankDevice } else { Held::Something })
}

fn is_blank(device: &mut File) -> std::io::Result<bool> {
    let last = device.seek(SeekFrom::End(0))?.saturating_sub(LOOKED_AT);
    let mut bytes = Vec::new();
    for place in 0..PLACES {
        device.seek(SeekFrom::Start(last / (PLACES - 1) * place))?;
        bytes.clear();
        // The last place is the device's end, however the division came out.
        let take = if place == PLACES - 1 { u64::MAX } else { LOOKED_AT };
        device.take(take).read_to_end(&mut bytes)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_what_was_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let (new, empty) = (dir.path().join("new"), dir.path().join("empty"));
        let target = Target::open(&new, 1 << 20, false).unwrap();
        assert!(!new.exists(), "it would stay if this process were killed");
        assert_eq!(target.file(true).unwrap().metadata().unwrap().len(), 1 << 20);
        File::create(&empty).unwrap();
        let target = Target::open(&empty, 1 << 20, false).unwrap();
        assert_eq!(empty.metadata().unwrap().len(), 1 << 20);
        drop(target);
        assert_eq!(empty.metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_byte_at_either_end_is_something() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        let bytes = 600 << 20;
        for at in [None, Some(0), Some(bytes - 1)] {
            let mut file =
                File::options().create(true).truncate(true).read(true).write(true).open(&path);
            let file = file.as_mut().unwrap();
            file.set_len(bytes).unwrap();
            if let Some(at) = at {
                file.seek(SeekFrom::Start(at)).unwrap();
                std::io::Write::write_all(file, b"x").unwrap();
            }
            assert_eq!(is_blank(file).unwrap(), at.is_none(), "{at:?}");
        }
    }
}
