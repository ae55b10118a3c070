//! What ends a run early.

use crate::Report;
use std::io;

/// Why a run could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server can't be reached.
    #[error("{address}: {error}")]
    Connect {
        /// Where it should have been.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// A connection failed.
    #[error("connection: {0}")]
    Io(#[from] io::Error),
    /// The server closed a connection with requests unanswered.
    #[error("the server closed a connection that had {0} requests in flight")]
    Closed(usize),
    /// Bytes that no reply to what was sent can begin with.
    #[error("not a reply: {0:?}")]
    Reply(String),
    /// No reply for so many seconds.
    #[error("no reply for {0} s")]
    Silence(u64),
    /// A trace can't be read.
    #[error(transparent)]
    Trace(#[from] terrace_trace::TraceError),
    /// The plan contradicts itself.
    #[error("{0}")]
    Plan(String),
    /// A run that ended early.
    #[error("{why}")]
    Early {
        /// What ended it.
        why: Box<LoadError>,
        /// What was measured until then.
        until: Box<Report>,
    },
}

impl LoadError {
    /// Whether the server is at fault, or what leads to it, and not the arguments.
    pub fn is_of_server(&self) -> bool {
        match self {
            Self::Trace(_) | Self::Plan(_) => false,
            Self::Early { why, .. } => why.is_of_server(),
            Self::Connect { .. }
            | Self::Io(_)
            | Self::Closed(_)
            | Self::Reply(_)
            | Self::Silence(_) => true,
        }
    }
}

impl From<rustix::io::Errno> for LoadError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}
