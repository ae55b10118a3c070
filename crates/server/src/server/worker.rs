//! One thread, its connections, and the loop that serves them.

use super::clients::Client;
use super::connection::{Connection, Turn};
use super::context::Context;
use super::listener::Listener;
use super::pending::{Answer, Pending, Waiter};
use super::poll::{Poll, Ready};
use super::reads::{Finished, Reads};
use super::shared::Shared;
use super::slab::{Id, Slab};
use super::socket::Socket;
use super::udp::UdpPorts;
use crate::commands::executor::{Limits, Unfinished};
use crate::settings::IoEngine;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_cache::Checked;
use terrace_device::{AlignedBuf, Depth, Device, Engine};

/// Numbers in the epoll set that are no connection's (see [`Slab`]).
const INBOX: u64 = u64::MAX;
const READS: u64 = u64::MAX - 1;
/// The sockets for datagrams, from here downwards.
const UDP: u64 = u64::MAX - 2;
/// More than there are listeners.
const UDP_PORTS_MAX: u64 = 1 << 20;

/// Reads that the drives work on at once, for one worker.
const READ_DEPTH: u32 = 128;
/// After this, what the cache had no buffers for is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// How often idle connections are looked for.
const IDLE_SWEEP: Duration = Duration::from_secs(1);
/// What a stopping server waits for unfinished operations, at most.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A worker thread's state.
pub(crate) struct Worker {
    index: usize,
    poll: Poll,
    connections: Slab<Connection>,
    cx: Context,
    devices: Vec<Arc<dyn Device>>,
    /// What reads them.
    engine: Engine,
    /// Connections that get a turn in this loop.
    ready: VecDeque<Id>,
    /// When the oldest of `cx.waiting` began to wait.
    waiting_since: Option<Instant>,
    /// Reused between loops.
    finished: Vec<Finished>,
    reply: Vec<u8>,
    swept_at: u32,
    udp: UdpPorts,
}

