//! Where the bytes lie that outlive the process.
//!
//! The state lies in memory, on a tmpfs: a disk that dies would take the process with it, one that rots would have
//! wrong values served, and whatever is written there would wear it. Its first page names the set of tiers that it is of:
//! by that it is found again, wherever the tiers are by then, and several caches on one machine each have their own.

use crate::created::Created;
use rustix::fs::{FlockOperation, OFlags, flock, statvfs};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace_cache::{RETIRED, StateFile, StateOwner, Witness, is_in_memory};
use terrace_device::Drive;

/// The tmpfs that every Linux has.
const TMPFS: &str = "/dev/shm";
/// Where the kernel tells one boot from another.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The tmpfs is used if it has room for this multiple of what the cache takes of it at most.
const ROOM_FACTOR: u64 = 2;
/// What names of state files begin with, and end in.
const PREFIX: &str = "terrace";
const EXTENSION: &str = "state";
/// What `stat` counts blocks of a file in.
const STAT_BLOCK: u64 = 512;
/// How often a file is tried to be locked, and the pause after each.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// No orphan is named that takes no more.
const ORPHAN_BYTES: u64 = 4096;

/// For what a state is opened.
pub struct Wanted<'a> {
    /// The folder that it shall lie in, on a tmpfs; `None`: the one that every Linux has, if the cache has drives.
    pub folder: Option<&'a Path>,
    /// Bytes of DRAM that the cache may take.
    pub memory_bytes: u64,
    /// The drives of the cache.
    pub drives: &'a [Arc<dyn Drive>],
    /// Of [`terrace_cache::Config::witness`].
    pub witness: Option<&'a dyn Witness>,
}

/// The state, and what its owner should know of it.
pub struct Chosen {
    /// For [`terrace_cache::Config::state`].
    pub file: Option<Arc<StateFile>>,
    /// Where it lies.
    pub path: Option<PathBuf>,
    /// For [`terrace_cache::Config::boot`].
    pub boot: [u8; 16],
    /// Why there is none, although one is wanted.
    pub reason_against: Option<String>,
    /// [`BOOT_ID`] can't be read, so that no state is trusted after this run.
    pub is_boot_unknown: bool,
    /// States in the folder that take memory for nothing.
    pub orphans: Vec<Orphan>,
}

impl Chosen {
    /// Whether drives may name it by now. If that can't be known, they may.
    pub fn may_be_needed(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.may_be_needed().unwrap_or(true))
    }
}

/// A state can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct StateError {
    /// The folder or file.
    path: PathBuf,
    source: io::Error,
}

/// Opens and locks the state file; none for a cache without drives, unless a folder is given.
///
/// # Errors
/// The system does not let it be read or made, or another process uses it.
pub fn open(wanted: &Wanted<'_>, created: &mut Created) -> Result<Chosen, StateError> {
    let failure = |path: &Path, source| StateError { path: path.to_owned(), source };
    let known = boot_id(Path::new(BOOT_ID));
    let unknown = || random().map_err(|error| failure(Path::new(BOOT_ID), error));
    let mut chosen = Chosen {
        file: None,
        path: None,
        boot: known.map_or_else(unknown, Ok)?,
        reason_against: None,
        is_boot_unknown: known.is_none(),
        orphans: Vec::new(),
    };
    if wanted.drives.is_empty() && wanted.folder.is_none() {
        return Ok(chosen);
    }
    let folder = wanted.folder.unwrap_or(Path::new(TMPFS));
    let set = match wanted.drives.is_empty() {
        true => Some(StateOwner::NO_TIERS),
        // What can't be read here can't be read by the cache either, which says why.
        false => terrace_cache::set_of(wanted.drives, wanted.witness).unwrap_or(None),
    };
    let Found { left, orphans } = find(folder, set);
    chosen.orphans = orphans;
    let against = reason_against(folder, wanted, left.is_some());
    chosen.reason_against = against.map_err(|error| failure(folder, error))?;
    if chosen.reason_against.is_some() {
        return Ok(chosen);
    }
    let (path, file) = match left {
        Some(path) => (path.clone(), open_left(&path).map_err(|error| failure(&path, error))?),
        None => make_in(folder, created).map_err(|error| failure(folder, error))?,
    };
    lock(&file).map_err(|error| failure(&path, error))?;
    let path = named_as_used(path);
    chosen.file = Some(Arc::new(StateFile::new(file, Some(path.clone()))));
    chosen.path = Some(path);
    Ok(chosen)
}

