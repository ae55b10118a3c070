use super::admin::{self, Answer, Done};
use super::connect::{Opened, connect};
use super::io::{self, Executed, Operation, Plan};
use super::slots::{Buffer, CommandTag};
use super::target::{Fence, Target};
use super::wire::{Arrival, ConnectionConfig, Head, Into, Placement, Wire};
use crate::command::fabrics;
use crate::command::{Command, DataPointer, Direction, Status, admin_opcode};
use crate::pdu::{ADMIN_CAPSULE_DATA_BYTES, DataRange, Ended, H2C_DATA_BYTES_MIN, Piece};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Most bytes that an Admin command or a report of reservations returns.
const OWN_DATA_BYTES_MAX: u32 = 1 << 20;

/// What a connection wants of its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write of this many bytes is about to come: the caller must have a buffer for it. Data in the capsule follow at
    /// once. For any other the caller calls [`Connection::accept`] when it has the buffer, or [`Connection::complete`]
    /// with an error.
    Incoming {
        /// The command.
        tag: CommandTag,
        /// Bytes of its data.
        bytes: u32,
        /// Whether the data follow at once.
        in_capsule: bool,
    },
    /// Execute this, then call [`Connection::complete`]. That is due even after the connection has ended.
    Execute {
        /// The command.
        tag: CommandTag,
        /// What to do.
        operation: Operation,
    },
    /// Call [`Connection::complete`] once [`Target::is_over`] says that these writes are over.
    Await {
        /// The command.
        tag: CommandTag,
        /// The writes.
        fence: Fence,
    },
    /// The answer is sent: the buffer of the command is the caller's again.
    Released {
        /// The command.
        tag: CommandTag,
    },
    /// The keep-alive timer starts anew. If it runs for this many milliseconds, the caller ends this connection. 0
    /// stops the timer.
    KeepAlive {
        /// Milliseconds.
        timeout_ms: u32,
    },
    /// The controller was reset or shut down: the caller ends the connections of its I/O queues.
    Stopped,
}

/// The controller's end of a connection.
///
/// The caller owns the socket, the medium, the buffers of reads and writes, and the [`Target`], which its connections
/// share. It passes what it receives to [`Self::receive`], or into a buffer where [`Self::placement`] says so; takes
/// [`Self::event`] after each of these; and sends [`Self::pieces`]. Before the socket is closed it calls [`Self::end`].
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    queue: Option<Opened>,
    events: VecDeque<Event>,
    /// Commands that the caller executes, by tag, as many as there are tags once a Connect succeeded; true for those
    /// that the target counts as writes.
    executing: Vec<Option<bool>>,
    /// Asynchronous Event Requests that wait for an event.
    requests: VecDeque<CommandTag>,
    /// Where the host has reached this side; empty if that is not known.
    address: String,
    is_left: bool,
}

impl Connection {
    /// A new connection, which waits for an ICReq.
    ///
    /// # Panics
    /// If a value of `config` is out of its range.
    #[must_use]
    pub fn new(config: ConnectionConfig) -> Self {
        assert!(config.align.is_multiple_of(4) && (4..=128).contains(&config.align), "alignment");
        assert!(config.h2c_data_bytes_max >= H2C_DATA_BYTES_MIN, "MAXH2CDATA");
        let sizes = [config.h2c_data_bytes_max, config.c2h_data_bytes_max, config.r2t_bytes_max];
        assert!(sizes.iter().all(|&bytes| bytes > 0 && bytes.is_multiple_of(4)), "sizes of data");
        assert!(config.r2t_max > 0, "outstanding R2T");
        Self {
            wire: Wire::new(config),
            queue: None,
            events: VecDeque::new(),
            executing: Vec::new(),
            requests: VecDeque::new(),
            address: String::new(),
            is_left: false,
        }
    }

    /// Says at which address the host has reached this side. The discovery service names it where an entry has the
    /// address that stands for all.
    pub fn set_address(&mut self, address: IpAddr) {
        self.address = address.to_canonical().to_string();
    }

