//! The store, and its blocking operations.

use crate::background::Background;
use crate::lane::Lane;
use crate::opening::{self, Opened, now};
use crate::operation::{Found, Limits, Step, Task, Want, When};
use crate::{Error, OpenError, Options};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, mem, process};
use terrace_cache::{Cache, Session};
use terrace_device::{AlignedBuf, Device};

/// Where buffers are full, background work has room again in about this time.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a clean close may take; the next start is as after a crash then.
const CLOSE_PATIENCE: Duration = Duration::from_secs(60);

/// A store of keys and values in DRAM and on drives. Cheap to clone; all clones are one store, which is closed when the
/// last of them and of its lanes is dropped.
///
/// # Examples
///
/// ```
/// use terrace_runtime::{Options, Set, Store};
///
/// let store = Store::open(Options::new().memory(16 << 20))?;
/// store.set(b"apple", b"red", Set::default())?;
/// let clone = store.clone();
/// std::thread::spawn(move || assert!(clone.get(b"apple").unwrap().is_some())).join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

/// What all clones and lanes share.
pub(crate) struct Inner {
    pub(crate) cache: Arc<Cache>,
    pub(crate) drives: Vec<Arc<dyn Device>>,
    pub(crate) limits: Limits,
    /// Ends before the cache is closed.
    background: Option<Background>,
    /// What threads block with, while none does.
    idle: Mutex<Vec<Worker>>,
    /// Sessions that lanes and threads have, idle ones included; at most `lanes_max`.
    sessions: AtomicUsize,
    lanes_max: usize,
    /// The process that opened the store.
    process: u32,
    /// Unix seconds that an earlier run acted on: expiry never uses an earlier time.
    clock_floor: u32,
    is_closed: bool,
}

/// What one thread blocks with.
struct Worker {
    session: Session,
    buffer: Option<AlignedBuf>,
}

/// How a value is stored; the default is: whatever there is is replaced, and the record does not expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Set {
    expires_in: Option<Duration>,
    is_absent: bool,
}

impl Set {
    /// The record is gone after this time, rounded up to whole seconds.
    ///
    /// ```
    /// # use terrace_runtime::{Options, Set, Store};
    /// # let store = Store::open(Options::new().memory(16 << 20))?;
    /// let minute = std::time::Duration::from_secs(60);
    /// store.set(b"session", b"token", Set::default().expires_in(minute))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expires_in(self, time: Duration) -> Self {
        Self { expires_in: Some(time), ..self }
    }

    /// Stores nothing where there is a record of the key.
    ///
    /// ```
    /// # use terrace_runtime::{Options, Set, Store};
    /// # let store = Store::open(Options::new().memory(16 << 20))?;
    /// assert!(store.set(b"lock", b"mine", Set::default().if_absent())?);
    /// assert!(!store.set(b"lock", b"yours", Set::default().if_absent())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn if_absent(self) -> Self {
        Self { is_absent: true, ..self }
    }

    pub(crate) fn want(self, value: Cow<'_, [u8]>, now: u32) -> Want<'_> {
        let seconds = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let end = |time| u32::try_from(u64::from(now) + seconds(time).max(1)).unwrap_or(u32::MAX);
        let when = if self.is_absent { When::Absent } else { When::Always };
        Want::Set { value, expires: self.expires_in.map_or(0, end), when }
    }
}

/// What [`Store::update`] makes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// It is removed.
    Remove,
    /// This takes its place.
    Set(Vec<u8>, Set),
}

impl Store {
    /// Opens drives and cache, brings back the index of what a clean close left on the drives (about a second per 10
    /// million records), and starts the threads of the store.
    ///
    /// # Errors
    /// See [`OpenError`]. A drive that holds something else is not written.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let Opened { cache, drives } = opening::open(&options)?;
        let background = Background::start(&cache)?;
        let inner = Inner {
            limits: Limits::of(&cache),
            clock_floor: cache.clock_floor(),
            cache,
            drives,
            background: Some(background),
            idle: Mutex::default(),
            sessions: AtomicUsize::new(0),
            lanes_max: options.lanes_max,
            process: process::id(),
            is_closed: false,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The value of a key, if there is one. Blocks while a drive is read.
    ///
    /// # Errors
    /// See [`Error`]. A page that a drive can't read is a miss, and no error.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.get_with_cas(key)?.map(|(bytes, _)| bytes))
    }

