//! Commands, completions, and the data structures they carry: what NVMe means, whatever transport carries it.
//!
//! Section numbers are those of the NVM Express Base Specification 2.0, unless another document is named. Structures
//! are plain Rust values that are read from and written to the wire format, by whichever side needs the direction.

mod entry;
pub mod fabrics;
pub mod features;
pub mod identify;
pub mod log;
pub mod nvm;
pub mod reservation;
mod status;

pub use entry::{Command, Completion, DataPointer, Direction};
pub use status::Status;

/// Bytes of a submission queue entry (3.3.3.1).
pub const COMMAND_BYTES: usize = 64;
/// Bytes of a completion queue entry (3.3.3.2).
pub const COMPLETION_BYTES: usize = 16;
/// The namespace identifier that means all namespaces.
pub const NSID_ALL: u32 = u32::MAX;

/// Opcodes of Admin commands (5, figure 138).
pub mod admin_opcode {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// All Fabrics commands, on both kinds of queues.
    pub const FABRICS: u8 = 0x7f;
}

/// Opcodes of I/O commands (7, and NVM Command Set 1.0, 3.2).
pub mod io_opcode {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Reservation Register.
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    /// Reservation Report.
    pub const RESERVATION_REPORT: u8 = 0x0e;
    /// Reservation Acquire.
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    /// Reservation Release.
    pub const RESERVATION_RELEASE: u8 = 0x15;
}
