//! The controller side: what a target exports, and its end of each connection.
//!
//! Imports go down: [`Reservations`] and [`Target`] know no connection; Admin, Connect and I/O commands are executed on
//! them; the wire moves commands and data without knowing what they mean; a [`Connection`] puts these together.

mod admin;
mod connect;
mod connection;
mod io;
mod reservations;
mod slots;
mod target;
mod wire;

pub use connection::{Connection, Event};
pub use io::Operation;
pub use reservations::{Access, Change, HostId, Keys, REGISTRANTS_MAX, Reservations};
pub use slots::CommandTag;
pub use target::{Association, Export, Fence, Limits, Namespace, Target};
pub use wire::{ConnectionConfig, Placement};