    /// Queue and controller of this connection, once a Connect succeeded: 0 is the Admin Queue.
    #[must_use]
    pub fn queue(&self) -> Option<(u16, u16)> {
        self.queue.map(|queue| (queue.connect.queue_id, queue.controller_id))
    }

    /// Tags are below this number. It grows with a Connect.
    pub fn tags(&mut self) -> usize {
        self.wire.slots().capacity()
    }

    /// Where the next bytes belong, if they are data for a buffer of the caller. The caller puts them there, up to the
    /// number given, and shows them to [`Self::placed`].
    #[must_use]
    pub fn placement(&self) -> Option<Placement> {
        self.wire.placement()
    }

    /// Takes bytes, up to data for a buffer of the caller, and returns how many. The caller takes [`Self::event`]
    /// before it goes on.
    ///
    /// # Errors
    /// With the end of the connection. What is left to send, among it the error that the host must learn, should be
    /// sent before the socket is closed.
    pub fn receive(&mut self, input: &[u8], target: &mut Target) -> Result<usize, Ended> {
        self.check(target)?;
        let mut taken = 0;
        while taken < input.len() && self.wire.placement().is_none() {
            let received = self.wire.receive(&input[taken..]);
            let (bytes, arrival) = received.inspect_err(|&ended| self.wire.end(ended))?;
            taken += bytes;
            if let Some(arrival) = arrival {
                self.arrived(arrival, target);
            } else if bytes == 0 {
                break;
            }
        }
        Ok(taken)
    }

    /// Takes note that the next bytes of the connection were put where [`Self::placement`] said.
    ///
    /// # Errors
    /// With the end of the connection, if it has ended.
    ///
    /// # Panics
    /// If there are more bytes than that.
    pub fn placed(&mut self, bytes: &[u8], target: &mut Target) -> Result<(), Ended> {
        self.check(target)?;
        if let Some(arrival) = self.wire.placed(bytes) {
            self.arrived(arrival, target);
        }
        Ok(())
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Asks for the data of a write, for which the caller has a buffer. Does nothing for data that come in the capsule.
    pub fn accept(&mut self, tag: CommandTag) {
        if self.wire.slots().command(tag).is_some() && self.is_awaited(tag) {
            self.wire.request(tag);
        }
    }

    /// Completes a command that the caller executed, or a write that it cannot accept. The data of a read must stay in
    /// their buffer until [`Event::Released`].
    pub fn complete(&mut self, tag: CommandTag, status: Status, target: &mut Target) {
        let executing = self.executing.get_mut(tag.index()).and_then(Option::take);
        if let (Some(true), Some(queue)) = (executing, &self.queue) {
            target.subsystem(queue.subsystem).write_ends(queue.association);
        }
        if self.wire.ended().is_some() {
            return;
        }
        let slots = self.wire.slots();
        let Some(direction) = slots.command(tag).map(Command::direction) else { return };
        if executing.is_some() || self.is_awaited(tag) {
            self.wire.answer(tag, status, 0, direction == Direction::ToHost);
        }
    }

    /// Sends events that the host wants to know, after the target has changed.
    pub fn notify(&mut self, target: &mut Target) {
        let Some(queue) = self.queue.filter(Opened::is_admin) else { return };
        let Some(controller) = target.subsystem(queue.subsystem).controller(queue.association)
        else {
            return;
        };
        while !self.requests.is_empty()
            && let Some(event) = admin::next_event(controller)
            && let Some(tag) = self.requests.pop_front()
        {
            self.wire.answer(tag, Status::SUCCESS, event.result(), false);
        }
    }

    /// The next data whose CRC-32C ([`crate::pdu::crc32c`]) [`Self::set_digest`] must give before they are sent.
    pub fn digest_wanted(&mut self) -> Option<DataRange> {
        self.wire.digest_wanted()
    }

    /// Gives the digest of the data that [`Self::digest_wanted`] returned.
    pub fn set_digest(&mut self, digest: u32) {
        self.wire.set_digest(digest);
    }

    /// The bytes to send next, in order; data are those of the command with the tag's number. There may be more once
    /// these are sent.
    pub fn pieces(&mut self) -> impl Iterator<Item = Piece<'_>> {
        self.wire.pieces()
    }

