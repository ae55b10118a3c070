//! A record as its readers see it, and as its writers hand it over.

use crate::Manifest;

/// A record in DRAM or in a page that was read. Valid for as long as the borrow it came from.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The client's flags.
    pub client_flags: u32,
    /// Unix time in seconds at which the record is gone; 0 for never.
    pub expires: u32,
    /// The CAS number; 0 in a cache without CAS.
    pub cas: u64,
    /// Marked stale by a meta `I` (reply flag `X`).
    pub stale: bool,
    /// The recache token was given away (reply flag `Z` for others).
    pub win_sent: bool,
    /// The value, or the encoded manifest of a large one.
    pub(crate) raw: &'a [u8],
    pub(crate) chunked: bool,
}

/// The value of a [`Record`].
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The chunks that hold it.
    Chunked(Manifest),
}

/// What to store under a key.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// The value.
    pub value: NewValue<'a>,
    /// The client's flags.
    pub client_flags: u32,
    /// Unix time in seconds at which the record is gone; 0 for never.
    pub expires: u32,
    /// The CAS number to give it; `None` takes the next.
    pub cas: Option<u64>,
    /// See [`Record::stale`].
    pub stale: bool,
    /// See [`Record::win_sent`].
    pub win_sent: bool,
}

/// The value of a [`NewRecord`].
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'a> {
    /// Two byte strings, stored one after the other (an append needs no copy of its own); together
    /// at most [`crate::Cache::inline_bytes_max`].
    Inline(&'a [u8], &'a [u8]),
    /// A large value whose chunks are already stored.
    Chunked(&'a Manifest),
}
