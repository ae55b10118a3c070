//! A client with some operations under way at a time, and the session that serves it.

use crate::context::Context;
use crate::operation::{Kind, Operation, Scratch, decide};
use crate::oracle::{Content, State, Version};
use std::rc::Rc;
use std::sync::Arc;
use terrace_cache::{
    Access, Body, Cache, Change, Chunks, Key, Lookup, Manifest, Pin, ReadPlan, Run, Search,
    Session, Update,
};
use terrace_device::sim::SimQueue;
use terrace_device::{AlignedBuf, Done, Drive, Read, ReadQueue};
use terrace_runtime::chunks::{Chunk, Cursor, Upload};
use terrace_runtime::flash_lookup::{FlashLookup, Next};

/// A hung read comes back after so many steps at most.
const HANG_STEPS: u64 = 400;
/// An operation that waits so many times, with background work in between, waits for ever.
const WAITS_MAX: u32 = 20_000;

pub(crate) struct Connection {
    session: Session,
    queue: SimQueue,
    /// The token of a read is the place of its operation.
    works: Vec<Option<Work>>,
    /// Reads that hang, and until which step.
    hung: Vec<(u64, Done)>,
    /// Changes that were not acknowledged, with their numbers.
    unacknowledged: Vec<(u32, u64)>,
}

/// An operation under way.
struct Work {
    operation: Operation,
    phase: Phase,
    lookup: FlashLookup,
    /// There was no room.
    waits: u32,
    is_reading: bool,
    /// How often everything had been flushed when it began.
    flushes: u64,
}

enum Phase {
    /// Chunks are stored before their manifest.
    Upload(Upload),
    Main(Option<Manifest>),
    /// Chunks are read behind their manifest.
    Chunks(Box<Download>),
}

struct Download {
    version: Rc<Version>,
    _pin: Pin,
    next: Cursor,
    /// Bytes that were compared.
    offset: usize,
}

/// How far an operation came.
enum Progress {
    Finished,
    /// The next phase begins.
    GoesOn,
    Reads(Box<Search>),
    Waits,
    /// The crash came within.
    Crashed,
}

pub(crate) fn key_bytes(key: u32) -> [u8; 8] {
    let mut bytes = *b"k0000000";
    let mut rest = key;
    for byte in bytes[1..].iter_mut().rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}

impl Connection {
    pub(crate) fn open(cache: &Arc<Cache>, cx: &mut Context) -> std::io::Result<Self> {
        let devices = cx.devices.iter().map(|device| Arc::clone(device) as Arc<dyn Drive>);
        let devices: Vec<_> = devices.collect();
        Ok(Self {
            session: cache.session(),
            queue: SimQueue::new(&devices, cx.random.next())?,
            works: (0..cx.scenario.depth).map(|_| None).collect(),
            hung: Vec::new(),
            unacknowledged: Vec::new(),
        })
    }

    /// Reads from one more drive, with the next number.
    pub(crate) fn attach(&mut self, device: Arc<dyn Drive>) {
        self.queue.attach(device).expect("a simulated queue takes any");
    }

    /// Nothing is borrowed, and nothing is done for a while.
    pub(crate) fn park(&mut self) {
        self.session.park();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.works.iter().all(Option::is_none)
    }

    /// One turn of the worker: what was read, what waits, and `begin` new operations.
    pub(crate) fn turn(&mut self, cx: &mut Context, begin: usize) {
        self.session.quiesce();
        let mut done = Vec::new();
        self.queue.reap(&mut done);
        if cx.scenario.trouble.hangs {
            self.hang_some(&mut done, cx);
        }
        for done in done {
            self.take(done, cx);
            if self.must_stop(cx) {
                return;
            }
        }
        for at in 0..self.works.len() {
            let waits = self.works[at].as_ref().is_some_and(|w| !w.is_reading && w.waits > 0);
            if waits && cx.random.percent(70) {
                self.advance(at, cx);
            }
            if self.must_stop(cx) {
                return;
            }
        }
        for _ in 0..begin {
            let Some(at) = self.works.iter().position(Option::is_none) else { break };
            let operation = Operation::draw(cx);
            let event = operation.event(cx, crate::trace::BEGINS);
            cx.trace.note(event);
            self.works[at] = Some(Work::new(operation, &self.session, cx));
            self.advance(at, cx);
            if self.must_stop(cx) {
                return;
            }
        }
        if let Err(error) = self.queue.flush() {
            cx.fail(0, format!("the queue: {error}"));
        }
        self.acknowledge(cx);
    }

    fn must_stop(&self, cx: &Context) -> bool {
        cx.crash.has_struck() || cx.failure.is_some()
    }

