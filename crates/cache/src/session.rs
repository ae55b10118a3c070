//! What one worker thread does with the cache.

use crate::{ItemId, Key, Manifest, NewRecord, Record};
use std::io;

/// Whether a read counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Counts as a use: bumps the record, may promote it into DRAM.
    Use,
    /// Leaves no trace (meta `u`, `me`).
    Peek,
}

/// A record that was found, and what is known of its past.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// The record.
    pub record: Record<'a>,
    /// It was read before this request (meta `h`).
    pub fetched: bool,
    /// Seconds since its last use (meta `l`); on flash, since it was sealed, as far as known.
    pub idle_seconds: u32,
    /// It was answered from DRAM.
    pub from_dram: bool,
}

/// Answer of [`Session::get`].
#[derive(Debug)]
pub enum Lookup<'a> {
    /// There, in DRAM.
    Hit(Hit<'a>),
    /// Not there (or expired, see [`Session::get`]).
    Miss,
    /// A page must be read first: read [`Probe::plan`], then [`Session::check`].
    Read(Probe),
}

/// A read that the worker has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// Index into `Config::tiers`.
    pub tier: usize,
    /// Byte offset on the device.
    pub offset: u64,
    /// Bytes to read; a multiple of 4096.
    pub bytes: u32,
}

/// The flash copies that may be the wanted record, newest first, and which of them were looked at.
/// Owned by the request; holds no reference into the cache.
#[derive(Clone, Debug)]
pub struct Probe {
    pub(crate) plan: ReadPlan,
}

impl Probe {
    /// What to read next.
    pub fn plan(&self) -> ReadPlan {
        self.plan
    }
}

/// Answer of [`Session::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The bytes hold the key's record: use them as [`Evidence`], keep them alive until done.
    Match,
    /// No flash copy is the key's: use the probe as evidence of that.
    Absent,
    /// Not in this page; read [`Probe::plan`] again, it names the next.
    Read,
    /// The page was moved or reused meanwhile; start over without evidence.
    Restart,
}

/// What was found out on flash about one key.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// The probe after [`Session::check`] answered `Match` or `Absent`.
    pub probe: &'a Probe,
    /// The bytes last shown to `check`; looked at only after `Match`.
    pub bytes: &'a [u8],
}

/// What [`Session::update`]'s decision asks for.
#[derive(Debug)]
pub enum Change<'v> {
    /// Leave the record as it is.
    Keep,
    /// Remove it.
    Remove,
    /// Put this in its place.
    Store(NewRecord<'v>),
}

/// Answer of [`Session::update`] and [`Session::store_chunk`].
#[derive(Debug)]
pub enum Update {
    /// Decided and done; the CAS number of what was stored, else 0.
    Done {
        /// CAS number of the stored record.
        cas: u64,
    },
    /// Not decided: a page must be read first.
    Read(Probe),
    /// Not decided: buffers are full until background work has written some out. Try the same call
    /// again in about a millisecond.
    Wait,
    /// Refused: the cache is full and must not evict (`-M`).
    Full,
}

/// One worker's way into the cache. `Send`, but used by one thread at a time.
///
/// Records borrowed from a session stay valid until the next `&mut` call on it, which is what the
/// borrow checker enforces: memory is reused only after every session has passed such a point.
pub struct Session {
    _private: (),
}

impl Session {
    /// Hashes a client's key.
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: 0, is_chunk: false }
    }

    /// Asks the processor for the index lines of `key`; worth it for a pipeline of requests.
    pub fn prefetch(&self, key: Key<'_>) {
        let _ = key;
    }

    /// Looks `key` up at time `now` (unix seconds). Expired records are misses.
    ///
    /// `evidence` is `None` at first. After `Lookup::Read` and a `check` that answered `Match` or
    /// `Absent`, call again with it; the hit then borrows the evidence's bytes. The answer can be
    /// `Read` again when the record moved meanwhile.
    pub fn get<'a>(
        &'a self,
        key: Key<'_>,
        now: u32,
        access: Access,
        evidence: Option<Evidence<'a>>,
    ) -> Lookup<'a> {
        let _ = (key, now, access, evidence);
        Lookup::Miss
    }

    /// Looks at what was read for `probe` (or at the error that came instead: a counted miss).
    pub fn check(&self, probe: &mut Probe, key: Key<'_>, read: io::Result<&[u8]>) -> Checked {
        let _ = (probe, key, read);
        Checked::Absent
    }

    /// Decides and changes one record, atomically with respect to every other request.
    ///
    /// `decide` sees the newest unexpired record, or `None`, and says what becomes of it. It runs at
    /// most once per call, under the shard's lock: it must be short and must not call the session.
    /// When the answer is `Read` or `Wait` nothing was changed and the call is to be repeated (after
    /// `Read`, with evidence). `blind` says that `decide` doesn't look at the record (a plain `set`):
    /// then no page is read when the cache is full.
    pub fn update<'v>(
        &self,
        key: Key<'_>,
        now: u32,
        evidence: Option<Evidence<'_>>,
        blind: bool,
        decide: impl FnOnce(Option<Hit<'_>>) -> Change<'v>,
    ) -> Update {
        let _ = (key, now, evidence, blind, decide);
        Update::Done { cas: 0 }
    }

    /// A fresh name for the chunks of a large item.
    pub fn begin_item(&self) -> ItemId {
        ItemId(0)
    }

    /// Stores chunk `index` of an item (at most [`crate::Cache::inline_bytes_max`] bytes). The item
    /// appears when a record with its [`Manifest`] is stored; give up with
    /// [`Session::discard_chunks`].
    pub fn store_chunk(&self, item: ItemId, index: u32, bytes: &[u8], now: u32) -> Update {
        let _ = (item, index, bytes, now);
        Update::Done { cas: 0 }
    }

    /// The key under which a chunk is looked up with [`Session::get`] and [`Session::check`];
    /// `name` is scratch space that the key borrows.
    pub fn chunk_key<'k>(&self, item: ItemId, index: u32, name: &'k mut [u8; 12]) -> Key<'k> {
        let _ = (item, index);
        Key { bytes: name, hash: 0, is_chunk: true }
    }

    /// Whether every chunk of the item is still there (no I/O); to be asked before the reply's
    /// header is sent.
    pub fn has_chunks(&self, manifest: &Manifest) -> bool {
        let _ = manifest;
        true
    }

    /// Gives back the space of an upload that was not published.
    pub fn discard_chunks(&self, item: ItemId, chunks: u32) {
        let _ = (item, chunks);
    }

    /// Says that no record borrowed from this session is in use any more; call once per loop.
    pub fn quiesce(&mut self) {}

    /// As [`Session::quiesce`], and keeps the session from holding memory back while its thread
    /// sleeps; the next call on the session wakes it.
    pub fn park(&mut self) {}
}
