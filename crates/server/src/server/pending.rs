//! Operations that wait for a drive, with everything needed to go on: they refer to nothing that
//! their connection holds, and are finished even if it is gone.

use super::about::About;
use super::chunks::ChunkRead;
use super::replies::SlotId;
use super::slab::Id;
use crate::commands::executor::{Executor, Unfinished};
use crate::commands::keyed::{self, Executed, LargeValue};
use crate::commands::keys::{self, ReadKind};
use crate::stats::latency::Command;
use std::time::Instant;
use terrace_cache::{Evidence, Key, Manifest, NewValue, Probe};
use terrace_device::AlignedBuf;

/// Who is to be tried again after a while.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Operation(Id),
    Connection(Id),
}

/// What waits for a read or a retry.
pub(crate) enum Job {
    Operation(Box<Pending>),
    Chunks(Box<ChunkRead>),
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
    /// A read of one key, or of one of several.
    Key { kind: ReadKind, key: Box<[u8]> },
    /// A whole request, as it was received. A long value was left out: it stands in chunks.
    Request { key: Box<[u8]>, bytes: Box<[u8]>, chunks: Option<Manifest> },
}

/// How an operation ended. What there is to send was written to the reply.
pub(crate) enum Answer {
    Reply,
    /// The reply goes on with the chunks of a large item, and with what stands behind a value.
    Stream(Box<LargeValue>),
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
        }
    }

    /// The key that the client named.
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Self::Key { key, .. } | Self::Request { key, .. } => key,
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
        let key = executor.session.key(self.work.name());
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
        };
        Ok(match executed {
            Executed::Replied => Answer::Reply,
            Executed::Streams(large) => Answer::Stream(large),
        })
    }
}
