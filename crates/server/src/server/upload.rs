//! A large value on its way in: stored chunk by chunk as it arrives, published at its end.

use super::connection::{Connection, Mode, Stop};
use super::context::Context;
use super::pending::Work;
use crate::commands::executor::Executor;
use crate::commands::keyed;
use terrace_cache::{Key, Manifest, NewValue, Update};
use terrace_protocol::{DataBlock, OwnedRequest, Request};
use terrace_runtime::chunks;

/// What was stored so far.
pub(crate) struct Upload {
    key: Box<[u8]>,
    hash: u64,
    /// The request without its value.
    request: OwnedRequest,
    chunks: chunks::Upload,
    /// Bytes of the value that are not stored yet.
    left: u64,
    /// What must stand behind the value.
    terminator: &'static [u8],
}

/// What to do next.
enum Next {
    /// So many bytes of the input were stored.
    Stored(usize),
    /// So many bytes of input are needed at once.
    Needs(usize),
    /// Buffers are full; the same again in a millisecond.
    Wait,
    /// There is no room in the cache.
    Full,
    /// The value is complete; its end is to be checked.
    Complete,
}

impl Upload {
    /// `block` is the value to come.
    pub(crate) fn begin(
        executor: &Executor<'_>,
        (key, request): (Key<'_>, &Request<'_>),
        block: DataBlock,
    ) -> Self {
        let DataBlock { value_bytes, terminator } = block;
        let chunk_bytes = executor.limits.chunk_bytes(value_bytes.into());
        let chunks = chunks::Upload::begin(executor.session, chunk_bytes);
        let (hash, key) = (key.hash(), key.bytes().into());
        let request = OwnedRequest::new(request, &[]);
        Self { key, hash, request, chunks, left: value_bytes.into(), terminator }
    }

    /// Stores the next chunk from the front of `input`.
    fn advance(&mut self, executor: &Executor<'_>, input: &[u8]) -> Next {
        if self.left == 0 {
            return Next::Complete;
        }
        let bytes = self.left.min(u64::from(self.chunks.run().chunk_bytes)) as usize;
        let Some(chunk) = input.get(..bytes) else { return Next::Needs(bytes) };
        match self.chunks.store(executor.session, chunk, executor.now) {
            Update::Done { .. } => {
                self.left -= bytes as u64;
                Next::Stored(bytes)
            }
            Update::Wait => Next::Wait,
            Update::Full | Update::Read(_) | Update::Recovering => Next::Full,
        }
    }

    /// Gives the room back.
    pub(crate) fn discard(&self, executor: &Executor<'_>) {
        self.chunks.discard(executor.session);
    }
}

impl Connection {
    /// Takes the next part of a large value.
    pub(super) fn process_upload(&mut self, cx: &mut Context) -> Result<(), Stop> {
        let Mode::Upload(upload) = &mut self.mode else { return Ok(()) };
        match upload.advance(&cx.executor(), self.input.unread()) {
            Next::Stored(bytes) => {
                self.input.consume(bytes);
                Ok(())
            }
            Next::Needs(bytes) => {
                self.needed = bytes;
                Err(Stop::Starved)
            }
            Next::Wait => Err(Stop::Wait),
            Next::Full => self.refuse_upload(cx),
            Next::Complete => self.finish_upload(cx),
        }
    }

    /// Refuses a value that there is no room for, whose rest is still to come.
    pub(super) fn refuse_upload(&mut self, cx: &mut Context) -> Result<(), Stop> {
        let Mode::Upload(upload) = std::mem::replace(&mut self.mode, Mode::Requests) else {
            return Ok(());
        };
        let key = cx.session.key_of_hash(&upload.key, upload.hash);
        if let Err(stop) = self.refuse_for_memory(&upload.request.request(), key, cx) {
            self.mode = Mode::Upload(upload);
            return Err(stop);
        }
        upload.discard(&cx.executor());
        self.needed = 0;
        self.mode = Mode::Swallow(upload.left + upload.terminator.len() as u64);
        Ok(())
    }

    /// Checks the end of the value, and publishes it.
    fn finish_upload(&mut self, cx: &mut Context) -> Result<(), Stop> {
        let Mode::Upload(upload) = &self.mode else { return Ok(()) };
        let terminator = upload.terminator;
        let Some(end) = self.input.unread().get(..terminator.len()) else {
            self.needed = terminator.len();
            return Err(Stop::Starved);
        };
        let is_whole = end == terminator;
        let Mode::Upload(upload) = std::mem::replace(&mut self.mode, Mode::Requests) else {
            return Ok(());
        };
        if is_whole {
            if let Err(stop) = self.publish(&upload, cx) {
                self.mode = Mode::Upload(upload);
                return Err(stop);
            }
        } else {
            upload.discard(&cx.executor());
            let refusal = upload.request.request().bad_data_block();
            self.replies.append(|out| out.extend_from_slice(refusal));
        }
        self.input.consume(terminator.len());
        Ok(())
    }

    fn publish(&mut self, upload: &Upload, cx: &mut Context) -> Result<(), Stop> {
        let key = cx.session.key_of_hash(&upload.key, upload.hash);
        let manifest = Manifest { runs: vec![upload.chunks.run()] };
        let request = &upload.request;
        self.begin(
            cx,
            (key, true),
            |on, out| keyed::execute(on, &request.request(), NewValue::Chunked(&manifest), out),
            || Work::Request { request: Box::new(request.clone()), chunks: Some(manifest.clone()) },
        )
    }
}
