//! Drives behind one narrow trait.
//!
//! A [`Device`] is a fixed range of bytes that is read and written in whole blocks. Background work
//! (sealing, reclaim, recovery) uses it directly and may block. Workers never block: they read
//! through a [`ReadQueue`] of their own, which hands batches to the kernel and reports completions.
//! **An operation owns its buffer until its completion.**

mod buffer;
mod claim;
mod depth;
mod drive;
mod error;
mod event;
mod failure;
mod file;
mod heap;
mod lane;
mod long;
mod memory;
mod open;
mod pool;
mod queue;
pub mod sim;
mod slab;
mod timed;
mod uring;
mod wear;

pub use buffer::AlignedBuf;
pub use depth::Depth;
pub use drive::{Device, Geometry, Part};
pub use error::OpenError;
pub use failure::is_unanswered;
pub use file::FileDevice;
pub use heap::give_heap_back;
pub use long::LongBuffers;
pub use memory::ALIGNMENT;
pub use open::{Engine, Opened, open_queue, open_queue_within};
pub use queue::{Done, Read, ReadQueue};
pub use timed::TimedDevice;
pub use wear::Wear;
