//! Operations of a thread that must not block.

use crate::error::Error;
use crate::inner::{Inner, PAUSE, check_key};
use crate::operation::{Found, Step, Task, Want, When};
use crate::reads::{Finished, Reads};
use crate::set::Set;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use terrace_cache::Session;
use terrace_device::{Engine, TICK, ticks};

/// The part of the memory for reads that a lane takes: 2 MiB.
const SHARE: u32 = 8;

/// What a lane is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Get the value of this key.
    Get(Vec<u8>),
    /// Store a value.
    Set {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// See [`Set`].
        how: Set,
    },
    /// Remove the record of this key.
    Remove(Vec<u8>),
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value that there is.
    Value(Option<Vec<u8>>),
    /// Whether it was stored: the condition of [`Set`] held.
    Set(bool),
    /// Whether there was a record to remove.
    Removed(bool),
}

/// An operation that ended.
#[derive(Debug)]
pub struct Done {
    /// As it was submitted with.
    pub token: u64,
    /// What came of it.
    pub outcome: Result<Outcome, Error>,
}

/// Many operations at once, by one thread that never blocks on a drive: submit, poll, and sleep on
/// [`Lane::event_fd`] in between. Operations on one key take effect in the order of their submission; operations on
/// different keys may overtake each other.
///
/// Dropping a lane drops the operations that are under way: a change was made, or was not. It waits for reads that a
/// drive has begun, a second at most.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use terrace_runtime::{Operation, Options, Outcome, Set, Store};
///
/// let store = Store::open(Options::new().memory(16 << 20))?;
/// let mut lane = store.lane()?;
/// let (key, value) = (b"apple".to_vec(), b"red".to_vec());
/// lane.submit(Operation::Set { key: key.clone(), value, how: Set::default() }, 1);
/// lane.submit(Operation::Get(key), 2);
/// let mut done = Vec::new();
/// while lane.in_flight() > 0 {
///     lane.wait(&mut done, Duration::from_secs(1))?;
/// }
/// done.sort_by_key(|done| done.token);
/// assert_eq!(done[1].outcome.as_ref().unwrap(), &Outcome::Value(Some(b"red".to_vec())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lane {
    // Fields are dropped in this order: reads end before the buffers' owner does.
    reads: Reads<u64, ()>,
    session: Session,
    /// By number, which is the token of an operation's reads.
    running: HashMap<u64, Running>,
    next_number: u64,
    /// Operations on keys of one hash, the one that runs first.
    by_hash: HashMap<u64, VecDeque<u64>>,
    /// Those that are tried again a moment later.
    waiting: Vec<u64>,
    /// What ended and was not handed out yet.
    ended: Vec<Done>,
    finished: VecDeque<Finished<u64>>,
    inner: Arc<Inner>,
}

/// An operation that did not end yet.
struct Running {
    token: u64,
    task: Task<'static>,
}

impl Lane {
    pub(crate) fn new(inner: &Arc<Inner>) -> Result<Self, Error> {
        inner.check_process()?;
        let reads = Reads::open(&inner.drives, Engine::Auto, SHARE, |_| None, ())?;
        // From here on nothing fails: dropping the lane gives the session back.
        Ok(Self {
            reads,
            session: inner.session()?,
            running: HashMap::new(),
            next_number: 0,
            by_hash: HashMap::new(),
            waiting: Vec::new(),
            ended: Vec::new(),
            finished: VecDeque::new(),
            inner: Arc::clone(inner),
        })
    }

    /// Begins an operation; it comes back from [`Lane::poll`] with its `token`, also if it fails at once.
    pub fn submit(&mut self, operation: Operation, token: u64) {
        match self.begin(operation, token) {
            Ok(number) => self.run_next(number),
            Err(error) => self.ended.push(Done { token, outcome: Err(error) }),
        }
    }

    /// Operations that were submitted and not handed out yet.
    pub fn in_flight(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    /// Appends operations that ended to `done`; never blocks. Must be called again within about a millisecond while
    /// [`Lane::is_waiting`] says so, and whenever [`Lane::event_fd`] is readable.
    ///
    /// # Errors
    /// The kernel refuses the reads of the lane as a whole; operations that read may never end.
    pub fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), Error> {
        self.inner.check_process()?;
        self.reads.clear_event();
        self.flush()?;
        self.reads.give_up_late(ticks());
        self.reap();
        for number in std::mem::take(&mut self.waiting) {
            self.step(number);
        }
        self.flush()?;
        self.session.quiesce();
        done.append(&mut self.ended);
        Ok(())
    }

