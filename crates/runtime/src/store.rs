//! The store, and its blocking operations.

use crate::background::Background;
use crate::error::{Error, OpenError};
use crate::inner::{Inner, PAUSE, Worker, check_key};
use crate::lane::Lane;
use crate::opening::{self, Opened};
use crate::operation::{Found, Step, Task, Want, When};
use crate::options::Options;
use crate::set::Set;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::thread;
use terrace_cache::ReadPlan;

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
        let inner = Inner::new(&options, cache, drives, background);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The value of a key, if there is one. Blocks while a drive is read, at most for [`terrace_device::READ_DEADLINE`]: what
    /// a drive does not answer is a miss.
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
            let step = task.step(&worker.session, inner.now(), inner.limits);
            worker.release(task.take_spare());
            match step {
                Step::Done(found) => break Ok(found),
                Step::Wait => {
                    worker.session.park();
                    thread::sleep(PAUSE);
                }
                Step::Read(plan) => {
                    if let Err(error) = read_for(&mut task, &mut worker, plan) {
                        break Err(error.into());
                    }
                }
            }
        };
        task.abandon(&worker.session);
        inner.return_worker(worker);
        found
    }
}

/// Reads what a task asks for, until it can be gone on with.
fn read_for(task: &mut Task<'_>, worker: &mut Worker, plan: ReadPlan) -> io::Result<()> {
    let mut next = Some(plan);
    while let Some(plan) = next {
        let read = worker.read(plan)?;
        next = task.take(&worker.session, read);
        worker.release(task.take_spare());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
