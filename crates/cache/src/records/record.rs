//! A record as readers see it, as writers pass it in, and as bytes.
//!
//! The bytes are the same in DRAM and on every medium (all numbers little-endian):
//!
//! ```text
//! key length u8 | flags u8 | value length u16 (u32 if WIDE) | cas u64 if CAS
//! | expires u32 if EXPIRES | client flags u32 if CLIENT_FLAGS | key | value
//! ```

use crate::records::key::Key;
use crate::records::manifest::Manifest;

const WIDE: u8 = 1 << 0;
const CAS: u8 = 1 << 1;
const EXPIRES: u8 = 1 << 2;
const CLIENT_FLAGS: u8 = 1 << 3;
const STALE: u8 = 1 << 4;
const WIN_SENT: u8 = 1 << 5;
const CHUNK: u8 = 1 << 6;
const MANIFEST: u8 = 1 << 7;

/// Bytes of a record besides key and value, at most.
pub(crate) const HEADER_BYTES_MAX: usize = 2 + 4 + 8 + 4 + 4;

/// A record in DRAM or in a page that was read. Valid for as long as the borrow it came from.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The client's flags.
    pub client_flags: u32,
    /// Unix time in seconds at which the record expires; 0 for never.
    pub expires: u32,
    /// The CAS number; 0 in a cache without CAS.
    pub cas: u64,
    /// Marked stale by a meta `I` (reply flag `X`).
    pub stale: bool,
    /// A client has the recache token (reply flag `Z` for all later ones).
    pub win_sent: bool,
    /// The value, or the encoded manifest of a large one.
    pub(super) raw: &'a [u8],
    pub(super) is_manifest: bool,
    pub(super) is_chunk: bool,
    /// Bytes of the record, header included.
    pub(super) encoded_bytes: u32,
}

/// The value of a [`Record`].
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The chunks that hold it.
    Chunked(Manifest),
}

impl<'a> Record<'a> {
    /// The value, or the encoded manifest of a large one.
    #[inline]
    pub(crate) fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Bytes of the record, header included.
    #[inline]
    pub(crate) fn encoded_bytes(&self) -> u32 {
        self.encoded_bytes
    }

    #[inline]
    pub(crate) fn is_manifest(&self) -> bool {
        self.is_manifest
    }

    #[inline]
    pub(crate) fn is_chunk(&self) -> bool {
        self.is_chunk
    }

    /// The value.
    #[inline]
    pub fn body(&self) -> Body<'a> {
        if self.is_manifest {
            Body::Chunked(Manifest::decode(self.raw))
        } else {
            Body::Inline(self.raw)
        }
    }

    /// Length of the value in bytes, the chunks of a large one added up.
    pub fn value_bytes(&self) -> u64 {
        match self.body() {
            Body::Inline(value) => value.len() as u64,
            Body::Chunked(manifest) => manifest.bytes(),
        }
    }

    pub(crate) fn is_expired(&self, now: u32) -> bool {
        self.expires != 0 && self.expires <= now
    }

    pub(crate) fn is_of(&self, key: &Key<'_>) -> bool {
        self.is_chunk == key.is_chunk && self.key == key.bytes
    }

    /// Whether the record at the front of `bytes` is the key's. Reads only its flags and key, since a lookup may have
    /// to compare several records.
    #[inline]
    pub(crate) fn is_at(bytes: &[u8], key: &Key<'_>) -> bool {
        let Some(&[key_bytes, flags]) = bytes.first_chunk() else { return false };
        let start = header_bytes(flags);
        (flags & CHUNK != 0) == key.is_chunk
            && bytes.get(start..start + usize::from(key_bytes)) == Some(key.bytes)
    }

    /// Bytes of the record at the front of `bytes`, and its key's last byte; `None` if it is cut off. Reads nothing
    /// else of it: a search in a page passes many records, and most keys differ at their ends.
    #[inline]
    pub(crate) fn outline(bytes: &[u8]) -> Option<(usize, u8)> {
        let &[key_bytes, flags, low, high] = bytes.first_chunk()?;
        let value_bytes = match flags & WIDE {
            0 => usize::from(u16::from_le_bytes([low, high])),
            _ => u32::from_le_bytes(*bytes.get(2..)?.first_chunk()?) as usize,
        };
        let key_end = header_bytes(flags) + usize::from(key_bytes);
        let taken = key_end + value_bytes;
        (taken <= bytes.len()).then(|| (taken, bytes[key_end - 1]))
    }

    /// Whether the record at the front of `bytes` is a chunk or a manifest.
    pub(crate) fn is_large_at(bytes: &[u8]) -> bool {
        bytes.get(1).is_some_and(|flags| flags & (CHUNK | MANIFEST) != 0)
    }

    /// Bytes of key and value.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.key.len() + self.raw.len()
    }

    /// Reads the record at the front of `bytes` and returns it with its length; `None` if it is cut off. Never panics,
    /// whatever the bytes are.
    #[inline]
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (&[key_bytes, flags], rest) = bytes.split_first_chunk()?;
        let (value_bytes, rest) = if flags & WIDE != 0 {
            let (n, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*n) as usize, rest)
        } else {
            let (n, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_le_bytes(*n)), rest)
        };
        let (cas, rest) = if flags & CAS != 0 {
            let (n, rest) = rest.split_first_chunk()?;
            (u64::from_le_bytes(*n), rest)
        } else {
            (0, rest)
        };
        let (expires, rest) = optional_u32(flags & EXPIRES != 0, rest)?;
        let (client_flags, rest) = optional_u32(flags & CLIENT_FLAGS != 0, rest)?;
        let (key, rest) = rest.split_at_checked(usize::from(key_bytes))?;
        let (raw, rest) = rest.split_at_checked(value_bytes)?;
        let taken = bytes.len() - rest.len();
        let record = Self {
            encoded_bytes: taken as u32,
            key,
            client_flags,
            expires,
            cas,
            stale: flags & STALE != 0,
            win_sent: flags & WIN_SENT != 0,
            raw,
            is_manifest: flags & MANIFEST != 0,
            is_chunk: flags & CHUNK != 0,
        };
        Some((record, taken))
    }
}

