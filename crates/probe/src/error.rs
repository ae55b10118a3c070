//! Why a drive could not be measured.

use std::io;
use terrace_device::OpenError;

/// What went wrong with a drive.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It can't be connected to.
    #[error(transparent)]
    Connect(#[from] terrace_remote::OpenError),
    /// It refuses, or fails while it is measured.
    #[error("{what}: {error}")]
    Io {
        /// Its path, or what was done with it.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// The arguments contradict themselves or the drive.
    #[error("{0}")]
    Input(String),
}

impl ProbeError {
    pub(crate) fn io(what: &str) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_owned();
        |error| Self::Io { what, error }
    }
}
