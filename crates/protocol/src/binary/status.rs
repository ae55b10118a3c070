//! How a request ended.

/// The status of a response, with the text that memcached sends along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok,
    /// No such record.
    NotFound,
    /// The CAS number differs, or ADD found a record.
    Exists,
    /// The value is longer than values may be.
    TooLarge,
    /// Lengths that the request must not have.
    Invalid,
    /// APPEND and PREPEND found nothing.
    NotStored,
    /// INCREMENT and DECREMENT found no number.
    NotNumeric,
    /// Wrong name or password, or none yet.
    AuthError,
    /// The SASL mechanism needs another step.
    AuthContinue,
    /// No such opcode.
    Unknown,
    /// Full, and not allowed to evict.
    OutOfMemory,
    /// Not now.
    TemporaryFailure,
}

impl Status {
    /// As a response carries it.
    pub fn code(self) -> u16 {
        match self {
            Self::Ok => 0x00,
            Self::NotFound => 0x01,
            Self::Exists => 0x02,
            Self::TooLarge => 0x03,
            Self::Invalid => 0x04,
            Self::NotStored => 0x05,
            Self::NotNumeric => 0x06,
            Self::AuthError => 0x20,
            Self::AuthContinue => 0x21,
            Self::Unknown => 0x81,
            Self::OutOfMemory => 0x82,
            Self::TemporaryFailure => 0x86,
        }
    }

    /// What the response says where it has nothing else to say.
    pub fn text(self) -> &'static str {
        match self {
            Self::Ok | Self::AuthContinue => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::Invalid => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NotNumeric => "Non-numeric server-side value for incr or decr",
            Self::AuthError => "Auth failure.",
            Self::Unknown => "Unknown command",
            Self::OutOfMemory => "Out of memory",
            Self::TemporaryFailure => "Temporary failure",
        }
    }
}