impl Worker {
    /// To be called on the worker's own thread.
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        devices: &[Arc<dyn Device>],
        udp: Vec<Arc<Listener>>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        for (number, port) in (0..UDP_PORTS_MAX).zip(&udp) {
            poll.add_event(&**port, UDP - number)?;
        }
        poll.add_event(shared.inboxes[index].waker().fd(), INBOX)?;
        let stats = Arc::clone(&shared.workers[index]);
        let engine = match shared.settings.io_engine {
            IoEngine::Auto => Engine::Auto,
            IoEngine::IoUring => Engine::IoUring,
            IoEngine::Pool => Engine::Pool,
        };
        let opened = terrace_device::open_queue(devices, engine, READ_DEPTH)?;
        if let (0, Some(reason)) = (index, opened.fallback) {
            shared
                .log(0, || format!("reading with threads, since io_uring can't be had: {reason}"));
        }
        // A drive's knee is shared by those who read from it.
        let workers = shared.settings.threads.max(1);
        let depth = |knee: u32| Depth::new(knee.div_ceil(workers), READ_DEPTH);
        let knee = |tier: usize| shared.settings.tiers.get(tier).and_then(|tier| tier.read_depth);
        let depths = (0..devices.len()).map(|tier| knee(tier).map(depth));
        let reads = Reads::new(opened.queue, Arc::clone(&stats.latency), depths);
        poll.add_event(reads.event_fd(), READS)?;
        let cx = Context {
            session: shared.cache.session(),
            limits: Limits::of(&shared.cache),
            now: shared.clock.now(),
            worker: index,
            stats,
            reads,
            shared,
            pending: Slab::new(),
            waiting: Vec::new(),
            watching: Vec::new(),
            buffers: Default::default(),
        };
        Ok(Self {
            index,
            poll,
            devices: devices.to_vec(),
            engine: opened.engine,
            connections: Slab::new(),
            swept_at: cx.now,
            cx,
            ready: VecDeque::new(),
            waiting_since: None,
            finished: Vec::new(),
            reply: Vec::new(),
            udp: UdpPorts::new(udp),
        })
    }

    /// Serves until the server stops.
    pub(crate) fn run(mut self) {
        let mut stopping_since = None;
        loop {
            if self.cx.shared.is_stopping() {
                let since = *stopping_since.get_or_insert_with(Instant::now);
                if self.cx.pending.len() == 0 || since.elapsed() > STOP_PATIENCE {
                    return;
                }
            }
            if let Err(error) = self.run_once() {
                eprintln!("worker {}: {error}", self.index);
                self.cx.shared.stop();
                return;
            }
        }
    }

    fn run_once(&mut self) -> io::Result<()> {
        self.wait()?;
        self.cx.now = self.cx.shared.clock.now();
        self.cx.shared.flush.run_if_due(&self.cx.shared.cache, self.cx.now);
        self.take_events();
        self.welcome_datagrams();
        self.finish_reads();
        self.retry_waiting();
        self.serve();
        self.close_idle();
        self.cx.reads.flush().or_else(|error| self.read_with_threads(error))
    }

    /// The system refuses io_uring after all, such as by a filter of system calls that came later or
    /// lets rings be made and not be used: threads take over.
    fn read_with_threads(&mut self, error: io::Error) -> io::Result<()> {
        if self.engine == Engine::Pool {
            return Err(error);
        }
        let opened = terrace_device::open_queue(&self.devices, Engine::Pool, READ_DEPTH)?;
        self.engine = opened.engine;
        self.cx.reads.move_to(opened.queue);
        self.poll.add_event(self.cx.reads.event_fd(), READS)?;
        eprintln!("worker {}: reading with threads, since io_uring fails: {error}", self.index);
        self.cx.reads.flush()
    }

    fn wait(&mut self) -> io::Result<()> {
        let timeout = if !self.ready.is_empty() || self.udp.has_more() {
            Some(Duration::ZERO)
        } else if self.waiting_since.is_some() || self.cx.shared.is_stopping() {
            Some(RETRY_AFTER)
        } else if self.cx.shared.settings.idle_timeout_s > 0 || self.cx.reads.is_busy() {
            // A drive whose completion got lost must not silence the worker too.
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

    fn take_events(&mut self) {
        for at in 0..self.poll.len() {
            let ready = self.poll.ready(at);
            match ready.number {
                INBOX => {
                    self.welcome();
                    self.wake_watching();
                }
                READS => {}
                number if number > UDP - UDP_PORTS_MAX => self.udp.note((UDP - number) as usize),
                number => {
                    let id = Id::from_u64(number);
                    if let Some(connection) = self.connections.get_mut(id) {
                        connection.note(ready);
                        mark_ready(&mut self.ready, connection, id);
                    }
                }
            }
        }
    }

    /// Takes new connections in.
    fn welcome(&mut self) {
        let inbox = &self.cx.shared.inboxes[self.index];
        inbox.waker().clear();
        for arrival in inbox.take() {
            let entry = Arc::clone(&arrival.entry);
            let socket = match self.cx.shared.socket(arrival) {
                Ok(socket) => socket,
                Err(error) => {
                    self.cx.shared.log(1, || format!("{}: {error}", entry.name));
                    self.cx.shared.closed_connection();
                    continue;
                }
            };
            let client = self.cx.shared.clients.add(socket.fd(), entry, self.cx.now);
            self.cx.shared.watchers.tell_opened(socket.fd().as_raw_fd(), &client);
            let connection = Connection::new(socket, client, &self.cx.shared.settings);
            let id = self.connections.insert(connection);
            let Some(connection) = self.connections.get_mut(id) else { continue };
            if let Err(error) = self.poll.add(connection.socket(), id.to_u64()) {
                self.cx.shared.log(1, || format!("a connection can't be watched: {error}"));
                self.close(id, false);
                continue;
            }
            self.cx.shared.log(2, || format!("<{} new client connection", connection.number()));
        }
    }

    /// Gives those who watch a turn: there may be something to tell them.
    fn wake_watching(&mut self) {
        let Self { connections, ready, cx, .. } = self;
        cx.watching.retain(|&id| {
            let connection = connections.get_mut(id);
            connection.is_some_and(|connection| {
                mark_ready(ready, connection, id);
                true
            })
        });
    }

    /// Takes requests in datagrams in.
    fn welcome_datagrams(&mut self) {
        if !self.udp.has_more() {
            return;
        }
        for datagram in self.udp.receive() {
            let entry = Arc::clone(datagram.port().entry());
            let socket = Socket::Datagram(Box::new(datagram));
            let client = Arc::new(Client::new(socket.fd(), entry, self.cx.now));
            let mut connection = Connection::new(socket, client, &self.cx.shared.settings);
            connection.note(Ready { number: 0, readable: true, hung_up: true });
            let id = self.connections.insert(connection);
            if let Some(connection) = self.connections.get_mut(id) {
                mark_ready(&mut self.ready, connection, id);
            }
        }
    }

    /// Goes on with the operations whose reads came back.
    fn finish_reads(&mut self) {
        if !self.cx.reads.is_busy() {
            return;
        }
        let mut finished = std::mem::take(&mut self.finished);
        self.cx.reads.reap(&mut finished);
        for read in finished.drain(..) {
            self.finish_read(read);
        }
        self.finished = finished;
    }

    fn finish_read(&mut self, mut read: Finished) {
        let cx = &mut self.cx;
        let Some(mut operation) = cx.pending.remove(read.operation) else {
            cx.reads.release(read.buffer);
            return;
        };
        let Some(probe) = operation.probe.as_mut() else { return };
        let mut name = [0; 12];
        let key = operation.work.key(&cx.session, &mut name);
        let bytes = read.result.map(|()| &mut read.buffer[..]);
        match cx.session.check(probe, key, bytes) {
            Checked::Match | Checked::Absent => self.resume(operation, Some(read.buffer)),
            Checked::Restart => {
                cx.reads.release(read.buffer);
                self.resume(operation, None);
            }
            Checked::Read => {
                cx.reads.release(read.buffer);
                if let Some(probe) = operation.probe.take() {
                    cx.read_for(operation, probe);
                }
            }
        }
    }

    /// Executes an operation again; with what was read for it, if that can be used.
    fn resume(&mut self, mut operation: Box<Pending>, evidence: Option<AlignedBuf>) {
        self.reply.clear();
        let result = operation.execute(&self.cx.executor(), evidence.as_deref(), &mut self.reply);
        if let Err(Unfinished::Wait) = result {
            operation.evidence = evidence;
            self.wait_for_buffers();
            self.cx.retry_later(operation);
            return;
        }
        if let Some(buffer) = evidence {
            self.cx.reads.release(buffer);
        }
        match result {
            Ok(answer) => self.deliver(&operation, answer),
            Err(Unfinished::Read(probe)) => {
                self.cx.read_for(operation, probe);
            }
            Err(Unfinished::Wait) => {}
        }
    }

    /// Hands a result to the connection that asked, if it is still there.
    fn deliver(&mut self, operation: &Pending, answer: Answer) {
        if let (Some(probe), false) = (&operation.probe, matches!(answer, Answer::Chunk(_))) {
            let (tier, took) = (probe.plan().tier, operation.began.elapsed());
            self.cx.stats.latency.record_command(operation.command, tier, took);
        }
        if let Some(connection) = self.connections.get_mut(operation.connection) {
            if let (true, Some(key)) = (self.cx.shared.looks_at_commands(), operation.work.name()) {
                let (number, about) = (connection.number(), operation.about);
                self.cx.shared.tell_command(number, about, key, &self.reply);
            }
            connection.complete(operation, answer, &mut self.reply);
            mark_ready(&mut self.ready, connection, operation.connection);
        }
    }

    fn wait_for_buffers(&mut self) {
        if self.waiting_since.is_none() {
            self.waiting_since = Some(Instant::now());
            self.cx.shared.hurry_maintenance();
        }
    }

    /// Tries again what the cache had no buffers for.
    fn retry_waiting(&mut self) {
        if self.waiting_since.is_none_or(|since| since.elapsed() < RETRY_AFTER) {
            return;
        }
        self.waiting_since = None;
        for waiter in std::mem::take(&mut self.cx.waiting) {
            match waiter {
                Waiter::Operation(id) => {
                    if let Some(mut operation) = self.cx.pending.remove(id) {
                        let evidence = operation.evidence.take();
                        self.resume(operation, evidence);
                    }
                }
                Waiter::Connection(id) => {
                    if let Some(connection) = self.connections.get_mut(id) {
                        connection.stop_waiting();
                        mark_ready(&mut self.ready, connection, id);
                    }
                }
            }
        }
    }

    /// Gives every ready connection a turn.
    fn serve(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.is_ready = false;
            match connection.turn(id, &mut self.cx) {
                Turn::Idle => {}
                Turn::More => mark_ready(&mut self.ready, connection, id),
                Turn::Wait => {
                    self.cx.waiting.push(Waiter::Connection(id));
                    self.wait_for_buffers();
                }
                Turn::Close => self.close(id, false),
            }
        }
    }

    /// Operations of a closed connection go on: their client asked for them.
    fn close(&mut self, id: Id, is_idle: bool) {
        if let Some(connection) = self.connections.remove(id) {
            if connection.is_datagram() {
                self.udp.answered();
                connection.close(&mut self.cx, is_idle);
                return;
            }
            self.cx.shared.log(2, || format!("<{} connection closed", connection.number()));
            connection.close(&mut self.cx, is_idle);
            self.cx.shared.closed_connection();
        }
    }

    /// Closes connections that were silent for too long.
    fn close_idle(&mut self) {
        let timeout = self.cx.shared.settings.idle_timeout_s;
        if timeout == 0 || self.swept_at == self.cx.now {
            return;
        }
        self.swept_at = self.cx.now;
        let ids: Vec<Id> = self.connections.ids().collect();
        for id in ids {
            let now = self.cx.now;
            let is_idle = |c: &mut Connection| c.is_idle_since(now.saturating_sub(timeout));
            if self.connections.get_mut(id).is_some_and(is_idle) {
                self.cx.stats.counters.idle_kicks.add(1);
                self.close(id, true);
            }
        }
    }
}

fn mark_ready(ready: &mut VecDeque<Id>, connection: &mut Connection, id: Id) {
    if !connection.is_ready {
        connection.is_ready = true;
        ready.push_back(id);
    }
}
