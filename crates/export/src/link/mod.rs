//! A connection: its socket, its end of the protocol, and the data of its commands.

mod data;
mod execute;
mod send;

pub(crate) use execute::Token;
pub(crate) use send::Sent;

use crate::buffers::Use;
use crate::shared::{Item, Shared};
use crate::wake::Inbox;
use data::{Data, Wait};
use std::io::{self, ErrorKind, IoSliceMut, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::WorkerQueue;
use terrace_nvme::command::Status;
use terrace_nvme::controller::{
    CommandTag, Connection, ConnectionConfig, Event, Fence, Operation, Target,
};
use terrace_nvme::pdu::Ended;

/// A connection on which no Connect succeeds within this time is closed.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// A host has this time to take the error that ends its connection.
const ENDING_PATIENCE: Duration = Duration::from_secs(1);
/// Most bytes of an H2CData: a whole transfer.
const H2C_BYTES_MAX: u32 = crate::buffers::LARGEST as u32;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No Connect has succeeded.
    HalfOpen,
    /// It has a queue.
    Serving,
    /// The host broke the protocol, and is being told so.
    Ending,
    /// The socket is closed. The connection stays until its last command is executed.
    Closed,
}

/// What the connections of an event loop do their work with.
pub(crate) struct Turn {
    pub(crate) shared: Arc<Shared>,
    /// The number of the loop.
    pub(crate) number: usize,
    pub(crate) inbox: Arc<Inbox<Item>>,
    /// Reads of files and devices that are not memory; `None` if there are none.
    pub(crate) reads: Option<WorkerQueue>,
    pub(crate) now: Instant,
    /// Commands that have just arrived.
    pub(crate) operations: Vec<(CommandTag, Operation)>,
    /// Commands whose calls were made here.
    pub(crate) over: Vec<(CommandTag, Status)>,
    /// What the target's [`Target::changes`] was.
    pub(crate) changes: u64,
    /// Whether all connections of all loops must be looked at.
    pub(crate) sweeps: bool,
}

/// A connection.
pub(crate) struct Link {
    /// `None` once it is closed.
    socket: Option<TcpStream>,
    connection: Connection,
    pub(crate) phase: Phase,
    data: Data,
    /// Bytes that were received behind a capsule whose data have no buffer yet.
    rest: Vec<u8>,
    /// Commands that were handed out and are not completed.
    executing: usize,
    /// Commands that wait for writes of other hosts.
    awaiting: Vec<(CommandTag, Fence)>,
    /// When it is closed, if it has no queue, or is ending.
    patience_ends: Instant,
    /// When the keep-alive timer runs out, on the connection of an Admin Queue.
    keep_alive_ends: Option<Instant>,
    /// When bytes were last received or sent.
    pub(crate) moved: Instant,
    peer: SocketAddr,
}

