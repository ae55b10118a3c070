//! File systems and folders that tests put servers' files on.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The machine's tmpfs.
const TMPFS: &str = "/dev/shm";

/// A file system of its own, unmounted when dropped.
pub struct Mount(TempDir);

impl Mount {
    /// A tmpfs of this size; `None` where nothing can be mounted.
    pub fn tmpfs(megabytes: u32) -> Option<Self> {
        Self::of("tmpfs", &format!("size={megabytes}m"))
    }

    /// A file system of this kind, which needs no device; `None` where it can't be mounted.
    pub fn of(kind: &str, options: &str) -> Option<Self> {
        let dir = TempDir::new().ok()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, "terrace-test"]).arg(dir.path());
        mount.output().is_ok_and(|output| output.status.success()).then_some(Self(dir))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

/// Where the state lies of servers whose files are in `dir`: in a folder on the machine's tmpfs, since it can't be on
/// a disk. Folders of directories that are gone are removed.
pub fn state_dir(dir: &Path) -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let all = Path::new(TMPFS).join(format!("terrace-e2e-{user}"));
    for old in std::fs::read_dir(&all).into_iter().flatten().flatten() {
        if !std::env::temp_dir().join(old.file_name()).exists() {
            let _ = std::fs::remove_dir_all(old.path());
        }
    }
    let path = all.join(dir.file_name().unwrap_or_default());
    let _ = std::fs::create_dir_all(&path);
    // Servers may run as another user.
    let _ = std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777));
    path
}
