//! Commands whose caller waits for them.

use crate::wire::{Data, Wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use terrace_nvme::command::{Command, Status};
use terrace_nvme::host::{Event, Outcome, QueueConfig};

/// Between two looks whether the session has ended meanwhile.
const NAP: Duration = Duration::from_millis(250);

/// A command with its data.
pub(crate) struct Job<'d> {
    command: Command,
    bytes: Bytes<'d>,
    outcome: Option<Outcome>,
}

enum Bytes<'d> {
    Sent(&'d [u8]),
    Received(&'d mut [u8]),
}

impl<'d> Job<'d> {
    /// A command that sends data.
    pub(crate) fn sending(command: Command, bytes: &'d [u8]) -> Self {
        Self { command, bytes: Bytes::Sent(bytes), outcome: None }
    }

    /// A command that receives data.
    pub(crate) fn receiving(command: Command, bytes: &'d mut [u8]) -> Self {
        Self { command, bytes: Bytes::Received(bytes), outcome: None }
    }

    /// How it ended, after [`Lane::run`].
    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome { status: Status::INTERNAL_ERROR, result: 0 })
    }

    fn len(&self) -> usize {
        match &self.bytes {
            Bytes::Sent(bytes) => bytes.len(),
            Bytes::Received(bytes) => bytes.len(),
        }
    }
}

/// The data of jobs by the tags of their commands.
struct JobData<'a, 'd> {
    jobs: &'a mut [Job<'d>],
    of_tags: &'a [usize],
}

impl Data for JobData<'_, '_> {
    fn sent(&self, tag: usize, offset: u32, bytes: u32) -> &[u8] {
        match &self.jobs[self.of_tags[tag]].bytes {
            Bytes::Sent(data) => &data[offset as usize..][..bytes as usize],
            Bytes::Received(_) => &[],
        }
    }

    fn received(&mut self, tag: usize, offset: u32, bytes: u32) -> &mut [u8] {
        match &mut self.jobs[self.of_tags[tag]].bytes {
            Bytes::Received(data) => &mut data[offset as usize..][..bytes as usize],
            Bytes::Sent(_) => &mut [],
        }
    }
}

/// Why a lane waits no longer for its commands.
pub(crate) struct Limit<'a> {
    /// When the time is over.
    pub(crate) end: Option<Instant>,
    /// Whether the session has ended.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

impl Limit<'_> {
    /// How long to wait before the next look.
    pub(crate) fn nap(&self) -> io::Result<Duration> {
        if (self.is_over)() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let left = self.end.map_or(NAP, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left.min(NAP)) }
    }
}

/// A connection whose user waits for what it asks. After an error it is of no use any more.
pub(crate) struct Lane {
    wire: Wire,
    /// Jobs by the tags of their commands.
    of_tags: Vec<usize>,
}

impl Lane {
    /// Over a connected socket, whose controller is waited for until it answers the first PDU.
    ///
    /// # Errors
    /// It does not within the limit, or breaks the protocol.
    pub(crate) fn open(
        socket: TcpStream,
        config: QueueConfig,
        limit: &Limit<'_>,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let wire = Wire::new(socket, config);
        let mut lane = Self { of_tags: vec![0; wire.capacity()], wire };
        loop {
            let mut data = JobData { jobs: &mut [], of_tags: &[] };
            lane.wire.send(&data)?;
            lane.wire.receive(&mut data)?;
            match lane.wire.event() {
                Some(Event::Initialized(_)) => return Ok(lane),
                _ => lane.wait(limit.nap()?)?,
            }
        }
    }

    /// The connection, for another user. Nothing is under way.
    pub(crate) fn into_wire(self) -> Wire {
        self.wire
    }

    /// Carries out all `jobs`, side by side as far as the queue has room.
    ///
    /// # Errors
    /// The connection has ended, or the limit is reached: then some may have been carried out.
    pub(crate) fn run(&mut self, jobs: &mut [Job<'_>], limit: &Limit<'_>) -> io::Result<()> {
        let (mut next, mut left) = (0, jobs.len());
        while left > 0 {
            while next < jobs.len() && self.wire.has_room() {
                let bytes = jobs[next].len() as u32;
                let tag = self.wire.submit(jobs[next].command, bytes);
                let tag =
                    tag.map_err(|refused| io::Error::new(io::ErrorKind::InvalidInput, refused))?;
                self.of_tags[tag.index()] = next;
                next += 1;
            }
            let mut data = JobData { jobs, of_tags: &self.of_tags };
            self.wire.send(&data)?;
            let has_come = self.wire.receive(&mut data)?;
            while let Some(event) = self.wire.event() {
                if let Event::Completed { tag, outcome } = event {
                    jobs[self.of_tags[tag.index()]].outcome = Some(outcome);
                    left -= 1;
                }
            }
            if left > 0 && !has_come {
                self.wait(limit.nap()?)?;
            }
        }
        Ok(())
    }

    /// Carries out one.
    ///
    /// # Errors
    /// As of [`Lane::run`].
    pub(crate) fn run_one(&mut self, job: Job<'_>, limit: &Limit<'_>) -> io::Result<Outcome> {
        let mut jobs = [job];
        self.run(&mut jobs, limit)?;
        Ok(jobs[0].outcome())
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        let writable = if self.wire.is_blocked() { PollFlags::OUT } else { PollFlags::empty() };
        let timeout = Timespec::try_from(time).ok();
        let mut fds = [PollFd::new(&self.wire, PollFlags::IN | writable)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