impl Link {
    pub(crate) fn new(socket: TcpStream, peer: SocketAddr, now: Instant) -> Self {
        let config =
            ConnectionConfig { h2c_data_bytes_max: H2C_BYTES_MAX, ..ConnectionConfig::default() };
        let mut connection = Connection::new(config);
        if let Ok(address) = socket.local_addr() {
            connection.set_address(address.ip());
        }
        Self {
            socket: Some(socket),
            connection,
            phase: Phase::HalfOpen,
            data: Data::default(),
            rest: Vec::new(),
            executing: 0,
            awaiting: Vec::new(),
            patience_ends: now + CONNECT_PATIENCE,
            keep_alive_ends: None,
            moved: now,
            peer,
        }
    }

    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        self.socket.as_ref()
    }

    /// When it is to be closed, unless something happens before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::HalfOpen | Phase::Ending => Some(self.patience_ends),
            Phase::Serving => self.keep_alive_ends,
            Phase::Closed => None,
        }
    }

    /// Whether nothing is left to do for it.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Closed && self.executing == 0
    }

    /// Whether it has neither commands nor bytes to send.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.executing == 0 && self.connection.pieces().next().is_none()
    }

    /// Whether nothing is received until there is a buffer.
    pub(crate) fn is_paused(&self) -> bool {
        self.data.capsule.is_some()
    }

    /// Whether commands wait for buffers.
    pub(crate) fn is_hungry(&self) -> bool {
        self.is_paused() || !self.data.waiting.is_empty()
    }

    /// Whether commands wait for writes of other hosts.
    pub(crate) fn awaits(&self) -> bool {
        !self.awaiting.is_empty()
    }

    /// Whether it has buffers although no drive has anything to do for it: the host has to move bytes.
    pub(crate) fn holds_buffers(&self) -> bool {
        let is_read = |wait: &&Wait| matches!(wait, Wait::Read { .. });
        let waiting = self.data.waiting.iter().filter(is_read).count() + self.awaiting.len();
        self.data.held() > 0 && self.executing == waiting
    }

    /// Receives once, and begins what arrived. Returns false at the end of the stream.
    ///
    /// # Errors
    /// Of the socket. What the protocol makes of the bytes ends in another [`Phase`].
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        turn: &mut Turn,
        number: usize,
    ) -> io::Result<bool> {
        let Some(mut socket) = self.socket.as_ref() else { return Ok(false) };
        let place = self.connection.placement();
        let buffer = place.and_then(|place| {
            let buffer = self.data.buffer(place.tag)?;
            let at = place.offset as usize;
            buffer.bytes_mut().get_mut(at..at + place.bytes as usize)
        });
        let received = match buffer {
            Some(buffer) if self.phase != Phase::Ending => {
                let mut slices = [IoSliceMut::new(buffer), IoSliceMut::new(scratch)];
                let received = socket.read_vectored(&mut slices);
                received.inspect(|&bytes| {
                    let placed = &buffer[..bytes.min(buffer.len())];
                    // Why it has ended, the connection tells again below.
                    let _ = self.connection.placed(placed, &mut turn.shared.target());
                })
            }
            _ => socket.read(scratch),
        };
        let bytes = match received {
            Ok(0) => return Ok(false),
            Ok(bytes) => bytes,
            Err(error) if is_temporary(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        self.moved = turn.now;
        if self.phase == Phase::Ending {
            return Ok(true);
        }
        let placed = place.map_or(0, |place| place.bytes as usize).min(bytes);
        self.feed(&scratch[..bytes - placed], turn, number);
        Ok(true)
    }

    /// Goes on with bytes that waited for a buffer, and serves commands that wait for one.
    pub(crate) fn retry(&mut self, turn: &mut Turn, number: usize) {
        if let Some((tag, bytes)) = self.data.capsule {
            let Some(buffer) = turn.shared.pool.take(bytes, Use::Capsule, turn.number) else {
                return;
            };
            self.data.capsule = None;
            self.data.set(tag, buffer);
            let rest = std::mem::take(&mut self.rest);
            self.feed(&rest, turn, number);
        } else {
            self.serve(turn, number);
            self.complete_all(turn);
        }
    }

    /// Passes bytes to the protocol, and begins the commands that are whole.
    fn feed(&mut self, input: &[u8], turn: &mut Turn, number: usize) {
        let shared = Arc::clone(&turn.shared);
        let mut target = shared.target();
        let ended = self.parse(input, turn, &mut target);
        if target.changes() != turn.changes {
            turn.changes = target.changes();
            turn.sweeps = true;
        }
        drop(target);
        if self.phase == Phase::HalfOpen && self.connection.queue().is_some() {
            self.phase = Phase::Serving;
            shared.counters.half_open.remove(1);
        }
        if let Err(ended) = ended {
            self.ended(&ended, turn);
        }
        self.begin(turn, number);
        self.serve(turn, number);
        self.complete_all(turn);
    }

    fn parse(
        &mut self,
        mut input: &[u8],
        turn: &mut Turn,
        target: &mut Target,
    ) -> Result<(), Ended> {
        loop {
            self.events(turn);
            if input.is_empty() || self.is_paused() {
                break;
            }
            let taken = match self.connection.placement() {
                Some(place) => {
                    let bytes = (place.bytes as usize).min(input.len());
                    let at = place.offset as usize;
                    let buffer = self.data.buffer(place.tag).ok_or(Ended::Closed)?;
                    buffer.bytes_mut()[at..at + bytes].copy_from_slice(&input[..bytes]);
                    self.connection.placed(&input[..bytes], target)?;
                    bytes
                }
                None => self.connection.receive(input, target)?,
            };
            input = &input[taken..];
        }
        self.rest.extend_from_slice(input);
        self.connection.ended().map_or(Ok(()), Err)
    }

    /// Takes what the protocol has for this side.
    fn events(&mut self, turn: &mut Turn) {
        while let Some(event) = self.connection.event() {
            match event {
                Event::Incoming { tag, bytes, in_capsule } => {
                    self.data.grow(self.connection.tags());
                    self.incoming(tag, bytes as usize, in_capsule, turn);
                }
                Event::Execute { tag, operation } => {
                    self.executing += 1;
                    turn.operations.push((tag, operation));
                }
                Event::Await { tag, fence } => {
                    self.executing += 1;
                    turn.shared.set_awaiting(turn.number, true);
                    self.awaiting.push((tag, fence));
                }
                Event::Released { tag } => drop(self.data.take(tag)),
                Event::KeepAlive { timeout_ms } => {
                    let timeout = Duration::from_millis(timeout_ms.into());
                    self.keep_alive_ends = (timeout_ms > 0).then(|| turn.now + timeout);
                }
                Event::Stopped => turn.sweeps = true,
            }
        }
    }

    fn incoming(&mut self, tag: CommandTag, bytes: usize, in_capsule: bool, turn: &mut Turn) {
        if !in_capsule {
            self.data.waiting.push_back(Wait::Write { tag, bytes });
            return;
        }
        match turn.shared.pool.take(bytes, Use::Capsule, turn.number) {
            Some(buffer) => self.data.set(tag, buffer),
            None => {
                turn.shared.counters.buffer_waits.add(1);
                self.data.capsule = Some((tag, bytes));
            }
        }
    }

    /// The protocol has ended the connection.
    fn ended(&mut self, ended: &Ended, turn: &mut Turn) {
        let Ended::Fault(fault) = ended else { return self.close(turn) };
        let counters = &turn.shared.counters;
        counters.protocol_errors.add(1);
        if self.phase == Phase::HalfOpen {
            counters.half_open.remove(1);
            counters.never_connected.add(1);
        }
        if turn.shared.is_first(fault.status) {
            turn.shared.log.warn(format!(
                "host {}: {ended}; its connection ends, further errors of this kind are counted only; look for a host of \
                 another version, or another program on this port",
                self.peer
            ));
        }
        self.phase = Phase::Ending;
        self.patience_ends = turn.now + ENDING_PATIENCE;
    }

    /// Closes the socket, and takes the queue out of the target. Commands that a drive has go on.
    pub(crate) fn close(&mut self, turn: &mut Turn) {
        let Some(socket) = self.socket.take() else { return };
        drop(socket);
        let counters = &turn.shared.counters;
        counters.open.remove(1);
        if self.phase == Phase::HalfOpen {
            counters.half_open.remove(1);
            counters.never_connected.add(1);
        }
        self.phase = Phase::Closed;
        let shared = Arc::clone(&turn.shared);
        let mut target = shared.target();
        self.connection.end(&mut target);
        for wait in std::mem::take(&mut self.data.waiting) {
            if let Wait::Read { tag, .. } = wait {
                self.complete(tag, Status::INTERNAL_ERROR, &mut target);
            }
        }
        for (tag, _) in std::mem::take(&mut self.awaiting) {
            self.complete(tag, Status::INTERNAL_ERROR, &mut target);
        }
        drop(target);
        // I/O queues end with their Admin Queue.
        turn.sweeps |= self.connection.queue().is_some_and(|(queue, _)| queue == 0);
        self.data.clear();
        self.rest = Vec::new();
    }

    /// Looks whether its controller is still there, and tells the host what it wants to know.
    pub(crate) fn look(&mut self, turn: &mut Turn) {
        let shared = Arc::clone(&turn.shared);
        let mut target = shared.target();
        if self.phase != Phase::Serving {
            return;
        }
        let is_live = self.connection.is_live(&mut target);
        if is_live {
            self.connection.notify(&mut target);
        }
        drop(target);
        if !is_live {
            self.close(turn);
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
