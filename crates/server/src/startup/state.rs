//! The state (`--state`), and what the operator should know of it.

use super::Failure;
use std::io;
use std::path::Path;
use std::sync::Arc;
use terrace::settings::Settings;
use terrace_cache::{Note, OpenError, Witness, display_bytes};
use terrace_device::Drive;
use terrace_runtime::created::Created;
use terrace_runtime::state::{self, Chosen, Orphan, Wanted};

/// Opens and locks the state file; none for a cache without tiers, unless asked for.
pub(crate) fn open(
    settings: &Settings,
    drives: &[Arc<dyn Drive>],
    witness: Option<&dyn Witness>,
    created: &mut Created,
) -> Result<(Chosen, Vec<Note>), Failure> {
    let (folder, memory_bytes) = (settings.state_dir.as_deref(), settings.memory_shares().cache);
    let chosen = state::open(&Wanted { folder, memory_bytes, drives, witness }, created)
        .map_err(|error| Failure::system(format!("--state: {error}")))?;
    let lines = lines(&chosen);
    Ok((chosen, lines))
}

fn lines(chosen: &Chosen) -> Vec<Note> {
    let path = chosen.path.as_deref().map(|path| Note::Info(format!("state: {}", path.display())));
    let none = chosen.reason_against.as_ref().map(|why| {
        Note::Warning(format!(
            "state: none, since {why}: only a clean stop comes back warm; write --state DIR with a \
             folder on a tmpfs that has room"
        ))
    });
    let doubt = (path.is_some() && chosen.is_boot_unknown).then(|| {
        Note::Warning(format!(
            "state: not trusted after a restart, since {} can't be read",
            state::BOOT_ID
        ))
    });
    path.into_iter().chain(none).chain(doubt).chain(chosen.orphans.iter().map(note)).collect()
}

fn note(orphan: &Orphan) -> Note {
    let (path, bytes) = (orphan.path.display(), display_bytes(orphan.bytes));
    Note::Warning(format!(
        "state {path}: {bytes} of a server that does not run; unless it is to start again: rm {path}"
    ))
}

/// A cache could not be opened over the state of this path.
pub(crate) fn failure(path: Option<&Path>, error: OpenError) -> Failure {
    match (&error, path) {
        (OpenError::System(source), Some(path)) if source.kind() == io::ErrorKind::StorageFull => {
            Failure::system(format!(
                "--state: {}: the file system is full; free some, or write --state DIR with a \
                 folder that has room for what is in DRAM alone",
                path.display()
            ))
        }
        _ => Failure::system(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_an_orphan_says_how_to_remove_it() {
        let orphan = Orphan { path: "/dev/shm/terrace-1.state".into(), bytes: 8192 };
        let note = note(&orphan);
        assert!(note.text().ends_with(": rm /dev/shm/terrace-1.state"), "{}", note.text());
    }
}
