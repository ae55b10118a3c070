//! Who may use the server: the password file, and the two ways to show that one is in it.

pub(crate) mod ascii;
mod file;
pub(crate) mod sasl;

pub use file::{PasswordFile, PasswordFileError};

use crate::settings::Settings;
use std::sync::{PoisonError, RwLock};

/// The passwords of a running server.
pub(crate) struct Passwords {
    file: RwLock<PasswordFile>,
    /// Changes count without SIGHUP.
    is_sasl: bool,
}

impl Passwords {
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        // memcached opens the SASL file at every attempt, and that of `-Y` at SIGHUP: who takes a
        // password away must not find that it still works.
        let is_sasl = settings.sasl_passwords.is_some();
        let file = settings.ascii_passwords.as_ref().or(settings.sasl_passwords.as_ref())?;
        Some(Self { file: RwLock::new(file.clone()), is_sasl })
    }

    /// Whether there is such a user with such a password.
    pub(crate) fn admit(&self, user: &[u8], password: &[u8]) -> bool {
        if self.is_sasl && self.read(PasswordFile::has_changed) {
            // A file that can't be read now leaves the last good one in place.
            let _ = self.reload();
        }
        self.read(|file| file.admits(user, password, self.is_sasl))
    }

    /// Reads the file again; one that can't be used leaves the last good one in place. Says what came
    /// of it.
    pub(crate) fn reload(&self) -> String {
        let path = self.read(|file| file.path().to_path_buf());
        match PasswordFile::read(&path) {
            Ok(new) => {
                let text = format!("{} passwords from {}", new.len(), path.display());
                *self.file.write().unwrap_or_else(PoisonError::into_inner) = new;
                text
            }
            Err(error) => format!("the passwords stay as they were: {error}"),
        }
    }

    fn read<R>(&self, look: impl FnOnce(&PasswordFile) -> R) -> R {
        look(&self.file.read().unwrap_or_else(PoisonError::into_inner))
    }
}
