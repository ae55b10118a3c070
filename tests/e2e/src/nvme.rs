//! A host of NVMe/TCP over blocking sockets, for tests of targets.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use terrace_nvme::command::Command;
use terrace_nvme::host::{
    Controller, Event, Login, Outcome, Queue, QueueConfig, SetUp, SetUpConfig, Step, Tag,
};
use terrace_nvme::pdu::{Digests, Piece, crc32c};

/// No answer takes longer, unless a test fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Entries of an Admin Queue.
const ADMIN_ENTRIES: u32 = 32;

/// A queue of commands over a connection.
pub struct NvmeQueue {
    /// The connection.
    pub stream: TcpStream,
    queue: Queue,
    /// Data of commands, by tag.
    data: Vec<Vec<u8>>,
    over: VecDeque<(Tag, Outcome)>,
    is_initialized: bool,
}

/// A host with a controller: its Admin Queue and I/O queues.
pub struct NvmeHost {
    /// Its name, and the subsystem that it has connected to.
    pub login: Login,
    /// The Admin Queue.
    pub admin: NvmeQueue,
    /// What the target says of itself.
    pub controller: Controller,
    /// I/O queues.
    pub io: Vec<NvmeQueue>,
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl NvmeQueue {
    /// Connects, and waits until the connection is initialized.
    pub fn connect(address: SocketAddr, config: QueueConfig) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let queue = Queue::new(config);
        let data = vec![Vec::new(); queue.capacity()];
        let (over, is_initialized) = Default::default();
        let mut this = Self { stream, queue, data, over, is_initialized };
        while !this.is_initialized {
            this.send()?;
            this.receive()?;
        }
        Ok(this)
    }

    /// Whether another command fits.
    pub fn has_room(&self) -> bool {
        self.queue.has_room()
    }

    /// Commands without an outcome that [`Self::wait`] has returned.
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding().count() + self.over.len()
    }

    /// Submits a command with its data, or with as many bytes as it returns, and sends it.
    pub fn submit(&mut self, command: Command, data: Vec<u8>) -> io::Result<Tag> {
        let tag = self.queue.submit(command, data.len() as u32).map_err(other)?;
        self.data[tag.index()] = data;
        self.send()?;
        Ok(tag)
    }

    /// Waits for the next command that is over, and returns its data.
    pub fn wait(&mut self) -> io::Result<(Tag, Outcome, Vec<u8>)> {
        loop {
            if let Some((tag, outcome)) = self.over.pop_front() {
                return Ok((tag, outcome, std::mem::take(&mut self.data[tag.index()])));
            }
            self.send()?;
            self.receive()?;
        }
    }

    /// Runs one command, while no other is under way.
    pub fn run(&mut self, command: Command, data: Vec<u8>) -> io::Result<(Outcome, Vec<u8>)> {
        self.submit(command, data)?;
        self.wait().map(|(_, outcome, data)| (outcome, data))
    }

    /// Sends all that there is.
    pub fn send(&mut self) -> io::Result<()> {
        loop {
            while let Some(range) = self.queue.digest_wanted() {
                let at = range.offset as usize;
                let data = &self.data[usize::from(range.command)][at..at + range.bytes as usize];
                self.queue.set_digest(crc32c(data));
            }
            let mut bytes = Vec::new();
            for piece in self.queue.pieces() {
                match piece {
                    Piece::Bytes(piece) => bytes.extend_from_slice(piece),
                    Piece::Data(range) => {
                        let at = range.offset as usize;
                        let data = &self.data[usize::from(range.command)];
                        bytes.extend_from_slice(&data[at..at + range.bytes as usize]);
                    }
                }
            }
            if bytes.is_empty() {
                return Ok(());
            }
            self.stream.write_all(&bytes)?;
            self.queue.sent(bytes.len());
            self.events();
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut input = vec![0; 64 << 10];
        let bytes = self.stream.read(&mut input)?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut input = &input[..bytes];
        while !input.is_empty() {
            let taken = match self.queue.placement() {
                Some(place) => {
                    let bytes = (place.bytes as usize).min(input.len());
                    let at = place.offset as usize;
                    self.data[place.tag.index()][at..at + bytes].copy_from_slice(&input[..bytes]);
                    self.queue.placed(&input[..bytes]).map_err(other)?;
                    bytes
                }
                None => self.queue.receive(input).map_err(other)?,
            };
            input = &input[taken..];
        }
        self.events();
        Ok(())
    }

    fn events(&mut self) {
        while let Some(event) = self.queue.event() {
            match event {
                Event::Initialized(_) => self.is_initialized = true,
                Event::Completed { tag, outcome } => self.over.push_back((tag, outcome)),
            }
        }
    }
}

impl NvmeHost {
    /// Host number `number` of the tests, for the subsystem `nqn`.
    pub fn login(number: u8, nqn: &str) -> Login {
        Login {
            host_nqn: format!(
                "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-0000000000{number:02x}"
            ),
            host_id: [number; 16],
            subsystem_nqn: nqn.to_owned(),
        }
    }

    /// Connects an Admin Queue and `queues` I/O queues of `entries` entries, for the namespace `nsid`, or the only one.
    pub fn connect(
        address: SocketAddr,
        login: Login,
        queues: (u16, u32),
        digests: Digests,
        nsid: Option<u32>,
    ) -> io::Result<Self> {
        Self::connect_for(
            address,
            login,
            queues,
            digests,
            SetUpConfig {
                login: Self::login(0, ""),
                entries: ADMIN_ENTRIES,
                keep_alive_ms: 60_000,
                io_queues: queues.0.max(1),
                nsid,
            },
        )
    }

    /// As [`Self::connect`], with other values of `config`, whose login is not looked at.
    pub fn connect_for(
        address: SocketAddr,
        login: Login,
        queues: (u16, u32),
        digests: Digests,
        config: SetUpConfig,
    ) -> io::Result<Self> {
        let queue_config =
            QueueConfig { entries: config.entries, digests, ..QueueConfig::default() };
        let mut admin = NvmeQueue::connect(address, queue_config)?;
        let mut set_up = SetUp::new(SetUpConfig { login: login.clone(), ..config });
        loop {
            let (command, data) = match set_up.step() {
                Step::Submit { command, data, bytes } => {
                    (command, if data.is_empty() { vec![0; bytes as usize] } else { data.to_vec() })
                }
                Step::Wait => continue,
                Step::Done => break,
            };
            let (outcome, data) = admin.run(command, data)?;
            set_up.completed(&outcome, &data).map_err(other)?;
        }
        let controller = set_up.controller().cloned().ok_or(io::ErrorKind::Other)?;
        let mut host = Self { login, admin, controller, io: Vec::new() };
        for number in 1..=queues.0 {
            let queue = host.queue(address, number, queues.1, digests)?;
            host.io.push(queue);
        }
        Ok(host)
    }

    /// Another I/O queue.
    pub fn queue(
        &self,
        address: SocketAddr,
        number: u16,
        entries: u32,
        digests: Digests,
    ) -> io::Result<NvmeQueue> {
        let config = self.controller.io_queue(entries, 1, digests);
        let mut queue = NvmeQueue::connect(address, config)?;
        let id = self.controller.info.controller_id;
        let (command, data) = self.login.io(id, number, config.entries);
        let (outcome, _) = queue.run(command, data.into())?;
        match outcome.status.is_success() {
            true => Ok(queue),
            false => Err(other(outcome.status)),
        }
    }
}
