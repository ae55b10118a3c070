//! The host side: a queue of commands over one connection, and the steps that set a controller up.

mod queue;
mod slots;

pub use queue::{Event, Placement, Queue, QueueConfig, Refused};
pub use slots::{Outcome, Tag};
