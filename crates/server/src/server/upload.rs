//! A large value on its way in: stored chunk by chunk as it arrives, published at its end.

use super::connection::{Connection, Mode, Stop};
use super::context::Context;
use super::pending::Work;
use super::slab::Id;
use crate::commands::executor::Executor;
use crate::commands::keyed;
use terrace_cache::{Manifest, NewValue, Run, Update};
use terrace_protocol::DataBlock;

/// What was stored so far.
pub(crate) struct Upload {
    key: Box<[u8]>,
    /// The request's line, as it was received.
    line: Box<[u8]>,
    run: Run,
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
        (key, line): (&[u8], &[u8]),
        block: DataBlock,
    ) -> Self {
        let item = executor.session.begin_item();
        let DataBlock { value_bytes, terminator } = block;
        let chunk_bytes = executor.chunk_bytes(value_bytes.into()) as u32;
        let run = Run { item, chunks: 0, chunk_bytes, last_bytes: 0 };
        Self { key: key.into(), line: line.into(), run, left: value_bytes.into(), terminator }
    }

    /// Stores the next chunk from the front of `input`.
    fn advance(&mut self, executor: &Executor<'_>, input: &[u8]) -> Next {
        if self.left == 0 {
            return Next::Complete;
        }
        let bytes = self.left.min(u64::from(self.run.chunk_bytes)) as usize;
        let Some(chunk) = input.get(..bytes) else { return Next::Needs(bytes) };
        let Run { item, chunks, .. } = self.run;
        match executor.session.store_chunk(item, chunks, chunk, executor.now) {
            Update::Done { .. } => {
                self.run.chunks += 1;
                self.run.last_bytes = bytes as u32;
                self.left -= bytes as u64;
                Next::Stored(bytes)
            }
            Update::Wait => Next::Wait,
            Update::Full | Update::Read(_) | Update::Recovering => Next::Full,
        }
    }

    /// Gives the room back.
    pub(crate) fn discard(&self, executor: &Executor<'_>) {
        executor.session.discard_chunks(self.run.item, self.run.chunks);
    }
}

impl Connection {
    /// Takes the next part of a large value.
    pub(super) fn process_upload(&mut self, id: Id, cx: &mut Context) -> Result<(), Stop> {
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
            Next::Full => self.refuse_upload(id, cx),
            Next::Complete => self.finish_upload(id, cx),
        }
    }

    /// Refuses a value that there is no room for, whose rest is still to come.
    pub(super) fn refuse_upload(&mut self, id: Id, cx: &mut Context) -> Result<(), Stop> {
        let Mode::Upload(upload) = std::mem::replace(&mut self.mode, Mode::Requests) else {
            return Ok(());
        };
        let key = cx.session.key(&upload.key);
        if let Err(stop) = self.refuse_line(&upload.line, key, id, cx) {
            self.mode = Mode::Upload(upload);
            return Err(stop);
        }
        upload.discard(&cx.executor());
        self.needed = 0;
        self.mode = Mode::Swallow(upload.left + upload.terminator.len() as u64);
        Ok(())
    }

    /// Checks the end of the value, and publishes it.
    fn finish_upload(&mut self, id: Id, cx: &mut Context) -> Result<(), Stop> {
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
            if let Err(stop) = self.publish(&upload, id, cx) {
                self.mode = Mode::Upload(upload);
                return Err(stop);
            }
        } else {
            upload.discard(&cx.executor());
            self.replies.append(|out| keyed::refuse_bad_block(&upload.line, out));
        }
        self.input.consume(terminator.len());
        Ok(())
    }

    fn publish(&mut self, upload: &Upload, id: Id, cx: &mut Context) -> Result<(), Stop> {
        let key = cx.session.key(&upload.key);
        let manifest = Manifest { runs: vec![upload.run] };
        self.begin(
            cx,
            id,
            (key, true),
            |executor, out| {
                let chunks = Some(NewValue::Chunked(&manifest));
                keyed::execute_bytes(executor, &upload.line, key, chunks, None, out)
            },
            || Work::request(&upload.line, Some(manifest.clone())),
        )
    }
}
