//! An NVMe/TCP target: files and block devices as namespaces of a subsystem, for several hosts.
//!
//! [`Server`] has the sockets, threads and buffers; what the bytes mean is in `terrace-nvme`, how files are opened and
//! read in `terrace-device`. docs/export.md says how it is built.
//!
//! | module | what it is |
//! |---|---|
//! | `server` | start and stop, sockets that listen |
//! | `event_loop` | a thread with its connections |
//! | `link` | a connection: receives, executes, sends |
//! | `shared` | what all threads share, and the lock order |
//! | `writers` | threads for calls that may block |
//! | `config` | what is exported, and within which limits |
//! | `medium` | a namespace's file or device, and what its errors become |
//! | `buffers` | the pool of buffers |
//! | `identity` | names that are the same after a restart |
//! | `counters`, `note`, `wake` | figures, lines for the log, how a thread is woken |
//!
//! Imports go down.
#![forbid(unsafe_code)]

mod buffers;
mod config;
mod counters;
mod event_loop;
mod identity;
mod link;
mod medium;
mod note;
mod server;
mod shared;
mod wake;
mod writers;

pub use config::{BLOCK_BYTES, Config, ExportError, NamespaceConfig, Storage};
pub use counters::{NamespaceStatus, Status};
pub use identity::{NQN_BYTES_MAX, default_nguid, default_nqn, is_nqn};
pub use note::{Log, Note};
pub use server::{Server, THREADS_MAX, Unclean};
