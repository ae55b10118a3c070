//! What is exported, to which hosts, and within which limits.

use crate::medium::Medium;
use crate::note::Log;
use rustix::fs::statfs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_device::{Drive, FileDevice, OpenError};
use terrace_nvme::controller::Namespace;

/// File systems in memory, as statfs(2) numbers them: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// Bytes of a block, unless told otherwise.
pub const BLOCK_BYTES: u32 = 4096;

/// Where a namespace's blocks are.
#[derive(Clone)]
pub enum Storage {
    /// A file or block device, of which the first bytes are exported, or all.
    Path {
        /// Which.
        path: PathBuf,
        /// How many; a file that is not there must have them, and is created.
        bytes: Option<u64>,
    },
    /// A drive that is open already.
    Drive(Arc<dyn Drive>),
}

/// A namespace to export.
#[derive(Clone)]
pub struct NamespaceConfig {
    /// Identifier, 1 to FFFFFFFEh.
    pub nsid: u32,
    /// Its blocks.
    pub storage: Storage,
    /// Bytes of a block, 512 or 4096.
    pub block_bytes: u32,
    /// What identifies it for ever.
    pub nguid: [u8; 16],
    /// Whether writes are refused.
    pub read_only: bool,
}

/// An export.
#[derive(Clone)]
pub struct Config {
    /// Name of the subsystem.
    pub nqn: String,
    /// Its namespaces, each with an identifier of its own.
    pub namespaces: Vec<NamespaceConfig>,
    /// Names of the hosts that may connect; `None` for all.
    pub hosts: Option<Vec<String>>,
    /// Addresses to listen on; port 0 is any that is free.
    pub listen: Vec<SocketAddr>,
    /// Threads that serve connections, 1 to 64.
    pub threads: usize,
    /// Most connections at a time.
    pub connections_max: usize,
    /// Most connections on which no Connect has succeeded.
    pub half_open_max: usize,
    /// Most bytes of buffers of all connections.
    pub buffer_bytes_max: usize,
    /// Takes what is to be logged.
    pub log: Log,
}

impl Config {
    /// An export without namespaces on a free port of the loopback address.
    #[must_use]
    pub fn new(nqn: impl Into<String>) -> Self {
        Self {
            nqn: nqn.into(),
            namespaces: Vec::new(),
            hosts: None,
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            threads: 2,
            connections_max: 512,
            half_open_max: 32,
            buffer_bytes_max: 64 << 20,
            log: Log::default(),
        }
    }
}

/// Why nothing is served. The message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A file or device can't be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Transfers of the file or device have larger units than the namespace.
    #[error(
        "{label}: blocks of {block_bytes} bytes can't be exported, its own have {device_block_bytes}: give it those"
    )]
    BlockSize {
        /// The file or device.
        label: String,
        /// Bytes of a block that were asked for.
        block_bytes: u32,
        /// Bytes of a block that it has.
        device_block_bytes: u32,
    },
    /// An address can't be listened on.
    #[error("{address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The system has no thread, descriptor or memory to give.
    #[error("{step}: {source}")]
    System {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl NamespaceConfig {
    /// Opens it. A file or device is locked: what a file system, a running Terrace or another export has is refused.
    pub(crate) fn open(&self, log: &Log) -> Result<Medium, ExportError> {
        let (drive, is_memory): (Arc<dyn Drive>, _) = match &self.storage {
            Storage::Drive(drive) => (Arc::clone(drive), false),
            Storage::Path { path, bytes } => {
                let device = FileDevice::open(path, *bytes)?;
                device.notes().iter().for_each(|note| log.info(note.clone()));
                let in_memory = statfs(path.as_path())
                    .is_ok_and(|system| IN_MEMORY.contains(&(system.f_type as u64)));
                (Arc::new(device), in_memory)
            }
        };
        let geometry = drive.geometry();
        if geometry.block_bytes > self.block_bytes {
            return Err(ExportError::BlockSize {
                label: drive.label().to_owned(),
                block_bytes: self.block_bytes,
                device_block_bytes: geometry.block_bytes,
            });
        }
        let block_shift = self.block_bytes.trailing_zeros() as u8;
        let blocks = geometry.bytes >> block_shift;
        if blocks == 0 {
            let path = PathBuf::from(drive.label());
            return Err(OpenError::Empty { path, bytes: geometry.bytes }.into());
        }
        let Self { nsid, nguid, read_only, .. } = *self;
        let namespace = Namespace { nsid, blocks, block_shift, nguid, read_only };
        Ok(Medium::new(namespace, drive, is_memory, log.clone()))
    }
}