    fn hang_some(&mut self, done: &mut Vec<Done>, cx: &mut Context) {
        for (until, read) in std::mem::take(&mut self.hung) {
            match until <= cx.step {
                true => done.push(read),
                false => self.hung.push((until, read)),
            }
        }
        if !done.is_empty() && cx.random.one_in(20) {
            let until = cx.step + cx.random.below(HANG_STEPS);
            self.hung.extend(done.pop().map(|read| (until, read)));
        }
    }

    /// Shows the cache what was read.
    fn take(&mut self, done: Done, cx: &mut Context) {
        let at = done.token as usize;
        let Some(work) = &mut self.works[at] else { return };
        work.is_reading = false;
        let mut name = [0; 12];
        let bytes = key_bytes(work.operation.key);
        let key = work.key(&self.session, &bytes, &mut name);
        cx.tally.reads += 1;
        match work.lookup.take(&self.session, key, (done.buf, done.result)) {
            Next::Call(_) => self.advance(at, cx),
            Next::Read(plan, buf) => self.read(at, plan, Some(buf)),
        }
    }

    fn read(&mut self, at: usize, plan: ReadPlan, buf: Option<AlignedBuf>) {
        let Some(work) = &mut self.works[at] else { return };
        let mut buf = buf
            .filter(|buf| buf.capacity() >= plan.bytes as usize)
            .unwrap_or_else(|| AlignedBuf::zeroed(plan.bytes as usize));
        buf.set_len(plan.bytes as usize);
        work.is_reading = true;
        let (device, offset) = (plan.tier, plan.offset);
        self.queue.submit(Read { device, offset, buf, token: at as u64 });
    }

    /// Does what can be done of an operation at once.
    fn advance(&mut self, at: usize, cx: &mut Context) {
        loop {
            let Some(work) = &mut self.works[at] else { return };
            match work.step(&self.session, cx, &mut self.unacknowledged) {
                Progress::GoesOn => work.lookup = FlashLookup::default(),
                Progress::Finished => {
                    cx.tally.operations += 1;
                    self.works[at] = None;
                    return;
                }
                Progress::Reads(search) => {
                    let plan = work.lookup.begin(search);
                    return self.read(at, plan, None);
                }
                Progress::Waits => {
                    work.waits += 1;
                    if work.waits > WAITS_MAX {
                        let key = work.operation.key;
                        cx.fail(key, format!("an operation on key {key} waits for ever"));
                    }
                    // What was read is kept, or is read once more.
                    if cx.random.one_in(2) {
                        work.lookup = FlashLookup::default();
                    }
                    return;
                }
                Progress::Crashed => return,
            }
        }
    }

    /// Tells the clients of changes that were made.
    fn acknowledge(&mut self, cx: &mut Context) {
        if !cx.scenario.is_strict() {
            self.unacknowledged.clear();
            return;
        }
        let is_durable = self.session.make_durable().is_ok();
        if cx.crash.has_struck() {
            return;
        }
        for (key, by) in self.unacknowledged.drain(..) {
            // What could not be made durable is answered by an error: it happened or not.
            if is_durable {
                cx.oracle.acknowledge(key, by);
            }
        }
    }
}

impl Work {
    fn new(operation: Operation, session: &Session, cx: &Context) -> Self {
        let phase = match operation.needs_upload(cx) {
            true => Phase::Upload(Upload::begin(session, cx.inline_bytes_max as u32)),
            false => Phase::Main(None),
        };
        Self {
            operation,
            phase,
            lookup: FlashLookup::default(),
            waits: 0,
            is_reading: false,
            flushes: cx.oracle.flushes,
        }
    }

    fn key<'k>(&self, session: &Session, bytes: &'k [u8; 8], name: &'k mut [u8; 12]) -> Key<'k> {
        let chunk = match &self.phase {
            Phase::Chunks(download) => download.chunk(),
            _ => None,
        };
        chunk.map_or_else(|| session.key(bytes), |chunk| chunk.key(session, name))
    }

    fn step(
        &mut self,
        session: &Session,
        cx: &mut Context,
        unacknowledged: &mut Vec<(u32, u64)>,
    ) -> Progress {
        match &self.phase {
            Phase::Upload(_) => self.upload(session, cx),
            Phase::Main(_) if self.operation.kind.is_read() => self.get(session, cx),
            Phase::Main(_) => self.update(session, cx, unacknowledged),
            Phase::Chunks(_) => self.download(session, cx),
        }
    }

