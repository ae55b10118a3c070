//! One thread, its connections, and the loop that serves them.

mod clients;
mod operations;

use super::buffers::Buffers;
use super::chunks::Outcome;
use super::connection::{Connection, HOLD, Turn};
use super::context::{Context, Held};
use super::listener::Listener;
use super::pending::Waiter;
use super::poll::Poll;
use super::shared::Shared;
use super::slab::{Id, Slab};
use super::turns::Turns;
use super::udp::UdpPorts;
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_cache::Intent;
use terrace_device::{TICK, ticks};
use terrace_runtime::limits::Limits;
use terrace_runtime::reads::{Finished, Reads};
use tracing::warn;

/// Numbers in the epoll set that are no connection's (see [`Slab`]).
const INBOX: u64 = u64::MAX;
const READS: u64 = u64::MAX - 1;
/// The sockets for datagrams, from here downwards.
const UDP: u64 = u64::MAX - 2;
/// More than there are listeners.
const UDP_PORTS_MAX: u64 = 1 << 20;

/// After this, what the cache had no buffers for is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// How often idle connections are looked for.
const IDLE_SWEEP: Duration = Duration::from_secs(1);
/// Connections whose requests are received before the first of them is executed: enough for what they need of memory
/// to come meanwhile, and few enough that the first does not wait long for the others to be received.
const TOGETHER: usize = 6;
/// What a stopping server waits for unfinished operations, at most.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A worker thread's state.
pub(crate) struct Worker {
    index: usize,
    poll: Poll,
    connections: Slab<Connection>,
    cx: Context,
    /// Connections that are to have a turn.
    ready: Turns,
    /// When the oldest of `cx.waiting` began to wait.
    waiting_since: Option<Instant>,
    /// Reads that came back and are to be looked at, in this loop or the next.
    finished: VecDeque<Finished<Id>>,
    /// Reused between loops.
    outcomes: Vec<Outcome>,
    reply: Vec<u8>,
    swept_at: u32,
    udp: UdpPorts,
}