    /// Shows the value of a key to `look`, and returns what that returns; `None` if there is no value. Values of up to
    /// about 128 KiB are shown where they lie, and not copied.
    ///
    /// ```
    /// # use terrace_runtime::{Options, Set, Store};
    /// # let store = Store::open(Options::new().memory(16 << 20))?;
    /// store.set(b"apple", b"red", Set::default())?;
    /// assert_eq!(store.get_with(b"apple", |value| value.len())?, Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As of [`Store::get`].
    pub fn get_with<T>(
        &self,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Error> {
        let (mut look, mut seen) = (Some(look), None);
        let mut once = |value: &[u8]| seen = look.take().map(|look| look(value));
        let found = self.run(key, Want::Look(&mut once))?;
        Ok(seen.filter(|_| matches!(found, Found::Looked)))
    }

    /// Stores a value; `false` if the condition of `how` did not hold. Blocks while buffers are full, or a drive has to
    /// be read to see whether the condition holds.
    ///
    /// # Errors
    /// See [`Error`]; nothing is stored then.
    pub fn set(&self, key: &[u8], value: &[u8], how: Set) -> Result<bool, Error> {
        self.inner.check_value(value.len())?;
        let want = how.want(Cow::Borrowed(value), self.inner.now());
        match self.run(key, want)? {
            Found::Stored => Ok(true),
            Found::Full => Err(Error::Full),
            _ => Ok(false),
        }
    }

    /// Removes the record of a key; `false` if there was none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        match self.run(key, Want::Remove(When::Always))? {
            Found::Removed => Ok(true),
            Found::Full => Err(Error::Full),
            _ => Ok(false),
        }
    }

    /// Decides about a record by its value, atomically: `decide` sees the value that is there, if any, and what it asks
    /// for is done unless the record was changed meanwhile; then `decide` is asked again.
    ///
    /// ```
    /// # use terrace_runtime::{Change, Options, Set, Store};
    /// # let store = Store::open(Options::new().memory(16 << 20))?;
    /// for _ in 0..3 {
    ///     store.update(b"visits", |value| {
    ///         let visits = value.map_or(0, |bytes| bytes[0]) + 1;
    ///         Change::Set(vec![visits], Set::default())
    ///     })?;
    /// }
    /// assert_eq!(store.get(b"visits")?, Some(vec![3]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`]; the record is as it was then.
    pub fn update(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&[u8]>) -> Change,
    ) -> Result<(), Error> {
        loop {
            let found = self.get_with_cas(key)?;
            let value = found.as_ref().map(|(bytes, _)| &bytes[..]);
            let when = found.as_ref().map_or(When::Absent, |&(_, cas)| When::CasIs(cas));
            let want = match decide(value) {
                Change::Keep => return Ok(()),
                Change::Remove if found.is_none() => return Ok(()),
                Change::Remove => Want::Remove(when),
                Change::Set(value, how) => {
                    self.inner.check_value(value.len())?;
                    let Want::Set { value, expires, .. } =
                        how.want(Cow::Owned(value), self.inner.now())
                    else {
                        return Ok(());
                    };
                    Want::Set { value, expires, when }
                }
            };
            match self.run(key, want)? {
                Found::Stored | Found::Removed => return Ok(()),
                Found::Full => return Err(Error::Full),
                _ => {}
            }
        }
    }

    /// Operations of a thread that must not block; see [`Lane`].
    ///
    /// # Errors
    /// [`Error::TooManyLanes`], or the system refuses the queue of its reads.
    pub fn lane(&self) -> Result<Lane, Error> {
        Lane::new(&self.inner)
    }

    /// With [`Options::durable`]: no loss of power can undo what was changed before this call. Without it: nothing.
    ///
    /// # Errors
    /// A drive does not take it.
    pub fn sync(&self) -> Result<(), Error> {
        self.inner.check_process()?;
        Ok(self.inner.cache.make_durable()?)
    }

    /// Writes all records to the drives and ends the store: the next [`Store::open`] finds them. Dropping the last clone
    /// does the same, and says nothing.
    ///
    /// # Errors
    /// Another clone or a lane is still there ([`Error::InUse`]; the store goes on), or a drive does not take what is to
    /// be written: the next start is as after a crash then.
    pub fn close(self) -> Result<(), Error> {
        let mut inner = Arc::into_inner(self.inner).ok_or(Error::InUse)?;
        inner.check_process()?;
        match inner.end() {
            true => Ok(()),
            false => Err(io::Error::other("a drive did not take all records").into()),
        }
    }

    fn get_with_cas(&self, key: &[u8]) -> Result<Option<(Vec<u8>, u64)>, Error> {
        Ok(match self.run(key, Want::Get)? {
            Found::Value { bytes, cas } => Some((bytes, cas)),
            _ => None,
        })
    }

    /// Does one operation to its end.
    fn run<'a>(&self, key: &'a [u8], want: Want<'a>) -> Result<Found, Error> {
        check_key(key)?;
        let inner = &self.inner;
        let mut worker = inner.take_worker()?;
        let mut task = Task::new(&worker.session, Cow::Borrowed(key), want);
        let found = loop {
            let Worker { session, buffer } = &mut worker;
            match task.step(session, (inner.now(), inner.limits), buffer) {
                Step::Done(found) => break found,
                Step::Wait => {
                    session.park();
                    thread::sleep(PAUSE);
                }
                Step::Read(plan) => {
                    let mut next = Some(plan);
                    while let Some(plan) = next {
                        let mut bytes = buffer_of(buffer.take(), plan.bytes as usize);
                        let result = inner.drives[plan.tier].read_at(plan.offset, &mut bytes);
                        next = task.take(session, (bytes, result), buffer);
                    }
                }
            }
        };
        worker.session.park();
        inner.idle().push(worker);
        Ok(found)
    }
}

