//! The files that a start makes are gone again where it fails: what a wrong flag leaves behind may be as large as a
//! drive.

use std::fs;
use std::path::{Path, PathBuf};

/// The files that this start has made so far. They are removed when this is dropped.
#[derive(Default)]
pub struct Created(Vec<PathBuf>);

impl Created {
    /// Has `open` open a file, and remembers it if it was not there before.
    ///
    /// # Errors
    /// As of `open`.
    pub fn by<T, E>(&mut self, path: &Path, open: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let is_new = path.symlink_metadata().is_err();
        let opened = open()?;
        if is_new {
            self.0.push(path.to_owned());
        }
        Ok(opened)
    }

    /// The drives of these paths may name the state by now: where one of them was there before, all stays.
    pub fn keep_with_older<'p>(&mut self, mut drives: impl Iterator<Item = &'p Path>) {
        if !drives.all(|drive| self.0.iter().any(|made| made == drive)) {
            self.0.clear();
        }
    }

    /// The start went well: they stay.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        for path in &self.0 {
            // The error that led here matters more than one from tidying up.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_it_made_goes_when_a_start_fails() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new, failed] = ["old", "new", "failed"].map(|name| dir.path().join(name));
        fs::write(&old, "").unwrap();
        let open = |created: &mut Created| {
            created.by(&old, || fs::write(&old, "x")).unwrap();
            created.by(&new, || fs::write(&new, "x")).unwrap();
            created.by(&failed, || fs::read(&failed)).unwrap_err();
        };
        let mut created = Created::default();
        open(&mut created);
        drop(created);
        assert!(old.exists() && !new.exists());
        let mut created = Created::default();
        open(&mut created);
        created.keep();
        assert!(old.exists() && new.exists());
    }

    #[test]
    fn a_state_stays_where_a_drive_names_it_that_was_there_before() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new, state] = ["old", "new", "state"].map(|name| dir.path().join(name));
        fs::write(&old, "").unwrap();
        for (tiers, stays) in [(vec![&new], false), (vec![&old], true), (vec![&old, &new], true)] {
            let mut created = Created::default();
            for path in tiers.iter().copied().chain([&state]) {
                created.by(path, || fs::write(path, "x")).unwrap();
            }
            created.keep_with_older(tiers.iter().map(|path| path.as_path()));
            drop(created);
            assert_eq!(state.exists(), stays, "{tiers:?}");
            let _ = fs::remove_file(&state);
        }
    }
}
