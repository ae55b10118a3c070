//! Where the bytes lie that outlive the process (`--state`).
//!
//! A tmpfs is best: what is written there costs the drives nothing. The file is found again by the
//! path of the first tier, so that several servers on one machine each have their own.

use super::Failure;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::settings::Settings;
use terrace_cache::{OpenError, StateFile};
use xxhash_rust::xxh3::xxh3_64;

/// The tmpfs that every Linux has.
const TMPFS: &str = "/dev/shm";
/// The tmpfs is used if it has room for so many times what the cache is going to take of it at most.
const ROOM_FACTOR: u64 = 2;

/// The state, and what the operator should know of it.
pub(crate) struct Chosen {
    pub(crate) file: Option<Arc<StateFile>>,
    pub(crate) path: Option<PathBuf>,
    pub(crate) line: Option<String>,
}

impl Chosen {
    /// A cache could not be opened over it.
    pub(crate) fn failure(&self, error: OpenError) -> Failure {
        match (&error, &self.path) {
            (OpenError::System(source), Some(path))
                if source.kind() == io::ErrorKind::StorageFull =>
            {
                Failure::system(format!(
                    "--state: {}: the file system is full; free some, or write --state DIR with a \
                     folder that has room for what is in DRAM alone",
                    path.display()
                ))
            }
            _ => Failure::system(error),
        }
    }
}

/// Opens and locks the state file; none for a cache without tiers, unless asked for.
pub(crate) fn open(settings: &Settings) -> Result<Chosen, Failure> {
    if settings.tiers.is_empty() && settings.state_dir.is_none() {
        return Ok(Chosen { file: None, path: None, line: None });
    }
    let Some(path) = path(settings) else {
        let line =
            "state: none, so only a clean stop comes back warm; write --state DIR, best on a tmpfs";
        return Ok(Chosen { file: None, path: None, line: Some(line.into()) });
    };
    let file = open_locked(&path)
        .map_err(|error| Failure::system(format!("--state: {}: {error}", path.display())))?;
    let line = format!("state: {}", path.display());
    let file = Some(Arc::new(StateFile::new(file)));
    Ok(Chosen { file, path: Some(path), line: Some(line) })
}

fn path(settings: &Settings) -> Option<PathBuf> {
    let tier = settings.tiers.first().map(|tier| &tier.path);
    let tier = tier.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let name = match &tier {
        Some(path) => {
            format!("terrace-{:016x}.state", xxh3_64(path.as_os_str().as_encoded_bytes()))
        }
        None => "terrace.state".to_owned(),
    };
    if let Some(dir) = &settings.state_dir {
        return Some(dir.join(name));
    }
    let beside = tier.filter(|path| path.is_file());
    let beside = beside.as_deref().and_then(Path::parent).map(|dir| dir.join(&name));
    let tmpfs = Path::new(TMPFS).join(name);
    let has_room = || has_room(Path::new(TMPFS), settings.memory_bytes / 2 * ROOM_FACTOR);
    choose(tmpfs, beside, has_room)
}

/// The place where a run before left its file, whose own bytes may be what is missing there now; else the tmpfs if
/// it has room, else beside the tier.
fn choose(
    tmpfs: PathBuf,
    beside: Option<PathBuf>,
    has_room: impl FnOnce() -> bool,
) -> Option<PathBuf> {
    let places = [Some(&tmpfs), beside.as_ref()];
    let is_there = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|meta| is_ours(&meta));
    let found = places.into_iter().flatten().find(is_there).cloned();
    found.or_else(|| if has_room() { Some(tmpfs) } else { beside })
}

/// Whether it is a file, and of this user.
fn is_ours(meta: &Metadata) -> bool {
    meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw()
}

/// Whether it is a tmpfs with so many bytes left.
fn has_room(dir: &Path, bytes: u64) -> bool {
    statfs(dir).is_ok_and(|stat| {
        let free = stat.blocks_available() * u64::try_from(stat.block_size()).unwrap_or(0);
        stat.filesystem_type() == TMPFS_MAGIC && free >= bytes
    })
}

/// Opens or creates the file for this process alone. Others can write to a tmpfs too, so it must not
/// be a link, nor somebody else's.
fn open_locked(path: &Path) -> io::Result<File> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).custom_flags(flags).open(path)?;
    if !is_ours(&file.metadata()?) {
        return Err(io::Error::other("belongs to somebody else; remove it, or write --state DIR"));
    }
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(io::Error::other("is used by another running server"));
    }
    Ok(file)
}

/// The kernel's boot id; zeros where it does not tell.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> =
        text.bytes().filter_map(|b| (b as char).to_digit(16)).map(|d| d as u8).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `kill -9` leaves behind takes the room that was there before.
    #[test]
    fn the_state_is_looked_for_where_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let [tmpfs, beside] = ["tmpfs", "beside"].map(|name| dir.path().join(name));
        let choose = |has_room| choose(tmpfs.clone(), Some(beside.clone()), || has_room);
        assert_eq!([true, false].map(choose), [Some(tmpfs.clone()), Some(beside.clone())]);
        std::fs::write(&beside, "").unwrap();
        assert_eq!(choose(true).as_ref(), Some(&beside), "it is there already");
        std::fs::write(&tmpfs, "").unwrap();
        assert_eq!(choose(false).as_ref(), Some(&tmpfs), "its own bytes are what is missing");
        std::fs::remove_file(&tmpfs).unwrap();
        std::os::unix::fs::symlink(&beside, &tmpfs).unwrap();
        assert_eq!(choose(true).as_ref(), Some(&beside), "a link is nobody's state");
    }
}
