//! Runs a plan: threads, each with its share of the connections.

use crate::connection::Connection;
use crate::plan::{End, Plan};
use crate::process::{Process, own_cpu_ns};
use crate::report::Report;
use crate::tally::Tally;
use crate::{LoadError, Values};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const EVENTS_MAX: usize = 64;
/// A server that answers nothing for so long has failed.
const SILENCE: Duration = Duration::from_secs(60);
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Runs `plan` to its end. `server` is the server's process, if it runs on this machine.
pub fn run(plan: &Plan, server: Option<&Process>) -> Result<Report, LoadError> {
    let values = Arc::new(Values::new(plan.value_bytes));
    let mut shares: Vec<Vec<Connection>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for part in 0..plan.connections {
        shares[part % plan.threads].push(Connection::open(plan, &values, part)?);
    }
    let before = (server.map(Process::usage), own_cpu_ns());
    let start = Instant::now();
    let tally = run_threads(plan, shares, start)?;
    let time = start.elapsed();
    let used = server.zip(before.0).map(|(server, before)| server.usage().since(&before));
    Ok(Report::new(plan, &tally, time, used, own_cpu_ns() - before.1))
}

fn run_threads(
    plan: &Plan,
    shares: Vec<Vec<Connection>>,
    start: Instant,
) -> Result<Tally, LoadError> {
    let answered = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let mut tally = Tally::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .into_iter()
            .filter(|connections| !connections.is_empty())
            .map(|connections| {
                let thread = Thread { connections, start, answered: &answered };
                scope.spawn(|| thread.run(plan.end))
            })
            .collect();
        if plan.progress {
            scope.spawn(|| tell_progress(plan, &answered, &over));
        }
        let mut result = Ok(());
        for thread in threads {
            match thread.join() {
                Ok(Ok(part)) => tally.add(part),
                Ok(Err(error)) => result = Err(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        over.store(true, Ordering::Relaxed);
        result
    })?;
    Ok(tally)
}

fn tell_progress(plan: &Plan, answered: &AtomicU64, over: &AtomicBool) {
    let mut told = Instant::now();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            eprintln!("  {:?}: {} requests", plan.workload, answered.load(Ordering::Relaxed));
        }
    }
}

struct Thread<'a> {
    connections: Vec<Connection>,
    start: Instant,
    answered: &'a AtomicU64,
}

impl Thread<'_> {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether this is an open loop: all connections are alike.
    fn is_paced(&self) -> bool {
        self.connections.first().is_some_and(Connection::is_paced)
    }

    /// Until the next request is due. The kernel's timeouts are too coarse below a millisecond: the
    /// last one is waited for awake.
    fn timeout(&self) -> Timespec {
        let paced = if self.is_paced() { &self.connections[..] } else { &[] };
        let due = paced.iter().filter_map(Connection::due).min();
        let wait = due.map_or(SECOND, |due| due.saturating_sub(self.now()).min(SECOND));
        Timespec { tv_sec: 0, tv_nsec: (wait / MILLISECOND * MILLISECOND).min(SECOND - 1) as i64 }
    }

    /// Sends what is due in an open loop; gives back how many connections have ended.
    fn send_due(&mut self, now: u64, poll: &OwnedFd) -> Result<usize, LoadError> {
        let mut ended = 0;
        if !self.is_paced() {
            return Ok(ended);
        }
        for (at, connection) in (0..).zip(&mut self.connections) {
            if !connection.is_watched {
                continue;
            }
            connection.send(now)?;
            ended += usize::from(watch(connection, at, poll)?);
        }
        Ok(ended)
    }

    fn run(mut self, end: End) -> Result<Tally, LoadError> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let now = self.now();
        for (at, connection) in self.connections.iter_mut().enumerate() {
            connection.send(now)?;
            connection.awaits_room = connection.has_unsent();
            let flags = interest(connection);
            epoll::add(&poll, connection.stream(), epoll::EventData::new_u64(at as u64), flags)?;
        }
        let mut running = self.connections.iter().filter(|c| !c.is_done()).count();
        let mut tally = Tally::new();
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut heard = now;
        while running > 0 {
            let timeout = self.timeout();
            match epoll::wait(&poll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = self.now();
            if events.is_empty() && now - heard > SILENCE.as_nanos() as u64 {
                return Err(LoadError::Silence(SILENCE.as_secs()));
            }
            if matches!(end, End::Time(time) if u128::from(now) > time.as_nanos()) {
                self.connections.iter_mut().for_each(Connection::stop);
            }
            let before = tally.requests;
            for event in events.drain(..) {
                heard = now;
                let (at, flags) = (event.data.u64(), event.flags);
                let connection = &mut self.connections[at as usize];
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP) {
                    connection.receive(now, &mut tally)?;
                }
                connection.send(now)?;
                running -= usize::from(watch(connection, at, &poll)?);
            }
            running -= self.send_due(now, &poll)?;
            self.answered.fetch_add(tally.requests - before, Ordering::Relaxed);
        }
        Ok(tally)
    }
}

/// Has the poller watch for what the connection waits for; gives back whether that is nothing any
/// more.
fn watch(connection: &mut Connection, at: u64, poll: &OwnedFd) -> Result<bool, LoadError> {
    if connection.is_done() {
        connection.is_watched = false;
        epoll::delete(poll, connection.stream())?;
        return Ok(true);
    }
    if connection.has_unsent() != connection.awaits_room {
        connection.awaits_room = connection.has_unsent();
        let (data, flags) = (epoll::EventData::new_u64(at), interest(connection));
        epoll::modify(poll, connection.stream(), data, flags)?;
    }
    Ok(false)
}

fn interest(connection: &Connection) -> epoll::EventFlags {
    match connection.awaits_room {
        true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        false => epoll::EventFlags::IN,
    }
}