    /// Takes note that the socket works on the first `bytes` of [`Self::pieces`] and reports later.
    pub fn lend(&mut self, bytes: usize) {
        self.wire.lend(bytes);
    }

    /// Takes note that the first `bytes` of [`Self::pieces`] were sent.
    ///
    /// # Panics
    /// If that is more than there was to send.
    pub fn sent(&mut self, bytes: usize) {
        let Self { wire, events, .. } = self;
        wire.sent(bytes, |tag| events.push_back(Event::Released { tag }));
    }

    /// Why the connection has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.wire.ended()
    }

    /// Whether the controller of this connection is still there. The connections of I/O queues end with it.
    #[must_use]
    pub fn is_live(&self, target: &mut Target) -> bool {
        let Some(queue) = &self.queue else { return self.wire.ended().is_none() };
        let controller = target.subsystem(queue.subsystem).controller(queue.association);
        self.wire.ended().is_none()
            && controller.is_some_and(|controller| queue.is_admin() || controller.serves())
    }

    /// Ends the connection, if it has not ended, and takes its queue out of the target; with the Admin Queue goes the
    /// controller. Commands that the caller executes must still be completed.
    pub fn end(&mut self, target: &mut Target) {
        self.wire.end(Ended::Closed);
        if let Some(queue) = &self.queue
            && !std::mem::replace(&mut self.is_left, true)
        {
            let subsystem = target.subsystem(queue.subsystem);
            if queue.is_admin() {
                subsystem.remove_controller(queue.association);
            } else {
                subsystem.free_queue(queue.association, queue.connect.queue_id);
            }
        }
    }

    /// Whether the command waits for the caller to accept its data.
    fn is_awaited(&mut self, tag: CommandTag) -> bool {
        self.wire.slots().is_untouched(tag) && !self.wire.is_arriving(tag)
    }

    fn check(&mut self, target: &mut Target) -> Result<(), Ended> {
        if self.wire.ended().is_none() && !self.is_live(target) {
            self.wire.end(Ended::ControllerGone);
        }
        self.wire.ended().map_or(Ok(()), Err)
    }

    fn arrived(&mut self, arrival: Arrival, target: &mut Target) {
        match arrival {
            Arrival::Command(tag, capsule_bytes) => self.command(tag, capsule_bytes, target),
            Arrival::Data(tag) => self.data_complete(tag, target),
        }
    }

    fn command(&mut self, tag: CommandTag, capsule_bytes: u32, target: &mut Target) {
        let Some(&command) = self.wire.slots().command(tag) else { return };
        let planned = match data_bytes(&command, capsule_bytes) {
            Ok(bytes) => self.plan(&command, bytes, target).map(|plan| (plan, bytes)),
            Err(status) => Err(status),
        };
        let (plan, bytes) = match planned {
            Ok(planned) => planned,
            Err(status) => {
                if capsule_bytes > 0 {
                    self.wire.expect(Into::Nowhere, capsule_bytes);
                }
                self.wire.answer(tag, status.do_not_retry(), 0, false);
                return;
            }
        };
        let is_callers = matches!(plan, Plan::Caller(_));
        let buffer = if is_callers { Buffer::Caller } else { Buffer::Own(Vec::new()) };
        self.wire.slots().set_data(tag, bytes, buffer);
        let awaits = command.direction() == Direction::ToController && bytes > 0;
        if capsule_bytes > 0 {
            let into = if is_callers { Into::Caller(tag) } else { Into::Own(tag) };
            self.wire.expect(into, bytes);
        }
        match plan {
            Plan::Caller(_) if awaits => {
                let in_capsule = capsule_bytes > 0;
                self.events.push_back(Event::Incoming { tag, bytes, in_capsule });
            }
            Plan::Caller(operation) => self.hand_out(tag, operation, target),
            Plan::Own if awaits && capsule_bytes == 0 => self.wire.request(tag),
            Plan::Own if awaits => {}
            Plan::Own => self.execute_own(tag, &command, target),
        }
    }

    /// How the command is executed, if it may be now.
    fn plan(&self, command: &Command, bytes: u32, target: &mut Target) -> Result<Plan, Status> {
        let is_fabrics = command.opcode() == admin_opcode::FABRICS;
        let limit = match command.direction() {
            Direction::ToController => ADMIN_CAPSULE_DATA_BYTES,
            _ => OWN_DATA_BYTES_MAX,
        };
        let own = if bytes <= limit { Ok(Plan::Own) } else { Err(Status::DATA_SGL_LENGTH_INVALID) };
        if command.is_fused() {
            return Err(Status::INVALID_FIELD);
        }
        match &self.queue {
            None if is_fabrics && command.as_bytes()[fabrics::TYPE_AT] == fabrics::CONNECT => own,
            None => Err(Status::COMMAND_SEQUENCE_ERROR),
            Some(queue) if queue.is_admin() => own,
            Some(_) if is_fabrics => Err(Status::INVALID_OPCODE),
            Some(queue) => {
                let subsystem = target.subsystem(queue.subsystem);
                match io::plan(subsystem, &queue.host_id, command, bytes)? {
                    Plan::Own => own,
                    plan => Ok(plan),
                }
            }
        }
    }

    fn data_complete(&mut self, tag: CommandTag, target: &mut Target) {
        let slots = self.wire.slots();
        let Some(&command) = slots.command(tag) else { return };
        // TCP Transport 1.0, 3.5: damaged data fail their command, and no more.
        if slots.is_damaged(tag) {
            self.wire.answer(tag, Status::TRANSIENT_TRANSPORT_ERROR, 0, false);
            return;
        }
        if !slots.is_callers(tag) {
            self.execute_own(tag, &command, target);
            return;
        }
        // The target may have changed since the command arrived, and the write has not begun.
        let Some(queue) = self.queue else { return };
        let (DataPointer::InCapsule { bytes, .. } | DataPointer::Transport { bytes }) =
            command.data_pointer()
        else {
            return;
        };
        match io::plan(target.subsystem(queue.subsystem), &queue.host_id, &command, bytes) {
            Ok(Plan::Caller(operation)) => self.hand_out(tag, operation, target),
            Ok(Plan::Own) => self.wire.answer(tag, Status::INTERNAL_ERROR, 0, false),
            Err(status) => self.wire.answer(tag, status.do_not_retry(), 0, false),
        }
    }

    fn hand_out(&mut self, tag: CommandTag, operation: Operation, target: &mut Target) {
        self.mark_executing(tag, operation.is_write());
        if let (true, Some(queue)) = (operation.is_write(), &self.queue) {
            target.subsystem(queue.subsystem).write_begins(queue.association, queue.host_id);
        }
        self.events.push_back(Event::Execute { tag, operation });
    }

    fn mark_executing(&mut self, tag: CommandTag, is_write: bool) {
        self.executing[tag.index()] = Some(is_write);
    }

    /// Executes a command whose data, if it has any, are here.
    fn execute_own(&mut self, tag: CommandTag, command: &Command, target: &mut Target) {
        let data = match command.direction() {
            Direction::ToController => std::mem::take(self.wire.slots().own_data(tag)),
            _ => Vec::new(),
        };
        let Some(queue) = self.queue else {
            self.connect(tag, command, &data, target);
            return;
        };
        let subsystem = target.subsystem(queue.subsystem);
        if queue.is_admin() {
            let done = admin::execute(subsystem, queue.association, command, &self.address);
            let keep_alive_ms = subsystem
                .controller(queue.association)
                .map_or(0, |controller| controller.keep_alive_ms);
            self.admin_done(tag, done, keep_alive_ms, target);
            return;
        }
        match io::execute(subsystem, &queue.host_id, command, &data) {
            Err(status) => self.wire.answer(tag, status.do_not_retry(), 0, false),
            Ok(Executed::Caller(operation)) => self.hand_out(tag, operation, target),
            Ok(Executed::Done(data)) => {
                self.reply(tag, Answer { status: Status::SUCCESS, result: 0, data });
            }
            Ok(Executed::After(associations)) => {
                let fence = Fence::new(queue.subsystem, associations);
                if target.is_over(&fence) {
                    self.wire.answer(tag, Status::SUCCESS, 0, false);
                } else {
                    self.mark_executing(tag, false);
                    self.events.push_back(Event::Await { tag, fence });
                }
            }
        }
    }

    fn admin_done(&mut self, tag: CommandTag, done: Done, keep_alive_ms: u32, target: &mut Target) {
        match done {
            Done::Answer(answer) => self.reply(tag, answer),
            Done::KeepAlive(answer) => {
                self.events.push_back(Event::KeepAlive { timeout_ms: keep_alive_ms });
                self.reply(tag, answer);
            }
            Done::Stopped(answer) => {
                self.events.push_back(Event::Stopped);
                self.reply(tag, answer);
            }
            Done::AsyncEventRequest => {
                if self.requests.len() >= usize::from(admin::ASYNC_EVENT_REQUESTS_MAX) {
                    let status = Status::ASYNC_EVENT_LIMIT.do_not_retry();
                    self.wire.answer(tag, status, 0, false);
                    return;
                }
                self.requests.push_back(tag);
                self.notify(target);
            }
        }
    }

    fn reply(&mut self, tag: CommandTag, answer: Answer) {
        let has_data = answer.data.is_some();
        if let Some(data) = answer.data {
            *self.wire.slots().own_data(tag) = data;
        }
        self.wire.answer(tag, answer.status, answer.result, has_data);
    }

    fn connect(&mut self, tag: CommandTag, command: &Command, data: &[u8], target: &mut Target) {
        let opened = match connect(target, command, data) {
            Ok(opened) => opened,
            Err((status, result)) => {
                self.wire.answer(tag, status, result, false);
                return;
            }
        };
        let Opened { connect, controller_id, .. } = opened;
        let capsule_bytes = if opened.is_admin() {
            ADMIN_CAPSULE_DATA_BYTES
        } else {
            target.subsystem(opened.subsystem).limits.in_capsule_bytes_max
        };
        let entries = connect.entries;
        let no_flow_control = connect.no_flow_control;
        self.wire.open(Head { entries, no_flow_control, at: 1 }, capsule_bytes);
        self.queue = Some(opened);
        let tags = self.wire.slots().capacity();
        self.executing.resize(tags, None);
        self.events.reserve(2 * tags);
        if opened.is_admin() && connect.keep_alive_ms > 0 {
            self.events.push_back(Event::KeepAlive { timeout_ms: connect.keep_alive_ms });
        }
        self.wire.answer(tag, Status::SUCCESS, controller_id.into(), false);
    }
}

/// Bytes of the data of a command whose capsule has `capsule_bytes`.
fn data_bytes(command: &Command, capsule_bytes: u32) -> Result<u32, Status> {
    let to_controller = command.direction() == Direction::ToController;
    match command.data_pointer() {
        DataPointer::Unknown(_) => Err(Status::SGL_TYPE_INVALID),
        DataPointer::InCapsule { .. } if !to_controller => Err(Status::INVALID_FIELD),
        DataPointer::InCapsule { offset, .. } if offset != 0 => Err(Status::SGL_OFFSET_INVALID),
        DataPointer::InCapsule { bytes, .. } if bytes == capsule_bytes => Ok(bytes),
        DataPointer::Transport { bytes } if capsule_bytes == 0 && bytes.is_multiple_of(4) => {
            Ok(bytes)
        }
        _ => Err(Status::DATA_SGL_LENGTH_INVALID),
    }
}
