//! A thread that serves connections: it receives, executes or hands on, and answers, in turns.

use crate::link::{Link, Phase, Sent, Token, Turn};
use crate::shared::{Item, Shared};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{Done, Drive, Engine, ReadQueue, WorkerQueue};

/// Bytes that are received at once, besides data that have a place already.
const SCRATCH_BYTES: usize = 128 << 10;
/// Reads of files and devices that a loop has under way.
const READ_DEPTH: u32 = 256;
/// Events of one turn.
const EVENTS: usize = 64;
/// How often all connections are looked at while there are any.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A connection that holds buffers for which another one waits must move a byte within this time.
const STALL_PATIENCE: Duration = Duration::from_secs(10);
/// How long commands under way may take at the end.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// After this time of silence the kernel asks whether a host is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// What an event of the kernel is for.
#[derive(Clone, Copy)]
enum Source {
    Wake,
    Reads,
    Listener(usize),
    Link(usize),
}

impl Source {
    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Wake => 0,
            Self::Reads => 1,
            Self::Listener(number) => 2 << 32 | number as u64,
            Self::Link(number) => 3 << 32 | number as u64,
        })
    }

    fn of(data: EventData) -> Self {
        let number = data.u64() as u32 as usize;
        match data.u64() >> 32 {
            2 => Self::Listener(number),
            3 => Self::Link(number),
            _ if data.u64() == 1 => Self::Reads,
            _ => Self::Wake,
        }
    }
}

/// A connection, and what the kernel reports of it.
struct Member {
    link: Link,
    interest: EventFlags,
    is_dirty: bool,
    /// Whether it is listed as one that waits for a buffer.
    is_hungry: bool,
}

pub(crate) struct EventLoop {
    poll: OwnedFd,
    turn: Turn,
    /// By number.
    members: Vec<Option<Member>>,
    free: Vec<usize>,
    /// Of the first loop, until the export stops or has no descriptor left.
    listeners: Vec<TcpListener>,
    scratch: Box<[u8]>,
    /// Connections that have something to send, or whose state has changed.
    dirty: Vec<usize>,
    /// Connections that wait for a buffer.
    hungry: Vec<usize>,
    /// Whether a connection waits for writes of other hosts.
    awaits: bool,
    /// When all connections are looked at again, and when the first of their deadlines is.
    look_at: Instant,
    started: Instant,
    stops_at: Option<Instant>,
}

