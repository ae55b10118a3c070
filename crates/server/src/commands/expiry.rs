//! From a client's expiration time to a record's.

/// When a record is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// At this unix time; 0 for never, as records have it.
    At(u32),
    /// Before anybody can see it.
    Already,
}

impl Expiry {
    /// What the `exptime` of a request means at `now`.
    pub(crate) fn new(exptime: i32, now: u32) -> Self {
        terrace_protocol::expiry(exptime, now).into()
    }

    /// As [`Expiry::new`], for the binary protocol.
    pub(crate) fn unsigned(exptime: u32, now: u32) -> Self {
        terrace_protocol::expiry_unsigned(exptime, now).into()
    }
}

impl From<terrace_protocol::Expiry> for Expiry {
    fn from(expiry: terrace_protocol::Expiry) -> Self {
        match expiry {
            terrace_protocol::Expiry::Never => Self::At(0),
            terrace_protocol::Expiry::Expired => Self::Already,
            terrace_protocol::Expiry::At(time) => Self::At(time),
        }
    }
}
