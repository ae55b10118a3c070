//! What is done with one key, as a machine that is stepped until it is done: by a thread that blocks, or by a lane.

use crate::chunks::{Cursor, Upload};
use crate::flash_lookup::{FlashLookup, Next};
use crate::limits::Limits;
use std::borrow::Cow;
use std::io;
use terrace_cache::{
    Access, Body, Change, Chunks, Hit, Lookup, Manifest, NewRecord, NewValue, Pin, ReadPlan,
    Search, Session, Update,
};
use terrace_device::AlignedBuf;

/// What one step of an operation came to.
pub(crate) enum Step<T> {
    /// This must be read, and given to [`Task::take`].
    Read(ReadPlan),
    /// Buffers are full, or a start has not brought the record back yet: the next step in about a millisecond.
    Wait,
    Done(T),
}

/// What is to be done.
pub(crate) enum Want<'v> {
    Get,
    /// The value is shown, and not copied where it lies in one piece.
    Look(&'v mut dyn FnMut(&[u8])),
    Set {
        value: Cow<'v, [u8]>,
        /// Unix seconds; 0 for never.
        expires: u32,
        when: When,
    },
    Remove(When),
}

/// On what condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    /// The record has this CAS number.
    CasIs(u64),
    /// There is no record.
    Absent,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Found {
    Value {
        bytes: Vec<u8>,
        cas: u64,
    },
    /// The value was shown.
    Looked,
    Nothing,
    Stored,
    Removed,
    /// The condition did not hold; nothing was changed.
    Conflict,
    /// There is no room.
    Full,
}

/// One operation on one key.
pub(crate) struct Task<'v> {
    key: Cow<'v, [u8]>,
    hash: u64,
    want: Want<'v>,
    lookup: FlashLookup,
    /// A buffer of a read that is not needed any more.
    spare: Option<AlignedBuf>,
    stage: Stage,
}

/// How far it is.
enum Stage {
    /// At the record itself.
    Record,
    /// At the chunks of a large value.
    Loading(Box<Loading>),
    /// Chunks are being stored.
    Uploading(Upload),
    /// All chunks are stored, and the record is next.
    Publishing(Upload),
}

/// A large value on its way out.
struct Loading {
    manifest: Manifest,
    /// Keeps the chunks where they are.
    _pin: Pin,
    cas: u64,
    /// The chunk that comes next.
    next: Cursor,
    bytes: Vec<u8>,
}

impl<'v> Task<'v> {
    pub(crate) fn new(session: &Session, key: Cow<'v, [u8]>, want: Want<'v>) -> Self {
        let hash = session.key(&key).hash();
        let (lookup, spare, stage) = (FlashLookup::default(), None, Stage::Record);
        Self { key, hash, want, lookup, spare, stage }
    }

