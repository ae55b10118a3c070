//! Requests that outlive the buffer in which they were received.

use crate::{Admin, Arith, Delete, Keys, Request, Store, Tokens, Touch};
use smallvec::SmallVec;

/// Copies up to this length need no memory of their own.
const INLINE_BYTES: usize = 64;

/// A request with copies of all that it borrows, and of its value. It never has to be parsed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRequest {
    /// The request with empty slices in place of what it borrows.
    request: Request<'static>,
    /// What it borrows, one part after the other; then the value.
    bytes: SmallVec<[u8; INLINE_BYTES]>,
    /// Length of each part. Their sum is at most the length of `bytes`.
    part_bytes: [usize; 2],
}

impl OwnedRequest {
    /// Copies `request`. `value` is what follows it, without its terminator; empty for none.
    pub fn new(request: &Request<'_>, value: &[u8]) -> Self {
        let [key, words] = request.parts();
        let part_bytes = [key.len(), words.len()];
        let mut bytes = SmallVec::with_capacity(key.len() + words.len() + value.len());
        [key, words, value].iter().for_each(|part| bytes.extend_from_slice(part));
        Self { request: request.with_parts([b"", b""]), bytes, part_bytes }
    }

    /// The request as it was parsed.
    pub fn request(&self) -> Request<'_> {
        let (key, words, _) = self.split();
        self.request.with_parts([key, words])
    }

    /// The value that followed the request.
    pub fn value(&self) -> &[u8] {
        self.split().2
    }

    /// Bytes of memory that it takes, with what it points to.
    pub fn memory(&self) -> usize {
        let decoded = match &self.request {
            Request::Meta(meta) if meta.key.is_base64() => meta.key.bytes().len(),
            _ => 0,
        };
        let copies = if self.bytes.spilled() { self.bytes.capacity() } else { 0 };
        size_of::<Self>() + copies + decoded
    }

    fn split(&self) -> (&[u8], &[u8], &[u8]) {
        let [key_bytes, words_bytes] = self.part_bytes;
        let (key, rest) = self.bytes.split_at(key_bytes);
        let (words, value) = rest.split_at(words_bytes);
        (key, words, value)
    }
}

impl<'a> Request<'a> {
    /// What it borrows: a key or a name, and the words or the data behind it.
    fn parts(&self) -> [&'a [u8]; 2] {
        match self {
            Self::Keys(keys) => [keys.first.unwrap_or_default(), keys.keys.rest()],
            Self::Store(store) => [store.key, b""],
            Self::Delete(delete) => [delete.key, b""],
            Self::Arith(arith) => [arith.key, b""],
            Self::Touch(touch) => [touch.key, b""],
            Self::Meta(meta) => [meta.key.raw, meta.flags.words()],
            Self::MetaNoop => [b"", b""],
            Self::Admin(admin) => [b"", admin.arguments.rest()],
            Self::Binary(request) => request.parts(),
        }
    }

    /// The same request with other slices in place of [`Self::parts`].
    fn with_parts<'b>(&self, [key, words]: [&'b [u8]; 2]) -> Request<'b> {
        match self {
            Self::Keys(keys) => {
                let Keys { kind, keys: _, first, is_single, is_last } = *keys;
                let first = first.map(|_| key);
                Request::Keys(Keys { kind, keys: Tokens::new(words), first, is_single, is_last })
            }
            Self::Store(store) => {
                let Store { verb, key: _, client_flags, exptime, value_bytes, noreply } = *store;
                Request::Store(Store { verb, key, client_flags, exptime, value_bytes, noreply })
            }
            Self::Delete(delete) => Request::Delete(Delete { key, noreply: delete.noreply }),
            Self::Arith(arith) => {
                let Arith { key: _, increments, delta, noreply } = *arith;
                Request::Arith(Arith { key, increments, delta, noreply })
            }
            Self::Touch(touch) => {
                let Touch { key: _, exptime, noreply } = *touch;
                Request::Touch(Touch { key, exptime, noreply })
            }
            Self::Meta(meta) => Request::Meta(meta.with_parts([key, words])),
            Self::MetaNoop => Request::MetaNoop,
            Self::Admin(admin) => {
                let Admin { kind, arguments: _, noreply } = *admin;
                Request::Admin(Admin { kind, arguments: Tokens::new(words), noreply })
            }
            Self::Binary(request) => Request::Binary(request.with_parts([key, words])),
        }
    }
}
