//! What can go wrong.

use std::io;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A drive can't be opened; the text says what to do.
    #[error(transparent)]
    Drive(#[from] crate::place::DriveError),
    /// Memory and drives do not fit, or a drive holds what this store did not write.
    #[error(transparent)]
    Cache(#[from] terrace_cache::OpenError),
    /// The file of [`Options::state`](crate::Options::state) can't be opened.
    #[error(transparent)]
    State(#[from] crate::state::StateError),
    /// The folder of [`Options::state`](crate::Options::state) can't hold a state.
    #[error("no state: {why}")]
    NoState {
        /// What is wrong with the folder.
        why: String,
    },
    /// The system has no thread, no memory or no random numbers to give.
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the system answered.
        source: io::Error,
    },
}

/// Why an operation failed. It changed nothing, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is empty, or longer than 250 bytes.
    #[error("a key has 1 to {} bytes, and this one {bytes}", Error::KEY_BYTES_MAX)]
    Key {
        /// Bytes of the key.
        bytes: usize,
    },
    /// The value is longer than [`Options::value_bytes_max`](crate::Options::value_bytes_max), or than an eighth of the
    /// capacity.
    #[error("a value has at most {most} bytes, and this one {bytes}")]
    Value {
        /// Bytes of the value.
        bytes: u64,
        /// The longest that fits.
        most: u64,
    },
    /// There is no room for the value, and none can be made: drives fail or do not answer.
    #[error("no room for the value: the drives take no writes")]
    Full,
    /// As many lanes and threads use the store as [`Options::lanes_max`](crate::Options::lanes_max) allows.
    #[error("all {most} lanes are in use")]
    TooManyLanes {
        /// As many as there may be.
        most: usize,
    },
    /// Another clone of the store, or a lane, is still there.
    #[error("another clone of the store, or a lane, is still there")]
    InUse,
    /// The process was forked since the store was opened.
    #[error("the process was forked since the store was opened: open another one here")]
    Forked,
    /// The system refused something that is not about one record. Changes that were under way may have been made.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Error {
    /// The longest key in bytes.
    pub const KEY_BYTES_MAX: usize = 250;
}