fn optional_u32(present: bool, bytes: &[u8]) -> Option<(u32, &[u8])> {
    if !present {
        return Some((0, bytes));
    }
    let (n, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*n), rest))
}

/// Bytes before the key.
#[inline]
fn header_bytes(flags: u8) -> usize {
    const IF_SET: [(u8, u8); 4] = [(WIDE, 2), (CAS, 8), (EXPIRES, 4), (CLIENT_FLAGS, 4)];
    const KINDS: usize = 1 << IF_SET.len();
    /// By the flags that add to it.
    const BYTES: [u8; KINDS] = {
        let mut table = [0; KINDS];
        let mut flags = 0;
        while flags < KINDS {
            let (mut bytes, mut at) = (2 + 2, 0);
            while at < IF_SET.len() {
                if flags & IF_SET[at].0 as usize != 0 {
                    bytes += IF_SET[at].1;
                }
                at += 1;
            }
            table[flags] = bytes;
            flags += 1;
        }
        table
    };
    BYTES[usize::from(flags) % KINDS].into()
}

/// What to store under a key.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// The value.
    pub value: NewValue<'a>,
    /// The client's flags.
    pub client_flags: u32,
    /// Unix time in seconds at which the record expires; 0 for never.
    pub expires: u32,
    /// The CAS number to give it; `None` takes the next.
    pub cas: Option<u64>,
    /// See [`Record::stale`].
    pub stale: bool,
    /// See [`Record::win_sent`].
    pub win_sent: bool,
}

impl<'a> NewRecord<'a> {
    /// One without client flags and marks, with the next CAS number.
    pub fn new(value: NewValue<'a>, expires: u32) -> Self {
        Self { value, client_flags: 0, expires, cas: None, stale: false, win_sent: false }
    }
}

/// The value of a [`NewRecord`].
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'a> {
    /// Two byte strings, stored one after the other (an append needs no copy of its own); together
    /// at most [`crate::Cache::inline_bytes_max`].
    Inline(&'a [u8], &'a [u8]),
    /// A large value; its chunks must be stored already.
    Chunked(&'a Manifest),
}

impl<'a> NewValue<'a> {
    pub(crate) fn manifest(&self) -> Option<&'a Manifest> {
        match self {
            NewValue::Inline(..) => None,
            NewValue::Chunked(manifest) => Some(manifest),
        }
    }
}

/// A record about to become bytes.
pub(crate) struct Encoder<'a> {
    key: &'a [u8],
    head: &'a [u8],
    tail: &'a [u8],
    flags: u8,
    cas: u64,
    expires: u32,
    client_flags: u32,
}

