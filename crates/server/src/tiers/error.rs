//! Why `terrace tiers` did not do what it was asked for, with what to do about it.

use crate::settings::UsageError;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A settings file can't be used.
    #[error(transparent)]
    Settings(#[from] UsageError),
    /// The flags, or what they name, can't be used.
    #[error("{0}")]
    Usage(String),
    /// The server does not do it.
    #[error("{0}")]
    Refused(String),
    /// No server answers there, or another program does.
    #[error("{0}")]
    NoAnswer(String),
}

impl Error {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => 1,
            Self::Settings(_) | Self::Usage(_) => 2,
            Self::NoAnswer(_) => 3,
        }
    }
}
