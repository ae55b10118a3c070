//! Operations that wait for a drive, with everything needed to go on: they refer to nothing that
//! their connection holds, and are finished even if it is gone.

use super::about::About;
use super::replies::SlotId;
use super::slab::Id;
use super::stream::ChunkName;
use crate::commands::executor::{Executor, Unfinished};
use crate::commands::keyed::{self, Executed, LargeValue};
use crate::commands::keys;
use crate::stats::latency::Command;
use std::time::Instant;
use terrace_cache::{Access, Body, Evidence, Key, Lookup, Manifest, NewValue, Probe, Session};
use terrace_device::AlignedBuf;
use terrace_protocol::KeysKind;

/// Who is to be tried again after a while.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Operation(Id),
    Connection(Id),
}

/// One operation.
pub(crate) struct Pending {
    pub(crate) connection: Id,
    /// Where its reply goes.
    pub(crate) slot: SlotId,
    pub(crate) work: Work,
    /// The key's hash and whether the operation may change the record: what may not overtake it.
    pub(crate) hash: u64,
    pub(crate) is_write: bool,
    /// What it counts as.
    pub(crate) command: Command,
    /// What watchers are told of it.
    pub(crate) about: About,
    pub(crate) began: Instant,
    /// What is being read; `None` before the first read.
    pub(crate) probe: Option<Probe>,
    /// What was read, while the cache has no buffers for what is to be stored.
    pub(crate) evidence: Option<AlignedBuf>,
}

/// What there is to do; an owned copy of the request.
pub(crate) enum Work {
    /// One key of a `get` (`gets`, `gat`, `gats`).
    Key { kind: KeysKind, key: Box<[u8]> },
    /// A whole request, as it was received. A long value was left out: it stands in chunks.
    Request { key: Box<[u8]>, bytes: Box<[u8]>, chunks: Option<Manifest> },
    /// One chunk of an item that is being sent.
    Chunk(ChunkName),
}

/// How an operation ended. What there is to send was written to the reply.
pub(crate) enum Answer {
    Reply,
    /// The reply goes on with the chunks of a large item, and with what stands behind a value.
    Stream(Box<LargeValue>),
    /// The reply is a chunk.
    Chunk(ChunkName),
    /// A chunk is missing: what was promised to the client can't be sent.
    Broken,
}

impl Work {
    /// A request for one key.
    pub(crate) fn request(key: Key<'_>, bytes: &[u8], chunks: Option<Manifest>) -> Self {
        Self::Request { key: key.bytes().into(), bytes: bytes.into(), chunks }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Key { key, .. } => key.len(),
            Self::Request { key, bytes, .. } => key.len() + bytes.len(),
            Self::Chunk(_) => 0,
        }
    }

    /// The key that the client named; none for a part of an item.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Key { key, .. } | Self::Request { key, .. } => Some(key),
            Self::Chunk(_) => None,
        }
    }

    /// The key that is looked up; `name` is room for that of a chunk.
    pub(crate) fn key<'k>(&'k self, session: &Session, name: &'k mut [u8; 12]) -> Key<'k> {
        match self {
            Self::Key { key, .. } => session.key(key),
            Self::Request { key, .. } => session.key(key),
            Self::Chunk(chunk) => session.chunk_key(chunk.item, chunk.index, name),
        }
    }
}

impl Pending {
    /// `(hash, is_write)`: see the fields.
    pub(crate) fn new(
        connection: Id,
        slot: SlotId,
        work: Work,
        (hash, is_write): (u64, bool),
    ) -> Self {
        Self {
            connection,
            slot,
            work,
            hash,
            is_write,
            command: Command::default(),
            about: About::default(),
            began: Instant::now(),
            probe: None,
            evidence: None,
        }
    }

    /// Does the work with what was read for it, if anything.
    pub(crate) fn execute(
        &self,
        executor: &Executor<'_>,
        bytes: Option<&[u8]>,
        reply: &mut Vec<u8>,
    ) -> Result<Answer, Unfinished> {
        let mut name = [0; 12];
        let key = self.work.key(executor.session, &mut name);
        let evidence = match (&self.probe, bytes) {
            (Some(probe), Some(bytes)) => Some(Evidence { probe, bytes }),
            _ => None,
        };
        let executed = match &self.work {
            Work::Key { kind, .. } => keys::execute(*kind, executor, key, evidence, reply)?,
            Work::Request { bytes, chunks, .. } => {
                let chunks = chunks.as_ref().map(NewValue::Chunked);
                keyed::execute_bytes(executor, bytes, key, chunks, evidence, reply)?
            }
            Work::Chunk(chunk) => return read_chunk(executor, key, *chunk, evidence, reply),
        };
        Ok(match executed {
            Executed::Replied => Answer::Reply,
            Executed::Streams(large) => Answer::Stream(large),
        })
    }
}

/// Appends a chunk to `reply`.
pub(crate) fn read_chunk(
    executor: &Executor<'_>,
    key: Key<'_>,
    chunk: ChunkName,
    evidence: Option<Evidence<'_>>,
    reply: &mut Vec<u8>,
) -> Result<Answer, Unfinished> {
    match executor.session.get(key, executor.now, Access::Use, evidence) {
        Lookup::Read(probe) => Err(Unfinished::read(probe)),
        Lookup::Miss => Ok(Answer::Broken),
        Lookup::Hit(hit) => match hit.record.body() {
            Body::Inline(bytes) if bytes.len() == chunk.bytes as usize => {
                reply.extend_from_slice(bytes);
                Ok(Answer::Chunk(chunk))
            }
            _ => Ok(Answer::Broken),
        },
    }
}
