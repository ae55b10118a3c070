//! Operations that wait for a drive, with everything needed to go on: they refer to nothing that
//! their connection holds, and are finished even if it is gone.

use super::about::About;
use super::chunks::ChunkRead;
use super::replies::SlotId;
use super::slab::Id;
use super::watch::Seen;
use crate::commands::executor::{Executor, Keyed, Unfinished};
use crate::commands::keyed::{self, Executed, LargeValue};
use crate::commands::keys::{self, ReadKind};
use crate::commands::lookup;
use crate::stats::latency::Command;
use std::time::Instant;
use terrace_cache::{Key, Manifest, NewValue, Session};
use terrace_protocol::binary::Status;
use terrace_protocol::{OwnedRequest, Request, reply};
use terrace_runtime::flash_lookup::FlashLookup;

/// Who is to be tried again after a while.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Operation(Id),
    Connection(Id),
    /// A connection whose wrong password may not be answered yet.
    Throttled(Id),
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
    /// The key that the client named.
    pub(crate) key: Vec<u8>,
    pub(crate) work: Work,
    /// The key's hash: no other operation of the connection on that key may overtake it.
    pub(crate) hash: u64,
    /// Whether it may change the record. Then it is done even if the client has gone.
    pub(crate) is_write: bool,
    /// What it counts as.
    pub(crate) command: Command,
    /// What watchers are told of it.
    pub(crate) about: About,
    pub(crate) began: Instant,
    /// What is being read, or was.
    pub(crate) lookup: FlashLookup,
}

/// What there is to do with the key; an owned copy of the request.
pub(crate) enum Work {
    /// A read of one key, or of one of several.
    Read(ReadKind),
    /// A whole request. A long value was left out: it stands in chunks.
    Request { request: Box<OwnedRequest>, chunks: Option<Manifest> },
    /// The refusal of a request without its value, which there was no room for.
    Refusal(Box<OwnedRequest>),
    /// The removal of a large item that was to be sent and has lost a chunk.
    Forget(Manifest),
}

/// How an operation ended. What there is to send was written to the reply.
pub(crate) enum Answer {
    Reply,
    /// The reply goes on with the chunks of a large item, and with what stands behind a value.
    Stream(Box<LargeValue>),
    /// The large item that the reply was to go on with is removed.
    Forgotten,
}

impl Work {
    /// A request with its value, which is empty for none.
    pub(crate) fn request(request: &Request<'_>, value: &[u8]) -> Self {
        Self::Request { request: Box::new(OwnedRequest::new(request, value)), chunks: None }
    }

    /// The refusal of a request without its value.
    pub(crate) fn refusal(request: &Request<'_>) -> Self {
        Self::Refusal(Box::new(OwnedRequest::new(request, &[])))
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Read(_) | Self::Forget(_) => 0,
            Self::Request { request, .. } | Self::Refusal(request) => request.memory(),
        }
    }
}

impl Pending {
    /// What `slot` of `connection` waits for, in the memory of one that is finished, if there is one to `spare`.
    pub(crate) fn new(
        spare: Option<Box<Self>>,
        (connection, slot): (Id, SlotId),
        (key, is_write): (Key<'_>, bool),
        work: Work,
        began: Instant,
    ) -> Box<Self> {
        let begun = |mut memory: Vec<u8>| {
            memory.clear();
            memory.extend_from_slice(key.bytes());
            Self {
                connection,
                slot,
                key: memory,
                work,
                hash: key.hash(),
                is_write,
                command: Command::default(),
                about: About::default(),
                began,
                lookup: FlashLookup::default(),
            }
        };
        match spare {
            Some(mut spare) => {
                *spare = begun(std::mem::take(&mut spare.key));
                spare
            }
            None => Box::new(begun(Vec::new())),
        }
    }

    /// The key, as it was when the operation began.
    pub(crate) fn key(&self, session: &Session) -> Key<'_> {
        session.key_of_hash(&self.key, self.hash)
    }

    /// Says that it has waited for too long for what a start has yet to bring back, and gives back what it has stored.
    pub(crate) fn refuse(&self, session: &Session, out: &mut Vec<u8>) {
        match &self.work {
            Work::Read(ReadKind::Binary(echo)) => echo.put_error(out, Status::TemporaryFailure),
            Work::Request { request, chunks } => {
                let runs = chunks.iter().flat_map(|manifest| &manifest.runs);
                runs.for_each(|run| session.discard_chunks(run.item, run.chunks));
                keyed::refuse_while_recovering(&request.request(), out);
            }
            _ => out.extend_from_slice(reply::RECOVERING),
        }
    }

    /// Whether its reply is a part of a line's.
    pub(crate) fn is_of_line(&self) -> bool {
        matches!(self.work, Work::Read(ReadKind::Classic(_)))
    }

    /// Notes what there is of the key before the work is done, see [`Self::execute`].
    pub(crate) fn look(&mut self, executor: &Executor<'_>) {
        let key = self.key(executor.session);
        self.about.seen = Seen::of(executor.session, key, executor.now, self.lookup.evidence());
    }

    /// Does the work with what was read for it, if anything.
    #[inline]
    pub(crate) fn execute(
        &self,
        executor: Executor<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Answer, Unfinished> {
        let key = self.key(executor.session);
        let on = &Keyed { executor, key, evidence: self.lookup.evidence() };
        let executed = match &self.work {
            Work::Read(kind) => keys::execute(*kind, on, reply)?,
            Work::Request { request, chunks } => {
                let inline = NewValue::Inline(request.value(), &[]);
                let value = chunks.as_ref().map_or(inline, NewValue::Chunked);
                keyed::execute(on, &request.request(), value, reply)?
            }
            Work::Refusal(request) => keyed::refuse_for_memory(on, &request.request(), reply)?,
            Work::Forget(manifest) => {
                lookup::forget(on, manifest)?;
                return Ok(Answer::Forgotten);
            }
        };
        Ok(match executed {
            Executed::Replied => Answer::Reply,
            Executed::Streams(large) => Answer::Stream(large),
        })
    }
}
