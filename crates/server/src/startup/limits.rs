//! Limits of the process: descriptors (`-c`), core dumps (`-r`), locked memory (`-k`).

use super::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace::admin;
use terrace_cache::Note;

/// Connections of the admin page where clients leave none.
const ADMIN_CONNECTIONS_MIN: u32 = 16;

/// Descriptors besides those of clients: listeners, drives, rings, event queues.
fn own_descriptors(threads: u32, tiers: usize) -> u64 {
    64 + 8 * u64::from(threads) + 2 * tiers as u64
}

/// Raises the limit of open files so that `connections` fit. Where the system allows that many and no
/// more, which is enough for memcached, the last of them may have to wait: that comes back as a warning.
pub(crate) fn allow_descriptors(
    connections: u32,
    threads: u32,
    tiers: usize,
) -> Result<Option<Note>, Failure> {
    let wanted = u64::from(connections) + own_descriptors(threads, tiers);
    if raise_descriptors(wanted) {
        return Ok(None);
    }
    let limit = getrlimit(Resource::Nofile);
    let have = limit.maximum.unwrap_or(u64::MAX);
    let most = have.saturating_sub(own_descriptors(threads, tiers));
    let advice = too_few_descriptors(connections, have, most, wanted);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match most > 0 && have >= connections.into() && setrlimit(Resource::Nofile, all).is_ok() {
        true => Ok(Some(Note::Warning(advice))),
        false => Err(Failure::system(advice)),
    }
}

/// Raises the limit of open files to `wanted`. Returns whether the system allows as many.
fn raise_descriptors(wanted: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let enough = |have: Option<u64>| have.is_none_or(|have| have >= wanted);
    let maximum = if enough(limit.maximum) { limit.maximum } else { Some(wanted) };
    enough(limit.current)
        || setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok()
}

/// Connections of the admin page: as many as it serves, or fewer where the system allows too few open files
/// besides `connections` clients. Must be called after [`allow_descriptors`].
pub(crate) fn admin_connections(connections: u32, threads: u32, tiers: usize) -> u32 {
    let others = u64::from(connections) + own_descriptors(threads, tiers);
    let wanted = others + u64::from(admin::CONNECTIONS_MAX);
    if raise_descriptors(wanted) {
        return admin::CONNECTIONS_MAX;
    }
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let have = if setrlimit(Resource::Nofile, all).is_ok() { limit.maximum } else { limit.current };
    admin_share(have.unwrap_or(u64::MAX), others)
}

/// What the admin page gets of `have` open files, of which `others` are meant for others. A few it gets always:
/// among those of the server itself some are spare.
fn admin_share(have: u64, others: u64) -> u32 {
    let share = have.saturating_sub(others);
    let share = u32::try_from(share).unwrap_or(u32::MAX);
    share.clamp(ADMIN_CONNECTIONS_MIN, admin::CONNECTIONS_MAX)
}

/// What to do where `have` open files are allowed, enough for `most` connections.
fn too_few_descriptors(connections: u32, have: u64, most: u64, wanted: u64) -> String {
    let fewer = match most {
        // Not even one client would fit.
        0 => String::new(),
        most => format!("write -c {most} or less, or "),
    };
    format!(
        "-c {connections}: the system allows {have} open files; {fewer}raise `ulimit -n` to \
         {wanted} or more"
    )
}

/// Lets a crash leave a core file as large as the system's hard limit allows.
pub(crate) fn allow_core_dumps() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Core);
    let unlimited = Rlimit { current: None, maximum: None };
    let hard = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Core, unlimited)
        .or_else(|_| setrlimit(Resource::Core, hard))
        .ok()
        .filter(|()| limit.maximum != Some(0))
        .ok_or_else(|| Failure::system("-r: core dumps are not allowed here; leave -r out"))
}

/// Asks for core dumps again: the kernel takes them from a process that has changed its user.
pub(crate) fn keep_core_dumps() -> Result<(), Failure> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::Dumpable)
        .map_err(|error| Failure::system(format!("-r: core dumps are not allowed here: {error}")))
}

/// Makes a write beyond the limit of a file's size an error like any other, as on a full disk. The
/// kernel sends a signal besides, which would end the process if nobody took it.
pub(crate) fn take_file_size_signal() -> Result<(), Failure> {
    let seen = Arc::new(AtomicBool::new(false));
    match signal_hook::flag::register(nix::libc::SIGXFSZ, seen) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::system(format!("SIGXFSZ can't be handled: {error}"))),
    }
}

/// Has SIGHUP, which asks a server to read files again, end no start: until the server obeys it, there is nothing to
/// read again.
pub(crate) fn outlive_hangup() -> Result<(), Failure> {
    match signal_hook::flag::register(nix::libc::SIGHUP, Arc::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::system(format!("SIGHUP can't be handled: {error}"))),
    }
}

/// A warning where the kernel has no huge pages to give.
pub(crate) fn without_huge_pages() -> Option<Note> {
    const SWITCH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let modes = std::fs::read_to_string(SWITCH).unwrap_or_default();
    let gives = modes.contains("[madvise]") || modes.contains("[always]");
    let warning =
        || format!("-L: no huge pages: the kernel gives none; write `madvise` to {SWITCH}");
    (!gives).then(|| Note::Warning(warning()))
}

/// Locks memory; what went wrong comes back as a warning, as in memcached.
pub(crate) fn lock_memory() -> Option<Note> {
    use rustix::mm::{MlockAllFlags, mlockall};
    let error = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).err()?;
    let warning = format!("-k: memory is not locked: {error}; raise `ulimit -l` or leave -k out");
    Some(Note::Warning(warning))
}

#[cfg(test)]
mod tests {
    use super::{admin_share, too_few_descriptors};

    #[test]
    fn admin_page_takes_what_clients_leave() {
        assert_eq!(admin_share(1024, 1096), 16);
        assert_eq!(admin_share(1500, 1096), 404);
        assert_eq!(admin_share(u64::MAX, 1096), 2000);
    }

    #[test]
    fn only_what_works_is_advised() {
        let some = too_few_descriptors(1000, 500, 404, 1096);
        assert!(some.contains("write -c 404 or less, or raise `ulimit -n` to 1096"), "{some}");
        let none = too_few_descriptors(10, 64, 0, 106);
        assert!(!none.contains("write -c") && none.contains("`ulimit -n` to 106"), "{none}");
    }
}
