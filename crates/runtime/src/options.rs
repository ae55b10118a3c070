//! What a store is opened with.

use std::path::{Path, PathBuf};

/// What a [`Store`](crate::Store) is opened with. Without a drive it is a cache in DRAM.
///
/// # Examples
///
/// ```
/// use terrace_runtime::{Options, Store};
///
/// let store = Store::open(Options::new().memory(16 << 20))?;
/// assert_eq!(store.get(b"nothing")?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) memory_bytes: u64,
    pub(crate) drives: Vec<Drive>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) roster: Option<PathBuf>,
    pub(crate) value_bytes_max: u64,
    pub(crate) lanes_max: usize,
    pub(crate) background_threads: usize,
    pub(crate) is_durable: bool,
}

/// A file or block device that records go to.
#[derive(Clone, Debug)]
pub(crate) struct Drive {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Option<u64>,
    pub(crate) is_below: bool,
}

impl Options {
    /// 64 MiB of DRAM, no drive, values of at most 1 MiB, at most 64 lanes and threads, two background threads.
    pub fn new() -> Self {
        Self {
            memory_bytes: 64 << 20,
            drives: Vec::new(),
            state_dir: None,
            roster: None,
            value_bytes_max: 1 << 20,
            lanes_max: 64,
            background_threads: 2,
            is_durable: false,
        }
    }

    /// Bytes of DRAM for everything that grows with data. Drives need about 4 bytes per record, and buffers.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Adds a file, which is made if it is not there, or a block device, of which `bytes` are used. Drives are used
    /// together; what they hold is found again by the next [`Store::open`](crate::Store::open) with these drives, in any
    /// order and under any path, and with more than half of them; see [`Options::roster`].
    pub fn drive(mut self, path: impl AsRef<Path>, bytes: u64) -> Self {
        let path = path.as_ref().to_owned();
        self.drives.push(Drive { path, bytes: Some(bytes), is_below: false });
        self
    }

    /// Adds a drive below those before it: records that these have no place for any more are demoted to it.
    pub fn drive_below(mut self, path: impl AsRef<Path>, bytes: u64) -> Self {
        let path = path.as_ref().to_owned();
        self.drives.push(Drive { path, bytes: Some(bytes), is_below: true });
        self
    }

    /// Keeps what is not on the drives yet, or all there is without drives, in a file in this folder, which must be on a
    /// tmpfs, such as `/dev/shm`: the next [`Store::open`](crate::Store::open) finds it also after a crash of the
    /// process, unless the machine was restarted. Without it only a clean close comes back.
    ///
    /// A part of the file that is cut off or can't be read ends the process with SIGBUS, unless a handler of that signal
    /// calls [`terrace_cache::replace_lost`].
    pub fn state(mut self, folder: impl AsRef<Path>) -> Self {
        self.state_dir = Some(folder.as_ref().to_owned());
        self
    }

    /// Keeps in this file which drives belong together. With it each drive is found again by itself, whichever drives are
    /// missing. The file must lie in a folder that is there, and outlive a loss of power.
    pub fn roster(mut self, file: impl AsRef<Path>) -> Self {
        self.roster = Some(file.as_ref().to_owned());
        self
    }

    /// The longest value in bytes; at most an eighth of the capacity, whatever is asked for.
    pub fn value_bytes_max(mut self, bytes: u64) -> Self {
        self.value_bytes_max = bytes;
        self
    }

    /// Lanes, and threads in a blocking call, that may exist at once.
    pub fn lanes_max(mut self, lanes: usize) -> Self {
        self.lanes_max = lanes;
        self
    }

    /// Threads that share the background work, at most; a store in DRAM alone has one.
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.background_threads = threads.max(1);
        self
    }

    /// After [`Store::sync`](crate::Store::sync) no loss of power can bring back a record that was replaced or removed
    /// before, and what was written to drives comes back. Records that lie in DRAM alone are lost.
    pub fn durable(mut self, is_durable: bool) -> Self {
        self.is_durable = is_durable;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}