    /// The key's hash: operations on one key take effect in order.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn want(&self) -> &Want<'v> {
        &self.want
    }

    /// Goes on as far as it can. A buffer may be had from [`Task::take_spare`] then.
    pub(crate) fn step(&mut self, session: &Session, now: u32, limits: Limits) -> Step<Found> {
        let step = match &self.want {
            Want::Get | Want::Look(_) => self.get(session, now),
            Want::Set { .. } => self.set(session, now, limits),
            Want::Remove(_) => self.remove(session, now),
        };
        if let Step::Done(_) = step {
            self.end_lookup();
        }
        step
    }

    /// Takes what was read; returns what is to be read next, if that is known without another step. A buffer may be had
    /// from [`Task::take_spare`] then.
    pub(crate) fn take(
        &mut self,
        session: &Session,
        read: (AlignedBuf, io::Result<()>),
    ) -> Option<ReadPlan> {
        let mut name = [0; 12];
        let chunk = match &self.stage {
            Stage::Loading(loading) => loading.next.chunk(&loading.manifest),
            _ => None,
        };
        let key = match &chunk {
            Some(chunk) => chunk.key(session, &mut name),
            None => session.key_of_hash(&self.key, self.hash),
        };
        match self.lookup.take(session, key, read) {
            Next::Call(spare) => {
                self.spare = spare;
                None
            }
            Next::Read(plan, spare) => {
                self.spare = Some(spare);
                Some(plan)
            }
        }
    }

    /// A buffer that is not needed any more.
    pub(crate) fn take_spare(&mut self) -> Option<AlignedBuf> {
        self.spare.take()
    }

    /// Has what the session asks for read.
    fn begin(&mut self, search: Box<Search>) -> Step<Found> {
        self.end_lookup();
        Step::Read(self.lookup.begin(search))
    }

    fn end_lookup(&mut self) {
        if let Some(buffer) = self.lookup.end() {
            self.spare = Some(buffer);
        }
    }

    /// Gives back what was stored of a value that will not be published.
    pub(crate) fn abandon(&mut self, session: &Session) {
        let stage = std::mem::replace(&mut self.stage, Stage::Record);
        if let Stage::Uploading(upload) | Stage::Publishing(upload) = stage {
            upload.discard(session);
        }
    }

    fn get(&mut self, session: &Session, now: u32) -> Step<Found> {
        if let Stage::Loading(_) = &self.stage {
            return self.load(session, now);
        }
        let key = session.key_of_hash(&self.key, self.hash);
        let found = session.get(key, now, Access::Use, self.lookup.evidence());
        let (manifest, cas) = match found {
            Lookup::Read(search) => return self.begin(search),
            Lookup::Miss => return Step::Done(Found::Nothing),
            Lookup::Hit(hit) => match hit.record.body() {
                Body::Inline(bytes) => {
                    let found = match &mut self.want {
                        Want::Look(look) => {
                            look(bytes);
                            Found::Looked
                        }
                        _ => Found::Value { bytes: bytes.to_vec(), cas: hit.record.cas },
                    };
                    return Step::Done(if session.is_intact() { found } else { Found::Nothing });
                }
                Body::Chunked(manifest) => (manifest, hit.record.cas),
            },
        };
        if !session.is_intact() {
            return Step::Done(Found::Nothing);
        }
        let pin = session.pin(&manifest);
        match session.look_for_chunks(&manifest, &pin) {
            Chunks::There => {}
            Chunks::Gone => return Step::Done(Found::Nothing),
            Chunks::Recovering => return Step::Wait,
        }
        self.end_lookup();
        let bytes = Vec::with_capacity(manifest.bytes() as usize);
        let loading = Loading { manifest, _pin: pin, cas, next: Cursor::default(), bytes };
        self.stage = Stage::Loading(Box::new(loading));
        self.load(session, now)
    }

    fn load(&mut self, session: &Session, now: u32) -> Step<Found> {
        let Stage::Loading(loading) = &mut self.stage else { return Step::Done(Found::Nothing) };
        while let Some(chunk) = loading.next.chunk(&loading.manifest) {
            let mut name = [0; 12];
            let key = chunk.key(session, &mut name);
            match chunk.find(session, key, now, self.lookup.evidence()) {
                Err(search) => return self.begin(search),
                Ok(Some(bytes)) => loading.bytes.extend_from_slice(bytes),
                // It was evicted in between: the value is not whole any more.
                Ok(None) => return Step::Done(Found::Nothing),
            }
            if !session.is_intact() {
                return Step::Done(Found::Nothing);
            }
            loading.next.advance(&loading.manifest);
            self.spare = self.lookup.end().or(self.spare.take());
        }
        let bytes = std::mem::take(&mut loading.bytes);
        let cas = loading.cas;
        Step::Done(match &mut self.want {
            Want::Look(look) => {
                look(&bytes);
                Found::Looked
            }
            _ => Found::Value { bytes, cas },
        })
    }

    fn set(&mut self, session: &Session, now: u32, limits: Limits) -> Step<Found> {
        let Want::Set { value, expires, when } = &self.want else {
            return Step::Done(Found::Nothing);
        };
        if matches!(self.stage, Stage::Record) && value.len() > limits.inline_bytes_max {
            let chunk_bytes = limits.chunk_bytes(value.len() as u64);
            self.stage = Stage::Uploading(Upload::begin(session, chunk_bytes));
        }
        if let Stage::Uploading(upload) = &mut self.stage {
            match upload.store_rest(session, value, now) {
                Update::Done { .. } => self.stage = Stage::Publishing(*upload),
                Update::Wait | Update::Recovering => return Step::Wait,
                Update::Full | Update::Read(_) => {
                    self.abandon(session);
                    return Step::Done(Found::Full);
                }
            }
        }
        let manifest = match &self.stage {
            Stage::Publishing(upload) => Some(Manifest { runs: vec![upload.run()] }),
            _ => None,
        };
        let value = manifest.as_ref().map_or(NewValue::Inline(value, &[]), NewValue::Chunked);
        let new = NewRecord::new(value, *expires);
        let mut is_met = true;
        let key = session.key_of_hash(&self.key, self.hash);
        let decide = |hit: Option<Hit<'_>>| {
            is_met = when.holds(hit.as_ref());
            if is_met { Change::Store(new) } else { Change::Keep }
        };
        let blind = *when == When::Always;
        match session.update(key, now, self.lookup.evidence(), blind, decide) {
            Update::Read(search) => self.begin(search),
            Update::Wait | Update::Recovering => Step::Wait,
            Update::Done { .. } if is_met => {
                self.stage = Stage::Record;
                Step::Done(Found::Stored)
            }
            Update::Done { .. } => {
                self.abandon(session);
                Step::Done(Found::Conflict)
            }
            Update::Full => {
                self.abandon(session);
                Step::Done(Found::Full)
            }
        }
    }

    fn remove(&mut self, session: &Session, now: u32) -> Step<Found> {
        let Want::Remove(when) = &self.want else { return Step::Done(Found::Nothing) };
        let mut found = Found::Nothing;
        let key = session.key_of_hash(&self.key, self.hash);
        let decide = |hit: Option<Hit<'_>>| match hit {
            Some(_) if when.holds(hit.as_ref()) => {
                found = Found::Removed;
                Change::Remove
            }
            Some(_) => {
                found = Found::Conflict;
                Change::Keep
            }
            None => Change::Keep,
        };
        match session.update(key, now, self.lookup.evidence(), false, decide) {
            Update::Read(search) => self.begin(search),
            Update::Wait | Update::Recovering => Step::Wait,
            Update::Done { .. } => Step::Done(found),
            Update::Full => Step::Done(Found::Full),
        }
    }
}

impl When {
    fn holds(self, hit: Option<&Hit<'_>>) -> bool {
        match self {
            Self::Always => true,
            Self::CasIs(cas) => hit.is_some_and(|hit| hit.record.cas == cas),
            Self::Absent => hit.is_none(),
        }
    }
}
