//! Where the bytes lie that outlive the process (`--state`).
//!
//! A tmpfs is best: what is written there costs the drives nothing. The file is found again by the
//! path of the first tier, so that several servers on one machine each have their own.

use super::Failure;
use super::created::Created;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};
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
/// Where the kernel tells one boot from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The tmpfs is used if it has room for so many times what the cache is going to take of it at most.
const ROOM_FACTOR: u64 = 2;

/// The state, and what the operator should know of it.
pub(crate) struct Chosen {
    pub(crate) file: Option<Arc<StateFile>>,
    pub(crate) path: Option<PathBuf>,
    /// See [`terrace_cache::Config::boot`].
    pub(crate) boot: [u8; 16],
    pub(crate) lines: Vec<String>,
}

impl Chosen {
    /// Whether tiers may have been told of it. If nobody knows, they may.
    pub(crate) fn may_be_needed(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.may_be_needed().unwrap_or(true))
    }

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
pub(crate) fn open(settings: &Settings, created: &mut Created) -> Result<Chosen, Failure> {
    let (boot, doubt) = boot_id(Path::new(BOOT_ID)).map_err(Failure::system)?;
    if settings.tiers.is_empty() && settings.state_dir.is_none() {
        return Ok(Chosen { file: None, path: None, boot, lines: Vec::new() });
    }
    let Some(path) = path(settings) else {
        let line =
            "state: none, so only a clean stop comes back warm; write --state DIR, best on a tmpfs";
        return Ok(Chosen { file: None, path: None, boot, lines: vec![line.into()] });
    };
    let file = created
        .by(&path, || open_locked(&path))
        .map_err(|error| Failure::system(format!("--state: {}: {error}", path.display())))?;
    let lines = [format!("state: {}", path.display())].into_iter().chain(doubt).collect();
    let file = Some(Arc::new(StateFile::new(file)));
    Ok(Chosen { file, path: Some(path), boot, lines })
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

/// The kernel's boot id. Where it can't be read, one that was never there before, so that no state of another boot is
/// taken for one of this; and a line that says so.
fn boot_id(path: &Path) -> io::Result<([u8; 16], Option<String>)> {
    if let Some(id) = std::fs::read_to_string(path).ok().as_deref().and_then(id_of) {
        return Ok((id, None));
    }
    let mut id = [0; 16];
    getrandom(&mut id, GetRandomFlags::empty())?;
    let line =
        format!("state: not trusted after a restart, since {} can't be read", path.display());
    Ok((id, Some(line)))
}

/// 32 hexadecimal digits, with dashes between them.
fn id_of(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim_end().split('-').collect();
    u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_that_can_not_be_told_is_like_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("boot_id");
        let unknown = || {
            let (id, line) = boot_id(&path).unwrap();
            assert!(line.is_some_and(|line| line.contains("not trusted")));
            id
        };
        let missing = [unknown(), unknown()];
        std::fs::write(&path, "").unwrap();
        let empty = [unknown(), unknown()];
        assert!(missing[0] != missing[1] && empty[0] != empty[1]);
        std::fs::write(&path, "00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        let known = boot_id(&path).unwrap();
        assert_eq!(known, (std::array::from_fn(|at| at as u8 * 0x11), None));
    }

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
