//! The roster of a set of drives, in a file besides them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use terrace_cache::Witness;

/// The longest roster that is read.
const BYTES_MAX: u64 = 1 << 16;
/// A roster is written beside the present one, under its name and this.
const NEW: &str = "new";

/// A file that keeps the roster. It is a few kilobytes, is written at each start, and must outlive what it is to tell of:
/// so it lies on another disk than the drives, and not in memory.
///
/// # Examples
///
/// ```
/// use terrace_cache::Witness;
/// use terrace_runtime::roster::RosterFile;
///
/// let dir = tempfile::tempdir()?;
/// let roster = RosterFile::new(&dir.path().join("roster"));
/// assert_eq!(roster.read()?, None);
/// roster.write(b"members")?;
/// assert_eq!(roster.read()?.as_deref(), Some(&b"members"[..]));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RosterFile {
    path: PathBuf,
}

impl RosterFile {
    /// The file of this path, which need not exist yet; its folder must.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(NEW);
        let new = PathBuf::from(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        // The name must outlive a power loss, too.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Witness for RosterFile {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let read = || {
            let mut bytes = Vec::new();
            File::open(&self.path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| self.named(error)),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.replace(bytes).map_err(|error| self.named(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roster_that_can_not_be_written_names_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let roster = RosterFile::new(&dir.path().join("missing/roster"));
        assert_eq!(roster.read().unwrap(), None);
        let error = roster.write(b"members").unwrap_err();
        assert!(error.to_string().contains("missing/roster"), "{error}");
    }
}
