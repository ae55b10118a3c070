//! The connection to a controller itself: setting it up, keeping it alive, its events.

use crate::address::Address;
use crate::error::ConnectError;
use crate::lane::Limit;
use crate::wire::{Data, Wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use terrace_nvme::command::Command;
use terrace_nvme::command::fabrics::{
    Property, configuration, controller_status, property_get, property_set,
};
use terrace_nvme::command::features::{AsyncEvent, async_event_request, keep_alive};
use terrace_nvme::command::log::DiscoveryEntry;
use terrace_nvme::host::{
    Controller, Discovery, Event, Login, Outcome, QueueConfig, SetUp, SetUpConfig, Step, Tag,
};

/// How long an address is tried.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks whether a controller is ready.
const READY_NAP: Duration = Duration::from_millis(20);
/// I/O queues that are asked for: one for each worker and some for the background.
const IO_QUEUES: u16 = 128;
/// Entries of the Admin Queue.
const ENTRIES: u32 = 32;

/// Connects a socket to the address.
///
/// # Errors
/// The name has no address, or none of them answers.
pub(crate) fn connect(address: &Address) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for place in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, CONNECT_PATIENCE) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The Admin Queue of a controller.
pub(crate) struct Admin {
    wire: Wire,
    buffers: Buffers,
    /// The command that waits for an event.
    listening: Option<Tag>,
    /// The Keep Alive that is not answered yet.
    beating: Option<Tag>,
    events: Vec<AsyncEvent>,
    /// What [`Admin::run`] waits for.
    done: Option<(Tag, Outcome)>,
}

/// Data of commands by their tags.
struct Buffers(Vec<Vec<u8>>);

impl Data for Buffers {
    fn sent(&self, tag: usize, offset: u32, bytes: u32) -> &[u8] {
        &self.0[tag][offset as usize..][..bytes as usize]
    }

    fn received(&mut self, tag: usize, offset: u32, bytes: u32) -> &mut [u8] {
        &mut self.0[tag][offset as usize..][..bytes as usize]
    }
}

