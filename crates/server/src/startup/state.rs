//! Where the bytes lie that outlive the process (`--state`).
//!
//! The state lies in memory, on a tmpfs: a disk that dies would take the process with it, one that rots would have
//! wrong values served, and whatever is written there would wear it. The file is found again by the path of the first
//! tier, so that several servers on one machine each have their own.

use super::Failure;
use super::created::Created;
use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::settings::Settings;
use terrace_cache::{Note, OpenError, StateFile, is_in_memory};
use xxhash_rust::xxh3::xxh3_64;

/// The tmpfs that every Linux has.
const TMPFS: &str = "/dev/shm";
/// Where the kernel tells one boot from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The tmpfs is used if it has room for so many times what the cache is going to take of it at most.
const ROOM_FACTOR: u64 = 2;
/// What names of state files end in.
const EXTENSION: &str = ".state";

/// The state, and what the operator should know of it.
pub(crate) struct Chosen {
    pub(crate) file: Option<Arc<StateFile>>,
    pub(crate) path: Option<PathBuf>,
    /// See [`terrace_cache::Config::boot`].
    pub(crate) boot: [u8; 16],
    pub(crate) lines: Vec<Note>,
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
    let without = |lines| Chosen { file: None, path: None, boot, lines };
    if settings.tiers.is_empty() && settings.state_dir.is_none() {
        return Ok(without(Vec::new()));
    }
    let folder = settings.state_dir.as_deref().unwrap_or(Path::new(TMPFS));
    let failure = |path: &Path, error: io::Error| {
        Failure::system(format!("--state: {}: {error}", path.display()))
    };
    let stem = stem(settings);
    let left = left_in(folder, &stem);
    if let Some(why) =
        reason_against(folder, settings, left.is_some()).map_err(|error| failure(folder, error))?
    {
        let line = format!(
            "state: none, since {why}: only a clean stop comes back warm; write --state DIR with a \
             folder on a tmpfs that has room"
        );
        return Ok(without(vec![Note::Warning(line)]));
    }
    let (path, file) = match left {
        Some(path) => (path.clone(), open_left(&path).map_err(|error| failure(&path, error))?),
        None => make_in(folder, &stem, created).map_err(|error| failure(folder, error))?,
    };
    lock(&file).map_err(|error| failure(&path, error))?;
    let line = Note::Info(format!("state: {}", path.display()));
    let lines = [line].into_iter().chain(doubt).collect();
    let file = Some(Arc::new(StateFile::new(file, Some(path.clone()))));
    Ok(Chosen { file, path: Some(path), boot, lines })
}

/// Why there can be no state in a folder. What an earlier run left there has its room.
fn reason_against(
    folder: &Path,
    settings: &Settings,
    has_left: bool,
) -> io::Result<Option<String>> {
    let name = folder.display();
    let is_asked_for = settings.state_dir.is_some();
    match is_in_memory(folder) {
        Ok(true) => {}
        Err(error) if is_asked_for => return Err(error),
        _ => {
            let why = "is no tmpfs, and disks die and rot under a running server";
            return Ok(Some(format!("{name} {why}")));
        }
    }
    let needed = settings.memory_shares().cache / 2 * ROOM_FACTOR;
    let has_room = is_asked_for || has_left || has_room(folder, needed);
    Ok((!has_room).then(|| format!("{name} has no room for {} MiB", needed >> 20)))
}

/// What the names of the state files of these tiers begin with.
fn stem(settings: &Settings) -> String {
    let path = settings.tiers.first().map(|tier| &tier.path);
    let path = path.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    match path {
        Some(path) => format!("terrace-{:016x}", xxh3_64(path.as_os_str().as_encoded_bytes())),
        None => "terrace".to_owned(),
    }
}

/// The file that an earlier run left in a folder.
fn left_in(folder: &Path, stem: &str) -> Option<PathBuf> {
    let is_named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let middle = name.and_then(|name| name.strip_prefix(stem)?.strip_suffix(EXTENSION));
        middle.is_some_and(|middle| middle.is_empty() || middle.starts_with('.'))
    };
    let is_left = |path: &PathBuf| path.symlink_metadata().is_ok_and(|meta| is_ours(&meta));
    let paths = folder.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    // The one that every user looks for first, if there are several.
    paths.filter(is_named).filter(is_left).min_by_key(|path| path.as_os_str().len())
}