    /// As [`Lane::poll`], and blocks until an operation ended or the time is over.
    ///
    /// # Errors
    /// As of [`Lane::poll`].
    pub fn wait(&mut self, done: &mut Vec<Done>, time: Duration) -> Result<(), Error> {
        let (start, before) = (Instant::now(), done.len());
        loop {
            self.poll(done)?;
            let left = time.saturating_sub(start.elapsed());
            if done.len() > before || left.is_zero() || self.running.is_empty() {
                return Ok(());
            }
            self.session.park();
            if self.is_waiting() || !self.reads.is_busy() {
                thread::sleep(PAUSE.min(left));
            } else {
                self.reads.wait(left.min(TICK))?;
            }
        }
    }

    /// Whether an operation waits for room rather than for a read, so that [`Lane::event_fd`] does not tell of it.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Becomes readable when reads of the lane end. To be asked for again after each [`Lane::poll`]: it is another one
    /// where the system no longer lets the lane use io_uring.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.reads.event_fd()
    }

    fn begin(&mut self, operation: Operation, token: u64) -> Result<u64, Error> {
        self.inner.check_process()?;
        let (key, want) = match operation {
            Operation::Get(key) => (key, Want::Get),
            Operation::Remove(key) => (key, Want::Remove(When::Always)),
            Operation::Set { key, value, how } => {
                self.inner.check_value(value.len())?;
                (key, how.want(Cow::Owned(value), self.inner.now()))
            }
        };
        check_key(&key)?;
        let task = Task::new(&self.session, Cow::Owned(key), want);
        let number = self.next_number;
        self.next_number += 1;
        self.by_hash.entry(task.hash()).or_default().push_back(number);
        self.running.insert(number, Running { token, task });
        Ok(number)
    }

    /// Steps an operation if it is the first on its key.
    fn run_next(&mut self, number: u64) {
        let Some(running) = self.running.get(&number) else { return };
        let hash = running.task.hash();
        if self.by_hash.get(&hash).and_then(VecDeque::front) == Some(&number) {
            self.step(number);
        }
    }

    /// Goes on with an operation, and with those behind it on its key if it ends.
    fn step(&mut self, number: u64) {
        let mut number = number;
        loop {
            let Some(running) = self.running.get_mut(&number) else { return };
            let step = running.task.step(&self.session, self.inner.now(), self.inner.limits);
            running.task.take_spare().into_iter().for_each(|spare| self.reads.release(spare));
            match step {
                Step::Wait => return self.waiting.push(number),
                Step::Read(plan) => return self.reads.submit(plan, number),
                Step::Done(found) => {
                    let hash = running.task.hash();
                    let outcome = outcome(running.task.want(), found);
                    self.ended.push(Done { token: running.token, outcome });
                    self.running.remove(&number);
                    let behind = self.by_hash.get_mut(&hash);
                    let next = behind.and_then(|behind| {
                        behind.pop_front();
                        behind.front().copied()
                    });
                    let Some(next) = next else {
                        self.by_hash.remove(&hash);
                        return;
                    };
                    number = next;
                }
            }
        }
    }

    /// Hands reads to the drives. Where the system refuses io_uring after all, threads take over.
    fn flush(&mut self) -> Result<(), Error> {
        if let Err(error) = self.reads.flush(false, |_| false) {
            self.reads.fall_back(error)?;
            self.reads.flush(false, |_| false)?;
        }
        Ok(())
    }

    fn reap(&mut self) {
        self.reads.reap(&mut self.finished);
        while let Some(Finished { token, buffer, result }) = self.finished.pop_front() {
            let Some(running) = self.running.get_mut(&token) else { continue };
            let next = running.task.take(&self.session, (buffer, result));
            running.task.take_spare().into_iter().for_each(|spare| self.reads.release(spare));
            match next {
                Some(plan) => self.reads.submit(plan, token),
                None => self.step(token),
            }
        }
    }
}

fn outcome(want: &Want<'_>, found: Found) -> Result<Outcome, Error> {
    Ok(match (want, found) {
        (_, Found::Full) => return Err(Error::Full),
        (Want::Set { .. }, found) => Outcome::Set(matches!(found, Found::Stored)),
        (Want::Remove(_), found) => Outcome::Removed(matches!(found, Found::Removed)),
        (_, Found::Value { bytes, .. }) => Outcome::Value(Some(bytes)),
        _ => Outcome::Value(None),
    })
}

impl Drop for Lane {
    fn drop(&mut self) {
        // What was stored of values that will not be published goes.
        let session = &self.session;
        self.running.values_mut().for_each(|running| running.task.abandon(session));
        self.inner.end_session();
    }
}
