//! Why there is no plan.

use std::io;

/// What was asked for contradicts itself, or can't be read.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The inputs contradict themselves; the text says what to change.
    #[error("{0}")]
    Input(String),
    /// A file can't be read.
    #[error("{path}: {error}")]
    File {
        /// Its path, as the user wrote it.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A trace can't be read.
    #[error(transparent)]
    Trace(#[from] terrace_trace::TraceError),
    /// The server that was to be asked did not answer.
    #[error("--server {address}: {why}")]
    Server {
        /// Where it should be.
        address: String,
        /// What happened, and what to do.
        why: String,
    },
}
