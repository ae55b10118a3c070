//! Drives behind one narrow trait.
//!
//! A [`Drive`] is a fixed range of bytes that is read and written in whole blocks. Background work
//! (sealing, reclaim, recovery) uses it directly and may block. Workers never block: they read
//! through a [`WorkerQueue`] of their own, which hands batches to the kernel and reports completions.
//! **An operation owns its buffer until its completion.**

mod absent;
mod block_device;
mod buffer;
mod claim;
mod deadline;
mod depth;
mod drive;
mod error;
mod event;
mod failure;
mod file;
mod health;
mod heap;
mod io_thread;
mod long;
mod memory;
mod own_reads;
mod pool;
mod queue;
mod read;
mod ring;
pub mod sim;
mod slab;
mod thread_reads;
mod wear;
mod worker_queue;

pub use absent::AbsentDrive;
pub use block_device::drive_of;
pub use buffer::AlignedBuf;
pub use deadline::DeadlineDrive;
pub use depth::Depth;
pub use drive::{Drive, Geometry, Part, Reads};
pub use error::OpenError;
pub use event::Event;
pub use failure::{ErrorClass, ErrorCounts, is_unanswered, unanswered};
pub use file::FileDevice;
pub use health::{DEADLINE, Direction, Health, Monitor, READ_DEADLINE};
pub use heap::give_heap_back;
pub use long::LongBuffers;
pub use memory::ALIGNMENT;
pub use own_reads::{OpenReads, OwnReads, Waker};
pub use queue::ReadQueue;
pub use read::{Done, Late, Read, TICK, Waited, ticks};
pub use wear::Wear;
pub use worker_queue::{Engine, ReadPath, WorkerQueue};
