//! Runs a plan: threads, each with its share of the connections.

use crate::LoadError;
use crate::connection::Connection;
use crate::monitor::{self, Sample, Shared};
use crate::plan::{End, Plan};
use crate::process::Process;
use crate::records::Records;
use crate::report::Report;
use crate::slots::{Slots, Tallies};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const EVENTS_MAX: usize = 64;
/// A server that answers nothing for so long has failed.
const SILENCE: Duration = Duration::from_secs(60);

/// Runs `plan` to its end. `server` is the server's process, if it runs on this machine.
///
/// # Errors
/// The plan contradicts itself, or a connection fails: [`LoadError::Early`] where something was measured before.
pub fn run(plan: &Plan, server: Option<&Process>) -> Result<Report, LoadError> {
    plan.check()?;
    let records = Records::new(&plan.sizes);
    let mut shares: Vec<Vec<Connection>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for part in 0..plan.connections {
        shares[part % plan.threads].push(Connection::open(plan, &records, part)?);
    }
    let (tallies, samples, failure) = run_threads(plan, server, shares);
    let report = Report::new(plan, tallies, &samples);
    match failure {
        None => Ok(report),
        Some(why) if report.requests == 0 => Err(why),
        Some(why) => Err(LoadError::Early { why: Box::new(why), until: Box::new(report) }),
    }
}

/// What came back, what was used meanwhile, and what ended a thread early.
fn run_threads(
    plan: &Plan,
    server: Option<&Process>,
    shares: Vec<Vec<Connection>>,
) -> (Tallies, Vec<Sample>, Option<LoadError>) {
    let (start, shared) = (Instant::now(), Shared::default());
    let slots = Slots::of(plan);
    let samples = monitor::first(plan, server, start);
    std::thread::scope(|scope| {
        let monitor = scope.spawn(|| monitor::watch(plan, server, start, &shared, samples));
        let threads: Vec<_> = shares
            .into_iter()
            .filter(|connections| !connections.is_empty())
            .map(|connections| {
                let thread = Thread { connections, start, shared: &shared };
                scope.spawn(move || thread.run(plan.end, slots))
            })
            .collect();
        let mut tallies = Tallies::new(slots);
        let mut failure = None;
        for thread in threads {
            match thread.join() {
                Ok((part, result)) => {
                    tallies.add(part);
                    failure = failure.or(result.err());
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let last = Sample::take(server, start);
        shared.is_over.store(true, Ordering::Relaxed);
        match monitor.join() {
            Ok(mut samples) => {
                samples.push(last);
                (tallies, samples, failure)
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

struct Thread<'a> {
    connections: Vec<Connection>,
    start: Instant,
    shared: &'a Shared,
}

impl Thread<'_> {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether there is something to do at times: all connections are alike.
    fn has_clock(&self) -> bool {
        self.connections.first().is_some_and(Connection::has_clock)
    }

    /// Until something is due. The kernel's timeouts are too coarse below a millisecond: the
    /// last one is waited for awake.
    fn timeout(&self) -> Timespec {
        let paced = if self.has_clock() { &self.connections[..] } else { &[] };
        let due = paced.iter().filter_map(Connection::due).min();
        let wait = due.map_or(SECOND, |due| due.saturating_sub(self.now()).min(SECOND));
        Timespec { tv_sec: 0, tv_nsec: (wait / MILLISECOND * MILLISECOND).min(SECOND - 1) as i64 }
    }

    /// Sends what is due, where that is not for replies to say; gives back how many connections have ended.
    fn send_due(&mut self, now: u64, poll: &OwnedFd) -> Result<usize, LoadError> {
        let mut ended = 0;
        if !self.has_clock() {
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

    /// What came back until the end, or until a connection failed.
    fn run(mut self, end: End, slots: Slots) -> (Tallies, Result<(), LoadError>) {
        let mut tallies = Tallies::new(slots);
        let result = self.run_into(&mut tallies, end);
        (tallies, result)
    }

    fn run_into(&mut self, tallies: &mut Tallies, end: End) -> Result<(), LoadError> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let now = self.now();
        for (at, connection) in self.connections.iter_mut().enumerate() {
            connection.send(now)?;
            connection.awaits_room = connection.has_unsent();
            let flags = interest(connection);
            epoll::add(&poll, connection.socket(), epoll::EventData::new_u64(at as u64), flags)?;
        }
        let mut running = self.connections.iter().filter(|c| !c.is_done()).count();
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
            let tally = tallies.at(now);
            let before = tally.requests;
            for event in events.drain(..) {
                heard = now;
                let (at, flags) = (event.data.u64(), event.flags);
                let connection = &mut self.connections[at as usize];
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP) {
                    connection.receive(now, tally)?;
                }
                connection.send(now)?;
                running -= usize::from(watch(connection, at, &poll)?);
            }
            self.shared.answered.fetch_add(tally.requests - before, Ordering::Relaxed);
            running -= self.send_due(now, &poll)?;
        }
        Ok(())
    }
}

/// Has the poller watch for what the connection waits for; gives back whether that is nothing any
/// more.
fn watch(connection: &mut Connection, at: u64, poll: &OwnedFd) -> Result<bool, LoadError> {
    if connection.is_done() {
        connection.is_watched = false;
        epoll::delete(poll, connection.socket())?;
        return Ok(true);
    }
    if connection.has_unsent() != connection.awaits_room {
        connection.awaits_room = connection.has_unsent();
        let (data, flags) = (epoll::EventData::new_u64(at), interest(connection));
        epoll::modify(poll, connection.socket(), data, flags)?;
    }
    Ok(false)
}

fn interest(connection: &Connection) -> epoll::EventFlags {
    match connection.awaits_room {
        true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        false => epoll::EventFlags::IN,
    }
}
