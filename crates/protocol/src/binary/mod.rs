//! The binary protocol: a header of 24 bytes, then extras, key and value, all lengths told in advance.

mod header;
mod opcode;
mod parse;
pub mod reply;
mod status;

pub(crate) use header::MAGIC_REQUEST;
pub(crate) use parse::{parse, plain_get};
pub use reply::{Echo, Response};
pub use status::Status;

use crate::Verb;

/// One request, without the value that follows a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryRequest<'a> {
    /// What its responses repeat.
    pub echo: Echo,
    /// Says only what was not expected: a get its hit, all others their failure.
    pub quiet: bool,
    /// What is asked for.
    pub command: BinaryCommand<'a>,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryCommand<'a> {
    /// GET, GETK, GAT, GATK.
    Get(Get<'a>),
    /// TOUCH.
    Touch {
        /// The key.
        key: &'a [u8],
        /// As sent; see [`crate::expiry_unsigned`].
        exptime: u32,
    },
    /// SET, ADD, REPLACE, APPEND, PREPEND; the value follows.
    Store(Store<'a>),
    /// DELETE.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Only if the record has this CAS number.
        compare: Option<u64>,
    },
    /// INCREMENT, DECREMENT.
    Arith(Arith<'a>),
    /// FLUSH.
    Flush {
        /// As sent; 0 for at once.
        exptime: u32,
    },
    /// STAT.
    Stat {
        /// Which statistics; empty for the general ones.
        name: &'a [u8],
    },
    /// NOOP.
    Noop,
    /// VERSION.
    Version,
    /// QUIT.
    Quit,
    /// SASL_LIST_MECHS.
    SaslMechanisms,
    /// SASL_AUTH, SASL_STEP.
    Sasl(Sasl<'a>),
    /// Not to be carried out.
    Refused(Refused),
}

/// GET, GETK, GAT, GATK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The response repeats the key.
    pub with_key: bool,
    /// The new expiry time, as sent.
    pub touch: Option<u32>,
}

/// SET, ADD, REPLACE, APPEND, PREPEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which; never [`Verb::Cas`].
    pub verb: Verb,
    /// The key.
    pub key: &'a [u8],
    /// Client flags; 0 for APPEND and PREPEND, which have none.
    pub client_flags: u32,
    /// As sent; see [`crate::expiry_unsigned`].
    pub exptime: u32,
    /// Only if the record has this CAS number.
    pub compare: Option<u64>,
    /// Length of the value that follows.
    pub value_bytes: u32,
}

/// INCREMENT, DECREMENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arith<'a> {
    /// The key.
    pub key: &'a [u8],
    /// INCREMENT.
    pub increments: bool,
    /// By how much.
    pub delta: u64,
    /// What a missing record is created with: the number and the expiry time as sent.
    pub create: Option<(u64, u32)>,
    /// Only if the record has this CAS number.
    pub compare: Option<u64>,
}

/// SASL_AUTH, SASL_STEP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sasl<'a> {
    /// SASL_AUTH; otherwise it goes on with what was begun.
    pub begins: bool,
    /// Name of the mechanism.
    pub mechanism: &'a [u8],
    /// What the mechanism is told.
    pub data: &'a [u8],
}

/// Why a request is not carried out, and what becomes of what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The answer.
    pub status: Status,
    /// Bytes that follow and are to be dropped unread.
    pub swallow: u32,
    /// Close the connection after the answer.
    pub close: bool,
}

impl<'a> BinaryRequest<'a> {
    /// The key of a record, if the request is about one.
    pub fn key(&self) -> Option<&'a [u8]> {
        match self.command {
            BinaryCommand::Get(Get { key, .. })
            | BinaryCommand::Touch { key, .. }
            | BinaryCommand::Store(Store { key, .. })
            | BinaryCommand::Delete { key, .. }
            | BinaryCommand::Arith(Arith { key, .. }) => Some(key),
            _ => None,
        }
    }

    /// What it borrows: a key or a name, and the data of a SASL command.
    pub(crate) fn parts(&self) -> [&'a [u8]; 2] {
        match self.command {
            BinaryCommand::Stat { name } => [name, b""],
            BinaryCommand::Sasl(Sasl { mechanism, data, .. }) => [mechanism, data],
            _ => [self.key().unwrap_or_default(), b""],
        }
    }

    /// The same request with other slices in place of [`Self::parts`].
    pub(crate) fn with_parts<'b>(&self, [key, data]: [&'b [u8]; 2]) -> BinaryRequest<'b> {
        let command = match self.command {
            BinaryCommand::Get(Get { key: _, with_key, touch }) => {
                BinaryCommand::Get(Get { key, with_key, touch })
            }
            BinaryCommand::Touch { key: _, exptime } => BinaryCommand::Touch { key, exptime },
            BinaryCommand::Store(store) => {
                let Store { verb, key: _, client_flags, exptime, compare, value_bytes } = store;
                let store = Store { verb, key, client_flags, exptime, compare, value_bytes };
                BinaryCommand::Store(store)
            }
            BinaryCommand::Delete { key: _, compare } => BinaryCommand::Delete { key, compare },
            BinaryCommand::Arith(Arith { key: _, increments, delta, create, compare }) => {
                BinaryCommand::Arith(Arith { key, increments, delta, create, compare })
            }
            BinaryCommand::Flush { exptime } => BinaryCommand::Flush { exptime },
            BinaryCommand::Stat { name: _ } => BinaryCommand::Stat { name: key },
            BinaryCommand::Noop => BinaryCommand::Noop,
            BinaryCommand::Version => BinaryCommand::Version,
            BinaryCommand::Quit => BinaryCommand::Quit,
            BinaryCommand::SaslMechanisms => BinaryCommand::SaslMechanisms,
            BinaryCommand::Sasl(Sasl { begins, mechanism: _, data: _ }) => {
                BinaryCommand::Sasl(Sasl { begins, mechanism: key, data })
            }
            BinaryCommand::Refused(refused) => BinaryCommand::Refused(refused),
        };
        BinaryRequest { echo: self.echo, quiet: self.quiet, command }
    }

    /// Whether it is answered before the client has said who it is, where that is asked for. Lengths
    /// that contradict each other are found first.
    pub fn may_precede_login(&self) -> bool {
        match self.command {
            BinaryCommand::Version | BinaryCommand::SaslMechanisms | BinaryCommand::Sasl(_) => true,
            BinaryCommand::Refused(refused) => refused.close && refused.status == Status::Unknown,
            _ => false,
        }
    }
}
