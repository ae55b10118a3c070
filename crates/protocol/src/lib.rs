//! The memcached protocols: bytes in, [`Request`]s out; replies in, bytes out. No I/O, no clock, no
//! unsafe code, and no allocation but for base64 keys and for requests that are kept ([`OwnedRequest`]).
//!
//! A connection owns a [`Parser`] and shows it what it has received; the parser looks at one request
//! at a time and says how many bytes of it were taken. The data block of a storage command is not
//! touched: the connection takes it, as a whole or in pieces, and checks its end.
#![forbid(unsafe_code)]

pub mod binary;
mod classic;
mod expiry;
mod glimpse;
mod meta;
mod owned;
mod parser;
pub mod reply;
mod token;
mod walk;

pub use binary::{BinaryCommand, BinaryRequest};
pub use classic::{Admin, AdminKind, Arith, Delete, Keys, KeysKind, Store, Touch, Verb};
pub use expiry::{Expiry, expiry, expiry_unsigned};
pub use glimpse::glimpse_key;
pub use meta::{MetaCommand, MetaFlags, MetaKey, MetaMode, MetaRequest};
pub use owned::OwnedRequest;
pub use parser::{Parse, Parser, PlainGet, Protocol, Reject};
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
    /// Anything in the binary protocol; behind a store the value follows.
    Binary(BinaryRequest<'a>),
}

/// The value that follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataBlock {
    /// Length of the value.
    pub value_bytes: u32,
    /// What stands behind it.
    pub terminator: &'static [u8],
}

impl DataBlock {
    /// Length of the value and what stands behind it.
    pub fn bytes(&self) -> u64 {
        u64::from(self.value_bytes) + self.terminator.len() as u64
    }
}

impl Request<'_> {
    /// What to say when the value is not followed by its terminator.
    pub fn bad_data_block(&self) -> &'static [u8] {
        match self {
            // As memcached does, an error under `noreply` is not sent either.
            Self::Store(store) if store.noreply => b"",
            _ => reply::BAD_DATA_CHUNK,
        }
    }

    /// The value that follows, if one does.
    pub fn data_block(&self) -> Option<DataBlock> {
        let line_end = |value_bytes| DataBlock { value_bytes, terminator: b"\r\n" };
        match self {
            Self::Store(store) => Some(line_end(store.value_bytes)),
            Self::Meta(meta) => match meta.command {
                MetaCommand::Set { value_bytes } => Some(line_end(value_bytes)),
                _ => None,
            },
            Self::Binary(request) => match request.command {
                BinaryCommand::Store(binary::Store { value_bytes, .. }) => {
                    Some(DataBlock { value_bytes, terminator: b"" })
                }
                _ => None,
            },
            _ => None,
        }
    }
}