impl EventLoop {
    /// The loop with this number. Must be called on its own thread.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        number: usize,
        listeners: Vec<TcpListener>,
    ) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &*shared.events[number], Source::Wake.data(), EventFlags::IN)?;
        for (at, listener) in listeners.iter().enumerate() {
            epoll::add(&poll, listener, Source::Listener(at).data(), EventFlags::IN)?;
        }
        let queued = shared.exported.iter().filter(|one| one.queue_number.is_some());
        let drives: Vec<Arc<dyn Drive>> = queued.map(|one| Arc::clone(&one.medium.drive)).collect();
        let reads = match drives.is_empty() {
            true => None,
            false => Some(WorkerQueue::open(&drives, Engine::Auto, READ_DEPTH)?),
        };
        if let Some(reads) = &reads {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&poll, reads.event_fd(), Source::Reads.data(), flags)?;
        }
        let now = Instant::now();
        let turn = Turn {
            shared: Arc::clone(shared),
            number,
            inbox: Arc::clone(&shared.inboxes[number]),
            reads,
            now,
            operations: Vec::new(),
            over: Vec::new(),
            changes: 0,
            sweeps: false,
        };
        Ok(Self {
            poll,
            turn,
            members: Vec::new(),
            free: Vec::new(),
            listeners,
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            dirty: Vec::new(),
            hungry: Vec::new(),
            awaits: false,
            look_at: now + LOOK_EVERY,
            started: now,
            stops_at: None,
        })
    }

    /// Serves until the export stops.
    ///
    /// # Errors
    /// The kernel refuses to wait for events, or to read.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.turn.shared);
        let mut events = Vec::with_capacity(EVENTS);
        let (mut items, mut done) = (Vec::new(), Vec::new());
        loop {
            self.wait(&mut events)?;
            self.turn.now = Instant::now();
            for event in events.drain(..) {
                match Source::of(event.data) {
                    Source::Wake => self.woken(&mut items),
                    Source::Reads => {}
                    Source::Listener(number) => self.accept(number),
                    Source::Link(number) => self.ready(number, event.flags),
                }
            }
            self.reap(&mut done);
            if self.turn.now >= self.look_at {
                self.look();
            }
            self.send();
            if std::mem::take(&mut self.turn.sweeps) {
                shared.sweep();
            }
            if shared.must_sweep(self.turn.number) {
                self.sweep();
                self.send();
            }
            if let Some(reads) = &mut self.turn.reads {
                reads.flush()?;
            }
            if shared.is_stopping() && self.is_stopped() {
                return Ok(());
            }
        }
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let is_empty = self.free.len() == self.members.len() && self.stops_at.is_none();
        let is_listening = self.turn.number != 0 || !self.listeners.is_empty();
        let left = self.look_at.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok().filter(|_| !is_empty || !is_listening);
        match epoll::wait(&self.poll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes what other threads have for this one.
    fn woken(&mut self, items: &mut Vec<Item>) {
        let shared = Arc::clone(&self.turn.shared);
        shared.events[self.turn.number].clear();
        self.turn.inbox.take(items);
        let mut target = shared.target();
        let mut has_finished = false;
        for item in items.iter() {
            if let Item::Finished(one) = item
                && let Some(member) = self.members.get_mut(one.caller.link).and_then(Option::as_mut)
            {
                member.link.complete(one.caller.tag, one.status, &mut target);
                has_finished = true;
            }
        }
        drop(target);
        if has_finished {
            shared.writes_ended();
        }
        for item in items.drain(..) {
            match item {
                Item::Link(socket, peer) => self.add(socket, peer),
                Item::Finished(one) => self.mark(one.caller.link),
            }
        }
        self.complete_awaiting();
        for number in std::mem::take(&mut self.hungry) {
            let Some(member) = &mut self.members[number] else { continue };
            member.is_hungry = false;
            member.link.retry(&mut self.turn, number);
            self.mark(number);
        }
    }

    fn complete_awaiting(&mut self) {
        if !self.awaits {
            return;
        }
        let shared = Arc::clone(&self.turn.shared);
        let mut target = shared.target();
        self.awaits = false;
        for number in 0..self.members.len() {
            let Some(member) = self.members[number].as_mut().filter(|one| one.link.awaits()) else {
                continue;
            };
            self.awaits |= member.link.complete_awaiting(&mut target);
            self.mark(number);
        }
        shared.set_awaiting(self.turn.number, self.awaits);
    }

    /// A socket is ready.
    fn ready(&mut self, number: usize, flags: EventFlags) {
        let Some(Some(member)) = self.members.get_mut(number) else { return };
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
            && (member.interest.contains(EventFlags::IN) || !flags.contains(EventFlags::IN))
        {
            match member.link.receive(&mut self.scratch, &mut self.turn, number) {
                Ok(true) => {}
                Ok(false) | Err(_) => member.link.close(&mut self.turn),
            }
        }
        self.mark(number);
    }

    /// Has a connection looked at before the turn ends.
    fn mark(&mut self, number: usize) {
        let Some(Some(member)) = self.members.get_mut(number) else { return };
        self.awaits |= member.link.awaits();
        if !std::mem::replace(&mut member.is_dirty, true) {
            self.dirty.push(number);
        }
    }

    /// Completes reads that drives have made.
    fn reap(&mut self, done: &mut Vec<Done>) {
        let Some(reads) = &mut self.turn.reads else { return };
        reads.reap(done);
        if done.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.turn.shared);
        let mut target = shared.target();
        for one in done.drain(..) {
            let number = Token::from_number(one.token).link;
            if let Some(Some(member)) = self.members.get_mut(number) {
                member.link.complete_read(one, &shared, &mut target);
            }
            self.mark(number);
        }
    }

    /// Sends what there is to send, and follows what became of connections.
    fn send(&mut self) {
        // Closing one may mark another.
        while let Some(number) = self.dirty.pop() {
            let Some(member) = &mut self.members[number] else { continue };
            member.is_dirty = false;
            let is_closed = member.link.phase == Phase::Closed;
            let sent =
                if is_closed { Ok(Sent::All) } else { member.link.send(&mut self.turn, number) };
            if sent.is_err() {
                member.link.close(&mut self.turn);
            }
            self.follow(number, sent.unwrap_or(Sent::All));
        }
    }

    /// Has the kernel report what is of interest, and forgets a connection that is over.
    fn follow(&mut self, number: usize, sent: Sent) {
        let Some(member) = &mut self.members[number] else { return };
        if member.link.is_over() {
            self.members[number] = None;
            self.free.push(number);
            return;
        }
        let Some(socket) = member.link.socket() else { return };
        let receives = !member.link.is_paused() && self.stops_at.is_none();
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, receives);
        interest.set(EventFlags::OUT, sent == Sent::Blocked);
        if interest != member.interest {
            member.interest = interest;
            // It fails only if the kernel has no memory; the connection then ends by its deadline.
            let _ = epoll::modify(&self.poll, socket, Source::Link(number).data(), interest);
        }
        if member.link.is_hungry() && !std::mem::replace(&mut member.is_hungry, true) {
            self.hungry.push(number);
        }
        if let Some(deadline) = member.link.deadline() {
            self.look_at = self.look_at.min(deadline);
        }
    }

    /// Accepts connections, which go to all loops in turn.
    fn accept(&mut self, number: usize) {
        let shared = Arc::clone(&self.turn.shared);
        while let Some(listener) = self.listeners.get(number) {
            let (socket, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The host has gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    shared.log.warn(format!(
                        "new connections wait: {error}; raise the limit of open files (ulimit -n)"
                    ));
                    let _ = epoll::delete(&self.poll, listener);
                    return;
                }
            };
            shared.counters.accepted.add(1);
            if shared.counters.open.get() >= shared.limits.connections as u64 {
                shared.counters.rejected.add(1);
                continue;
            }
            if prepare(&socket).is_err() {
                continue;
            }
            shared.counters.open.add(1);
            shared.counters.half_open.add(1);
            let next = shared.counters.accepted.get() as usize % shared.inboxes.len();
            match next == self.turn.number {
                true => self.add(socket, peer),
                false => shared.inboxes[next].push(Item::Link(socket, peer)),
            }
        }
    }

    fn add(&mut self, socket: TcpStream, peer: SocketAddr) {
        self.evict_half_open();
        let number = self.free.pop().unwrap_or(self.members.len());
        if number == self.members.len() {
            self.members.push(None);
        }
        let interest = EventFlags::IN;
        let added = epoll::add(&self.poll, &socket, Source::Link(number).data(), interest);
        let mut link = Link::new(socket, peer, self.turn.now);
        if added.is_err() || self.stops_at.is_some() {
            link.close(&mut self.turn);
        }
        self.members[number] = Some(Member { link, interest, is_dirty: false, is_hungry: false });
        self.mark(number);
    }

    /// Makes room for another connection without a queue: closes the oldest one, if there are as many as may be.
    fn evict_half_open(&mut self) {
        let half_open = |(number, member): (usize, &Option<Member>)| {
            let link = member.as_ref().map(|member| &member.link)?;
            (link.phase == Phase::HalfOpen).then(|| (link.deadline(), number))
        };
        let half_open: Vec<_> = self.members.iter().enumerate().filter_map(half_open).collect();
        if half_open.len() < self.turn.shared.limits.half_open {
            return;
        }
        if let Some(&(_, number)) = half_open.iter().min()
            && let Some(member) = &mut self.members[number]
        {
            member.link.close(&mut self.turn);
            self.mark(number);
        }
    }

    /// Looks at all connections: closes those whose time is over, and finds when to look again.
    fn look(&mut self) {
        let now = self.turn.now;
        let shared = Arc::clone(&self.turn.shared);
        self.look_at = now + LOOK_EVERY;
        let is_short = shared.pool.is_short();
        for number in 0..self.members.len() {
            let Some(member) = &mut self.members[number] else { continue };
            let link = &mut member.link;
            let is_stalled = is_short && link.holds_buffers() && now >= link.moved + STALL_PATIENCE;
            if link.deadline().is_some_and(|deadline| now >= deadline) {
                if link.phase == Phase::Serving {
                    shared.counters.keep_alive_timeouts.add(1);
                }
                link.close(&mut self.turn);
            } else if is_stalled {
                shared.counters.stalled.add(1);
                link.close(&mut self.turn);
            }
            self.mark(number);
        }
        if self.turn.number == 0 {
            shared.pool.trim();
            // Those that wait for a descriptor may have one now; the kernel has the rest already.
            for (at, listener) in self.listeners.iter().enumerate() {
                let _ =
                    epoll::add(&self.poll, listener, Source::Listener(at).data(), EventFlags::IN);
            }
        }
        if let Some(reads) = &mut self.turn.reads {
            reads.give_up_late(now.duration_since(self.started).as_secs() as u32);
        }
    }

    /// Looks whether controllers are still there, and tells hosts what they want to know.
    fn sweep(&mut self) {
        for number in 0..self.members.len() {
            let Some(member) = &mut self.members[number] else { continue };
            member.link.look(&mut self.turn);
            self.mark(number);
        }
    }

    /// Takes nothing more, closes connections whose commands are over, and returns whether none is left or the time for
    /// that is.
    fn is_stopped(&mut self) -> bool {
        let now = self.turn.now;
        let stops_at = *self.stops_at.get_or_insert(now + STOP_PATIENCE);
        self.listeners.clear();
        self.look_at = self.look_at.min(stops_at);
        for number in 0..self.members.len() {
            let Some(member) = &mut self.members[number] else { continue };
            if member.link.is_idle() {
                member.link.close(&mut self.turn);
            }
            self.mark(number);
        }
        self.send();
        now >= stops_at || self.members.iter().all(Option::is_none)
    }
}

/// Readies a new socket.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))
}