/// A buffer of so many bytes, the given one if it is long enough.
pub(crate) fn buffer_of(spare: Option<AlignedBuf>, bytes: usize) -> AlignedBuf {
    match spare.filter(|buffer| buffer.capacity() >= bytes) {
        Some(mut buffer) => {
            buffer.set_len(bytes);
            buffer
        }
        None => AlignedBuf::zeroed(bytes),
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    match key.len() {
        1..=Error::KEY_BYTES_MAX => Ok(()),
        bytes => Err(Error::Key { bytes }),
    }
}

impl Inner {
    /// Unix seconds, never before what an earlier run acted on.
    pub(crate) fn now(&self) -> u32 {
        now().max(self.clock_floor)
    }

    pub(crate) fn check_value(&self, bytes: usize) -> Result<(), Error> {
        let (bytes, most) = (bytes as u64, self.limits.value_bytes_max);
        if bytes > most { Err(Error::Value { bytes, most }) } else { Ok(()) }
    }

    /// Its threads are in the process that opened it alone.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process == process::id() { Ok(()) } else { Err(Error::Forked) }
    }

    /// A session for a thread or a lane, which gives it back by [`Inner::end_session`].
    pub(crate) fn session(&self) -> Result<Session, Error> {
        let more = |sessions: usize| (sessions < self.lanes_max).then_some(sessions + 1);
        if self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            if let Some(session) = self.cache.try_session() {
                return Ok(session);
            }
            self.end_session();
        }
        // Those of threads that do not block at the moment can be had by a lane.
        let idle = self.idle().pop().map(|worker| worker.session);
        idle.ok_or(Error::TooManyLanes { most: self.lanes_max })
    }

    pub(crate) fn end_session(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    fn take_worker(&self) -> Result<Worker, Error> {
        self.check_process()?;
        if let Some(worker) = self.idle().pop() {
            return Ok(worker);
        }
        Ok(Worker { session: self.session()?, buffer: None })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the threads, and writes everything out. Returns whether the next start finds all of it.
    fn end(&mut self) -> bool {
        if mem::replace(&mut self.is_closed, true) {
            return true;
        }
        self.background = None;
        self.idle().clear();
        let start = Instant::now();
        let is_clean = self.cache.close(self.now(), &|| start.elapsed() < CLOSE_PATIENCE);
        is_clean || self.drives.is_empty()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.check_process().is_ok() {
            self.end();
        } else {
            // The threads are not in this process; joining them would wait for ever.
            mem::forget(self.background.take());
        }
    }
}
