//! What deserves a copy in DRAM, what deserves to be written to flash, and what deserves to stay
//! there. Pure decisions: no I/O, no clock, no locks. The cache acts on them, and so does the
//! laboratory (`terrace plan --policy`), which is how they are compared with other policies.
//!
//! - [`Promotion`] compares the frequency of a record that was read from flash (a [`Sketch`]) with
//!   that of the coldest copies in DRAM (a [`Heat`] each).
//! - [`WritePolicy`] says what a full tier writes and keeps; a [`Ghost`] remembers what it did not write.
//! - [`WriteBudget`] moves the write policy so that a drive lives as long as it should.
#![forbid(unsafe_code)]

mod budget;
mod ghost;
mod heat;
mod promotion;
mod sketch;
mod worth;
mod write_policy;

pub use budget::WriteBudget;
pub use ghost::{Ghost, Trace};
pub use heat::Heat;
pub use promotion::{Cut, Promotion, Untold, Weights};
pub use sketch::Sketch;
pub use write_policy::{Past, UnknownWritePolicy, WritePolicy};