/// Why there can be no state in a folder. What an earlier run left there has its room.
fn reason_against(
    folder: &Path,
    wanted: &Wanted<'_>,
    has_left: bool,
) -> io::Result<Option<String>> {
    let name = folder.display();
    let is_asked_for = wanted.folder.is_some();
    match is_in_memory(folder) {
        Ok(true) => {}
        Err(error) if is_asked_for => return Err(error),
        _ => {
            let why = "is no tmpfs, and disks die and rot under a running server";
            return Ok(Some(format!("{name} {why}")));
        }
    }
    let needed = wanted.memory_bytes / 2 * ROOM_FACTOR;
    let has_room = is_asked_for || has_left || has_room(folder, needed);
    Ok((!has_room).then(|| format!("{name} has no room for {} MiB", needed >> 20)))
}

/// What earlier runs left in a folder.
struct Found {
    /// The state of the set.
    left: Option<PathBuf>,
    orphans: Vec<Orphan>,
}

/// A state that no running process uses, and that is of other drives than those that are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The file.
    pub path: PathBuf,
    /// Bytes of memory that it takes.
    pub bytes: u64,
}

/// Looks through the states that this user has in a folder. Of several of one set, the one that knows the latest start is
/// its state, and a whole one before what a clean stop leaves; where two are equal in that, one is a copy, and neither
/// is believed.
fn find(folder: &Path, set: Option<u64>) -> Found {
    let mut own = Vec::new();
    let mut orphans = Vec::new();
    let entries = folder.read_dir().into_iter().flatten();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        // What can't be read is no state of ours.
        let Some(state) = Some(&path).filter(|path| is_named(path)).and_then(|p| open_left(p).ok())
        else {
            continue;
        };
        let owner = StateOwner::of(&state).ok().flatten();
        let is_whole = path.extension().is_some_and(|extension| extension == EXTENSION);
        match owner.filter(|owner| Some(owner.set) == set) {
            Some(owner) => own.push(((owner.epoch, is_whole), path)),
            None => orphans.extend(orphan(path, &state, owner)),
        }
    }
    own.sort();
    let is_copied = own.iter().rev().map(|(rank, _)| rank).take(2).is_sorted_by(|a, b| a == b);
    if own.len() > 1 && is_copied {
        own.clear();
    }
    let left = own.pop().map(|(_, path)| path);
    Found { left, orphans }
}

/// Whether a state is an orphan that is worth a line: a page is not, and a cache without tiers has nothing else.
fn orphan(path: PathBuf, state: &File, owner: Option<StateOwner>) -> Option<Orphan> {
    let bytes = state.metadata().ok()?.blocks() * STAT_BLOCK;
    let is_kept = owner.is_some_and(|owner| owner.set == StateOwner::NO_TIERS);
    let is_orphan = bytes > ORPHAN_BYTES && !is_kept && try_lock(state);
    is_orphan.then_some(Orphan { path, bytes })
}

/// Whether a file has the name of a state.
fn is_named(path: &Path) -> bool {
    let has_extension =
        path.extension().is_some_and(|extension| extension == EXTENSION || extension == RETIRED);
    let name = path.file_name().and_then(|name| name.to_str());
    has_extension && name.is_some_and(|name| name.starts_with(PREFIX))
}

/// Gives what a clean stop left the name of a state that is in use, unless another user has taken that.
fn named_as_used(path: PathBuf) -> PathBuf {
    let named = path.with_extension(EXTENSION);
    match named == path || std::fs::rename(&path, &named).is_ok() {
        true => named,
        false => path,
    }
}

/// Opens a state that an earlier run left.
fn open_left(path: &Path) -> io::Result<File> {
    let file = options().open(path)?;
    if is_ours(&file.metadata()?) {
        Ok(file)
    } else {
        Err(io::Error::other("changed hands while it was opened"))
    }
}

/// Makes a file. Every user can write to a tmpfs, and may have taken any name that could be known before.
fn make_in(folder: &Path, created: &mut Created) -> io::Result<(PathBuf, File)> {
    let mut name = [0; 8];
    getrandom(&mut name, GetRandomFlags::empty())?;
    let path = folder.join(format!("{PREFIX}-{:016x}.{EXTENSION}", u64::from_le_bytes(name)));
    let file = created.by(&path, || options().create_new(true).open(&path))?;
    Ok((path, file))
}

/// How a state file is opened: for its owner alone, and never by way of a link.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed();
    options.read(true).write(true).mode(0o600).custom_flags(flags);
    options
}

/// Whether it is a file of this user, and known by this name alone.
fn is_ours(meta: &Metadata) -> bool {
    meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw() && meta.nlink() == 1
}

/// Whether a file system has `bytes` bytes left.
fn has_room(folder: &Path, bytes: u64) -> bool {
    // One without a limit says that it has no blocks at all.
    statvfs(folder).is_ok_and(|stat| stat.f_blocks == 0 || stat.f_bavail * stat.f_frsize >= bytes)
}

