//! Protocol data units of NVMe/TCP: their formats, and what both sides do alike.
//!
//! Section numbers are those of the NVM Express TCP Transport Specification, revision 1.0. A PDU is
//!
//! ```text
//! | common header 8 | specific header | HDGST 4 | PAD | DATA | DDGST 4 |
//! '--------- HLEN bytes ------------'         ' PDO'               ' PLEN'
//! ```
//!
//! where HDGST and DDGST stand if the connection has these digests, and PAD brings DATA to the alignment that its
//! receiver asked for. A [`Receiver`] takes the bytes of one direction of a connection apart, a [`Sender`] puts those
//! of the other together. Neither copies DATA.

mod connection;
mod data;
mod digest;
mod fault;
mod header;
mod receiver;
mod sender;

pub use connection::{IcReq, IcResp};
pub use data::{DataHeader, ReadyToTransfer};
pub use digest::{Crc32c, crc32c};
pub use fault::{Ended, FatalStatus, Fault, TermReq};
pub use header::{CommonHeader, Digests, Layout, PduKind, Rules, Side};
pub(crate) use header::{LAST_PDU, SUCCESS};
pub use receiver::{Progress, Receiver};
pub use sender::{Body, DataRange, Owner, Piece, Sender};

/// Bytes of the common header of every PDU (3.6.2.1).
pub const COMMON_HEADER_BYTES: usize = 8;
/// Longest header of a PDU, ICReq and ICResp, in bytes (3.6.2.2).
pub const HEADER_BYTES_MAX: usize = 128;
/// Bytes of a header or data digest (3.3.1.1).
pub const DIGEST_BYTES: usize = 4;
/// Largest alignment of data that a side may ask for, in bytes (3.3).
pub const ALIGN_BYTES_MAX: u32 = 128;
/// Most bytes of data in an Admin or Fabrics command capsule (3.3.1).
pub const ADMIN_CAPSULE_DATA_BYTES: u32 = 8192;
/// Shortest and longest terminate request, in bytes (3.5).
pub const TERM_REQ_BYTES: std::ops::RangeInclusive<u32> = 24..=152;
/// Least MAXH2CDATA that a controller should state, in bytes (3.6.2.3).
pub const H2C_DATA_BYTES_MIN: u32 = 4096;
