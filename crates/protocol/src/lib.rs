//! The memcached protocols: bytes in, [`Request`]s out; replies in, bytes out. No I/O, no clock, no
//! unsafe code, and no allocation but for base64 keys.
//!
//! A connection owns a [`Parser`] and shows it what it has received; the parser looks at one request
//! at a time and says how many bytes of it were taken. The data block of a storage command is not
//! touched: the connection takes it, as a whole or in pieces, and checks its end.
#![forbid(unsafe_code)]

mod classic;
mod expiry;
mod meta;
mod parser;
pub mod reply;
mod token;
mod walk;

pub use classic::{Admin, AdminKind, Arith, Delete, Keys, KeysKind, Store, Touch, Verb};
pub use expiry::{Expiry, expiry};
pub use meta::{MetaCommand, MetaFlags, MetaKey, MetaMode, MetaRequest};
pub use parser::{Parse, Parser, Reject};
pub use token::{Tokens, number_i32, number_u32, number_u64};

#[doc(hidden)]
pub use walk::walk;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// One request. Borrows from the receive buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`: some of the keys of a line, perhaps not all yet.
    Keys(Keys<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`; the data block follows.
    Store(Store<'a>),
    /// `delete`.
    Delete(Delete<'a>),
    /// `incr`, `decr`.
    Arith(Arith<'a>),
    /// `touch`.
    Touch(Touch<'a>),
    /// `mg`, `ms`, `md`, `ma`, `me`; after `ms` the data block follows.
    Meta(MetaRequest<'a>),
    /// `mn`.
    MetaNoop,
    /// What concerns the server or the connection.
    Admin(Admin<'a>),
}
