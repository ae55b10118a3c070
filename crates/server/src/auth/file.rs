//! The password file: lines of `user:password`.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use subtle::{Choice, ConstantTimeEq};

/// A longer file is taken for a mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A password file, as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordFile {
    path: PathBuf,
    stamp: Stamp,
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    user: Vec<u8>,
    password: Vec<u8>,
}

/// By what a file is known to be another one than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// Why a password file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordFileError {
    /// It can't be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A line of it is no entry.
    #[error("{path}: line {line} is not user:password")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// It has no entry.
    #[error("{path}: no line of user:password in it, so no client could log in")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

impl PasswordFile {
    /// Reads a file. Empty lines count for nothing.
    pub fn read(path: &Path) -> Result<Self, PasswordFileError> {
        let failed = |error| PasswordFileError::Io { path: path.into(), error };
        // Looked at first: a change while it is read shows afterwards.
        let stamp = Stamp::of(path).map_err(failed)?;
        if stamp.bytes > FILE_BYTES_MAX {
            return Err(failed(io::Error::other("too long for a password file")));
        }
        let text = std::fs::read(path).map_err(failed)?;
        let entries = entries(&text)
            .map_err(|line| PasswordFileError::Malformed { path: path.into(), line })?;
        if entries.is_empty() {
            return Err(PasswordFileError::Empty { path: path.into() });
        }
        Ok(Self { path: path.into(), stamp, entries })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the file is another one by now, or can't be looked at.
    pub(crate) fn has_changed(&self) -> bool {
        Stamp::of(&self.path).ok() != Some(self.stamp)
    }

    /// Whether one of the entries is this one. Takes as long for a wrong name as for a wrong
    /// password, and as long for a password that is wrong at its end as for one that is wrong at its
    /// beginning; only lengths show. In a file of SASL's (`has_fields`) more fields may follow a password
    /// behind a colon, as in memcached.
    pub(crate) fn admits(&self, user: &[u8], password: &[u8], has_fields: bool) -> bool {
        let has_fields = Choice::from(u8::from(has_fields));
        let admitted = self.entries.iter().fold(Choice::from(0), |admitted, entry| {
            let has_password = entry.has_whole(password) | (entry.has_field(password) & has_fields);
            admitted | (entry.user.ct_eq(user) & has_password)
        });
        // Nor does an empty password admit where an entry has none: that would let in any client that knows a name.
        !password.is_empty() && admitted.into()
    }
}

impl Entry {
    fn has_whole(&self, password: &[u8]) -> Choice {
        self.password.ct_eq(password)
    }

    /// Whether this is what stands before a colon.
    fn has_field(&self, password: &[u8]) -> Choice {
        match self.password.get(password.len()) {
            Some(b':') => self.password[..password.len()].ct_eq(password),
            _ => Choice::from(0),
        }
    }
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        Ok(Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// The entries, or the number of a line that is none.
fn entries(text: &[u8]) -> Result<Vec<Entry>, usize> {
    let lines = text.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(at, line)| {
            let colon = line.iter().position(|&byte| byte == b':').filter(|&colon| colon > 0);
            let colon = colon.ok_or(at + 1)?;
            let (user, password) = (&line[..colon], &line[colon + 1..]);
            Ok(Entry { user: user.to_vec(), password: password.to_vec() })
        })
        .collect()
}

/// Without the passwords.
impl fmt::Debug for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PasswordFile({}, {} entries)", self.path.display(), self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> PasswordFile {
        let stamp = Stamp { inode: 0, bytes: 0, changed: (0, 0) };
        let entries = entries(text.as_bytes()).unwrap();
        PasswordFile { path: PathBuf::from("passwords"), stamp, entries }
    }

    #[test]
    fn only_what_is_in_the_file_is_admitted() {
        let file = file("alice:secret\r\n\nbob:pass:more\ncarol:");
        for (user, password) in [("alice", "secret"), ("bob", "pass"), ("bob", "pass:more")] {
            assert!(file.admits(user.as_bytes(), password.as_bytes(), true), "{user} {password}");
        }
        for (user, password) in [
            ("alice", "secre"),
            ("alice", "secret\r"),
            ("alice", "secrets"),
            ("alice", ""),
            ("alic", "secret"),
            ("bob", "secret"),
            ("bob", "pas"),
            ("bob", "pass:"),
            ("", ""),
            ("alice:secret", ""),
            // Who knows a name does not know a secret.
            ("carol", ""),
        ] {
            assert!(!file.admits(user.as_bytes(), password.as_bytes(), true), "{user} {password}");
        }
        // With the classic protocol a colon is a part of the password.
        assert!(file.admits(b"bob", b"pass:more", false) && !file.admits(b"bob", b"pass", false));
        assert!(!format!("{file:?}").contains("secret"));
    }

    #[test]
    fn a_line_without_a_user_is_told() {
        assert_eq!(entries(b"alice:a\nbob\n").err(), Some(2));
        assert_eq!(entries(b"\n:a\n").err(), Some(2));
    }
}
