//! The file with the process id (`-P`).

use super::Failure;
use std::fs;
use std::path::{Path, PathBuf};

/// The file, removed when dropped.
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the id of this process to `path`: wholly or not at all. As in memcached, a server that
    /// can't have one serves all the same.
    pub(crate) fn write(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::system(format!("-P {}: {error}", path.display()));
        let mut draft = path.as_os_str().to_owned();
        draft.push(".tmp");
        fs::write(&draft, format!("{}\n", std::process::id())).map_err(failed)?;
        fs::rename(&draft, path).map_err(failed)?;
        Ok(Self(path.into()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // It may be gone, or belong to a successor that was given the same path.
        let ours = fs::read_to_string(&self.0)
            .is_ok_and(|text| text.trim() == std::process::id().to_string());
        if ours {
            let _ = fs::remove_file(&self.0);
        }
    }
}
