//! What the owner of an export is told, a line each.

use std::sync::Arc;

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// What was done.
    Info(String),
    /// What went wrong, its consequence, and what to do.
    Warning(String),
}

/// Takes notes, from any thread. It must not block.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(Note) + Send + Sync>);

impl Log {
    /// A log that passes notes to `take`.
    pub fn new(take: impl Fn(Note) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(crate) fn info(&self, text: String) {
        (self.0)(Note::Info(text));
    }

    pub(crate) fn warn(&self, text: String) {
        (self.0)(Note::Warning(text));
    }
}

impl Default for Log {
    /// Drops all notes.
    fn default() -> Self {
        Self::new(|_| ())
    }
}