impl<'a> Encoder<'a> {
    /// `manifest` must be the encoded manifest if `new` is a large value. A `cas` of 0 takes no bytes.
    pub(crate) fn new(key: &Key<'a>, new: &NewRecord<'a>, manifest: &'a [u8], cas: u64) -> Self {
        let (head, tail, kind) = match new.value {
            NewValue::Inline(head, tail) => (head, tail, 0),
            NewValue::Chunked(_) => (manifest, &[][..], MANIFEST),
        };
        let set = |flag: u8, on: bool| if on { flag } else { 0 };
        let flags = kind
            | set(WIDE, head.len() + tail.len() > usize::from(u16::MAX))
            | set(CAS, cas != 0)
            | set(EXPIRES, new.expires != 0)
            | set(CLIENT_FLAGS, new.client_flags != 0)
            | set(STALE, new.stale)
            | set(WIN_SENT, new.win_sent)
            | set(CHUNK, key.is_chunk);
        let (expires, client_flags) = (new.expires, new.client_flags);
        Self { key: key.bytes, head, tail, flags, cas, expires, client_flags }
    }

    pub(crate) fn bytes(&self) -> usize {
        header_bytes(self.flags) + self.key.len() + self.head.len() + self.tail.len()
    }

    /// Fills `out`, which must be [`Encoder::bytes`] long.
    pub(crate) fn write(&self, out: &mut [u8]) {
        let value_bytes = self.head.len() + self.tail.len();
        let mut out = Cursor(out);
        // Keys are at most 250 bytes and values at most 1 GiB, by the protocol and by `Config`.
        out.put(&[self.key.len() as u8, self.flags]);
        if self.flags & WIDE != 0 {
            out.put(&(value_bytes as u32).to_le_bytes());
        } else {
            out.put(&(value_bytes as u16).to_le_bytes());
        }
        if self.flags & CAS != 0 {
            out.put(&self.cas.to_le_bytes());
        }
        if self.flags & EXPIRES != 0 {
            out.put(&self.expires.to_le_bytes());
        }
        if self.flags & CLIENT_FLAGS != 0 {
            out.put(&self.client_flags.to_le_bytes());
        }
        out.put(self.key);
        out.put(self.head);
        out.put(self.tail);
    }
}

struct Cursor<'a>(&'a mut [u8]);

impl Cursor<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (front, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        self.0 = rest;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_round_trip(
            key in prop::collection::vec(any::<u8>(), 1..=250),
            head in prop::collection::vec(any::<u8>(), 0..70_000),
            tail in prop::collection::vec(any::<u8>(), 0..30),
            (cas, expires, client_flags) in any::<(u64, u32, u32)>(),
            (stale, win_sent, is_chunk) in any::<(bool, bool, bool)>(),
        ) {
            let value = NewValue::Inline(&head, &tail);
            let new = NewRecord { value, client_flags, expires, cas: None, stale, win_sent };
            let encoder = Encoder::new(&Key { bytes: &key, hash: 0, is_chunk }, &new, &[], cas);
            let mut bytes = vec![0; encoder.bytes()];
            encoder.write(&mut bytes);
            let (record, taken) = Record::decode(&bytes).expect("whole");
            prop_assert_eq!(taken, bytes.len());
            prop_assert_eq!(record.key, &key[..]);
            prop_assert_eq!(record.raw, [head, tail].concat());
            prop_assert_eq!((record.cas, record.expires), (cas, expires));
            prop_assert_eq!(record.client_flags, client_flags);
            prop_assert_eq!((record.stale, record.win_sent), (stale, win_sent));
            prop_assert_eq!((record.is_chunk, record.is_manifest), (is_chunk, false));
            prop_assert!(Record::decode(&bytes[..bytes.len() - 1]).is_none());
            prop_assert_eq!(Record::outline(&bytes), Some((taken, key[key.len() - 1])));
            prop_assert_eq!(Record::outline(&bytes[..bytes.len() - 1]), None);
            let is_at = |key: &[u8], is_chunk| Record::is_at(&bytes, &Key { bytes: key, hash: 0, is_chunk });
            let longer = [&key[..], b"x"].concat();
            let mut other = key.clone();
            other[0] ^= 1;
            prop_assert!(!is_at(&other, is_chunk));
            prop_assert!(is_at(&key, is_chunk) && !is_at(&key, !is_chunk) && !is_at(&longer, is_chunk));
        }

        #[test]
        fn decoding_any_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let taken = Record::decode(&bytes).map(|(_, taken)| taken);
            prop_assert!(taken.is_none_or(|taken| taken <= bytes.len()));
            prop_assert_eq!(Record::outline(&bytes).map(|(taken, _)| taken), taken);
            Record::is_at(&bytes, &Key { bytes: &bytes, hash: 0, is_chunk: false });
        }
    }
}
