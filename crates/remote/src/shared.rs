//! What the threads of a remote drive share: whether there is a session, and what is asked of the keeper.

use crate::address::Address;
use crate::lock::lock;
use crate::session::Session;
use crate::wire::Wire;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_device::{Direction, Event, Geometry, Monitor, Waker, unanswered};

/// How long a drive that can't be reached may come back with all its records; later it counts as gone. As long as the
/// kernel's `ctrl_loss_tmo`.
pub(crate) const LOSS: Duration = Duration::from_secs(600);

/// How long a transfer with a deadline is tried again over other sessions: most connections that break are back within a
/// second. Less than the deadline.
const RETRIES: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_secs(1);

/// Whether the drive can be used.
#[derive(Clone)]
pub(crate) enum State {
    Up(Arc<Session>),
    /// Without a session since then.
    Down(Instant),
    /// For ever, for this reason.
    Gone(String),
}

/// A worker that wants a connection of its own.
pub(crate) struct Request {
    pub(crate) depth: u32,
    pub(crate) answer: Arc<Mailbox>,
}

/// A connection for a worker, with its session.
pub(crate) type Given = io::Result<(Wire, Arc<Session>)>;

/// Where the keeper puts what a worker has asked for.
pub(crate) struct Mailbox {
    pub(crate) waker: Waker,
    content: Mutex<Option<Given>>,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { waker, content: Mutex::default() })
    }

    pub(crate) fn put(&self, content: Given) {
        *lock(&self.content) = Some(content);
        self.waker.wake();
    }

    pub(crate) fn take(&self) -> Option<Given> {
        lock(&self.content).take()
    }
}

/// Shared by the drive, its keeper, and the reads of workers.
pub(crate) struct Shared {
    pub(crate) label: String,
    pub(crate) geometry: Geometry,
    pub(crate) monitor: Monitor,
    state: Mutex<State>,
    /// Told whenever `state` changes.
    changed: Condvar,
    /// Waits for the keeper's attention.
    requests: Mutex<Vec<Request>>,
    /// Of all workers that read.
    wakers: Mutex<Vec<Waker>>,
    /// Queues that workers may still have.
    queues_left: AtomicUsize,
    /// Wakes the keeper.
    bell: Event,
    is_closing: AtomicBool,
    is_timed: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        address: &Address,
        geometry: Geometry,
        session: Arc<Session>,
    ) -> io::Result<Self> {
        let label = address.to_string();
        let queues_left = AtomicUsize::new(session.worker_queues());
        Ok(Self {
            label,
            geometry,
            monitor: Monitor::default(),
            state: Mutex::new(State::Up(session)),
            changed: Condvar::new(),
            requests: Mutex::default(),
            wakers: Mutex::default(),
            queues_left,
            bell: Event::new()?,
            is_closing: AtomicBool::new(false),
            is_timed: AtomicBool::new(false),
        })
    }

    pub(crate) fn state(&self) -> State {
        lock(&self.state).clone()
    }

    /// Changes the state, and wakes all that wait for that.
    pub(crate) fn set_state(&self, state: State) {
        match &state {
            State::Up(_) => self.monitor.record_answer(),
            State::Down(since) => self.monitor.record_unanswered(Some(*since)),
            State::Gone(why) => {
                self.monitor.record_answer();
                self.monitor.record_error(Direction::Read, &gone(why));
            }
        }
        {
            let mut current = lock(&self.state);
            if matches!(*current, State::Gone(_)) {
                return;
            }
            *current = state;
        }
        self.changed.notify_all();
        lock(&self.wakers).iter().for_each(Waker::wake);
    }

    /// Gives the drive up for ever.
    pub(crate) fn give_up(&self, why: String) {
        self.set_state(State::Gone(why));
        self.ring();
    }

    /// The session; or the error of a transfer that begins now.
    pub(crate) fn session(&self) -> io::Result<Arc<Session>> {
        match &*lock(&self.state) {
            State::Up(session) if !session.is_over() => Ok(Arc::clone(session)),
            State::Up(_) => Err(unanswered()),
            State::Down(since) => Err(down(*since)),
            State::Gone(why) => Err(gone(why)),
        }
    }

    /// How long a transfer that begins now may wait for sessions; `None` for as long as it takes.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.is_timed().then(|| Instant::now() + RETRIES)
    }

    /// The session, which is waited for, no longer than to `end`.
    pub(crate) fn await_session(&self, end: Option<Instant>) -> io::Result<Arc<Session>> {
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Up(session) if !session.is_over() => return Ok(Arc::clone(session)),
                State::Gone(why) => return Err(gone(why)),
                State::Down(since) if since.elapsed() >= LOSS => return Err(down(*since)),
                _ if self.is_closing() => return Err(unanswered()),
                _ => {}
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(unanswered());
            }
            let nap = left.map_or(NAP, |left| left.min(NAP));
            let waited = self.changed.wait_timeout(state, nap);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A worker may have a queue of its own.
    pub(crate) fn take_queue(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        self.queues_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    pub(crate) fn give_queue(&self) {
        self.queues_left.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_waker(&self, waker: Waker) {
        lock(&self.wakers).push(waker);
    }

    pub(crate) fn remove_waker(&self, waker: &Waker) {
        lock(&self.wakers).retain(|other| !other.is_same(waker));
    }

    pub(crate) fn ask(&self, request: Request) {
        lock(&self.requests).push(request);
        self.ring();
    }

    pub(crate) fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut *lock(&self.requests))
    }

    /// Has the keeper look around.
    pub(crate) fn ring(&self) {
        self.bell.signal();
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(crate) fn quiet(&self) {
        self.bell.clear();
    }

    pub(crate) fn begin_timing(&self) {
        self.is_timed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_closing(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.ring();
        self.changed.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }
}

/// The error of a transfer while there is no session since `since`.
fn down(since: Instant) -> io::Error {
    if since.elapsed() < LOSS {
        return unanswered();
    }
    gone(&format!("not reached for {} s", LOSS.as_secs()))
}

fn gone(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, why.to_owned())
}