/// Opens what [`left_in`] found.
fn open_left(path: &Path) -> io::Result<File> {
    let file = options().open(path)?;
    if is_ours(&file.metadata()?) {
        Ok(file)
    } else {
        Err(io::Error::other("changed hands while it was opened"))
    }
}

/// Makes a file. Every user can write to a tmpfs, and may have taken the name before: then it gets another one.
fn make_in(folder: &Path, stem: &str, created: &mut Created) -> io::Result<(PathBuf, File)> {
    let make = |name: String, created: &mut Created| {
        let path = folder.join(name);
        let file = created.by(&path, || options().create_new(true).open(&path))?;
        io::Result::Ok((path, file))
    };
    match make(format!("{stem}{EXTENSION}"), created) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut salt = [0; 8];
            getrandom(&mut salt, GetRandomFlags::empty())?;
            make(format!("{stem}.{:016x}{EXTENSION}", u64::from_le_bytes(salt)), created)
        }
        made => made,
    }
}

/// How a state file is opened: for its owner alone, and never by way of a link.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
    options.read(true).write(true).mode(0o600).custom_flags(flags);
    options
}

/// Whether it is a file of this user, and known by this name alone.
fn is_ours(meta: &Metadata) -> bool {
    meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw() && meta.nlink() == 1
}

/// Whether a file system has so many bytes left.
fn has_room(folder: &Path, bytes: u64) -> bool {
    // One without a limit says that it has no blocks at all.
    statvfs(folder).is_ok_and(|stat| stat.f_blocks == 0 || stat.f_bavail * stat.f_frsize >= bytes)
}

/// Has the file for this process alone.
fn lock(file: &File) -> io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| io::Error::other("is used by another running server"))
}

/// The kernel's boot id. Where it can't be read, one that was never there before, so that no state of another boot is
/// taken for one of this; and a line that says so.
fn boot_id(path: &Path) -> io::Result<([u8; 16], Option<Note>)> {
    if let Some(id) = std::fs::read_to_string(path).ok().as_deref().and_then(id_of) {
        return Ok((id, None));
    }
    let mut id = [0; 16];
    getrandom(&mut id, GetRandomFlags::empty())?;
    let line =
        format!("state: not trusted after a restart, since {} can't be read", path.display());
    Ok((id, Some(Note::Warning(line))))
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
            assert!(line.is_some_and(|line| line.text().contains("not trusted")));
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

    /// What `kill -9` leaves behind is taken up again, whatever its name; what others put there is neither used nor in
    /// the way.
    #[test]
    fn the_state_is_what_this_user_left_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let at = |name: &str| folder.join(name);
        let make = || {
            let mut created = Created::default();
            let made = make_in(folder, "terrace-1", &mut created).map(|(path, _)| path);
            created.keep();
            made.unwrap()
        };
        assert_eq!(left_in(folder, "terrace-1"), None);
        let first = make();
        assert_eq!(first, at("terrace-1.state"));
        assert_eq!(left_in(folder, "terrace-1").as_ref(), Some(&first));
        assert_eq!(left_in(folder, "terrace"), None, "it is another server's");
        // Links of both kinds, and what is no file at all.
        std::fs::rename(&first, at("other")).unwrap();
        std::os::unix::fs::symlink(at("other"), &first).unwrap();
        assert_eq!(left_in(folder, "terrace-1"), None);
        std::fs::remove_file(&first).unwrap();
        std::fs::hard_link(at("other"), &first).unwrap();
        assert_eq!(left_in(folder, "terrace-1"), None);
        assert!(open_left(&first).is_err());
        std::fs::remove_file(&first).unwrap();
        std::fs::create_dir(&first).unwrap();
        assert_eq!(left_in(folder, "terrace-1"), None);
        let second = make();
        assert!(second != first, "the name was taken");
        assert_eq!(left_in(folder, "terrace-1"), Some(second.clone()));
        assert_eq!(std::fs::metadata(&second).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn one_server_at_a_time_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut created = Created::default();
        let (path, file) = make_in(dir.path(), "terrace", &mut created).unwrap();
        lock(&file).unwrap();
        assert!(lock(&open_left(&path).unwrap()).is_err());
    }
}
