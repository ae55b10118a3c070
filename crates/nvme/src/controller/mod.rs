//! The controller side.

mod reservations;

pub use reservations::{Access, Change, HostId, Keys, REGISTRANTS_MAX, Reservations};
