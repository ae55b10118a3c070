//! The host side: a queue of commands over one connection, and the steps that set a controller up.

mod discovery;
mod queue;
mod set_up;
mod slots;

pub use discovery::{DISCOVERY_ENTRIES_MAX, Discovery, DiscoveryError};
pub use queue::{Event, Placement, Queue, QueueConfig, Refused};
pub use set_up::{Controller, Login, Namespace, SetUp, SetUpConfig, SetUpError, Step};
pub use slots::{Outcome, Tag};
