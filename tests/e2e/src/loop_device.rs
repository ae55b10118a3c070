//! A block device over a file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::NamedTempFile;

/// A loop device; detached when dropped. It reads and writes its file past the page cache.
pub struct LoopDevice {
    path: PathBuf,
    file: NamedTempFile,
}

impl LoopDevice {
    /// Attaches a file of `bytes` in `dir`. The error says why there can't be one here.
    pub fn new(dir: &Path, bytes: u64) -> Result<Self, String> {
        let make = || -> io::Result<_> {
            let file = NamedTempFile::new_in(dir)?;
            file.as_file().set_len(bytes)?;
            let output = Command::new("losetup")
                .args(["--direct-io=on", "--find", "--show"])
                .arg(file.path())
                .output()?;
            Ok((file, output))
        };
        let (file, output) = make().map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        Ok(Self { path, file })
    }

    /// The block device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its file: what is cut off fails to be read through the device.
    pub fn file(&self) -> &File {
        self.file.as_file()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // One that is still in use is detached by the kernel when it no longer is.
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}
