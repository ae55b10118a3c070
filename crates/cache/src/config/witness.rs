//! A place for the roster of a set besides its tiers.

use std::io;

/// A durable place outside of the tiers that keeps the roster of their set: the witness. Each start of a cache looks at
/// it first and writes it first. So with it each tier is judged by itself, also one that comes alone; without it, more
/// than half of the tiers of the last run must be there.
///
/// # Examples
///
/// ```
/// use std::io;
/// use std::sync::Mutex;
/// use terrace_cache::Witness;
///
/// /// One that lives as long as the process, for tests.
/// #[derive(Default)]
/// struct InMemory(Mutex<Option<Vec<u8>>>);
///
/// impl Witness for InMemory {
///     fn read(&self) -> io::Result<Option<Vec<u8>>> {
///         Ok(self.0.lock().unwrap().clone())
///     }
///
///     fn write(&self, bytes: &[u8]) -> io::Result<()> {
///         *self.0.lock().unwrap() = Some(bytes.to_vec());
///         Ok(())
///     }
/// }
/// ```
pub trait Witness: Send + Sync {
    /// The bytes that were last written; `None` if none were.
    ///
    /// # Errors
    /// They can't be read.
    fn read(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the bytes, a few kilobytes. They must be durable when it returns, and after a crash in between there
    /// must be either the old or the new ones.
    ///
    /// # Errors
    /// They can't be written.
    fn write(&self, bytes: &[u8]) -> io::Result<()>;
}