    fn upload(&mut self, session: &Session, cx: &mut Context) -> Progress {
        let Phase::Upload(upload) = &mut self.phase else { return Progress::Finished };
        let run = upload.run();
        let start = run.chunks as usize * run.chunk_bytes as usize;
        let value = &self.operation.value;
        if start >= value.len() {
            self.phase = Phase::Main(Some(Manifest { runs: vec![run] }));
            return Progress::GoesOn;
        }
        let chunk = &value[start..value.len().min(start + run.chunk_bytes as usize)];
        let stored = upload.store(session, chunk, cx.now);
        if cx.crash.has_struck() {
            return Progress::Crashed;
        }
        match stored {
            Update::Done { .. } => Progress::GoesOn,
            Update::Wait | Update::Recovering => Progress::Waits,
            Update::Full | Update::Read(_) => {
                upload.discard(session);
                self.refused(cx)
            }
        }
    }

    /// What a refused `set` would have replaced must not stay.
    fn refused(&mut self, cx: &mut Context) -> Progress {
        let key = self.operation.key;
        if !cx.may_lose() {
            cx.fail(key, format!("a change of key {key} was refused, and there is room"));
        }
        cx.note_key(key, "refused", 0, 0);
        if self.operation.kind != Kind::Set {
            return Progress::Finished;
        }
        self.operation.kind = Kind::Delete;
        self.phase = Phase::Main(None);
        Progress::GoesOn
    }

    fn get(&mut self, session: &Session, cx: &mut Context) -> Progress {
        let (id, now) = (self.operation.key, cx.now);
        let access = if self.operation.kind == Kind::Get { Access::Use } else { Access::Peek };
        let bytes = key_bytes(id);
        let lookup = session.get(session.key(&bytes), now, access, self.lookup.evidence());
        let version = match lookup {
            Lookup::Read(search) => return Progress::Reads(search),
            Lookup::Miss => {
                cx.miss(id, "get");
                return Progress::Finished;
            }
            Lookup::Hit(hit) => match cx.oracle.hit(id, &hit.record, now) {
                Ok(version) => {
                    cx.tally.hits += 1;
                    cx.tally.flash_hits += u64::from(!hit.from_dram);
                    cx.trace.note(crate::trace::Event {
                        step: cx.step,
                        key: id,
                        what: "hit",
                        a: version.bytes().len() as u64,
                        b: hit.from_dram.into(),
                    });
                    version
                }
                Err(why) => {
                    cx.fail(id, format!("get: key {id}: {why}"));
                    return Progress::Finished;
                }
            },
        };
        let Content::Chunked(manifest, _) = &version.content else { return Progress::Finished };
        let pin = session.pin(manifest);
        let is_gone = version.is_expired(cx.now) || !cx.oracle.is_still(id, &version);
        let may_be = match session.look_for_chunks(manifest, &pin) {
            Chunks::There => None,
            Chunks::Recovering => Some(cx.is_recovering),
            // A server removes the item then: what a start has yet to bring back must not be taken for it.
            Chunks::Gone => Some(is_gone || !cx.scenario.ample || cx.is_hurt()),
        };
        if let Some(may_be) = may_be {
            self.broken(cx, &version, may_be, "before the header");
            return Progress::Finished;
        }
        let download = Download { version, _pin: pin, next: Cursor::default(), offset: 0 };
        self.phase = Phase::Chunks(Box::new(download));
        Progress::GoesOn
    }

    /// A chunk is missing, which may be so or not.
    fn broken(&self, cx: &mut Context, version: &Rc<Version>, may_be: bool, when: &str) {
        let key = self.operation.key;
        cx.tally.broken += 1;
        if !may_be && !version.is_hollow {
            cx.fail(key, format!("get: key {key}: a chunk is lost {when}"));
        }
    }

    fn download(&mut self, session: &Session, cx: &mut Context) -> Progress {
        let Phase::Chunks(download) = &self.phase else { return Progress::Finished };
        let Content::Chunked(manifest, expected) = &download.version.content else {
            return Progress::Finished;
        };
        let Some(chunk) = download.next.chunk(manifest) else { return Progress::Finished };
        let mut name = [0; 12];
        let key = chunk.key(session, &mut name);
        let found = session.get(key, cx.now, Access::Use, self.lookup.evidence());
        let id = self.operation.key;
        match found {
            Lookup::Read(search) => return Progress::Reads(search),
            Lookup::Miss => {
                // What was replaced or has expired is kept for as long as it is read. One that was let go of
                // may not have been missed before the header, where another has its fingerprint.
                let may_be = cx.has_let_go() || self.flushes != cx.oracle.flushes;
                self.broken(cx, &Rc::clone(&download.version), may_be, "behind the header");
                return Progress::Finished;
            }
            Lookup::Hit(hit) => {
                let expected =
                    expected.get(download.offset..download.offset + chunk.bytes as usize);
                let is_it = matches!(hit.record.body(), Body::Inline(b) if Some(b) == expected);
                if !is_it {
                    cx.fail(id, format!("get: key {id}: a chunk holds something else"));
                    return Progress::Finished;
                }
            }
        }
        let Phase::Chunks(download) = &mut self.phase else { return Progress::Finished };
        download.offset += chunk.bytes as usize;
        if let Content::Chunked(manifest, _) = &download.version.content {
            download.next.advance(manifest);
        }
        Progress::GoesOn
    }