impl Admin {
    /// Connects to the subsystem and sets its controller up.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) fn open(
        address: &Address,
        login: &Login,
        keep_alive: Duration,
        nsid: Option<u32>,
        limit: &Limit<'_>,
    ) -> Result<(Self, Controller), ConnectError> {
        let socket = connect(address)?;
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let wire = Wire::new(socket, QueueConfig { entries: ENTRIES, ..QueueConfig::default() });
        let buffers = Buffers(vec![Vec::new(); wire.capacity()]);
        let (listening, beating, events, done) = (None, None, Vec::new(), None);
        let mut admin = Self { wire, buffers, listening, beating, events, done };
        while !admin.wire.has_room() {
            admin.step()?;
            if !admin.wire.has_room() {
                admin.wait(limit.nap()?, None)?;
            }
        }
        let keep_alive_ms = keep_alive.as_millis() as u32;
        let mut set_up = SetUp::new(SetUpConfig {
            login: login.clone(),
            entries: ENTRIES,
            keep_alive_ms,
            io_queues: IO_QUEUES,
            nsid,
        });
        loop {
            let (command, data, bytes) = match set_up.step() {
                Step::Submit { command, data, bytes } => (command, data.to_vec(), bytes),
                Step::Wait => {
                    limit.nap()?;
                    std::thread::sleep(READY_NAP);
                    continue;
                }
                Step::Done => break,
            };
            let (outcome, data) = admin.run(command, data, bytes, limit)?;
            set_up.completed(&outcome, &data)?;
        }
        let controller = set_up.controller().cloned();
        Ok((admin, controller.ok_or(io::ErrorKind::InvalidData).map_err(io::Error::from)?))
    }

    /// The subsystems that a discovery controller names.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) fn discover(
        &mut self,
        limit: &Limit<'_>,
    ) -> Result<Vec<DiscoveryEntry>, ConnectError> {
        let mut discovery = Discovery::default();
        loop {
            let (command, bytes) = match discovery.step() {
                Step::Submit { command, bytes, .. } => (command, bytes),
                Step::Wait => continue,
                Step::Done => return Ok(discovery.entries().unwrap_or_default().to_vec()),
            };
            let (outcome, data) = self.run(command, Vec::new(), bytes, limit)?;
            discovery.completed(&outcome, &data)?;
        }
    }

    /// Carries out a command that sends `data` or receives `bytes`, and returns what was received.
    ///
    /// # Errors
    /// The connection has ended, or the limit is reached.
    pub(crate) fn run(
        &mut self,
        command: Command,
        data: Vec<u8>,
        bytes: u32,
        limit: &Limit<'_>,
    ) -> io::Result<(Outcome, Vec<u8>)> {
        let data = if data.is_empty() { vec![0; bytes as usize] } else { data };
        let tag = self.submit(command, data)?;
        loop {
            self.step()?;
            if let Some((_, outcome)) = self.done.take_if(|(done, _)| *done == tag) {
                return Ok((outcome, std::mem::take(&mut self.buffers.0[tag.index()])));
            }
            self.wait(limit.nap()?, None)?;
        }
    }

    /// Sends a Keep Alive. Returns whether the last one was answered.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn beat(&mut self) -> io::Result<bool> {
        if self.beating.is_some() {
            return Ok(false);
        }
        self.beating = Some(self.submit(keep_alive(), Vec::new())?);
        self.step()?;
        Ok(true)
    }

    /// What has happened since the last call; has the controller tell what happens next.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn events(&mut self) -> io::Result<Vec<AsyncEvent>> {
        self.step()?;
        if self.listening.is_none() {
            self.listening = Some(self.submit(async_event_request(), Vec::new())?);
            self.step()?;
        }
        Ok(std::mem::take(&mut self.events))
    }

    /// Has the controller shut down: afterwards no command of any of its queues is carried out.
    ///
    /// # Errors
    /// The connection has ended, or the limit is reached: nothing is known then.
    pub(crate) fn shut_down(&mut self, limit: &Limit<'_>) -> io::Result<()> {
        let value = configuration::NVM | configuration::ENABLE | configuration::SHUTDOWN_NORMAL;
        let command = property_set(Property::Configuration, value);
        let (outcome, _) = self.run(command, Vec::new(), 0, limit)?;
        if !outcome.status.is_success() {
            return Err(io::Error::other(outcome.status.to_string()));
        }
        loop {
            let (outcome, _) = self.run(property_get(Property::Status), Vec::new(), 0, limit)?;
            let status = outcome.result as u32 & controller_status::SHUTDOWN_MASK;
            if outcome.status.is_success() && status == controller_status::SHUTDOWN_COMPLETE {
                return Ok(());
            }
            limit.nap()?;
            std::thread::sleep(READY_NAP);
        }
    }

    /// Waits for the controller or until `other` is readable.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub(crate) fn wait(&self, time: Duration, other: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let writable = if self.wire.is_blocked() { PollFlags::OUT } else { PollFlags::empty() };
        let timeout = Timespec::try_from(time).ok();
        let first = PollFd::new(&self.wire, PollFlags::IN | writable);
        let polled = match &other {
            Some(other) => poll(&mut [first, PollFd::new(other, PollFlags::IN)], timeout.as_ref()),
            None => poll(&mut [first], timeout.as_ref()),
        };
        match polled {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn submit(&mut self, command: Command, data: Vec<u8>) -> io::Result<Tag> {
        let tag = self.wire.submit(command, data.len() as u32);
        let tag = tag.map_err(|refused| io::Error::new(io::ErrorKind::NotConnected, refused))?;
        self.buffers.0[tag.index()] = data;
        Ok(tag)
    }

    /// Sends and receives what can be.
    fn step(&mut self) -> io::Result<()> {
        self.wire.send(&self.buffers)?;
        self.wire.receive(&mut self.buffers)?;
        while let Some(event) = self.wire.event() {
            let Event::Completed { tag, outcome } = event else { continue };
            if self.listening == Some(tag) {
                self.listening = None;
                if outcome.status.is_success() {
                    self.events.push(AsyncEvent::read(outcome.result));
                }
            } else if self.beating == Some(tag) {
                self.beating = None;
            } else {
                self.done = Some((tag, outcome));
            }
        }
        Ok(())
    }
}

/// A limit of time alone.
pub(crate) fn within(time: Duration) -> Limit<'static> {
    Limit { end: Some(Instant::now() + time), is_over: &|| false }
}
