//! The roster of the tiers outside of them (`--roster`).

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use terrace::settings::Settings;
use terrace_cache::{Note, Witness};
use terrace_runtime::roster::RosterFile;

/// Where systemd says that a service may keep its files, by a unit's `StateDirectory=`; several are divided by colons.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
/// The name of the roster there.
const NAME: &str = "roster";

/// The file that keeps the roster, and what the operator should know of it; `None` without tiers, or if there is no place
/// for it.
pub(crate) fn open(settings: &Settings) -> Option<(Arc<dyn Witness>, Note)> {
    if settings.tiers.is_empty() {
        return None;
    }
    let path = settings.roster.clone().or_else(|| by_systemd(&env::var(STATE_DIRECTORY).ok()?));
    let path = path?;
    let note = Note::Info(format!("roster: {}", path.display()));
    Some((Arc::new(RosterFile::new(&path)), note))
}

fn by_systemd(folders: &str) -> Option<PathBuf> {
    let folder = folders.split(':').next().filter(|folder| folder.starts_with('/'))?;
    Some(PathBuf::from(folder).join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roster_lies_in_the_first_folder_that_systemd_names() {
        assert_eq!(by_systemd("/var/lib/terrace"), Some("/var/lib/terrace/roster".into()));
        assert_eq!(by_systemd("/a:/b"), Some("/a/roster".into()));
        assert_eq!(by_systemd(""), None);
    }
}