    fn update(
        &mut self,
        session: &Session,
        cx: &mut Context,
        unacknowledged: &mut Vec<(u32, u64)>,
    ) -> Progress {
        let Phase::Main(upload) = &self.phase else { return Progress::Finished };
        let (operation, upload) = (&self.operation, upload.as_ref());
        let (id, now) = (operation.key, cx.now);
        let limits = (cx.inline_bytes_max, cx.item_bytes_max);
        let mut scratch = Scratch::default();
        let place = &mut scratch;
        // Whether it was decided, and what on: nothing, a known state, or one that is wrong.
        let mut decided = None;
        let mut after = None;
        let bytes = key_bytes(id);
        let oracle = &mut cx.oracle;
        let (seen, planned) = (&mut decided, &mut after);
        let is_blind = operation.kind == Kind::Set;
        let evidence = self.lookup.evidence();
        let update = session.update(session.key(&bytes), now, evidence, is_blind, |hit| {
            let found = hit.map(|hit| oracle.hit(id, &hit.record, now).map(|v| (v, hit)));
            let found = match found.transpose() {
                Ok(found) => found,
                Err(why) => {
                    *seen = Some(Err(why));
                    return Change::Keep;
                }
            };
            *seen = Some(Ok(found.is_some()));
            let found = found.as_ref().map(|(version, hit)| (version, *hit));
            let change;
            (change, *planned) = decide(operation, upload, found, place, limits);
            change
        });
        let cas = match update {
            Update::Read(search) => return Progress::Reads(search),
            Update::Wait | Update::Recovering => return Progress::Waits,
            Update::Full => None,
            Update::Done { cas } => Some(cas),
        };
        let is_blind_miss = is_blind && decided.as_ref().is_some_and(|d| *d == Ok(false));
        match decided {
            Some(Err(why)) => {
                cx.fail(id, format!("{}: key {id}: {why}", operation.kind.name()));
                return Progress::Finished;
            }
            Some(Ok(false)) if !is_blind_miss => cx.miss(id, operation.kind.name()),
            _ => {}
        }
        let event = operation.event(cx, cas.unwrap_or(u64::MAX - 1));
        cx.trace.note(event);
        let is_used = cas.is_some() && after.is_some();
        if let (Some(manifest), false) = (upload, is_used) {
            let discard = |run: &Run| session.discard_chunks(run.item, run.chunks);
            manifest.runs.iter().for_each(discard);
        }
        let Some(cas) = cas else {
            if cx.crash.has_struck() {
                return Progress::Crashed;
            }
            return self.refused(cx);
        };
        let Some(after) = after else {
            return if cx.crash.has_struck() { Progress::Crashed } else { Progress::Finished };
        };
        let is_hollow = upload.is_some() && self.flushes != cx.oracle.flushes;
        self.note_change(cx, completed(after, cas, is_hollow), unacknowledged)
    }

    fn note_change(
        &self,
        cx: &mut Context,
        after: State,
        unacknowledged: &mut Vec<(u32, u64)>,
    ) -> Progress {
        let (id, kind) = (self.operation.key, self.operation.kind);
        if let Some(version) = &after {
            cx.note_key(id, "expires", version.expires.into(), version.cas);
            let is_new = cx.scenario.cas && !matches!(kind, Kind::Touch | Kind::Gat);
            if is_new && !cx.oracle.note_cas(id, version.cas) {
                cx.fail(id, format!("key {id}: CAS number {} was given out twice", version.cas));
            }
        }
        if cx.crash.has_struck() {
            cx.oracle.change_in_doubt(id, after);
            return Progress::Crashed;
        }
        let by = cx.oracle.change(id, after);
        unacknowledged.push((id, by));
        Progress::Finished
    }
}

impl Download {
    /// The chunk that is read next.
    fn chunk(&self) -> Option<Chunk> {
        match &self.version.content {
            Content::Chunked(manifest, _) => self.next.chunk(manifest),
            Content::Inline(_) => None,
        }
    }
}

/// The state with the CAS number that the cache gave out.
fn completed(state: State, cas: u64, is_hollow: bool) -> State {
    let complete = |version: Rc<Version>| {
        Rc::new(Version { cas, is_hollow: is_hollow || version.is_hollow, ..(*version).clone() })
    };
    state.map(complete)
}
