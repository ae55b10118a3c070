//! A host's queue over a blocking socket.

use crate::Outcome;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use terrace_nvme::command::{Command, Status};
use terrace_nvme::host::{self, Event, Queue, QueueConfig};
use terrace_nvme::pdu::{DataRange, IcResp, Piece, crc32c};

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A command that is completed: its number, what came of it, and its data.
pub(crate) type Completed = (u64, host::Outcome, Vec<u8>);

/// A queue, its socket, and the commands of its tags.
pub(crate) struct Link {
    stream: TcpStream,
    queue: Queue,
    /// By tag.
    data: Vec<Vec<u8>>,
    /// By tag. A tag is used again as soon as its command is completed, a number never.
    numbers: Vec<u64>,
    submitted: u64,
    completed: VecDeque<Completed>,
    /// What the controller answered to the first PDU.
    pub(crate) response: Option<IcResp>,
    input: Vec<u8>,
}

impl Link {
    /// Connects, and waits for the controller's answer.
    pub(crate) fn open(address: SocketAddr, config: QueueConfig) -> Outcome<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_millis(100)))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let queue = Queue::new(config);
        let data = vec![Vec::new(); queue.capacity()];
        let mut link = Self {
            stream,
            numbers: vec![0; queue.capacity()],
            queue,
            data,
            submitted: 0,
            completed: VecDeque::new(),
            response: None,
            input: vec![0; 1 << 16],
        };
        let end = Instant::now() + PATIENCE;
        while link.response.is_none() {
            link.turn()?;
            if Instant::now() > end {
                return Err("no answer to the first PDU".into());
            }
        }
        Ok(link)
    }

    /// Whether another command may be submitted.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.has_room()
    }

    /// Submits a command with its data, or as many bytes as come from the controller. Returns its number.
    pub(crate) fn submit(&mut self, command: Command, data: Vec<u8>) -> Outcome<u64> {
        let tag = self.queue.submit(command, data.len() as u32)?;
        self.submitted += 1;
        self.data[tag.index()] = data;
        self.numbers[tag.index()] = self.submitted;
        Ok(self.submitted)
    }

    /// The next command that is completed, with its data; `None` if there is none within `patience`.
    pub(crate) fn completed(&mut self, patience: Duration) -> Outcome<Option<Completed>> {
        let end = Instant::now() + patience;
        loop {
            if let Some(completed) = self.completed.pop_front() {
                return Ok(Some(completed));
            }
            if Instant::now() > end {
                return Ok(None);
            }
            self.turn()?;
        }
    }

    /// Executes a command. What else completes meanwhile waits for [`Self::completed`].
    pub(crate) fn run(
        &mut self,
        command: Command,
        data: Vec<u8>,
    ) -> Outcome<(host::Outcome, Vec<u8>)> {
        let own = self.submit(command, data)?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let at = self.completed.iter().position(|(number, ..)| *number == own);
            if let Some((_, outcome, data)) = at.and_then(|at| self.completed.remove(at)) {
                return Ok((outcome, data));
            }
            self.turn()?;
        }
        Err("a command is not completed".into())
    }

    /// Executes a command that must succeed.
    pub(crate) fn succeed(
        &mut self,
        what: &str,
        command: Command,
        data: Vec<u8>,
    ) -> Outcome<Vec<u8>> {
        let (outcome, data) = self.run(command, data)?;
        if outcome.status != Status::SUCCESS {
            return Err(format!("{what}: {}", outcome.status).into());
        }
        Ok(data)
    }

    /// Sends all that there is to send, and receives once.
    fn turn(&mut self) -> Outcome {
        self.send()?;
        if !self.completed.is_empty() {
            return Ok(());
        }
        let bytes = match self.stream.read(&mut self.input) {
            Ok(0) => return Err("the target closed the connection".into()),
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut at = 0;
        while at < bytes {
            let input = &self.input[at..bytes];
            at += match self.queue.placement() {
                Some(place) => {
                    let taken = input.len().min(place.bytes as usize);
                    let data = &mut self.data[place.tag.index()];
                    data[place.offset as usize..][..taken].copy_from_slice(&input[..taken]);
                    self.queue.placed(&input[..taken])?;
                    taken
                }
                None => self.queue.receive(input)?,
            };
            self.take_events();
        }
        // Answers to what came: data that the controller asked for.
        self.send()
    }

    fn send(&mut self) -> Outcome {
        loop {
            while let Some(range) = self.queue.digest_wanted() {
                self.queue.set_digest(crc32c(range_of(&self.data, range)));
            }
            let output = gather(self.queue.pieces(), &self.data);
            if output.is_empty() {
                return Ok(());
            }
            self.stream.write_all(&output)?;
            self.queue.sent(output.len());
            self.take_events();
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.queue.event() {
            match event {
                Event::Initialized(response) => self.response = Some(response),
                Event::Completed { tag, outcome } => {
                    let data = std::mem::take(&mut self.data[tag.index()]);
                    self.completed.push_back((self.numbers[tag.index()], outcome, data));
                }
            }
        }
    }
}

/// A range of the data of commands, which lie by their tags.
pub(crate) fn range_of(data: &[Vec<u8>], range: DataRange) -> &[u8] {
    &data[usize::from(range.command)][range.offset as usize..][..range.bytes as usize]
}

/// The bytes of pieces, as one.
pub(crate) fn gather<'a>(pieces: impl Iterator<Item = Piece<'a>>, data: &[Vec<u8>]) -> Vec<u8> {
    let mut output = Vec::new();
    for piece in pieces {
        output.extend_from_slice(match piece {
            Piece::Bytes(bytes) => bytes,
            Piece::Data(range) => range_of(data, range),
        });
    }
    output
}