/// Has the file for this process alone. Other servers that start lock it for a moment, to see whether it is an orphan.
fn lock(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_TRIES {
        if try_lock(file) {
            return Ok(());
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(io::Error::other("is used by another running server"))
}

fn try_lock(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// The kernel's boot id, where it can be read.
fn boot_id(path: &Path) -> Option<[u8; 16]> {
    std::fs::read_to_string(path).ok().as_deref().and_then(id_of)
}

/// An id that no boot had before, so that no state of another boot is taken for one of this.
fn random() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    getrandom(&mut id, GetRandomFlags::empty())?;
    Ok(id)
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
    fn a_boot_without_a_readable_id_is_like_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("boot_id");
        assert_eq!(boot_id(&path), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(boot_id(&path), None);
        assert!(random().unwrap() != random().unwrap());
        std::fs::write(&path, "00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!(boot_id(&path), Some(std::array::from_fn(|at| at as u8 * 0x11)));
    }

    /// A folder with states, and what is found there.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Leaves a state of two pages.
        fn leave(&self, name: &str, set: u64, epoch: u64) -> PathBuf {
            let path = self.at(name);
            let mut page = StateOwner { set, epoch }.page();
            page.resize(2 * page.len(), 7);
            std::fs::write(&path, page).unwrap();
            path
        }

        fn left(&self, set: u64) -> Option<PathBuf> {
            find(self.0.path(), Some(set)).left
        }

        fn orphans(&self, set: Option<u64>) -> Vec<PathBuf> {
            let found = find(self.0.path(), set).orphans;
            let mut paths: Vec<_> = found.into_iter().map(|orphan| orphan.path).collect();
            paths.sort();
            paths
        }
    }

    #[test]
    fn a_state_is_found_by_its_set_whatever_its_name() {
        let folder = Folder::new();
        let by_path = folder.leave("terrace-00ff.state", 7, 3);
        let random = folder.leave("terrace-0123.00ff.state", 8, 3);
        folder.leave("other.state", 9, 3);
        assert_eq!(
            [7, 8, 9].map(|set| folder.left(set)),
            [Some(by_path.clone()), Some(random), None]
        );
        std::fs::rename(&by_path, folder.at("terrace.state")).unwrap();
        assert_eq!(folder.left(7), Some(folder.at("terrace.state")));
    }

    #[test]
    fn the_state_of_the_latest_start_is_taken_and_of_copies_none() {
        let folder = Folder::new();
        let first = folder.leave("terrace-1.state", 7, 3);
        let second = folder.leave("terrace-2.state", 7, 4);
        let page = folder.leave("terrace-2.epoch", 7, 4);
        assert_eq!(folder.left(7), Some(second.clone()), "the whole one");
        std::fs::remove_file(second).unwrap();
        assert_eq!(folder.left(7), Some(page.clone()), "what the stop left");
        let third = folder.leave("terrace-3.epoch", 7, 4);
        assert_eq!(folder.left(7), None, "one is a copy");
        std::fs::remove_file(third).unwrap();
        std::fs::remove_file(page).unwrap();
        assert_eq!(folder.left(7), Some(first));
    }

    #[test]
    fn unused_states_of_other_sets_are_orphans() {
        let folder = Folder::new();
        let orphan = folder.leave("terrace-1.state", 7, 1);
        let running = folder.leave("terrace-2.state", 8, 1);
        folder.leave("terrace-3.state", 9, 1);
        folder.leave("terrace.state", StateOwner::NO_TIERS, 0);
        folder.leave("something.state", 10, 1);
        std::fs::write(folder.at("terrace-4.epoch"), StateOwner { set: 11, epoch: 1 }.page())
            .unwrap();
        let torn = folder.at("terrace-5.state");
        std::fs::write(&torn, [1; 20_000]).unwrap();
        let file = open_left(&running).unwrap();
        lock(&file).unwrap();
        assert_eq!(folder.orphans(Some(9)), [orphan.clone(), torn.clone()]);
        drop(file);
        let all = [orphan, running, folder.at("terrace-3.state"), torn];
        assert_eq!(folder.orphans(None), all);
    }

    #[test]
    fn what_others_put_there_is_no_state() {
        let folder = Folder::new();
        let path = folder.leave("terrace-1.state", 7, 1);
        // Links of both kinds, and what is no file at all.
        std::fs::rename(&path, folder.at("other")).unwrap();
        std::os::unix::fs::symlink(folder.at("other"), &path).unwrap();
        assert_eq!(folder.left(7), None);
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(folder.at("other"), &path).unwrap();
        assert_eq!(folder.left(7), None);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(folder.left(7), None);
        let mut created = Created::default();
        let (made, _) = make_in(folder.0.path(), &mut created).unwrap();
        assert!(is_named(&made));
        assert_eq!(std::fs::metadata(&made).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn one_process_at_a_time_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut created = Created::default();
        let (path, file) = make_in(dir.path(), &mut created).unwrap();
        lock(&file).unwrap();
        assert!(lock(&open_left(&path).unwrap()).is_err());
    }
}
