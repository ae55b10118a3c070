//! Who may use the server: the password file, and the two ways to show that one is in it.

pub(crate) mod ascii;
mod file;
pub(crate) mod sasl;
mod throttle;

pub use file::{PasswordFile, PasswordFileError};
pub(crate) use throttle::Throttle;

use crate::settings::Settings;
use std::sync::{Mutex, PoisonError, RwLock};
use tracing::warn;

/// The passwords of a running server.
pub(crate) struct Passwords {
    file: RwLock<PasswordFile>,
    /// Why the file could not be read again, once that was told.
    told: Mutex<Option<String>>,
    /// Changes count without SIGHUP.
    is_sasl: bool,
}

impl Passwords {
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        // memcached opens the SASL file at every attempt, and that of `-Y` at SIGHUP: who takes a
        // password away must not find that it still works.
        let is_sasl = settings.sasl_passwords.is_some();
        let file = settings.ascii_passwords.as_ref().or(settings.sasl_passwords.as_ref())?;
        Some(Self { file: RwLock::new(file.clone()), told: Mutex::default(), is_sasl })
    }

    /// Whether there is such a user with such a password.
    pub(crate) fn admit(&self, user: &[u8], password: &[u8]) -> bool {
        if self.is_sasl && self.read(PasswordFile::has_changed) {
            self.follow();
        }
        self.read(|file| file.admits(user, password, self.is_sasl))
    }

    /// Reads a file that has changed. Who took a password out of one that can't be read is to know that
    /// it still counts: that is told, and not again for each client.
    fn follow(&self) {
        let failure = self.reload().err();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = failure.as_ref().filter(|&failure| told.as_ref() != Some(failure)) {
            warn!("{failure}");
        }
        *told = failure;
    }

    /// Reads the file again; one that can't be used leaves the last good one in place. Says what came
    /// of it.
    pub(crate) fn reload(&self) -> Result<String, String> {
        let path = self.read(|file| file.path().to_path_buf());
        let new = PasswordFile::read(&path)
            .map_err(|error| format!("the passwords stay as they were: {error}"))?;
        let text = format!("{} passwords from {}", new.len(), path.display());
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(text)
    }

    fn read<R>(&self, look: impl FnOnce(&PasswordFile) -> R) -> R {
        look(&self.file.read().unwrap_or_else(PoisonError::into_inner))
    }
}