impl Worker {
    /// To be called on the worker's own thread.
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        udp: Vec<Arc<Listener>>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        for (number, port) in (0..UDP_PORTS_MAX).zip(&udp) {
            poll.add_event(&**port, UDP - number)?;
        }
        poll.add_event(shared.inboxes[index].waker().fd(), INBOX)?;
        let stats = Arc::clone(&shared.workers[index]);
        let engine = shared.settings.io_engine;
        let workers = shared.settings.threads.max(1);
        let knee = |tier: usize| shared.settings.tiers.get(tier).and_then(|tier| tier.read_depth);
        let reads = Reads::open(&shared.drives, engine, workers, knee, Arc::clone(&stats.latency))?;
        if let (0, Some(reason)) = (index, reads.fallback()) {
            warn!("reading with threads, since io_uring can't be had: {reason}");
        }
        poll.add_event(reads.event_fd(), READS)?;
        let shared_allowance = shared.memory.allowance();
        let cx = Context {
            session: shared.cache.session(),
            limits: Limits::of(&shared.cache),
            now: shared.clock.now(),
            moment: None,
            worker: index,
            stats,
            reads,
            shared,
            pending: Slab::new(),
            spare: Vec::new(),
            lost: Vec::new(),
            waiting: Vec::new(),
            held: VecDeque::new(),
            watching: Vec::new(),
            buffers: Buffers::of(workers),
            runs: Default::default(),
            ledger: Default::default(),
            owed_max: shared_allowance,
            let_in: None,
            stream_bytes: 0,
            begun: Vec::new(),
        };
        let udp = UdpPorts::new(udp, cx.shared.settings.public_udp);
        Ok(Self {
            index,
            poll,
            connections: Slab::new(),
            swept_at: cx.now,
            cx,
            ready: Turns::default(),
            waiting_since: None,
            finished: VecDeque::new(),
            outcomes: Vec::new(),
            reply: Vec::new(),
            udp,
        })
    }

    /// Serves until the server stops.
    ///
    /// # Errors
    /// The system refuses what a worker can't do without; the server can't go on.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut stopping_since = None;
        loop {
            if self.cx.shared.is_stopping() {
                let since = *stopping_since.get_or_insert_with(Instant::now);
                if self.cx.pending.len() == 0 || since.elapsed() > STOP_PATIENCE {
                    return Ok(());
                }
            }
            self.run_once()?;
        }
    }

    fn run_once(&mut self) -> io::Result<()> {
        self.wait()?;
        self.cx.shared.naps.note_activity();
        self.cx.now = self.cx.shared.clock.now();
        self.cx.moment = None;
        self.cx.owed_max = self.cx.shared.memory.allowance();
        if self.cx.is_tight() {
            self.cx.owed_max = self.cx.shared.memory.judge();
        }
        self.cx.shared.flush.run_if_due(&self.cx.shared.cache, self.cx.now);
        self.take_events();
        self.welcome_datagrams();
        self.cx.reads.give_up_late(ticks());
        if self.cx.reads.take_new_event() {
            self.poll.add_event(self.cx.reads.event_fd(), READS)?;
        }
        if self.cx.reads.is_busy() || !self.finished.is_empty() {
            self.finish_reads()?;
        }
        self.retry_waiting();
        self.release_held();
        self.serve()?;
        if !self.cx.waiting.is_empty() {
            self.waiting_since.get_or_insert_with(Instant::now);
        }
        self.forget_lost();
        self.close_idle();
        if self.cx.reads.is_busy() { self.hand_over_reads() } else { Ok(()) }
    }

    fn wait(&mut self) -> io::Result<()> {
        let is_due = |held: &Held| held.has_prompt || self.cx.reads.has_slack();
        if self.cx.held.iter().any(is_due) && self.finished.is_empty() && self.ready.is_empty() {
            self.release_idly()?;
            if self.poll.len() > 0 || !self.ready.is_empty() {
                return Ok(());
            }
        }
        let is_ready =
            !self.ready.is_empty() || !self.finished.is_empty() || self.cx.reads.has_given_up();
        let timeout = if is_ready || self.has_more_datagrams() {
            Some(Duration::ZERO)
        } else if self.is_anything_late() {
            Some(RETRY_AFTER)
        } else if self.cx.reads.is_busy() {
            // A drive that does not answer must not silence the worker too.
            Some(TICK)
        } else if self.cx.shared.settings.idle_timeout_s > 0 {
            Some(IDLE_SWEEP)
        } else {
            None
        };
        if timeout == Some(Duration::ZERO) {
            self.cx.session.quiesce();
        } else {
            self.cx.session.park();
        }
        self.poll.wait(timeout)
    }

    /// Whether something is to be looked at again soon, whatever happens.
    fn is_anything_late(&self) -> bool {
        self.waiting_since.is_some() || !self.cx.held.is_empty() || self.cx.shared.is_stopping()
    }

    /// Has connections send what they hold back, if there is nothing else to do. While drives have about as many reads
    /// as they take, what they bring waits for more of its kind, and only what was found in DRAM is sent: there
    /// the kernel's time is short, and a request waits for its read all the longer anyway.
    fn release_idly(&mut self) -> io::Result<()> {
        self.cx.session.quiesce();
        self.poll.wait(Some(Duration::ZERO))?;
        if self.poll.len() > 0 {
            return Ok(());
        }
        let has_slack = self.cx.reads.has_slack();
        for held in self.cx.held.iter_mut().filter(|held| held.has_prompt || has_slack) {
            held.has_prompt = false;
            if let Some(connection) = self.connections.get_mut(held.id)
                && connection.release()
            {
                self.ready.add(connection);
            }
        }
        if has_slack {
            self.cx.held.clear();
        }
        Ok(())
    }

    /// Has connections send that have held replies back for long enough.
    fn release_held(&mut self) {
        while let Some(&Held { id, since, .. }) = self.cx.held.front()
            && since.elapsed() >= HOLD
        {
            self.cx.held.pop_front();
            if let Some(connection) = self.connections.get_mut(id)
                && connection.held_since == Some(since)
            {
                self.ready.add(connection);
            }
        }
    }

    fn take_events(&mut self) {
        for at in 0..self.poll.len() {
            let ready = self.poll.ready(at);
            match ready.number {
                INBOX => {
                    self.welcome();
                    self.wake_watching();
                    if self.cx.shared.inboxes[self.index].is_asked_for_memory() {
                        self.cx.give_memory_back();
                        self.relieve();
                    }
                }
                READS => {}
                number if number > UDP - UDP_PORTS_MAX => self.udp.note((UDP - number) as usize),
                number => {
                    let id = Id::from_u64(number);
                    let Some(connection) = self.connections.get_mut(id) else { continue };
                    if ready.broke && connection.is_held(&self.cx) {
                        // It is owed so much that it does not receive, and nobody will read it.
                        self.close(id, false);
                    } else {
                        connection.note(ready);
                        self.ready.add(connection);
                    }
                }
            }
        }
    }

    /// Gives every ready connection a turn.
    fn serve(&mut self) -> io::Result<()> {
        let mut left = self.ready.short().len();
        while left > 0 {
            let together = left.min(TOGETHER);
            if together > 1 {
                self.look_ahead(together);
            }
            for _ in 0..together {
                self.refill()?;
                if let Some(id) = self.ready.next_short() {
                    self.give_turn(id);
                }
            }
            left -= together;
        }
        if self.ready.are_long() { self.serve_long() } else { Ok(()) }
    }

    /// Gives connections long turns, until it is time to look for others.
    #[inline(never)]
    fn serve_long(&mut self) -> io::Result<()> {
        let since = Instant::now();
        while let Some(id) = self.ready.next_long(since) {
            self.refill()?;
            self.give_turn(id);
        }
        Ok(())
    }

    /// Asks for what so many connections will need of memory.
    fn look_ahead(&mut self, connections: usize) {
        let mut keys = ArrayVec::<_, TOGETHER>::new();
        for id in self.ready.short().iter().take(connections) {
            let Some(connection) = self.connections.get_mut(*id) else { continue };
            keys.extend(connection.look_ahead(&mut self.cx));
        }
        self.cx.session.look_ahead(keys.into_iter().map(|key| (key, Intent::Read)));
    }

    /// Of two callers, which would keep it from being inlined into the one that has every short turn.
    #[inline(always)]
    fn give_turn(&mut self, id: Id) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.is_ready = false;
        self.cx.moment = None;
        match connection.turn(&mut self.cx) {
            Turn::Idle => {}
            Turn::More => self.ready.add(connection),
            Turn::Wait => {
                self.cx.waiting.push(Waiter::Connection(id));
                self.wait_for_buffers();
            }
            Turn::Throttled => self.wait_for_throttle(id),
            Turn::Close => self.close(id, false),
        }
    }
}
